//! What a search tells while it goes on, and the wish of others that it stops.

use std::{fmt, ops::ControlFlow, sync::Arc};

/// How far a search is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// One for the best plans.
    Best {
        /// Plans that were clocked so far, of the class that is searched now.
        clocked: usize,
        /// What is minimised, of the best of them, in its unit.
        best: Option<u128>,
        /// The least bound of the plans that are open: none is better.
        bound: u128,
    },
    /// One for a front.
    Front {
        /// Plans that were clocked so far.
        clocked: usize,
        /// Plans that nothing beats so far.
        found: usize,
    },
}

/// How a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With plans, which whoever asked gets.
    Plans,
    /// Without: what would make one fit may still be looked for.
    Nothing,
}

/// Who is told how far a search is, and says whether it goes on.
pub trait Observer {
    /// Called between two steps of a search; when it says break, the search ends with what it has.
    fn look(&mut self, look: Look) -> ControlFlow<()>;

    /// Called once when the search for the best plans is over.
    fn end(&mut self, _end: End) {}

    /// What says between two looks, on any thread, that the next one will end the search: a step may take
    /// long, and what of it has not begun is left then.
    fn wish(&self) -> Wish {
        Wish::default()
    }
}

/// Whether somebody wishes that a search ends; by default nobody ever does.
#[derive(Clone, Default)]
pub struct Wish(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl Wish {
    /// A wish that is made once `ask` says so.
    pub fn asked(ask: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(ask)))
    }

    /// Whether it is made.
    pub fn is_made(&self) -> bool {
        self.0.as_ref().is_some_and(|ask| ask())
    }
}

impl fmt::Debug for Wish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wish {{ made: {} }}", self.is_made())
    }
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

    /// What says between two looks that the search is to stop.
    pub(crate) fn wish(&self) -> Wish {
        self.observer.as_ref().map(|observer| observer.wish()).unwrap_or_default()
    }

    /// Tells that the search is over.
    pub(crate) fn end(&mut self, end: End) {
        if let Some(observer) = &mut self.observer {
            observer.end(end);
        }
    }
}

impl fmt::Debug for Progress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Progress {{ stopped: {} }}", self.stopped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NoPlan, Options, plan_watched, sample};
    use roundelay_schedule::Bytes;

    /// Hears the ends, and counts the looks after one.
    #[derive(Default)]
    struct Listener {
        ends: Vec<End>,
        late: usize,
    }

    impl Observer for Listener {
        fn look(&mut self, _: Look) -> ControlFlow<()> {
            self.late += self.ends.len();
            ControlFlow::Continue(())
        }
        fn end(&mut self, end: End) {
            self.ends.push(end);
        }
    }

    #[test]
    fn a_search_ends_once_with_a_plan_and_without() {
        let mut program = sample::program(2, 8);
        let mut heard = Listener::default();
        plan_watched(&program, &Options::default(), &mut heard).expect("it fits");
        assert_eq!((&heard.ends[..], heard.late), (&[End::Plans][..], 0));
        program.search.memory = Some(Bytes(2_000));
        let mut heard = Listener::default();
        let refused = plan_watched(&program, &Options::default(), &mut heard);
        let Err(NoPlan::Refused(refusal)) = refused else { panic!("{refused:?}") };
        assert!(!refusal.repairs.is_empty());
        assert_eq!((&heard.ends[..], heard.late), (&[End::Nothing][..], 0));
    }
}
