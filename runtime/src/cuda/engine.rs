//! What a GPU replays with: streams, memory, routines and what the host hands over, made before the
//! start.

use super::{
    CudaError, CudaOptions, IDLE, Times, Ungraphed,
    arena::Arenas,
    bounce::{Bounce, Unreached, alone, wait},
    driver::{Device, DriverError, Event},
    lanes::{Homes, Lanes, Marked},
    launches::Launches,
    periods::Periods,
    progress::Progress,
    rank::Rank,
    ready::{Code, ReadyCall},
    record::Recorder,
    staging::Staging,
};
use crate::{
    feed::Feed,
    machine::{Batches, Fill, Members, Meter, POISON, Queues, members},
    ranks::{Among, Share},
    shares::Completed,
    state::{ArrayNumbers, State, rows},
};
use roundelay_schedule::{Action, Checked, DeviceId, GroupId, Table, Work};
use std::{sync::Arc, time::Duration};

/// Everything that a replay works with; dropped from first to last.
pub(super) struct Engine {
    pub(super) share: Share<Rank>,
    pub(super) periods: Periods,
    pub(super) launches: Launches,
    /// No events on a rank, which keeps moments of its own.
    pub(super) marked: Marked,
    pub(super) progress: Progress,
    pub(super) lanes: Lanes,
    pub(super) staging: Staging,
    pub(super) bounce: Bounce,
    pub(super) arenas: Arenas,
    pub(super) code: Code,
    pub(super) recorder: Option<Recorder>,
    /// Behind all that its context holds: events, streams, memory, functions.
    pub(super) device: Device,
    pub(super) schedule: Arc<Checked>,
    pub(super) queues: Queues,
    /// Instances issued, by queue.
    pub(super) issued: Vec<u64>,
    pub(super) coordinates: Vec<Vec<u32>>,
    /// Numbers of the coordinates that this process has devices at.
    pub(super) own: Vec<usize>,
    pub(super) batches: Batches,
    pub(super) members: Table<GroupId, Members>,
    pub(super) meter: Meter,
    pub(super) feed: Box<dyn Feed>,
    pub(super) deadline: Duration,
}

