//! A search that takes its time tells how far it is, and ends early at Ctrl-C; what follows it ends
//! there too, with what is known. Other long work ends there with what will not come. The other signals that
//! ask for an end are taken for Ctrl-C.

use super::{Form, failure::Failure, note, print, signals};
use indicatif::ProgressBar;
use roundelay::{
    Interrupt, Met, OutputFile,
    parts::planner::{End, Look, Observer, Wish},
};
use std::{
    ops::ControlFlow,
    path::Path,
    process,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Shorter searches say nothing.
const UNTOLD: Duration = Duration::from_secs(1);

/// So long a search that has found nothing may go on when it is to stop: whoever wants an end does not wait
/// until a plan for thousands of devices is lowered.
const PATIENCE: Duration = Duration::from_secs(2);

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
        if self.begun.elapsed() >= UNTOLD {
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
    /// Whether a search has found what only it can tell.
    has_found: Arc<AtomicBool>,
}

/// What Ctrl-C finds.
#[derive(Clone)]
enum Phase {
    /// What has not looked here yet, if it ever does, and what to tell instead of it.
    Known(Known),
    /// A search that looks here before it goes on, and what to tell where that takes too long.
    Searching(Known),
    /// The same, when somebody wants an end.
    Stopping(Known),
    /// A few lines on their way out.
    Printing,
    /// The same, when somebody wants an end of what follows them.
    Wanted,
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
    pub(super) fn unless<T>(
        self,
        work: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        Watch::new(self.clone())?.follow(self, |_| work())
    }
}

impl Watch {
    /// Watches from now on. The first Ctrl-C ends the search, or what follows it, the second one the
    /// program; before a search told a plan, standard output gets `nothing`.
    pub(super) fn new(nothing: Known) -> Result<Self, Failure> {
        let phase = Arc::new(Mutex::new(Phase::Known(nothing)));
        let (shared, wish) = (Arc::clone(&phase), Interrupt::default());
        let has_found = Arc::new(AtomicBool::new(false));
        let found = Arc::clone(&has_found);
        let handler = move || match wish.raise() {
            Met::Echo => {}
            Met::Preparation | Met::Run | Met::Wish => {
                change(&shared, interrupted);
                leave_unless_stopped(&shared, &found);
            }
        };
        signals::listen(handler).map_err(|error| Failure::unheard(&error))?;
        Ok(Self { progress: Progress::new(), phase, has_found })
    }

    /// Does what follows a search that found plans. Ctrl-C meanwhile, or since the search, tells what
    /// is known and ends the program; work that looks here ends with what it has.
    pub(super) fn follow<T>(
        &mut self,
        known: Known,
        work: impl FnOnce(&mut Self) -> T,
    ) -> T {
        self.has_found.store(false, Ordering::Relaxed);
        change(&self.phase, |phase| match phase {
            Phase::Stopping(_) | Phase::Wanted => leave_with(&known),
            Phase::Known(_)
            | Phase::Searching(_)
            | Phase::Printing
            | Phase::Over
            | Phase::Handed(_) => Phase::Known(known),
        });
        let done = work(self);
        self.end(End::Plans);
        done
    }

    /// Whether a search ended because somebody wanted it.
    pub(super) fn is_over(&self) -> bool {
        matches!(*locked(&self.phase), Phase::Over)
    }

    /// From now on somebody else hears of Ctrl-C, and of one that came too late for what was before.
    pub(super) fn hand_over(self, handler: impl Fn() + Send + Sync + 'static) {
        change(&self.phase, |phase| {
            match phase {
                Phase::Stopping(_) | Phase::Wanted => handler(),
                Phase::Known(_)
                | Phase::Searching(_)
                | Phase::Printing
                | Phase::Over
                | Phase::Handed(_) => {}
            }
            Phase::Handed(Arc::new(handler))
        });
    }
}

fn locked(phase: &Mutex<Phase>) -> MutexGuard<'_, Phase> {
    phase.lock().unwrap_or_else(PoisonError::into_inner)
}

fn change(phase: &Mutex<Phase>, next: impl FnOnce(Phase) -> Phase) {
    let mut phase = locked(phase);
    *phase = next(phase.clone());
}

