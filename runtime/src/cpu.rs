//! The CPU machine: a thread per queue, an arena per device, transfers by copying.
//!
//! The driver writes commands into bounded rings, one per queue thread. A queue completes its
//! commands in order, so "done" is one counter per thread, and a mark is a queue with a number.
//! Everything is allocated when the machine is made; a replay allocates nothing, but for messages where
//! it is one of several ranks.
#![expect(unsafe_code, reason = "that the machine is at rest is known here")]

#[cfg(test)]
mod adjoints;
mod arena;
mod collective;
mod command;
mod correspondence;
mod counter;
mod error;
mod execute;
mod jitter;
mod launch;
mod rank;
mod record;
mod rendezvous;
mod room;
mod serve;
mod session;

pub use error::CpuError;
pub use jitter::Timing;
pub use record::Recording;
pub use room::{ArenaDemand, Demand, Kept};
pub(crate) use serve::said;

use crate::{
    code::Code,
    feed::Feed,
    lock::lock,
    machine::{
        Batches, Course, Fill, Loss, Measured, Members, Meter, Queues, Record, Touched,
        Unready, describe, members,
    },
    memory::Claim,
    ranks::{Position, Share},
    shares::Completed,
    state::{
        ArrayNumbers, Extent, Moment, State, StateError,
        gather::{self, Taker},
        rows,
    },
};
use arena::Arenas;
use command::Mark;
use counter::Parking;
use rank::Rank;
use record::Recorder;
use rendezvous::Booth;
use roundelay_schedule::{
    Checked, DeviceId, GroupId, Kind, Marks, RoutineId, Table, replay,
};
use serve::Lane;
use session::{Driver, Session};
use std::{
    collections::BTreeMap,
    mem,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Commands under way per queue thread.
const CAPACITY: u64 = 256;

/// Periods under way besides those that the lags of a schedule keep open.
const AHEAD: usize = 2;

/// Losses that wait for the driver without more memory.
const LOSSES: usize = 4096;

/// How a machine is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuOptions {
    /// What arenas hold before the first use.
    pub fill: Fill,
    /// How time is treated.
    pub timing: Timing,
    /// A replay in which nothing is completed for so long is given up.
    pub deadline: Duration,
    /// Whether times are kept, for [`Cpu::record`].
    pub recording: Recording,
}

impl Default for CpuOptions {
    fn default() -> Self {
        let deadline = Duration::from_secs(600);
        let (fill, timing) = (Fill::Zero, Timing::Natural);
        Self { fill, timing, deadline, recording: Recording::Off }
    }
}

/// The CPU as a set of devices that replay one schedule, or as one of them.
pub struct Cpu {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    driver: Driver,
    marks: Marks<Mark>,
    fill: Fill,
    course: Course,
}

/// What the driver and all queue threads share.
struct Shared {
    schedule: Checked,
    code: Table<RoutineId, Code>,
    coordinates: Vec<Vec<u32>>,
    batches: Batches,
    members: Table<GroupId, Members>,
    queues: Queues,
    lanes: Vec<Lane>,
    /// One per thread, where rows split tensors.
    booths: Vec<Booth>,
    parking: Parking,
    share: Share<Rank>,
    arenas: Arenas,
    meter: Meter,
    recorder: Option<Recorder>,
    /// That of the state; written at rest alone, before anything is issued.
    optimizer_origin: AtomicU64,
    feed: Mutex<Box<dyn Feed>>,
    /// Number of the feed that has it, counted from one.
    feeding: AtomicUsize,
    losses: Mutex<Vec<Loss>>,
    failure: Mutex<Option<CpuError>>,
}

impl Cpu {
    /// Allocates arenas and starts a thread per queue. Nothing is loaded yet.
    ///
    /// # Errors
    /// When a kernel call is malformed, there is too little memory, or a thread cannot be started.
    pub fn new(
        schedule: &Checked,
        feed: Box<dyn Feed>,
        options: CpuOptions,
    ) -> Result<Self, CpuError> {
        Self::with(schedule, feed, options, Share::Whole)
    }

