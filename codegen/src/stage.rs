//! From a model graph and cut points to the routines of every stage.
//!
//! A stage is a range of nodes. Its routines are derived once, as kernel calls over symbolic
//! tensors ([`derivative`]), then every tensor gets a home in an argument ([`assemble`]).
//! Gradient contributions of a value are summed in reverse topological order, whatever the
//! cuts, so cuts change no bit of any loss, gradient or update.

mod accumulate;
mod again;
mod assemble;
mod average;
mod backward;
mod call;
mod combine;
mod cost;
mod derivative;
mod error;
mod flow;
mod forward;
mod fuse;
mod graph;
mod halves;
mod hashed;
mod hop;
mod interleave;
mod keep;
mod layers;
mod layout;
mod lives;
mod memory;
mod needs;
mod norm;
mod replace;
mod share;
mod update;

pub use combine::combine;
pub use cost::{NodeCost, PassCost, node_costs};
pub use error::StageError;
pub use needs::{Needs, needs};
pub use norm::norm;
pub use update::{Normed, Portion, UpdateForm, update};
#[cfg(test)]
pub(crate) use {
    call::{Tensor as Array, Term},
    derivative::moved,
};

use crate::{
    rewrite::{Everywhere, LoweringChoice},
    slices::sliced,
    tensor::Parted,
};
use flow::{Flow, Staged};
use fuse::Rewriting;
pub(crate) use graph::Graph;
use layout::Layout;
use roundelay_dsl::{Model, NodeId};
use roundelay_schedule::{
    Bytes, Float, Id, Input, InputId, MapWays, Parameter, Pass, Recompute, Rewrites,
    Role, Routine, Stage, Table, Tensor, Tie, ValueId,
};
use std::{cell::OnceCell, collections::BTreeMap, ops::Range};

/// How a model is cut: into stages, among the devices that split tensors, into slices of its
/// sequences.
#[derive(Clone, Copy, Debug)]
pub struct Cut<'a> {
    /// S − 1 ascending node numbers.
    pub cuts: &'a [u32],
    /// How operations are split.
    pub tensor: Tensor,
    /// Slices of each sequence, k. Every slice of a stage is a stage of the result: slice q of
    /// stage j is its stage j · k + q, and slice 0 has the parameters.
    pub slices: u32,
}

impl<'a> From<(&'a [u32], Tensor)> for Cut<'a> {
    /// Whole sequences.
    fn from((cuts, tensor): (&'a [u32], Tensor)) -> Self {
        Self { cuts, tensor, slices: 1 }
    }
}

impl<'a, const N: usize> From<(&'a [u32; N], Tensor)> for Cut<'a> {
    /// Whole sequences.
    fn from((cuts, tensor): (&'a [u32; N], Tensor)) -> Self {
        Self { cuts, tensor, slices: 1 }
    }
}

/// How parameters and values are stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Storage {
    /// Type of real numbers.
    pub dtype: Float,
    /// Elements of which the flat parameters of every stage have a multiple.
    pub padding: u64,
}

/// The stages of a cut model, for micro-batches of one size.
#[derive(Clone, Debug, PartialEq)]
pub struct Stages {
    /// What each stage runs.
    pub stages: Table<Stage, StageCode>,
    /// Values that are made in one stage and read in a later one, by producing node.
    pub values: Table<ValueId, CrossingValue>,
    /// What a micro-batch brings, in the model's order.
    pub inputs: Table<InputId, Input>,
    /// All parameters that the loss depends on, by state, then offset.
    pub parameters: Vec<Parameter>,
    /// Which stages use the same parameters, in order of first use.
    pub ties: Vec<Tie>,
    /// Number of elements of the flat parameters of each state: of stages, then of ties. Padding is
    /// included; zero in all slices of a stage but the first, which has the parameters of all, and
    /// nowhere else.
    pub elements: Table<Stage, u64>,
    /// Which calls of their routines are two in one.
    pub rewrites: Rewrites,
    /// How affine maps are split.
    pub maps: MapWays,
}

/// A value that is made in one stage and read in a later one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrossingValue {
    /// Name of the node that makes it.
    pub name: String,
    /// The stage that makes it.
    pub producer: Stage,
    /// The last stage that reads it. Stages between that only pass it have no argument for it.
    pub last: Stage,
    /// Size for one micro-batch.
    pub size: Bytes,
    /// Whether its gradient comes back.
    pub gradient: Differentiated,
}

