//! What carried buffers hold between segments, found by following versions in list order: a row
//! is carried when a segment reads it before writing it.

use roundelay_schedule::{
    Access, Action, BufferId, Cells, Instance, Pass, Rest, Schedule, Segment, Subject,
    Touch, Turned, Work,
};
use std::collections::BTreeSet;

/// Fills in `Buffer::rest` of parameters and optimizer state. A cell that is written is written
/// again within `recurrence` periods.
pub(crate) fn fill(schedule: &mut Schedule, cells: &Cells, recurrence: u64) {
    let (lag, reach) = schedule.span();
    let steps = recurrence + u64::from(lag) + u64::from(reach) + 2;
    let before = Segment { first: 0, end: steps };
    let after = Segment { first: steps, end: 2 * steps };
    let uses = uses(schedule, cells);
    let held = Versions::new(cells).follow(schedule, cells, &uses, before).held;
    let needed = Versions::new(cells).follow(schedule, cells, &uses, after).read_first;
    for cell in needed {
        let version =
            held[cell].expect("what a segment reads was written in the one before");
        carry(schedule, cells, cell, steps, version);
    }
}

fn carry(schedule: &mut Schedule, cells: &Cells, cell: usize, step: u64, version: i64) {
    let step = i64::try_from(step).expect("a version is a small number");
    let id = cells.buffer(cell);
    let inside = cell - cells.of(id).start;
    let slots = schedule.buffers[id].slots as usize;
    let (device, slot) = (inside / slots, inside % slots);
    let ring = &schedule.rings[schedule.buffers[id].home];
    let devices = ring.devices.len();
    let device_place = unturned(device, ring.turn, step, devices);
    let buffer = &mut schedule.buffers[id];
    let slot_place = unturned(slot, buffer.turn, step, slots);
    if buffer.rest == Rest::Transient {
        buffer.rest = Rest::Carried(vec![vec![None; slots]; devices]);
    }
    let age = u32::try_from(step - version).expect("no version is newer than the step");
    if let Rest::Carried(ages) = &mut buffer.rest {
        ages[device_place][slot_place] = Some(age);
    }
}

/// The place that turns into `index` in period `step`.
fn unturned(index: usize, turn: u32, step: i64, length: usize) -> usize {
    let place = index as i64 - i64::from(turn) * step;
    usize::try_from(place.rem_euclid(length as i64)).expect("a remainder is not negative")
}

/// A touch of parameters or optimizer state.
struct Use<'a> {
    action: &'a Action,
    touch: Touch,
}

/// All such touches in list order. A read right after another one of the same row in the same
/// steps says nothing new; thousands of passes read the same parameters.
fn uses<'a>(schedule: &'a Schedule, cells: &Cells) -> Vec<Use<'a>> {
    let mut uses: Vec<Use<'_>> = Vec::new();
    let mut last: Vec<Option<usize>> = vec![None; cells.count()];
    let rows = Turned::new(schedule, cells, 0);
    let carries = |id: BufferId| {
        let subject = schedule.buffers[id].subject;
        matches!(subject, Subject::Parameter(..) | Subject::Optimizer(..))
    };
    for action in schedule.actions.values() {
        schedule.each_touch(&action.work, |touch| {
            if !carries(touch.row.buffer) {
                return;
            }
            let last = &mut last[rows.cell(touch.at, touch.row)];
            let said = |before: usize| {
                let Use { action: other, touch: earlier } = &uses[before];
                let steps = (other.lag, other.reach) == (action.lag, action.reach);
                steps && [earlier.access, touch.access] == [Access::Read; 2]
            };
            if !last.is_some_and(said) {
                *last = Some(uses.len());
                uses.push(Use { action, touch });
            }
        });
    }
    uses
}

/// Versions of parameters and optimizer state, cell by cell.
struct Versions {
    held: Vec<Option<i64>>,
    read_first: BTreeSet<usize>,
}

impl Versions {
    fn new(cells: &Cells) -> Self {
        Self { held: vec![None; cells.count()], read_first: BTreeSet::new() }
    }

    fn follow(
        mut self,
        schedule: &Schedule,
        cells: &Cells,
        uses: &[Use<'_>],
        segment: Segment,
    ) -> Self {
        let mut turned = Turned::new(schedule, cells, 0);
        for period in segment.periods(schedule) {
            turned.turn_to(period);
            for Use { action, touch } in uses {
                if let Instance::Execute(t) = segment.instance(action, period) {
                    let cell = turned.cell(touch.at, touch.row);
                    self.touch(cell, touch.access, written(schedule, &action.work, t));
                }
            }
        }
        self
    }

    fn touch(&mut self, cell: usize, access: Access, written: i64) {
        if access != Access::Write && self.held[cell].is_none() {
            self.read_first.insert(cell);
        }
        if access != Access::Read {
            self.held[cell] = Some(written);
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
