//! Stages that take as much as another one: those whose nodes do the same, in the same order, with
//! values and parameters of the same shapes. Models repeat layers, so most stages are alike.

use crate::load::Mark;
use roundelay_dsl::{Model, NodeId, Operation, ParameterId, Source};
use roundelay_schedule::{Id, Recompute};
use std::collections::BTreeMap;

/// What of a model decides which of its stages are alike, whatever the cuts.
#[derive(Clone, Debug)]
pub(crate) struct Shapes {
    nodes: Vec<Shape>,
    parameters: Vec<u32>,
    /// Nodes up to the loss.
    end: usize,
}

/// A node by what it does.
#[derive(Clone, Debug)]
struct Shape {
    /// Equal for equal operations on equal shapes, where equally much depends on them.
    kind: u32,
    operands: Vec<Source>,
    is_view: bool,
    /// The last node that reads it.
    last: usize,
    layer: Option<u32>,
}

/// A stage as a word: equal words take equally much.
type Word = Vec<u32>;

impl Shapes {
    /// The shapes of a model whose nodes have these marks.
    pub(crate) fn new(model: &Model, marks: &[Mark]) -> Self {
        let mut known: BTreeMap<String, u32> = BTreeMap::new();
        let mut number = |text: String| {
            let next = u32::try_from(known.len()).unwrap_or(u32::MAX);
            *known.entry(text).or_insert(next)
        };
        let (trained, needed) = (trained(model), needed(model));
        let mut last = vec![0; model.nodes.len()];
        for (user, node) in model.nodes.iter() {
            for operand in &node.operands {
                if let Source::Node(made) = operand {
                    last[made.index()] = user.index();
                }
            }
        }
        let parameters = model.parameters.values().map(|parameter| {
            number(format!("{:?} {:?}", parameter.shape, parameter.treatment))
        });
        let parameters = parameters.collect();
        let shape = |(id, node): (NodeId, &roundelay_dsl::Node)| {
            let at = id.index();
            let (layer, output, calls) = marks.get(at).copied().unwrap_or_default();
            let what = (&node.operation, &node.shape, output, calls);
            let about = (what, trained[at], needed[at]);
            Shape {
                kind: number(format!("{about:?}")),
                operands: node.operands.clone(),
                is_view: node.operation == Operation::Reshape,
                last: last[at],
                layer,
            }
        };
        let nodes = model.nodes.iter().map(shape).collect();
        Self { nodes, parameters, end: model.cuttable() }
    }

    /// For each stage the first one that it is like: itself where there is none.
    pub(crate) fn alike(&self, cuts: &[u32], recompute: &[Recompute]) -> Vec<usize> {
        let starts = std::iter::once(0).chain(cuts.iter().map(|cut| *cut as usize));
        let bounds: Vec<usize> = starts.chain([self.end]).collect();
        let mut known: BTreeMap<(Word, Recompute), usize> = BTreeMap::new();
        let first = |stage: usize| {
            let before = stage.checked_sub(1).map(|before| bounds[before]);
            let (start, end) = (bounds[stage], bounds[stage + 1]);
            // What stands behind the loss belongs to the last stage alone.
            if end == self.end {
                return stage;
            }
            match self.word(before.unwrap_or(0), start, end) {
                Some(word) => *known.entry((word, recompute[stage])).or_insert(stage),
                None => stage,
            }
        };
        (0..bounds.len() - 1).map(first).collect()
    }

    /// The word of the nodes `start..end`, where the stage before starts at `before`; none where
    /// it reads a view from elsewhere, whose own shape says too little.
    fn word(&self, before: usize, start: usize, end: usize) -> Option<Word> {
        let mut word = Word::new();
        let mut values: Vec<NodeId> = Vec::new();
        let mut parameters: Vec<ParameterId> = Vec::new();
        let layer = self.nodes[start].layer;
        for at in start..end {
            let node = &self.nodes[at];
            word.extend([node.kind, u32::from(node.last >= end)]);
            word.push(relative(node.layer, layer));
            for operand in &node.operands {
                match *operand {
                    Source::Node(made) if made.index() >= start => {
                        word.extend([0, short(at - made.index())]);
                    }
                    Source::Node(made) => {
                        let value = &self.nodes[made.index()];
                        if value.is_view {
                            return None;
                        }
                        let near = u32::from(made.index() >= before);
                        let on = u32::from(value.last >= end);
                        word.extend([1, value.kind, near, on, place(&mut values, made)]);
                        word.push(relative(value.layer, layer));
                    }
                    Source::Parameter(id) => {
                        let kind = self.parameters[id.index()];
                        word.extend([2, kind, place(&mut parameters, id)]);
                    }
                    Source::Input(id) => word.extend([3, short(id.index())]),
                }
            }
        }
        let behind = self.nodes.get(end).and_then(|node| node.layer);
        word.push(relative(behind, layer));
        Some(word)
    }
}

