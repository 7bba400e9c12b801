//! What the backward pass needs of operations, for whoever counts what it costs to have it.

use super::{StageError, call::Tensor, graph::Graph, hashed::HashedSet};
use roundelay_dsl::{Model, Source};

/// What the backward pass needs of an operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Whether a gradient of its result is summed up.
    pub gradient: bool,
    /// Whether its backward calls read each of its operands.
    pub reads: Vec<bool>,
}

/// What backward needs of each operation of a model, as derivatives say.
///
/// # Errors
/// When the graph is not sound.
pub fn needs(model: &Model) -> Result<Vec<Needs>, StageError> {
    let graph = Graph::new(model, 1)?;
    let of = |id| {
        let steps = graph.derivative(id).backward.iter();
        let terms = steps.flat_map(|step| &step.terms).map(|term| term.tensor);
        let terms: HashedSet<Tensor> = terms.collect();
        let reads = |own: &Source| terms.contains(&Tensor::Source(graph.root(*own)));
        let operands = model.nodes[id].operands.iter();
        let gradient = graph.adds(Source::Node(id));
        Needs { gradient, reads: operands.map(reads).collect() }
    };
    Ok(model.nodes.ids().map(of).collect())
}
