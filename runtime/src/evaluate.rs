//! Held-out loss and metrics: the forward pass alone, with the newest parameters and without
//! masks.

mod headless;
mod host;

use crate::{
    MachineError,
    code::CodeError,
    cuda::GpuPasses,
    feed::Feed,
    plain::Plain,
    shares::Shares,
    state::{ArrayNumbers, State, StateError},
};
use host::HostPasses;
use roundelay_kernels::{Context, Mode, leave_out_gradients};
use roundelay_schedule::{
    Bytes, Call, Checked, InputId, Job, Metric, Pass, Role, Routine, RoutineId, Schedule,
    Stage,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    thread,
    time::Duration,
};

/// Evaluates states of one job; memory is allocated once.
pub struct Evaluator {
    job: Job,
    /// Parts of split tensors.
    parts: u32,
    passes: Box<dyn ForwardPasses>,
    threads: usize,
    /// Metrics that nothing measures, by their places.
    unmeasured: BTreeSet<usize>,
}

/// The forward passes of all stages, on memory of their own.
pub(crate) trait ForwardPasses {
    /// Takes the flat parameters of a stage on one part of split tensors.
    fn place(&mut self, stage: Stage, part: u32, flat: &[u8])
    -> Result<(), MachineError>;
    /// Runs them on inputs that are filled in, and returns what the last stage measures: the loss,
    /// then a number for each metric.
    fn run(
        &mut self,
        fill: &mut dyn FnMut(InputId, &mut [u8]),
        context: &Context,
    ) -> Result<Vec<f64>, MachineError>;
    /// Memory that it takes of a GPU.
    fn device_bytes(&self) -> Bytes;
}

/// A forward pass of a stage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ForwardPass {
    pub(crate) routine: RoutineId,
    /// The stage that has its parameters: its own, or that of its first slice.
    pub(crate) keeper: Stage,
}

impl ForwardPass {
    /// What the parameters of a state are to the stage, if it uses them.
    pub(crate) fn role_of(self, state: Stage) -> Role {
        if state == self.keeper { Role::Parameter } else { Role::Tied(state) }
    }
}

/// Which GPU looks at held-out data, and for how long it is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnGpu {
    /// Its number.
    pub ordinal: u32,
    /// The longest that a pass may take.
    pub deadline: Duration,
}

/// The passes that an evaluator runs.
pub(crate) const PASSES: [Pass; 1] = [Pass::Forward];

/// Whether an argument is what it has besides the blocks of these.
pub(crate) fn is_bound(role: Role) -> bool {
    matches!(role, Role::Parameter | Role::Tied(_))
}

/// What is measured on held-out data.
#[derive(Clone, Debug, PartialEq)]
pub struct Measures {
    /// Mean loss over micro-batches.
    pub loss: f64,
    /// The readings of all metrics, by name.
    pub metrics: BTreeMap<String, f64>,
}

/// Why held-out data could not be looked at.
#[derive(Debug, thiserror::Error)]
pub enum EvaluateError {
    /// A kernel call of the schedule is malformed.
    #[error(transparent)]
    Code(#[from] CodeError),
    /// The state is of another model.
    #[error(transparent)]
    State(#[from] StateError),
    /// The machine could not go on.
    #[error(transparent)]
    Machine(#[from] MachineError),
}

impl EvaluateError {
    /// What would repair it, as the message ends with; empty where the message is all.
    pub fn hint(&self) -> String {
        match self {
            Self::Code(error) => error.hint().to_owned(),
            Self::State(error) => error.hint().to_owned(),
            Self::Machine(error) => error.hint(),
        }
    }

    /// The file that is at fault, where one is.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Code(_) => None,
            Self::State(error) => error.path(),
            Self::Machine(error) => error.path(),
        }
    }
}

/// What of a schedule is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evaluated {
    /// What is trained, heads of units and their losses too.
    Trained,
    /// The model as it is used: heads of units do not run, and their losses are no metrics.
    Used,
}

