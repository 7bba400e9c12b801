//! What happens during a run, as text with its progress, or as JSON lines.

use super::{end::End, progress::Progress};
use crate::cli::{FORMAT, Form, failure::Failure, json_text, note, print_json, put};
use roundelay::{
    ImageFacts, Interrupt, Measures, OptimizerState, Resumed, RunEvent, TokenFacts,
    parts::schedule::counted,
};
use serde::Serialize;
use std::{collections::BTreeMap, io};

/// Any JSON line but the first.
#[derive(Serialize)]
struct Line {
    format: u32,
    #[serde(flatten)]
    event: Event,
}

/// What it says.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub(super) enum Event {
    Note(Note),
    Begin { resumed: String, first: u64, end: u64, bigram_entropy: Option<f64> },
    Step { step: u64, loss: f64, samples_per_s: f64, elapsed_s: f64 },
    Evaluate { step: u64, loss: f64, metrics: BTreeMap<String, f64> },
    End(Box<End>),
}

impl Event {
    fn of(event: RunEvent) -> Option<Self> {
        Some(match event {
            RunEvent::Note(_) | RunEvent::PassedOver(_) => {
                return Note::of(&event).map(Self::Note);
            }
            RunEvent::Begin { tokens, images: _, resumed, first, end } => {
                let bigram_entropy = tokens.and_then(|tokens| tokens.bigram_entropy);
                Self::Begin { resumed: how(&resumed), first, end, bigram_entropy }
            }
            RunEvent::Step { step, loss, samples_per_s, elapsed } => {
                Self::Step { step, loss, samples_per_s, elapsed_s: elapsed.as_secs_f64() }
            }
            RunEvent::Evaluate { step, loss, metrics } => {
                Self::Evaluate { step, loss, metrics }
            }
        })
    }
}

/// Prints events as they come, and ends the run where that cannot be done: nobody would hear of what
/// it goes on with.
pub(super) struct Teller {
    sink: Sink,
    progress: Progress,
    interrupt: Interrupt,
    printed: io::Result<()>,
    stopped_by: StoppedBy,
}

/// Who was the first to wish for the end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoppedBy {
    /// Whoever read standard output, and has closed it.
    Reader,
    /// Somebody else, or nobody.
    Other,
}

/// How events are shown on standard output.
enum Sink {
    /// As JSON lines, which tell the progress too.
    Lines,
    /// As text.
    Text,
}

impl Teller {
    pub(super) fn new(json: bool, progress: Progress, interrupt: Interrupt) -> Self {
        let sink = if json { Sink::Lines } else { Sink::Text };
        let (printed, stopped_by) = (Ok(()), StoppedBy::Other);
        Self { sink, progress, interrupt, printed, stopped_by }
    }

    pub(super) fn tell(&mut self, event: RunEvent) {
        if let Some(beside) = Note::of(&event) {
            self.progress.note(&beside.line());
        }
        if self.printed.is_err() {
            return;
        }
        self.printed = match self.sink {
            Sink::Lines => tell_line(event),
            Sink::Text => tell_human(&mut self.progress, event),
        };
        if let Err(error) = &self.printed {
            if error.kind() == io::ErrorKind::BrokenPipe && !self.interrupt.is_raised() {
                self.stopped_by = StoppedBy::Reader;
            }
            self.interrupt.raise();
        }
    }

    /// The run is over: whether all could be printed, and who stopped it.
    pub(super) fn done(self) -> (io::Result<()>, StoppedBy) {
        self.progress.clear();
        (self.printed, self.stopped_by)
    }
}

fn tell_human(progress: &mut Progress, event: RunEvent) -> io::Result<()> {
    match event {
        RunEvent::Note(_) | RunEvent::PassedOver(_) => Ok(()),
        RunEvent::Begin { tokens, images, resumed, first, end } => {
            let data = tokens.map(of_tokens).or_else(|| images.map(of_images));
            progress.put(&data.unwrap_or_default())?;
            progress.put(&begun(&resumed, [first, end]))?;
            progress.begin(first, end);
            Ok(())
        }
        RunEvent::Step { step, loss, samples_per_s, elapsed } => {
            let said = format!("loss {loss:.4}, {samples_per_s:.1} samples/s");
            progress.step(step + 1, said, elapsed);
            Ok(())
        }
        RunEvent::Evaluate { step, loss, metrics } => {
            let said = held_out(&Measures { loss, metrics });
            progress.put(&format!("step {step}: {said}\n"))
        }
    }
}

/// What is said besides progress.
#[derive(Clone, Serialize)]
pub(in crate::cli) struct Note {
    severity: &'static str,
    message: String,
}

