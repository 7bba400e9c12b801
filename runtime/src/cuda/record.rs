//! When actions and calls ran, as events of their own streams say it.
//!
//! An event stands between any two calls of a launch, so the times of calls add up to that of the
//! launch; what the event itself takes, about a microsecond, counts as the call's. Where kernels
//! are shorter than the host needs to give them, it is the host's time that is seen.

use super::{
    Engine,
    bounce::Unreached,
    driver::{DriverError, Event, Stream},
    issue::Turn,
};
use crate::machine::{Ran, Record};
use roundelay_schedule::{ActionId, Entry, Nanos, PhysicalQueue, Work};

/// Keeps the moments of everything since the last rest.
pub(super) struct Recorder {
    origin: Event,
    /// Made when they are first needed, and used again after every rest.
    events: Vec<Event>,
    used: usize,
    noted: Vec<Noted>,
}

/// One instance on one stream.
struct Noted {
    action: ActionId,
    period: i64,
    step: i64,
    queue: PhysicalQueue,
    coordinate: usize,
    launch: bool,
    /// Numbers of the events: at the beginning, then after every call, or at the end.
    moments: Vec<usize>,
}

impl Recorder {
    pub(super) fn new() -> Result<Self, DriverError> {
        let origin = Event::timed()?;
        Ok(Self { origin, events: Vec::new(), used: 0, noted: Vec::new() })
    }

    /// Forgets everything; from here on times count from what the stream was given so far.
    pub(super) fn start(&mut self, stream: &Stream) -> Result<(), DriverError> {
        (self.used, self.noted) = (0, Vec::new());
        stream.record(&self.origin)
    }

    /// The number of the moment that a stream reaches next.
    pub(super) fn moment(&mut self, stream: &Stream) -> Result<usize, DriverError> {
        if self.used == self.events.len() {
            self.events.push(Event::timed()?);
        }
        stream.record(&self.events[self.used])?;
        self.used += 1;
        Ok(self.used - 1)
    }

    /// Keeps an instance with its moments.
    pub(super) fn keep(
        &mut self,
        turn: &Turn<'_>,
        (queue, coordinate): (PhysicalQueue, usize),
        moments: Vec<usize>,
    ) {
        self.noted.push(Noted {
            action: turn.id,
            period: turn.period,
            step: turn.period - i64::from(turn.action.lag),
            queue,
            coordinate,
            launch: matches!(turn.action.work, Work::Launch { .. }),
            moments,
        });
    }

    /// What happened since the start, when all of it is done.
    ///
    /// # Errors
    /// When the device failed.
    pub(super) fn take(&mut self) -> Result<Record, DriverError> {
        let mut record = Record::default();
        for noted in std::mem::take(&mut self.noted) {
            let at = |moment: &usize| self.events[*moment].since(&self.origin);
            let at: Vec<Nanos> =
                noted.moments.iter().map(at).collect::<Result<_, _>>()?;
            let (Some(start), Some(end)) = (at.first(), at.last()) else { continue };
            let Noted { action, period, step, queue, coordinate, .. } = noted;
            let entry = Entry { action, period, step, queue, start: *start, end: *end };
            let first = record.times.len();
            if noted.launch {
                record.times.extend(at.windows(2).map(|pair| pair[1] - pair[0]));
            }
            let calls = first..record.times.len();
            record.ran.push(Ran { entry, coordinate, calls });
        }
        record.sort();
        Ok(record)
    }
}

impl Engine {
    /// Executes an instance that is no launch, between two moments if times are kept.
    pub(super) fn execute_noted(&mut self, turn: &Turn<'_>) -> Result<(), Unreached> {
        if matches!(turn.action.work, Work::Launch { .. }) || self.recorder.is_none() {
            return self.execute(turn);
        }
        let threads = self.queues.threads_of(turn.queue);
        let starts = self.moments(threads.clone())?;
        self.execute(turn)?;
        let ends = self.moments(threads)?;
        let queue = self.queues.queue(turn.queue);
        if let Some(recorder) = &mut self.recorder {
            for (coordinate, (start, end)) in starts.into_iter().zip(ends).enumerate() {
                recorder.keep(turn, (queue, coordinate), vec![start, end]);
            }
        }
        Ok(())
    }

    /// The moments that the streams of these threads reach next; none where no times are kept.
    pub(super) fn moments(
        &mut self,
        threads: impl Iterator<Item = usize>,
    ) -> Result<Vec<usize>, DriverError> {
        let Some(recorder) = &mut self.recorder else { return Ok(Vec::new()) };
        let lanes = &self.lanes;
        threads.map(|thread| recorder.moment(lanes.stream(thread))).collect()
    }
}
