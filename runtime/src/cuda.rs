//! The CUDA machine: all devices of a schedule on one GPU, or one of them (`rank.rs`); lanes as
//! streams, waits as events, whole periods as graphs.
//!
//! One thread issues everything. Memory is as the schedule says: one block per pool, in it the
//! arenas of its devices with exactly the schedule's offsets; what kernels, products and the
//! host need besides is allocated before the start and reported apart.

mod ahead;
mod arena;
mod bounce;
mod copies;
mod driver;
mod engine;
mod error;
mod exchange;
mod issue;
mod kernel_check;
mod lanes;
mod launches;
mod likeness;
mod moves;
mod passes;
mod periods;
mod progress;
mod rank;
mod ready;
mod record;
mod self_check;
mod session;
mod staging;
mod touched;

pub use copies::gpu_copies;
pub use driver::{DeviceFacts, DriverError, NoCuda};
pub use error::CudaError;
pub use kernel_check::{
    KernelCheck, KernelRow, KernelTrials, TriedKernel, TriedProducts, Untried,
    check_kernels,
};
pub(crate) use passes::GpuPasses;
pub use periods::Ungraphed;
pub use ready::{Came, Compilation, LibrarySteps, compile_kernels};
pub use self_check::{Exercise, RankFacts, SelfCheck, SelfCheckRow, self_check};

use crate::{
    evaluate::OnGpu,
    feed::Feed,
    machine::{
        AttentionCounts, Course, Fill, Loss, Makers, Measured, OnGpus, Record, Touched,
        Unready, touched,
    },
    ranks::{Among, Control, Position, Seat, Share},
    state::{
        ArrayNumbers, Extent, Moment, State,
        gather::{self, Taker},
    },
};
use driver::Device;
use engine::Engine;
use lanes::Mark;
use rank::{Rank, ordinal_of};
use record::{Look, Recorder};
use roundelay_schedule::{Bytes, Checked, DeviceId, Kind, Marks, Nanos, replay};
use session::Session;
use std::{
    collections::BTreeMap,
    mem::{self, ManuallyDrop},
    sync::Arc,
    time::Duration,
};

/// How a CUDA machine is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CudaOptions {
    /// Number of the GPU.
    pub ordinal: u32,
    /// What arenas hold before the first use.
    pub fill: Fill,
    /// Whether periods are recorded as graphs.
    pub graphs: Graphs,
    /// Whether times are kept.
    pub times: Times,
    /// A replay in which nothing is completed for so long is given up.
    pub deadline: Duration,
}

/// Whether a machine keeps the times of actions and calls; changes no number, for what is chosen by trials is
/// chosen as for a machine that keeps none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// It does not.
    Dropped,
    /// It does: events stand between calls, and periods are no graphs, but where nothing but their
    /// pace is looked at ([`Cuda::pace`]).
    Kept,
}

/// What is recorded as graphs; changes no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Graphs {
    /// Whole periods of the steady state; launches where no period can be.
    Periods,
    /// Launches of routines, each for itself.
    Launches,
    /// Every action is given to the device anew.
    Never,
}

impl Default for CudaOptions {
    fn default() -> Self {
        let deadline = Duration::from_secs(600);
        let (fill, graphs, times) = (Fill::Zero, Graphs::Periods, Times::Dropped);
        Self { ordinal: 0, fill, graphs, times, deadline }
    }
}

/// How long work is waited for that is of no use any more.
const IDLE: Duration = Duration::from_secs(10);

/// A GPU as a set of devices that replay one schedule, or as one of them.
pub struct Cuda {
    engine: ManuallyDrop<Engine>,
    marks: Marks<Mark>,
    fill: Fill,
    course: Course,
    failure: Option<CudaError>,
}

impl Cuda {
    /// How many GPUs are here.
    ///
    /// # Errors
    /// When there is no CUDA.
    pub fn count() -> Result<u32, NoCuda> {
        Device::count()
    }

    /// The number of the GPU that a rank takes: its own number on the machine, or that of the only one
    /// that it sees.
    ///
    /// # Errors
    /// When there is none.
    pub fn ordinal_of(seat: &Seat) -> Result<u32, CudaError> {
        ordinal_of(seat)
    }

    /// What is known of every GPU here.
    ///
    /// # Errors
    /// When there is no CUDA.
    pub fn devices() -> Result<Vec<DeviceFacts>, NoCuda> {
        (0..Device::count()?).map(Device::look).collect()
    }

