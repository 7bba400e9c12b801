//! A search that takes its time tells how far it is, and ends early at Ctrl-C.

use super::note;
use indicatif::ProgressBar;
use roundelay::parts::planner::{Look, Observer};
use std::{
    ops::ControlFlow,
    process,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Shorter searches say nothing.
const PATIENCE: Duration = Duration::from_secs(1);

/// Draws how far a search is on standard error, where that is a terminal.
pub(super) struct Watch {
    begun: Instant,
    line: Option<ProgressBar>,
    phase: Arc<Mutex<Phase>>,
}

/// What Ctrl-C finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// A search that can end early with what it has.
    Searching,
    /// One that somebody wants to end.
    Wanted,
    /// One that was told so, or none any more: nothing else listens to a signal.
    Over,
}

impl Watch {
    /// Watches from now on. The first Ctrl-C ends the search, the second one the program, and so
    /// does the first one after the search. Where the signal cannot be listened for, it does what it
    /// always does.
    pub(super) fn new() -> Self {
        let phase = Arc::new(Mutex::new(Phase::Searching));
        let shared = Arc::clone(&phase);
        let handler = move || {
            let mut phase = locked(&shared);
            match *phase {
                Phase::Searching => *phase = Phase::Wanted,
                Phase::Wanted | Phase::Over => leave(),
            }
        };
        if let Err(error) = ctrlc::set_handler(handler) {
            note(&format!("cannot listen for Ctrl-C: {error}"));
        }
        Self { begun: Instant::now(), line: None, phase }
    }

    fn clear(&mut self) {
        if let Some(line) = self.line.take() {
            line.finish_and_clear();
        }
    }
}

fn locked(phase: &Mutex<Phase>) -> MutexGuard<'_, Phase> {
    phase.lock().unwrap_or_else(PoisonError::into_inner)
}

fn leave() -> ! {
    process::exit(super::failure::INTERRUPTED.into())
}

impl Observer for Watch {
    fn look(&mut self, look: Look) -> ControlFlow<()> {
        if self.begun.elapsed() >= PATIENCE {
            let line = self.line.get_or_insert_with(ProgressBar::new_spinner);
            line.set_message(words(look));
            line.tick();
        }
        let mut phase = locked(&self.phase);
        match *phase {
            Phase::Searching => ControlFlow::Continue(()),
            Phase::Wanted | Phase::Over => {
                *phase = Phase::Over;
                ControlFlow::Break(())
            }
        }
    }

    /// A signal that came too late for the search is one that came after it.
    fn end(&mut self) {
        self.clear();
        let mut phase = locked(&self.phase);
        match *phase {
            Phase::Wanted => leave(),
            Phase::Searching | Phase::Over => *phase = Phase::Over,
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.clear();
    }
}

fn words(Look { clocked, best, bound }: Look) -> String {
    match best {
        None => format!("{clocked} plans clocked, none fits so far"),
        Some(best) => {
            let gap = best.saturating_sub(bound) as f64 / best.max(1) as f64;
            format!("{clocked} plans clocked, the best is within {:.1} %", 100.0 * gap)
        }
    }
}