impl Evaluator {
    /// An evaluator with the forward routines of a schedule, on threads of the host: what is
    /// trained.
    ///
    /// # Errors
    /// When a kernel call is malformed.
    pub fn new(schedule: &Checked) -> Result<Self, CodeError> {
        Self::on_host(schedule, Evaluated::Trained)
    }

    /// As [`Evaluator::new`], of what one is asked for.
    ///
    /// # Errors
    /// When a kernel call is malformed.
    pub fn on_host(schedule: &Checked, what: Evaluated) -> Result<Self, CodeError> {
        let (own, unmeasured) = what.of(schedule)?;
        Ok(Self::of(&own, unmeasured, Box::new(HostPasses::new(&own)?)))
    }

    /// An evaluator on a GPU, where it computes in the types in which the schedule trains.
    ///
    /// # Errors
    /// When a kernel call is malformed, CUDA is missing, a kernel is not compiled, or the GPU has
    /// too little memory.
    pub fn on_gpu(
        schedule: &Checked,
        what: Evaluated,
        on: OnGpu,
    ) -> Result<Self, EvaluateError> {
        let (own, unmeasured) = what.of(schedule)?;
        let passes = GpuPasses::new(&own, on).map_err(MachineError::from)?;
        Ok(Self::of(&own, unmeasured, Box::new(passes)))
    }

    fn of(
        schedule: &Schedule,
        unmeasured: BTreeSet<usize>,
        passes: Box<dyn ForwardPasses>,
    ) -> Self {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let (job, parts) = (schedule.job.clone(), schedule.tensor_parts());
        Self { job, parts, passes, threads, unmeasured }
    }

    /// Bytes of an evaluator on the host: flat parameters, and what forward passes work on.
    pub(crate) fn bytes(schedule: &Schedule) -> Bytes {
        let job = &schedule.job;
        let elements: u64 = job.elements.values().sum();
        let parts = u64::from(schedule.tensor_parts());
        let flat = Bytes(elements) * job.dtype.size() * parts;
        flat + Plain::bytes(schedule, &PASSES, is_bound)
    }

    /// Memory that it takes of a GPU.
    pub fn device_bytes(&self) -> Bytes {
        self.passes.device_bytes()
    }

    /// Loss and metrics of θ_T over micro-batches 0 .. `micro_batches` of a feed. Masked losses and
    /// metrics are means over all targets; where one has none, nothing is a number.
    ///
    /// # Errors
    /// When the state is of another model or cannot be read, or the machine fails.
    pub fn measure<A: ArrayNumbers>(
        &mut self,
        state: &State<A>,
        feed: &mut dyn Feed,
        micro_batches: u64,
    ) -> Result<Measures, EvaluateError> {
        state.has_parameters(&self.job)?;
        for stage in self.job.elements.ids() {
            let flats = state.parameters_on(&self.job, stage, 0..self.parts, 0)?;
            for (part, flat) in (0..).zip(flats) {
                self.passes.place(stage, part, &flat)?;
            }
        }
        let mut sums = vec![0.0; 1 + self.job.metrics.len()];
        let mut shares = Shares::new(&self.job, micro_batches);
        for micro_batch in 0..micro_batches {
            let context = self.context(state.step, micro_batch);
            let mut fill = |input, bytes: &mut [u8]| {
                shares.fill(feed, (input, state.step, micro_batch), bytes);
            };
            let numbers = self.passes.run(&mut fill, &context)?;
            sums.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number);
        }
        let mean = |sum: f64| match shares.met_nothing() {
            true => f64::NAN,
            false => sum / micro_batches as f64,
        };
        Ok(self.readings(sums.into_iter().map(mean).collect()))
    }

    fn readings(&self, means: Vec<f64>) -> Measures {
        let metrics = self.job.metrics.iter().zip(&means[1..]).enumerate();
        let measured = metrics.filter(|(place, _)| !self.unmeasured.contains(place));
        let metrics = measured.map(|(_, metric)| metric);
        let reading = |(metric, mean): (&Metric, &f64)| {
            (metric.name.clone(), metric.reading.of(*mean))
        };
        Measures { loss: means[0], metrics: metrics.map(reading).collect() }
    }

    fn context(&self, step: u64, micro_batch: u64) -> Context {
        Context {
            step,
            updates: step,
            micro_batch,
            seed: self.job.seed,
            mode: Mode::Evaluation,
            rate: 0.0,
            slice_offset: 0,
            part: 0,
            threads: self.threads,
        }
    }
}

