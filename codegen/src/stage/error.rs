//! What can be wrong with a model or its cuts before any routine is made.

use roundelay_schedule::MapWay;
use thiserror::Error;

/// Why a model cannot be cut into stages as asked.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StageError {
    /// Cut points are not ascending node numbers inside the model.
    #[error(
        "cuts {cuts:?} are not ascending node numbers between 1 and {}",
        nodes.saturating_sub(1)
    )]
    Cuts {
        /// The cut points.
        cuts: Vec<u32>,
        /// Number of nodes.
        nodes: usize,
    },
    /// A micro-batch without examples.
    #[error("a micro-batch has no examples")]
    NoExamples,
    /// The model has no loss.
    #[error("the model has no loss")]
    NoLoss,
    /// A node contradicts the rules of the graph.
    #[error("`{node}`: {problem}")]
    Malformed {
        /// The node's name.
        node: String,
        /// What is wrong, as a sentence without full stop.
        problem: String,
    },
    /// The loss is not a sum of scaled losses, so no kernel gives its gradient.
    #[error("`{node}`: {problem}")]
    Loss {
        /// The node at fault.
        node: String,
        /// What is wrong, as a sentence without full stop.
        problem: String,
    },
    /// Tensors cannot be split like this.
    #[error(
        "no operation of the model can be split among {tensor}: an affine map or \
         its heads must be a multiple of them"
    )]
    Unsplit {
        /// The parts that were asked for, in words.
        tensor: String,
    },
    /// A model without images among parts that split them.
    #[error(
        "no operation of the model has a window that moves over images, which {tensor} could divide: \
         set `images whole`"
    )]
    NoImages {
        /// The parts that were asked for, in words.
        tensor: String,
    },
    /// An operation that slices of sequences do not cut.
    #[error("`{node}`: {problem}")]
    Unsliced {
        /// The node's name.
        node: String,
        /// What keeps slices from it and what to do, as a sentence without full stop.
        problem: String,
    },
    /// Slices of sequences on devices that split tensors.
    #[error(
        "tensors are split among {tensor}, and slices of sequences are not made of split \
         tensors: set `slices 1`, or `tensor {{ rows 1, columns 1 }}`"
    )]
    SlicedTensor {
        /// The parts that were asked for, in words.
        tensor: String,
    },
    /// An operation that needs all examples of a micro-batch at once.
    #[error("`{node}`: {problem}")]
    Unhalved {
        /// The node's name.
        node: String,
        /// What keeps halves from it and what to do, as a sentence without full stop.
        problem: String,
    },
    /// Examples that do not make halves.
    #[error(
        "a micro-batch of {examples} examples has no {halves} equal parts that take turns: choose \
         `micro_batches` and `replicas` so that {halves} divides its examples, or set \
         `tensor {{ overdecompose 1 }}`"
    )]
    Odd {
        /// Examples of a micro-batch.
        examples: u64,
        /// Parts that were asked for.
        halves: u32,
    },
    /// An operation that columns do not split.
    #[error(
        "`{node}`: tensor columns do not split {operation}: set `tensor {{ columns 1 }}` and use \
         rows or replicas instead"
    )]
    NoColumns {
        /// The node's name.
        node: String,
        /// The kind of operation, in words.
        operation: &'static str,
    },
    /// An extent that the grid does not divide.
    #[error(
        "`{node}`: its {size} {what} do not divide among {parts} tensor {direction}; {direction} \
         up to {most} that do: {}",
        fitting(*size, *most)
    )]
    Indivisible {
        /// The node's name.
        node: String,
        /// What is counted.
        what: &'static str,
        /// How many there are.
        size: u64,
        /// Among how many they are divided.
        parts: u64,
        /// What these are called.
        direction: &'static str,
        /// The largest number of parts that is looked at for one that fits.
        most: u64,
    },
    /// A way of a map that does not fit it.
    #[error("`{node}`: the plan's `maps` send o{site} by {way}, but {problem}; {hint}")]
    MapWay {
        /// The name of the operation, or of the model.
        node: String,
        /// Its number.
        site: u32,
        /// The way that the plan lists.
        way: MapWay,
        /// What is wrong, as a sentence without full stop.
        problem: String,
        /// What to do.
        hint: String,
    },
    /// A height of images that the rows of the grid do not divide.
    #[error(
        "`{node}`: {parts} tensor rows do not divide images of {height} rows of pixels; numbers of rows \
         that divide all heights of the model: {}",
        fitting(*common, *common)
    )]
    Height {
        /// The node's name.
        node: String,
        /// The height.
        height: u64,
        /// Among how many rows it is divided.
        parts: u64,
        /// The greatest number that divides all heights.
        common: u64,
    },
    /// A gradient hops back in the middle of a stage.
    #[error(
        "stage {stage} has units on both sides of `{boundary}`, over which a gradient hops back: \
         cut there"
    )]
    Units {
        /// The stage, counted from zero.
        stage: usize,
        /// The boundary's name.
        boundary: String,
    },
    /// A stage begins inside of a unit, where gradients hop back between units.
    #[error(
        "stage {stage} begins inside of a unit, at `{node}`: where gradients hop back a unit is \
         one stage, so cut at boundaries alone"
    )]
    Parted {
        /// The stage, counted from zero.
        stage: usize,
        /// The first node's name.
        node: String,
    },
    /// One parameter is used by two stages whose sequences are in slices.
    #[error(
        "stages {} and {} both use parameter `{parameter}`, which slices of sequences cannot: cut \
         so that one stage has all its uses, or set `slices 1`",
        stages[0], stages[1]
    )]
    Shared {
        /// The parameter's name.
        parameter: String,
        /// The stages, counted from zero.
        stages: [usize; 2],
    },
}

impl StageError {
    /// The decision of a plan that it is about; of a model at fault none.
    pub fn decision(&self) -> Option<&'static str> {
        match self {
            StageError::Cuts { .. }
            | StageError::Units { .. }
            | StageError::Parted { .. }
            | StageError::Shared { .. } => Some("cuts"),
            StageError::NoExamples => Some("micro_batches"),
            StageError::Unsliced { .. } | StageError::SlicedTensor { .. } => {
                Some("slices")
            }
            StageError::Unsplit { .. }
            | StageError::NoImages { .. }
            | StageError::Unhalved { .. }
            | StageError::Odd { .. }
            | StageError::NoColumns { .. }
            | StageError::Indivisible { .. }
            | StageError::Height { .. } => Some("tensor"),
            StageError::MapWay { .. } => Some("maps"),
            StageError::NoLoss
            | StageError::Malformed { .. }
            | StageError::Loss { .. } => None,
        }
    }
}

/// The numbers up to the largest one that divide a size.
fn fitting(size: u64, most: u64) -> String {
    let fits: Vec<String> = (1..=most.min(size))
        .filter(|parts| size.is_multiple_of(*parts))
        .map(|parts| parts.to_string())
        .collect();
    fits.join(", ")
}
