//! The training loop: replays segments, and evaluates and saves at the rests between them.
//!
//! Where a run rests does not change its numbers.

mod losses;

use crate::{
    AnyMachine, ArrayNumbers, CheckpointError, Checkpoints, EvaluateError, Evaluator,
    HeldOut, Interrupt, Loss, MachineError, Measured, Measures, SaveError, Saved, State,
};
use losses::StepLosses;
use roundelay_schedule::{Bytes, Nanos, simulate_steady};
use std::{
    fmt, mem,
    num::NonZeroU64,
    path::Path,
    time::{Duration, Instant},
};

/// Losses of steps that have room before the first one; more is made on the way.
const ROOM: u64 = 1 << 20;

/// A machine on its way through a training run.
pub struct Trainer {
    machine: AnyMachine,
    /// Made before the first step where held-out data is looked at, for it has memory of its own.
    evaluator: Option<Evaluator>,
    rests: Rests,
    interrupt: Interrupt,
}

/// When a run rests, and what is done then; at the end of a run everything is done once more.
#[derive(Debug)]
pub struct Rests {
    /// Held-out data.
    pub evaluate: Evaluating,
    /// Checkpoints.
    pub checkpoint: Checkpointing,
}

/// After every this many training steps, and at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Every(NonZeroU64);

/// When held-out data is looked at.
#[derive(Debug)]
pub enum Evaluating {
    /// Never.
    Never,
    /// Again and again.
    Every {
        /// When.
        steps: Every,
        /// What is looked at.
        held_out: Box<HeldOut>,
    },
}

/// When checkpoints are written.
#[derive(Debug)]
pub enum Checkpointing {
    /// Never.
    Never,
    /// Again and again.
    Every {
        /// When.
        steps: Every,
        /// Where.
        checkpoints: Checkpoints,
    },
    /// Again and again, by another rank.
    Elsewhere {
        /// When.
        steps: Every,
    },
}

/// A training step that is done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// The step, counted from zero.
    pub step: u64,
    /// Mean loss of its micro-batches.
    pub loss: f64,
    /// Examples trained per second since the run began, without evaluation and saving.
    pub samples_per_s: f64,
    /// Time since the run began.
    pub elapsed: Duration,
}

/// Who watches a run; called on the thread that runs it.
pub trait TrainObserver {
    /// A training step is done. Steps come in order.
    fn step(&mut self, progress: &Progress);
    /// Held-out loss and metrics of θ_`step`.
    fn evaluated(&mut self, step: u64, measures: &Measures);
    /// Something beside a checkpoint that was written stays, though nobody needs it.
    fn stays(&mut self, why: &CheckpointError) {
        let _ = why;
    }
    /// The run rests before step `step`; what is due then is done.
    fn rested(&mut self, step: u64) {
        let _ = step;
    }
}

/// What a run did.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// First training step.
    pub first: u64,
    /// One past the last.
    pub end: u64,
    /// Mean loss of every step.
    pub losses: Vec<f64>,
    /// Held-out losses and metrics, each with the number of updates done.
    pub evaluations: Vec<(u64, Measures)>,
    /// Time of all replays, without evaluation and saving.
    pub replayed: Duration,
    /// What the machine counted.
    pub measured: Measured,
    /// Time of one training step as the schedule's routines and links predict it.
    pub predicted: Nanos,
}

/// Why a run stopped.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The machine could not go on.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// A checkpoint could not be written, and there are steps behind it.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The last checkpoint could not be written. All else is done on every rank, and the machine rests with
    /// what was trained.
    #[error(transparent)]
    LastCheckpoint(CheckpointError),
    /// Held-out data could not be looked at.
    #[error(transparent)]
    Evaluate(#[from] EvaluateError),
}

impl TrainError {
    /// What would repair it, as the message ends with; empty where the message is all.
    pub fn hint(&self) -> String {
        match self {
            Self::Machine(error) => error.hint(),
            Self::Checkpoint(error) | Self::LastCheckpoint(error) => {
                error.hint().to_owned()
            }
            Self::Evaluate(error) => error.hint(),
        }
    }

    /// The file or folder that is at fault, where one is.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Machine(error) => error.path(),
            Self::Checkpoint(error) | Self::LastCheckpoint(error) => Some(error.path()),
            Self::Evaluate(error) => error.path(),
        }
    }
}

impl Every {
    /// So many steps, if they are any.
    pub const fn new(steps: u64) -> Option<Self> {
        match NonZeroU64::new(steps) {
            Some(steps) => Some(Self(steps)),
            None => None,
        }
    }

    /// The first multiple after `step`.
    fn next(self, step: u64) -> u64 {
        (step / self.0 + 1).saturating_mul(self.0.get())
    }

    /// Whether it is time before step `step`.
    fn is_due(self, step: u64, end: u64) -> bool {
        step == end || step.is_multiple_of(self.0.get())
    }
}

impl fmt::Display for Every {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "every {} steps", self.0)
    }
}

impl Evaluating {
    fn every(&self) -> Option<Every> {
        match self {
            Self::Never => None,
            Self::Every { steps, .. } => Some(*steps),
        }
    }
}

