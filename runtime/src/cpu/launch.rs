//! What a launch does: runs its routine on the rows that it binds, and meets the other parts of
//! split tensors where they exchange something.
#![expect(unsafe_code, reason = "operands of an exchange are shown to other threads")]

use super::{
    Shared,
    correspondence::Correspondence,
    execute::{Executor, Turn, step},
    rank::label,
    record::{Permit, Recorder},
    rendezvous::Meeting,
};
use crate::{
    code::{Code, Watch},
    exchange::Ends,
    machine::{Launched, Span, slice_offset},
    memory::Claim,
    native::native,
    ranks::Share,
    state::updates,
};
use roundelay_kernels::{Context, Mode};
use roundelay_schedule::{Bytes, DeviceId, Line, LinkId, Nanos, Pass, PhysicalQueue};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::ControlFlow,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

/// How one thread does exchanges.
pub(super) struct Rendezvous<'a> {
    shared: &'a Shared,
    others: Others<'a>,
    /// The right to run that the launch holds, when the machine records.
    pub(super) permit: Option<Permit<'a>>,
    /// What the last launch spent in exchanges.
    spent: Duration,
    /// Exchanges that go on, in their order; sized once.
    open: VecDeque<Ends>,
    /// Exchanges of the last launch that went on and are done.
    done: usize,
    /// Who sends along each kind of line.
    senders: BTreeMap<Line, Sender>,
}

/// Where the other parts of a launch are.
enum Others<'a> {
    /// On other threads of this process.
    Here(Meeting),
    /// On other ranks.
    Away(Correspondence<'a>),
}

impl<'a> Others<'a> {
    /// Those of a thread, with where it runs launches, if it does.
    fn new(shared: &'a Shared, thread: usize, place: Option<(DeviceId, usize)>) -> Self {
        let Shared { schedule, coordinates, share, .. } = shared;
        let dtype = native(schedule.job.dtype);
        let Some((device, coordinate)) = place else {
            return Self::Here(Meeting::new(thread, thread..thread + 1, dtype));
        };
        let own = schedule.part_at(&coordinates[coordinate]);
        let before = own as usize;
        let parts = schedule.tensor_parts() as usize;
        match share {
            Share::Whole => {
                let all = thread - before..thread - before + parts;
                Self::Here(Meeting::new(thread, all, dtype))
            }
            Share::Part(_) => {
                let all = &coordinates[coordinate - before..][..parts];
                let devices = all.iter().map(|at| schedule.device_at(device, at));
                let devices = devices.collect();
                Self::Away(Correspondence::new(shared, devices, own, dtype))
            }
        }
    }

    /// The number of the thread's own part.
    fn part(&self) -> u32 {
        match self {
            Self::Here(meeting) => meeting.part(),
            Self::Away(correspondence) => correspondence.part(),
        }
    }
}

/// Who sends what is exchanged, for the meter.
#[derive(Clone, Copy)]
enum Sender {
    /// Nobody: the line has one part.
    Nobody,
    /// A device, over the link that joins its line.
    Device(DeviceId, LinkId),
    /// The first of the line, which also counts the message.
    First(DeviceId, LinkId),
}

impl<'a> Rendezvous<'a> {
    /// The exchanges of a thread, before the first.
    pub(super) fn new(shared: &'a Shared, thread: usize) -> Self {
        let (queue, coordinate) = shared.queues.home(thread);
        let device = match shared.queues.queue(queue) {
            PhysicalQueue::Lane(device, _) => Some(device),
            PhysicalQueue::Arrival(_)
            | PhysicalQueue::Group(_)
            | PhysicalQueue::Host(_) => None,
        };
        let place = device.map(|device| (device, coordinate));
        let others = Others::new(shared, thread, place);
        let senders = place.map_or_else(BTreeMap::new, |own| senders(shared, own));
        let most = most_open(shared.code.values());
        let (open, done) = (VecDeque::with_capacity(most), 0);
        let spent = Duration::ZERO;
        Self { shared, others, permit: None, spent, open, done, senders }
    }

