//! Stages that take as much as another one: those whose nodes do the same, in the same order, with
//! values and parameters of the same shapes. Models repeat layers, so most stages are alike.

use crate::costs::{core::Place, nodes::Mark};
use roundelay_dsl::{Model, NodeId, Operation, ParameterId, Source};
use roundelay_schedule::Id;
use std::ops::Range;

/// What of a model decides which of its stages are alike, whatever the cuts.
#[derive(Clone, Debug)]
pub(crate) struct Shapes {
    nodes: Vec<Shape>,
    parameters: Vec<u32>,
    /// From the first user of each parameter to behind its last one: what a stage takes differs where
    /// others use its parameters too.
    users: Vec<Range<usize>>,
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
    /// The last node that reads it, and the last on which the loss depends: it adds to the
    /// gradient.
    last: [usize; 2],
    layer: Option<u32>,
}

/// What decides what a stage takes, whatever the other cuts: stages of equal kinds take equally
/// much.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// What its nodes do, as a word.
    Word(Vec<u32>),
    /// Its own nodes.
    Own(Place),
}

impl Shapes {
    /// The shapes of a model whose nodes have these marks.
    pub(crate) fn new(model: &Model, marks: &[Mark]) -> Self {
        let (trained, needed) = (model.trained(), needed(model));
        let mut last = vec![[0; 2]; model.nodes.len()];
        for (user, node) in model.nodes.iter() {
            for operand in &node.operands {
                if let Source::Node(made) = operand {
                    let [reads, adds] = &mut last[made.index()];
                    *reads = user.index();
                    if needed[user.index()] {
                        *adds = user.index();
                    }
                }
            }
        }
        let mut sorts = Vec::new();
        let parameters = model
            .parameters
            .values()
            .map(|parameter| place(&mut sorts, (&parameter.shape, parameter.treatment)));
        let parameters = parameters.collect();
        let mut kinds = Vec::new();
        let nodes = model.nodes.iter().map(|(id, node)| {
            let at = id.index();
            let mark = marks.get(at).copied().unwrap_or_default();
            let layerless = Mark { layer: None, ..mark };
            let what = (node.operation, &node.shape, layerless);
            Shape {
                kind: place(&mut kinds, (what, trained[at], needed[at])),
                operands: node.operands.clone(),
                is_view: is_view(node.operation),
                last: last[at],
                layer: mark.layer,
            }
        });
        let nodes = nodes.collect();
        Self { nodes, parameters, users: users(model), end: model.cuttable() }
    }

    /// The kind of a stage.
    pub(crate) fn kind(&self, place: Place) -> Kind {
        let Place { before, start, end } = place;
        // What stands behind the loss belongs to the last stage alone.
        let word = match end == self.end {
            true => None,
            false => self.word(before, start, end),
        };
        word.map_or(Kind::Own(place), Kind::Word)
    }

    /// The word of the nodes `start..end`, where the stage before starts at `before`; none where
    /// it reads a view from elsewhere, whose own shape says too little.
    fn word(&self, before: usize, start: usize, end: usize) -> Option<Vec<u32>> {
        let mut word = Vec::new();
        let mut values: Vec<NodeId> = Vec::new();
        let mut parameters: Vec<ParameterId> = Vec::new();
        let layer = self.nodes[start].layer;
        for at in start..end {
            let node = &self.nodes[at];
            word.push(node.kind);
            word.extend(node.last.map(|last| u32::from(last >= end)));
            word.extend(relative(node.layer, layer));
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
                        word.extend([1, value.kind, near, place(&mut values, made)]);
                        word.extend(value.last.map(|last| u32::from(last >= end)));
                        word.extend(relative(value.layer, layer));
                    }
                    Source::Parameter(id) => {
                        let kind = self.parameters[id.index()];
                        let users = &self.users[id.index()];
                        let is_tied = users.start < start || users.end > end;
                        let own = place(&mut parameters, id);
                        word.extend([2, kind, own, u32::from(is_tied)]);
                    }
                    Source::Input(id) => word.extend([3, short(id.index())]),
                }
            }
        }
        let behind = self.nodes.get(end).and_then(|node| node.layer);
        word.extend(relative(behind, layer));
        Some(word)
    }
}

fn users(model: &Model) -> Vec<Range<usize>> {
    let mut users: Vec<Option<Range<usize>>> = vec![None; model.parameters.len()];
    for (id, node) in model.nodes.iter() {
        for operand in &node.operands {
            if let Source::Parameter(parameter) = operand {
                let own = users[parameter.index()].get_or_insert(id.index()..0);
                own.end = id.index() + 1;
            }
        }
    }
    users.into_iter().map(Option::unwrap_or_default).collect()
}

/// Whether an operation makes nothing, but shows what it reads as something else.
pub(crate) fn is_view(operation: Operation) -> bool {
    matches!(operation, Operation::Reshape | Operation::Boundary(_))
}

