//! What cuts decide: which stage computes a node, which values cross, who reads them.

use super::{StageError, call::Step, graph::Graph, hashed::HashedMap};
use roundelay_dsl::{NodeId, ParameterId, Source};
use roundelay_schedule::{Id, Stage, ValueId};
use std::ops::Range;

/// A cut model.
pub(crate) struct Flow {
    bounds: Vec<usize>,
    /// Stages one behind the other that are slices of one, and share its parameters.
    slices: usize,
    /// Values that cross, in the order of their nodes; a value's place here is its handle.
    pub(crate) crossing: Vec<Crossing>,
    /// The stage of every used parameter, the first of its slices, in the order of first use.
    pub(crate) parameters: Vec<(ParameterId, Stage)>,
    handles: HashedMap<NodeId, ValueId>,
    returning: HashedMap<NodeId, ValueId>,
}

/// A node's result that a later stage reads.
pub(crate) struct Crossing {
    /// The node.
    pub(crate) node: NodeId,
    /// The stage that computes it.
    pub(crate) producer: Stage,
    /// The last stage that reads it.
    pub(crate) last: Stage,
    /// The last stage that adds to its gradient, if the gradient crosses too.
    pub(crate) returns: Option<Stage>,
    /// The node in whose sum that gradient stands: the node itself, or the boundary over which it
    /// hops back.
    pub(crate) sum: NodeId,
}

/// A stage of a cut graph.
#[derive(Clone, Copy)]
pub(crate) struct Staged<'a> {
    pub(crate) graph: &'a Graph<'a>,
    pub(crate) flow: &'a Flow,
    pub(crate) stage: Stage,
}

impl<'a> Staged<'a> {
    /// Nodes of the stage that have kernels, in topological order.
    pub(crate) fn computed(self) -> impl DoubleEndedIterator<Item = NodeId> + use<'a> {
        self.flow.computed(self.graph, self.stage)
    }
}

impl Flow {
    /// Cuts the graph.
    pub(crate) fn new(
        graph: &Graph<'_>,
        (cuts, slices): (&[u32], u32),
    ) -> Result<Self, StageError> {
        let nodes = graph.model.cuttable();
        let inner = cuts.iter().map(|cut| *cut as usize);
        let bounds: Vec<usize> = [0].into_iter().chain(inner).chain([nodes]).collect();
        if !bounds.is_sorted_by(|low, high| low < high) {
            return Err(StageError::Cuts { cuts: cuts.to_vec(), nodes });
        }
        let bounds = ending(bounds, graph.model.nodes.len());
        let mut flow = Self {
            bounds,
            slices: slices as usize,
            crossing: vec![],
            parameters: vec![],
            handles: HashedMap::default(),
            returning: HashedMap::default(),
        };
        flow.parameters = flow.place_parameters(graph)?;
        flow.crossing = flow.find_crossing(graph);
        let handles = flow.crossing.iter().enumerate();
        flow.handles = handles.map(|(v, row)| (row.node, ValueId::new(v))).collect();
        let returning = flow.crossing.iter().enumerate();
        let returning = returning.filter(|(_, row)| row.returns.is_some());
        flow.returning = returning.map(|(v, row)| (row.sum, ValueId::new(v))).collect();
        Ok(flow)
    }

