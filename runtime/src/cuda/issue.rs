//! What one instance of an action does: what the host has to do with it, what is counted, and
//! what its streams are given.

use super::{
    Engine,
    bounce::Unreached,
    driver::{Address, DriverError},
    exchange::{Ends, Meeting},
    lanes::Mark,
    moves::{Move, moves},
    periods::{Mode, Periods},
    ready::{Binding, ReadyCall, Step, Work as Call},
    staging::Slot,
};
use crate::{
    machine::{Joint, Launched, Member, Span, input_of, slice_offset},
    ranks::Share,
};
use roundelay_kernels::{Exchange, Store};
use roundelay_schedule::{Action, ActionId, Instance, Place, RoutineId, Spot, Work};
use std::{ops::Range, time::Duration};

/// One instance of an action.
#[derive(Clone, Copy)]
pub(super) struct Turn<'a> {
    pub(super) id: ActionId,
    pub(super) action: &'a Action,
    pub(super) period: i64,
    /// Number of its queue.
    pub(super) queue: usize,
    pub(super) instance: Instance,
}

impl Turn<'_> {
    /// The training step that it serves.
    fn step(&self) -> u64 {
        u64::try_from(self.period - i64::from(self.action.lag)).unwrap_or(0)
    }

    /// What it hands over at a coordinate of this process.
    fn slot(&self, coordinate: usize) -> Slot {
        Slot { action: self.id, half: Periods::half(self.period), coordinate }
    }
}

impl Engine {
    /// Where later actions find this one.
    pub(super) fn mark(&mut self, turn: &Turn<'_>) -> Mark {
        let first = match &self.share {
            Share::Whole => self.marked.first(turn.id, turn.period),
            Share::Part(rank) => rank.row(turn.id, turn.period),
        };
        self.issued[turn.queue] += 1;
        Mark {
            queue: turn.queue,
            sequence: self.issued[turn.queue],
            first,
            fence: self.periods.fence(),
        }
    }

    /// What the host does itself, however the period gets to the device.
    pub(super) fn hand_over(&mut self, turn: &Turn<'_>) -> Result<(), DriverError> {
        match turn.action.work {
            Work::Feed { at, micro_batch, row } => {
                let input = input_of(&self.schedule, row);
                for (slot, coordinate) in self.here(at, turn.period) {
                    let number = self.batches.global(coordinate, Some(micro_batch));
                    let slot = turn.slot(slot);
                    let bytes = self.staging.input(slot);
                    self.feed.fill(input, turn.step(), number, bytes);
                    self.staging.send_ahead(slot, &self.lanes.feeder)?;
                }
            }
            Work::Report { at, micro_batch, .. } => {
                for (slot, coordinate) in self.reporting(at, turn.period) {
                    let number = self.batches.global(coordinate, Some(micro_batch));
                    self.staging.expect(turn.slot(slot), turn.step(), number);
                }
            }
            Work::Launch { .. } | Work::Transfer { .. } | Work::Collective { .. } => {}
        }
        Ok(())
    }

    /// The coordinates at which a place is a device of this process: their numbers among those that
    /// this process has, and among all.
    pub(super) fn here(&self, at: Place, period: i64) -> Vec<(usize, usize)> {
        let own = self.own.iter().copied().enumerate();
        own.filter(|(_, coordinate)| self.has(at, period, *coordinate)).collect()
    }

    /// Whether a place is a device of this process at a coordinate.
    fn has(&self, at: Place, period: i64, coordinate: usize) -> bool {
        let device = self.schedule.rings[at.ring].device(at.place, period);
        self.arenas.has(self.schedule.device_at(device, &self.coordinates[coordinate]))
    }

    /// Those of the first of the parts that share their micro-batches.
    fn reporting(&self, at: Place, period: i64) -> Vec<(usize, usize)> {
        let is_first =
            |number: usize| self.schedule.part_at(&self.coordinates[number]) == 0;
        let mut all = self.here(at, period);
        all.retain(|(_, coordinate)| is_first(*coordinate));
        all
    }

