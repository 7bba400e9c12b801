//! What a slice of a sequence, or half of the examples, does of an operation; no program has it.

use crate::Turning;

/// What one slice of a sequence does where sequences are cut into equal slices, and what one part of
/// the examples does where those of a micro-batch are. Every array is the own slice, or part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sliced {
    /// x (b, S, ..) → places `first` .. `first` + s of every example (b, s, ..). Whole numbers stay
    /// whole numbers.
    Cut {
        /// The first place.
        first: u64,
    },
    /// Slices (b, s, n) of one sequence → one behind the other (b, Σ s, n): what attention of a
    /// later slice reads.
    Join,
    /// As `Rotary`, of positions from `first` on.
    Rotary {
        /// How every head turns.
        turning: Turning,
        /// The first position.
        first: u64,
    },
    /// Dropout with the mask of the whole sequence.
    Dropout {
        /// Probability, in [0, 1).
        rate: f64,
        /// Number of the node in the model, which gives the mask.
        operator: u64,
        /// Which slice it is.
        own: u32,
        /// Number of slices.
        slices: u32,
    },
    /// x (B, ..) → the examples of one of this many equal parts (b, ..). Whole numbers stay whole
    /// numbers.
    Examples {
        /// Which part it is.
        own: u32,
        /// Number of parts.
        parts: u32,
    },
    /// Dropout with the mask of all examples, of those of one of this many equal parts.
    ExamplesDropout {
        /// Probability, in [0, 1).
        rate: f64,
        /// Number of the node in the model, which gives the mask.
        operator: u64,
        /// Which part it is.
        own: u32,
        /// Number of parts.
        parts: u32,
    },
}
