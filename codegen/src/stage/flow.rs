//! What cuts decide: which stage computes a node, which values cross, who reads them.

use super::{StageError, call::Step, graph::Graph, hashed::HashedMap};
use roundelay_dsl::{NodeId, ParameterId, Source};
use roundelay_schedule::{Id, Role, Stage, Tie, ValueId};
use std::{collections::BTreeSet, ops::Range};

/// A cut model.
pub(crate) struct Flow {
    bounds: Vec<usize>,
    /// Stages one behind the other that are slices of one, and share its parameters.
    slices: usize,
    /// Values that cross, in the order of their nodes; a value's place here is its handle.
    pub(crate) crossing: Vec<Crossing>,
    /// The state of every used parameter, state by state in the order of first use: that of the only
    /// stage that uses it, the first of its slices, or that of a tie, which is numbered behind the
    /// stages.
    pub(crate) parameters: Vec<(ParameterId, Stage)>,
    /// Which stages use the same parameters, in order of first use.
    pub(crate) ties: Vec<Tie>,
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
            ties: vec![],
            handles: HashedMap::default(),
            returning: HashedMap::default(),
        };
        flow.place_parameters(graph)?;
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
    /// The states that a stage uses: its own, then those of ties.
    pub(crate) fn states(&self, stage: Stage) -> impl Iterator<Item = Stage> + '_ {
        let own = self.keeper(stage);
        let ties = self.ties.iter().enumerate();
        let ties = ties.filter(move |(_, tie)| tie.place_of(own).is_some());
        [own].into_iter().chain(ties.map(|(number, _)| Stage::new(self.count() + number)))
    }
    /// The parameters of a state, in the order of first use.
    pub(crate) fn parameters_of(
        &self,
        state: Stage,
    ) -> impl Iterator<Item = ParameterId> + '_ {
        let own = self.parameters.iter().filter(move |(_, other)| *other == state);
        own.map(|(id, _)| *id)
    }
    /// What parameters and gradients of a state are to the stages that use it.
    pub(crate) fn roles(&self, state: Stage) -> [Role; 2] {
        match state.index() < self.count() {
            true => [Role::Parameter, Role::Gradient],
            false => [Role::Tied(state), Role::TiedGradient(state)],
        }
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

    /// Ties are those of parameters that several stages use.
    fn place_parameters(&mut self, graph: &Graph<'_>) -> Result<(), StageError> {
        let (users, order) = self.users(graph);
        for parameter in order {
            let own: Vec<u32> = users[parameter.index()].iter().copied().collect();
            let state = match own.as_slice() {
                [only] => Stage::numbered(*only),
                [first, second, ..] if self.slices > 1 => {
                    return Err(StageError::Shared {
                        parameter: graph.model.parameters[parameter].name.clone(),
                        stages: [first, second].map(|own| *own as usize / self.slices),
                    });
                }
                _ => self.tied(Tie(own)),
            };
            self.parameters.push((parameter, state));
        }
        self.parameters.sort_by_key(|(_, state)| *state);
        Ok(())
    }

    /// The stages that use each parameter, and the parameters in the order of their first use.
    fn users(&self, graph: &Graph<'_>) -> (Vec<BTreeSet<u32>>, Vec<ParameterId>) {
        let mut users = vec![BTreeSet::new(); graph.model.parameters.len()];
        let mut order = Vec::new();
        for user in graph.computed() {
            let stage = self.keeper(self.stage(user)).number();
            for operand in &graph.model.nodes[user].operands {
                let Source::Parameter(parameter) = graph.root(*operand) else { continue };
                let own = &mut users[parameter.index()];
                if own.is_empty() {
                    order.push(parameter);
                }
                own.insert(stage);
            }
        }
        (users, order)
    }

    /// The state of a tie.
    fn tied(&mut self, tie: Tie) -> Stage {
        let known = self.ties.iter().position(|other| *other == tie);
        let number = known.unwrap_or_else(|| {
            self.ties.push(tie);
            self.ties.len() - 1
        });
        Stage::new(self.count() + number)
    }
}

/// The last stage has all that stands behind the loss.
fn ending(mut bounds: Vec<usize>, nodes: usize) -> Vec<usize> {
    bounds.pop();
    bounds.push(nodes);
    bounds
}
