//! Running a checked schedule: data, state, machine, training loop.

mod notes;

use roundelay_runtime::{
    CheckpointError, Checkpointing, Checkpoints, CodeError, Control, Cpu, CpuOptions,
    Cuda, CudaError, CudaOptions, DataError, Dataset, Device, DeviceError, Evaluating,
    Evaluator, Fill, Graphs, HeldOut, Interrupt, Latest, Measures, NotNative, Observer,
    Progress, Provenance, Report, Rests, Resumed, Resumption, Seat, State, StateError,
    Touched, TrainError, Trainer, Weights, WeightsError, WeightsFile, check_native,
};
use roundelay_schedule::{Checked, DeviceId, Evaluation, Float, Images, Kind};
use std::{
    collections::BTreeMap,
    fmt::Display,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use thiserror::Error;

/// How to run a schedule.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// On what.
    pub on: On,
    /// Stop after this many training steps instead of the job's number.
    pub steps: Option<u64>,
    /// Take the data from this folder instead of the job's.
    pub data: Option<PathBuf>,
    /// What is kept on disk.
    pub keep: Keep,
    /// Start from the parameters of this safetensors file instead of drawn ones.
    pub weights: Option<PathBuf>,
    /// Write the last parameters to this safetensors file.
    pub save: Option<PathBuf>,
    /// Ends the run early, at rest and with all that it keeps, when it is raised.
    pub interrupt: Interrupt,
    /// Who this process is among those that train together, one per device of the schedule.
    pub seat: Seat,
    /// When nothing moves for so long, the run ends, on all ranks.
    pub deadline: Duration,
}

impl Default for RunOptions {
    /// One process on the CPU, which keeps nothing.
    fn default() -> Self {
        Self {
            on: On::default(),
            steps: None,
            data: None,
            keep: Keep::default(),
            weights: None,
            save: None,
            interrupt: Interrupt::default(),
            seat: Seat::alone(),
            deadline: CpuOptions::default().deadline,
        }
    }
}

/// What a schedule runs on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum On {
    /// CPU threads.
    #[default]
    Cpu,
    /// A GPU.
    Cuda(Graphs),
    /// A GPU if there is one that can do what the schedule asks for, else CPU threads.
    Best(Graphs),
}

/// What a run keeps on disk.
#[derive(Clone, Debug, Default)]
pub enum Keep {
    /// Nothing.
    #[default]
    Nothing,
    /// Checkpoints of a run that starts anew.
    Start(Folder),
    /// Checkpoints of a run that goes on from the newest one.
    Resume(Folder),
}

/// A folder of checkpoints.
#[derive(Clone, Debug)]
pub struct Folder {
    /// Where.
    pub path: PathBuf,
    /// Training steps between checkpoints; the end of the run is always kept.
    pub every: u64,
}

/// Where parameters lie that were trained.
#[derive(Clone, Debug)]
pub enum Learned {
    /// A folder of checkpoints, of which the newest counts.
    Checkpoint(PathBuf),
    /// A safetensors file under global parameter names.
    Weights(PathBuf),
}

/// What happens during a run, in order; told on the first rank.
#[derive(Clone, Debug)]
pub enum RunEvent {
    /// Something is done otherwise than it might have been, with the reason.
    Note(String),
    /// The data is read and the state is there.
    Begin {
        /// Tokens of the training part and of the held-out part, unless data is drawn.
        tokens: Option<(u64, u64)>,
        /// Held-out bigram entropy in nats per token, for small vocabularies.
        bigram_entropy: Option<f64>,
        /// How the run relates to an earlier one.
        resumed: Resumed,
        /// What lies in the folder of checkpoints besides.
        ignored: Vec<String>,
        /// First training step.
        first: u64,
        /// One past the last.
        end: u64,
    },
    /// A training step is done.
    Step {
        /// Which, counted from zero.
        step: u64,
        /// Mean loss of its micro-batches.
        loss: f64,
        /// Examples per second since the run began.
        samples_per_second: f64,
        /// Time since the run began.
        elapsed: Duration,
    },
    /// Held-out data was looked at.
    Evaluate {
        /// Updates done.
        step: u64,
        /// Held-out loss.
        loss: f64,
        /// Held-out metrics, by name.
        metrics: BTreeMap<String, f64>,
    },
}

