//! When actions and calls ran: a tape per thread.
//!
//! Recording allocates and takes a lock that nobody else wants; a machine that does not record
//! does neither. At most as many launches run at one time as the recording says, so that a call
//! is never timed while it waits for a processor that another device has. A launch that waits for
//! other rows of split tensors does not count meanwhile.

use crate::{
    lock::{held, lock},
    machine::{Ran, Record},
};
use roundelay_schedule::{Entry, Nanos};
use std::{
    sync::{Condvar, Mutex},
    time::Instant,
};

/// Whether a machine keeps times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recording {
    /// It does not.
    #[default]
    Off,
    /// It does, and runs at most this many launches at one time.
    On {
        /// How many.
        launches: usize,
    },
}

/// The tapes of a machine that records.
pub(super) struct Recorder {
    origin: Instant,
    tapes: Box<[Mutex<Record>]>,
    free: Mutex<usize>,
    freed: Condvar,
}

/// The right to run a launch; given back when dropped.
pub(super) struct Permit<'a>(&'a Recorder);

impl Recorder {
    /// Empty tapes for this many threads; none when nothing is recorded.
    pub(super) fn new(recording: Recording, threads: usize) -> Option<Self> {
        let Recording::On { launches } = recording else { return None };
        Some(Self {
            origin: Instant::now(),
            tapes: (0..threads).map(|_| Mutex::default()).collect(),
            free: Mutex::new(launches.max(1)),
            freed: Condvar::new(),
        })
    }

    /// Time since the machine's start.
    pub(super) fn now(&self) -> Nanos {
        let nanos = self.origin.elapsed().as_nanos();
        Nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Waits until a launch may run.
    pub(super) fn permit(&self) -> Permit<'_> {
        let mut free = lock(&self.free);
        while *free == 0 {
            free = held(self.freed.wait(free));
        }
        *free -= 1;
        Permit(self)
    }

    /// Keeps an instance of one thread and the times of its calls.
    pub(super) fn keep(
        &self,
        thread: usize,
        entry: Entry,
        coordinate: usize,
        times: &[Nanos],
    ) {
        let mut tape = lock(&self.tapes[thread]);
        let first = tape.times.len();
        tape.times.extend(times);
        let calls = first..tape.times.len();
        tape.ran.push(Ran { entry, coordinate, calls });
    }

    /// All tapes as one, which are empty afterwards.
    pub(super) fn take(&self) -> Record {
        let mut all = Record::default();
        for tape in &self.tapes {
            let Record { ran, times, .. } = std::mem::take(&mut *lock(tape));
            let first = all.times.len();
            all.times.extend(times);
            all.ran.extend(ran.into_iter().map(|ran| Ran {
                calls: first + ran.calls.start..first + ran.calls.end,
                ..ran
            }));
        }
        all.sort();
        all
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        *lock(&self.0.free) += 1;
        self.0.freed.notify_one();
    }
}