fn short(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// A layer counted from another one.
fn relative(layer: Option<u32>, first: Option<u32>) -> u32 {
    match (layer, first) {
        (None, _) => u32::MAX,
        (Some(_), None) => u32::MAX - 1,
        (Some(layer), Some(first)) => layer.wrapping_sub(first),
    }
}

/// The place of something among what was seen.
fn place<T: PartialEq + Copy>(seen: &mut Vec<T>, one: T) -> u32 {
    let known = seen.iter().position(|other| *other == one);
    let place = known.unwrap_or_else(|| {
        seen.push(one);
        seen.len() - 1
    });
    short(place)
}

/// Whether a parameter stands above each node.
fn trained(model: &Model) -> Vec<bool> {
    let mut trained: Vec<bool> = Vec::with_capacity(model.nodes.len());
    for node in model.nodes.values() {
        let by = |operand: &Source| match operand {
            Source::Node(made) => trained[made.index()],
            Source::Parameter(_) => true,
            Source::Input(_) => false,
        };
        trained.push(node.operands.iter().any(by));
    }
    trained
}

/// Whether the loss depends on each node.
fn needed(model: &Model) -> Vec<bool> {
    let mut needed = vec![false; model.nodes.len()];
    needed.iter_mut().skip(model.cuttable().saturating_sub(1)).take(1).for_each(|loss| {
        *loss = true;
    });
    for (id, node) in model.nodes.iter().rev() {
        for operand in &node.operands {
            if let (Source::Node(made), true) = (operand, needed[id.index()]) {
                needed[made.index()] = true;
            }
        }
    }
    needed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cost::Costs,
        cutting::{Count, Cuttings},
        load::load,
        sample,
    };
    use roundelay_codegen::{BackwardForm, StageForm};
    use roundelay_schedule::{Sequence, Stage, Tensor};
    use std::collections::BTreeSet;

    #[test]
    fn stages_that_are_alike_take_as_much() {
        let mut program = sample::program(4, 4);
        program.model = sample::gpt(6, 8, 16, false);
        let costs = Costs::new(&program);
        let all = u32::try_from(program.model.cuttable()).unwrap();
        let splits = [
            Tensor::WHOLE,
            Tensor { rows: 2, sequence: Sequence::Whole },
            Tensor { rows: 2, sequence: Sequence::Split },
        ];
        let wanted: BTreeSet<Count> = splits
            .iter()
            .flat_map(|tensor| (1..all).map(|stages| ((2, *tensor), stages)))
            .collect();
        let cuttings = Cuttings::new(&program, &costs, &wanted, 2);
        let mut shared = 0;
        for count in wanted {
            let size = count.0;
            let shapes = Shapes::new(&program.model, &cuttings.marks[&size.1]);
            let cuts = &cuttings.get(count).expect("it has so many nodes").cuts;
            let own: Vec<usize> = (0..=cuts.len()).collect();
            for recompute in Recompute::ALL.iter().copied() {
                for backward in [BackwardForm::Whole, BackwardForm::Split] {
                    let alike = shapes.alike(cuts, &vec![recompute; own.len()]);
                    let form = |_: Stage| StageForm { backward, recompute };
                    let take = |alike: &[usize]| {
                        load(&program, (cuts, form), alike, size, &costs)
                            .expect("it fits")
                    };
                    let (shared_by, each) = (take(&alike), take(&own));
                    for (stage, (one, other)) in shared_by.iter().zip(&each).enumerate() {
                        let like = alike[stage];
                        assert_eq!(
                            one, other,
                            "{stage} like {like} of {cuts:?} {size:?}"
                        );
                    }
                    shared += alike.iter().zip(&own).filter(|(a, b)| a != b).count();
                }
            }
        }
        assert!(shared > 100, "only {shared} stages are alike");
    }
}
