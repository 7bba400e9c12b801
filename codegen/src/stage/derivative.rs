//! The table of derivatives: for every operation its forward calls and the calls that add to the
//! gradients of its operands. What must be kept for backward is what the latter read.
//!
//! In comments y is the result, dy the gradient of the loss with respect to it.

mod attention;
mod elementwise;
mod linear;
mod loss;
mod norm;
mod part;
#[cfg(test)]
pub(crate) use part::moved;
mod part_norm;
mod pixels;
mod rows;
mod sliced;
mod vision;

use super::{
    call::{Step, Tensor, Term, call},
    graph::Graph,
};
use roundelay_dsl::{Masked, NodeId, Operation, Part, Projections, Sliced, Source};
use roundelay_schedule::{Element, Extents};

/// The calls of one node in both passes.
#[derive(Clone, Debug)]
pub(crate) struct Derivative {
    /// Makes the result and auxiliaries.
    pub(crate) forward: Vec<Step>,
    /// Makes one contribution for every operand that has a gradient; that of what goes into a map comes
    /// last, so that it may lie where the input lay. The last call may hand
    /// its own gradient over, so none but the last may be a `copy` that others read after.
    pub(crate) backward: Vec<Step>,
}

/// Backward calls that a node has in a stage which computes another one as well: they read what that
/// one reads, and nothing that the node itself makes. Elsewhere it has those of its [`Derivative`].
#[derive(Clone, Debug)]
pub(crate) struct Beside {
    /// The other node.
    pub(crate) with: NodeId,
    /// As [`Derivative::backward`], which has as many calls.
    pub(crate) backward: Vec<Step>,
}

/// The least and the largest number of operands.
pub(crate) fn arity(operation: Operation) -> (usize, usize) {
    match operation {
        Operation::Relu
        | Operation::Gelu
        | Operation::GeluTanh
        | Operation::SoftCap { .. }
        | Operation::Silu
        | Operation::Rotary(_)
        | Operation::Select { .. }
        | Operation::Rows { .. }
        | Operation::Softmax
        | Operation::Dropout { .. }
        | Operation::Scale { .. }
        | Operation::Reshape
        | Operation::Boundary(_)
        | Operation::MaxPool { .. }
        | Operation::AvgPool { .. }
        | Operation::GlobalPool
        | Operation::Upsample { .. } => (1, 1),
        Operation::Embedding
        | Operation::Add
        | Operation::Multiply
        | Operation::ClassToken
        | Operation::RmsNorm { .. }
        | Operation::CrossEntropy { masked: Masked::No }
        | Operation::MeanSquaredError
        | Operation::Accuracy { masked: Masked::No } => (2, 2),
        Operation::Attention { projections: Projections::Packed, .. } => (1, 1),
        Operation::Scores { .. } | Operation::Mix { .. } => (2, 2),
        Operation::Linear | Operation::Conv2d { .. } => (2, 3),
        Operation::Attention { projections: Projections::Apart, .. }
        | Operation::LayerNorm { .. }
        | Operation::GroupNorm { .. }
        | Operation::CrossEntropy { masked: Masked::Yes }
        | Operation::Accuracy { masked: Masked::Yes }
        | Operation::LinearCrossEntropy { masked: Masked::No, .. } => (3, 3),
        Operation::LinearCrossEntropy { masked: Masked::Yes, .. } => (4, 4),
        Operation::BatchNorm => (5, 5),
        Operation::Sliced(sliced) => match sliced {
            Sliced::Cut { .. }
            | Sliced::Rotary { .. }
            | Sliced::Dropout { .. }
            | Sliced::Examples { .. }
            | Sliced::ExamplesDropout { .. } => (1, 1),
            Sliced::Join => (1, usize::MAX),
        },
        Operation::Part { part, .. } => match part {
            Part::Exchange { .. } | Part::Dropout { .. } | Part::Halo { .. } => (1, 1),
            Part::Embedding { .. }
            | Part::CrossEntropy { masked: Masked::No, .. }
            | Part::RmsNorm { .. } => (2, 2),
            Part::CrossEntropy { masked: Masked::Yes, .. }
            | Part::LayerNorm { .. }
            | Part::GroupNorm { .. } => (3, 3),
            Part::BatchNorm => (5, 5),
        },
    }
}