    /// Counts what the instance does: messages are those of the sender, or of the first of a group.
    pub(super) fn count(&mut self, turn: &Turn<'_>) {
        match turn.action.work {
            Work::Launch { at, routine, .. } => self.count_launch(turn, at, routine),
            Work::Transfer { link, from, to, .. } => {
                for coordinate in 0..self.coordinates.len() {
                    let (from, to) = self.ends([from, to], turn.period, coordinate);
                    if from.device != to.device && self.arenas.has(from.device) {
                        self.meter.message();
                        self.meter.moved(link, from.device, from.len());
                    }
                }
            }
            Work::Collective { link, kind, group, from, to, .. } => {
                let period = turn.period;
                self.count_collective(Joint { link, kind, group, from, to, period });
            }
            Work::Feed { .. } | Work::Report { .. } => {}
        }
    }

    fn count_collective(&self, joint: Joint) {
        for members in &self.members[joint.group] {
            if members.len() > 1 && self.begins(members[0], joint.period) {
                self.meter.message();
            }
        }
        for step in self.moves(joint) {
            let sent = step.sent();
            for (sender, bytes) in sent.filter(|(sender, _)| self.arenas.has(*sender)) {
                self.meter.moved(joint.link, sender, bytes);
            }
        }
    }

    /// Whether a member of a group is here.
    fn begins(&self, Member { coordinate, place }: Member, period: i64) -> bool {
        self.own.contains(&coordinate) && self.has(place, period, coordinate)
    }

    /// Messages are those of the first of a line; what is sent is the sender's.
    fn count_launch(&self, turn: &Turn<'_>, at: Place, routine: RoutineId) {
        let here = |coordinate: &&usize| self.has(at, turn.period, **coordinate);
        for _ in self.own.iter().filter(here) {
            self.meter.launched(routine, Duration::ZERO);
        }
        let parts = self.schedule.tensor_parts() as usize;
        if parts < 2 {
            return;
        }
        for call in &self.code.routines[routine].calls {
            let Call::Together(meeting) = &call.work else { continue };
            for first in (0..self.coordinates.len()).step_by(parts) {
                for line in meeting.lines(parts) {
                    let own = line.map(|part| first + part);
                    self.count_exchange((at, turn.period), &meeting.exchange, own);
                }
            }
        }
    }

    /// Every part of a line sends over the link that joins all of them, each what the call says.
    fn count_exchange(
        &self,
        (at, period): (Place, i64),
        exchange: &Exchange,
        line: impl Iterator<Item = usize> + Clone,
    ) {
        let device = self.schedule.rings[at.ring].device(at.place, period);
        let own = |part: usize| self.schedule.device_at(device, &self.coordinates[part]);
        let ends = (line.clone().next(), line.clone().last());
        let (Some(first), Some(last)) = ends else { return };
        let link = self.schedule.target.link_between(own(first), own(last));
        let Some(link) = link else { return };
        if self.arenas.has(own(first)) {
            self.meter.message();
        }
        let dtype = self.schedule.job.dtype;
        for (place, device) in line.map(own).enumerate() {
            if self.arenas.has(device) {
                self.meter.moved(link, device, exchange.sent_by(place, dtype).0);
            }
        }
    }

    /// Gives an instance to its streams: what it waits for, what it does, and its end.
    pub(super) fn give(
        &mut self,
        turn: &Turn<'_>,
        after: &[Mark],
        mark: Mark,
    ) -> Result<(), Unreached> {
        match self.share {
            Share::Whole => self.give_whole(turn, after),
            Share::Part(_) => self.give_as_rank(turn, after, mark),
        }
    }

    fn give_whole(&mut self, turn: &Turn<'_>, after: &[Mark]) -> Result<(), Unreached> {
        let threads = self.queues.threads_of(turn.queue);
        for thread in threads.clone() {
            self.wait_for(turn, thread, after)?;
        }
        if let Instance::Execute(_) = turn.instance {
            self.execute_noted(turn)?;
        }
        let ends = self.marked.events(turn.id, turn.period);
        for (event, thread) in ends.iter().zip(threads) {
            self.lanes.stream(thread).record(event)?;
        }
        Ok(())
    }

