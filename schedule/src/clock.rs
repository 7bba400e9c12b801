//! The machine that only counts time, in exact integer nanoseconds.
//!
//! What takes how long:
//!
//! - A launch takes its routine's predicted time, exchanges between rows included; they hold no
//!   port. A device runs one launch at a time, in list
//!   order: its lanes share it, so several lanes on one device save no time.
//! - A pair, a forward pass F and a backward pass B beside it, is one launch for its device: it
//!   takes F + B − overlap · min(F, B), where `overlap` is the device's, and all of it is done at
//!   its end.
//! - A transfer between devices takes what its link says for the message (`link.rs`), and holds
//!   the sender's outgoing and the receiver's incoming port all that time. Within one device it
//!   takes bytes / the device's bandwidth, and no port.
//! - A collective takes what the links that join its members say for it, a ring where they say
//!   nothing else. It holds both ports of every member.
//! - A feed takes what the target's host says for its input, once per coordinate; nothing unless
//!   it was measured. Reports take no time.
//! - What waits for another queue longer than for its own goes on a wake-up of the host later.
//!
//! An instance starts when everything before it in its queue and everything that it waits for is
//! done, and its device or ports are free. Devices are taken in list order; ports by whatever
//! is ready, as long as nothing above in the list is in the way. A skipped instance
//! takes no time and holds nothing: its mark is the latest of its waits and of its queue. One
//! cell is simulated: the coordinates of the axes are symmetric, rows of split tensors too, but
//! collectives count all their members.

mod busy;
mod pairs;
mod port;

use crate::{
    Action, ActionId, Bytes, Checked, DeviceId, Group, GroupId, Id, Instance, Issue,
    LinkId, LinkSpan, Machine, Marks, Nanos, PhysicalQueue, Place, Queues, Row, Schedule,
    Segment, Simulation, Spot, Subject, Table, Work, replay,
};
pub(crate) use busy::Busy;
use pairs::{Pairs, Part};
use port::Ports;
use std::{collections::BTreeMap, convert::Infallible};

/// One instance that executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The line of the schedule.
    pub action: ActionId,
    /// The period of this instance.
    pub period: i64,
    /// The training step that it serves.
    pub step: i64,
    /// Where it queued.
    pub queue: PhysicalQueue,
    /// When it started.
    pub start: Nanos,
    /// When it was done.
    pub end: Nanos,
}

/// The machine that only counts time; its mark is the time at which an instance is done.
#[derive(Debug)]
pub struct Clock<'a> {
    schedule: &'a Schedule,
    queues: Queues,
    /// When the last instance of each queue was done.
    done: Vec<Nanos>,
    /// Until when each device computes.
    devices: Table<DeviceId, Nanos>,
    ports: Ports,
    pairs: Pairs,
    entries: Vec<Entry>,
    /// Spans of groups over links that are not flat, by the turn of their ring.
    spans: BTreeMap<(GroupId, u32), LinkSpan>,
}

/// Runs the training steps 0 .. `steps` on a [`Clock`].
pub fn simulate(schedule: &Checked, steps: u64) -> Simulation<'_> {
    let mut clock = Clock::new(schedule);
    let mut marks = Marks::new(schedule);
    let segment = Segment { first: 0, end: steps };
    match replay(schedule, segment, &mut clock, &mut marks) {
        Ok(_) => Simulation::new(schedule, steps, clock.entries),
        Err(never) => match never {},
    }
}