impl Evaluated {
    /// The schedule whose forward passes are run, and the places of the metrics that they do not
    /// measure.
    fn of(self, schedule: &Checked) -> Result<(Schedule, BTreeSet<usize>), CodeError> {
        let (mut own, unmeasured) = match self {
            Self::Trained => (Schedule::clone(schedule), BTreeSet::new()),
            Self::Used => headless::headless(schedule)?,
        };
        forward_calls(&mut own).for_each(leave_out_gradients);
        Ok((own, unmeasured))
    }
}

fn forward_calls(schedule: &mut Schedule) -> impl Iterator<Item = &mut Call> {
    let routines = schedule.routines.iter_mut().map(|(_, routine)| routine);
    let forward = routines.filter(|routine| routine.pass == Pass::Forward);
    forward.flat_map(|routine| routine.calls.iter_mut())
}

/// The forward passes that a schedule launches, in the order of its stages.
pub(crate) fn forward_passes(schedule: &Schedule) -> Vec<ForwardPass> {
    let launches = schedule.actions.values().filter_map(|action| action.work.routine());
    let launched: BTreeSet<RoutineId> = launches.map(|(routine, _)| routine).collect();
    let pass = |stage: Stage| {
        let is_own =
            |routine: &&Routine| (routine.pass, routine.stage) == (Pass::Forward, stage);
        let mut routines = schedule.routines.iter();
        let own = routines.find(|(id, routine)| launched.contains(id) && is_own(routine));
        let (routine, _) = own.expect("every stage has a forward pass");
        ForwardPass { routine, keeper: schedule.plan.keeper(stage) }
    };
    schedule.plan.each_stage().map(pass).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use roundelay_codegen::lower;
    use roundelay_dsl::{NoFiles, SourceFile, parse};
    use roundelay_kernels::Kernels;
    use roundelay_schedule::{Attribute, Order, Placement, Plan, Rule, States, check};

    #[test]
    fn nothing_is_made_for_training_alone() {
        let text = "model it {
                input x: real[batch, 4]
                input targets: i32[batch]
                loss linear_cross_entropy(linear(x, 8), targets, 10, chunks = 2)
            }
            device core { memory 1 GB, compute 1 GFLOP/s, bandwidth 1 GB/s }
            cluster one { 1 x core }
            train { data synthetic, batch 4, optimizer sgd(lr = 0.1), steps 2 }";
        let source = SourceFile::new("it.rdl", text.to_owned());
        let (program, _) = parse(&source, &NoFiles).expect("it is right");
        let (placement, order) = (Placement::Accumulate, Order::Sequential);
        let plan = Plan::new(Rule::Sync, placement, order, States::Replicated, 1, vec![]);
        let schedule = lower(&program, &plan).expect("it fits");
        let schedule = check(schedule, &Kernels).expect("it is sound");
        let gradients = |own: &mut Schedule| {
            let asked = |call: &&mut Call| {
                call.attributes.get("gradients") == Some(&Attribute::Flag(true))
            };
            forward_calls(own).filter(asked).count()
        };
        assert_eq!(gradients(&mut Schedule::clone(&schedule)), 1);
        for what in [Evaluated::Trained, Evaluated::Used] {
            let (mut own, _) = what.of(&schedule).expect("kernels are well formed");
            assert_eq!(gradients(&mut own), 0, "{what:?}");
        }
    }
}
