//! What the checker learned: memory, messages, bytes.

use super::{
    exchanges::{Exchanges, Joint},
    layout::Layout,
    live::{self, Peaks},
    rounds,
};
use crate::{
    Buffer, Bytes, Collective, DeviceId, GroupId, Kind, Line, LinkId, Place, PoolId,
    Ring, RingId, RoutineId, Row, Schedule, Spot, Table, Work, schedule::addresses,
    turned::Wheel,
};
use std::collections::BTreeMap;

/// What the checker learned. Devices are those of the cell, at coordinate zero.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// Per device: bytes of each kind, all slots. Addresses that several buffers have count once.
    pub kinds: BTreeMap<(DeviceId, Kind), Bytes>,
    /// Per device and kind: the most bytes that hold something needed at one time, in list order.
    pub live_peak: BTreeMap<(DeviceId, Kind), Bytes>,
    /// Per device: the most bytes of all kinds together that hold something needed at one time.
    pub device_live_peak: BTreeMap<DeviceId, Bytes>,
    /// Per device: bytes of its arena.
    pub device_arena: BTreeMap<DeviceId, Bytes>,
    /// Per pool: bytes of the arenas of its devices, at all coordinates.
    pub pool_arena: BTreeMap<PoolId, Bytes>,
    /// By link, bytes of the messages of one training step whose outermost link it is, summed over
    /// senders and coordinates. Collectives count as flat rings, whatever form they take.
    pub link_bytes: BTreeMap<LinkId, Bytes>,
    /// Bytes that each device sends in one training step; the mean over periods where it turns, and of
    /// each exchange of strips what the part sends that sends most.
    pub sent: BTreeMap<DeviceId, Bytes>,
    /// Messages in one training step: transfers between devices, collectives, and exchanges
    /// between rows.
    pub messages: u64,
    /// Largest number of sequential communication slots between two compute slots.
    pub comm_rounds: u32,
}

/// Gathers the facts of a schedule whose structure is sound.
pub(super) fn gather(
    schedule: &Schedule,
    layout: &Layout,
    exchanges: &Exchanges,
) -> Facts {
    let comm_rounds = rounds::count(schedule, layout);
    let mut facts = Facts { comm_rounds, ..Facts::default() };
    memory(schedule, &mut facts);
    let Peaks { kinds, devices } = live::peaks(schedule, layout);
    facts.live_peak = kinds;
    facts.device_live_peak = devices;
    let none = |ring: &Ring| vec![Bytes(0); ring.devices.len()];
    let places = schedule.rings.values().map(none).collect();
    let joint = BTreeMap::new();
    let mut traffic = Traffic { schedule, exchanges, facts: &mut facts, joint, places };
    traffic.count();
    facts
}

fn memory(schedule: &Schedule, facts: &mut Facts) {
    let mut kinds: BTreeMap<(DeviceId, Kind), Vec<&Buffer>> = BTreeMap::new();
    for buffer in schedule.buffers.values() {
        for device in &schedule.rings[buffer.home].devices {
            kinds.entry((*device, buffer.subject.kind())).or_default().push(buffer);
        }
    }
    let bytes = kinds.into_iter().map(|(kind, own)| (kind, addresses(own.into_iter())));
    facts.kinds = bytes.collect();
    let shifts = schedule.shifts();
    for (device, (arena, _)) in schedule.arenas() {
        facts.device_arena.insert(device, arena);
        for shift in &shifts {
            let pool = schedule.target.devices[device.shifted(*shift)].pool;
            *facts.pool_arena.entry(pool).or_default() += arena;
        }
    }
}

struct Traffic<'a> {
    schedule: &'a Schedule,
    exchanges: &'a Exchanges,
    facts: &'a mut Facts,
    /// The exchanges of all launches at each place.
    joint: BTreeMap<(Place, Line), Joint>,
    /// Bytes that leave each place in one period.
    places: Table<RingId, Vec<Bytes>>,
}

impl Traffic<'_> {
    fn count(&mut self) {
        for action in self.schedule.actions.values() {
            match &action.work {
                Work::Transfer { link, from, to, .. } => self.transfer(*link, *from, *to),
                Work::Collective { link, kind, group, from, to, .. } => {
                    self.collective(*link, *kind, *group, [*from, *to]);
                }
                Work::Launch { at, routine, .. } => self.exchange(*at, *routine),
                Work::Feed { .. } | Work::Report { .. } => {}
            }
        }
        self.joined();
        self.spread();
    }

    fn exchange(&mut self, at: Place, routine: RoutineId) {
        for (line, Joint { calls, sent, all }) in
            self.exchanges.routines.get(&routine).into_iter().flatten()
        {
            let joint = self.joint.entry((at, *line)).or_default();
            joint.calls += calls;
            joint.sent += *sent;
            joint.all += *all;
        }
    }

    /// What the parts of all launches send each other, along every line.
    fn joined(&mut self) {
        for ((at, line), Joint { calls, sent, all }) in &self.joint {
            let device = self.schedule.rings[at.ring].device(at.place, 0);
            for link in &self.exchanges.links[&(device, *line)] {
                *self.facts.link_bytes.entry(*link).or_default() += *all;
                self.facts.messages += calls;
            }
            self.places[at.ring][at.place as usize] += *sent;
        }
    }

    fn transfer(&mut self, link: LinkId, from: Spot, to: Spot) {
        let device = |at: Place| self.schedule.rings[at.ring].device(at.place, 0);
        if device(from.at) == device(to.at) {
            return;
        }
        let cells = self.schedule.cell_count();
        let size = self.schedule.buffers[from.row.buffer].size;
        *self.facts.link_bytes.entry(link).or_default() += size * cells;
        self.places[from.at.ring][from.at.place as usize] += size;
        self.facts.messages += cells;
    }

    /// In a ring every member sends (n − 1)/n of the whole once, for an all-reduce twice.
    fn collective(
        &mut self,
        link: LinkId,
        kind: Collective,
        group: GroupId,
        rows: [Row; 2],
    ) {
        let schedule = self.schedule;
        let members = &schedule.groups[group];
        let own = members.axes.iter().map(|axis| u64::from(schedule.axes[*axis].extent));
        let copies: u64 = own.product();
        let instances = schedule.cell_count() / copies;
        let count = copies * members.places.len() as u64;
        let whole = rows.map(|row| schedule.buffers[row.buffer].size);
        let total = whole[0].max(whole[1]) * (kind.rounds() * (count - 1));
        if count > 1 {
            *self.facts.link_bytes.entry(link).or_default() += total * instances;
            self.facts.messages += instances;
        }
        for at in &members.places {
            let share = Bytes(total.0.div_ceil(count));
            self.places[at.ring][at.place as usize] += share;
        }
    }

    /// The devices of a ring take its places in turn.
    fn spread(&mut self) {
        for (id, ring) in self.schedule.rings.iter() {
            let length = ring.devices.len();
            let visited = Wheel::of_ring(ring).cycle() as usize;
            for (index, device) in ring.devices.iter().enumerate() {
                let places =
                    (0..visited).map(|p| (index + p * ring.turn as usize) % length);
                let bytes: Bytes = places.map(|place| self.places[id][place]).sum();
                let mean = Bytes(bytes.0.div_ceil(visited as u64));
                *self.facts.sent.entry(*device).or_default() += mean;
            }
        }
    }
}
