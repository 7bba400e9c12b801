//! Orders in time: which of them exist, which device of a pipeline has which stage under them,
//! and for which numbers they are defined.

use crate::spelled::spelled;
use std::fmt;

spelled! {
    /// In which order each device takes its tasks.
    ///
    /// Pipelines count p devices, v chunks (stages on one device), N micro-batches. The sources of
    /// the pipeline orders stand beside their builders, in the lowering.
    pub enum Order: "order" {
        /// One micro-batch after another, forward then backward.
        Sequential = "sequential",
        /// All workers in step: forward of all stages, then backward.
        Parallel = "parallel",
        /// Micro-batches start evenly spread over the period; also flush-free pipelines.
        Cyclic = "cyclic",
        /// All forward passes of a device, then all backward passes.
        Gpipe = "gpipe",
        /// Warm-up, then one forward and one backward in turn.
        OneForwardOneBackward = "1f1b",
        /// The same with twice the warm-up, so that messages hide behind passes.
        Eager = "eager_1f1b",
        /// One forward, one backward over v chunks, p micro-batches of a chunk after another.
        Interleaved = "interleaved",
        /// All micro-batches of a chunk, chunk by chunk.
        BreadthFirst = "breadth_first",
        /// Zero bubble, with the memory of 1F1B.
        ZeroBubbleH1 = "zb_h1",
        /// Zero bubble, with twice the memory.
        ZeroBubbleH2 = "zb_h2",
        /// Zero bubble, found from times: activations of p micro-batches on each device at a time.
        ZeroBubbleOneP = "zb_1p",
        /// The same with twice the activations.
        ZeroBubbleTwoP = "zb_2p",
        /// The same with what the devices have room for.
        ZeroBubbleAuto = "zb_auto",
        /// Zero bubble over two chunks that go down and up the devices.
        ZeroBubbleV = "zb_v",
        /// The same with about half of the activations of 1F1B.
        HalfV = "v_half",
        /// The same with about a third.
        MinimalV = "v_min",
        /// Backward passes first, over chunks that go down and up the devices in waves.
        Wave = "wave",
        /// Two pipelines in opposite directions.
        Chimera = "chimera",
        /// Two pipelines in opposite directions with split backward passes.
        DualPipe = "dualpipe",
        /// The same with whole backward passes beside forward passes of the other direction.
        DualPipePaired = "dualpipe_paired",
        /// As 1F1B, slice after slice of each sequence; backward from the last slice to the first.
        SlicesOneForwardOneBackward = "seq1f1b",
        /// All forward passes of all slices, then all backward passes.
        TeraPipe = "terapipe",
        /// What the plan's own lists say.
        Listed = "listed",
    }
}

/// Which device of a pipeline has which stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fold {
    /// Chunk after chunk in the same direction: stage j on device j mod p.
    Loop,
    /// Chunk 0 down the devices, chunk 1 up, chunk 2 down, and so on.
    Snake,
    /// Every stage on two devices: stage j on device j for micro-batches that go down, on device
    /// p − 1 − j for those that go up.
    Mirror,
    /// The device whose list names the stage.
    Lists,
}

/// Numbers for which an order is not defined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Misfit {
    /// The order takes this many chunks per device.
    Chunks(u32),
    /// The order takes at least two chunks per device.
    FewChunks,
    /// S is not a multiple of the chunks.
    UnevenChunks,
    /// The number of chunks must be even.
    OddChunks,
    /// N must be a multiple of this.
    MicroBatches(u32),
    /// N must be at least this.
    FewMicroBatches(u32),
    /// The number of devices must be even.
    OddDevices,
    /// The order takes at least two slices of each sequence.
    FewSlices,
    /// The order takes whole sequences.
    Slices,
}

/// How many chunks an order takes per device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chunks {
    /// So many.
    Exactly(u32),
    /// Two or more.
    AtLeastTwo,
    /// An even number.
    Even,
    /// As many as its lists say.
    Listed,
}