impl Machine for Clock<'_> {
    type Mark = Nanos;
    type Error = Infallible;

    fn issue(&mut self, issued: Issue<'_>, after: &[Nanos]) -> Result<Nanos, Infallible> {
        let Issue { id, action, period, instance } = issued;
        let number = self.queues.in_period(self.schedule, action, period);
        let queue = self.queues.physical(number);
        let last = self.done[number as usize];
        let needed = after.iter().copied().max().unwrap_or_default();
        let end = match instance {
            Instance::Skip => last.max(needed),
            Instance::Execute(step) => {
                let wake = self.schedule.target.host.wake;
                let ready = if needed > last { needed + wake } else { last };
                let (Busy { start, end }, done) = match action.work.beside() {
                    Some(head) => {
                        let Part { own, end } = self.pairs.part(self.schedule, head, id);
                        (own, end)
                    }
                    None => {
                        let own = self.execute(id, action, period, ready);
                        (own, own.end)
                    }
                };
                self.entries.push(Entry { action: id, period, step, queue, start, end });
                done
            }
        };
        self.done[number as usize] = end;
        Ok(end)
    }

    fn rest(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

impl<'a> Clock<'a> {
    /// A clock at time zero with everything idle.
    pub fn new(schedule: &'a Checked) -> Self {
        let schedule: &Schedule = schedule;
        let devices = schedule.target.devices.ids().map(|_| Nanos(0)).collect();
        let ports = Ports::new(schedule.target.devices.len());
        let queues = Queues::new(schedule);
        Self {
            schedule,
            done: vec![Nanos(0); queues.len()],
            queues,
            devices,
            ports,
            pairs: Pairs::new(schedule),
            entries: Vec::new(),
            spans: BTreeMap::new(),
        }
    }

    /// What executed, in the order of issue.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// When an instance that is ready runs.
    fn execute(
        &mut self,
        id: ActionId,
        action: &Action,
        period: i64,
        ready: Nanos,
    ) -> Busy {
        match &action.work {
            Work::Launch { at, .. } => {
                let device = self.device(*at, period);
                let time = self.pairs.time(self.schedule, id, device);
                let busy = Busy::new(ready.max(self.devices[device]), time);
                self.devices[device] = busy.end;
                self.pairs.began(id, busy);
                busy
            }
            Work::Transfer { link, from, to, .. } => {
                self.transfer(*link, *from, *to, period, ready)
            }
            Work::Collective { link, kind, group, from, to, .. } => {
                let whole = self.size(*from).max(self.size(*to));
                let span = self.span(*link, *group, period);
                let time = self.schedule.target.collective_time(&span, *kind, whole);
                let members = self.members(*group, period);
                self.ports.take(&members, &members, ready, time)
            }
            Work::Feed { row, .. } => Busy::new(ready, self.feed_time(*row)),
            Work::Report { .. } => Busy::new(ready, Nanos(0)),
        }
    }

    /// Time to fill an input at every coordinate; each row of split tensors has its copy.
    fn feed_time(&self, row: Row) -> Nanos {
        let subject = self.schedule.buffers[row.buffer].subject;
        let Subject::Input(input) = subject else { return Nanos(0) };
        let each = self.schedule.target.host.feeds.get(input.index());
        each.copied().unwrap_or_default() * self.schedule.cell_count()
    }

    fn transfer(
        &mut self,
        link: LinkId,
        from: Spot,
        to: Spot,
        period: i64,
        ready: Nanos,
    ) -> Busy {
        let [sender, receiver] = [from, to].map(|spot| self.device(spot.at, period));
        let bytes = self.size(from.row);
        if sender == receiver {
            let rate = self.schedule.target.devices[sender].bandwidth;
            return Busy::new(ready, bytes.at(rate));
        }
        let time = self.schedule.target.links[link].transfer_time(bytes);
        self.ports.take(&[sender], &[receiver], ready, time)
    }

    /// Which levels of links join all members of a group, at every coordinate of its axes.
    fn span(&mut self, link: LinkId, group: GroupId, period: i64) -> LinkSpan {
        if self.schedule.target.links[link].is_flat() {
            return LinkSpan::flat(link, self.member_count(group));
        }
        let places = &self.schedule.groups[group].places;
        let turned =
            places.first().map(|at| self.schedule.rings[at.ring].index(0, period));
        let known = (group, turned.unwrap_or_default());
        if let Some(span) = self.spans.get(&known) {
            return span.clone();
        }
        let devices = self.all_members(group, period);
        let span = self.schedule.target.span(&devices, link);
        self.spans.insert(known, span.clone());
        span
    }

    /// Number of members at all coordinates; at least one.
    fn member_count(&self, group: GroupId) -> u64 {
        let Group { places, axes } = &self.schedule.groups[group];
        let folded = axes.iter().map(|axis| u64::from(self.schedule.axes[*axis].extent));
        (places.len() as u64 * folded.product::<u64>()).max(1)
    }

    /// The members at every coordinate of the group's own axes.
    fn all_members(&self, group: GroupId, period: i64) -> Vec<DeviceId> {
        let axes = &self.schedule.groups[group].axes;
        let along = |coordinate: &Vec<u32>| {
            let rest = self.schedule.axes.ids().zip(coordinate);
            rest.filter(|(axis, _)| !axes.contains(axis)).all(|(_, at)| *at == 0)
        };
        let mut coordinates = self.schedule.coordinates();
        coordinates.retain(along);
        let cell = self.members(group, period);
        let pairs = coordinates.iter().flat_map(|c| cell.iter().map(move |d| (c, d)));
        pairs.map(|(c, device)| self.schedule.device_at(*device, c)).collect()
    }

    fn members(&self, group: GroupId, period: i64) -> Vec<DeviceId> {
        let places = self.schedule.groups[group].places.iter();
        places.map(|place| self.device(*place, period)).collect()
    }

    fn device(&self, place: Place, period: i64) -> DeviceId {
        self.schedule.rings[place.ring].device(place.place, period)
    }

    fn size(&self, row: Row) -> Bytes {
        self.schedule.buffers[row.buffer].size
    }
}

#[cfg(test)]
mod tests;
