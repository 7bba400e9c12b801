//! Rule 1 for calls inside of routines that parts of a split tensor make together: tensors are
//! split into such lines of parts as the call says, and a link joins each of them.
//!
//! Every launch runs at every coordinate, and every queue is in list order; so the parts of a
//! launch meet in the same calls in the same order, and none of them waits for one that does not
//! come.

use super::{Culprit, faults::Faults};
use crate::{
    ActionId, Bytes, Call, Catalogue, DeviceId, Direction, Exchanged, Id, Levels, Line,
    LinkId, Pass, Ring, RoutineId, Schedule, Work,
};
use std::collections::BTreeMap;

/// What the exchanges of a schedule move.
#[derive(Debug, Default)]
pub(super) struct Exchanges {
    /// Of each routine that has any: what one part sends along each kind of line in a launch.
    pub(super) routines: BTreeMap<RoutineId, BTreeMap<Line, Joint>>,
    /// For each device of the cell that launches them and each kind of line, the links that join
    /// its lines: one link for each line at each coordinate of the other axes.
    pub(super) links: BTreeMap<(DeviceId, Line), Vec<LinkId>>,
}

/// The exchanges of one launch along lines of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Joint {
    /// How many there are.
    pub(super) calls: u64,
    /// Bytes that the part sends that sends most.
    pub(super) sent: Bytes,
    /// Bytes that all parts of a line send together.
    pub(super) all: Bytes,
}

/// Whether an exchange runs along lines of the plan's grid.
pub(super) fn legal(schedule: &Schedule, exchanged: Exchanged) -> Result<(), String> {
    let Line { parts, stride } = exchanged.line;
    let tensor = schedule.plan.tensor;
    match schedule.parts_axis() {
        None => Err(format!(
            "{parts} parts make it together, but no axis of the schedule splits tensors"
        )),
        Some(_) if tensor.has(exchanged.line) => Ok(()),
        Some(_) => Err(format!(
            "{parts} parts that are {stride} apart make it together, which {} are not",
            tensor.shown()
        )),
    }
}

/// Gathers the exchanges of all routines and the links that they take; needs sound actions.
pub(super) fn check(
    schedule: &Schedule,
    catalogue: &dyn Catalogue,
    faults: &mut Faults,
) -> Exchanges {
    let mut all = Exchanges::default();
    if schedule.parts_axis().is_none() {
        return all;
    }
    for (id, routine) in schedule.routines.iter() {
        let joint = joint(schedule, catalogue, &routine.calls);
        let all_parts = schedule.plan.tensor.line(Direction::Both);
        let meets = routine.pass != Pass::Norm || joint.contains_key(&all_parts);
        faults.require(meets, Culprit::Routine(id), || {
            "finds the norm of one part of split tensors; add up what all parts find"
                .into()
        });
        if !joint.is_empty() {
            all.routines.insert(id, joint);
        }
    }
    let levels = Levels::new(&schedule.target);
    let mut known = BTreeMap::new();
    for (id, action) in schedule.actions.iter() {
        let Work::Launch { at, routine, .. } = &action.work else { continue };
        let Some(joint) = all.routines.get(routine) else { continue };
        let ring = &schedule.rings[at.ring];
        for line in joint.keys() {
            let groups = known.entry(*line).or_insert_with(|| groups(schedule, *line));
            for device in &ring.devices {
                all.links.entry((*device, *line)).or_insert_with(|| {
                    links((schedule, &levels), id, (*device, groups), faults)
                });
            }
            alike(id, (ring, *line), &all.links, faults);
        }
    }
    all
}

fn joint(
    schedule: &Schedule,
    catalogue: &dyn Catalogue,
    calls: &[Call],
) -> BTreeMap<Line, Joint> {
    let mut all: BTreeMap<Line, Joint> = BTreeMap::new();
    let dtype = schedule.job.dtype;
    for exchanged in calls.iter().filter_map(|call| catalogue.exchange(call, dtype)) {
        let joint = all.entry(exchanged.line).or_default();
        joint.calls += 1;
        joint.sent += exchanged.sent();
        joint.all += exchanged.sent_by_all();
    }
    all
}

/// The first and the last coordinate of each line, at each coordinate of the other axes.
fn groups(schedule: &Schedule, line: Line) -> Vec<[Vec<u32>; 2]> {
    let Some(axis) = schedule.parts_axis() else { return Vec::new() };
    let mut firsts = schedule.coordinates();
    firsts.retain(|coordinate| line.place(coordinate[axis.index()]) == 0);
    let ends = |first: Vec<u32>| {
        let mut last = first.clone();
        last[axis.index()] += (line.parts - 1) * line.stride;
        [first, last]
    };
    firsts.into_iter().map(ends).collect()
}

/// The links that join the lines of a device.
fn links(
    (schedule, levels): (&Schedule, &Levels<'_>),
    id: ActionId,
    (device, groups): (DeviceId, &[[Vec<u32>; 2]]),
    faults: &mut Faults,
) -> Vec<LinkId> {
    let between = |ends: &[Vec<u32>; 2]| {
        let [one, other] = ends.each_ref().map(|c| schedule.device_at(device, c));
        let link = levels.link_between(one, other);
        faults.require(link.is_some(), Culprit::Action(id), || {
            format!("exchanges parts between {one} and {other}, which no link joins")
        });
        link
    };
    groups.iter().filter_map(between).collect()
}

/// Devices that turn take every place in turn, so their parts are joined by the same links.
fn alike(
    id: ActionId,
    (ring, line): (&Ring, Line),
    links: &BTreeMap<(DeviceId, Line), Vec<LinkId>>,
    faults: &mut Faults,
) {
    if !ring.is_turning() {
        return;
    }
    let of = |device: &DeviceId| links.get(&(*device, line));
    let first = ring.devices.first().and_then(of);
    let other = ring.devices.iter().find(|device| of(device) != first);
    faults.require(other.is_none(), Culprit::Action(id), || {
        "exchanges parts on devices that turn, whose parts are joined by different links; let \
         the parts of each lie alike"
            .into()
    });
}
