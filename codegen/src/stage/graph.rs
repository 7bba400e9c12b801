//! What holds of a model however it is cut: which nodes loss and metrics need, which values have
//! a gradient, and what constant gradient the terms of the loss have.

use super::{
    StageError,
    derivative::{Beside, Derivative, arity, beside, derivative},
    layers,
};
use crate::tensor::Strand;
use roundelay_dsl::{
    Extent, Model, ModelMetric, Motion, Node, NodeId, Operation, Part, Sliced, Source,
    WrongLoss,
};
use roundelay_schedule::{Element, Extents, Hop, Id};
use std::{cell::OnceCell, collections::BTreeMap, ops::Range};

/// A model whose graph is sound, for micro-batches of one size.
pub(crate) struct Graph<'a> {
    /// The model.
    pub(crate) model: &'a Model,
    /// Examples of a micro-batch.
    pub(crate) examples: u64,
    /// The node whose result is the loss; no reshape.
    pub(crate) loss: NodeId,
    /// The nodes whose results are the metrics; no reshapes.
    pub(crate) metrics: Vec<NodeId>,
    /// Nodes on which the loss depends, behind whatever gradients end.
    trunk: Vec<bool>,
    /// Nodes that some minimised loss has a gradient of.
    reached: Vec<bool>,
    measured: Vec<bool>,
    trained: Vec<bool>,
    weights: Vec<Option<f64>>,
    layers: OnceCell<BTreeMap<NodeId, u32>>,
    /// Which examples each operation works on; empty where all work on all.
    strands: &'a [Strand],
    derivatives: Vec<OnceCell<Derivative>>,
    besides: Vec<OnceCell<Option<Beside>>>,
}

impl<'a> Graph<'a> {
    /// Checks the graph: operands stand above their users and fit in number, inputs of real
    /// operations are real, and the loss has a gradient kernel.
    pub(crate) fn new(model: &'a Model, examples: u64) -> Result<Self, StageError> {
        if examples == 0 {
            return Err(StageError::NoExamples);
        }
        model.nodes.iter().try_for_each(|(id, node)| sound(model, id, node))?;
        super::average::check(model)?;
        let known = |loss: &NodeId| model.nodes.get(*loss).is_some();
        let end = model.loss.filter(known).ok_or(StageError::NoLoss)?;
        if !model.auxiliary.iter().all(known) {
            return Err(StageError::NoLoss);
        }
        let mut graph = Self {
            model,
            examples,
            loss: end,
            metrics: vec![],
            trunk: model.needed([end], |_| true),
            reached: model.needed(model.minimised(), Operation::passes_gradient),
            measured: vec![],
            trained: model.trained(),
            weights: vec![None; model.nodes.len()],
            layers: OnceCell::new(),
            strands: &[],
            derivatives: vec![OnceCell::new(); model.nodes.len()],
            besides: vec![OnceCell::new(); model.nodes.len()],
        };
        let Source::Node(loss) = graph.root(Source::Node(end)) else {
            return Err(StageError::NoLoss);
        };
        graph.loss = loss;
        graph.metrics =
            model.metrics.iter().map(|m| graph.measure(m)).collect::<Result<_, _>>()?;
        graph.measured = model.needed(graph.metrics.iter().copied(), |_| true);
        graph.views_fit()?;
        graph.losses_fit()?;
        let terms = model.terms(&graph.trained);
        graph.weights = terms.map_err(|wrong| wrong_loss(model, wrong))?;
        Ok(graph)
    }

    /// The same with the layers of another graph, whose node each own one belongs to.
    pub(crate) fn in_layers(
        self,
        whole: &BTreeMap<NodeId, u32>,
        origin: &[NodeId],
    ) -> Self {
        let layer = |(own, node): (usize, &NodeId)| {
            whole.get(node).map(|layer| (NodeId::new(own), *layer))
        };
        let layers: BTreeMap<NodeId, u32> =
            origin.iter().enumerate().filter_map(layer).collect();
        Self { layers: OnceCell::from(layers), ..self }
    }

