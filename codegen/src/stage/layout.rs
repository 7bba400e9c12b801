//! Where everything lies that outlives one routine: parameters in each stage's flat array, kept
//! tensors in its activation, values that cross in rows of their own. A stage whose backward
//! pass is in two halves keeps apart what the second half reads.

use super::{
    BackwardForm, CrossingValue, Differentiated,
    call::{Tensor, Term},
    derivative::{Derivative, derivative},
    flow::{Crossing, Flow},
    graph::Graph,
    halves::Halves,
    memory::Packing,
};
use roundelay_dsl::{NodeId, ParameterId, Source};
use roundelay_schedule::{
    Bytes, Element, Float, Id, InputId, Parameter, Role, Stage, Table, ValueId,
};
use std::collections::{BTreeMap, BTreeSet};

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
    /// Elements of each stage's flat parameters.
    pub(crate) elements: Table<Stage, u64>,
    offsets: BTreeMap<ParameterId, u64>,
    kept: Table<Stage, Kept>,
}

/// What a stage keeps from pass to pass.
struct Kept {
    /// Until B or I.
    activation: Packing,
    /// Until W.
    retained: Packing,
    /// From I to W.
    adjoint: Packing,
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
    /// Lays out a cut model.
    pub(crate) fn new(
        graph: &'a Graph<'a>,
        flow: &'a Flow,
        dtype: Float,
        padding: u64,
        form: impl Fn(Stage) -> BackwardForm,
    ) -> Self {
        let mut elements: Table<Stage, u64> = (0..flow.count()).map(|_| 0).collect();
        let mut offsets = BTreeMap::new();
        for (parameter, stage) in &flow.parameters {
            let start = align_up(elements[*stage], PARAMETER_ALIGNMENT);
            let size = graph.elements(Source::Parameter(*parameter));
            elements[*stage] = start.saturating_add(size);
            offsets.insert(*parameter, start);
        }
        for (_, count) in elements.iter_mut() {
            *count = align_up((*count).max(1), padding.max(1));
        }
        let keep = |index| {
            let stage = Stage::new(index);
            let backward = match form(stage) {
                BackwardForm::Whole => Backward::Whole,
                BackwardForm::Split => Backward::Split(Halves::new(graph, flow, stage)),
            };
            Kept::new(kept(graph, flow, dtype, stage), backward, dtype)
        };
        let kept = (0..flow.count()).map(keep).collect();
        Self { graph, flow, dtype, elements, offsets, kept }
    }

    /// The backward pass of a stage.
    pub(crate) fn backward(&self, stage: Stage) -> &Backward {
        &self.kept[stage].backward
    }

    /// Where a tensor lies in the routines of a stage; nowhere when workspace is its home.
    pub(crate) fn home(&self, tensor: Tensor, stage: Stage) -> Option<(Role, Bytes)> {
        let start = |role| Some((role, Bytes(0)));
        let value = |node| self.flow.value(node);
        match tensor {
            Tensor::Source(Source::Input(id)) => {
                start(Role::Input(InputId::new(id.index())))
            }
            Tensor::Source(Source::Parameter(id)) => {
                Some((Role::Parameter, self.parameter_offset(id)))
            }
            Tensor::Source(Source::Node(node)) if node == self.graph.loss => {
                start(Role::Metric)
            }
            Tensor::Source(Source::Node(node)) => match value(node) {
                Some(value) => start(Role::Value(value)),
                None => self.kept[stage].home(tensor),
            },
            Tensor::Auxiliary(..) | Tensor::Aside(..) | Tensor::Adjoint(_) => {
                self.kept[stage].home(tensor)
            }
            Tensor::Gradient(Source::Parameter(id)) => {
                Some((Role::Gradient, self.sum(self.offsets[&id])))
            }
            Tensor::Gradient(Source::Node(node)) => match self.flow.gradient(node) {
                Some(value) => start(Role::ValueGradient(value)),
                None => self.kept[stage].home(tensor),
            },
            Tensor::Parameters(from) => {
                Some((Role::Parameter, Bytes(from) * self.dtype.size()))
            }
            Tensor::Gradients(from) => Some((Role::Gradient, self.sum(from))),
            Tensor::Metric(number) => {
                let place = 1 + u64::from(number);
                Some((Role::Metric, Bytes(place) * self.dtype.wide_size()))
            }
            Tensor::Gradient(Source::Input(_))
            | Tensor::Contribution(_)
            | Tensor::Scratch(..)
            | Tensor::Unwanted(..)
            | Tensor::Detour(..) => None,
        }
    }

    /// Bytes of an argument; workspace differs by routine and is not known here.
    pub(crate) fn size(&self, role: Role, stage: Stage) -> Bytes {
        let aligned = |size: Bytes| size.align_up(SIZE_ALIGNMENT);
        let real = |elements: u64| aligned(Bytes(elements) * self.dtype.size());
        match role {
            Role::Parameter | Role::NextParameter => real(self.elements[stage]),
            Role::Gradient | Role::Received => self.sum(self.elements[stage]),
            Role::Activation => self.kept[stage].activation.size,
            Role::Retained => self.kept[stage].retained.size,
            Role::Adjoint => self.kept[stage].adjoint.size,
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
            Role::Optimizer | Role::Workspace => Bytes(0),
        }
    }

    /// First and end element of a parameter in its stage's flat array.
    pub(crate) fn range(&self, parameter: ParameterId) -> (u64, u64) {
        let start = self.offsets[&parameter];
        let size = self.graph.elements(Source::Parameter(parameter));
        (start, start.saturating_add(size))
    }

