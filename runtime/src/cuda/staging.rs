//! What host and device hand each other: inputs, losses and the scalars of steps.
//!
//! Everything is there twice, for periods with even and with odd numbers, so that the host
//! writes what a period needs while the one before it runs. A half is used again once all of its
//! period is done.

use super::{
    CudaError,
    ahead::Ahead,
    arena::{ALIGNMENT, allocate},
    driver::{Address, Device, DeviceMemory, DriverError, Pinned, Stream},
};
use crate::{
    machine::{Loss, input_of},
    native::number_of,
    state::updates,
};
use roundelay_kernels::{Context, Mode, cuda::Scalars};
use roundelay_schedule::{ActionId, Bytes, Schedule, Work};
use std::{collections::BTreeMap, ops::Range};

/// Periods whose parts of the host's memory are apart.
pub(super) const HALVES: usize = 2;

/// Bytes of a row of the table of scalars.
const ROW: usize = size_of::<Scalars>();

/// Host memory that the device reaches, and the table of scalars on the device.
pub(super) struct Staging {
    pinned: Pinned,
    /// Bytes of one half of it.
    half: usize,
    /// First byte of each action in a half, and bytes per coordinate.
    places: BTreeMap<ActionId, (usize, usize)>,
    /// Rows of the table: one per lag.
    rows: usize,
    table: DeviceMemory,
    ahead: Ahead,
    /// That of the state that was loaded.
    pub(super) optimizer_origin: u64,
    /// What the losses of each half will be.
    awaited: [Vec<Awaited>; HALVES],
}

/// Room for what an action hands over at a coordinate.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    pub(super) action: ActionId,
    pub(super) half: usize,
    /// Its number among the coordinates that this process has.
    pub(super) coordinate: usize,
}

/// A loss on its way.
struct Awaited {
    step: u64,
    micro_batch: u64,
    range: Range<usize>,
}

impl Staging {
    /// Room for all that a schedule feeds and reports at this many coordinates.
    ///
    /// # Errors
    /// When there is too little memory.
    pub(super) fn new(
        schedule: &Schedule,
        device: &Device,
        coordinates: usize,
    ) -> Result<Self, CudaError> {
        let (lag, _) = schedule.span();
        let rows = lag as usize + 1;
        let mut places = BTreeMap::new();
        let mut half = (rows * ROW).next_multiple_of(ALIGNMENT as usize);
        for (id, action) in schedule.actions.iter() {
            let Some(each) = handed_over(schedule, &action.work) else { continue };
            places.insert(id, (half, each));
            half = (half + each * coordinates).next_multiple_of(ALIGNMENT as usize);
        }
        let table = Bytes((rows * ROW * HALVES) as u64);
        let pinned = Pinned::new(half * HALVES).map_err(|reason| {
            let what = format!("{} of pinned host memory", Bytes((half * HALVES) as u64));
            CudaError::refused(device.facts(), what, reason)
        })?;
        let table = allocate(device, "the table of scalars", table)?;
        let is_feed = |action| matches!(schedule.actions[action].work, Work::Feed { .. });
        let fed = places.iter().filter(|(action, _)| is_feed(**action));
        let fed = fed.map(|(action, (_, each))| (*action, *each));
        let ahead = Ahead::new(fed, device, coordinates)?;
        let awaited = [Vec::new(), Vec::new()];
        let optimizer_origin = 0;
        Ok(Self { pinned, half, places, rows, table, ahead, optimizer_origin, awaited })
    }

    /// Bytes of the device that it takes.
    pub(super) fn device_bytes(&self) -> Bytes {
        Bytes((self.rows * ROW * HALVES) as u64) + self.ahead.bytes()
    }

    /// Where the scalars of a lag are in a half.
    pub(super) fn scalars(&self, half: usize, lag: u32) -> Address {
        let row = half * self.rows + lag as usize;
        self.table.start().plus((row * ROW) as u64)
    }

    /// Writes the scalars of a period: row k is for the step that is k periods old.
    pub(super) fn write_scalars(
        &mut self,
        schedule: &Schedule,
        period: i64,
        half: usize,
    ) {
        let job = &schedule.job;
        for lag in 0..self.rows {
            let step = u64::try_from(period - lag as i64).unwrap_or(0);
            let row = Scalars {
                step,
                updates: updates(step, self.optimizer_origin),
                seed: job.seed,
                rate: job.optimizer.rate.at(step),
                training: 1,
            };
            let start = half * self.half + lag * ROW;
            let place = self.pinned.write(start..start + ROW);
            for (place, word) in place.chunks_exact_mut(8).zip(words(row)) {
                place.copy_from_slice(&word);
            }
        }
    }

