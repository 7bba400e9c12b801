//! The lists of the devices that a schedule is.

use super::{DeviceList, Listed};
use crate::{Id, PhysicalQueue, Schedule, Stage};
use std::collections::BTreeMap;

/// Why a schedule is no set of lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Unlisted {
    /// Something turns or interleaves training steps.
    #[error(
        "passes of several training steps stand in one period: lists are one step with a flush"
    )]
    Interleaved,
    /// A stage is on several devices.
    #[error("stage {0} is on several devices: lists give each stage to one")]
    Shared(usize),
}

/// The passes of each device, in the order of the schedule; devices in the order of their first
/// stages. Replicas do the same and are not listed.
///
/// # Errors
/// When lists cannot say what the schedule does.
pub fn lists_of(schedule: &Schedule) -> Result<Vec<DeviceList>, Unlisted> {
    let turning = schedule.rings.values().any(|ring| ring.turn > 0);
    let mut homes: BTreeMap<Stage, PhysicalQueue> = BTreeMap::new();
    let mut lists: BTreeMap<PhysicalQueue, DeviceList> = BTreeMap::new();
    for action in schedule.actions.values() {
        if turning || action.lag > 0 {
            return Err(Unlisted::Interleaved);
        }
        let Some(task) = schedule.task(action) else { continue };
        let Some(micro_batch) = task.micro_batch else { continue };
        let queue = schedule.queue(action, 0);
        if *homes.entry(task.stage).or_insert(queue) != queue {
            return Err(Unlisted::Shared(task.stage.index()));
        }
        let listed = Listed { stage: task.stage, pass: task.pass, micro_batch };
        lists.entry(queue).or_default().push(listed);
    }
    let mut lists: Vec<DeviceList> = lists.into_values().collect();
    lists.sort_by_key(|list| list.iter().map(|listed| listed.stage).min());
    Ok(lists)
}
