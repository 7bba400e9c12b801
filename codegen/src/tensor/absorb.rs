//! Which affine maps make their own columns: those whose result may stay in parts.

use roundelay_dsl::{Model, NodeId, Operation, Source};
use roundelay_schedule::Id;
use std::{cell::RefCell, collections::BTreeMap};

/// Whether somebody can use an array that is divided along an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Use {
    /// Nobody.
    No,
    /// Somebody, if the parts are equal.
    Even,
    /// Somebody, however it is divided.
    Any,
}

/// The extent of (batch, heads, s, s) that counts heads.
pub(super) const HEADS: u32 = 1;

/// What each array of a model may be used for in parts.
pub(crate) struct Absorb<'a> {
    model: &'a Model,
    rows: u64,
    users: Vec<Vec<(NodeId, usize)>>,
    known: RefCell<BTreeMap<(NodeId, u32), Use>>,
    made: RefCell<BTreeMap<NodeId, bool>>,
}

impl<'a> Absorb<'a> {
    /// For so many parts.
    pub(crate) fn new(model: &'a Model, rows: u64) -> Self {
        let mut users = vec![Vec::new(); model.nodes.len()];
        for (id, node) in model.nodes.iter() {
            for (place, operand) in node.operands.iter().enumerate() {
                if let Source::Node(operand) = operand {
                    users[operand.index()].push((id, place));
                }
            }
        }
        let (known, made) = (RefCell::default(), RefCell::default());
        Self { model, rows, users, known, made }
    }

    /// Whether an affine map makes its own columns.
    pub(crate) fn takes_columns(&self, node: NodeId) -> bool {
        let last = self.last(node);
        let width = self.model.nodes[node].shape[last as usize].size;
        match self.of(node, last) {
            Use::No => false,
            Use::Even => width.is_multiple_of(self.rows),
            Use::Any => width >= self.rows,
        }
    }

    fn last(&self, node: NodeId) -> u32 {
        let rank = self.model.nodes[node].shape.len();
        u32::try_from(rank.saturating_sub(1)).expect("shapes have few extents")
    }

    /// The best use of a node's result divided along an extent.
    fn of(&self, node: NodeId, extent: u32) -> Use {
        if let Some(known) = self.known.borrow().get(&(node, extent)) {
            return *known;
        }
        let users = self.users[node.index()].iter();
        let best = users.map(|(user, place)| self.by(*user, *place, node, extent)).max();
        let best = best.unwrap_or(Use::No);
        self.known.borrow_mut().insert((node, extent), best);
        best
    }

    /// What one user can do with its operand `node` divided along an extent.
    fn by(&self, user: NodeId, place: usize, node: NodeId, extent: u32) -> Use {
        let is_last = extent == self.last(node);
        let first = place == 0;
        let whole_heads = |heads: u64| is_last && heads.is_multiple_of(self.rows);
        match self.model.nodes[user].operation {
            Operation::Linear if first && is_last => Use::Even,
            Operation::Attention { heads, key_heads, .. }
                if whole_heads(heads) && whole_heads(key_heads) =>
            {
                Use::Even
            }
            Operation::Scores { heads, key_heads, .. }
                if whole_heads(heads) && whole_heads(key_heads) =>
            {
                self.of(user, HEADS).min(Use::Even)
            }
            // The weights are divided by heads as soon as the scores are.
            Operation::Mix { heads, key_heads }
                if heads.is_multiple_of(self.rows)
                    && key_heads.is_multiple_of(self.rows)
                    && (if first { extent == HEADS } else { is_last }) =>
            {
                Use::Even
            }
            Operation::CrossEntropy | Operation::MaskedCrossEntropy
                if first && is_last =>
            {
                Use::Any
            }
            Operation::Rotary { heads, .. } if whole_heads(heads) => {
                self.of(user, extent).min(Use::Even)
            }
            Operation::Reshape => match self.reshaped(node, user, extent) {
                Some(extent) => self.of(user, extent).min(Use::Even),
                None => Use::No,
            },
            Operation::LayerNorm { .. }
            | Operation::RmsNorm { .. }
            | Operation::Softmax
                if first && !is_last =>
            {
                self.of(user, extent)
            }
            Operation::Add | Operation::Multiply => match self.is_split(user) {
                true => self.of(user, extent),
                false => Use::No,
            },
            operation if is_elementwise(operation) => self.of(user, extent),
            _ => Use::No,
        }
    }

    /// Whether a result can be made in parts, from affine maps on.
    fn is_split(&self, node: NodeId) -> bool {
        if let Some(known) = self.made.borrow().get(&node) {
            return *known;
        }
        let Node { operation, operands } = self.node(node);
        let split = match operation {
            Operation::Linear => true,
            Operation::Add | Operation::Multiply => {
                operands.iter().all(|operand| match operand {
                    Source::Node(node) => self.is_split(*node),
                    Source::Parameter(_) => true,
                    Source::Input(_) => false,
                })
            }
            operation if is_elementwise(operation) => match operands[0] {
                Source::Node(node) => self.is_split(node),
                Source::Parameter(_) | Source::Input(_) => false,
            },
            _ => false,
        };
        self.made.borrow_mut().insert(node, split);
        split
    }

    fn node(&self, node: NodeId) -> Node<'a> {
        let roundelay_dsl::Node { operation, operands, .. } = &self.model.nodes[node];
        Node { operation: *operation, operands }
    }

    /// The extent of a reshaped array that is divided when one of its operand is.
    pub(crate) fn reshaped(&self, from: NodeId, to: NodeId, extent: u32) -> Option<u32> {
        let [from, to] = [from, to].map(|node| &self.model.nodes[node].shape);
        let before = |shape: &[roundelay_dsl::Extent]| -> u64 {
            shape.iter().map(|extent| extent.size).product()
        };
        let outer = before(&from[..extent as usize]);
        let even = from[extent as usize].size.is_multiple_of(self.rows);
        let fits = |place: &usize| {
            let size = to[*place].size;
            before(&to[..*place]) == outer && size > 1 && size.is_multiple_of(self.rows)
        };
        let place = (0..to.len()).find(fits).filter(|_| even)?;
        u32::try_from(place).ok()
    }
}

/// What an operation is and reads.
struct Node<'a> {
    operation: Operation,
    operands: &'a [Source],
}

/// Whether every element of the result is made from the same element of the only operand.
pub(super) fn is_elementwise(operation: Operation) -> bool {
    matches!(
        operation,
        Operation::Relu
            | Operation::Gelu
            | Operation::GeluTanh
            | Operation::SoftCap { .. }
            | Operation::Silu
            | Operation::Scale { .. }
            | Operation::Dropout { .. }
    )
}