/// What holds of an order, whatever the numbers are.
#[derive(Clone, Copy, Debug)]
struct Traits {
    fold: Fold,
    chunks: Chunks,
    splits_backward: bool,
    takes_slices: bool,
    is_found: bool,
}

impl Traits {
    /// One stage on each device, and passes of whole micro-batches.
    const PLAIN: Self = Self {
        fold: Fold::Loop,
        chunks: Chunks::Exactly(1),
        splits_backward: false,
        takes_slices: false,
        is_found: false,
    };
}

impl Order {
    /// Which device has which stage.
    pub fn fold(self) -> Fold {
        self.traits().fold
    }

    /// Whether the order is one of a pipeline with a flush.
    pub fn is_of_pipelines(self) -> bool {
        !matches!(self, Order::Sequential | Order::Parallel | Order::Cyclic)
    }

    /// Whether it takes the gradients of values before those of parameters.
    pub fn splits_backward(self) -> bool {
        self.traits().splits_backward
    }

    /// Whether slices of sequences flow one after another under it.
    pub fn takes_slices(self) -> bool {
        self.traits().takes_slices
    }

    /// Whether its lists depend on times and memory: the planner finds them, and they stand in the
    /// plan.
    pub fn is_found(self) -> bool {
        self.traits().is_found
    }

    /// Whether the order is defined for v chunks, S stages and N micro-batches, all at least 1.
    ///
    /// # Errors
    /// What would have to be otherwise.
    pub fn fits(
        self,
        chunks: u32,
        stages: u32,
        micro_batches: u32,
    ) -> Result<(), Misfit> {
        if self == Order::Listed {
            return Ok(());
        }
        self.fits_chunks(chunks, stages)?;
        let devices = stages / chunks;
        match self {
            Order::Interleaved if !micro_batches.is_multiple_of(devices) => {
                Err(Misfit::MicroBatches(devices))
            }
            Order::Chimera | Order::DualPipe | Order::DualPipePaired
                if !devices.is_multiple_of(2) =>
            {
                Err(Misfit::OddDevices)
            }
            Order::Chimera if !micro_batches.is_multiple_of(devices) => {
                Err(Misfit::MicroBatches(devices))
            }
            Order::DualPipe | Order::DualPipePaired
                if micro_batches < devices.saturating_mul(2) =>
            {
                Err(Misfit::FewMicroBatches(devices.saturating_mul(2)))
            }
            Order::DualPipe | Order::DualPipePaired
                if !micro_batches.is_multiple_of(2) =>
            {
                Err(Misfit::MicroBatches(2))
            }
            _ => Ok(()),
        }
    }

    /// Whether sequences in this many slices flow under the order.
    ///
    /// # Errors
    /// What would have to be otherwise.
    pub fn fits_slices(self, slices: u32) -> Result<(), Misfit> {
        match (self.takes_slices(), slices) {
            (true, 0 | 1) => Err(Misfit::FewSlices),
            (false, 1) | (true, _) => Ok(()),
            (false, _) => Err(Misfit::Slices),
        }
    }

    /// Whether the order is defined for v chunks and S stages, whatever N is. First what no number
    /// of stages mends.
    ///
    /// # Errors
    /// What would have to be otherwise.
    pub fn fits_chunks(self, chunks: u32, stages: u32) -> Result<(), Misfit> {
        let (are_right, misfit) = match self.traits().chunks {
            Chunks::Listed => return Ok(()),
            Chunks::Exactly(count) => (chunks == count, Misfit::Chunks(count)),
            Chunks::AtLeastTwo => (chunks >= 2, Misfit::FewChunks),
            Chunks::Even => (chunks.is_multiple_of(2), Misfit::OddChunks),
        };
        match (are_right, chunks > 0 && stages.is_multiple_of(chunks)) {
            (false, _) => Err(misfit),
            (true, false) => Err(Misfit::UnevenChunks),
            (true, true) => Ok(()),
        }
    }