impl Checkpointing {
    fn every(&self) -> Option<Every> {
        match self {
            Self::Never => None,
            Self::Every { steps, .. } | Self::Elsewhere { steps } => Some(*steps),
        }
    }

    /// The run goes on from the checkpoint of this step, which was found whole.
    pub fn goes_on_from(&self, step: u64) {
        if let Some(checkpoints) = self.folder() {
            checkpoints.found_whole(step);
        }
    }

    /// Where this rank writes, if it does.
    fn folder(&self) -> Option<&Checkpoints> {
        match self {
            Self::Never | Self::Elsewhere { .. } => None,
            Self::Every { checkpoints, .. } => Some(checkpoints),
        }
    }
}

impl Rests {
    /// The first rest after `step`.
    fn after(&self, step: u64, end: u64) -> u64 {
        let every = [self.evaluate.every(), self.checkpoint.every()];
        every.into_iter().flatten().map(|every| every.next(step)).fold(end, u64::min)
    }

    /// Whether held-out data is looked at before step `step`.
    fn evaluates(&self, step: u64, end: u64) -> bool {
        self.evaluate.every().is_some_and(|every| every.is_due(step, end))
    }

    /// Whether a checkpoint is written before step `step`.
    fn saves(&self, step: u64, end: u64) -> bool {
        self.checkpoint.every().is_some_and(|every| every.is_due(step, end))
    }
}

impl Trainer {
    /// A run on a machine that has its schedule; what parameters hold is loaded before it begins.
    pub fn new(machine: impl Into<AnyMachine>, rests: Rests) -> Self {
        let machine = machine.into();
        Self { machine, evaluator: None, rests, interrupt: Interrupt::default() }
    }

    /// A run that ends early, at rest, when another thread wishes so.
    pub fn interruptible(self, interrupt: Interrupt) -> Self {
        Self { interrupt, ..self }
    }

    /// A device that is given up may be at work for ever, and gives no memory back before its end: what
    /// looks at held-out data there is left to the end of the process.
    fn leave_looks(&mut self) {
        let here = |own: &Evaluator| own.device_bytes() > Bytes(0);
        mem::forget(self.evaluator.take().filter(here));
    }

    /// Trains up to step `end`, or until another thread wishes to stop; then the last step is kept
    /// where checkpoints are.
    ///
    /// # Errors
    /// When the machine cannot go on, held-out data cannot be looked at, or a checkpoint cannot be
    /// written; where that is [`TrainError::LastCheckpoint`], the machine can still be saved.
    pub fn run(
        &mut self,
        end: u64,
        observer: &mut dyn TrainObserver,
    ) -> Result<Report, TrainError> {
        self.prepare()?;
        self.interrupt.begin();
        let mut watch = Stopwatch::start(&self.machine, end);
        let mut gathered = StepLosses::new(self.machine.schedule(), watch.first);
        let mut evaluations = Vec::new();
        let mut kept = Ok(());
        while kept.is_ok() && self.machine.step() < end && !self.is_stopped()? {
            let rest = self.rests.after(self.machine.step(), end);
            self.replay_to(rest, &mut |loss| {
                gathered.add(loss, |step, mean| watch.step(step, mean, observer));
            })?;
            kept = watch.pause(|| self.rest(end, &mut evaluations, observer));
        }
        if kept.is_ok() && self.machine.step() < end {
            let first = watch.first;
            kept = watch.pause(|| self.keep_last([first, end], observer));
        }
        match kept {
            Ok(()) => self.report(watch, evaluations),
            Err(TrainError::LastCheckpoint(error)) => {
                // Other ranks sum up with this one.
                self.report(watch, evaluations)?;
                Err(TrainError::LastCheckpoint(error))
            }
            Err(error) => Err(error),
        }
    }

    /// Whether somebody wishes to stop. Ranks end together: what one of them is asked, all do.
    fn is_stopped(&mut self) -> Result<bool, MachineError> {
        let stopped = self.machine.any(self.interrupt.is_raised())?;
        if stopped {
            self.interrupt.hear();
        }
        Ok(stopped)
    }

    /// Goes on to a rest, or to where another thread wishes to stop.
    fn replay_to(
        &mut self,
        rest: u64,
        listener: &mut dyn FnMut(Loss),
    ) -> Result<(), MachineError> {
        let mut goes_on = || !self.interrupt.is_raised();
        let done = self.machine.replay_while(rest, listener, &mut goes_on);
        if done.is_err() {
            self.leave_looks();
        }
        done
    }

    /// What was done, at rest.
    fn report(
        &mut self,
        watch: Stopwatch,
        evaluations: Vec<(u64, Measures)>,
    ) -> Result<Report, TrainError> {
        let mut measured = self.machine.measured()?;
        measured.beside +=
            self.evaluator.as_ref().map_or(Bytes(0), Evaluator::device_bytes);
        let schedule = self.machine.schedule();
        Ok(Report {
            first: watch.first,
            end: self.machine.step(),
            replayed: watch.replayed(),
            losses: watch.losses,
            evaluations,
            measured,
            predicted: simulate_steady(schedule).step_time(),
        })
    }

