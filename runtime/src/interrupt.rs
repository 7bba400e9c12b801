//! The wish of another thread that a run stops.

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering},
};

/// A wish to stop; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicU8>);

/// A bit that is set when steps are trained.
const BEGUN: u8 = 1;
/// One that is set when somebody asks for a stop.
const RAISED: u8 = 2;
/// One that is set when another rank was asked to stop.
const HEARD: u8 = 4;

/// What a wish to stop meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Met {
    /// A run that has not begun to train: it may wait for others for a long time, and there is
    /// nothing yet that could be lost.
    Preparation,
    /// A run that trains, and will come to rest.
    Run,
    /// The same wish, made before.
    Wish,
}

impl Interrupt {
    /// Asks for a stop, and says what the wish meets. That another rank was asked before is not a wish of
    /// before here, because launchers signal ranks one after the other.
    pub fn raise(&self) -> Met {
        match self.0.fetch_or(RAISED, Ordering::Relaxed) {
            before if before & RAISED != 0 => Met::Wish,
            before if before & BEGUN != 0 => Met::Run,
            _ => Met::Preparation,
        }
    }

    /// Whether somebody asked for a stop, here or on another rank.
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed) & (RAISED | HEARD) != 0
    }

    /// Another rank was asked.
    pub(crate) fn hear(&self) {
        self.0.fetch_or(HEARD, Ordering::Relaxed);
    }

    /// From now on there is something to bring to rest.
    pub(crate) fn begin(&self) {
        self.0.fetch_or(BEGUN, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_meets_what_there_is() {
        let early = Interrupt::default();
        assert_eq!((early.raise(), early.raise()), (Met::Preparation, Met::Wish));
        let late = Interrupt::default();
        late.begin();
        assert!(!late.is_raised());
        assert_eq!((late.clone().raise(), late.raise()), (Met::Run, Met::Wish));
        assert!(late.is_raised());
    }

    #[test]
    fn what_another_rank_was_asked_is_no_wish_of_before() {
        let rank = Interrupt::default();
        rank.begin();
        rank.hear();
        assert!(rank.is_raised());
        assert_eq!((rank.raise(), rank.raise()), (Met::Run, Met::Wish));
    }
}
