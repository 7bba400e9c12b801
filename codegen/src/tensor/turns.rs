//! How convolutions take turns on a grid: which of them lead from one layout to the other, and
//! which may not, because what they make meets what they read.
//!
//! A convolution that is alone on its branch, as the 1 × 1 map of a residual block that changes the
//! number of channels, would end in the layout in which the block does not. It turns back: its
//! sums are scattered to where its operand lay (adjoint: gathered), and its rows all do the same.

use super::absorb::{is_elementwise, users};
use roundelay_dsl::{Model, Node, NodeId, Operation, ParameterId, Source};
use roundelay_schedule::{Direction, Id};
use std::collections::{BTreeMap, BTreeSet};

/// What a convolution reads and makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It reads what is made of inputs alone, which is whole, and makes what columns divide.
    First,
    /// It reads what one direction divides and makes what the other one divides.
    On,
    /// It reads what columns divide and makes what columns divide.
    Back,
    /// It makes what only a loss reads, which is whole.
    Last,
}

/// The turns of all convolutions that are not in groups.
pub(crate) struct Turns {
    turns: BTreeMap<NodeId, Turn>,
    /// Convolutions without bias whose results are only added to one another.
    partners: BTreeMap<NodeId, NodeId>,
    /// Those of them whose sums are added up before they meet.
    joined: BTreeSet<NodeId>,
}

impl Turns {
    /// Of a model; operands come before their users.
    pub(crate) fn new(model: &Model) -> Self {
        let users = users(model);
        let (phases, brought, turns) = (Vec::new(), Vec::new(), BTreeMap::new());
        let mut finder = Finder { model, users, phases, brought, turns };
        for (id, node) in model.nodes.iter() {
            let phase = finder.phase(id, node);
            finder.phases.push(phase);
            let brought = node.operands.iter().all(|own| finder.is_brought(*own));
            finder.brought.push(brought);
        }
        let partners = finder.partners();
        let joined = finder.joined(&partners);
        Self { turns: finder.turns, partners, joined }
    }

    /// The turn of a convolution that is not in groups.
    pub(crate) fn of(&self, node: NodeId) -> Turn {
        self.turns.get(&node).copied().unwrap_or(Turn::On)
    }

    /// The convolution whose result is only added to that of another one, as it is itself.
    pub(crate) fn partner(&self, node: NodeId) -> Option<NodeId> {
        self.partners.get(&node).copied()
    }

    /// Whether the sums of a convolution are added to those of another one before they meet, where
    /// convolutions take turns.
    pub(crate) fn joins(&self, node: NodeId) -> bool {
        self.joined.contains(&node)
    }
}

/// Follows who divides the features of every value, if all goes as it should.
struct Finder<'a> {
    model: &'a Model,
    users: Vec<Vec<(NodeId, usize)>>,
    phases: Vec<Direction>,
    /// Whether a value is made of inputs alone, which are whole.
    brought: Vec<bool>,
    turns: BTreeMap<NodeId, Turn>,
}

