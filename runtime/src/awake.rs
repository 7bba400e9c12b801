//! Time in which this process runs: one that was suspended, alone or with all of its job, goes on when it
//! wakes, for nobody has waited meanwhile.

use std::{
    ops::Add,
    time::{Duration, Instant},
};

/// Somebody looks at the clock of a process that runs far more often than this.
const ASLEEP: Duration = Duration::from_secs(2);

/// A clock that stands still while the process does not run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// When it was looked at last, and what it showed.
    seen: Instant,
    shown: Awake,
}

/// Time since the clock began to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Awake(Duration);

impl Clock {
    /// It begins to go.
    pub(crate) fn new() -> Self {
        Self { seen: Instant::now(), shown: Awake(Duration::ZERO) }
    }

    /// What it shows.
    pub(crate) fn now(&mut self) -> Awake {
        self.at(Instant::now())
    }

    fn at(&mut self, now: Instant) -> Awake {
        let passed = now.saturating_duration_since(self.seen);
        self.seen = self.seen.max(now);
        if passed < ASLEEP {
            self.shown = self.shown + passed;
        }
        self.shown
    }
}

impl Awake {
    /// Time since an earlier one; none where that is later.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// So long before, but not before the clock began.
    pub(crate) fn before(self, long: Duration) -> Self {
        Self(self.0.saturating_sub(long))
    }
}

impl Add<Duration> for Awake {
    type Output = Self;

    fn add(self, later: Duration) -> Self {
        Self(self.0 + later)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_which_nobody_looks_does_not_pass() {
        let mut clock = Clock::new();
        let (begun, first) = (clock.seen, clock.shown);
        let mut shows =
            |millis| clock.at(begun + Duration::from_millis(millis)).since(first);
        let shown = [250, 500, 9_500, 9_750, 9_600, 10_000].map(&mut shows);
        let millis = [250, 500, 500, 750, 750, 1_000];
        assert_eq!(shown, millis.map(Duration::from_millis));
    }
}