    /// The same with the examples that each operation works on, of which its calls know.
    pub(crate) fn in_strands(self, strands: &'a [Strand]) -> Self {
        let derivatives = vec![OnceCell::new(); self.model.nodes.len()];
        let besides = vec![OnceCell::new(); self.model.nodes.len()];
        Self { strands, derivatives, besides, ..self }
    }

    /// Which examples an operation works on.
    pub(crate) fn strand(&self, id: NodeId) -> Strand {
        self.strands.get(id.index()).copied().unwrap_or_default()
    }

    /// The layer of every node that has one; found when it is first asked for.
    pub(crate) fn layers(&self) -> &BTreeMap<NodeId, u32> {
        self.layers.get_or_init(|| layers::of(self))
    }

    /// The calls of a node; made when they are first asked for.
    pub(crate) fn derivative(&self, node: NodeId) -> &Derivative {
        self.derivatives[node.index()].get_or_init(|| derivative(self, node))
    }

    /// The backward calls that a node has where its stage computes another one, if there is such a one;
    /// which of both kinds it has, the flow knows.
    pub(crate) fn beside(&self, node: NodeId) -> Option<&Beside> {
        self.besides[node.index()].get_or_init(|| beside(self, node)).as_ref()
    }

    /// The source whose memory this is: reshapes and boundaries are views, and what every part has
    /// already.
    pub(crate) fn root(&self, source: Source) -> Source {
        self.behind(source, |operation| match operation {
            Operation::Part { part: Part::Exchange { value, .. }, .. } => {
                value == Motion::Keep
            }
            _ => is_view(operation),
        })
    }

    /// The source in whose sum this one's gradient is added up: reshapes are views. A boundary has
    /// none, or one of its own, so nothing adds to what stands above it.
    pub(crate) fn sum_of(&self, source: Source) -> Source {
        self.behind(source, |operation| operation == Operation::Reshape)
    }

    fn behind(&self, source: Source, is_view: impl Fn(Operation) -> bool) -> Source {
        let mut source = source;
        while let Source::Node(id) = source {
            let node = &self.model.nodes[id];
            match is_view(node.operation) {
                true => source = node.operands[0],
                false => break,
            }
        }
        source
    }

