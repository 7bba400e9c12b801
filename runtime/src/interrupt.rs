//! The wish of another thread that a run stops.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU8, Ordering},
    },
    time::{Duration, Instant},
};

/// A wish to stop; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<Wish>);

#[derive(Debug, Default)]
struct Wish {
    bits: AtomicU8,
    /// When somebody wished for the first time.
    first: OnceLock<Instant>,
}

/// A bit that is set when steps are trained.
const BEGUN: u8 = 1;
/// One that is set when somebody asks for a stop.
const RAISED: u8 = 2;
/// One that is set when another rank was asked to stop.
const HEARD: u8 = 4;

/// Wishes that are no further apart are one. Launchers signal a process and then its group, which it
/// is in, and a terminal signals the whole group, which a launcher passes on.
const ECHO: Duration = Duration::from_secs(1);

/// What a wish to stop meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Met {
    /// A run that has not begun to train: it may wait for others for a long time, and there is
    /// nothing yet that could be lost.
    Preparation,
    /// A run that trains, and will come to rest.
    Run,
    /// The same wish, made a moment ago.
    Echo,
    /// The same wish, made before.
    Wish,
}

impl Interrupt {
    /// Asks for a stop, and says what the wish meets. That another rank was asked before is not a wish of
    /// before here, because launchers signal ranks one after the other.
    pub fn raise(&self) -> Met {
        self.raise_at(Instant::now())
    }

    fn raise_at(&self, now: Instant) -> Met {
        let Wish { bits, first } = &*self.0;
        let since = now.saturating_duration_since(*first.get_or_init(|| now));
        match bits.fetch_or(RAISED, Ordering::Relaxed) {
            before if before & RAISED != 0 && since < ECHO => Met::Echo,
            before if before & RAISED != 0 => Met::Wish,
            before if before & BEGUN != 0 => Met::Run,
            _ => Met::Preparation,
        }
    }

    /// Whether somebody asked for a stop, here or on another rank.
    pub fn is_raised(&self) -> bool {
        self.0.bits.load(Ordering::Relaxed) & (RAISED | HEARD) != 0
    }

    /// Another rank was asked.
    pub(crate) fn hear(&self) {
        self.0.bits.fetch_or(HEARD, Ordering::Relaxed);
    }

    /// From now on there is something to bring to rest.
    pub(crate) fn begin(&self) {
        self.0.bits.fetch_or(BEGUN, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What wishes meet that come so long after the first one.
    fn met<const N: usize>(run: &Interrupt, later: [Duration; N]) -> [Met; N] {
        let first = Instant::now();
        later.map(|later| run.clone().raise_at(first + later))
    }

    #[test]
    fn a_wish_meets_what_there_is() {
        let early = Interrupt::default();
        assert_eq!(met(&early, [Duration::ZERO, ECHO]), [Met::Preparation, Met::Wish]);
        let late = Interrupt::default();
        late.begin();
        assert!(!late.is_raised());
        assert_eq!(met(&late, [Duration::ZERO, ECHO]), [Met::Run, Met::Wish]);
        assert!(late.is_raised());
    }

    /// `timeout` signals its child, and then the group that the child is in.
    #[test]
    fn a_wish_that_comes_twice_in_a_moment_is_one() {
        let run = Interrupt::default();
        run.begin();
        let moment = Duration::from_micros(50);
        let later = [Duration::ZERO, moment, ECHO - moment, ECHO + moment];
        assert_eq!(met(&run, later), [Met::Run, Met::Echo, Met::Echo, Met::Wish]);
    }

    #[test]
    fn what_another_rank_was_asked_is_no_wish_of_before() {
        let rank = Interrupt::default();
        rank.begin();
        rank.hear();
        assert!(rank.is_raised());
        assert_eq!(met(&rank, [Duration::ZERO, ECHO]), [Met::Run, Met::Wish]);
    }
}
