//! What can be wrong with a model or its cuts before any routine is made.

use std::fmt;

/// Why a model cannot be cut into stages as asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StageError {
    /// Cut points are not ascending node numbers inside the model.
    Cuts {
        /// The cut points.
        cuts: Vec<u32>,
        /// Number of nodes.
        nodes: usize,
    },
    /// A micro-batch without examples.
    NoExamples,
    /// The model has no loss.
    NoLoss,
    /// A node contradicts the rules of the graph.
    Malformed {
        /// The node's name.
        node: String,
        /// What is wrong, as a sentence without full stop.
        problem: String,
    },
    /// The loss is not a sum of scaled losses, so no kernel gives its gradient.
    Loss {
        /// The node at fault.
        node: String,
        /// What is wrong, as a sentence without full stop.
        problem: String,
    },
    /// One parameter is used by two stages.
    Shared {
        /// The parameter's name.
        parameter: String,
        /// The stages, counted from zero.
        stages: [usize; 2],
    },
}

impl fmt::Display for StageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StageError::Cuts { cuts, nodes } => write!(
                f,
                "cuts {cuts:?} are not ascending node numbers between 1 and {}",
                nodes.saturating_sub(1)
            ),
            StageError::NoExamples => f.write_str("a micro-batch has no examples"),
            StageError::NoLoss => f.write_str("the model has no loss"),
            StageError::Malformed { node, problem }
            | StageError::Loss { node, problem } => {
                write!(f, "`{node}`: {problem}")
            }
            StageError::Shared { parameter, stages: [first, second] } => write!(
                f,
                "stages {first} and {second} both use parameter `{parameter}`; weights \
                 tied across stages are not supported: cut so that one stage has all its \
                 uses"
            ),
        }
    }
}

impl std::error::Error for StageError {}