impl Engine {
    pub(super) fn new(
        schedule: &Checked,
        feed: Box<dyn Feed>,
        options: CudaOptions,
        (device, among): (Device, Option<Among>),
    ) -> Result<Self, CudaError> {
        let refused = |what: &'static str| {
            let facts = device.facts();
            move |reason| CudaError::refused(facts, what, reason)
        };
        device.enter().map_err(refused("its context"))?;
        let queues = Queues::new(schedule);
        let seated = among.as_ref().map(|among| among.seated);
        let here = |own| seated.is_none_or(|seated| seated.device == own);
        // Code first: products are tried in memory that the arenas take then.
        let control = among.as_ref().map(|among| &among.control);
        let code = Code::new(schedule, &device, control)?;
        let arenas = Arenas::new(schedule, &device, here)?;
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
                let rank = Rank::new(schedule, &queues, &device, among, (&lanes, &code))?;
                Share::Part(Box::new(rank))
            }
        };
        let marked = match &share {
            Share::Whole => Marked::new(schedule, &queues),
            Share::Part(_) => Ok(Marked::none()),
        };
        let recorder = match options.times {
            Times::Dropped => None,
            Times::Kept => Some(Recorder::new().map_err(refused("events"))?),
        };
        let why_not = Ungraphed::of(schedule, options.graphs, seated);
        let launches = Launches::new(options.graphs.of_launches(why_not.as_ref()));
        let periods = Periods::new(schedule, why_not);
        Ok(Self {
            launches,
            periods: periods.map_err(refused("events"))?,
            share,
            marked: marked.map_err(refused("events"))?,
            progress: Progress::new(),
            lanes,
            staging,
            bounce,
            arenas,
            code,
            schedule: Arc::new(schedule.clone()),
            issued: vec![0; queues.len()],
            queues,
            batches: Batches::of(schedule),
            coordinates,
            own,
            members: schedule.groups.values().map(|g| members(schedule, g)).collect(),
            meter: Meter::new(schedule),
            recorder,
            feed: Box::new(Completed::new(schedule, feed)),
            deadline: options.deadline,
            device,
        })
    }

    pub(super) fn enter(&self) -> Result<(), CudaError> {
        self.device.enter().map_err(|reason| self.refused("its context", reason))
    }

    /// Times count from here, if they are kept.
    pub(super) fn start_times(&mut self) -> Result<(), CudaError> {
        let Some(recorder) = &mut self.recorder else { return Ok(()) };
        let started = recorder.start(&self.lanes.origin);
        started.map_err(|reason| self.refused("an event", reason))
    }

    /// Something that is no action, and that the device refuses.
    pub(super) fn refused(&self, what: &str, reason: DriverError) -> CudaError {
        CudaError::refused(self.device.facts(), what, reason)
    }

    pub(super) fn load<A: ArrayNumbers>(
        &mut self,
        state: &State<A>,
        fill: Fill,
    ) -> Result<(), CudaError> {
        self.fill(fill)?;
        self.settle()?;
        self.staging.optimizer_origin = state.optimizer_origin;
        let schedule = Arc::clone(&self.schedule);
        let here = self.arenas.devices();
        let has = |device| here.contains(&device);
        rows::load(&schedule, state, has, |device, start, bytes| {
            self.write(device, start, bytes)
        })
    }

    /// Functions and products that launches of one training step give to this process's devices.
    pub(super) fn kernels(&self) -> u64 {
        let launched = |action: &Action| {
            let Work::Launch { at, routine, .. } = &action.work else { return 0 };
            let steps = self.code.routines[*routine].calls.iter().map(ReadyCall::steps);
            steps.sum::<u64>() * self.here(*at, 0).len() as u64
        };
        self.schedule.actions.values().map(launched).sum()
    }

    pub(super) fn fill(&mut self, fill: Fill) -> Result<(), CudaError> {
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

    /// Waits until what was given to the first stream is done: lanes do not wait for it.
    fn settle(&self) -> Result<(), CudaError> {
        let done = Event::new().and_then(|done| {
            self.lanes.origin.record(&done)?;
            Ok(done)
        });
        let done = done.map_err(|reason| self.refused("an event", reason))?;
        let waited = wait(&done, self.deadline, &mut alone);
        waited.map_err(|unreached| {
            let reason = unreached.reason("filled memory", self.deadline);
            self.refused("to fill its memory", reason)
        })
    }

    pub(super) fn write(
        &mut self,
        device: DeviceId,
        start: u64,
        bytes: &[u8],
    ) -> Result<(), CudaError> {
        let to = self.arenas.at(device, start);
        let moved = self.bounce.write(&self.lanes.origin, to, bytes, self.deadline);
        moved.map_err(|unreached| self.unmoved(unreached))
    }

    pub(super) fn read(
        &mut self,
        device: DeviceId,
        start: u64,
        bytes: &mut [u8],
    ) -> Result<(), CudaError> {
        let from = self.arenas.at(device, start);
        let moved = self.bounce.read(&self.lanes.origin, from, bytes, self.deadline);
        moved.map_err(|unreached| self.unmoved(unreached))
    }

    pub(super) fn unmoved(&self, unreached: Unreached) -> CudaError {
        let reason = unreached.reason("a copy", self.deadline);
        self.refused("a copy of its memory", reason)
    }

    /// Whether everything that was issued is known to be done.
    pub(super) fn is_idle(&self) -> bool {
        let joined = Event::new().and_then(|idle| {
            self.lanes.join()?;
            self.lanes.wait_for_inputs(&self.lanes.origin)?;
            self.lanes.origin.record(&idle)?;
            Ok(idle)
        });
        joined.is_ok_and(|idle| wait(&idle, self.deadline.min(IDLE), &mut alone).is_ok())
    }
}
