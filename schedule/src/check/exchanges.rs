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
use std::collections::{BTreeMap, BTreeSet};

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
    if schedule.parts_axis().is_none() {
        return Exchanges::default();
    }
    let routines = joints(schedule, catalogue, faults);
    let (mut lines, mut joined) = (Lines::new(schedule, faults), BTreeSet::new());
    for (id, action) in schedule.actions.iter() {
        let Work::Launch { at, routine, .. } = &action.work else { continue };
        let Some(joint) = routines.get(routine) else { continue };
        for line in joint.keys().filter(|line| joined.insert((at.ring, **line))) {
            lines.join(id, &schedule.rings[at.ring], *line);
        }
    }
    Exchanges { routines, links: lines.links }
}

/// What the exchanges of each routine move. Whoever finds a norm has all parts add up theirs.
fn joints(
    schedule: &Schedule,
    catalogue: &dyn Catalogue,
    faults: &mut Faults,
) -> BTreeMap<RoutineId, BTreeMap<Line, Joint>> {
    let mut all = BTreeMap::new();
    for (id, routine) in schedule.routines.iter() {
        let joint = joint(schedule, catalogue, &routine.calls);
        let all_parts = schedule.plan.tensor.line(Direction::Both);
        let meets = routine.pass != Pass::Norm || joint.contains_key(&all_parts);
        faults.require(meets, Culprit::Routine(id), || {
            "finds the norm of one part of split tensors; add up what all parts find"
                .into()
        });
        if !joint.is_empty() {
            all.insert(id, joint);
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
fn ends_of(schedule: &Schedule, line: Line) -> Vec<[Vec<u32>; 2]> {
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

/// The lines of parts that launches take, and what joins them.
struct Lines<'a> {
    schedule: &'a Schedule,
    faults: &'a mut Faults,
    levels: Levels<'a>,
    ends: BTreeMap<Line, Vec<[Vec<u32>; 2]>>,
    links: BTreeMap<(DeviceId, Line), Vec<LinkId>>,
}

impl<'a> Lines<'a> {
    fn new(schedule: &'a Schedule, faults: &'a mut Faults) -> Self {
        let levels = Levels::new(&schedule.target);
        Self { schedule, faults, levels, ends: BTreeMap::new(), links: BTreeMap::new() }
    }

    /// An action is the first that exchanges something along the lines of a kind on the devices of a
    /// ring.
    fn join(&mut self, id: ActionId, ring: &Ring, line: Line) {
        for device in &ring.devices {
            if !self.links.contains_key(&(*device, line)) {
                let links = self.between(id, *device, line);
                self.links.insert((*device, line), links);
            }
        }
        self.alike(id, ring, line);
    }

    /// The links that join the lines of a device.
    fn between(&mut self, id: ActionId, device: DeviceId, line: Line) -> Vec<LinkId> {
        let Self { schedule, faults, levels, ends, .. } = self;
        let ends = ends.entry(line).or_insert_with(|| ends_of(schedule, line));
        let between = |ends: &[Vec<u32>; 2]| {
            let [one, other] = ends.each_ref().map(|c| schedule.device_at(device, c));
            let link = levels.link_between(one, other);
            faults.require(link.is_some(), Culprit::Action(id), || {
                format!("exchanges parts between {one} and {other}, which no link joins")
            });
            link
        };
        ends.iter().filter_map(between).collect()
    }

    /// Devices that turn take every place in turn, so their parts are joined by the same links. Told once
    /// for a ring and a kind of lines.
    fn alike(&mut self, id: ActionId, ring: &Ring, line: Line) {
        if !ring.is_turning() {
            return;
        }
        let of = |device: &DeviceId| self.links.get(&(*device, line));
        let first = ring.devices.first().and_then(of);
        let other = ring.devices.iter().find(|device| of(device) != first);
        self.faults.require(other.is_none(), Culprit::Action(id), || {
            "exchanges parts on devices that turn, whose parts are joined by different links; let \
             the parts of each lie alike"
                .into()
        });
    }
}
