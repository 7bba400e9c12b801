//! Live memory of a simulated run over time.

use crate::{
    Access, BufferId, Bytes, DeviceId, Entry, Kind, Nanos, Rest, Simulation, Touch,
};
use std::collections::BTreeMap;

/// Live bytes by kind, from one instant until the next one of the same device.
pub(super) type Live = BTreeMap<Kind, Bytes>;

/// A row of a device: what is written there lives until its last read.
type Cell = (DeviceId, BufferId, u32);

/// One life: when it was written, and the end of its last use so far.
#[derive(Clone, Copy)]
struct Life {
    from: Nanos,
    until: Nanos,
}

struct Lives<'a> {
    simulation: &'a Simulation<'a>,
    open: BTreeMap<Cell, Life>,
    /// Bytes that begin and end, by device, time and kind.
    changes: BTreeMap<(DeviceId, Nanos, Kind), (u64, u64)>,
}

/// Live bytes of every device after each change, by time. Rows that are carried from step to
/// step live all the time; others from the start of what writes them to the end of what reads
/// them last.
pub(super) fn live(
    simulation: &Simulation<'_>,
) -> BTreeMap<DeviceId, Vec<(Nanos, Live)>> {
    let mut lives = Lives { simulation, open: BTreeMap::new(), changes: BTreeMap::new() };
    lives.carry();
    for entry in simulation.entries() {
        let action = &simulation.schedule().actions[entry.action];
        for touch in simulation.schedule().touches(action) {
            lives.touch(entry, touch);
        }
    }
    for (cell, life) in std::mem::take(&mut lives.open) {
        lives.close(cell, life);
    }
    lives.sums()
}

impl Lives<'_> {
    fn carry(&mut self) {
        let schedule = self.simulation.schedule();
        for buffer in schedule.buffers.values().filter(|b| b.rest != Rest::Transient) {
            for device in &schedule.rings[buffer.home].devices {
                let change = (*device, Nanos(0), buffer.subject.kind());
                self.changes.entry(change).or_default().0 += buffer.total().0;
            }
        }
    }

    fn touch(&mut self, entry: &Entry, Touch { at, row, access }: Touch) {
        let schedule = self.simulation.schedule();
        let buffer = &schedule.buffers[row.buffer];
        if buffer.rest != Rest::Transient {
            return;
        }
        let device = schedule.rings[at.ring].device(at.place, entry.period);
        let cell = (device, row.buffer, buffer.slot(row.place, entry.period));
        match (access, self.open.get_mut(&cell)) {
            (Access::Read | Access::Update, Some(life)) => {
                life.until = life.until.max(entry.end);
            }
            (Access::Read, None) => {}
            (Access::Write | Access::Update, _) => {
                let life = Life { from: entry.start, until: entry.end };
                if let Some(before) = self.open.insert(cell, life) {
                    self.close(cell, before);
                }
            }
        }
    }

    fn close(&mut self, (device, buffer, _): Cell, Life { from, until }: Life) {
        let buffer = &self.simulation.schedule().buffers[buffer];
        let kind = buffer.subject.kind();
        self.changes.entry((device, from, kind)).or_default().0 += buffer.size.0;
        self.changes.entry((device, until, kind)).or_default().1 += buffer.size.0;
    }

    fn sums(self) -> BTreeMap<DeviceId, Vec<(Nanos, Live)>> {
        let mut rows: BTreeMap<DeviceId, Vec<(Nanos, Live)>> = BTreeMap::new();
        for ((device, time, kind), (begin, end)) in self.changes {
            let rows = rows.entry(device).or_default();
            let mut live = rows.last().map(|(_, live)| live.clone()).unwrap_or_default();
            let bytes = live.entry(kind).or_default();
            *bytes = Bytes(bytes.0 + begin - end);
            match rows.last_mut() {
                Some((last, row)) if *last == time => *row = live,
                _ => rows.push((time, live)),
            }
        }
        rows
    }
}