impl Finder<'_> {
    fn at(&self, source: Source) -> Direction {
        match source {
            Source::Node(node) => self.phases[node.index()],
            Source::Parameter(_) | Source::Input(_) => Direction::Columns,
        }
    }

    fn phase(&mut self, id: NodeId, node: &Node) -> Direction {
        let Some(first) = node.operands.first().copied() else {
            return Direction::Columns;
        };
        match node.operation {
            Operation::Conv2d { groups: 1, .. } => {
                let turn = match (self.is_brought(first), self.only_losses_read(id)) {
                    (true, _) => Turn::First,
                    (false, true) => Turn::Last,
                    (false, false) => Turn::On,
                };
                self.turns.insert(id, turn);
                match turn {
                    Turn::First | Turn::Last | Turn::Back => Direction::Columns,
                    Turn::On => super::layout::crossing(self.at(first)),
                }
            }
            Operation::Linear => super::layout::crossing(self.at(first)),
            Operation::Add | Operation::Multiply => self.meet(first, node.operands[1]),
            _ => self.at(first),
        }
    }

    fn is_brought(&self, source: Source) -> bool {
        match source {
            Source::Node(node) => self.brought[node.index()],
            Source::Input(_) => true,
            Source::Parameter(_) => false,
        }
    }

    fn only_losses_read(&self, id: NodeId) -> bool {
        let users = &self.users[id.index()];
        let is_loss = |user: NodeId| {
            self.model.nodes[user].operation == Operation::MeanSquaredError
        };
        !users.is_empty() && users.iter().all(|(user, _)| is_loss(*user))
    }

    /// Who divides a sum of two values. What rows divide turns back, where it can, if columns
    /// divide the other one.
    fn meet(&mut self, one: Source, other: Source) -> Direction {
        let divided = [one, other].map(|own| self.at(own));
        let late = match divided {
            [Direction::Rows, Direction::Columns] => one,
            [Direction::Columns, Direction::Rows] => other,
            _ => return divided[0],
        };
        let Some(chain) = self.turned_back(late) else { return divided[0] };
        for node in chain {
            self.phases[node.index()] = Direction::Columns;
            if let Some(turn) = self.turns.get_mut(&node) {
                *turn = Turn::Back;
            }
        }
        Direction::Columns
    }

    /// The nodes on the way to a value that is made from 1 × 1 convolutions channel by channel, for
    /// one reader alone; none if it is made otherwise.
    fn turned_back(&self, source: Source) -> Option<Vec<NodeId>> {
        let (mut open, mut chain) = (vec![source], Vec::new());
        while let Some(source) = open.pop() {
            let id = match source {
                Source::Node(id) => id,
                Source::Parameter(_) => continue,
                Source::Input(_) => return None,
            };
            let Node { operation, operands, .. } = &self.model.nodes[id];
            let fits = match *operation {
                Operation::Conv2d { groups: 1, .. } => {
                    self.is_point(operands[1])
                        && self.turns.get(&id) == Some(&Turn::On)
                        && self.at(operands[0]) == Direction::Columns
                }
                Operation::Add | Operation::Multiply => {
                    open.extend(operands);
                    true
                }
                operation if is_channelwise(operation) || is_elementwise(operation) => {
                    open.push(operands[0]);
                    true
                }
                _ => false,
            };
            if !fits || self.users[id.index()].len() != 1 {
                return None;
            }
            chain.push(id);
        }
        Some(chain)
    }

    /// Whether filters see one pixel.
    fn is_point(&self, weight: Source) -> bool {
        let one = |id: ParameterId| {
            self.model.parameters[id].shape[1..3].iter().all(|extent| *extent == 1)
        };
        matches!(weight, Source::Parameter(id) if one(id))
    }

    /// Convolutions without bias whose results are only added to one another: a convolution of
    /// several operands side by side.
    fn partners(&self) -> BTreeMap<NodeId, NodeId> {
        let mut partners = BTreeMap::new();
        let adds =
            self.model.nodes.values().filter(|node| node.operation == Operation::Add);
        for node in adds {
            let [Source::Node(one), Source::Node(other)] = node.operands[..] else {
                continue;
            };
            if one != other && self.is_joinable(one) && self.is_joinable(other) {
                partners.extend([(one, other), (other, one)]);
            }
        }
        partners
    }

    fn is_joinable(&self, id: NodeId) -> bool {
        let operands = &self.model.nodes[id].operands;
        let alone = self.users[id.index()].len() == 1 && operands.len() == 2;
        alone && self.turns.contains_key(&id)
    }

    /// Of these, those that read and make alike: their sums meet once.
    fn joined(&self, partners: &BTreeMap<NodeId, NodeId>) -> BTreeSet<NodeId> {
        let alike = |(one, other): &(&NodeId, &NodeId)| {
            let kinds = [**one, **other].map(|id| {
                let turn = self.turns[&id];
                let meets = matches!(turn, Turn::On | Turn::Back);
                meets.then(|| (turn, self.at(self.model.nodes[id].operands[0])))
            });
            kinds[0].is_some() && kinds[0] == kinds[1]
        };
        partners.iter().filter(alike).map(|(one, _)| *one).collect()
    }
}

/// Whether every channel of the result is made from the same channel of the first operand.
pub(super) fn is_channelwise(operation: Operation) -> bool {
    matches!(
        operation,
        Operation::BatchNorm
            | Operation::GroupNorm { .. }
            | Operation::MaxPool { .. }
            | Operation::AvgPool { .. }
            | Operation::GlobalPool
            | Operation::Upsample { .. }
    )
}
