//! The lists of the devices that a schedule is.

use super::{DeviceList, Item, Listed};
use crate::{ActionId, Checked, Id, PhysicalQueue, Rule, Stage};
use std::collections::BTreeMap;

/// Why a schedule is no set of lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Unlisted {
    /// Something turns or interleaves training steps.
    #[error(
        "passes of several training steps stand in one period: lists are one step with a flush"
    )]
    Interleaved,
    /// Gradients stop between units.
    #[error(
        "gradients stop between the units of `{0}`: lists hand each of them on to the stage before"
    )]
    Local(Rule),
    /// Sequences are cut into slices.
    #[error("sequences are cut into slices: lists count whole micro-batches")]
    Sliced,
    /// A stage is on several devices.
    #[error("stage {0} is on several devices: lists give each stage to one")]
    Shared(usize),
}

/// The passes of each device, in the order of the schedule; devices in the order of their
/// first stages. What runs beside a forward pass is its pair, wherever it queues.
/// Replicas do the same and are not listed.
///
/// # Errors
/// When lists cannot say what the schedule does.
pub fn lists_of(schedule: &Checked) -> Result<Vec<DeviceList>, Unlisted> {
    if let rule @ Rule::Local { .. } = schedule.plan.rule {
        return Err(Unlisted::Local(rule));
    }
    if schedule.plan.slices > 1 {
        return Err(Unlisted::Sliced);
    }
    let turning = schedule.rings.values().any(|ring| ring.turn > 0);
    let mut homes: BTreeMap<Stage, PhysicalQueue> = BTreeMap::new();
    let mut lists: BTreeMap<PhysicalQueue, Vec<Vec<Listed>>> = BTreeMap::new();
    let mut places: BTreeMap<ActionId, usize> = BTreeMap::new();
    for (id, action) in schedule.actions.iter() {
        if turning || action.lag > 0 {
            return Err(Unlisted::Interleaved);
        }
        let Some(task) = schedule.task(action) else { continue };
        let Some(micro_batch) = task.micro_batch else { continue };
        let beside = action.work.beside();
        let queue = schedule.queue(&schedule.actions[beside.unwrap_or(id)], 0);
        if *homes.entry(task.stage).or_insert(queue) != queue {
            return Err(Unlisted::Shared(task.stage.index()));
        }
        let listed = Listed { stage: task.stage, pass: task.pass, micro_batch };
        let list = lists.entry(queue).or_default();
        match beside.and_then(|head| places.get(&head)) {
            Some(place) => list[*place].push(listed),
            None => {
                places.insert(id, list.len());
                list.push(vec![listed]);
            }
        }
    }
    let item = |passes: Vec<Listed>| Item::of(passes).expect("a checked pair is one");
    let list = |list: Vec<Vec<Listed>>| list.into_iter().map(item).collect();
    let mut lists: Vec<DeviceList> = lists.into_values().map(list).collect();
    let first = |list: &DeviceList| super::listed_in(list).map(|l| l.stage).min();
    lists.sort_by_key(first);
    Ok(lists)
}