    const fn traits(self) -> Traits {
        let plain = Traits::PLAIN;
        match self {
            Order::Sequential
            | Order::Parallel
            | Order::Cyclic
            | Order::Gpipe
            | Order::OneForwardOneBackward
            | Order::Eager => plain,
            Order::Interleaved | Order::BreadthFirst => {
                Traits { chunks: Chunks::AtLeastTwo, ..plain }
            }
            Order::ZeroBubbleH1 | Order::ZeroBubbleH2 => {
                Traits { splits_backward: true, ..plain }
            }
            Order::ZeroBubbleOneP | Order::ZeroBubbleTwoP | Order::ZeroBubbleAuto => {
                Traits { splits_backward: true, is_found: true, ..plain }
            }
            Order::ZeroBubbleV | Order::HalfV | Order::MinimalV => {
                let (fold, chunks) = (Fold::Snake, Chunks::Exactly(2));
                Traits { fold, chunks, splits_backward: true, ..plain }
            }
            Order::Wave => Traits { fold: Fold::Snake, chunks: Chunks::Even, ..plain },
            Order::Chimera => Traits { fold: Fold::Mirror, ..plain },
            Order::DualPipe | Order::DualPipePaired => {
                Traits { fold: Fold::Mirror, splits_backward: true, ..plain }
            }
            Order::SlicesOneForwardOneBackward | Order::TeraPipe => {
                Traits { takes_slices: true, ..plain }
            }
            Order::Listed => {
                Traits { fold: Fold::Lists, chunks: Chunks::Listed, ..plain }
            }
        }
    }

    /// Whether a micro-batch goes up the devices, under [`Fold::Mirror`].
    pub fn goes_up(self, micro_batch: u32, devices: u32, micro_batches: u32) -> bool {
        match self {
            Order::Chimera => micro_batch % devices >= devices / 2,
            Order::DualPipe | Order::DualPipePaired => micro_batch >= micro_batches / 2,
            _ => false,
        }
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Misfit::Chunks(1) => write!(f, "this order has one stage on a device"),
            Misfit::Chunks(count) => {
                write!(f, "this order has {count} chunks on a device")
            }
            Misfit::FewChunks => {
                write!(f, "this order needs at least two chunks on a device")
            }
            Misfit::UnevenChunks => {
                write!(f, "the number of stages must be a multiple of the chunks")
            }
            Misfit::OddChunks => {
                write!(f, "this order needs an even number of chunks on a device")
            }
            Misfit::MicroBatches(count) => {
                write!(f, "this order needs a multiple of {count} micro-batches")
            }
            Misfit::FewMicroBatches(count) => {
                write!(f, "this order needs at least {count} micro-batches")
            }
            Misfit::OddDevices => write!(f, "this order needs an even number of devices"),
            Misfit::FewSlices => write!(
                f,
                "this order takes slices of sequences: set `slices 2` or more, which divide a \
                 sequence that causal attention reads"
            ),
            Misfit::Slices => write!(
                f,
                "slices of sequences are for the pipeline orders seq1f1b and terapipe"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_number_of_stages_mends_is_told_first() {
        for (order, chunks, misfit) in [
            (Order::OneForwardOneBackward, 2, Misfit::Chunks(1)),
            (Order::ZeroBubbleV, 4, Misfit::Chunks(2)),
            (Order::BreadthFirst, 1, Misfit::FewChunks),
            (Order::Wave, 3, Misfit::OddChunks),
        ] {
            for stages in 1..13 {
                assert_eq!(order.fits_chunks(chunks, stages), Err(misfit), "{order}");
            }
        }
        assert_eq!(Order::Wave.fits_chunks(0, 4), Err(Misfit::UnevenChunks));
        assert_eq!(Order::Wave.fits_chunks(4, 6), Err(Misfit::UnevenChunks));
        assert_eq!(Order::Wave.fits_chunks(4, 8), Ok(()));
        assert_eq!(Order::Listed.fits_chunks(0, 4), Ok(()));
    }
}
