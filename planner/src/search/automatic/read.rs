//! What a lowered and priced schedule says of its pipeline.

use super::pipe::{Half, Limited, Pipe, Rooms, StageHalves};
use crate::costs::memory;
use roundelay_dsl::Program;
use roundelay_schedule::{
    Buffer, BufferId, Bytes, Content, DeviceId, Id, KeptKind, Nanos, Order, Place,
    Schedule, Subject, Touch, Work,
};
use std::collections::{BTreeMap, BTreeSet};

/// The pipeline of a schedule whose routines are priced; its stages are alone on their devices,
/// and its backward passes in halves.
pub(super) fn pipe(program: &Program, schedule: &Schedule) -> Limited {
    let plan = &schedule.plan;
    let mut stages = vec![StageHalves::default(); plan.stages as usize];
    for (_, routine) in schedule.routines.iter() {
        let Some(half) = Half::of(routine.pass) else { continue };
        let stage = &mut stages[routine.stage.index()];
        let time = match half {
            Half::Forward => &mut stage.forward,
            Half::Input => &mut stage.input,
            Half::Weight => &mut stage.weight,
        };
        *time = routine.predicted.max(*time);
    }
    for buffer in schedule.buffers.values() {
        if let Some((stage, from, until)) = kept(buffer)
            && let Some(kept) = stages[stage].kept.between(from, until)
        {
            *kept = buffer.size;
        }
    }
    let received = messages(schedule, &mut stages);
    let micro_batches = plan.micro_batches as usize;
    let pipe = Pipe { stages, micro_batches };
    match plan.order {
        Order::ZeroBubbleOneP => pipe.limited(1),
        Order::ZeroBubbleTwoP => pipe.limited(2),
        _ => Limited { pipe, rooms: Rooms::Slots(rooms(program, schedule, &received)) },
    }
}

/// The stage of a buffer that keeps something for a later pass, from which pass and until which.
fn kept(buffer: &Buffer) -> Option<(usize, Half, Half)> {
    let (stage, kind) = buffer.subject.kept()?;
    let (from, until) = match kind {
        KeptKind::Activation => (Half::Forward, Half::Input),
        KeptKind::Retained => (Half::Forward, Half::Weight),
        KeptKind::Adjoint => (Half::Input, Half::Weight),
    };
    Some((stage.index(), from, until))
}

/// Reads what the messages of a micro-batch between neighbours take, one after another, what they
/// fill where they arrive, and until when; gives the buffers there.
fn messages(schedule: &Schedule, stages: &mut [StageHalves]) -> BTreeSet<BufferId> {
    let rank = |place: Place| {
        let device = schedule.rings[place.ring].devices[place.place as usize];
        schedule.plan.cell_devices().position(|own| own == device)
    };
    let mut received: BTreeMap<BufferId, usize> = BTreeMap::new();
    let mut sums: BTreeMap<(usize, usize), Nanos> = BTreeMap::new();
    for action in schedule.actions.values() {
        let Work::Transfer { link, from, to, content } = &action.work else { continue };
        if !matches!(content, Content::Value(..) | Content::ValueGradient(..)) {
            continue;
        }
        if let (Some(sender), Some(receiver)) = (rank(from.at), rank(to.at)) {
            let size = schedule.buffers[to.row.buffer].size;
            let time = schedule.target.links[*link].transfer_time(size);
            *sums.entry((sender, receiver)).or_default() += time;
            received.insert(to.row.buffer, receiver);
        }
    }
    let last = last_readers(schedule, &received);
    for (buffer, receiver) in &received {
        let Some(stage) = stages.get_mut(*receiver) else { continue };
        let Buffer { subject, size, .. } = schedule.buffers[*buffer];
        let (from, messages) = match subject {
            Subject::ValueGradient(_) => (Half::Input, &mut stage.gradients),
            _ => (Half::Forward, &mut stage.values),
        };
        let until = last.get(buffer).copied().unwrap_or(from);
        messages[until as usize] += size;
        if let Some(kept) = stage.kept.between(from, until) {
            *kept += size;
        }
    }
    let n = u64::from(schedule.plan.micro_batches);
    for ((from, to), sum) in sums {
        let each = Nanos(sum.0 / n);
        match stages.get_mut(from) {
            Some(stage) if to == from + 1 => stage.down = each,
            Some(stage) if to + 1 == from => stage.up = each,
            Some(_) | None => {}
        }
    }
    received.into_keys().collect()
}

/// The last pass that reads what some buffers receive: a pass that makes activations again reads
/// values once more.
fn last_readers(
    schedule: &Schedule,
    received: &BTreeMap<BufferId, usize>,
) -> BTreeMap<BufferId, Half> {
    let mut last = BTreeMap::new();
    for action in schedule.actions.values() {
        let Work::Launch { routine, .. } = &action.work else { continue };
        let Some(half) = Half::of(schedule.routines[*routine].pass) else { continue };
        schedule.each_touch(&action.work, |Touch { row, .. }| {
            if received.contains_key(&row.buffer) {
                let known = last.entry(row.buffer).or_insert(half);
                *known = half.max(*known);
            }
        });
    }
    last
}

/// What each device may keep: its capacity without what lies there under any order. Devices of
/// one pool have equal shares of it; of the devices that repeat a stage the smallest counts.
fn rooms(
    program: &Program,
    schedule: &Schedule,
    received: &BTreeSet<BufferId>,
) -> Vec<Bytes> {
    let cells = memory::cells(schedule);
    let pool = |device: DeviceId| schedule.target.devices[device].pool;
    let mut sharing: BTreeMap<_, u64> = BTreeMap::new();
    for device in cells.keys() {
        *sharing.entry(pool(*device)).or_default() += 1;
    }
    let capacity = |device: DeviceId| {
        let own = memory::device_capacity(program, &schedule.target.devices[device]);
        let shared = schedule.target.pools[pool(device)].capacity;
        own.min(Bytes(shared.0 / sharing[&pool(device)]))
    };
    let moves = |(id, buffer): &(BufferId, &Buffer)| {
        kept(buffer).is_some() || received.contains(id)
    };
    let room = |cell: DeviceId| {
        let repeated = cells.iter().filter(|(_, own)| **own == cell);
        let least = repeated.map(|(device, _)| capacity(*device)).min();
        let own = |(_, buffer): &(BufferId, &Buffer)| {
            schedule.rings[buffer.home].devices.contains(&cell)
        };
        let slots = schedule.buffers.iter().filter(own).filter(moves);
        let taken = slots.map(|(_, buffer)| buffer.total()).sum::<Bytes>();
        least.unwrap_or_default() + taken - schedule.arena(cell)
    };
    schedule.plan.cell_devices().map(room).collect()
}
