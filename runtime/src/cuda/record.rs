//! When actions and calls ran, as events of their own streams say it.
//!
//! An event stands between any two calls of a launch, so the times of calls add up to that of the
//! launch; what the event itself takes, one to three microseconds, counts as the call's. Where
//! kernels are shorter than the host needs to give them, it is the host's time that is seen. So
//! the same periods are looked at as a run replays them too, with one event at the end of each;
//! whoever measures takes off calls what they are slower by (`profile/events.rs`).

use super::{
    Engine, Graphs,
    bounce::Unreached,
    driver::{DriverError, Event, Stream},
    issue::Turn,
};
use crate::machine::{Ran, Record};
use roundelay_schedule::{ActionId, Entry, Nanos, PhysicalQueue, Work};

/// At what a machine looks that keeps times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// Every action and every call, which are given one by one, and the ends of periods.
    Calls,
    /// The ends of periods alone, which may be graphs.
    Periods,
}

/// Keeps the moments of everything since the last rest.
pub(super) struct Recorder {
    look: Look,
    origin: Event,
    /// Made when they are first needed, and used again after every rest.
    events: Vec<Event>,
    used: usize,
    noted: Vec<Noted>,
    /// Steady periods, with the numbers of the events at their ends.
    ends: Vec<(i64, usize)>,
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
        Ok(Self {
            look: Look::Calls,
            origin,
            events: Vec::new(),
            used: 0,
            noted: Vec::new(),
            ends: Vec::new(),
        })
    }

    /// Forgets everything; from here on times count from what the stream was given so far.
    pub(super) fn start(&mut self, stream: &Stream) -> Result<(), DriverError> {
        (self.used, self.noted, self.ends) = (0, Vec::new(), Vec::new());
        stream.record(&self.origin)
    }

    /// The number of the moment that a stream reaches next.
    pub(super) fn moment(&mut self, stream: &Stream) -> Result<usize, DriverError> {
        let moment = self.reserve()?;
        stream.record(&self.events[moment])?;
        Ok(moment)
    }

    /// The number of an event that nothing else has.
    fn reserve(&mut self) -> Result<usize, DriverError> {
        if self.used == self.events.len() {
            self.events.push(Event::timed()?);
        }
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

    /// What is recorded at the end of a steady period.
    fn end(&mut self, period: i64) -> Result<&Event, DriverError> {
        let moment = self.reserve()?;
        self.ends.push((period, moment));
        Ok(&self.events[moment])
    }

    /// What happened since the start, when all of it is done.
    ///
    /// # Errors
    /// When the device failed.
    pub(super) fn take(&mut self) -> Result<Record, DriverError> {
        let mut record = Record { periods: self.periods()?, ..Record::default() };
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

    /// What every steady period took that follows another one.
    fn periods(&self) -> Result<Vec<Nanos>, DriverError> {
        let pairs = self.ends.windows(2);
        let follows = |pair: &&[(i64, usize)]| pair[0].0 + 1 == pair[1].0;
        let time =
            |pair: &[(i64, usize)]| self.events[pair[1].1].since(&self.events[pair[0].1]);
        pairs.filter(follows).map(time).collect()
    }
}

impl Engine {
    /// From the next segment on; nothing is looked at where no times are kept.
    pub(super) fn look_at(&mut self, look: Look) {
        if let Some(recorder) = &mut self.recorder {
            recorder.look = look;
        }
    }

    /// Whether periods may be graphs: what stands between calls is no part of any.
    pub(super) fn graphs(&self) -> Graphs {
        match self.recorder.as_ref().map(|recorder| recorder.look) {
            Some(Look::Calls) => Graphs::Never,
            Some(Look::Periods) | None => Graphs::Periods,
        }
    }

    /// Who keeps the moments of actions and calls, if these are looked at.
    pub(super) fn call_recorder(&mut self) -> Option<&mut Recorder> {
        self.recorder.as_mut().filter(|recorder| recorder.look == Look::Calls)
    }

    /// Closes the period that is open, and keeps when a steady one ends if times are kept.
    pub(super) fn end_period(&mut self) -> Result<(), DriverError> {
        let Self { periods, lanes, recorder, .. } = self;
        let moment = match (recorder, periods.steady()) {
            (Some(recorder), Some(period)) => Some(recorder.end(period)?),
            (None, _) | (_, None) => None,
        };
        periods.end(lanes, moment)
    }

    /// Executes an instance that is no launch, between two moments if times are kept.
    pub(super) fn execute_noted(&mut self, turn: &Turn<'_>) -> Result<(), Unreached> {
        let is_launch = matches!(turn.action.work, Work::Launch { .. });
        if is_launch || self.call_recorder().is_none() {
            return self.execute(turn);
        }
        let threads = self.queues.threads_of(turn.queue);
        let starts = self.moments(threads.clone())?;
        self.execute(turn)?;
        let ends = self.moments(threads)?;
        let queue = self.queues.queue(turn.queue);
        if let Some(recorder) = self.call_recorder() {
            for (coordinate, (start, end)) in starts.into_iter().zip(ends).enumerate() {
                recorder.keep(turn, (queue, coordinate), vec![start, end]);
            }
        }
        Ok(())
    }

    /// The moments that the streams of these threads reach next; none where calls are not
    /// looked at.
    pub(super) fn moments(
        &mut self,
        threads: impl Iterator<Item = usize>,
    ) -> Result<Vec<usize>, DriverError> {
        let Self { recorder: Some(recorder), lanes, .. } = self else {
            return Ok(Vec::new());
        };
        if recorder.look == Look::Periods {
            return Ok(Vec::new());
        }
        threads.map(|thread| recorder.moment(lanes.stream(thread))).collect()
    }
}
