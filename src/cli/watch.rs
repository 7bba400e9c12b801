//! A search that takes its time tells how far it is, and ends early at Ctrl-C; what follows it ends
//! there too, with what is known. Other long work ends there with what will not come.

use super::{Form, failure::Failure, note, print};
use indicatif::ProgressBar;
use roundelay::parts::planner::{End, Look, Observer};
use std::{
    ops::ControlFlow,
    path::Path,
    process,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Shorter searches say nothing.
const PATIENCE: Duration = Duration::from_secs(1);

/// Draws how far a search is on standard error, where that is a terminal.
pub(super) struct Progress {
    begun: Instant,
    line: Option<ProgressBar>,
}

impl Progress {
    /// Of a search that begins now.
    pub(super) fn new() -> Self {
        Self { begun: Instant::now(), line: None }
    }

    fn clear(&mut self) {
        if let Some(line) = self.line.take() {
            line.finish_and_clear();
        }
    }
}

impl Observer for Progress {
    fn look(&mut self, look: Look) -> ControlFlow<()> {
        if self.begun.elapsed() >= PATIENCE {
            let line = self.line.get_or_insert_with(ProgressBar::new_spinner);
            line.set_message(words(look));
            line.tick();
        }
        ControlFlow::Continue(())
    }

    fn end(&mut self, _: End) {
        self.clear();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Listens for Ctrl-C while a command works.
pub(super) struct Watch {
    progress: Progress,
    phase: Arc<Mutex<Phase>>,
    /// What to tell in place of a search that told no plan.
    nothing: Known,
}

/// What Ctrl-C finds.
#[derive(Clone)]
enum Phase {
    /// A search that has not looked here yet, and has no plan.
    Begun,
    /// A search that looks here before it goes on.
    Searching,
    /// The same, when somebody wants an end.
    Stopping,
    /// A few lines on their way out.
    Printing,
    /// The same, when somebody wants an end of what follows them.
    Wanted,
    /// What never looks, and what to tell instead of it.
    Known(Known),
    /// What is left of a search that was told so.
    Over,
    /// What listens itself.
    Handed(Arc<dyn Fn() + Send + Sync>),
}

/// What stands in for the rest of a command that is interrupted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    /// What standard output still lacks.
    pub(super) text: String,
    /// What will not come.
    pub(super) missing: &'static str,
}

impl Known {
    /// That nothing comes of a command with this file: whoever reads JSON gets that as a document.
    pub(super) fn nothing(
        missing: &'static str,
        file: &Path,
        json: Option<Form>,
    ) -> Result<Self, Failure> {
        let document = |form| Failure::interrupted_early(file, missing).document(form);
        let text = json.map_or(Ok(String::new()), document);
        let text = text.map_err(|error| Failure::output(&error))?;
        Ok(Self { text, missing })
    }

    /// Does work that Ctrl-C ends at once, together with the program.
    pub(super) fn unless<T>(self, work: impl FnOnce() -> T) -> T {
        Watch::new(self.clone()).follow(self, work)
    }
}

impl Watch {
    /// Watches from now on. The first Ctrl-C ends the search, or what follows it, the second one the
    /// program; before a search told a plan, standard output gets `nothing`. Where the signal cannot be
    /// listened for, it does what it always does.
    pub(super) fn new(nothing: Known) -> Self {
        let phase = Arc::new(Mutex::new(Phase::Begun));
        let (shared, none) = (Arc::clone(&phase), nothing.clone());
        let handler = move || {
            let mut phase = locked(&shared);
            match &*phase {
                Phase::Begun | Phase::Stopping => leave_with(&none),
                Phase::Searching => *phase = Phase::Stopping,
                Phase::Printing => *phase = Phase::Wanted,
                Phase::Known(known) => leave_with(known),
                Phase::Wanted | Phase::Over => leave(),
                Phase::Handed(other) => other(),
            }
        };
        if let Err(error) = ctrlc::set_handler(handler) {
            note(&format!("cannot listen for Ctrl-C: {error}"));
        }
        Self { progress: Progress::new(), phase, nothing }
    }

    /// Does what follows a search that found plans. Ctrl-C meanwhile, or since the search, tells what
    /// is known and ends the program.
    pub(super) fn follow<T>(&self, known: Known, work: impl FnOnce() -> T) -> T {
        self.change(|phase| match phase {
            Phase::Stopping | Phase::Wanted => leave_with(&known),
            Phase::Begun
            | Phase::Searching
            | Phase::Printing
            | Phase::Known(_)
            | Phase::Over
            | Phase::Handed(_) => Phase::Known(known),
        });
        let done = work();
        self.change(|_| Phase::Printing);
        done
    }

    /// From now on somebody else hears of Ctrl-C, and of one that came too late for what was before.
    pub(super) fn hand_over(self, handler: impl Fn() + Send + Sync + 'static) {
        self.change(|phase| {
            match phase {
                Phase::Stopping | Phase::Wanted => handler(),
                Phase::Begun
                | Phase::Searching
                | Phase::Printing
                | Phase::Known(_)
                | Phase::Over
                | Phase::Handed(_) => {}
            }
            Phase::Handed(Arc::new(handler))
        });
    }

    fn change(&self, next: impl FnOnce(&Phase) -> Phase) {
        let mut phase = locked(&self.phase);
        *phase = next(&phase);
    }
}

fn locked(phase: &Mutex<Phase>) -> MutexGuard<'_, Phase> {
    phase.lock().unwrap_or_else(PoisonError::into_inner)
}

fn leave_with(Known { text, missing }: &Known) -> ! {
    // Whoever reads no more has interrupted all the same.
    let _ = print(text);
    note(&format!("interrupted: {missing}"));
    leave()
}

fn leave() -> ! {
    process::exit(super::failure::INTERRUPTED.into())
}

impl Observer for Watch {
    fn look(&mut self, look: Look) -> ControlFlow<()> {
        self.progress.look(look)?;
        let mut phase = locked(&self.phase);
        match *phase {
            Phase::Begun | Phase::Searching => {
                *phase = Phase::Searching;
                ControlFlow::Continue(())
            }
            Phase::Stopping
            | Phase::Printing
            | Phase::Wanted
            | Phase::Known(_)
            | Phase::Over
            | Phase::Handed(_) => {
                *phase = Phase::Over;
                ControlFlow::Break(())
            }
        }
    }

    /// A signal that came too late for the search is one that came after it: plans are told first.
    fn end(&mut self, end: End) {
        self.progress.end(end);
        let nothing = self.nothing.clone();
        self.change(|phase| match (end, phase) {
            (_, Phase::Over) => Phase::Over,
            (_, Phase::Handed(other)) => Phase::Handed(Arc::clone(other)),
            (End::Plans, Phase::Stopping | Phase::Wanted) => Phase::Wanted,
            (End::Plans, Phase::Begun | Phase::Searching | Phase::Printing) => {
                Phase::Printing
            }
            (End::Plans, Phase::Known(known)) => Phase::Known(known.clone()),
            (End::Nothing, Phase::Stopping | Phase::Wanted) => leave_with(&nothing),
            (
                End::Nothing,
                Phase::Begun | Phase::Searching | Phase::Printing | Phase::Known(_),
            ) => Phase::Known(nothing),
        });
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