/// Whether a gradient is taken with respect to a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Differentiated {
    /// Some parameter stands above it; its gradient comes back over every cut from this stage,
    /// the last that adds to it. Behind it only metrics read the value.
    From(Stage),
    /// No parameter stands above it, its gradient is a constant known at compile time, or only
    /// metrics read it in later stages.
    No,
}

/// The routines of one stage; `predicted` is zero until they are priced.
#[derive(Clone, Debug, PartialEq)]
pub struct StageCode {
    /// Forward pass of one micro-batch.
    pub forward: Routine,
    /// Its backward pass.
    pub backward: BackwardCode,
    /// The model's nodes that the stage computes.
    pub nodes: Range<usize>,
}

impl StageCode {
    /// Whether a pass on a micro-batch reads parameters; the halves of a backward pass may
    /// differ, the first micro-batch of a sum and later ones do not.
    pub fn reads(&self, pass: Pass) -> bool {
        let backward = self.backward.first();
        let routine = match pass {
            Pass::Forward => Some(&self.forward),
            Pass::Backward | Pass::InputGradient => backward.first().copied(),
            Pass::WeightGradient => backward.get(1).copied(),
            Pass::Combine | Pass::Norm | Pass::Update => None,
        };
        routine.is_some_and(|routine| routine.argument(Role::Parameter).is_some())
    }
}

/// Whether the backward pass of a stage is one pass or two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BackwardForm {
    /// One: B.
    Whole,
    /// Two: I, then any time later W.
    Split,
}

/// How the routines of a stage are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StageForm {
    /// Its backward pass.
    pub backward: BackwardForm,
    /// What that computes again.
    pub recompute: Recompute,
}

impl Default for StageForm {
    /// One backward pass that finds all it reads.
    fn default() -> Self {
        Self { backward: BackwardForm::Whole, recompute: Recompute::None }
    }
}

/// The backward routines of a stage. Of each that makes parameter gradients there are two: for
/// the first micro-batch of a sum, which writes the gradient, all of it, and for later ones,
/// which add to it.
#[derive(Clone, Debug, PartialEq)]
pub enum BackwardCode {
    /// B.
    Whole {
        /// B of the first micro-batch.
        first: Routine,
        /// B of a later one.
        next: Routine,
    },
    /// I and W.
    Split {
        /// I: gradients of values.
        input: Routine,
        /// W of the first micro-batch: gradients of parameters.
        weight_first: Routine,
        /// W of a later one.
        weight_next: Routine,
    },
}

impl BackwardCode {
    /// All its routines.
    pub fn routines(&self) -> Vec<&Routine> {
        match self {
            BackwardCode::Whole { first, next } => vec![first, next],
            BackwardCode::Split { input, weight_first, weight_next } => {
                vec![input, weight_first, weight_next]
            }
        }
    }
    /// What the first micro-batch of a sum runs, in order.
    pub fn first(&self) -> Vec<&Routine> {
        match self {
            BackwardCode::Whole { first, .. } => vec![first],
            BackwardCode::Split { input, weight_first, .. } => vec![input, weight_first],
        }
    }
    /// What a later micro-batch runs, in order.
    pub fn next(&self) -> Vec<&Routine> {
        match self {
            BackwardCode::Whole { next, .. } => vec![next],
            BackwardCode::Split { input, weight_next, .. } => vec![input, weight_next],
        }
    }
}

/// Cuts a model into stages and derives the routines of each, for micro-batches of `examples`;
/// calls become one wherever they can.
///
/// `cuts` are S − 1 ascending node numbers; stage j starts at node `cuts[j − 1]`. Each stage's
/// parameters lie in one flat array in order of first use, every start a multiple of 16
/// elements, its length a multiple of `padding`. Gradients have the same layout. The first
/// backward pass writes the gradient everywhere: what no kernel reaches is zero, padding included.
/// Parameters that several stages use lie in arrays of their own, one for all that the same stages
/// use.
///
/// # Errors
/// Wrong cuts, a malformed model, a loss without a gradient kernel.
pub fn stages(
    model: &Model,
    cuts: &[u32],
    examples: u64,
    dtype: Float,
    padding: u64,
) -> Result<Stages, StageError> {
    let whole = Cut::from((cuts, Tensor::WHOLE));
    let form = |_| StageForm::default();
    let storage = Storage { dtype, padding };
    stages_in(model, whole, examples, storage, form, &Everywhere)
}

