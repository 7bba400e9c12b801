//! What one of several devices does of an operation; no program has it.

use roundelay_schedule::Line;

/// What one device does where tensors are split among several. Every array is the own part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Part {
    /// x → x in another layout. Its gradient goes back the other way.
    Exchange {
        /// What the result is made of.
        value: Motion,
        /// What the operand's gradient is made of: the adjoint of `value` in these layouts.
        gradient: Motion,
    },
    /// tokens (..) i32, own rows of a table (v / parts, n) → (.., n), zero for tokens of others.
    Embedding {
        /// Rows of all parts, v.
        whole: u64,
    },
    /// Own logits (.., v / parts), targets (..) i32, and shares (batch) where these are masked → the
    /// loss over all classes, on every device.
    CrossEntropy {
        /// Classes of all parts, v.
        whole: u64,
        /// Whether targets may be v, for none.
        masked: Masked,
    },
    /// As `LayerNorm`, of own columns.
    LayerNorm {
        /// Added to the variance.
        epsilon: f64,
        /// Columns of all parts.
        whole: u64,
    },
    /// As `RmsNorm`, of own columns.
    RmsNorm {
        /// Added to the mean of squares.
        epsilon: f64,
        /// Columns of all parts.
        whole: u64,
    },
    /// Images (b, h, w, c), own rows → the rows (b, l, w + 2 side, c) that a window reads which moves
    /// over the whole image: at place r from row r · step − before on, with padding where no image
    /// is. Their gradients go back to those who have them.
    Halo {
        /// Rows in front of the image.
        before: u64,
        /// Rows from one part to the next.
        step: u64,
        /// Columns of padding at both ends.
        side: u64,
        /// What stands there.
        padding: Padding,
    },
    /// As `BatchNorm`, of own rows of pixels.
    BatchNorm,
    /// As `GroupNorm`, of own rows of pixels.
    GroupNorm {
        /// Divides the channels.
        groups: u64,
    },
    /// Dropout with the mask of the whole tensor.
    Dropout {
        /// Probability, in [0, 1).
        rate: f64,
        /// Number of the node in the model, which gives the mask.
        operator: u64,
        /// Where the own part lies in it.
        share: PartShare,
        /// Who divides the tokens, where `share` is of something else.
        tokens: Option<Line>,
        /// Which half of the examples it is of; the first where they are taken together.
        half: u32,
    },
}

/// What stands where there is no image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Padding {
    /// Zero, as convolutions and means see it.
    Zero,
    /// Less than every number, so that it is never the greatest.
    Lowest,
}

/// Whether some targets are no class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Masked {
    /// Every row counts.
    No,
    /// Rows whose target is the number of classes do not.
    Yes,
}

/// What becomes of an array when its layout changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Motion {
    /// It stays as it is.
    Keep,
    /// Everybody gets the sum.
    Sum,
    /// Everybody gets all parts.
    Gather(PartShare),
    /// Everybody gets its own part of the sum.
    Scatter(PartShare),
    /// Everybody keeps its own part of what all have.
    Cut(PartShare),
}

/// Which part of an array a device has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PartShare {
    /// All of it.
    Whole,
    /// Part of one extent.
    Extent(u32),
    /// Part of all rows one behind the other, whatever the last extent counts.
    Tokens,
}