    /// What is known of one of them.
    ///
    /// # Errors
    /// When there is no CUDA, or no such GPU.
    pub fn facts_of(ordinal: u32) -> Result<DeviceFacts, NoCuda> {
        Device::look(ordinal)
    }

    /// Compiles all kernels, allocates all memory and makes all streams. Nothing is loaded yet.
    ///
    /// # Errors
    /// When CUDA is missing, a kernel call is malformed, a kernel is not compiled, or the GPU has
    /// too little memory.
    pub fn new(
        schedule: &Checked,
        feed: Box<dyn Feed>,
        options: CudaOptions,
    ) -> Result<Self, CudaError> {
        let device = Device::open(options.ordinal)?;
        Ok(Self::of(Engine::new(schedule, feed, options, (device, None))?, options))
    }

    /// Like [`Cuda::new`], for one device of the schedule; the others are other ranks'. All ranks
    /// make their machines, load, replay and save alike, each with its own GPU.
    ///
    /// # Errors
    /// As [`Cuda::new`], and when there are not as many ranks as devices, or something goes wrong
    /// on one of them.
    pub fn of_rank(
        schedule: &Checked,
        feed: Box<dyn Feed>,
        options: CudaOptions,
        control: Arc<Control>,
    ) -> Result<Self, CudaError> {
        let among = Among::of(schedule, control)?;
        let device = Device::open(ordinal_of(among.control.seat())?)?;
        let among = (device, Some(among));
        Ok(Self::of(Engine::new(schedule, feed, options, among)?, options))
    }

    fn of(engine: Engine, options: CudaOptions) -> Self {
        Self {
            marks: Marks::new(&engine.schedule),
            engine: ManuallyDrop::new(engine),
            fill: options.fill,
            course: Course::default(),
            failure: None,
        }
    }

    /// Parts from the other ranks, when all is done; all ranks do.
    ///
    /// # Errors
    /// When something goes wrong on one of them.
    pub fn leave(&mut self) -> Result<(), CudaError> {
        self.attempt(Engine::leave)
    }

    /// Whether some rank wishes something; all ranks ask.
    ///
    /// # Errors
    /// When something goes wrong on one of them.
    pub fn any(&mut self, wish: bool) -> Result<bool, CudaError> {
        self.attempt(|engine| engine.any(wish))
    }

    /// The schedule that is replayed.
    pub fn schedule(&self) -> &Checked {
        &self.engine.schedule
    }

    /// T: the next training step; 0 before a state is loaded.
    pub fn step(&self) -> u64 {
        self.course.step()
    }

    /// What is known of the GPU.
    pub fn facts(&self) -> &DeviceFacts {
        self.engine.device.facts()
    }

    /// Whether this is the first rank, or the only one.
    pub fn is_first(&self) -> bool {
        self.engine.share.rank().is_none_or(|rank| rank.among.is_first())
    }

    /// Where something else on the same GPU is, with the same deadline.
    pub fn beside(&self) -> OnGpu {
        let ordinal = self.engine.device.facts().ordinal;
        OnGpu { ordinal, deadline: self.engine.deadline }
    }

    /// Graphs of whole periods that were recorded so far.
    pub fn graphs(&self) -> usize {
        self.engine.periods.graphs()
    }

    /// Graphs of launches that were recorded so far.
    pub fn launch_graphs(&self) -> usize {
        self.engine.launches.graphs()
    }

    /// Why no period is recorded as a graph, if none is.
    pub fn ungraphed(&self) -> Option<&Ungraphed> {
        self.engine.periods.why_not()
    }

    /// In words the first way of making something that was left out, because it cannot be part of a graph.
    pub fn unrecorded(&self) -> Option<&str> {
        self.engine.code.unrecorded()
    }

    /// In words the first thing that is made in the way that comes first, because a trial of its ways could not
    /// be made, or not to its end.
    pub fn untried(&self) -> Option<&str> {
        self.engine.code.untried()
    }

    /// Who makes the matrix products of the schedule here.
    pub fn products(&self) -> &Makers {
        self.engine.code.products()
    }

    /// Who makes its convolutions that are no products.
    pub fn convolutions(&self) -> &Makers {
        self.engine.code.convolutions()
    }

    /// By which functions its attention is made.
    pub fn attention(&self) -> &AttentionCounts {
        self.engine.code.attention()
    }

