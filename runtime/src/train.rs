//! The training loop: replays segments, and evaluates and saves at the rests between them.
//!
//! Where a run rests does not change its numbers.

mod losses;

use crate::{
    AnyMachine, CheckpointError, Checkpoints, EvaluateError, Evaluator, HeldOut,
    Interrupt, MachineError, Measured, Measures, State,
};
use losses::StepLosses;
use roundelay_schedule::{Bytes, Evaluation, Nanos, enough_steps, simulate};
use std::{
    mem,
    ops::ControlFlow,
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

/// When held-out data is looked at.
#[derive(Debug)]
pub enum Evaluating {
    /// Never.
    Never,
    /// After every so many training steps, and at the end.
    Every {
        /// How many.
        steps: u64,
        /// What is looked at.
        held_out: Box<HeldOut>,
    },
    /// At the end.
    AtEnd {
        /// What is looked at.
        held_out: Box<HeldOut>,
    },
}

/// When checkpoints are written.
#[derive(Debug)]
pub enum Checkpointing {
    /// Never.
    Never,
    /// After every so many training steps, and at the end.
    Every {
        /// How many.
        steps: u64,
        /// Where.
        checkpoints: Checkpoints,
    },
    /// By another rank, after every so many training steps, and at the end.
    Elsewhere {
        /// How many.
        steps: u64,
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
    pub samples_per_second: f64,
    /// Time since the run began.
    pub elapsed: Duration,
}

/// Who watches a run; called on the thread that runs it.
pub trait Observer {
    /// A training step is done. Steps come in order.
    fn step(&mut self, progress: &Progress);
    /// Held-out loss and metrics of θ_`step`.
    fn evaluated(&mut self, step: u64, measures: &Measures);
    /// The run rests before step `step`; to break ends it here.
    fn rested(&mut self, step: u64) -> ControlFlow<()>;
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
    /// A checkpoint could not be written.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// Held-out data could not be looked at.
    #[error(transparent)]
    Evaluate(#[from] EvaluateError),
}

impl Rests {
    /// Evaluation as the job says, no checkpoints.
    pub fn of(evaluation: Evaluation, held_out: HeldOut) -> Self {
        let held_out = Box::new(held_out);
        let evaluate = match evaluation {
            Evaluation::Never => Evaluating::Never,
            Evaluation::Every(steps) => Evaluating::Every { steps, held_out },
        };
        Self { evaluate, checkpoint: Checkpointing::Never }
    }

    /// The first rest after `step`.
    fn after(&self, step: u64, end: u64) -> u64 {
        let evaluate = match self.evaluate {
            Evaluating::Every { steps, .. } => steps,
            Evaluating::Never | Evaluating::AtEnd { .. } => 0,
        };
        let checkpoint = match self.checkpoint {
            Checkpointing::Every { steps, .. } | Checkpointing::Elsewhere { steps } => {
                steps
            }
            Checkpointing::Never => 0,
        };
        let next = |every: u64| match every {
            0 => end,
            _ => (step / every + 1).saturating_mul(every),
        };
        next(evaluate).min(next(checkpoint)).min(end)
    }

    /// Whether held-out data is looked at before step `step`.
    fn evaluates(&self, step: u64, end: u64) -> bool {
        match self.evaluate {
            Evaluating::Never => false,
            Evaluating::Every { steps, .. } => is_due(step, steps, end),
            Evaluating::AtEnd { .. } => is_due(step, 0, end),
        }
    }

    /// Whether a checkpoint is written before step `step`.
    fn saves(&self, step: u64, end: u64) -> bool {
        match self.checkpoint {
            Checkpointing::Never => false,
            Checkpointing::Every { steps, .. } | Checkpointing::Elsewhere { steps } => {
                is_due(step, steps, end)
            }
        }
    }
}

/// Whether something is done before step `step`, every so many steps and at the end.
fn is_due(step: u64, every: u64, end: u64) -> bool {
    step == end || every > 0 && step.is_multiple_of(every)
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

    /// Trains up to step `end`, or until the observer breaks or another thread wishes; then
    /// the last step is kept where checkpoints are.
    ///
    /// # Errors
    /// When the machine cannot go on, held-out data cannot be looked at, or a checkpoint cannot be
    /// written.
    pub fn run(
        &mut self,
        end: u64,
        observer: &mut dyn Observer,
    ) -> Result<Report, TrainError> {
        let first = self.machine.step();
        self.prepare()?;
        let mut course = Course {
            start: Instant::now(),
            idle: Duration::ZERO,
            batch: u64::from(self.machine.schedule().job.batch),
            first,
            losses: Vec::with_capacity(end.saturating_sub(first).min(ROOM) as usize),
        };
        let mut evaluations = Vec::new();
        let mut gathered = StepLosses::new(self.machine.schedule(), first);
        let interrupt = self.interrupt.clone();
        // Ranks end together: what one of them is asked, all do.
        let mut stopped = false;
        while self.machine.step() < end {
            stopped = self.machine.any(interrupt.is_raised())?;
            if stopped {
                interrupt.raise();
                break;
            }
            let rest = self.rests.after(self.machine.step(), end);
            let mut listen = |loss| {
                gathered.add(loss, |step, mean| course.step(step, mean, observer));
            };
            let mut goes_on = || !interrupt.is_raised();
            if let Err(failure) =
                self.machine.replay_while(rest, &mut listen, &mut goes_on)
            {
                self.leave_looks();
                return Err(failure.into());
            }
            let pause = Instant::now();
            let flow = self.rest(end, &mut evaluations, observer)?;
            course.idle += pause.elapsed();
            if flow.is_break() {
                break;
            }
        }
        if stopped {
            let pause = Instant::now();
            self.keep_last(first, end)?;
            course.idle += pause.elapsed();
        }
        let mut measured = self.machine.measured()?;
        measured.beside +=
            self.evaluator.as_ref().map_or(Bytes(0), Evaluator::device_bytes);
        let schedule = self.machine.schedule();
        Ok(Report {
            first,
            end: self.machine.step(),
            replayed: course.start.elapsed() - course.idle,
            losses: course.losses,
            evaluations,
            measured,
            predicted: simulate(schedule, enough_steps(schedule)).step_time(),
        })
    }

    /// The machine, to look at what it used.
    pub fn machine(&mut self) -> &mut AnyMachine {
        &mut self.machine
    }

    /// Makes the evaluator, if this rank will need one.
    fn prepare(&mut self) -> Result<(), EvaluateError> {
        let looks = match self.rests.evaluate {
            Evaluating::Never => false,
            Evaluating::Every { .. } | Evaluating::AtEnd { .. } => {
                self.machine.is_first()
            }
        };
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
        observer: &mut dyn Observer,
    ) -> Result<ControlFlow<()>, TrainError> {
        let step = self.machine.step();
        if (self.rests.evaluates(step, end) || self.rests.saves(step, end))
            && let Some(state) = self.machine.save()?
        {
            if let Some(measures) = self.evaluate(&state, end)? {
                observer.evaluated(step, &measures);
                evaluations.push((step, measures));
            }
            if let Checkpointing::Every { checkpoints, .. } = &self.rests.checkpoint
                && self.rests.saves(step, end)
            {
                checkpoints.save(&state)?;
            }
        }
        Ok(observer.rested(step))
    }

    /// A checkpoint of where an interrupted run rests, unless there is one.
    fn keep_last(&mut self, first: u64, end: u64) -> Result<(), TrainError> {
        let step = self.machine.step();
        if matches!(self.rests.checkpoint, Checkpointing::Never)
            || step == first
            || self.rests.saves(step, end)
        {
            return Ok(());
        }
        let state = self.machine.save()?;
        if let Checkpointing::Every { checkpoints, .. } = &self.rests.checkpoint
            && let Some(state) = state
        {
            checkpoints.save(&state)?;
        }
        Ok(())
    }

    /// Held-out loss and metrics, when they are due.
    fn evaluate(
        &mut self,
        state: &State,
        end: u64,
    ) -> Result<Option<Measures>, EvaluateError> {
        let due = self.rests.evaluates(state.step, end);
        let held_out = match &mut self.rests.evaluate {
            Evaluating::Every { held_out, .. } | Evaluating::AtEnd { held_out } => {
                held_out
            }
            Evaluating::Never => return Ok(None),
        };
        let Some(evaluator) = self.evaluator.as_mut().filter(|_| due) else {
            return Ok(None);
        };
        let micro_batches = held_out.micro_batches();
        Ok(Some(evaluator.measure(state, held_out.as_mut(), micro_batches)?))
    }
}

/// The clock and the losses of one run.
struct Course {
    start: Instant,
    idle: Duration,
    batch: u64,
    first: u64,
    losses: Vec<f64>,
}

impl Course {
    fn step(&mut self, step: u64, loss: f64, observer: &mut dyn Observer) {
        self.losses.push(loss);
        let elapsed = self.start.elapsed();
        let samples = (step + 1 - self.first) * self.batch;
        let seconds = (elapsed - self.idle).as_secs_f64().max(f64::MIN_POSITIVE);
        let samples_per_second = samples as f64 / seconds;
        observer.step(&Progress { step, loss, samples_per_second, elapsed });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn something_is_due_every_so_many_steps_and_at_the_end() {
        let due: Vec<u64> = (1..=7).filter(|step| is_due(*step, 3, 7)).collect();
        assert_eq!(due, [3, 6, 7]);
        assert!(!is_due(4, 0, 7));
    }
}
