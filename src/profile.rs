//! Measuring: the plans that would be shown are replayed, and become a table of times.

use crate::{
    CompileError, On, RunError, compile, machine,
    run::{refuse_unscaled, turn_to_cpu},
};
use roundelay_dsl::Program;
use roundelay_planner::{Candidate, Options, Refusal, plan};
use roundelay_runtime::{
    AnyMachine, Collection, Cpu, CpuOptions, Cuda, CudaOptions, Dataset, DeviceFacts,
    Graphs, MachineError, Recording, Settling, Times, check_native, copies, gpu_copies,
    sample,
};
use roundelay_schedule::{Checked, Copies, Host, Nanos, Profile};
use std::{num::NonZeroUsize, path::PathBuf, sync::Arc, thread, time::Duration};
use thiserror::Error;

/// Measured plans may rank others first; after this many rounds the table is taken as it is.
const ROUNDS: usize = 3;

/// How times are measured.
#[derive(Clone, Debug)]
pub struct ProfileOptions {
    /// How many of the best plans.
    pub top: usize,
    /// When the times of one plan have settled.
    pub settling: Settling,
    /// Where relative paths of the job's data begin, instead of the folder of its program.
    pub data: Option<PathBuf>,
    /// The kind of device that is measured; of GPUs the first one, which has all devices of a plan.
    pub on: On,
}

impl Default for ProfileOptions {
    /// The ten best plans, on a CPU.
    fn default() -> Self {
        let settling = Settling { agreement: 0.01, patience: Duration::from_secs(20) };
        Self { top: 10, settling, data: None, on: On::default() }
    }
}

/// What happens while plans are measured, in order.
#[derive(Clone, Debug)]
pub enum ProfileEvent {
    /// Something is done otherwise than it might have been, with the reason.
    Note(String),
    /// The times of a plan are there.
    Plan(Box<Measuring>),
}

/// A plan that was measured.
#[derive(Clone, Debug)]
pub struct Measuring {
    /// The plan that is replayed.
    pub candidate: Candidate,
    /// Devices that computed at one time.
    pub busy: u32,
    /// The time of a training step: of a GPU as a run replays it, of a CPU while calls were timed.
    pub step_time: Nanos,
    /// Training steps in which calls were timed.
    pub steps: u64,
    /// Whether its times settled.
    pub settled: bool,
}

/// Why nothing was measured.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the message names its fields")]
pub enum ProfileError {
    /// The program has no plan.
    #[error(transparent)]
    NoPlan(#[from] Refusal),
    /// A plan does not become a schedule.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// One table is for one number of threads.
    #[error(
        "device `{one}` has {threads} threads, `{other}` has {others}: a table is for one number \
         of threads; {}",
        Self::ONE_BY_ONE
    )]
    Threads { one: String, threads: u32, other: String, others: u32 },
    /// Unusable data, or a machine that fails.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl ProfileError {
    /// What helps where devices have different numbers of threads, as that message ends with.
    pub const ONE_BY_ONE: &'static str = "measure them one by one";
}

/// Measures the best plans of a program on this machine; tables that the program names do not
/// count. With the times of the first plans others may come first, so the best plans by the new
/// table are measured too, up to three rounds.
///
/// # Errors
/// No plan; devices with different numbers of threads; unusable data; a machine that fails.
pub fn profile(
    program: &Program,
    options: &ProfileOptions,
    mut listener: impl FnMut(ProfileEvent),
) -> Result<Profile, ProfileError> {
    let threads = threads(program)?;
    let note = |note| listener(ProfileEvent::Note(note));
    let site = Site::of(program, options.on, threads, note)?;
    let mut collection = Collection::default();
    let mut program = program.clone();
    program.profiles.clear();
    program.target.host = Host::default();
    let mut table = None;
    for _ in 0..ROUNDS {
        let ranking =
            plan(&program, &Options { top: options.top, ..Options::default() })?;
        let mut anew = false;
        for candidate in ranking.plans {
            let schedule = compile(&program, &candidate.plan)?;
            if let Some(told) =
                measure(&schedule, candidate, &site, options, &mut collection)?
            {
                anew = true;
                listener(ProfileEvent::Plan(Box::new(told)));
            }
        }
        if !anew {
            break;
        }
        let dtype = program.train.dtype;
        let found =
            collection.profile(&site.processor, threads, dtype, site.copies.clone());
        let shared = Arc::new(found.clone());
        program.target.host.wake = found.wake;
        let ids = program.target.devices.ids();
        program.profiles = ids.map(|id| (id, Arc::clone(&shared))).collect();
        table = Some(found);
    }
    Ok(table.expect("the first round measures at least the best plan"))
}