    /// Fills every carried row; the next step is the state's. What is measured starts anew.
    ///
    /// # Errors
    /// When the state is of another model, or when something failed before; then what was loaded stays. When
    /// the state lacks a version that the rule reads, or cannot be read; then nothing is loaded.
    pub fn load<A: ArrayNumbers>(&mut self, state: &State<A>) -> Result<(), CudaError> {
        let fill = self.fill;
        self.attempt(|engine| Ok(state.fits(&engine.schedule.job)?))?;
        // Where an array cannot be read, nothing is left of what was there.
        self.course = Course::default();
        self.attempt(|engine| engine.load(state, fill))?;
        self.course = Course::from(state.moment());
        self.engine.meter.reset();
        self.engine.at(Position::Resting { step: state.step });
        Ok(())
    }

    /// The training state, in global terms: on the first rank, and on others none; all ranks save.
    ///
    /// # Errors
    /// When nothing was loaded, the device failed, or something goes wrong on another rank.
    pub fn save(&mut self) -> Result<Option<State>, CudaError> {
        self.gather(Extent::Whole)
    }

    /// The newest parameters, as a state without optimizer state and older versions: what a look at held-out
    /// data and a file of weights take. As [`Cuda::save`] otherwise.
    ///
    /// # Errors
    /// As [`Cuda::save`].
    pub fn newest(&mut self) -> Result<Option<State>, CudaError> {
        self.gather(Extent::Parameters)
    }

    fn gather(&mut self, extent: Extent) -> Result<Option<State>, CudaError> {
        let moment = self.moment()?;
        let gathered =
            gather::gathered(moment, extent, |take| self.hand_over(extent, take))?;
        Ok(self.is_first().then(|| gathered.state(&self.schedule().job)))
    }

    /// Where it rests.
    pub(crate) fn moment(&self) -> Result<Moment, CudaError> {
        Ok(self.course.here()?)
    }

    /// Hands so much of the state over on the first rank, array by array; all ranks call this.
    pub(crate) fn hand_over(
        &mut self,
        extent: Extent,
        take: &mut Taker<'_>,
    ) -> Result<(), CudaError> {
        let wanted = (self.moment()?, extent);
        self.attempt(|engine| engine.save(wanted, take))
    }

    /// Runs the training steps from here to `end` and comes to rest. The listener gets every loss
    /// on the calling thread, micro-batches of one step not necessarily in order.
    ///
    /// # Errors
    /// When nothing was loaded; when an action failed or nothing moves any more, and then the machine
    /// cannot be used afterwards.
    pub fn replay(
        &mut self,
        end: u64,
        listener: &mut dyn FnMut(Loss),
    ) -> Result<(), CudaError> {
        self.replay_while(end, listener, &mut || true)
    }

