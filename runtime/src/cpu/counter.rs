//! Counters that only grow, and threads that sleep until one has grown enough.

use crate::lock::lock;
use std::{
    hint,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread::{self, Thread},
    time::Duration,
};

/// How often a waiting thread looks again before it sleeps: some ten microseconds, about what a
/// wake-up takes, when every thread has a core.
const LOOKS_ALONE: usize = 2048;

/// How often it looks when there are more threads than cores, so that another one needs this core.
const LOOKS_CROWDED: usize = 64;

/// Sleeping places of a fixed number of threads, and the word to stop.
pub(super) struct Parking {
    threads: Box<[Mutex<Option<Thread>>]>,
    stopped: AtomicBool,
    looks: usize,
}

/// A number that only grows; one thread publishes it, any thread of a [`Parking`] waits for it.
pub(super) struct Counter {
    value: AtomicU64,
    waiting: Box<[AtomicU64]>,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waited {
    /// The counter is there.
    Reached,
    /// Everything stops.
    Stopped,
    /// Not yet.
    Late,
}

impl Parking {
    /// Room for `threads` threads, one of which, the driver, sleeps most of the time.
    pub(super) fn new(threads: usize) -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let looks = if threads <= cores + 1 { LOOKS_ALONE } else { LOOKS_CROWDED };
        let threads = (0..threads).map(|_| Mutex::new(None)).collect();
        Self { threads, stopped: AtomicBool::new(false), looks }
    }

    /// Makes the calling thread the one that sleeps at `place`; before its first wait.
    pub(super) fn register(&self, place: usize) {
        *lock(&self.threads[place]) = Some(thread::current());
    }

    /// Tells every thread to stop.
    pub(super) fn stop(&self) {
        self.stopped.store(true, SeqCst);
        (0..self.threads.len()).for_each(|place| self.wake(place));
    }

    /// Whether everything stops.
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(SeqCst)
    }

    fn wake(&self, place: usize) {
        if let Some(thread) = lock(&self.threads[place]).as_ref() {
            thread.unpark();
        }
    }
}

impl Counter {
    /// Zero, waited for by threads of `parking`.
    pub(super) fn new(parking: &Parking) -> Self {
        let words = parking.threads.len().div_ceil(64);
        let waiting = (0..words).map(|_| AtomicU64::new(0)).collect();
        Self { value: AtomicU64::new(0), waiting }
    }

    /// The last published value; what was written before it was published is seen.
    pub(super) fn value(&self) -> u64 {
        self.value.load(SeqCst)
    }

    /// Sets the counter and wakes whoever waits.
    ///
    /// A waiter first notes that it waits and then looks at the value; here the value is set first
    /// and the notes are read then. All four are sequentially consistent, so one of the two sees
    /// the other and no wake-up is lost.
    pub(super) fn publish(&self, value: u64, parking: &Parking) {
        self.value.store(value, SeqCst);
        for (word, waiting) in self.waiting.iter().enumerate() {
            if waiting.load(SeqCst) != 0 {
                wake_all(parking, word, waiting.swap(0, SeqCst));
            }
        }
    }

    /// Waits until the counter is at least `target`, as the thread registered at `place`.
    pub(super) fn wait(&self, target: u64, parking: &Parking, place: usize) -> Waited {
        loop {
            let waited = self.wait_for(target, parking, place, Duration::MAX);
            if waited != Waited::Late {
                return waited;
            }
        }
    }

    /// Waits like [`Counter::wait`], but wakes up late when `deadline` is over, or earlier.
    pub(super) fn wait_for(
        &self,
        target: u64,
        parking: &Parking,
        place: usize,
        deadline: Duration,
    ) -> Waited {
        for _ in 0..parking.looks {
            if self.value() >= target {
                return Waited::Reached;
            }
            hint::spin_loop();
        }
        self.waiting[place / 64].fetch_or(1 << (place % 64), SeqCst);
        if parking.is_stopped() {
            return Waited::Stopped;
        }
        if self.value() >= target {
            return Waited::Reached;
        }
        match deadline {
            Duration::MAX => thread::park(),
            _ => thread::park_timeout(deadline),
        }
        Waited::Late
    }
}

fn wake_all(parking: &Parking, word: usize, mut bits: u64) {
    while bits != 0 {
        parking.wake(word * 64 + bits.trailing_zeros() as usize);
        bits &= bits - 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_wake_up_is_lost_between_threads_that_hand_a_turn_around() {
        const THREADS: u64 = 5;
        const TURNS: u64 = 2_000;
        let parking = Parking::new(THREADS as usize);
        let counter = Counter::new(&parking);
        thread::scope(|scope| {
            for own in 0..THREADS {
                let (counter, parking) = (&counter, &parking);
                scope.spawn(move || {
                    parking.register(own as usize);
                    for turn in 0..TURNS {
                        let before = turn * THREADS + own;
                        let waited = counter.wait(before, parking, own as usize);
                        assert_eq!((waited, counter.value()), (Waited::Reached, before));
                        counter.publish(before + 1, parking);
                    }
                });
            }
        });
        assert_eq!(counter.value(), THREADS * TURNS);
    }

    #[test]
    fn stopping_wakes_a_thread_that_waits_for_ever() {
        let parking = Parking::new(1);
        let counter = Counter::new(&parking);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                parking.register(0);
                counter.wait(1, &parking, 0)
            });
            parking.stop();
            while !waiter.is_finished() {
                parking.stop();
                thread::yield_now();
            }
            assert_eq!(waiter.join().unwrap(), Waited::Stopped);
        });
    }
}