/// As [`stages`], with the routines of each stage in a form, for one device among those that split
/// tensors: then parameters, values and routines are those of its parts. Calls become one, and maps
/// are split, as `choice` says.
///
/// # Errors
/// As [`stages`], and when no operation of the model can be split.
pub fn stages_in<'a>(
    model: &'a Model,
    cut: impl Into<Cut<'a>>,
    examples: u64,
    storage: Storage,
    form: impl Fn(Stage) -> StageForm,
    choice: &dyn LoweringChoice,
) -> Result<Stages, StageError> {
    let cut = cut.into();
    let variant = Variant::new(model, cut, choice)?;
    let graph = variant.graph(model, examples)?;
    let flow = Flow::new(&graph, (variant.cuts(cut.cuts), cut.slices))?;
    cost::admit(&graph)?;
    let all: Vec<Stage> = (0..flow.count()).map(Stage::new).collect();
    let each = all.iter().copied();
    let form = hopping(&graph, &flow, each.clone(), form)?;
    let layout =
        Layout::new(&graph, &flow, storage, (each, form), variant.rewriting(choice));
    let stages = all.iter().map(|stage| code(&layout, *stage, &variant));
    Ok(Stages { stages: stages.collect(), ..frame(&layout, &variant) })
}

/// The forms of stages: where gradients hop back, every backward pass is in halves.
fn hopping(
    graph: &Graph<'_>,
    flow: &Flow,
    mut stages: impl Iterator<Item = Stage>,
    form: impl Fn(Stage) -> StageForm,
) -> Result<impl Fn(Stage) -> StageForm, StageError> {
    let hops = graph.is_hopping();
    if hops {
        stages.try_for_each(|stage| hop::admit(Staged { graph, flow, stage }))?;
    }
    Ok(move |stage| match form(stage) {
        form if hops => StageForm { backward: BackwardForm::Split, ..form },
        form => form,
    })
}

/// The model whose graph one device computes.
enum Variant {
    /// The one that was given.
    Model,
    /// One that was made of it: one part of it, or its operations once per slice.
    Derived {
        parted: Box<Parted>,
        /// Layers of the given model, so that they do not depend on cuts; no size changes them.
        layers: OnceCell<BTreeMap<NodeId, u32>>,
    },
}

impl Variant {
    fn new(
        model: &Model,
        cut: Cut<'_>,
        choice: &dyn LoweringChoice,
    ) -> Result<Self, StageError> {
        let Cut { cuts, tensor, slices } = cut;
        let nodes = model.cuttable();
        match (tensor.parts(), slices) {
            (1, 1) => return Ok(Self::Model),
            (1, _) => {
                let parted = Box::new(sliced(model, cuts, slices)?);
                return Ok(Self::Derived { parted, layers: OnceCell::new() });
            }
            (_, 1) => {}
            _ => return Err(StageError::SlicedTensor { tensor: tensor.shown() }),
        }
        if !cuts.iter().all(|cut| (*cut as usize) < nodes) {
            return Err(StageError::Cuts { cuts: cuts.to_vec(), nodes });
        }
        let parted = Box::new(Parted::new(model, cuts, tensor, choice)?);
        Ok(Self::Derived { parted, layers: OnceCell::new() })
    }

    /// Its graph, in the layers of the given model.
    fn graph<'a>(
        &'a self,
        given: &'a Model,
        examples: u64,
    ) -> Result<Graph<'a>, StageError> {
        let Variant::Derived { parted, layers } = self else {
            return Graph::new(given, examples);
        };
        let layers = match layers.get() {
            Some(layers) => layers,
            None => {
                let graph = Graph::new(given, examples)?;
                layers.get_or_init(|| graph.layers().clone())
            }
        };
        Ok(parted.graph(examples)?.in_layers(layers, &parted.origin))
    }

    /// Its cuts, of those of the given model.
    fn cuts<'a>(&'a self, given: &'a [u32]) -> &'a [u32] {
        match self {
            Variant::Model => given,
            Variant::Derived { parted, .. } => &parted.cuts,
        }
    }

    fn rewriting<'a>(&'a self, choice: &'a dyn LoweringChoice) -> Rewriting<'a> {
        match self {
            Variant::Model => Rewriting::new(choice, None),
            Variant::Derived { parted, .. } => {
                Rewriting::new(choice, Some(&parted.origin))
            }
        }
    }

    /// How affine maps are split.
    fn maps(&self) -> MapWays {
        match self {
            Variant::Model => MapWays::default(),
            Variant::Derived { parted, .. } => parted.ways.clone(),
        }
    }

    /// The nodes of the given model that some of its nodes belong to.
    fn given_nodes(&self, nodes: Range<usize>) -> Range<usize> {
        match self {
            Variant::Model => nodes,
            Variant::Derived { parted, .. } => parted.whole_nodes(nodes),
        }
    }
}

