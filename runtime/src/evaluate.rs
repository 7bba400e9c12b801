//! Held-out loss and metrics: the forward pass alone, with the newest parameters and without
//! masks.

mod headless;

use crate::{
    code::CodeError,
    feed::Feed,
    memory::Memory,
    plain::Plain,
    state::{State, StateError},
};
use roundelay_kernels::{Context, Mode};
use roundelay_schedule::{
    Access, Bytes, Checked, Id, Job, Metric, Pass, Role, RoutineId, Schedule,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    thread,
};

/// Evaluates states of one job; memory is allocated once.
pub struct Evaluator {
    job: Job,
    plain: Plain,
    forward: Vec<RoutineId>,
    /// By stage, then row.
    parameters: Vec<Vec<Memory>>,
    /// The stage that has the parameters of each: its own, or that of its first slice.
    keepers: Vec<usize>,
    threads: usize,
    /// Metrics that nothing measures, by their places.
    unmeasured: BTreeSet<usize>,
}

/// The passes that an evaluator runs.
const PASSES: [Pass; 1] = [Pass::Forward];

/// What it has besides the blocks of these.
const BOUND: [Role; 1] = [Role::Parameter];

/// What is measured on held-out data.
#[derive(Clone, Debug, PartialEq)]
pub struct Measures {
    /// Mean loss over micro-batches.
    pub loss: f64,
    /// The readings of all metrics, by name.
    pub metrics: BTreeMap<String, f64>,
}

impl Evaluator {
    /// An evaluator with the forward routines of a schedule: what is trained, heads of units and
    /// their losses too.
    ///
    /// # Errors
    /// When a kernel call is malformed.
    pub fn new(schedule: &Checked) -> Result<Self, CodeError> {
        Self::of(schedule, BTreeSet::new())
    }

    /// An evaluator of the model as it is used: heads of units do not run, and their losses are no
    /// metrics.
    ///
    /// # Errors
    /// When a kernel call is malformed.
    pub fn of_model(schedule: &Checked) -> Result<Self, CodeError> {
        let (own, unmeasured) = headless::headless(schedule)?;
        Self::of(&own, unmeasured)
    }

    /// Bytes of an evaluator: flat parameters, and what forward passes work on.
    pub(crate) fn bytes(schedule: &Schedule) -> Bytes {
        let job = &schedule.job;
        let elements: u64 = job.elements.values().sum();
        let parts = u64::from(schedule.tensor_parts());
        let flat = Bytes(elements) * job.dtype.size() * parts;
        flat + Plain::bytes(schedule, &PASSES, &BOUND)
    }

    fn of(schedule: &Schedule, unmeasured: BTreeSet<usize>) -> Result<Self, CodeError> {
        let job = schedule.job.clone();
        let plain = Plain::new(schedule, &PASSES, &BOUND)?;
        let any = [Access::Read, Access::Write, Access::Update];
        let forward = job.elements.ids().map(|stage| {
            let found = plain.find(Pass::Forward, stage, &any);
            found.expect("every stage has a forward pass")
        });
        let (size, rows) = (job.dtype.size(), schedule.tensor_parts());
        let flats = |n: &u64| (0..rows).map(|_| Memory::new(n * size)).collect();
        Ok(Self {
            forward: forward.collect(),
            keepers: job.stages().map(|own| schedule.plan.keeper(own).index()).collect(),
            parameters: job.elements.values().map(flats).collect(),
            plain,
            threads: thread::available_parallelism().map_or(1, usize::from),
            unmeasured,
            job,
        })
    }

    /// Loss and metrics of θ_T over micro-batches 0 .. `micro_batches` of a feed.
    ///
    /// # Errors
    /// When the state is of another model.
    pub fn measure(
        &mut self,
        state: &State,
        feed: &mut dyn Feed,
        micro_batches: u64,
    ) -> Result<Measures, StateError> {
        state.fits(&self.job)?;
        for stage in self.job.elements.ids() {
            for (row, own) in (0..).zip(&mut self.parameters[stage.index()]) {
                let flat = state.parameters(&self.job, stage, row, 0)?;
                own.bytes_mut().copy_from_slice(&flat);
            }
        }
        let mut sums = vec![0.0; 1 + self.job.metrics.len()];
        for micro_batch in 0..micro_batches {
            self.forward(feed, state.step, micro_batch);
            let numbers = self.plain.measured(&self.job);
            sums.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number);
        }
        let means = sums.into_iter().map(|sum| sum / micro_batches as f64);
        Ok(self.readings(means.collect()))
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

    fn forward(&mut self, feed: &mut dyn Feed, step: u64, micro_batch: u64) {
        let context = Context {
            step,
            micro_batch,
            seed: self.job.seed,
            mode: Mode::Evaluation,
            rate: 0.0,
            slice_offset: 0,
            part: 0,
            threads: self.threads,
        };
        self.plain.feed(&self.job, |input, bytes| {
            feed.fill(input, step, micro_batch, bytes);
        });
        for (routine, keeper) in self.forward.iter().zip(&self.keepers) {
            let parameters = &mut self.parameters[*keeper];
            let parameters = parameters.iter_mut().map(Memory::bytes_mut).collect();
            let bound = &mut [(Role::Parameter, parameters)];
            self.plain.run(*routine, &context, bound);
        }
    }
}
