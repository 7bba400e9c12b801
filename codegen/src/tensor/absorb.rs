//! Which affine maps make their own columns: those whose result may stay in parts.

use roundelay_dsl::{Extent, Heads, Model, Node, NodeId, Operation, Source};
use roundelay_schedule::{Id, Tensor};

/// Whether some operation can use an array that is divided along an extent.
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
    /// Parts of the whole grid.
    parts: u64,
    /// Whether each result can be made in parts, from affine maps on.
    made: Vec<bool>,
    /// The best use of each result divided along each of its extents.
    uses: Vec<Vec<Use>>,
    /// Whether each result goes into heads before any other map.
    heads: Vec<bool>,
}

impl<'a> Absorb<'a> {
    /// For a grid. Operands come before their users: what depends on operands is known from the
    /// first node on, what depends on users from the last one back.
    pub(crate) fn new(model: &'a Model, tensor: Tensor) -> Self {
        let [rows, parts] = [tensor.rows, tensor.parts()].map(u64::from);
        let uses = vec![Vec::new(); model.nodes.len()];
        let heads = vec![false; model.nodes.len()];
        let mut absorb = Self { model, rows, parts, made: Vec::new(), uses, heads };
        for node in model.nodes.values() {
            let made = absorb.makes(node);
            absorb.made.push(made);
        }
        let users = users(model);
        for id in model.nodes.ids().rev() {
            let best = (0..absorb.rank(id)).map(|extent| {
                let users = users[id.index()].iter();
                users.map(|(user, place)| absorb.by(*user, *place, id, extent)).max()
            });
            absorb.uses[id.index()] = best.map(|best| best.unwrap_or(Use::No)).collect();
            let mut users = users[id.index()].iter();
            absorb.heads[id.index()] = users.any(|(user, _)| absorb.takes_heads(*user));
        }
        absorb
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

    /// Whether some operation could use equal parts of the result of an affine map, if there were such.
    pub(crate) fn wants_columns(&self, node: NodeId) -> bool {
        self.of(node, self.last(node)) == Use::Even
    }

    /// Whether a result goes into heads before any other map.
    pub(crate) fn meets_heads(&self, node: NodeId) -> bool {
        self.heads[node.index()]
    }

    /// Whether a node works head by head, or hands on to one that does.
    fn takes_heads(&self, node: NodeId) -> bool {
        match self.model.nodes[node].operation {
            Operation::Attention { .. }
            | Operation::Scores { .. }
            | Operation::Mix { .. }
            | Operation::Rotary(_) => true,
            Operation::Linear | Operation::Conv2d { .. } => false,
            _ => self.heads[node.index()],
        }
    }

    /// Whether an affine map makes classes of a loss, which however many parts may divide.
    pub(crate) fn makes_classes(&self, node: NodeId) -> bool {
        self.may_be_uneven(node, self.parts)
    }

    /// Whether only a loss over classes reads what a map makes, and there are this many at least.
    pub(crate) fn may_be_uneven(&self, node: NodeId, parts: u64) -> bool {
        let last = self.last(node);
        let width = self.model.nodes[node].shape[last as usize].size;
        self.of(node, last) == Use::Any && width >= parts
    }

    fn last(&self, node: NodeId) -> u32 {
        self.rank(node).saturating_sub(1)
    }

    fn rank(&self, node: NodeId) -> u32 {
        let rank = self.model.nodes[node].shape.len();
        u32::try_from(rank).expect("shapes have few extents")
    }

    /// The best use of a node's result divided along an extent.
    fn of(&self, node: NodeId, extent: u32) -> Use {
        let uses = &self.uses[node.index()];
        uses.get(extent as usize).copied().unwrap_or(Use::No)
    }

    /// What one user can do with its operand `node` divided along an extent.
    fn by(&self, user: NodeId, place: usize, node: NodeId, extent: u32) -> Use {
        let is_last = extent == self.last(node);
        let first = place == 0;
        let whole_heads = |heads: Heads| heads.divide_into(self.rows);
        match self.model.nodes[user].operation {
            Operation::Linear if first && is_last => Use::Even,
            Operation::Attention { heads, .. } if is_last && whole_heads(heads) => {
                Use::Even
            }
            Operation::Scores { heads, .. } if is_last && whole_heads(heads) => {
                self.of(user, HEADS).min(Use::Even)
            }
            // The weights are divided by heads as soon as the scores are.
            Operation::Mix { heads }
                if whole_heads(heads)
                    && (if first { extent == HEADS } else { is_last }) =>
            {
                Use::Even
            }
            Operation::CrossEntropy { .. } if first && is_last => Use::Any,
            Operation::Rotary(turning)
                if is_last && turning.groups().is_multiple_of(self.rows) =>
            {
                self.of(user, extent).min(Use::Even)
            }
            Operation::Reshape => match self.reshaped((node, user), extent, self.rows) {
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
            Operation::Add | Operation::Multiply => {
                if self.made[user.index()] {
                    self.of(user, extent)
                } else {
                    Use::No
                }
            }
            // As the rule of its own says.
            Operation::Dropout { .. } => self.of(user, extent).min(Use::Even),
            operation if is_elementwise(operation) => self.of(user, extent),
            _ => Use::No,
        }
    }

    /// Whether a result can be made in parts when its operands are known.
    fn makes(&self, Node { operation, operands, .. }: &Node) -> bool {
        let is_made = |operand: &Source| match operand {
            Source::Node(node) => self.made[node.index()],
            Source::Parameter(_) => {
                matches!(operation, Operation::Add | Operation::Multiply)
            }
            Source::Input(_) => false,
        };
        match *operation {
            Operation::Linear => true,
            Operation::Add | Operation::Multiply => operands.iter().all(is_made),
            operation if is_elementwise(operation) => is_made(&operands[0]),
            _ => false,
        }
    }

    /// The extent of a reshaped array that is divided when one of its operand is: both have equally
    /// many parts before them in every example, or in all together. An extent that counts examples
    /// is never divided.
    pub(crate) fn reshaped(
        &self,
        (from, to): (NodeId, NodeId),
        extent: u32,
        parts: u64,
    ) -> Option<u32> {
        let [from, to] = [from, to].map(|node| &self.model.nodes[node].shape);
        let outer = before(&from[..extent as usize]);
        let divides =
            |extent: Extent| !extent.per_example && extent.size.is_multiple_of(parts);
        let fits = |place: &usize| {
            before(&to[..*place]) == outer && to[*place].size > 1 && divides(to[*place])
        };
        let is_even = divides(from[extent as usize]);
        let place = (0..to.len()).find(fits).filter(|_| is_even)?;
        u32::try_from(place).ok()
    }
}

/// How often whatever lies in these extents is there: this many times, and whether in every example.
fn before(outer: &[Extent]) -> (u64, bool) {
    let times = outer.iter().map(|extent| extent.size).product();
    (times, outer.iter().any(|extent| extent.per_example))
}

/// For each result the operations that read it, and in which place.
pub(super) fn users(model: &Model) -> Vec<Vec<(NodeId, usize)>> {
    let mut users = vec![Vec::new(); model.nodes.len()];
    for (id, node) in model.nodes.iter() {
        for (place, operand) in node.operands.iter().enumerate() {
            if let Source::Node(operand) = operand {
                users[operand.index()].push((id, place));
            }
        }
    }
    users
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
            | Operation::Boundary(_)
    )
}
