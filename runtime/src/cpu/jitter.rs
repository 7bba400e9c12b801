//! Random delays: a replay must give the same bits whatever the timing of its devices.

use std::{thread, time::Duration};

/// How a machine treats time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Timing {
    /// As fast as it can.
    #[default]
    Natural,
    /// Every action is delayed at random, drawn from this seed.
    Jittered(u64),
}

/// The delays of one thread.
pub(super) struct Jitter {
    state: u64,
}

impl Jitter {
    /// The delays of thread `thread`; none for natural timing.
    pub(super) fn new(timing: Timing, thread: usize) -> Option<Self> {
        match timing {
            Timing::Natural => None,
            Timing::Jittered(seed) => {
                let mixed =
                    seed ^ (thread as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                Some(Self { state: mixed | 1 })
            }
        }
    }

    /// Goes on at once, yields, or sleeps up to a quarter of a millisecond.
    pub(super) fn pause(&mut self) {
        match self.draw() % 8 {
            0 => thread::sleep(Duration::from_nanos(self.draw() % 250_000)),
            1..4 => thread::yield_now(),
            _ => {}
        }
    }

    /// Xorshift; Marsaglia, "Xorshift RNGs", 2003.
    fn draw(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state >> 11
    }
}
