//! Rule 1 for calls inside of routines that all rows make together: there are rows, as many as the
//! call says, and a link joins them.
//!
//! Every launch runs at every coordinate, and every queue is in list order; so the rows of a launch
//! meet in the same calls in the same order, and none of them waits for one that does not come.

use super::{Culprit, faults::Faults};
use crate::{
    ActionId, Bytes, Call, Catalogue, DeviceId, Exchanged, Id, Levels, LinkId, Ring,
    RoutineId, Schedule, Work,
};
use std::collections::BTreeMap;

/// What the exchanges of a schedule move.
#[derive(Debug, Default)]
pub(super) struct Exchanges {
    /// Of each routine that has any: what one row sends in a launch.
    pub(super) routines: BTreeMap<RoutineId, Joint>,
    /// For each device of the cell that launches them, the links that join its rows: one link for
    /// each coordinate of the other axes.
    pub(super) links: BTreeMap<DeviceId, Vec<LinkId>>,
}

/// The exchanges of one launch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Joint {
    /// How many there are.
    pub(super) calls: u64,
    /// Bytes that one row sends.
    pub(super) sent: Bytes,
}

/// Whether all rows of the schedule take part in an exchange.
pub(super) fn legal(schedule: &Schedule, exchanged: Exchanged) -> Result<(), String> {
    let Exchanged { parts, .. } = exchanged;
    match (schedule.rows_axis(), schedule.tensor_rows()) {
        (None, _) => Err(format!(
            "{parts} rows make it together, but no axis of the schedule splits rows"
        )),
        (Some(_), rows) if rows != parts => Err(format!(
            "{parts} rows make it together, but tensors are split among {rows}"
        )),
        (Some(_), _) => Ok(()),
    }
}

/// Gathers the exchanges of all routines and the links that they take; needs sound actions.
pub(super) fn check(
    schedule: &Schedule,
    catalogue: &dyn Catalogue,
    faults: &mut Faults,
) -> Exchanges {
    let mut all = Exchanges::default();
    if schedule.rows_axis().is_none() {
        return all;
    }
    for (id, routine) in schedule.routines.iter() {
        let joint = joint(schedule, catalogue, &routine.calls);
        if joint.calls > 0 {
            all.routines.insert(id, joint);
        }
    }
    let (groups, levels) = (groups(schedule), Levels::new(&schedule.target));
    for (id, action) in schedule.actions.iter() {
        let Work::Launch { at, routine, .. } = &action.work else { continue };
        if all.routines.contains_key(routine) {
            let ring = &schedule.rings[at.ring];
            for device in &ring.devices {
                if !all.links.contains_key(device) {
                    let links =
                        links((schedule, &levels), id, (*device, &groups), faults);
                    all.links.insert(*device, links);
                }
            }
            alike(id, ring, &all.links, faults);
        }
    }
    all
}

fn joint(schedule: &Schedule, catalogue: &dyn Catalogue, calls: &[Call]) -> Joint {
    let dtype = schedule.job.dtype;
    let found = calls.iter().filter_map(|call| catalogue.exchange(call, dtype));
    found.fold(Joint::default(), |all, exchanged| Joint {
        calls: all.calls + 1,
        sent: all.sent + exchanged.sent(),
    })
}

/// The first and the last coordinate along the rows, for each of the other axes.
fn groups(schedule: &Schedule) -> Vec<[Vec<u32>; 2]> {
    let Some(axis) = schedule.rows_axis() else { return Vec::new() };
    let mut firsts = schedule.coordinates();
    firsts.retain(|coordinate| coordinate[axis.index()] == 0);
    let ends = |first: Vec<u32>| {
        let mut last = first.clone();
        last[axis.index()] = schedule.axes[axis].extent - 1;
        [first, last]
    };
    firsts.into_iter().map(ends).collect()
}

/// The links that join the rows of a device.
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

/// Devices that turn take every place in turn, so their rows are joined by the same links.
fn alike(
    id: ActionId,
    ring: &Ring,
    links: &BTreeMap<DeviceId, Vec<LinkId>>,
    faults: &mut Faults,
) {
    if (ring.turn as usize).is_multiple_of(ring.devices.len()) {
        return;
    }
    let other = ring.devices.iter().find(|device| {
        links.get(device) != ring.devices.first().and_then(|first| links.get(first))
    });
    faults.require(other.is_none(), Culprit::Action(id), || {
        "exchanges parts on devices that turn, whose rows are joined by different links; let \
         the rows of each lie alike"
            .into()
    });
}