    /// The same with the devices of a share.
    fn with(
        schedule: &Checked,
        feed: Box<dyn Feed>,
        options: CpuOptions,
        share: Share<Rank>,
    ) -> Result<Self, CpuError> {
        let shared = Arc::new(Shared::new(schedule, (feed, share), options.recording)?);
        let mut cpu = Self {
            driver: Driver::new(
                shared.queues.len(),
                most_waits(schedule),
                schedule.span().0 as usize + AHEAD,
                options.deadline,
            ),
            marks: Marks::new(schedule),
            threads: Vec::new(),
            fill: options.fill,
            course: Course::default(),
            shared,
        };
        for thread in 0..cpu.shared.queues.threads() {
            let handle = start(&cpu.shared, thread, options.timing)?;
            cpu.threads.push(handle);
        }
        Ok(cpu)
    }

    /// Looks whether this machine has the memory for a schedule and what is gathered to be kept.
    ///
    /// # Errors
    /// When it says that it has too little.
    pub fn room(schedule: &Checked, kept: Kept) -> Result<(), CpuError> {
        room::for_all(schedule, kept)
    }

    /// Looks whether this machine has the memory to look at held-out data with a schedule's forward
    /// passes.
    ///
    /// # Errors
    /// When it says that it has too little.
    pub fn room_to_evaluate(schedule: &Checked) -> Result<(), CpuError> {
        room::for_evaluation(schedule)
    }

    /// The schedule that is replayed.
    pub fn schedule(&self) -> &Checked {
        &self.shared.schedule
    }

    /// T: the next training step; 0 before a state is loaded.
    pub fn step(&self) -> u64 {
        self.course.step()
    }

    /// Fills every carried row; the next step is the state's. What is measured starts anew.
    ///
    /// # Errors
    /// When the state is of another model, or when a replay failed before; then what was loaded stays. When
    /// the state lacks a version that the rule reads, or cannot be read; then nothing is loaded.
    pub fn load<A: ArrayNumbers>(&mut self, state: &State<A>) -> Result<(), CpuError> {
        let fill = self.fill;
        let (Shared { schedule, .. }, _) = self.at_rest()?;
        state.fits(&schedule.job)?;
        // Where an array cannot be read, nothing is left of what was there.
        self.course = Course::default();
        let (Shared { arenas, schedule, .. }, mut claim) = self.at_rest()?;
        if fill == Fill::Poison {
            arenas.poison(&mut claim);
        }
        let has = |device| arenas.has(device);
        rows::load::<_, StateError>(schedule, state, has, |device, start, bytes| {
            let range = start..start + bytes.len() as u64;
            arenas.of(device).write(&mut claim, range).copy_from_slice(bytes);
            Ok(())
        })?;
        self.course = Course::from(state.moment());
        self.shared.meter.reset();
        let origin = state.optimizer_origin;
        self.shared.optimizer_origin.store(origin, Ordering::Relaxed);
        self.shared.rests(state.step);
        Ok(())
    }

    /// The training state, in global terms: on the first rank, and on others none; all ranks save.
    ///
    /// # Errors
    /// When nothing was loaded, a replay failed before, or something goes wrong on another rank.
    pub fn save(&mut self) -> Result<Option<State>, CpuError> {
        self.gather(Extent::Whole)
    }

    /// The newest parameters, as a state without optimizer state and older versions: what a look at held-out
    /// data and a file of weights take. As [`Cpu::save`] otherwise.
    ///
    /// # Errors
    /// As [`Cpu::save`].
    pub fn newest(&mut self) -> Result<Option<State>, CpuError> {
        self.gather(Extent::Parameters)
    }

    fn gather(&mut self, extent: Extent) -> Result<Option<State>, CpuError> {
        let moment = self.moment()?;
        let gathered =
            gather::gathered(moment, extent, |take| self.hand_over(extent, take))?;
        Ok(self.is_first().then(|| gathered.state(&self.schedule().job)))
    }

