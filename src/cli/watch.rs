//! A search that takes its time tells how far it is, and ends early at Ctrl-C.

use super::note;
use indicatif::ProgressBar;
use roundelay::{
    Interrupt,
    parts::planner::{Look, Observer},
};
use std::{
    ops::ControlFlow,
    process,
    time::{Duration, Instant},
};

/// Shorter searches say nothing.
const PATIENCE: Duration = Duration::from_secs(1);

/// Draws how far a search is on standard error, where that is a terminal.
pub(super) struct Watch {
    begun: Instant,
    line: Option<ProgressBar>,
    interrupt: Interrupt,
}

impl Watch {
    /// Watches from now on. The first Ctrl-C ends the search, the second one the program. Where the
    /// signal cannot be listened for, it does what it always does.
    pub(super) fn new() -> Self {
        let interrupt = Interrupt::default();
        let raised = interrupt.clone();
        let handler = move || {
            if raised.raise() {
                process::exit(super::failure::INTERRUPTED.into());
            }
        };
        if let Err(error) = ctrlc::set_handler(handler) {
            note(&format!("cannot listen for Ctrl-C: {error}"));
        }
        Self { begun: Instant::now(), line: None, interrupt }
    }
}

impl Observer for Watch {
    fn look(&mut self, look: Look) -> ControlFlow<()> {
        if self.begun.elapsed() >= PATIENCE {
            let line = self.line.get_or_insert_with(ProgressBar::new_spinner);
            line.set_message(words(look));
            line.tick();
        }
        match self.interrupt.is_raised() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(line) = &self.line {
            line.finish_and_clear();
        }
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