    /// The parameters of all stages, by stage, then offset.
    pub(crate) fn parameters(&self) -> Vec<Parameter> {
        let parameter = |(id, stage): &(ParameterId, Stage)| {
            let parameter = &self.graph.model.parameters[*id];
            Parameter {
                name: parameter.name.clone(),
                stage: *stage,
                offset: self.offsets[id],
                shape: parameter.shape.clone(),
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
        element(self.graph, self.dtype, term)
    }

    /// Bytes of gradient sums of this many parameters.
    fn sum(&self, elements: u64) -> Bytes {
        Bytes(elements) * self.dtype.gradient().size(self.dtype)
    }

    fn parameter_offset(&self, parameter: ParameterId) -> Bytes {
        Bytes(self.offsets[&parameter]) * self.dtype.size()
    }
}

impl Kept {
    fn new(kept: Vec<(NodeId, Tensor, Bytes)>, backward: Backward, dtype: Float) -> Self {
        let (late, adjoint) = match &backward {
            Backward::Whole => (BTreeSet::new(), vec![]),
            Backward::Split(halves) => {
                let size = |(tensor, elements): &(Tensor, u64)| {
                    let element = match tensor {
                        Tensor::Aside(..) => dtype.spelled(dtype.gradient()),
                        _ => Element::Real,
                    };
                    (*tensor, Bytes(*elements) * element.size(dtype))
                };
                let adjoint = halves.adjoint.iter().map(size).collect();
                (halves.read_by_weight(), adjoint)
            }
        };
        let all = kept.into_iter().map(|(_, tensor, size)| (tensor, size));
        let (retained, activation): (Vec<_>, Vec<_>) =
            all.partition(|(tensor, _)| late.contains(tensor));
        let [activation, retained, adjoint] =
            [activation, retained, adjoint].map(|kept: Vec<(Tensor, Bytes)>| {
                let packing = Packing::sequence(kept);
                Packing { size: packing.size.align_up(SIZE_ALIGNMENT), ..packing }
            });
        Self { activation, retained, adjoint, backward }
    }

    fn home(&self, tensor: Tensor) -> Option<(Role, Bytes)> {
        let places = [
            (Role::Activation, &self.activation),
            (Role::Retained, &self.retained),
            (Role::Adjoint, &self.adjoint),
        ];
        places.into_iter().find_map(|(role, packing)| {
            packing.offsets.get(&tensor).map(|offset| (role, *offset))
        })
    }
}

/// What a stage's forward keeps for its backward: what the backward calls of its nodes read, was
/// made by them, and does not cross (a value that crosses has a row that both passes see). In the
/// order in which forward makes it, with the node that makes it.
pub(crate) fn kept(
    graph: &Graph<'_>,
    flow: &Flow,
    dtype: Float,
    stage: Stage,
) -> Vec<(NodeId, Tensor, Bytes)> {
    let nodes = flow.computed(graph, stage);
    let derivatives: Vec<(NodeId, Derivative)> =
        nodes.map(|node| (node, derivative(graph, node))).collect();
    let backward = derivatives.iter().flat_map(|(_, both)| &both.backward);
    let read: BTreeSet<Tensor> =
        backward.flat_map(|step| &step.terms).map(|term| term.tensor).collect();
    let made_here = |node: NodeId, tensor| match tensor {
        Tensor::Source(source) => {
            source == Source::Node(node) && flow.value(node).is_none()
        }
        Tensor::Auxiliary(..) => true,
        Tensor::Scratch(..)
        | Tensor::Unwanted(..)
        | Tensor::Aside(..)
        | Tensor::Adjoint(_)
        | Tensor::Detour(..)
        | Tensor::Gradient(_)
        | Tensor::Contribution(_)
        | Tensor::Parameters(_)
        | Tensor::Gradients(_)
        | Tensor::Metric(_) => false,
    };
    let mut seen = BTreeSet::new();
    let mut kept = Vec::new();
    for (node, both) in &derivatives {
        for term in both.forward.iter().flat_map(|step| &step.terms) {
            let keeps = made_here(*node, term.tensor) && read.contains(&term.tensor);
            if keeps && seen.insert(term.tensor) {
                let width = element(graph, dtype, term).size(dtype);
                kept.push((*node, term.tensor, Bytes(term.elements()) * width));
            }
        }
    }
    kept
}

/// The element that a term is kept in: statistics, losses and metrics are wide, sums of
/// parameter gradients what the training says.
pub(crate) fn element(graph: &Graph<'_>, dtype: Float, term: &Term) -> Element {
    let kept = match term.tensor {
        Tensor::Auxiliary(..) | Tensor::Metric(_) => Element::Wide,
        Tensor::Source(Source::Node(node)) if node == graph.loss => Element::Wide,
        Tensor::Gradient(Source::Parameter(_))
        | Tensor::Gradients(_)
        | Tensor::Aside(..) => dtype.gradient(),
        Tensor::Source(_)
        | Tensor::Adjoint(_)
        | Tensor::Gradient(Source::Node(_) | Source::Input(_))
        | Tensor::Contribution(_)
        | Tensor::Scratch(..)
        | Tensor::Unwanted(..)
        | Tensor::Detour(..)
        | Tensor::Parameters(_) => term.element,
    };
    dtype.spelled(kept)
}

fn align_up(number: u64, alignment: u64) -> u64 {
    number.checked_next_multiple_of(alignment).unwrap_or(u64::MAX)
}