    /// Before a launch.
    fn start(&mut self, turn: &Turn<'_>) {
        if let Others::Away(correspondence) = &mut self.others {
            correspondence.start(label(turn));
        }
        self.spent = Duration::ZERO;
        self.done = 0;
        self.open.clear();
    }

    /// An exchange that is waited for, behind those that go on.
    fn exchange(&mut self, ends: &Ends) -> ControlFlow<()> {
        self.end(self.done + self.open.len())?;
        self.show(ends)?;
        self.join(ends)
    }

    /// Begins an exchange that goes on; one whose time is kept is done at once.
    fn begin(&mut self, ends: &Ends) -> ControlFlow<()> {
        let start = Instant::now();
        self.show(ends)?;
        self.spent += start.elapsed();
        self.open.push_back(*ends);
        match self.shared.recorder {
            Some(_) => self.end(self.done + self.open.len()),
            None => ControlFlow::Continue(()),
        }
    }

    /// Ends the exchanges of a launch that go on, up to this many.
    fn end(&mut self, count: usize) -> ControlFlow<()> {
        while self.done < count {
            let ends = self.open.pop_front().expect("no more end than were begun");
            self.join(&ends)?;
            self.done += 1;
        }
        ControlFlow::Continue(())
    }

    fn show(&mut self, ends: &Ends) -> ControlFlow<()> {
        let Shared { booths, parking, .. } = self.shared;
        // SAFETY: both ends lie inside the launch's claim and do not overlap, as the checker
        // says. What they bring is not written, nor what they get touched, before the exchange is
        // done, as `needed_by` says, and a launch ends with none open. Every launch runs on all
        // rows, and a queue is in list order on each of them.
        unsafe {
            match &mut self.others {
                Others::Here(meeting) => meeting.begin(booths, parking, ends),
                Others::Away(correspondence) => return correspondence.begin(ends),
            }
        }
        ControlFlow::Continue(())
    }

    fn join(&mut self, ends: &Ends) -> ControlFlow<()> {
        let start = Instant::now();
        let Self { shared, others, permit, .. } = self;
        let recorder = shared.recorder.as_ref();
        // Whoever waits lets others run, so that rows find each other under any number of permits.
        let mut pause = |wait: &dyn Fn() -> _| {
            drop(permit.take());
            let waited = wait();
            *permit = recorder.map(Recorder::permit);
            waited
        };
        let (booths, parking) = (&shared.booths, &shared.parking);
        // SAFETY: as in `show`, which showed the same ends.
        unsafe {
            match others {
                Others::Here(meeting) => {
                    meeting.finish(booths, parking, ends, &mut pause)?;
                }
                Others::Away(correspondence) => correspondence.finish(ends)?,
            }
        }
        self.count(ends);
        self.spent += start.elapsed();
        ControlFlow::Continue(())
    }

    fn count(&self, ends: &Ends) {
        let Shared { meter, schedule, .. } = self.shared;
        let place = ends.exchange.line.place(self.others.part()) as usize;
        let Bytes(sent) = ends.exchange.sent_by(place, schedule.job.dtype);
        match self.senders.get(&ends.exchange.line) {
            None | Some(Sender::Nobody) => {}
            Some(&Sender::Device(device, link)) => meter.moved(link, device, sent),
            Some(&Sender::First(device, link)) => {
                meter.message();
                meter.moved(link, device, sent);
            }
        }
    }
}

/// The most exchanges that are open at one time in any routine.
pub(super) fn most_open<'a>(code: impl Iterator<Item = &'a Code>) -> usize {
    code.map(Code::open).max().unwrap_or(0)
}

/// Who sends where a device runs at a coordinate, along each kind of line of its launches.
fn senders(shared: &Shared, place: (DeviceId, usize)) -> BTreeMap<Line, Sender> {
    let lines: BTreeSet<Line> = shared.code.values().flat_map(Code::lines).collect();
    lines.into_iter().map(|line| (line, sender(shared, place, line))).collect()
}

