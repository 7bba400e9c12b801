//! What a search tells while it goes on, and the wish of others that it stops.

use std::{fmt, ops::ControlFlow};

/// How far a search is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Plans that were clocked so far, of the class that is searched now.
    pub clocked: usize,
    /// What is minimised, of the best of them, in its unit.
    pub best: Option<u64>,
    /// The least bound of the plans that are open: none is better.
    pub bound: u64,
}

/// Who is told how far a search is, and says whether it goes on.
pub trait Observer {
    /// Called between two steps of a search; when it says break, the search ends with what it has.
    fn look(&mut self, look: Look) -> ControlFlow<()>;
}

/// The observer of a search, if there is one, and whether it wished to stop.
#[derive(Default)]
pub(crate) struct Progress<'a> {
    observer: Option<&'a mut dyn Observer>,
    /// Whether the search was to stop.
    pub stopped: bool,
}

impl<'a> Progress<'a> {
    /// Tells an observer.
    pub(crate) fn told_to(observer: &'a mut dyn Observer) -> Self {
        Self { observer: Some(observer), stopped: false }
    }

    /// Tells how far the search is.
    pub(crate) fn look(&mut self, look: Look) -> ControlFlow<()> {
        if let Some(observer) = &mut self.observer {
            self.stopped |= observer.look(look).is_break();
        }
        if self.stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

impl fmt::Debug for Progress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Progress {{ stopped: {} }}", self.stopped)
    }
}
