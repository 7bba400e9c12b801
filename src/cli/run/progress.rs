//! How far a run is, on standard error: a bar where that is a terminal, else a line now and then.

use crate::cli::{note, put};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::{
    io::{self, IsTerminal},
    time::Duration,
};

/// Time between two lines.
const PAUSE: Duration = Duration::from_secs(10);

/// The progress of a run.
pub(super) struct Progress {
    bar: ProgressBar,
    lines: Lines,
}

/// When a line is due; the first one is as soon as there is something to tell.
#[derive(Debug, Default)]
struct Lines {
    /// Time since the run began.
    next: Duration,
}

/// Says something on standard error beside the progress, from any thread.
#[derive(Clone)]
pub(super) struct Beside(ProgressBar);

impl Beside {
    /// A line between those of the bar.
    pub(super) fn note(&self, text: &str) {
        self.0.suspend(|| note(text));
    }
}

impl Progress {
    /// Of a run that has yet to begin.
    pub(super) fn new() -> Self {
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::hidden().with_style(style);
        Self { bar, lines: Lines::default() }
    }

    /// For what is said beside it.
    pub(super) fn beside(&self) -> Beside {
        Beside(self.bar.clone())
    }

    /// As [`Beside::note`].
    pub(super) fn note(&self, text: &str) {
        self.beside().note(text);
    }

    /// Puts a text out to standard output. Only a terminal has the bar among it; any other reader may
    /// pause for as long as it likes, and meanwhile the bar must not be locked.
    pub(super) fn put(&self, text: &str) -> io::Result<()> {
        match io::stdout().is_terminal() {
            true => self.bar.suspend(|| put(text)),
            false => put(text),
        }
    }

    /// Steps are trained from now on.
    pub(super) fn begin(&self, first: u64, end: u64) {
        self.bar.set_length(end.max(first));
        self.bar.set_position(first);
        self.bar.set_draw_target(ProgressDrawTarget::stderr());
    }

    /// So many steps are done, with this to say.
    pub(super) fn step(&mut self, done: u64, said: String, elapsed: Duration) {
        self.bar.set_position(done);
        if self.bar.is_hidden() && self.lines.is_due(elapsed) {
            let end = self.bar.length().unwrap_or(done);
            note(&format!("step {done} of {end}: {said}"));
        }
        self.bar.set_message(said);
    }

    /// Leaves nothing of the bar.
    pub(super) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

impl Lines {
    fn is_due(&mut self, elapsed: Duration) -> bool {
        let due = elapsed >= self.next;
        if due {
            self.next = elapsed + PAUSE;
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_due_at_once_and_then_now_and_then() {
        let mut lines = Lines::default();
        let seconds = [0.2, 0.4, 10.1, 10.2, 11.0, 50.0, 59.0, 60.0];
        let due = seconds.map(|own| lines.is_due(Duration::from_secs_f64(own)));
        assert_eq!(due, [true, false, false, true, false, true, false, true]);
    }
}