    /// Writes a checkpoint of a state, where this rank writes checkpoints.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep<A: ArrayNumbers>(
        &self,
        state: &State<A>,
    ) -> Result<Option<Saved>, CheckpointError> {
        let folder = self.rests.checkpoint.folder();
        folder.map(|checkpoints| checkpoints.save(state)).transpose()
    }

    /// The machine, to look at what it used.
    pub fn machine(&mut self) -> &mut AnyMachine {
        &mut self.machine
    }

    /// Makes the evaluator, if this rank will need one.
    fn prepare(&mut self) -> Result<(), EvaluateError> {
        let looks = self.rests.evaluate.every().is_some() && self.machine.is_first();
        if looks && self.evaluator.is_none() {
            self.evaluator = Some(self.machine.evaluator()?);
        }
        Ok(())
    }

    /// A checkpoint comes last: whoever goes on from it has been told all that came before.
    fn rest(
        &mut self,
        end: u64,
        evaluations: &mut Vec<(u64, Measures)>,
        observer: &mut dyn TrainObserver,
    ) -> Result<(), TrainError> {
        let step = self.machine.step();
        let (looks, saves) =
            (self.rests.evaluates(step, end), self.rests.saves(step, end));
        if looks
            && let Some(state) = self.machine.newest()?
            && let Some(measures) = self.evaluate(&state)?
        {
            observer.evaluated(step, &measures);
            evaluations.push((step, measures));
        }
        if saves {
            let failed = match step < end {
                true => TrainError::Checkpoint,
                false => TrainError::LastCheckpoint,
            };
            self.save(failed, observer)?;
        }
        observer.rested(step);
        Ok(())
    }

    /// A checkpoint of where an interrupted run rests, unless there is one.
    fn keep_last(
        &mut self,
        [first, end]: [u64; 2],
        observer: &mut dyn TrainObserver,
    ) -> Result<(), TrainError> {
        let step = self.machine.step();
        if matches!(self.rests.checkpoint, Checkpointing::Never)
            || step == first
            || self.rests.saves(step, end)
        {
            return Ok(());
        }
        self.save(TrainError::LastCheckpoint, observer)
    }

    /// Writes a checkpoint of where the run rests, where this rank writes checkpoints.
    fn save(
        &mut self,
        failed: fn(CheckpointError) -> TrainError,
        observer: &mut dyn TrainObserver,
    ) -> Result<(), TrainError> {
        match self.machine.checkpoint(self.rests.checkpoint.folder()) {
            Ok(saved) => {
                let left = saved.iter().flat_map(|saved| &saved.left);
                left.for_each(|why| observer.stays(why));
                Ok(())
            }
            Err(SaveError::Machine(error)) => Err(error.into()),
            Err(SaveError::Checkpoint(error)) => Err(failed(error)),
        }
    }

    /// Held-out loss and metrics, where this rank looks at them.
    fn evaluate(&mut self, state: &State) -> Result<Option<Measures>, EvaluateError> {
        match (&mut self.rests.evaluate, &mut self.evaluator) {
            (Evaluating::Every { held_out, .. }, Some(evaluator)) => {
                let micro_batches = held_out.micro_batches();
                evaluator.measure(state, held_out.as_mut(), micro_batches).map(Some)
            }
            (Evaluating::Never, _) | (_, None) => Ok(None),
        }
    }
}

/// The clock and the losses of one run.
struct Stopwatch {
    start: Instant,
    idle: Duration,
    batch: u64,
    first: u64,
    losses: Vec<f64>,
}

impl Stopwatch {
    /// Starts before the next step of a machine that goes on up to `end`.
    fn start(machine: &AnyMachine, end: u64) -> Self {
        let first = machine.step();
        Self {
            batch: u64::from(machine.schedule().job.batch),
            first,
            losses: Vec::with_capacity(end.saturating_sub(first).min(ROOM) as usize),
            idle: Duration::ZERO,
            start: Instant::now(),
        }
    }

    /// A training step is done.
    fn step(&mut self, step: u64, loss: f64, observer: &mut dyn TrainObserver) {
        self.losses.push(loss);
        let elapsed = self.start.elapsed();
        let samples = (step + 1 - self.first) * self.batch;
        let seconds = (elapsed - self.idle).as_secs_f64().max(f64::MIN_POSITIVE);
        let samples_per_s = samples as f64 / seconds;
        observer.step(&Progress { step, loss, samples_per_s, elapsed });
    }

    /// Does what takes no time of the replay.
    fn pause<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let done = work();
        self.idle += start.elapsed();
        done
    }

    /// Time without pauses.
    fn replayed(&self) -> Duration {
        self.start.elapsed() - self.idle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn something_is_due_every_so_many_steps_and_at_the_end() {
        assert_eq!(Every::new(0), None);
        let every = Every::new(3).unwrap();
        let due: Vec<u64> = (1..=7).filter(|step| every.is_due(*step, 7)).collect();
        assert_eq!(due, [3, 6, 7]);
        assert_eq!([2, 3].map(|step| every.next(step)), [3, 6]);
    }
}