fn short(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// A layer counted from another one, as letters of a word: the first one says whether there is
/// something to count.
fn relative(layer: Option<u32>, first: Option<u32>) -> [u32; 2] {
    match (layer, first) {
        (None, _) => [0, 0],
        (Some(_), None) => [1, 0],
        (Some(layer), Some(first)) => [2, layer.wrapping_sub(first)],
    }
}

/// The place of something among what was seen; models have few kinds of nodes.
fn place<T: PartialEq>(seen: &mut Vec<T>, one: T) -> u32 {
    let known = seen.iter().position(|other| *other == one);
    short(known.unwrap_or_else(|| {
        seen.push(one);
        seen.len() - 1
    }))
}

/// Whether a minimised loss depends on each node.
pub(crate) fn needed(model: &Model) -> Vec<bool> {
    let loss = model.cuttable().checked_sub(1).map(NodeId::new);
    model.needed(model.auxiliary.iter().copied().chain(loss), |_| true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        costs::{
            bill::Reach,
            calls::{Costs, On},
            core::places,
            nodes::Nodes,
            pattern::{Pattern, in_a_row, patterns},
        },
        sample,
    };
    use roundelay_codegen::StageForm;
    use roundelay_dsl::Program;
    use roundelay_schedule::{Stage, Tensor};
    use std::collections::BTreeMap;

    /// Cuts everywhere, at every second node and so on, shifted.
    fn all_cuts(model: &Model) -> impl Iterator<Item = Vec<u32>> {
        let end = u32::try_from(model.cuttable()).unwrap();
        (1..end).flat_map(move |step| {
            [1, step.div_ceil(2)]
                .map(|first| (first..end).step_by(step as usize).collect::<Vec<u32>>())
        })
    }

    fn program() -> Program {
        let mut program = sample::program(4, 4);
        program.model = sample::gpt(6, 32, 16, false);
        program
    }

    /// The patterns of all stages in one form.
    fn all(
        program: &Program,
        (cuts, tensor): (&[u32], Tensor),
        form: StageForm,
        reach: Reach,
        costs: &Costs,
    ) -> Vec<Pattern> {
        let stages = (0..=cuts.len()).map(|stage| (Stage::new(stage), form));
        let (wanted, model) = (stages.collect::<Vec<_>>(), (program, &program.model));
        let found = patterns(model, (cuts, tensor), &wanted, reach, costs).unwrap();
        found.into_iter().map(|one| one.unwrap().unwrap()).collect()
    }

    #[test]
    fn stages_of_one_kind_take_as_much() {
        let shared: usize = [false, true].map(alike_of_one_kind).iter().sum();
        assert!(shared > 500, "only {shared} stages are alike");
    }

    /// How many stages of a model are like others before them.
    fn alike_of_one_kind(is_tied: bool) -> usize {
        let (mut program, mut shared) = (program(), 0);
        program.model = sample::gpt(6, 32, 16, is_tied);
        let costs = Costs::new(&program);
        for tensor in sample::SPLITS {
            let nodes =
                Nodes::new((&program, &program.model), (2, tensor), &costs).unwrap();
            let shapes = Shapes::new(&program.model, &nodes.marks);
            for form in sample::forms() {
                let mut known: BTreeMap<Kind, _> = BTreeMap::new();
                for cuts in all_cuts(&program.model).step_by(9) {
                    let own = all(&program, (&cuts, tensor), form, Reach::One(2), &costs);
                    let kinds = places(&cuts, program.model.cuttable());
                    let kinds = kinds.map(|place| shapes.kind(place));
                    for (stage, (kind, own)) in kinds.zip(own).enumerate() {
                        let own = own.at(2, &costs);
                        let like = known.entry(kind).or_insert_with(|| own.clone());
                        shared += usize::from(stage > 0);
                        assert_eq!(*like, own, "{stage} of {cuts:?} {form:?}");
                    }
                }
                shared -= known.len();
            }
        }
        shared
    }

    #[test]
    fn a_layer_before_the_first_one_is_no_missing_layer() {
        let missing = relative(None, Some(3));
        for layer in [0, 2, 3, 4, u32::MAX] {
            assert_ne!(relative(Some(layer), Some(3)), missing, "{layer}");
        }
        assert_ne!(relative(Some(2), None), missing);
    }

    /// The gradient of what the loss reads later comes back; what a metric reads has none.
    #[test]
    fn what_only_metrics_read_later_is_of_another_kind() {
        let mut program = sample::program(4, 4);
        program.model = sample::read_again();
        let (costs, size) = (Costs::new(&program), (2, Tensor::WHOLE));
        let nodes = Nodes::new((&program, &program.model), size, &costs).unwrap();
        let marks = nodes.marks.iter().map(|mark| Mark { layer: None, ..*mark });
        let shapes = Shapes::new(&program.model, &marks.collect::<Vec<Mark>>());
        let kind =
            |start| shapes.kind(Place { before: start - 2, start, end: start + 2 });
        assert!(matches!(kind(2), Kind::Word(_)));
        assert_ne!(kind(2), kind(4));
    }

    #[test]
    fn what_stages_take_is_on_a_line_over_the_examples() {
        let program = program();
        let costs = Costs::new(&program);
        for tensor in sample::SPLITS {
            let nodes =
                Nodes::new((&program, &program.model), (2, tensor), &costs).unwrap();
            assert_eq!(nodes.reach, Reach::Most, "{tensor:?}");
            for (form, cuts) in
                sample::forms().zip(all_cuts(&program.model).skip(6).step_by(7))
            {
                let make = |reach| {
                    all(&program, (&cuts, tensor), form, reach, &costs).into_iter()
                };
                for examples in [1, 2, 3, 7, 48, 500] {
                    let model = (&program, &program.model);
                    let [line, own] = [Nodes::new, Nodes::alone]
                        .map(|nodes| nodes(model, (examples, tensor), &costs).unwrap());
                    assert_eq!(
                        line.times(examples, On::Any, &costs),
                        own.times(examples, On::Any, &costs)
                    );
                    let line = make(Reach::widest(examples, tensor))
                        .map(|one| one.at(examples, &costs));
                    let own =
                        make(Reach::One(examples)).map(|one| one.at(examples, &costs));
                    assert_eq!(
                        in_a_row(line.collect(), &[]),
                        in_a_row(own.collect(), &[]),
                        "{examples} {cuts:?} {form:?} {tensor:?}"
                    );
                }
            }
        }
    }
}