    /// Of several waits on one queue the last is enough; its own queue is in order anyway, and what
    /// lies before a fence is done.
    fn wait_for(
        &self,
        turn: &Turn<'_>,
        thread: usize,
        after: &[Mark],
    ) -> Result<(), DriverError> {
        let fence = self.periods.fence();
        let open = after.iter().filter(|mark| {
            mark.queue != turn.queue
                && mark.fence == fence
                && after.iter().all(|other| {
                    other.queue != mark.queue || other.sequence <= mark.sequence
                })
        });
        for mark in open {
            let first = self.queues.threads_of(mark.queue).start;
            for source in self.queues.sources(thread, mark.queue) {
                let event = self.marked.event(mark.first + source - first);
                self.lanes.stream(thread).wait(event)?;
            }
        }
        Ok(())
    }

    pub(super) fn execute(&mut self, turn: &Turn<'_>) -> Result<(), Unreached> {
        let threads = self.queues.threads_of(turn.queue);
        match turn.action.work {
            Work::Launch { at, routine, micro_batch, ref rows, .. } => {
                self.launch(turn, Launched { at, routine, micro_batch, rows })
            }
            Work::Transfer { from, to, .. } => {
                Ok(self.transfer(turn, [from, to], threads)?)
            }
            Work::Collective { link, kind, group, from, to, .. } => {
                let period = turn.period;
                let joint = Joint { link, kind, group, from, to, period };
                match &self.share {
                    Share::Whole => Ok(self.collective(joint, threads.start)?),
                    Share::Part(_) => self.collective_as_rank(joint),
                }
            }
            Work::Feed { at, row, .. } => {
                let stream = self.lanes.stream(threads.start);
                // A graph waits for the inputs of its period before it begins.
                if self.staging.is_ahead(turn.id) && self.periods.open().1 == Mode::Given
                {
                    self.lanes.wait_for_inputs(stream)?;
                }
                for (slot, number) in self.here(at, turn.period) {
                    let coordinate = &self.coordinates[number];
                    let span = Span::of(&self.schedule, at, row, turn.period, coordinate);
                    let from = turn.slot(slot);
                    self.staging.bring(from, self.arenas.of(&span), stream)?;
                }
                Ok(())
            }
            Work::Report { at, row, .. } => {
                let stream = self.lanes.stream(threads.start);
                for (slot, number) in self.reporting(at, turn.period) {
                    let coordinate = &self.coordinates[number];
                    let span = Span::of(&self.schedule, at, row, turn.period, coordinate);
                    let to = turn.slot(slot);
                    self.staging.download(to, self.arenas.of(&span), stream)?;
                }
                Ok(())
            }
        }
    }

    fn transfer(
        &self,
        turn: &Turn<'_>,
        spots: [Spot; 2],
        threads: Range<usize>,
    ) -> Result<(), DriverError> {
        match &self.share {
            Share::Whole => {
                for (coordinate, thread) in threads.enumerate() {
                    let (from, to) = self.ends(spots, turn.period, coordinate);
                    let stream = self.lanes.stream(thread);
                    let [source, target] = [&from, &to].map(|span| self.arenas.of(span));
                    stream.copy(source, target, from.len())?;
                }
                Ok(())
            }
            Share::Part(rank) => {
                let own = rank.among.seated.coordinate;
                let (from, to) = self.ends(spots, turn.period, own);
                self.copy_as_rank(rank, &from, &to)
            }
        }
    }

    /// What a transfer copies, cut to what both ends have.
    pub(super) fn ends(
        &self,
        spots: [Spot; 2],
        period: i64,
        coordinate: usize,
    ) -> (Span, Span) {
        let coordinate = &self.coordinates[coordinate];
        let [from, to] = spots
            .map(|spot| Span::of(&self.schedule, spot.at, spot.row, period, coordinate));
        let bytes = from.len().min(to.len());
        (from.part(0..bytes), to.part(0..bytes))
    }

    /// What a collective moves to or from this process.
    pub(super) fn moves(&self, joint: Joint) -> Vec<Move> {
        let (schedule, coordinates) = (&self.schedule, &self.coordinates);
        let is_here = |device| self.arenas.has(device);
        moves(schedule, coordinates, &self.members, joint, is_here)
    }