    /// Where it rests.
    pub(crate) fn moment(&self) -> Result<Moment, CpuError> {
        Ok(self.course.here()?)
    }

    /// Hands so much of the state over on the first rank, array by array; all ranks call this.
    pub(crate) fn hand_over(
        &mut self,
        extent: Extent,
        take: &mut Taker<'_>,
    ) -> Result<(), CpuError> {
        let wanted = (self.moment()?, extent);
        let (Shared { arenas, schedule, share, .. }, claim) = self.at_rest()?;
        let read = |device, start, bytes: &mut [u8]| {
            arenas.copy(&claim, device, start, bytes);
            Ok(())
        };
        match share.rank() {
            None => gather::save(schedule, wanted, read, take),
            Some(rank) => rank.among.save(schedule, wanted, read, take),
        }
    }

    /// Runs the training steps from here to `end` and comes to rest. The listener gets every loss
    /// on the calling thread, on every rank those of all, micro-batches of one step not necessarily in
    /// order. Apart from the first use of a kernel by a thread, nothing is allocated while it runs.
    ///
    /// # Errors
    /// When nothing was loaded; when an action failed or nothing moves any more, and then the machine
    /// cannot be used afterwards.
    pub fn replay(
        &mut self,
        end: u64,
        listener: &mut dyn FnMut(Loss),
    ) -> Result<(), CpuError> {
        self.replay_while(end, listener, &mut || true)
    }

    /// Like [`Cpu::replay`], but comes to rest early once `goes_on` says no: after the steps that
    /// were begun, and at least one. It is asked before every period; where it says no changes
    /// no number.
    ///
    /// # Errors
    /// As [`Cpu::replay`].
    pub fn replay_while(
        &mut self,
        end: u64,
        listener: &mut dyn FnMut(Loss),
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<(), CpuError> {
        let segment = self.course.segment(end)?;
        let Shared { parking, queues, schedule, .. } = self.shared.as_ref();
        parking.register(queues.threads());
        self.driver.start();
        let mut session =
            Session { shared: &self.shared, driver: &mut self.driver, listener, goes_on };
        let unfinished = Unfinished(&self.shared);
        let done = replay(schedule, segment, &mut session, &mut self.marks);
        mem::forget(unfinished);
        let end = done?.end;
        self.course.reach(end);
        self.shared.rests(end);
        Ok(())
    }

    /// What was counted since the state was loaded, on the first rank by all of them.
    ///
    /// # Errors
    /// When something goes wrong on another rank.
    pub fn measured(&self) -> Result<Measured, CpuError> {
        let Shared { meter, schedule, arenas, share, .. } = self.shared.as_ref();
        let own = meter.read(schedule, self.course.steps(), arenas.sizes());
        match share.rank() {
            None => Ok(own),
            Some(rank) => Ok(rank.among.sum_up(own)?),
        }
    }

    /// When everything ran since the last record was taken; empty unless
    /// [`CpuOptions::recording`] is on.
    pub fn record(&mut self) -> Record {
        self.shared.recorder.as_ref().map(Recorder::take).unwrap_or_default()
    }

    /// What was really used of each kind of memory, since the state was loaded, on the first rank
    /// of all of them; needs [`Fill::Poison`]. Carried rows count as a whole.
    ///
    /// # Errors
    /// When a replay failed before, or something goes wrong on another rank.
    pub fn touched(&mut self) -> Result<BTreeMap<(DeviceId, Kind), Touched>, CpuError> {
        let (Shared { arenas, schedule, share, .. }, claim) = self.at_rest()?;
        let own = arenas.touched(&claim, schedule);
        match share.rank() {
            None => Ok(own),
            Some(rank) => Ok(rank.among.touched(&own)?),
        }
    }

    /// The arenas, which no thread touches now: every command issued is done when `replay`
    /// returns without error, and only `replay` issues, which `&mut self` excludes.
    fn at_rest(&mut self) -> Result<(&Shared, Claim), CpuError> {
        if self.shared.parking.is_stopped() {
            return Err(self.shared.failure());
        }
        // SAFETY: see above.
        Ok((&self.shared, unsafe { Claim::new() }))
    }
}

/// A replay under way: dropped only where a panic leads out of it, which leaves commands behind that may
/// still run.
struct Unfinished<'a>(&'a Shared);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.0.fail(Unready::Left.into());
    }
}