/// What Ctrl-C makes of a phase.
fn interrupted(phase: Phase) -> Phase {
    match phase {
        Phase::Known(known) | Phase::Stopping(known) => leave_with(&known),
        Phase::Searching(known) => Phase::Stopping(known),
        Phase::Printing => Phase::Wanted,
        Phase::Wanted | Phase::Over => leave(),
        Phase::Handed(other) => {
            other();
            Phase::Handed(other)
        }
    }
}

/// Ends the program where a search that has found nothing does not look here for too long after it was told
/// to stop.
fn leave_unless_stopped(phase: &Arc<Mutex<Phase>>, has_found: &AtomicBool) {
    if !matches!(*locked(phase), Phase::Stopping(_)) {
        return;
    }
    if has_found.load(Ordering::Relaxed) {
        return note("interrupted: finishes the plans that were begun; again to end now");
    }
    let phase = Arc::clone(phase);
    let waits = move || {
        thread::sleep(PATIENCE);
        if let Phase::Stopping(known) = &*locked(&phase) {
            leave_with(known);
        }
    };
    // Without a thread the next signal ends the program.
    let _ = thread::Builder::new().spawn(waits);
}

/// Whether a search has found a plan.
fn found(look: Look) -> bool {
    match look {
        Look::Best { best, .. } => best.is_some(),
        Look::Front { found, .. } => found > 0,
    }
}

fn leave_with(Known { text, missing }: &Known) -> ! {
    // Whoever reads no more has interrupted all the same.
    let _ = print(text);
    note(&format!("interrupted: {missing}"));
    leave()
}

/// Ends the program, which leaves nothing unfinished behind.
pub(super) fn leave() -> ! {
    OutputFile::abandon_all();
    process::exit(super::failure::INTERRUPTED.into())
}

impl Observer for Watch {
    fn look(&mut self, look: Look) -> ControlFlow<()> {
        self.progress.look(look)?;
        if found(look) {
            self.has_found.store(true, Ordering::Relaxed);
        }
        change(&self.phase, |phase| match phase {
            Phase::Known(known) | Phase::Searching(known) => Phase::Searching(known),
            Phase::Stopping(_)
            | Phase::Printing
            | Phase::Wanted
            | Phase::Over
            | Phase::Handed(_) => Phase::Over,
        });
        match self.is_over() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    fn wish(&self) -> Wish {
        let phase = Arc::clone(&self.phase);
        Wish::asked(move || match *locked(&phase) {
            Phase::Stopping(_) | Phase::Wanted | Phase::Over => true,
            Phase::Known(_)
            | Phase::Searching(_)
            | Phase::Printing
            | Phase::Handed(_) => false,
        })
    }

    /// A signal that came too late for the search is one that came after it: plans are told first.
    fn end(&mut self, end: End) {
        self.progress.end(end);
        change(&self.phase, |phase| match (end, phase) {
            (_, Phase::Over) => Phase::Over,
            (_, Phase::Handed(other)) => Phase::Handed(other),
            (End::Plans, Phase::Stopping(_) | Phase::Wanted) => Phase::Wanted,
            (End::Plans, Phase::Known(_) | Phase::Searching(_) | Phase::Printing) => {
                Phase::Printing
            }
            (End::Nothing, Phase::Stopping(known)) => leave_with(&known),
            (End::Nothing, Phase::Known(known) | Phase::Searching(known)) => {
                Phase::Known(known)
            }
            (End::Nothing, lines @ (Phase::Printing | Phase::Wanted)) => lines,
        });
    }
}

fn words(look: Look) -> String {
    match look {
        Look::Best { clocked, best: None, .. } => {
            format!("{clocked} plans clocked, none fits so far")
        }
        Look::Best { clocked, best: Some(best), bound } => {
            let gap = best.saturating_sub(bound) as f64 / best.max(1) as f64;
            format!("{clocked} plans clocked, the best is within {:.1} %", 100.0 * gap)
        }
        Look::Front { clocked, found } => {
            format!("{clocked} plans clocked, no other beats {found} so far")
        }
    }
}