    fn collective(&mut self, joint: Joint, thread: usize) -> Result<(), DriverError> {
        let all = self.moves(joint);
        let stream = self.lanes.stream(thread);
        for step in all {
            match step {
                Move::Sum { terms, number, elements, to } => {
                    let terms: Vec<Address> =
                        terms.iter().map(|span| self.arenas.of(span)).collect();
                    let to = (self.arenas.of(&to), elements);
                    let store = Store::Write;
                    self.code.sum(number, &terms, to, store, stream)?;
                }
                Move::Copy { from, to } if from != to => {
                    let [source, target] = [&from, &to].map(|span| self.arenas.of(span));
                    stream.copy(source, target, from.len())?;
                }
                Move::Copy { .. } => {}
            }
        }
        Ok(())
    }

    /// Launches a routine at all coordinates of this process; the parts of split tensors go call by call, so that
    /// each finds what the others bring.
    fn launch(
        &mut self,
        turn: &Turn<'_>,
        launched: Launched<'_>,
    ) -> Result<(), Unreached> {
        let routine = launched.routine;
        let rows = self.schedule.tensor_parts() as usize;
        for members in self.here(launched.at, turn.period).chunks(rows) {
            let bind = |(_, number): &(usize, usize)| self.bind(turn, launched, *number);
            let places: Vec<Bound> = members.iter().map(bind).collect();
            match self.begin_launch(routine, &places)? {
                Mode::Given => {
                    let moments = self.give_calls(routine, &places)?;
                    self.keep_launch(turn, members, &moments);
                }
                Mode::Recorded => {
                    self.give_calls(routine, &places)?;
                    let stream = self.lanes.stream(places[0].thread);
                    self.launches.end((routine, &places[0]), stream)?;
                }
                Mode::Launched => {}
            }
        }
        Ok(())
    }

    /// How a launch gets to its streams: call by call where these are looked at.
    fn begin_launch(
        &mut self,
        routine: RoutineId,
        places: &[Bound],
    ) -> Result<Mode, DriverError> {
        if self.call_recorder().is_some() {
            return Ok(Mode::Given);
        }
        let code = (routine, &self.code.routines[routine]);
        self.launches.begin(code, places, self.lanes.stream(places[0].thread))
    }

    /// Gives the calls of a routine one by one; the moments before, between and after, if times are
    /// kept.
    fn give_calls(
        &mut self,
        routine: RoutineId,
        places: &[Bound],
    ) -> Result<Vec<Vec<usize>>, Unreached> {
        let threads = || places.iter().map(|place| place.thread);
        let mut moments = vec![self.moments(threads())?];
        for call in 0..self.code.routines[routine].calls.len() {
            self.call(routine, call, places)?;
            moments.push(self.moments(threads())?);
        }
        Ok(moments)
    }

    /// Keeps what members of a launch took, if times are kept.
    fn keep_launch(
        &mut self,
        turn: &Turn<'_>,
        members: &[(usize, usize)],
        moments: &[Vec<usize>],
    ) {
        let queue = self.queues.queue(turn.queue);
        let Some(recorder) = self.call_recorder() else { return };
        for (place, (_, coordinate)) in members.iter().enumerate() {
            let own = moments.iter().map(|all| all[place]).collect();
            recorder.keep(turn, (queue, *coordinate), own);
        }
    }

    /// What a launch at one coordinate binds.
    fn bind(&self, turn: &Turn<'_>, launched: Launched<'_>, number: usize) -> Bound {
        let Launched { at, micro_batch, rows, .. } = launched;
        let coordinate = &self.coordinates[number];
        let span = |row| Span::of(&self.schedule, at, row, turn.period, coordinate);
        let half = Periods::half(turn.period);
        Bound {
            thread: self.queues.threads_of(turn.queue).start + number,
            arguments: rows.iter().map(|row| self.arenas.of(&span(*row))).collect(),
            scalars: self.staging.scalars(half, turn.action.lag),
            micro_batch: self.batches.global(number, micro_batch),
            slice_offset: slice_offset(&self.schedule, rows, coordinate),
            part: u64::from(self.schedule.part_at(coordinate)),
            ranks: self.ranks_of_parts((at, turn.period), number),
        }
    }

