//! Inputs that data does not bring: what a target counts in a mean over all targets of a step.

use crate::{feed::Feed, native::wide};
use roundelay_schedule::{Float, Id, Input, InputId, Job, Native, Origin, Schedule};

/// Fills the inputs of a job: those of the data from a feed, and the others from what it brings.
pub(crate) struct Shares {
    dtype: Float,
    /// Of a step.
    micro_batches: u64,
    /// By the number of the input; none where data brings it.
    counts: Vec<Option<Count>>,
}

/// How many targets there are in a step.
struct Count {
    targets: InputId,
    mask: u64,
    /// Room for the targets of a micro-batch.
    room: Vec<u8>,
    /// Steps that were counted last, and what was found.
    known: [Option<(u64, u64)>; KNOWN],
}

/// Steps that are under way at a time, mostly; others are counted again.
const KNOWN: usize = 8;

/// A feed that brings all inputs of a schedule.
pub(crate) struct Completed {
    feed: Box<dyn Feed>,
    shares: Shares,
}

impl Completed {
    /// From one that brings its data.
    pub(crate) fn new(schedule: &Schedule, feed: Box<dyn Feed>) -> Self {
        let micro_batches = u64::from(schedule.plan.all_micro_batches());
        Self { feed, shares: Shares::new(&schedule.job, micro_batches) }
    }
}

impl Feed for Completed {
    fn fill(&mut self, input: InputId, t: u64, micro_batch: u64, bytes: &mut [u8]) {
        let Self { feed, shares } = self;
        shares.fill(feed.as_mut(), (input, t, micro_batch), bytes);
    }
}

impl Shares {
    /// For steps of this many micro-batches.
    pub(crate) fn new(job: &Job, micro_batches: u64) -> Self {
        let counts = job.inputs.values().map(|input| Count::new(job, input)).collect();
        Self { dtype: job.dtype, micro_batches, counts }
    }

    /// Writes an input of one micro-batch of step t.
    pub(crate) fn fill(
        &mut self,
        feed: &mut dyn Feed,
        (input, t, micro_batch): (InputId, u64, u64),
        bytes: &mut [u8],
    ) {
        let Some(count) = &mut self.counts[input.index()] else {
            return feed.fill(input, t, micro_batch, bytes);
        };
        let share = match count.of(feed, t, self.micro_batches) {
            0 => 0.0,
            total => self.micro_batches as f64 / total as f64,
        };
        let number: &[u8] = match wide(self.dtype) {
            Native::F32 => &(share as f32).to_ne_bytes(),
            Native::F64 => &share.to_ne_bytes(),
        };
        let places = bytes.chunks_exact_mut(number.len());
        places.for_each(|place| place.copy_from_slice(number));
    }

    /// Whether some step that was counted had no target at all.
    pub(crate) fn met_nothing(&self) -> bool {
        let counts = self.counts.iter().flatten();
        counts
            .flat_map(|count| count.known.iter().flatten())
            .any(|(_, total)| *total == 0)
    }
}

impl Count {
    fn new(job: &Job, input: &Input) -> Option<Self> {
        let Origin::Shares { of, mask } = &input.origin else { return None };
        let mut inputs = job.data_inputs();
        let found = inputs.find(|(_, own)| own.name == *of);
        let (targets, own) = found.expect("shares are of an input that data brings");
        let room = vec![0; own.bytes(job.dtype).0 as usize];
        Some(Self { targets, mask: *mask, room, known: [None; KNOWN] })
    }

    /// The number of targets in step t.
    fn of(&mut self, feed: &mut dyn Feed, t: u64, micro_batches: u64) -> u64 {
        let Self { targets, mask, room, known } = self;
        let known = &mut known[(t % KNOWN as u64) as usize];
        if let Some((step, total)) = *known
            && step == t
        {
            return total;
        }
        let mut total = 0;
        for micro_batch in 0..micro_batches {
            feed.fill(*targets, t, micro_batch, room);
            let (numbers, _) = room.as_chunks();
            let numbers = numbers.iter().map(|bytes| u32::from_ne_bytes(*bytes));
            total += numbers.filter(|number| u64::from(*number) != *mask).count() as u64;
        }
        *known = Some((t, total));
        total
    }
}
