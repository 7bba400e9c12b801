//! What the devices of each kind wait for each other, where a plan has several kinds.

use crate::costs::calls::{Costs, Unpriced};
use roundelay_dsl::kind_of;
use roundelay_schedule::{
    DeviceId, Nanos, PhysicalQueue, RoutineId, Schedule, Simulation, Work,
};
use std::collections::BTreeMap;

/// The share of the steady state in which devices of each kind compute nothing, by the kind's name;
/// nothing where all devices in use take the same. A launch takes as long as on the slowest device that
/// takes part, so the others wait for what they would take less.
///
/// # Errors
/// When the catalogue does not know a call.
pub(crate) fn idle(
    costs: &Costs,
    schedule: &Schedule,
    run: &Simulation<'_>,
) -> Result<BTreeMap<String, f64>, Unpriced> {
    let used = || schedule.plan.devices.iter().copied();
    if costs.kinds() < 2 || costs.kinds_of(used()).is_single() {
        return Ok(BTreeMap::new());
    }
    let own = costs.on_each_kind(schedule)?;
    let window = run.steady();
    let whole = (window.end - window.start).0 as f64;
    let shifts = schedule.shifts();
    // Busy seconds, and devices.
    let mut kinds: BTreeMap<String, (f64, usize)> = BTreeMap::new();
    let name =
        |device: DeviceId| kind_of(&schedule.target.devices[device].name).to_owned();
    for device in used() {
        kinds.entry(name(device)).or_default().1 += 1;
    }
    for ((cell, routine), time) in launched(schedule, run) {
        let all = schedule.routines[routine].predicted.0.max(1) as f64;
        for device in shifts.iter().map(|shift| cell.shifted(*shift)) {
            let own = own[&routine][costs.kind_of(device)].0 as f64;
            let busy = kinds.entry(name(device)).or_default();
            busy.0 += time.0 as f64 * (own / all).min(1.0);
        }
    }
    let share = |(busy, devices): (f64, usize)| {
        let all = (whole * devices as f64).max(1.0);
        (1.0 - busy / all).clamp(0.0, 1.0)
    };
    Ok(kinds.into_iter().map(|(name, kind)| (name, share(kind))).collect())
}

/// How long each device of the cell spends in each routine for the steps of the steady state.
fn launched(
    schedule: &Schedule,
    run: &Simulation<'_>,
) -> BTreeMap<(DeviceId, RoutineId), Nanos> {
    let mut all = BTreeMap::new();
    for entry in run.steady_entries() {
        let work = &schedule.actions[entry.action].work;
        let (PhysicalQueue::Lane(device, _), Work::Launch { routine, .. }) =
            (entry.queue, work)
        else {
            continue;
        };
        *all.entry((device, *routine)).or_default() += entry.end - entry.start;
    }
    all
}