    /// The ranks of all parts that launch together with that of a coordinate; none where all of
    /// them are here.
    fn ranks_of_parts(&self, (at, period): (Place, i64), number: usize) -> Vec<u32> {
        let Share::Part(rank) = &self.share else { return Vec::new() };
        let device = self.schedule.rings[at.ring].device(at.place, period);
        let first = number - self.schedule.part_at(&self.coordinates[number]) as usize;
        let parts = &self.coordinates[first..][..self.schedule.tensor_parts() as usize];
        let of = |part: &Vec<u32>| rank.owner(self.schedule.device_at(device, part));
        parts.iter().map(of).collect()
    }

    /// One call of a routine on all rows.
    fn call(
        &mut self,
        routine: RoutineId,
        call: usize,
        rows: &[Bound],
    ) -> Result<(), Unreached> {
        // The calls are lent out while the rest of the code runs them.
        let calls = std::mem::take(&mut self.code.routines[routine].calls);
        let done = match &calls[call].work {
            Call::Alone(steps) => (rows.iter())
                .try_for_each(|row| Ok(self.alone((&calls[call], steps), row)?)),
            Call::Together(meeting) => match self.share {
                Share::Whole => Ok(self.together(&calls[call], meeting, rows)?),
                Share::Part(_) => (rows.iter())
                    .try_for_each(|row| self.join_as_rank(&calls[call], meeting, row)),
            },
        };
        self.code.routines[routine].calls = calls;
        done
    }

    fn alone(
        &mut self,
        (call, steps): (&ReadyCall, &[Step]),
        row: &Bound,
    ) -> Result<(), DriverError> {
        let operands = row.operands(call);
        let [workspace, scratch] = self.lanes.scratch(row.thread);
        let binding = Binding {
            operands: &operands,
            scratch,
            workspace,
            scalars: row.scalars,
            micro_batch: row.micro_batch,
            slice_offset: row.slice_offset,
            part: row.part,
        };
        let stream = self.lanes.stream(row.thread);
        steps.iter().try_for_each(|step| self.code.run(step, &binding, stream))
    }

    /// The parts of each line show what they bring, each makes its own result, and none goes on
    /// before all of its line have looked.
    fn together(
        &mut self,
        call: &ReadyCall,
        meeting: &Meeting,
        all: &[Bound],
    ) -> Result<(), DriverError> {
        for line in meeting.lines(all.len()) {
            let parts: Vec<&Bound> = line.map(|part| &all[part]).collect();
            self.join(call, meeting, &parts)?;
        }
        Ok(())
    }

    fn join(
        &mut self,
        call: &ReadyCall,
        meeting: &Meeting,
        rows: &[&Bound],
    ) -> Result<(), DriverError> {
        self.meet(rows, 0)?;
        let brought: Vec<Address> =
            rows.iter().map(|row| row.operands(call)[0]).collect();
        for (part, row) in rows.iter().enumerate() {
            let ends = Ends {
                brought: &brought,
                part,
                got: row.operands(call)[1],
                scratch: self.lanes.scratch(row.thread)[1],
            };
            meeting.join(&mut self.code, ends, self.lanes.stream(row.thread))?;
        }
        self.meet(rows, 1)
    }

    /// The streams of all these wait for each other.
    fn meet(&self, rows: &[&Bound], moment: usize) -> Result<(), DriverError> {
        let event = |row: &Bound| &self.lanes.meeting(row.thread)[moment];
        for row in rows {
            self.lanes.stream(row.thread).record(event(row))?;
        }
        for row in rows {
            let others = rows.iter().filter(|other| other.thread != row.thread);
            for other in others {
                self.lanes.stream(row.thread).wait(event(other))?;
            }
        }
        Ok(())
    }
}

/// What a launch binds at one coordinate: all that its functions take that the routine does not say.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Bound {
    pub(super) thread: usize,
    arguments: Vec<Address>,
    scalars: Address,
    micro_batch: u64,
    slice_offset: u64,
    pub(super) part: u64,
    /// Those of all parts, unless all are here.
    pub(super) ranks: Vec<u32>,
}

impl Bound {
    pub(super) fn operands(&self, call: &ReadyCall) -> Vec<Address> {
        call.operands_in(&self.arguments)
    }
}