/// The calls of one node, made anew. What only metrics need adds to no gradient.
pub(super) fn derivative(graph: &Graph<'_>, node: NodeId) -> Derivative {
    let mut both = calls(graph, node);
    let steps = both.forward.iter_mut().chain(&mut both.backward);
    steps.for_each(|step| belong(graph, node, step));
    if graph.differentiates(node) {
        both
    } else {
        Derivative { backward: vec![], ..both }
    }
}

/// The calls that one node has beside another one, made anew.
pub(super) fn beside(graph: &Graph<'_>, node: NodeId) -> Option<Beside> {
    let is_rectifier = graph.model.nodes[node].operation == Operation::Relu;
    let site =
        (is_rectifier && graph.differentiates(node)).then_some(Site { graph, node })?;
    let mut beside = norm::rectified(&site)?;
    beside.backward.iter_mut().for_each(|step| belong(graph, node, step));
    Some(beside)
}

/// The call that makes a node's result again from what forward kept of it besides; none where that is
/// no less than to make both again.
pub(super) fn again(graph: &Graph<'_>, node: NodeId) -> Option<Step> {
    let site = Site { graph, node };
    let mut step = match graph.model.nodes[node].operation {
        Operation::BatchNorm => norm::batch_norm_again(&site),
        _ => return None,
    };
    belong(graph, node, &mut step);
    Some(step)
}

/// A call stands for a node.
fn belong(graph: &Graph<'_>, node: NodeId, step: &mut Step) {
    step.node = Some(node);
    step.strand = graph.strand(node);
}

fn calls(graph: &Graph<'_>, node: NodeId) -> Derivative {
    let site = Site { graph, node };
    match graph.model.nodes[node].operation {
        Operation::Embedding => linear::embedding(&site),
        Operation::Linear => linear::linear(&site),
        Operation::Attention { heads, projections, sight, scale, cap } => {
            let scores = attention::Scores { sight, scale, cap };
            attention::attention(&site, heads, projections, scores)
        }
        Operation::Scores { heads, sight, scale } => {
            attention::scores(&site, heads, sight, scale)
        }
        Operation::Mix { heads } => attention::mix(&site, heads),
        Operation::Rotary(turning) => attention::rotary(&site, turning),
        Operation::ClassToken => rows::class_token(&site),
        Operation::Select { index } => rows::select(&site, index),
        Operation::Rows { first } => rows::rows(&site, first),
        Operation::LayerNorm { epsilon } => norm::layer_norm(&site, epsilon),
        Operation::Conv2d { stride, padding, groups } => {
            vision::conv2d(&site, stride, padding, groups)
        }
        Operation::MaxPool { size, stride, padding } => {
            vision::max_pool(&site, size, stride, padding)
        }
        Operation::AvgPool { size, stride, padding } => {
            vision::avg_pool(&site, size, stride, padding)
        }
        Operation::GlobalPool => vision::global_pool(&site),
        Operation::Upsample { factor } => vision::upsample(&site, factor),
        Operation::BatchNorm => norm::batch_norm(&site),
        Operation::GroupNorm { groups } => norm::group_norm(&site, groups),
        Operation::RmsNorm { epsilon } => norm::rms_norm(&site, epsilon),
        Operation::Relu => elementwise::relu(&site),
        Operation::Gelu => elementwise::gelu(&site),
        Operation::GeluTanh => elementwise::gelu_tanh(&site),
        Operation::SoftCap { cap } => elementwise::soft_cap(&site, cap),
        Operation::Silu => elementwise::silu(&site),
        Operation::Softmax => norm::softmax(&site),
        Operation::Dropout { rate } => elementwise::dropout(&site, rate),
        Operation::Add => elementwise::add(&site),
        Operation::Multiply => elementwise::multiply(&site),
        Operation::Scale { factor } => elementwise::scale(&site, factor),
        Operation::Reshape | Operation::Boundary(_) => {
            Derivative { forward: vec![], backward: vec![] }
        }
        Operation::CrossEntropy { masked } => loss::cross_entropy(&site, masked),
        Operation::LinearCrossEntropy { chunks, masked } => {
            loss::linear_cross_entropy(&site, chunks, masked)
        }
        Operation::MeanSquaredError => loss::mean_squared_error(&site),
        Operation::Accuracy { masked } => loss::accuracy(&site, masked),
        Operation::Part { part, line } => part::part(&site, part, line),
        Operation::Sliced(own) => sliced::sliced(&site, own),
    }
}