impl Note {
    pub(in crate::cli) fn of(event: &RunEvent) -> Option<Self> {
        let (severity, message) = match event {
            RunEvent::Note(text) => ("note", text),
            RunEvent::PassedOver(text) => ("warning", text),
            RunEvent::Begin { .. }
            | RunEvent::Step { .. }
            | RunEvent::Evaluate { .. } => return None,
        };
        Some(Self { severity, message: message.clone() })
    }

    /// Says it on standard error.
    pub(in crate::cli) fn tell(&self) {
        note(&self.line());
    }

    /// As standard error has it.
    fn line(&self) -> String {
        format!("{}: {}", self.severity, self.message)
    }
}

fn tell_line(event: RunEvent) -> io::Result<()> {
    let Some(event) = Event::of(event) else { return Ok(()) };
    put(&json_text(&Line { format: FORMAT, event }, Form::Line)?)
}

pub(super) fn print_line(event: Event) -> Result<(), Failure> {
    print_json(&Line { format: FORMAT, event }, Form::Line)
}

fn of_tokens(TokenFacts { training, held_out, bigram_entropy }: TokenFacts) -> String {
    let entropy =
        bigram_entropy.map(|nats| format!("; held-out bigram entropy {nats:.4}"));
    let entropy = entropy.unwrap_or_default();
    format!("data: {training} tokens to train on, {held_out} held out{entropy}\n")
}

fn of_images(ImageFacts { parts, classes, left_out }: ImageFacts) -> String {
    let images = match parts {
        Some([training, held_out]) => {
            format!("{} to train on, {held_out} held out", counted(training, "image"))
        }
        None => "images without end".to_owned(),
    };
    let others = match left_out {
        0 => String::new(),
        1 => "; 1 entry of a class left out that is no image".to_owned(),
        count => format!("; {count} entries of classes left out that are no images"),
    };
    let classes = match classes {
        1 => "1 class".to_owned(),
        _ => format!("{classes} classes"),
    };
    format!("data: {images}, {classes}{others}\n")
}

fn begun(resumed: &Resumed, [first, end]: [u64; 2]) -> String {
    let mut said = String::new();
    if *resumed != Resumed::FromStart {
        said += &format!("step {first}: {}\n", how(resumed));
    }
    if first > 0 && first >= end {
        said += &format!(
            "step {first}: all {end} steps are done already, nothing is trained; a larger \
             `--steps` goes on\n"
        );
    }
    said
}

fn how(resumed: &Resumed) -> String {
    match resumed {
        Resumed::Exactly => "goes on exactly".to_owned(),
        Resumed::WithOtherBits { reason } => format!("goes on with other bits: {reason}"),
        Resumed::FromParameters { optimizer, reason } => {
            let beside = match optimizer {
                OptimizerState::Kept => " and the optimizer state",
                OptimizerState::Zero => ", with optimizer state at zero",
                OptimizerState::Absent => "",
            };
            format!("goes on from the newest parameters{beside}: {reason}")
        }
        Resumed::FromStart => "starts anew".to_owned(),
        Resumed::WithoutCheckpoint => {
            "starts anew, for there is no checkpoint to go on from".to_owned()
        }
        Resumed::FromWeights => "starts from the weights of a file".to_owned(),
    }
}

/// What held-out data says.
pub(in crate::cli) fn held_out(measures: &Measures) -> String {
    let Measures { loss, metrics } = measures;
    let metrics: String =
        metrics.iter().map(|(name, value)| format!(", {name} {value:.4}")).collect();
    format!("held-out loss {loss:.4}{metrics}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_counted_by_what_they_are_for() {
        let facts = |parts, classes, left_out| ImageFacts { parts, classes, left_out };
        for (facts, told) in [
            (
                facts(Some([90, 10]), 2, 0),
                "data: 90 images to train on, 10 held out, 2 classes\n",
            ),
            (
                facts(Some([1, 0]), 1, 3),
                "data: 1 image to train on, 0 held out, 1 class; 3 entries of classes left out \
                 that are no images\n",
            ),
            (facts(None, 10, 0), "data: images without end, 10 classes\n"),
        ] {
            assert_eq!(of_images(facts), told);
        }
    }

    /// Whoever reads that parameters go on alone takes momentum and means for lost.
    #[test]
    fn what_goes_on_beside_parameters_is_told() {
        let told =
            |optimizer| how(&Resumed::FromParameters { optimizer, reason: "why".into() });
        let kept = told(OptimizerState::Kept);
        assert_eq!(
            kept,
            "goes on from the newest parameters and the optimizer state: why"
        );
        let zero = told(OptimizerState::Zero);
        assert_eq!(
            zero,
            "goes on from the newest parameters, with optimizer state at zero: why"
        );
        assert_eq!(
            told(OptimizerState::Absent),
            "goes on from the newest parameters: why"
        );
    }
}