impl Drop for Cpu {
    /// Threads end after the action that they are in; one that is stuck there is left behind.
    fn drop(&mut self) {
        self.shared.parking.stop();
        let start = Instant::now();
        let deadline = self.driver.deadline();
        while self.threads.iter().any(|thread| !thread.is_finished()) {
            if start.elapsed() > deadline {
                return;
            }
            self.shared.parking.stop();
            thread::sleep(Duration::from_micros(100));
        }
    }
}

fn start(
    shared: &Arc<Shared>,
    thread: usize,
    timing: Timing,
) -> Result<JoinHandle<()>, CpuError> {
    let own = Arc::clone(shared);
    let queue = describe(shared.queues.queue_of(thread));
    let builder = thread::Builder::new().name(queue.clone());
    let handle = builder.spawn(move || serve::serve(&own, thread, timing));
    handle.map_err(|error| CpuError::Thread { queue, message: error.to_string() })
}

/// The most waits of one action.
fn most_waits(schedule: &Checked) -> usize {
    let waits = schedule.actions.values().map(|action| action.after.len());
    waits.max().unwrap_or(0)
}

impl Shared {
    fn new(
        schedule: &Checked,
        (feed, share): (Box<dyn Feed>, Share<Rank>),
        recording: Recording,
    ) -> Result<Self, CpuError> {
        let waits = most_waits(schedule);
        let queues = Queues::at(schedule, share.asker().coordinates(schedule));
        let parking = Parking::new(queues.threads() + 1);
        let lane = |_| Lane::new(&parking, CAPACITY, waits);
        let members = |group| members(schedule, group);
        let splits = schedule.parts_axis().is_some();
        let booths = if splits { queues.threads() } else { 0 };
        let code = Code::parse(schedule)?;
        let open = launch::most_open(code.values());
        Ok(Self {
            code,
            batches: Batches::of(schedule),
            coordinates: schedule.coordinates(),
            members: schedule.groups.values().map(members).collect(),
            lanes: (0..queues.threads()).map(lane).collect(),
            booths: (0..booths).map(|_| Booth::new(&parking, open)).collect(),
            parking,
            recorder: Recorder::new(recording, queues.threads()),
            queues,
            arenas: Arenas::new(schedule, share.asker())?,
            share,
            meter: Meter::new(schedule),
            optimizer_origin: AtomicU64::new(0),
            feed: Mutex::new(Box::new(Completed::new(schedule, feed))),
            feeding: AtomicUsize::new(0),
            losses: Mutex::new(Vec::with_capacity(LOSSES)),
            failure: Mutex::new(None),
            schedule: schedule.clone(),
        })
    }

    /// Stops everything, on all ranks; the first reason is kept.
    fn fail(&self, error: CpuError) {
        let first = lock(&self.failure).get_or_insert(error).to_string();
        self.parking.stop();
        if let Some(rank) = self.share.rank() {
            rank.control().fail(&first);
        }
    }

    /// Nothing is under way before a step.
    fn rests(&self, step: u64) {
        if let Some(rank) = self.share.rank() {
            rank.at(Position::Resting { step });
        }
    }

    /// Why everything stopped.
    fn failure(&self) -> CpuError {
        let failure = lock(&self.failure);
        failure.clone().expect("only a failure stops the threads of a living machine")
    }

    fn report(&self, loss: Loss) {
        lock(&self.losses).push(loss);
    }

    /// Exchanges the collected losses for an empty list.
    fn take_losses(&self, empty: &mut Vec<Loss>) {
        mem::swap(&mut *lock(&self.losses), empty);
    }
}