/// A node with the names of everything that its calls touch.
struct Site<'a> {
    graph: &'a Graph<'a>,
    node: NodeId,
}

impl Site<'_> {
    /// Number of operands.
    fn count(&self) -> usize {
        self.graph.model.nodes[self.node].operands.len()
    }
    fn source(&self, operand: usize) -> Option<Source> {
        self.graph.model.nodes[self.node].operands.get(operand).copied()
    }
    /// An operand, in the shape in which the operation sees it.
    fn optional(&self, operand: usize) -> Option<Term> {
        let source = self.source(operand)?;
        Some(Term {
            tensor: Tensor::Source(self.graph.root(source)),
            element: self.graph.element(source),
            shape: self.graph.shape(source),
        })
    }
    /// Like [`Self::optional`], for operands that every node of the kind has.
    fn operand(&self, operand: usize) -> Term {
        self.optional(operand).expect("the graph has checked the number of operands")
    }
    fn operands<const N: usize>(&self) -> [Term; N] {
        std::array::from_fn(|operand| self.operand(operand))
    }
    fn shape(&self) -> Extents {
        self.graph.shape(Source::Node(self.node))
    }
    /// y.
    fn result(&self) -> Term {
        self.own(Tensor::Source(Source::Node(self.node)))
    }
    /// dy.
    fn gradient(&self) -> Term {
        self.own(Tensor::Gradient(Source::Node(self.node)))
    }
    /// A tensor of the result's shape.
    fn own(&self, tensor: Tensor) -> Term {
        Term { tensor, element: Element::Real, shape: self.shape() }
    }
    /// A contribution to the gradient of an operand, if it has one.
    fn contribution(&self, operand: usize) -> Option<Term> {
        let source = self.graph.sum_of(self.source(operand)?);
        let term = self.optional(operand)?;
        let tensor = Tensor::Contribution(source);
        self.graph.has_gradient(source).then_some(Term { tensor, ..term })
    }
    /// A contribution, or memory of the same shape for a kernel that makes it in any case.
    fn contribution_or_scratch(&self, operand: usize, number: u32) -> Term {
        let shape = || self.operand(operand).shape;
        let unused = || Term::real(Tensor::Unwanted(self.node, number), &shape());
        self.contribution(operand).unwrap_or_else(unused)
    }
    fn wanted(&self, operand: usize) -> bool {
        self.contribution(operand).is_some()
    }
    /// A statistic that is kept for backward.
    fn auxiliary(&self, number: u32, shape: &[u64]) -> Term {
        Term { element: Element::Wide, ..self.kept(number, shape) }
    }
    /// What forward makes besides the result and is kept for backward in the job's type.
    fn kept(&self, number: u32, shape: &[u64]) -> Term {
        Term::real(Tensor::Auxiliary(self.node, number), shape)
    }
    fn scratch(&self, number: u32, shape: &[u64]) -> Term {
        Term::real(Tensor::Scratch(self.node, number), shape)
    }
    /// One call for each operand that has a gradient.
    fn each<const N: usize>(
        &self,
        calls: [(usize, &dyn Fn(Term) -> Step); N],
    ) -> Vec<Step> {
        let one = |(operand, call): (usize, &dyn Fn(Term) -> Step)| {
            self.contribution(operand).map(call)
        };
        calls.into_iter().filter_map(one).collect()
    }
    /// A unary operation whose backward kernel reads one tensor besides dy.
    fn unary(&self, forward: Step, backward: &'static str, read: Term) -> Derivative {
        let step = |dx| call(backward, [read.clone(), self.gradient(), dx]);
        Derivative { forward: vec![forward], backward: self.each([(0, &step)]) }
    }
}