    /// Like [`Cuda::replay`], but comes to rest early once `goes_on` says no: after the steps that
    /// were begun, and at least one. It is asked before every period; where it says no changes
    /// no number.
    ///
    /// # Errors
    /// As [`Cuda::replay`].
    pub fn replay_while(
        &mut self,
        end: u64,
        listener: &mut dyn FnMut(Loss),
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<(), CudaError> {
        let segment = self.course.segment(end)?;
        let Self { engine, marks, failure, .. } = self;
        if let Some(failure) = failure {
            return Err(failure.clone());
        }
        let schedule = Arc::clone(&engine.schedule);
        engine.enter()?;
        engine.start_times()?;
        let graphs = engine.graphs();
        engine.periods.start(&schedule, segment, graphs);
        let next = segment.periods(&schedule).start;
        engine.progress.start(next);
        let rank = engine.share.rank();
        let control = rank.map(|rank| Arc::clone(&rank.among.control));
        let mut session = Session { engine, next, listener, goes_on };
        let unfinished = Unfinished { failure, control };
        let done = replay(&schedule, segment, &mut session, marks);
        unfinished.finished();
        match done {
            Ok(done) => {
                self.course.reach(done.end);
                self.engine.at(Position::Resting { step: done.end });
            }
            Err(error) => {
                self.engine.staging.forget();
                self.failure = Some(error.clone());
                return Err(error);
            }
        }
        Ok(())
    }

    /// Like [`Cuda::replay`], but as a machine that keeps no times does it: without events between
    /// calls, and with graphs. Says what steady periods took; nothing where no times are kept.
    ///
    /// # Errors
    /// As [`Cuda::replay`].
    pub fn pace(&mut self, end: u64) -> Result<Vec<Nanos>, CudaError> {
        self.engine.look_at(Look::Periods);
        let replayed = self.replay(end, &mut |_| ());
        let record = replayed.and_then(|()| self.record());
        self.engine.look_at(Look::Calls);
        Ok(record?.periods)
    }

    /// What was counted since the state was loaded, on the first rank by all of them. Times of
    /// routines are not taken.
    ///
    /// # Errors
    /// When the device failed, or something goes wrong on another rank.
    pub fn measured(&mut self) -> Result<Measured, CudaError> {
        let steps = self.course.steps();
        self.attempt(|engine| {
            let Engine {
                meter,
                schedule,
                arenas,
                lanes,
                staging,
                share,
                periods,
                launches,
                code,
                ..
            } = &*engine;
            let measured = meter.read(schedule, steps, arenas.sizes());
            let mut beside = lanes.scratch_bytes() + staging.device_bytes();
            let rank = share.rank();
            beside += rank.map_or(Bytes(0), Rank::device_bytes);
            let kernels = engine.kernels();
            let gpus = Some(OnGpus {
                graphs: periods.graphs() as u64,
                launch_graphs: launches.graphs() as u64,
                ungraphed: periods.none_kept(),
                unrecorded: code.unrecorded().map(str::to_owned),
                untried: code.untried().map(str::to_owned),
                handed: arenas.handed(),
                page: arenas.page(),
                connections: rank.map_or(Bytes(0), |rank| rank.peers.taken()),
                products: code.products().clone(),
                convolutions: code.convolutions().clone(),
                attention: code.attention().clone(),
            });
            engine.sum_up(Measured { beside, kernels, gpus, ..measured })
        })
    }

    /// What was done in the last replay, and when; nothing where no times are kept.
    ///
    /// # Errors
    /// When the device failed.
    pub fn record(&mut self) -> Result<Record, CudaError> {
        self.attempt(|engine| match engine.recorder.as_mut().map(Recorder::take) {
            Some(taken) => {
                taken.map_err(|reason| engine.refused("the times of events", reason))
            }
            None => Ok(Record::default()),
        })
    }

    /// What was really used of each kind of memory, since the state was loaded, on the first rank
    /// of all of them; needs [`Fill::Poison`]. Carried rows count as a whole.
    ///
    /// # Errors
    /// When the device failed, or something goes wrong on another rank.
    pub fn touched(&mut self) -> Result<BTreeMap<(DeviceId, Kind), Touched>, CudaError> {
        self.attempt(|engine| {
            let schedule = Arc::clone(&engine.schedule);
            let sizes = engine.arenas.sizes();
            let here = |device| sizes.contains_key(&device);
            let counts = engine.counts()?;
            let own = touched(&schedule, here, |device, range| {
                engine.touched_in(&counts, device, range)
            })?;
            engine.gather_touched(own)
        })
    }

    /// Does something at rest, unless the device failed.
    fn attempt<T>(
        &mut self,
        work: impl FnOnce(&mut Engine) -> Result<T, CudaError>,
    ) -> Result<T, CudaError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        self.engine.enter()?;
        work(&mut self.engine)
    }
}

/// A replay under way: dropped only where a panic leads out of it, after which nobody knows what the
/// device still does.
struct Unfinished<'a> {
    failure: &'a mut Option<CudaError>,
    /// Other ranks hear of it.
    control: Option<Arc<Control>>,
}

impl Unfinished<'_> {
    /// It came to its end.
    fn finished(mut self) {
        drop(self.control.take());
        mem::forget(self);
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        *self.failure = Some(Unready::Left.into());
        if let Some(control) = &self.control {
            control.fail(&Unready::Left.to_string());
        }
    }
}

impl Drop for Cuda {
    /// What streams still do with the memory is waited for; where it does not end, the memory is
    /// left to the end of the process.
    #[expect(unsafe_code, reason = "that the device is idle is known here")]
    fn drop(&mut self) {
        if let Share::Part(rank) = &mut self.engine.share {
            rank.peers.abort();
        }
        // What came last on this thread may have been another GPU's.
        let entered = self.engine.enter().is_ok();
        let given_up = matches!(self.failure, Some(CudaError::Stuck { .. }));
        if entered && !given_up && self.engine.is_idle() {
            // SAFETY: the engine is not used again, and the device does nothing with it.
            unsafe { ManuallyDrop::drop(&mut self.engine) };
        }
    }
}