/// A cut model on one device among those that split its tensors, for whoever wants the routines of
/// some of its stages. Its calls are known to be in the kernel catalogue, as they are where
/// [`Piece::admit`] takes them, or whoever prices its nodes, for as many examples.
pub struct Piece<'a> {
    model: &'a Model,
    cut: Cut<'a>,
    variant: Variant,
}

/// Some stages of a cut model.
#[derive(Clone, Debug, PartialEq)]
pub struct Samples {
    /// Everything but code and rewrites.
    pub frame: Stages,
    /// What the wanted stages run, in their order.
    pub code: Vec<StageCode>,
}

impl<'a> Piece<'a> {
    /// Cuts a model as [`stages`] does; its maps go the ways that `choice` says.
    ///
    /// # Errors
    /// When no operation of the model can be split.
    pub fn new(
        model: &'a Model,
        cut: impl Into<Cut<'a>>,
        choice: &dyn LoweringChoice,
    ) -> Result<Self, StageError> {
        let cut = cut.into();
        Ok(Self { model, cut, variant: Variant::new(model, cut, choice)? })
    }

    /// As [`stages_in`], with the routines of the wanted stages alone, each in its form and as if
    /// the others kept nothing.
    ///
    /// # Errors
    /// As [`stages_in`].
    ///
    /// # Panics
    /// When a stage is wanted that the cuts do not make.
    pub fn samples(
        &self,
        examples: u64,
        storage: Storage,
        wanted: &[(Stage, StageForm)],
        choice: &dyn LoweringChoice,
    ) -> Result<Samples, StageError> {
        let graph = self.variant.graph(self.model, examples)?;
        let Cut { cuts, slices, .. } = self.cut;
        let flow = Flow::new(&graph, (self.variant.cuts(cuts), slices))?;
        let layout = |stage: Option<(Stage, StageForm)>| {
            let form = |_| stage.map_or(StageForm::default(), |(_, form)| form);
            let stages = stage.map(|(stage, _)| stage);
            let form = hopping(&graph, &flow, stages.into_iter(), form)?;
            let rewriting = self.variant.rewriting(choice);
            Ok(Layout::new(&graph, &flow, storage, (stages, form), rewriting))
        };
        let one = |wanted: &(Stage, StageForm)| {
            Ok(code(&layout(Some(*wanted))?, wanted.0, &self.variant))
        };
        let code = wanted.iter().map(one).collect::<Result<_, StageError>>()?;
        Ok(Samples { frame: frame(&layout(None)?, &self.variant), code })
    }
}

/// Everything but code.
fn frame(layout: &Layout<'_>, variant: &Variant) -> Stages {
    Stages {
        stages: Table::new(),
        values: layout.values(),
        inputs: inputs(layout),
        parameters: layout.parameters(),
        ties: layout.flow.ties.clone(),
        elements: layout.elements.clone(),
        rewrites: layout.rewriting.all_done(),
        maps: variant.maps(),
    }
}

fn code(layout: &Layout<'_>, stage: Stage, variant: &Variant) -> StageCode {
    StageCode {
        forward: forward::forward(layout, stage),
        backward: backward_code(layout, stage),
        nodes: variant.given_nodes(layout.flow.nodes(stage)),
    }
}

fn backward_code(layout: &Layout<'_>, stage: Stage) -> BackwardCode {
    let (first, next) = (backward::Sum::First, backward::Sum::Next);
    match layout.backward(stage) {
        layout::Backward::Whole => BackwardCode::Whole {
            first: backward::backward(layout, stage, first),
            next: backward::backward(layout, stage, next),
        },
        layout::Backward::Split(halves) => BackwardCode::Split {
            input: backward::input_gradient(layout, stage, halves),
            weight_first: backward::weight_gradient(layout, stage, halves, first),
            weight_next: backward::weight_gradient(layout, stage, halves, next),
        },
    }
}

fn inputs(layout: &Layout<'_>) -> Table<InputId, Input> {
    let Layout { graph, dtype, .. } = layout;
    let input = |input: &roundelay_dsl::ModelInput| Input {
        name: input.name.clone(),
        element: dtype.spelled(input.element),
        shape: input.shape.iter().map(|extent| extent.at(graph.examples)).collect(),
        bound: input.bound,
        origin: input.origin.clone(),
    };
    graph.model.inputs.values().map(input).collect()
}
