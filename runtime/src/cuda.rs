//! The CUDA machine: all devices of a schedule on one GPU, or one of them (`rank.rs`); lanes as
//! streams, waits as events, whole periods as graphs.
//!
//! One thread issues everything. Memory is as the schedule says: one block per pool, in it the
//! arenas of its devices with exactly the schedule's offsets; what kernels, products and the
//! host need besides is allocated before the start and reported apart.

mod arena;
mod bounce;
mod code;
mod compile;
mod copies;
mod driver;
mod error;
mod exchange;
mod functions;
mod issue;
mod kernel_check;
mod lanes;
mod moves;
mod multiplier;
mod periods;
mod products;
mod rank;
mod record;
mod self_check;
mod session;
mod staging;
mod touched;

pub use copies::gpu_copies;
pub use driver::{DeviceFacts, DriverError, NoCuda};
pub use error::CudaError;
pub use kernel_check::{
    KernelCheck, KernelRow, KernelTrials, TriedProducts, check_kernels, is_formless,
};
pub use periods::Ungraphed;
pub use self_check::{Exercise, RankFacts, Row, SelfCheck, self_check};

use crate::{
    feed::Feed,
    machine::{
        Fill, Loss, Measured, Members, Meter, OnGpus, POISON, ProductCounts, Queues,
        Record, Touched, members, touched,
    },
    ranks::{Control, Position},
    state::{State, rows},
};
use arena::Arenas;
use bounce::{Bounce, Unreached, alone, wait};
use code::{Code, ReadyCall};
use driver::{Device, Event};
use lanes::{Homes, Lanes, Mark, Marked};
use periods::Periods;
use rank::{Rank, Seated, Share, of_rank};
use record::Recorder;
use roundelay_schedule::{
    Action, Checked, DeviceId, GroupId, Kind, Marks, Segment, Table, Work, replay,
};
use session::Session;
use staging::Staging;
use std::{collections::BTreeMap, mem::ManuallyDrop, sync::Arc, time::Duration};

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

/// Whether a machine keeps the times of actions and calls; changes no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// It does not.
    Dropped,
    /// It does, and records no graphs.
    Kept,
}

/// Whether periods are recorded as graphs; changes no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Graphs {
    /// Whole periods of the steady state.
    Periods,
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
    step: u64,
    origin: u64,
    first: u64,
    failure: Option<CudaError>,
}

/// Everything that a replay works with; dropped from first to last.
struct Engine {
    share: Share,
    periods: Periods,
    marked: Marked,
    lanes: Lanes,
    staging: Staging,
    bounce: Bounce,
    arenas: Arenas,
    code: Code,
    device: Device,
    schedule: Arc<Checked>,
    queues: Queues,
    /// Instances issued, by queue.
    issued: Vec<u64>,
    coordinates: Vec<Vec<u32>>,
    /// Numbers of the coordinates that this process has devices at.
    own: Vec<usize>,
    /// The number of each coordinate among those that take micro-batches of their own.
    batches: Vec<u64>,
    members: Table<GroupId, Members>,
    meter: Meter,
    recorder: Option<Recorder>,
    feed: Box<dyn Feed>,
    patience: Duration,
}

impl Cuda {
    /// How many GPUs are here.
    ///
    /// # Errors
    /// When there is no CUDA.
    pub fn count() -> Result<u32, NoCuda> {
        Device::count()
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
        let seated = Seated::of(schedule, &control)?;
        let device = of_rank(control.seat())?;
        let among = Some((control, seated));
        Ok(Self::of(Engine::new(schedule, feed, options, (device, among))?, options))
    }

