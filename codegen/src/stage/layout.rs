//! Where everything lies that outlives one routine: parameters in each stage's flat array, kept
//! tensors in its activation, values that cross in rows of their own. A stage whose backward
//! pass is in two halves keeps apart what the second half reads.

use super::{
    BackwardForm, CrossingValue, Differentiated, StageForm, Storage,
    call::{Tensor, Term},
    flow::{Crossing, Flow, Staged},
    fuse::Rewriting,
    graph::Graph,
    halves::Halves,
    hashed::{HashedMap, HashedSet},
    keep::Keep,
    memory::Packing,
    replace::is_of_examples,
};
use roundelay_dsl::{ParameterId, Source};
use roundelay_schedule::{
    Bytes, Element, Float, Id, InputId, Parameter, Pass, Role, Stage, Table, ValueId,
};
use std::collections::BTreeMap;

/// Every parameter starts at a multiple of this many elements, so that vectors load aligned.
const PARAMETER_ALIGNMENT: u64 = 16;
/// Arguments are a multiple of this many bytes, so that rows of 16 bits lie on those of 32.
pub(crate) const SIZE_ALIGNMENT: u64 = 4;

/// Homes of all tensors that are no scratch.
pub(crate) struct Layout<'a> {
    /// What is cut.
    pub(crate) graph: &'a Graph<'a>,
    /// Where it is cut.
    pub(crate) flow: &'a Flow,
    /// The real type.
    pub(crate) dtype: Float,
    /// Elements of each state's flat parameters.
    pub(crate) elements: Table<Stage, u64>,
    /// Which calls become one.
    pub(crate) rewriting: Rewriting<'a>,
    /// The state of every parameter, and where in its flat array it begins.
    places: HashedMap<ParameterId, (Stage, u64)>,
    kept: BTreeMap<Stage, Kept>,
}

/// What a stage keeps from pass to pass.
struct Kept {
    /// Until B or I.
    activation: Packing,
    /// Until W.
    retained: Packing,
    /// From I to W.
    adjoint: Packing,
    keep: Keep,
    backward: Backward,
}

/// The backward pass of a stage.
pub(crate) enum Backward {
    /// In one piece.
    Whole,
    /// In two.
    Split(Halves),
}

impl<'a> Layout<'a> {
    /// Lays out some stages of a cut model; where the others keep what they keep is left open.
    pub(crate) fn new(
        graph: &'a Graph<'a>,
        flow: &'a Flow,
        Storage { dtype, padding }: Storage,
        (stages, form): (impl IntoIterator<Item = Stage>, impl Fn(Stage) -> StageForm),
        rewriting: Rewriting<'a>,
    ) -> Self {
        let states = flow.count() + flow.ties.len();
        let mut elements: Table<Stage, u64> = (0..states).map(|_| 0).collect();
        let mut places = HashedMap::default();
        for (parameter, state) in &flow.parameters {
            let start = align_up(elements[*state], PARAMETER_ALIGNMENT);
            let size = graph.elements(Source::Parameter(*parameter));
            elements[*state] = start.saturating_add(size);
            places.insert(*parameter, (*state, start));
        }
        for (stage, count) in elements.iter_mut() {
            if flow.keeper(stage) == stage {
                *count = align_up((*count).max(1), padding.max(1));
            }
        }
        let keep = |stage: Stage| {
            let StageForm { backward, recompute } = form(stage);
            let at = Staged { graph, flow, stage };
            let keep = Keep::new(at, dtype, recompute);
            let backward = match backward {
                BackwardForm::Whole => Backward::Whole,
                BackwardForm::Split => Backward::Split(Halves::new(at, &keep)),
            };
            (stage, Kept::new(graph, keep, backward, dtype))
        };
        let kept = stages.into_iter().map(keep).collect();
        Self { graph, flow, dtype, elements, rewriting, places, kept }
    }

    /// What a stage keeps for its backward pass.
    pub(crate) fn keep(&self, stage: Stage) -> &Keep {
        &self.kept[&stage].keep
    }

    /// The backward pass of a stage.
    pub(crate) fn backward(&self, stage: Stage) -> &Backward {
        &self.kept[&stage].backward
    }

