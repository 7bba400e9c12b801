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

/// In how many groups of rows a loss makes its own logits, one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunks {
    /// In [`Chunks::MANY`], or in fewer where groups would have less than [`Chunks::LEAST_ROWS`]: each reads
    /// the whole weight, and adds to its whole gradient.
    Usual,
    /// In so many, at least one.
    Number(u64),
}

impl Chunks {
    /// Groups of many rows.
    pub const MANY: u64 = 8;

    /// Rows of a group where there are more.
    pub const LEAST_ROWS: u64 = 512;

    /// Rows of a group, of so many in all; the last one may have less.
    pub fn rows(self, all: u64) -> u64 {
        let rows = match self {
            Self::Usual => all.div_ceil(Self::MANY).max(Self::LEAST_ROWS).min(all),
            Self::Number(chunks) => all.div_ceil(chunks.max(1)),
        };
        rows.max(1)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_as_many_rows_as_is_usual() {
        let usual =
            [0, 1, 511, 512, 513, 4096, 4097, 65_536].map(|all| Chunks::Usual.rows(all));
        assert_eq!(usual, [1, 1, 511, 512, 512, 512, 513, 8192]);
        assert_eq!([3, 100].map(|all| Chunks::Number(8).rows(all)), [1, 13]);
    }
}