    /// Number of stages.
    pub(crate) fn count(&self) -> usize {
        self.bounds.len() - 1
    }
    /// The stage that has the parameters of a stage: the first of its slices.
    pub(crate) fn keeper(&self, stage: Stage) -> Stage {
        Stage::new(stage.index() / self.slices * self.slices)
    }
    /// The nodes of a stage.
    pub(crate) fn nodes(&self, stage: Stage) -> Range<usize> {
        self.bounds[stage.index()]..self.bounds[stage.index() + 1]
    }
    /// The stage of a node.
    pub(crate) fn stage(&self, node: NodeId) -> Stage {
        let after = self.bounds.partition_point(|start| *start <= node.index());
        Stage::new(after - 1)
    }
    /// The backward calls of a node.
    pub(crate) fn backward<'a>(&self, graph: &'a Graph<'_>, node: NodeId) -> &'a [Step] {
        let beside = graph.beside(node);
        let here = beside.filter(|other| self.stage(other.with) == self.stage(node));
        here.map_or_else(|| &graph.derivative(node).backward, |beside| &beside.backward)
    }
    /// The handle of a node's result, if it crosses.
    pub(crate) fn value(&self, node: NodeId) -> Option<ValueId> {
        self.handles.get(&node).copied()
    }
    /// The handle of the value whose gradient crosses in the sum of a node.
    pub(crate) fn gradient(&self, node: NodeId) -> Option<ValueId> {
        self.returning.get(&node).copied()
    }
    /// The last stage, which has the loss.
    pub(crate) fn end(&self) -> Stage {
        Stage::new(self.count() - 1)
    }
    /// The stage that measures a metric: its own for the loss of a head, which nothing else
    /// sends on, else the last.
    pub(crate) fn measures(&self, graph: &Graph<'_>, metric: NodeId) -> Stage {
        if graph.is_auxiliary(metric) { self.stage(metric) } else { self.end() }
    }
    /// Nodes of a stage that have kernels, in topological order.
    pub(crate) fn computed<'a>(
        &self,
        graph: &'a Graph<'_>,
        stage: Stage,
    ) -> impl DoubleEndedIterator<Item = NodeId> + use<'a> {
        graph.computed_among(self.nodes(stage))
    }

    fn find_crossing(&self, graph: &Graph<'_>) -> Vec<Crossing> {
        let nodes = graph.model.nodes.len();
        let mut last: Vec<Option<Stage>> = vec![None; nodes];
        let mut adds: Vec<Option<(Stage, NodeId)>> = vec![None; nodes];
        for user in graph.computed() {
            for operand in &graph.model.nodes[user].operands {
                if let Source::Node(node) = graph.root(*operand) {
                    last[node.index()] = Some(self.stage(user));
                    if graph.differentiates(user) && graph.adds(*operand) {
                        let known =
                            adds[node.index()].get_or_insert((self.stage(user), node));
                        known.0 = self.stage(user);
                        // What stands behind a boundary adds to its sum, or to one that does.
                        if let Source::Node(sum) = graph.sum_of(*operand)
                            && graph.is_boundary(Source::Node(sum))
                        {
                            known.1 = sum;
                        }
                    }
                }
            }
        }
        for node in &graph.metrics {
            let measured = self.measures(graph, *node);
            let last = last[node.index()].get_or_insert(measured);
            *last = measured.max(*last);
        }
        let read = last.into_iter().enumerate();
        let read = read.filter_map(|(node, last)| Some((NodeId::new(node), last?)));
        let crossing = read.map(|(node, last)| {
            let producer = self.stage(node);
            let adds = adds[node.index()].filter(|(stage, _)| *stage > producer);
            let adds = adds.filter(|_| graph.has_gradient(Source::Node(node)));
            let (returns, sum) = match adds {
                Some((stage, sum)) => (Some(stage), sum),
                None => (None, node),
            };
            Crossing { node, producer, last, returns, sum }
        });
        crossing.filter(|row| row.producer < row.last).collect()
    }

    fn place_parameters(
        &self,
        graph: &Graph<'_>,
    ) -> Result<Vec<(ParameterId, Stage)>, StageError> {
        let mut places: Vec<Option<Stage>> = vec![None; graph.model.parameters.len()];
        let mut order = Vec::new();
        for user in graph.computed() {
            let stage = self.keeper(self.stage(user));
            for operand in &graph.model.nodes[user].operands {
                let Source::Parameter(parameter) = graph.root(*operand) else { continue };
                match places[parameter.index()].replace(stage) {
                    None => order.push((parameter, stage)),
                    Some(first) if first == stage => {}
                    Some(first) => {
                        return Err(StageError::Shared {
                            parameter: graph.model.parameters[parameter].name.clone(),
                            stages: [first, stage]
                                .map(|stage| stage.index() / self.slices),
                        });
                    }
                }
            }
        }
        Ok(order)
    }
}

/// The last stage has all that stands behind the loss.
fn ending(mut bounds: Vec<usize>, nodes: usize) -> Vec<usize> {
    bounds.pop();
    bounds.push(nodes);
    bounds
}
