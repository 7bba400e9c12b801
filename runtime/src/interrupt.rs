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
/// One that is set when somebody wishes an end.
const RAISED: u8 = 2;

/// What a wish to stop meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Met {
    /// A run that has not begun to train: it may wait for others for a long time, and there is
    /// nothing yet that could be lost.
    Preparation,
    /// A run that trains, and will come to rest.
    Run,
    /// The same wish of before.
    Wish,
}

impl Interrupt {
    /// Wishes; says what that meets.
    pub fn raise(&self) -> Met {
        match self.0.fetch_or(RAISED, Ordering::Relaxed) {
            before if before & RAISED != 0 => Met::Wish,
            before if before & BEGUN != 0 => Met::Run,
            _ => Met::Preparation,
        }
    }

    /// Whether somebody wishes.
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed) & RAISED != 0
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
}