    /// Nodes that have kernels: needed by a loss or a metric, no views; in topological order.
    pub(crate) fn computed(&self) -> impl DoubleEndedIterator<Item = NodeId> + '_ {
        self.computed_among(0..self.model.nodes.len())
    }

    /// Those of some nodes that have kernels.
    pub(crate) fn computed_among(
        &self,
        nodes: Range<usize>,
    ) -> impl DoubleEndedIterator<Item = NodeId> + '_ {
        let computed = |id: &NodeId| {
            let needed = [&self.trunk, &self.reached, &self.measured];
            needed.iter().any(|needed| needed[id.index()])
                && !is_view(self.model.nodes[*id].operation)
        };
        nodes.map(NodeId::new).filter(computed)
    }

    fn extents(&self, source: Source) -> impl Iterator<Item = u64> {
        let (varying, fixed): (&[Extent], &[u64]) = match source {
            Source::Node(id) => (&self.model.nodes[id].shape, &[]),
            Source::Parameter(id) => (&[], &self.model.parameters[id].shape),
            Source::Input(id) => (&self.model.inputs[id].shape, &[]),
        };
        let varying = varying.iter().map(|extent| extent.at(self.examples));
        varying.chain(fixed.iter().copied())
    }

    /// Extents of what a source holds.
    pub(crate) fn shape(&self, source: Source) -> Extents {
        self.extents(source).collect()
    }

    /// Number of elements of what a source holds; saturates.
    pub(crate) fn elements(&self, source: Source) -> u64 {
        self.extents(source).fold(1, u64::saturating_mul)
    }

    /// Whether there is something of a source for each example.
    pub(crate) fn is_of_examples(&self, source: Source) -> bool {
        let mut extents = match source {
            Source::Node(id) => self.model.nodes[id].shape.iter(),
            Source::Parameter(_) => [].iter(),
            Source::Input(id) => self.model.inputs[id].shape.iter(),
        };
        extents.any(|extent| extent.per_example)
    }

    /// Whether there is something of an auxiliary of a node for each example: there is of all but the
    /// statistics of channels and the gradient of a weight.
    pub(crate) fn has_auxiliary_of_examples(&self, id: NodeId, number: u32) -> bool {
        let Node { operation, operands, .. } = &self.model.nodes[id];
        let of_others = matches!(
            (operation, number),
            (Operation::BatchNorm | Operation::Part { part: Part::BatchNorm, .. }, _)
                | (Operation::LinearCrossEntropy { .. }, 1..)
        );
        !of_others && self.is_of_examples(operands[0])
    }

    /// Element type of what a source holds.
    pub(crate) fn element(&self, source: Source) -> Element {
        match self.root(source) {
            Source::Input(id) => self.model.inputs[id].element,
            Source::Node(id) => match &self.model.nodes[id] {
                Node {
                    operation:
                        Operation::Sliced(Sliced::Cut { .. } | Sliced::Examples { .. }),
                    operands,
                    ..
                } => self.element(operands[0]),
                _ => Element::Real,
            },
            Source::Parameter(_) => Element::Real,
        }
    }

    /// Whether a node only lays a parameter out anew, so that its gradient is one of the parameter.
    pub(crate) fn is_laid_out_parameter(&self, id: NodeId) -> bool {
        let Node { operation, operands, .. } = &self.model.nodes[id];
        let is_exchange =
            matches!(operation, Operation::Part { part: Part::Exchange { .. }, .. });
        is_exchange
            && match self.root(operands[0]) {
                Source::Parameter(_) => true,
                Source::Node(node) => self.is_laid_out_parameter(node),
                Source::Input(_) => false,
            }
    }

    /// Whether a minimised loss has a gradient of what a node makes.
    pub(crate) fn differentiates(&self, id: NodeId) -> bool {
        self.reached[id.index()]
    }

    /// Whether the model's own loss depends on a node, as on all but heads and metrics.
    pub(crate) fn is_of_trunk(&self, id: NodeId) -> bool {
        self.trunk[id.index()]
    }

    /// Whether a node makes the loss of a head.
    pub(crate) fn is_auxiliary(&self, id: NodeId) -> bool {
        let root = |loss: &NodeId| self.root(Source::Node(*loss));
        self.model.auxiliary.iter().any(|loss| root(loss) == Source::Node(id))
    }

    /// Whether what reads a source adds to the gradient of the memory that this is: not behind a
    /// stop.
    pub(crate) fn adds(&self, source: Source) -> bool {
        self.has_gradient(self.sum_of(source))
    }

    /// Whether a gradient sum is kept for a source that is no reshape.
    pub(crate) fn has_gradient(&self, source: Source) -> bool {
        match source {
            Source::Node(id) => {
                let index = id.index();
                self.reached[index]
                    && self.trained[index]
                    && self.weights[index].is_none()
            }
            Source::Parameter(_) => true,
            Source::Input(_) => false,
        }
    }

    /// ∂loss/∂result of a term of the loss.
    pub(crate) fn weight(&self, id: NodeId) -> Option<f64> {
        self.weights[id.index()]
    }

    /// Whether this is a boundary over which a gradient hops back.
    pub(crate) fn is_boundary(&self, source: Source) -> bool {
        match source {
            Source::Node(id) => is_hop(self.model.nodes[id].operation),
            Source::Parameter(_) | Source::Input(_) => false,
        }
    }

    /// Whether gradients hop back somewhere. Then every backward pass is in halves.
    pub(crate) fn is_hopping(&self) -> bool {
        self.model.nodes.values().any(|node| is_hop(node.operation))
    }

    /// The node that makes a metric's number.
    fn measure(&self, metric: &ModelMetric) -> Result<NodeId, StageError> {
        let known = self.model.nodes.get(metric.node).is_some();
        let root = known.then(|| self.root(Source::Node(metric.node)));
        match root {
            Some(Source::Node(root)) if self.elements(Source::Node(root)) == 1 => {
                Ok(root)
            }
            _ => Err(StageError::Malformed {
                node: metric.name.clone(),
                problem: "a metric is not a single number that a node makes".to_owned(),
            }),
        }
    }

    fn views_fit(&self) -> Result<(), StageError> {
        let views = self.model.nodes.iter();
        let mut views = views.filter(|(_, node)| is_view(node.operation));
        let misfit = views.find(|(id, node)| {
            self.elements(Source::Node(*id)) != self.elements(node.operands[0])
        });
        match misfit {
            None => Ok(()),
            Some((_, node)) => Err(StageError::Malformed {
                node: node.name.clone(),
                problem: "a view changes the number of elements".to_owned(),
            }),
        }
    }

    /// Each minimised loss is a single number, and none stands behind that of the model.
    fn losses_fit(&self) -> Result<(), StageError> {
        let end = self.model.loss.map_or(0, Id::index);
        let fits = |loss: &NodeId| {
            self.elements(Source::Node(*loss)) == 1 && loss.index() <= end
        };
        match self.model.minimised().find(|loss| !fits(loss)) {
            None => Ok(()),
            Some(loss) => {
                let node = self.model.nodes[loss].name.clone();
                Err(StageError::Loss { node, problem: NO_NUMBER.to_owned() })
            }
        }
    }
}