    /// Brings the scalars of a half to the device.
    pub(super) fn upload_scalars(
        &self,
        half: usize,
        stream: &Stream,
    ) -> Result<(), DriverError> {
        let start = half * self.half;
        let range = start..start + self.rows * ROW;
        stream.upload(&self.pinned, range, self.scalars(half, 0))
    }

    /// Where the host writes an input.
    pub(super) fn input(&mut self, slot: Slot) -> &mut [u8] {
        let range = self.range(slot);
        self.pinned.write(range)
    }

    /// Whether inputs of an action are sent to the device ahead of it.
    pub(super) fn is_ahead(&self, action: ActionId) -> bool {
        self.ahead.has(action)
    }

    /// Sends an input that the host has written, if it is one that is sent ahead.
    pub(super) fn send_ahead(
        &self,
        slot: Slot,
        stream: &Stream,
    ) -> Result<(), DriverError> {
        let Some(to) = self.ahead.place(slot) else { return Ok(()) };
        stream.upload(&self.pinned, self.range(slot), to)
    }

    /// Brings an input to its row: from the host, or from where it was sent ahead, which the stream
    /// has waited for.
    pub(super) fn bring(
        &self,
        slot: Slot,
        to: Address,
        stream: &Stream,
    ) -> Result<(), DriverError> {
        let range = self.range(slot);
        match self.ahead.place(slot) {
            Some(from) => stream.copy(from, to, range.len() as u64),
            None => stream.upload(&self.pinned, range, to),
        }
    }

    /// Brings a loss to the host.
    pub(super) fn download(
        &self,
        slot: Slot,
        from: Address,
        stream: &Stream,
    ) -> Result<(), DriverError> {
        stream.download(from, &self.pinned, self.range(slot))
    }

    /// Remembers that a loss will have come when the period of a half is done.
    pub(super) fn expect(&mut self, slot: Slot, step: u64, micro_batch: u64) {
        let range = self.range(slot);
        self.awaited[slot.half].push(Awaited { step, micro_batch, range });
    }

    /// Hands on the losses of a half whose period is done.
    pub(super) fn hand_on(
        &mut self,
        schedule: &Schedule,
        half: usize,
        listener: &mut dyn FnMut(Loss),
    ) {
        for Awaited { step, micro_batch, range } in self.awaited[half].drain(..) {
            let loss = number_of(schedule.job.dtype, self.pinned.read(range));
            listener(Loss { step, micro_batch, loss });
        }
    }

    /// Forgets losses that will not come any more.
    pub(super) fn forget(&mut self) {
        self.awaited.iter_mut().for_each(Vec::clear);
    }

    fn range(&self, Slot { action, half, coordinate }: Slot) -> Range<usize> {
        let (first, each) = self.places[&action];
        let start = half * self.half + first + coordinate * each;
        start..start + each
    }
}

/// The row of a context.
pub(super) fn scalars(context: &Context) -> Scalars {
    let training = match context.mode {
        Mode::Training => 1,
        Mode::Evaluation => 0,
    };
    let Context { step, updates, seed, rate, .. } = *context;
    Scalars { step, updates, seed, rate, training }
}

/// The words of a row, as the device reads them.
pub(super) fn words(row: Scalars) -> [[u8; 8]; 5] {
    let Scalars { step, updates, seed, rate, training } = row;
    [step, updates, seed, rate.to_bits(), training].map(u64::to_ne_bytes)
}

/// Bytes that an action hands over between host and device at one coordinate.
fn handed_over(schedule: &Schedule, work: &Work) -> Option<usize> {
    let job = &schedule.job;
    match work {
        Work::Feed { row, .. } => {
            let input = &job.inputs[input_of(schedule, *row)];
            Some(input.bytes(job.dtype).0 as usize)
        }
        Work::Report { .. } => Some(job.dtype.wide_size() as usize),
        Work::Launch { .. } | Work::Transfer { .. } | Work::Collective { .. } => None,
    }
}