    fn of(engine: Engine, options: CudaOptions) -> Self {
        Self {
            marks: Marks::new(&engine.schedule),
            engine: ManuallyDrop::new(engine),
            fill: options.fill,
            step: 0,
            origin: 0,
            first: 0,
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

    /// T: the next training step.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// What is known of the GPU.
    pub fn facts(&self) -> &DeviceFacts {
        self.engine.device.facts()
    }

    /// Graphs that were recorded so far.
    pub fn graphs(&self) -> usize {
        self.engine.periods.graphs()
    }

    /// Why no period is recorded as a graph, if none is.
    pub fn ungraphed(&self) -> Option<&Ungraphed> {
        self.engine.periods.why_not()
    }

    /// Who makes the matrix products of the schedule here.
    pub fn products(&self) -> &ProductCounts {
        self.engine.code.products()
    }

    /// Fills every carried row; the next step is the state's. What is measured starts anew.
    ///
    /// # Errors
    /// When the state is of another model or lacks a version that the rule reads, or when
    /// something failed before.
    pub fn load(&mut self, state: &State) -> Result<(), CudaError> {
        let fill = self.fill;
        self.attempt(|engine| engine.load(state, fill))?;
        (self.step, self.origin) = (state.step, state.origin);
        self.first = state.step;
        self.engine.meter.reset();
        self.engine.at(Position::Resting { step: self.step });
        Ok(())
    }

    /// The training state, in global terms: on the first rank, and on others none; all ranks save.
    ///
    /// # Errors
    /// When the device failed, or something goes wrong on another rank.
    pub fn save(&mut self) -> Result<Option<State>, CudaError> {
        let (step, origin) = (self.step, self.origin);
        self.attempt(|engine| engine.save(step, origin))
    }

    /// Runs the training steps from here to `end` and comes to rest. The listener gets every loss
    /// on the calling thread, micro-batches of one step not necessarily in order.
    ///
    /// # Errors
    /// When an action failed or nothing moves any more; the machine cannot be used afterwards.
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
        let segment = Segment { first: self.step, end: end.max(self.step) };
        let Self { engine, marks, failure, .. } = self;
        if let Some(failure) = failure {
            return Err(failure.clone());
        }
        let schedule = Arc::clone(&engine.schedule);
        engine.enter()?;
        engine.start_times()?;
        engine.periods.start(&schedule, segment);
        let next = segment.periods(&schedule).start;
        let mut session = Session { engine, next, listener, goes_on };
        match replay(&schedule, segment, &mut session, marks) {
            Ok(done) => {
                self.step = done.end;
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

    /// What was counted since the state was loaded, on the first rank by all of them. Times of
    /// routines are not taken.
    ///
    /// # Errors
    /// When the device failed, or something goes wrong on another rank.
    pub fn measured(&mut self) -> Result<Measured, CudaError> {
        let steps = self.step - self.first;
        self.attempt(|engine| {
            let Engine {
                meter,
                schedule,
                arenas,
                lanes,
                staging,
                share,
                periods,
                code,
                ..
            } = &*engine;
            let measured = meter.read(schedule, steps, arenas.sizes());
            let mut beside = lanes.scratch_bytes() + staging.device_bytes();
            if let Share::Part(rank) = share {
                beside += rank.device_bytes();
            }
            let kernels = engine.kernels();
            let gpus = Some(OnGpus {
                graphs: periods.graphs() as u64,
                ungraphed: periods.none_kept(),
                handed: arenas.handed(),
                page: arenas.page(),
                products: code.products().clone(),
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

impl Engine {
    fn new(
        schedule: &Checked,
        feed: Box<dyn Feed>,
        options: CudaOptions,
        (device, among): (Device, Option<(Arc<Control>, Seated)>),
    ) -> Result<Self, CudaError> {
        let refused = |what: &'static str| {
            let device = device.facts().to_string();
            move |reason| CudaError::Refused { device, what: what.to_owned(), reason }
        };
        device.enter().map_err(refused("its context"))?;
        let queues = Queues::new(schedule);
        let seated = among.as_ref().map(|(_, seated)| *seated);
        let here = |own| seated.is_none_or(|seated| seated.device == own);
        let arenas = Arenas::new(schedule, &device, here)?;
        let code = Code::new(schedule, &device)?;
        let homes = seated.map_or_else(|| Homes::all(&queues), |own| own.homes(&queues));
        let lanes = Lanes::new(schedule, &queues, &code, (&device, homes))?;
        let coordinates = schedule.coordinates();
        let own = seated
            .map_or_else(|| (0..coordinates.len()).collect(), |own| vec![own.coordinate]);
        let staging = Staging::new(schedule, &device, own.len())?;
        let bounce = Bounce::new().map_err(refused("pinned host memory"))?;
        let share = match among {
            None => Share::Whole,
            Some(among) => {
                let rank = Rank::new(schedule, &queues, &device, among, &lanes)?;
                Share::Part(Box::new(rank))
            }
        };
        let (graphs, recorder) = match options.times {
            Times::Dropped => (options.graphs, None),
            Times::Kept => {
                (Graphs::Never, Some(Recorder::new().map_err(refused("events"))?))
            }
        };
        let periods = Periods::new(schedule, graphs, &share);
        Ok(Self {
            periods: periods.map_err(refused("events"))?,
            share,
            marked: Marked::new(schedule, &queues).map_err(refused("events"))?,
            lanes,
            staging,
            bounce,
            arenas,
            code,
            schedule: Arc::new(schedule.clone()),
            issued: vec![0; queues.len()],
            queues,
            batches: (coordinates.iter())
                .map(|coordinate| u64::from(schedule.batch_of(coordinate)))
                .collect(),
            coordinates,
            own,
            members: schedule.groups.values().map(|g| members(schedule, g)).collect(),
            meter: Meter::new(schedule),
            recorder,
            feed,
            patience: options.deadline,
            device,
        })
    }

    fn enter(&self) -> Result<(), CudaError> {
        self.device.enter().map_err(|reason| self.refused("its context", reason))
    }

    /// Times count from here, if they are kept.
    fn start_times(&mut self) -> Result<(), CudaError> {
        let Some(recorder) = &mut self.recorder else { return Ok(()) };
        let started = recorder.start(&self.lanes.origin);
        started.map_err(|reason| self.refused("an event", reason))
    }

    /// Something that is no action, and that the device refuses.
    fn refused(&self, what: &str, reason: DriverError) -> CudaError {
        let device = self.device.facts().to_string();
        CudaError::Refused { device, what: what.to_owned(), reason }
    }

    fn load(&mut self, state: &State, fill: Fill) -> Result<(), CudaError> {
        self.fill(fill)?;
        let schedule = Arc::clone(&self.schedule);
        rows::load(&schedule, state, |device, start, bytes| {
            match self.arenas.has(device) {
                true => self.write(device, start, bytes),
                false => Ok(()),
            }
        })
    }

    /// Functions and products that launches of one training step give to this process's devices.
    fn kernels(&self) -> u64 {
        let launched = |action: &Action| {
            let Work::Launch { at, routine, .. } = &action.work else { return 0 };
            let steps = self.code.routines[*routine].calls.iter().map(ReadyCall::steps);
            steps.sum::<u64>() * self.here(*at, 0).len() as u64
        };
        self.schedule.actions.values().map(launched).sum()
    }

    fn fill(&mut self, fill: Fill) -> Result<(), CudaError> {
        let byte = match fill {
            Fill::Zero => 0,
            Fill::Poison => POISON,
        };
        let origin = &self.lanes.origin;
        let mut arenas = self.arenas.all();
        let filled =
            arenas.try_for_each(|(start, size)| origin.fill(start, byte, size.0));
        filled.map_err(|reason| self.refused("to fill its memory", reason))
    }

    fn write(
        &mut self,
        device: DeviceId,
        start: u64,
        bytes: &[u8],
    ) -> Result<(), CudaError> {
        let to = self.arenas.at(device, start);
        let moved = self.bounce.write(&self.lanes.origin, to, bytes, self.patience);
        moved.map_err(|unreached| self.unmoved(unreached))
    }

    fn read(
        &mut self,
        device: DeviceId,
        start: u64,
        bytes: &mut [u8],
    ) -> Result<(), CudaError> {
        let from = self.arenas.at(device, start);
        let moved = self.bounce.read(&self.lanes.origin, from, bytes, self.patience);
        moved.map_err(|unreached| self.unmoved(unreached))
    }

    fn unmoved(&self, unreached: Unreached) -> CudaError {
        let late = |patience: Duration| DriverError {
            call: "cuEventQuery",
            reason: format!("a copy was not done within {patience:?}"),
            code: 0,
        };
        match unreached {
            Unreached::Broken(reason) => self.refused("a copy of its memory", reason),
            Unreached::Late | Unreached::Called(_) => {
                self.refused("a copy of its memory", late(self.patience))
            }
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
        let given_up = matches!(self.failure, Some(CudaError::Stuck { .. }));
        if !given_up && self.engine.is_idle() {
            // SAFETY: the engine is not used again, and the device does nothing with it.
            unsafe { ManuallyDrop::drop(&mut self.engine) };
        }
    }
}

impl Engine {
    /// Whether everything that was issued is known to be done.
    fn is_idle(&self) -> bool {
        let joined = Event::new().and_then(|idle| {
            self.lanes.join()?;
            self.lanes.origin.record(&idle)?;
            Ok(idle)
        });
        joined.is_ok_and(|idle| wait(&idle, self.patience.min(IDLE), &mut alone).is_ok())
    }
}