    /// Where a tensor lies in the routine of a pass of a stage; nowhere when workspace is its
    /// home.
    pub(crate) fn home(
        &self,
        tensor: Tensor,
        (pass, stage): (Pass, Stage),
    ) -> Option<(Role, Bytes)> {
        let kept = || self.kept[&stage].home(tensor, pass);
        let start = |role| Some((role, Bytes(0)));
        let value = |node| self.flow.value(node);
        match tensor {
            Tensor::Source(Source::Input(id)) => {
                start(Role::Input(InputId::new(id.index())))
            }
            Tensor::Source(Source::Parameter(id)) => {
                let (state, start) = self.places[&id];
                let [parameters, _] = self.flow.roles(state);
                Some((parameters, Bytes(start) * self.dtype.size()))
            }
            Tensor::Source(Source::Node(node)) if node == self.graph.loss => {
                start(Role::Metric)
            }
            Tensor::Source(Source::Node(node)) => match value(node) {
                Some(value) => start(Role::Value(value)),
                None => kept(),
            },
            Tensor::Auxiliary(..) | Tensor::Aside(..) | Tensor::Adjoint(_) => kept(),
            Tensor::Gradient(Source::Parameter(id)) => {
                let (state, start) = self.places[&id];
                let [_, gradients] = self.flow.roles(state);
                Some((gradients, self.sum(start)))
            }
            Tensor::Gradient(Source::Node(node)) => match self.flow.gradient(node) {
                Some(value) => start(Role::ValueGradient(value)),
                None => kept(),
            },
            Tensor::Gradients(state, from) => {
                let [_, gradients] = self.flow.roles(state);
                Some((gradients, self.sum(from)))
            }
            Tensor::Metric(number) => {
                let place = 1 + u64::from(number);
                Some((Role::Metric, Bytes(place) * self.dtype.wide_size()))
            }
            Tensor::Gradient(Source::Input(_))
            | Tensor::Contribution(_)
            | Tensor::Scratch(..)
            | Tensor::Unwanted(..)
            | Tensor::Again(..)
            | Tensor::Detour(..)
            | Tensor::ParameterDetour(..) => None,
        }
    }

    /// Bytes of an argument; workspace differs by routine and is not known here.
    pub(crate) fn size(&self, role: Role, stage: Stage) -> Bytes {
        let aligned = |size: Bytes| size.align_up(SIZE_ALIGNMENT);
        let real = |elements: u64| aligned(Bytes(elements) * self.dtype.size());
        match role {
            Role::Parameter | Role::NextParameter => real(self.flat(stage)),
            Role::Gradient | Role::Received => self.sum(self.flat(stage)),
            Role::Tied(state) => real(self.elements[state]),
            Role::TiedGradient(state) => self.sum(self.elements[state]),
            Role::Activation => self.kept[&stage].activation.size,
            Role::Retained => self.kept[&stage].retained.size,
            Role::Adjoint => self.kept[&stage].adjoint.size,
            Role::Value(value) | Role::ValueGradient(value) => {
                let node = self.flow.crossing[value.index()].node;
                real(self.graph.elements(Source::Node(node)))
            }
            Role::Input(input) => {
                let source = Source::Input(Id::new(input.index()));
                let element = self.graph.element(source);
                Bytes(self.graph.elements(source)) * element.size(self.dtype)
            }
            Role::Metric => {
                Bytes(1 + self.graph.metrics.len() as u64) * self.dtype.wide_size()
            }
            Role::Squares => Bytes(self.dtype.wide_size()),
            Role::Optimizer | Role::Workspace => Bytes(0),
        }
    }

    /// Elements of the flat parameters that a stage reads.
    pub(crate) fn flat(&self, stage: Stage) -> u64 {
        self.elements[self.flow.keeper(stage)]
    }

    /// First and end element of a parameter in its state's flat array.
    pub(crate) fn range(&self, parameter: ParameterId) -> (u64, u64) {
        let (_, start) = self.places[&parameter];
        let size = self.graph.elements(Source::Parameter(parameter));
        (start, start.saturating_add(size))
    }

    /// The parameters of all states, by state, then offset.
    pub(crate) fn parameters(&self) -> Vec<Parameter> {
        let parameter = |(id, stage): &(ParameterId, Stage)| {
            let parameter = &self.graph.model.parameters[*id];
            Parameter {
                name: parameter.name.clone(),
                belonging: parameter.belonging,
                stage: *stage,
                offset: self.places[id].1,
                shape: parameter.shape.clone(),
                kind: parameter.kind,
                split: parameter.split,
                initial: parameter.initial,
                treatment: parameter.treatment,
            }
        };
        self.flow.parameters.iter().map(parameter).collect()
    }