/// Where is measured.
struct Site {
    on: Measured,
    /// The processor in words.
    processor: String,
    /// Launches that run at one time.
    launches: usize,
    copies: Copies,
}

/// What is measured.
enum Measured {
    /// CPU threads.
    Cpu,
    /// The first GPU.
    Gpu(Graphs),
}

impl Site {
    fn of(
        program: &Program,
        on: On,
        threads: u32,
        note: impl FnOnce(String),
    ) -> Result<Self, RunError> {
        let dtype = program.train.dtype;
        match on {
            On::Cpu => {
                check_native(dtype)?;
                Ok(Self::cpu(threads))
            }
            On::Cuda(graphs) => {
                refuse_unscaled(dtype)?;
                let gpu = Cuda::facts_of(0);
                let gpu = gpu.map_err(|absent| RunError::NoCuda { absent, dtype })?;
                Self::gpu(gpu, graphs)
            }
            On::Best(graphs) => {
                refuse_unscaled(dtype)?;
                match Cuda::facts_of(0) {
                    Ok(gpu) => Self::gpu(gpu, graphs),
                    Err(absent) => {
                        turn_to_cpu(dtype, &absent, note)?;
                        Ok(Self::cpu(threads))
                    }
                }
            }
        }
    }

    fn cpu(threads: u32) -> Self {
        let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let launches = (processors / threads.max(1) as usize).max(1);
        let processor = machine::processor();
        Self { on: Measured::Cpu, processor, launches, copies: copies() }
    }

    fn gpu(gpu: DeviceFacts, graphs: Graphs) -> Result<Self, RunError> {
        let copies = gpu_copies(0).map_err(MachineError::from)?;
        let on = Measured::Gpu(graphs);
        Ok(Self { on, processor: gpu.name, launches: usize::MAX, copies })
    }

    /// A machine that keeps times.
    fn recording(
        &self,
        schedule: &Checked,
        data: Box<Dataset>,
    ) -> Result<AnyMachine, MachineError> {
        match self.on {
            Measured::Cpu => {
                let recording = Recording::On { launches: self.launches };
                let options = CpuOptions { recording, ..CpuOptions::default() };
                Ok(Cpu::new(schedule, data, options)?.into())
            }
            Measured::Gpu(graphs) => {
                let times = Times::Kept;
                let options = CudaOptions { times, graphs, ..CudaOptions::default() };
                Ok(Cuda::new(schedule, data, options)?.into())
            }
        }
    }
}

/// Measures one plan, unless all its calls are known.
fn measure(
    schedule: &Checked,
    candidate: Candidate,
    site: &Site,
    options: &ProfileOptions,
    collection: &mut Collection,
) -> Result<Option<Measuring>, ProfileError> {
    let devices = candidate.plan.devices.len().min(site.launches);
    let busy = u32::try_from(devices).unwrap_or(u32::MAX);
    if collection.knows(schedule, busy) {
        return Ok(None);
    }
    let data = Dataset::open(&schedule.job, options.data.as_deref());
    let data = Box::new(data.map_err(RunError::from)?);
    let machine = site.recording(schedule, data);
    let sample = machine.and_then(|own| sample(own, site.launches, options.settling));
    let sample = sample.map_err(RunError::from)?;
    collection.add(schedule, &sample).map_err(RunError::from)?;
    let (step_time, steps) = (sample.step_time(), sample.training_steps());
    let settled = sample.settled;
    Ok(Some(Measuring { candidate, busy, step_time, steps, settled }))
}

/// The number of threads that all devices have.
fn threads(program: &Program) -> Result<u32, ProfileError> {
    let mut devices = program.target.devices.values();
    let Some(first) = devices.next() else { return Ok(1) };
    match devices.find(|device| device.threads != first.threads) {
        None => Ok(first.threads),
        Some(other) => Err(ProfileError::Threads {
            one: first.name.clone(),
            threads: first.threads,
            other: other.name.clone(),
            others: other.threads,
        }),
    }
}
