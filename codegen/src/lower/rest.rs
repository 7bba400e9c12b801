//! What carried buffers hold between segments, found by following versions in list order: a row
//! is carried when a segment reads it before writing it.

use roundelay_schedule::{
    Access, BufferId, Instance, Pass, Rest, Schedule, Segment, Subject, Work,
};
use std::collections::BTreeMap;

/// A slot on a device of the buffer's home ring.
type Cell = (BufferId, u32, u32);

/// Fills in `Buffer::rest` of parameters and optimizer state.
pub(crate) fn fill(schedule: &mut Schedule) {
    let rings = schedule.rings.values().map(|ring| ring.devices.len());
    let slots = schedule.buffers.values().map(|buffer| buffer.slots as usize);
    let turns = rings.chain(slots).max().unwrap_or(1) as u64;
    let (lag, reach) = schedule.span();
    let steps = turns + u64::from(lag) + u64::from(reach) + 2;
    let before = Segment { first: 0, end: steps };
    let after = Segment { first: steps, end: 2 * steps };
    let held = Versions::default().follow(schedule, before).held;
    let needed = Versions::default().follow(schedule, after).read_first;
    for cell in needed {
        let version = held.get(&cell).copied();
        let version =
            version.expect("what a segment reads was written in the one before");
        carry(schedule, cell, steps, version);
    }
}

fn carry(schedule: &mut Schedule, (id, device, slot): Cell, step: u64, version: i64) {
    let step = i64::try_from(step).unwrap_or(i64::MAX);
    let ring = &schedule.rings[schedule.buffers[id].home];
    let devices = ring.devices.len();
    let device_place = unturned(device, ring.turn, step, devices);
    let buffer = &mut schedule.buffers[id];
    let slot_place = unturned(slot, buffer.turn, step, buffer.slots as usize);
    if buffer.rest == Rest::Transient {
        buffer.rest = Rest::Carried(vec![vec![None; buffer.slots as usize]; devices]);
    }
    let age = u32::try_from(step - version).expect("no version is newer than the step");
    if let Rest::Carried(ages) = &mut buffer.rest {
        ages[device_place][slot_place] = Some(age);
    }
}

/// The place that turns into `index` in period `step`.
fn unturned(index: u32, turn: u32, step: i64, length: usize) -> usize {
    let place = i64::from(index) - i64::from(turn) * step;
    usize::try_from(place.rem_euclid(length as i64)).unwrap_or(0)
}

/// Versions of parameters and optimizer state, cell by cell.
#[derive(Default)]
struct Versions {
    held: BTreeMap<Cell, i64>,
    read_first: Vec<Cell>,
}

impl Versions {
    fn follow(mut self, schedule: &Schedule, segment: Segment) -> Self {
        for period in segment.periods(schedule) {
            for (_, action) in schedule.actions.iter() {
                let Instance::Execute(t) = segment.instance(action, period) else {
                    continue;
                };
                for touch in schedule.touches(action) {
                    let buffer = &schedule.buffers[touch.row.buffer];
                    if !matches!(
                        buffer.subject,
                        Subject::Parameter(..) | Subject::Optimizer(..)
                    ) {
                        continue;
                    }
                    let device =
                        schedule.rings[touch.at.ring].index(touch.at.place, period);
                    let slot = buffer.slot(touch.row.place, period);
                    let cell = (touch.row.buffer, device, slot);
                    self.touch(cell, touch.access, written(schedule, &action.work, t));
                }
            }
        }
        self
    }

    fn touch(&mut self, cell: Cell, access: Access, written: i64) {
        if access != Access::Write && !self.held.contains_key(&cell) {
            self.read_first.push(cell);
            self.held.insert(cell, i64::MIN);
        }
        if access != Access::Read {
            self.held.insert(cell, written);
        }
    }
}

/// The version that an action writes: an update makes the next one, a move carries its own.
fn written(schedule: &Schedule, work: &Work, t: i64) -> i64 {
    match work {
        Work::Launch { routine, .. } => {
            let updates = schedule.routines[*routine].pass == Pass::Update;
            t + i64::from(updates)
        }
        Work::Transfer { .. }
        | Work::Collective { .. }
        | Work::Feed { .. }
        | Work::Report { .. } => t,
    }
}