    /// The values that cross a cut.
    pub(crate) fn values(&self) -> Table<ValueId, CrossingValue> {
        let value = |(index, row): (usize, &Crossing)| CrossingValue {
            name: self.graph.model.nodes[row.node].name.clone(),
            producer: row.producer,
            last: row.last,
            size: self.size(Role::Value(ValueId::new(index)), row.producer),
            gradient: row.returns.map_or(Differentiated::No, Differentiated::From),
        };
        self.flow.crossing.iter().enumerate().map(value).collect()
    }

    /// The element that a term is kept in.
    pub(crate) fn element(&self, term: &Term) -> Element {
        element(self.graph, self.dtype, term.tensor, term.element)
    }

    /// Bytes of gradient sums of this many parameters.
    fn sum(&self, elements: u64) -> Bytes {
        Bytes(elements) * self.dtype.gradient().size(self.dtype)
    }
}

impl Kept {
    fn new(graph: &Graph<'_>, keep: Keep, backward: Backward, dtype: Float) -> Self {
        let (late, adjoint) = match &backward {
            Backward::Whole => (HashedSet::default(), vec![]),
            Backward::Split(halves) => {
                let size = |(tensor, elements): &(Tensor, u64)| {
                    let element = element(graph, dtype, *tensor, Element::Real);
                    (*tensor, Bytes(*elements) * element.size(dtype))
                };
                let adjoint = halves.adjoint.iter().map(size).collect();
                (halves.read_by_weight(), adjoint)
            }
        };
        let all = keep.tensors.iter().map(|made| (made.tensor, made.size));
        // What is made of examples lies together, so that what it leaves is room together.
        let (of_examples, others): (Vec<_>, Vec<_>) =
            all.partition(|(tensor, _)| is_of_examples(graph, *tensor));
        let all = of_examples.into_iter().chain(others);
        let (retained, activation): (Vec<_>, Vec<_>) =
            all.partition(|(tensor, _)| late.contains(tensor));
        let [activation, retained, adjoint] =
            [activation, retained, adjoint].map(|kept: Vec<(Tensor, Bytes)>| {
                let packing = Packing::sequence(kept);
                Packing { size: packing.size.align_up(SIZE_ALIGNMENT), ..packing }
            });
        Self { activation, retained, adjoint, keep, backward }
    }

    /// What forward loses may lie in the adjoint once it is made again.
    fn home(&self, tensor: Tensor, pass: Pass) -> Option<(Role, Bytes)> {
        let places = [
            (Role::Activation, &self.activation),
            (Role::Retained, &self.retained),
            (Role::Adjoint, &self.adjoint),
        ];
        let seen = if pass == Pass::Forward { &places[..2] } else { &places };
        seen.iter().find_map(|(role, packing)| {
            packing.offsets.get(&tensor).map(|offset| (*role, *offset))
        })
    }
}

/// The element that a tensor is kept in: losses and metrics are wide, sums of
/// parameter gradients what the training says, all others as their kernels say.
pub(crate) fn element(
    graph: &Graph<'_>,
    dtype: Float,
    tensor: Tensor,
    said: Element,
) -> Element {
    let kept = match tensor {
        Tensor::Metric(_) => Element::Wide,
        Tensor::Source(Source::Node(node)) if node == graph.loss => Element::Wide,
        Tensor::Gradient(Source::Parameter(_))
        | Tensor::Gradients(..)
        | Tensor::Aside(..)
        | Tensor::ParameterDetour(..) => dtype.gradient(),
        // What an exchange brings of a sum it brings as the sum is kept.
        Tensor::Gradient(Source::Node(node)) | Tensor::Adjoint(node)
            if graph.is_laid_out_parameter(node) =>
        {
            dtype.gradient()
        }
        Tensor::Source(_)
        | Tensor::Auxiliary(..)
        | Tensor::Adjoint(_)
        | Tensor::Again(..)
        | Tensor::Gradient(Source::Node(_) | Source::Input(_))
        | Tensor::Contribution(_)
        | Tensor::Scratch(..)
        | Tensor::Unwanted(..)
        | Tensor::Detour(..) => said,
    };
    dtype.spelled(kept)
}

fn align_up(number: u64, alignment: u64) -> u64 {
    number.checked_next_multiple_of(alignment).unwrap_or(u64::MAX)
}