const NO_NUMBER: &str = "the loss is not a single number";
const NOT_A_LOSS: &str =
    "the loss must be `cross_entropy`, `mse`, or a sum of such losses times constants";
const LOSS_INSIDE: &str = "a loss is used inside the model; only sums of losses and \
                           constants times losses have a gradient";

fn wrong_loss(model: &Model, wrong: WrongLoss) -> StageError {
    let (source, problem) = match wrong {
        WrongLoss::Term(source) => (source, NOT_A_LOSS),
        WrongLoss::Inside { user, .. } => (Source::Node(user), LOSS_INSIDE),
    };
    let node = match source {
        Source::Node(id) => &model.nodes[id].name,
        Source::Parameter(id) => &model.parameters[id].name,
        Source::Input(id) => &model.inputs[id].name,
    };
    StageError::Loss { node: node.clone(), problem: problem.to_owned() }
}

/// Operations whose result is their operand's memory, in every part.
fn is_view(operation: Operation) -> bool {
    matches!(operation, Operation::Reshape | Operation::Boundary(_))
}

fn is_hop(operation: Operation) -> bool {
    matches!(operation, Operation::Boundary(Hop::Added | Hop::Alone))
}

fn sound(model: &Model, id: NodeId, node: &Node) -> Result<(), StageError> {
    let wrong =
        |problem: String| Err(StageError::Malformed { node: node.name.clone(), problem });
    let (least, most) = arity(node.operation);
    if !(least..=most).contains(&node.operands.len()) {
        return wrong(format!(
            "expected {least} to {most} operands, found {}",
            node.operands.len()
        ));
    }
    for operand in &node.operands {
        let exists = match operand {
            Source::Node(above) => above.index() < id.index(),
            Source::Parameter(parameter) => model.parameters.get(*parameter).is_some(),
            Source::Input(input) => model.inputs.get(*input).is_some(),
        };
        if !exists {
            return wrong("an operand does not stand above its user".to_owned());
        }
    }
    Ok(())
}