/// What a run did and what it used; on other ranks than the first, their part of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Losses, times and counts.
    pub report: Report,
    /// Bytes that were really used, by device and kind of memory: arenas start poisoned, and
    /// are scanned at the end.
    pub touched: BTreeMap<(DeviceId, Kind), Touched>,
}

/// Why a run did not happen, or stopped.
#[derive(Debug, Error)]
pub enum RunError {
    /// The data cannot be used.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A checkpoint cannot be read or written.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The folder has no whole checkpoint.
    #[error("`{0}` holds no whole checkpoint")]
    NoCheckpoint(PathBuf),
    /// Weights cannot be read or written.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// Two starts at once.
    #[error(
        "a run that resumes has the weights of its checkpoint; leave `{0}` away, or start anew"
    )]
    TwoStarts(PathBuf),
    /// The machine does not compute in the job's type.
    #[error(transparent)]
    Element(#[from] NotNative),
    /// What a run in 16 bits cannot do.
    #[error("{what} in {dtype} {only}; leave {way} away, or train with `dtype f32`")]
    Mixed {
        /// What was asked for.
        what: &'static str,
        /// The job's type.
        dtype: Float,
        /// Why it cannot be.
        only: &'static str,
        /// Where it was asked for.
        way: &'static str,
    },
    /// Losses of a type whose small gradients vanish would have to be scaled.
    #[error(
        "training in {0} wants losses that are scaled, or small gradients vanish, and there is no \
         scaling yet; train with `dtype bf16`"
    )]
    Unscaled(Float),
    /// The schedule's kernels cannot be called.
    #[error(transparent)]
    Code(#[from] CodeError),
    /// A state that is not the schedule's.
    #[error(transparent)]
    State(#[from] StateError),
    /// Images that are split on a machine that has no kernels for them.
    #[error(
        "GPUs have no kernels yet for images whose pixels tensor rows divide: run it with `--device \
         cpu`, in one process, or plan with `--set images=whole`"
    )]
    Pixels,
    /// Several processes on a machine of one.
    #[error(
        "this is rank {rank} of {size}, but the CPU machine is one process with a thread per \
         queue: start it alone, without torchrun, mpirun or srun, or train on GPUs"
    )]
    ManyOnCpu {
        /// This process.
        rank: u32,
        /// All of them.
        size: u32,
    },
    /// The machine failed.
    #[error(transparent)]
    Machine(#[from] DeviceError),
    /// The training loop failed.
    #[error(transparent)]
    Train(#[from] TrainError),
}

impl RunError {
    /// Whether what was given is at fault, not the run.
    pub fn is_input(&self) -> bool {
        match self {
            RunError::Data(_)
            | RunError::Checkpoint(_)
            | RunError::NoCheckpoint(_)
            | RunError::Weights(_)
            | RunError::TwoStarts(_)
            | RunError::Code(_)
            | RunError::State(_) => true,
            RunError::Element(_)
            | RunError::Mixed { .. }
            | RunError::Unscaled(_)
            | RunError::Pixels
            | RunError::ManyOnCpu { .. }
            | RunError::Machine(_)
            | RunError::Train(_) => false,
        }
    }
}

/// Replays a schedule; where several ranks train together, all of them call this.
///
/// # Errors
/// Unusable data, checkpoints or weights, before anything is trained; a machine that fails; whatever
/// goes wrong on another rank.
pub fn run(
    schedule: &Checked,
    options: &RunOptions,
    mut listener: impl FnMut(RunEvent),
) -> Result<Outcome, RunError> {
    let RunOptions { seat, deadline, .. } = options;
    let splits_images = schedule.plan.tensor.images == Images::Split;
    let control = match (options.on, seat.size) {
        (On::Cuda(_), _) | (On::Best(_), 2..) if splits_images => {
            return Err(RunError::Pixels);
        }
        (_, 1) => None,
        (On::Cpu, size) => return Err(RunError::ManyOnCpu { rank: seat.rank, size }),
        (On::Cuda(_) | On::Best(_), _) => Some(Arc::new(meet(seat, *deadline)?)),
    };
    let mut heard = |event| {
        if seat.rank == 0 {
            listener(event);
        }
    };
    let done = train(schedule, options, control.as_ref(), &mut heard);
    told(control.as_ref(), done)
}

/// All ranks hear of what went wrong on this one.
fn told<T>(
    control: Option<&Arc<Control>>,
    done: Result<T, RunError>,
) -> Result<T, RunError> {
    if let (Some(control), Err(error)) = (control, &done) {
        control.fail(&error.to_string());
    }
    done
}

fn meet(seat: &Seat, deadline: Duration) -> Result<Control, RunError> {
    let met = Control::meet(seat, deadline).map_err(CudaError::from);
    Ok(met.map_err(DeviceError::from)?)
}

fn train(
    schedule: &Checked,
    options: &RunOptions,
    control: Option<&Arc<Control>>,
    listener: &mut impl FnMut(RunEvent),
) -> Result<Outcome, RunError> {
    let on = settle(schedule, options, listener)?;
    if on == On::Cpu {
        Cpu::room(schedule).map_err(DeviceError::from)?;
    }
    let data = Dataset::open(&schedule.job, options.data.as_deref())?;
    let provenance = Provenance::new(schedule, &data);
    let first = options.seat.rank == 0;
    let save = options.save.as_deref().filter(|_| first);
    let save = save.map(WeightsFile::new).transpose()?;
    let (start, checkpoint) = begin(schedule, provenance, options, listener)?;
    let end = options.steps.unwrap_or(schedule.job.steps);
    if let Some(control) = control {
        let agreed = control.agree(schedule, data.digest(), &start.state, end);
        let seat = control.seat();
        agreed
            .map_err(|trouble| DeviceError::from(CudaError::at_start(seat, trouble)))?;
    }
    listener(RunEvent::Begin {
        tokens: data.tokens(),
        bigram_entropy: data.bigram_entropy(),
        resumed: start.resumed,
        ignored: start.ignored.iter().map(ToString::to_string).collect(),
        first: start.state.step,
        end,
    });
    let evaluate = evaluating(schedule.job.evaluate, &data)?;
    let device = match control {
        None => machine(schedule, data, (on, options.deadline), listener)?,
        Some(control) => rank_machine(schedule, data, on, control)?,
    };
    notes::tell_ungraphed(&device, listener);
    notes::tell_own_products(&device, listener);
    notes::tell_unhidden(&device, schedule, listener);
    let trainer = Trainer::new(device, Rests { evaluate, checkpoint });
    let mut trainer = trainer.interruptible(options.interrupt.clone());
    let work = || {
        trainer.machine().load(&start.state)?;
        drop(start.state);
        let report = trainer.run(end, &mut Listening { listener, lost: false })?;
        let device = trainer.machine();
        if options.save.is_some()
            && let (Some(state), Some(save)) = (device.save()?, save)
        {
            save.write(&state)?;
        }
        let touched = device.touched()?;
        device.leave()?;
        Ok(Outcome { report, touched })
    };
    // Before the device is given up, which may take its time where a kernel waits.
    told(control, work())
}

/// The machine of one rank of several.
fn rank_machine(
    schedule: &Checked,
    data: Dataset,
    on: On,
    control: &Arc<Control>,
) -> Result<Device, RunError> {
    let graphs = match on {
        On::Cuda(graphs) | On::Best(graphs) => graphs,
        On::Cpu => Graphs::Never,
    };
    let (fill, deadline) = (Fill::Poison, control.patience());
    let options = CudaOptions { fill, graphs, deadline, ..CudaOptions::default() };
    let made = Cuda::of_rank(schedule, Box::new(data), options, Arc::clone(control));
    Ok(made.map(Device::from).map_err(DeviceError::from)?)
}

/// What a schedule runs on, after a look at what is here.
fn settle(
    schedule: &Checked,
    options: &RunOptions,
    listener: &mut impl FnMut(RunEvent),
) -> Result<On, RunError> {
    let on = match options.on {
        On::Cpu => On::Cpu,
        // Ranks on different machines could not go on together.
        On::Best(graphs) if options.seat.size > 1 => {
            Cuda::count().map_err(|absent| DeviceError::from(CudaError::from(absent)))?;
            On::Cuda(graphs)
        }
        On::Cuda(graphs) => {
            Cuda::count().map_err(|absent| DeviceError::from(CudaError::from(absent)))?;
            On::Cuda(graphs)
        }
        On::Best(graphs) => match Cuda::count() {
            Ok(_) => On::Best(graphs),
            Err(absent) => {
                check_native(schedule.job.dtype)?;
                listener(on_cpu(&absent));
                On::Cpu
            }
        },
    };
    match on {
        On::Cpu => drop(check_native(schedule.job.dtype)?),
        On::Cuda(_) | On::Best(_) => refuse_mixed(schedule)?,
    }
    Ok(on)
}

fn on_cpu(reason: &dyn Display) -> RunEvent {
    RunEvent::Note(format!("runs on the CPU: {reason}"))
}

/// The type whose losses would have to be scaled.
pub(crate) fn refuse_unscaled(dtype: Float) -> Result<(), RunError> {
    match dtype {
        Float::F16(_) => Err(RunError::Unscaled(dtype)),
        Float::F32 | Float::F64 | Float::Bf16(_) => Ok(()),
    }
}

/// What is not there in 16 bits.
fn refuse_mixed(schedule: &Checked) -> Result<(), RunError> {
    let dtype = schedule.job.dtype;
    refuse_unscaled(dtype)?;
    let refused = |what, only, way| Err(RunError::Mixed { what, dtype, only, way });
    match (dtype.native(), schedule.job.evaluate) {
        (Some(_), _) | (None, Evaluation::Never) => Ok(()),
        (None, Evaluation::Every(_)) => {
            let only = "is not there yet, because the CPU does it in f32 or f64";
            refused("a look at held-out data", only, "`evaluate`")
        }
    }
}

/// The machine that a run was settled on; arenas start poisoned.
fn machine(
    schedule: &Checked,
    data: Dataset,
    (on, deadline): (On, Duration),
    listener: &mut impl FnMut(RunEvent),
) -> Result<Device, RunError> {
    let fill = Fill::Poison;
    let cpu = |data| {
        let options = CpuOptions { fill, deadline, ..CpuOptions::default() };
        Cpu::new(schedule, Box::new(data), options).map(Device::from)
    };
    let cuda = |data, graphs| {
        let options = CudaOptions { fill, graphs, deadline, ..CudaOptions::default() };
        Cuda::new(schedule, Box::new(data), options).map(Device::from)
    };
    let made = match on {
        On::Cpu => cpu(data).map_err(DeviceError::from),
        On::Cuda(graphs) => cuda(data, graphs).map_err(DeviceError::from),
        On::Best(graphs) => match cuda(data.clone(), graphs) {
            Err(refusal) => {
                check_native(schedule.job.dtype)?;
                listener(on_cpu(&refusal));
                cpu(data).map_err(DeviceError::from)
            }
            Ok(made) => Ok(made),
        },
    };
    Ok(made?)
}

/// Held-out loss and metrics of what was learned, and the number of updates that a checkpoint
/// has seen; weights do not say. The listener hears of weights that are no numbers.
///
/// # Errors
/// Unusable data, no checkpoint or weights, or those of another model; too little memory.
pub fn evaluate(
    schedule: &Checked,
    learned: &Learned,
    data: Option<&Path>,
    mut listener: impl FnMut(RunEvent),
) -> Result<(u64, Measures), RunError> {
    check_native(schedule.job.dtype)?;
    Cpu::room_to_evaluate(schedule).map_err(DeviceError::from)?;
    let data = Dataset::open(&schedule.job, data)?;
    let state = match learned {
        Learned::Checkpoint(folder) => {
            let found = Latest::of(folder)?.checkpoint;
            let found = found.ok_or_else(|| RunError::NoCheckpoint(folder.to_owned()))?;
            found.resume(schedule, &Provenance::new(schedule, &data))?.0
        }
        Learned::Weights(file) => weights(schedule, file, &mut listener)?,
    };
    let mut held_out = data.held_out(HeldOut::EXAMPLES)?;
    let micro_batches = held_out.micro_batches();
    let mut evaluator = Evaluator::of_model(schedule)?;
    Ok((state.step, evaluator.measure(&state, &mut held_out, micro_batches)?))
}

/// The state of a file of weights; what is no number in it is told.
fn weights(
    schedule: &Checked,
    file: &Path,
    listener: &mut impl FnMut(RunEvent),
) -> Result<State, RunError> {
    let weights = Weights::read(file)?;
    let state = weights.state(&schedule.job)?;
    notes::tell_not_finite(file, &weights.not_finite(&schedule.job), listener);
    Ok(state)
}

fn begin(
    schedule: &Checked,
    provenance: Provenance,
    options: &RunOptions,
    listener: &mut impl FnMut(RunEvent),
) -> Result<(Resumption, Checkpointing), RunError> {
    let (state, resumed) = match &options.weights {
        None => (State::initial(&schedule.job), Resumed::FromStart),
        Some(file) => (weights(schedule, file, listener)?, Resumed::FromWeights),
    };
    let fresh = Resumption { state, resumed, ignored: Vec::new() };
    let first = options.seat.rank == 0;
    let every = |folder: &Folder, checkpoints: Result<_, CheckpointError>| {
        let steps = folder.every;
        Ok::<_, RunError>(Checkpointing::Every { steps, checkpoints: checkpoints? })
    };
    Ok(match &options.keep {
        Keep::Nothing => (fresh, Checkpointing::Never),
        Keep::Start(folder) if !first => {
            (fresh, Checkpointing::Elsewhere { steps: folder.every })
        }
        Keep::Start(folder) => {
            (fresh, every(folder, Checkpoints::start(&folder.path, provenance))?)
        }
        Keep::Resume(folder) => {
            if let Some(file) = &options.weights {
                return Err(RunError::TwoStarts(file.clone()));
            }
            let found = Resumption::of(&folder.path, schedule, &provenance)?;
            match first {
                true => {
                    let kept = Checkpoints::open(&folder.path, provenance);
                    (found, every(folder, kept)?)
                }
                false => (found, Checkpointing::Elsewhere { steps: folder.every }),
            }
        }
    })
}

fn evaluating(evaluation: Evaluation, data: &Dataset) -> Result<Evaluating, RunError> {
    Ok(match evaluation {
        Evaluation::Never => Evaluating::Never,
        Evaluation::Every(steps) => {
            let held_out = Box::new(data.held_out(HeldOut::EXAMPLES)?);
            Evaluating::Every { steps, held_out }
        }
    })
}

/// Turns what the training loop says into events.
struct Listening<'a, F> {
    listener: &'a mut F,
    /// Whether a loss was no number.
    lost: bool,
}

impl<F: FnMut(RunEvent)> Observer for Listening<'_, F> {
    fn step(&mut self, progress: &Progress) {
        let Progress { step, loss, samples_per_second, elapsed } = *progress;
        (self.listener)(RunEvent::Step { step, loss, samples_per_second, elapsed });
        if !loss.is_finite() && !std::mem::replace(&mut self.lost, true) {
            let text = format!(
                "the loss of step {step} is {loss}, and later ones may be none either: try a \
                 smaller learning rate or `clip`, and look at weights and data"
            );
            (self.listener)(RunEvent::Note(text));
        }
    }
    fn evaluated(&mut self, step: u64, measures: &Measures) {
        let Measures { loss, metrics } = measures.clone();
        (self.listener)(RunEvent::Evaluate { step, loss, metrics });
    }
    fn rested(&mut self, _: u64) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}