/// Who sends along such lines.
fn sender(
    shared: &Shared,
    (device, coordinate): (DeviceId, usize),
    line: Line,
) -> Sender {
    let Shared { schedule, coordinates, .. } = shared;
    let own = schedule.part_at(&coordinates[coordinate]);
    let at = |part: u32| {
        let number = coordinate - own as usize + part as usize;
        schedule.device_at(device, &coordinates[number])
    };
    let mut members = line.members(own);
    let (Some(first), Some(last)) = (members.next(), members.last()) else {
        return Sender::Nobody;
    };
    match schedule.target.link_between(at(first), at(last)) {
        Some(link) if own == first => Sender::First(at(own), link),
        Some(link) => Sender::Device(at(own), link),
        None => Sender::Nobody,
    }
}

/// A routine as it runs.
struct Watcher<'a, 'b> {
    rendezvous: &'b mut Rendezvous<'a>,
    clock: Option<CallClock<'a, 'b>>,
}

/// Keeps the times of calls.
struct CallClock<'a, 'b> {
    recorder: &'a Recorder,
    times: &'b mut Vec<Nanos>,
    last: Nanos,
}

impl Watch for Watcher<'_, '_> {
    fn exchange(&mut self, ends: &Ends) -> ControlFlow<()> {
        self.rendezvous.exchange(ends)
    }

    fn begin(&mut self, ends: &Ends) -> ControlFlow<()> {
        self.rendezvous.begin(ends)
    }

    fn finish(&mut self, begun: usize) -> ControlFlow<()> {
        self.rendezvous.end(begun)
    }

    fn done(&mut self) {
        if let Some(CallClock { recorder, times, last }) = &mut self.clock {
            let now = recorder.now();
            times.push(now - *last);
            *last = now;
        }
    }
}

impl Executor<'_> {
    /// Breaks when everything stops while the launch waits for another row.
    pub(super) fn launch(
        &mut self,
        turn: Turn<'_>,
        launched: Launched<'_>,
        claim: &mut Claim,
    ) -> ControlFlow<()> {
        let Launched { at, routine, rows, .. } = launched;
        let Shared { schedule, arenas, code, meter, .. } = self.shared;
        let coordinate = &self.shared.coordinates[turn.coordinate];
        self.arguments.clear();
        for row in rows {
            let span = Span::of(schedule, at, *row, turn.period, coordinate);
            self.arguments.push(claim, arenas.of(span.device), span.bytes);
        }
        let context = self.context(turn, launched);
        let Self { shared, arguments, operands, times, rendezvous } = self;
        rendezvous.start(&turn);
        let recorder = shared.recorder.as_ref();
        let clock =
            recorder.map(|recorder| CallClock { recorder, times, last: recorder.now() });
        let start = Instant::now();
        let watch = &mut Watcher { rendezvous, clock };
        code[routine].run(claim, arguments, operands, &context, watch)?;
        meter.launched(routine, start.elapsed().saturating_sub(rendezvous.spent));
        ControlFlow::Continue(())
    }

    fn context(&self, turn: Turn<'_>, launched: Launched<'_>) -> Context {
        let Launched { at, routine, micro_batch, rows } = launched;
        let schedule = &self.shared.schedule;
        let coordinate = &self.shared.coordinates[turn.coordinate];
        let device = schedule.rings[at.ring].device(at.place, turn.period);
        let origin = self.shared.optimizer_origin.load(Ordering::Relaxed);
        Context {
            step: step(turn),
            updates: updates(step(turn), origin),
            micro_batch: self.shared.batches.global(turn.coordinate, micro_batch),
            seed: schedule.job.seed,
            mode: Mode::Training,
            rate: self.rate(turn, schedule.routines[routine].pass),
            slice_offset: slice_offset(schedule, rows, coordinate),
            part: schedule.part_at(coordinate),
            threads: schedule.target.devices[device].threads.max(1) as usize,
        }
    }

    fn rate(&self, turn: Turn<'_>, pass: Pass) -> f64 {
        match pass {
            Pass::Update => self.shared.schedule.job.optimizer.rate.at(step(turn)),
            Pass::Forward
            | Pass::Backward
            | Pass::InputGradient
            | Pass::WeightGradient
            | Pass::Combine
            | Pass::Norm => 0.0,
        }
    }
}
