//! Mutations of single actions. Waits are not derived again.

use crate::{
    mutant::{Change, Fault},
    random::Random,
};
use roundelay_schedule::{
    Action, ActionId, Collective, Content, GroupId, Id, MicroBatch, Place, RoutineId,
    Row, Schedule, Stage, Sum, Table, Wait, Work,
};
use std::collections::{BTreeMap, BTreeSet};

/// All of them, by name.
pub(crate) const LINES: &[(&str, Change)] = &[
    ("wait dropped", drop_wait),
    ("wait farther", |s, r| shift_wait(s, r, 1)),
    ("wait nearer", |s, r| shift_wait(s, r, -1)),
    ("wait elsewhere", wait_elsewhere),
    ("lag up", |s, r| line(s, r, |a, _| up(&mut a.lag))),
    ("lag down", |s, r| line(s, r, |a, _| down(&mut a.lag))),
    ("reach up", |s, r| mover(s, r, |a| up(&mut a.reach))),
    ("reach down", |s, r| mover(s, r, |a| down(&mut a.reach))),
    ("reach of any", |s, r| line(s, r, |a, _| up(&mut a.reach))),
    ("slot place", slot_place),
    ("other buffer", other_buffer),
    ("rows exchanged", rows_exchanged),
    ("queue: lane", other_lane),
    ("queue: place", other_place),
    ("queue: group", other_group),
    ("ends exchanged", ends_exchanged),
    ("link", other_link),
    ("kind", other_kind),
    ("micro-batch", other_micro_batch),
    ("routine", other_routine),
    ("content: stage", content_stage),
    ("content: micro-batch", content_micro_batch),
    ("content: sum", content_sum),
    ("erased", erase),
    ("swapped", swap),
    ("twice", twice),
    ("moved", move_away),
];

pub(crate) fn up(number: &mut u32) -> Option<()> {
    *number += 1;
    Some(())
}

pub(crate) fn down(number: &mut u32) -> Option<()> {
    *number = number.checked_sub(1)?;
    Some(())
}

/// Changes one random action.
fn line(
    schedule: &mut Schedule,
    random: &mut Random,
    change: impl FnOnce(&mut Action, &mut Random) -> Option<()>,
) -> Option<Fault> {
    let ids: Vec<ActionId> = schedule.actions.ids().collect();
    at_line(schedule, random.pick(&ids)?, |action| change(action, random))
}

fn at_line(
    schedule: &mut Schedule,
    id: ActionId,
    change: impl FnOnce(&mut Action) -> Option<()>,
) -> Option<Fault> {
    let fault = Fault::of(schedule, id);
    change(&mut schedule.actions[id])?;
    Some(fault)
}

/// The actions that `fits` takes.
fn those(schedule: &Schedule, fits: impl Fn(&Action) -> bool) -> Vec<ActionId> {
    let all = schedule.actions.iter();
    all.filter(|(_, action)| fits(action)).map(|(id, _)| id).collect()
}

fn mover(
    schedule: &mut Schedule,
    random: &mut Random,
    change: impl FnOnce(&mut Action) -> Option<()>,
) -> Option<Fault> {
    let moves = those(schedule, |action| content(&action.work).is_some());
    at_line(schedule, random.pick(&moves)?, change)
}

fn content(work: &Work) -> Option<&Content> {
    match work {
        Work::Transfer { content, .. } | Work::Collective { content, .. } => {
            Some(content)
        }
        Work::Launch { .. } | Work::Feed { .. } | Work::Report { .. } => None,
    }
}

fn waiting(schedule: &Schedule, random: &mut Random) -> Option<(ActionId, usize)> {
    let actions = schedule.actions.iter();
    let waits = actions.flat_map(|(id, a)| (0..a.after.len()).map(move |w| (id, w)));
    random.pick(&waits.collect::<Vec<_>>())
}

fn drop_wait(schedule: &mut Schedule, random: &mut Random) -> Option<Fault> {
    let (id, wait) = waiting(schedule, random)?;
    let mut waits = schedule.actions[id].after.to_vec();
    let dropped = waits.remove(wait);
    schedule.actions[id].after = waits.as_slice().into();
    Some(Fault::of(schedule, id).beside(dropped.action))
}

fn shift_wait(schedule: &mut Schedule, random: &mut Random, by: i64) -> Option<Fault> {
    let (id, wait) = waiting(schedule, random)?;
    let wait = &mut schedule.actions[id].after[wait];
    wait.distance = u32::try_from(i64::from(wait.distance) + by).ok()?;
    let other = wait.action;
    Some(Fault::of(schedule, id).beside(other))
}

fn wait_elsewhere(schedule: &mut Schedule, random: &mut Random) -> Option<Fault> {
    let (id, wait) = waiting(schedule, random)?;
    let other = ActionId::new(random.below(schedule.actions.len()));
    let wait = &mut schedule.actions[id].after[wait];
    let before = std::mem::replace(&mut wait.action, other);
    Some(Fault::of(schedule, id).beside(before))
}

/// The rows of an action, with its places.
pub(crate) fn rows(work: &mut Work) -> Vec<&mut Row> {
    match work {
        Work::Launch { rows, .. } => rows.iter_mut().collect(),
        Work::Transfer { from, to, .. } => vec![&mut from.row, &mut to.row],
        Work::Collective { from, to, .. } => vec![from, to],
        Work::Feed { row, .. } | Work::Report { row, .. } => vec![row],
    }
}

fn slot_place(schedule: &mut Schedule, random: &mut Random) -> Option<Fault> {
    let slots: Vec<u32> = schedule.buffers.values().map(|b| b.slots).collect();
    line(schedule, random, |action, random| {
        let mut rows = rows(&mut action.work);
        let turning = |index: &usize| slots[rows[*index].buffer.index()] > 1;
        let turning: Vec<usize> = (0..rows.len()).filter(turning).collect();
        let row = &mut rows[random.pick(&turning)?];
        row.place = random.below(slots[row.buffer.index()] as usize + 1) as u32;
        Some(())
    })
}

/// Another buffer of the same kind.
fn other_buffer(schedule: &mut Schedule, random: &mut Random) -> Option<Fault> {
    let buffers = schedule.buffers.clone();
    line(schedule, random, |action, random| {
        let mut rows = rows(&mut action.work);
        let index = random.below(rows.len());
        let own = buffers[rows[index].buffer].subject.kind();
        let alike = buffers.iter().filter(|(_, other)| other.subject.kind() == own);
        let other = random.pick(&alike.map(|(id, _)| id).collect::<Vec<_>>())?;
        let place = random.below(buffers[other].slots as usize) as u32;
        *rows[index] = Row { buffer: other, place };
        Some(())
    })
}

fn rows_exchanged(schedule: &mut Schedule, random: &mut Random) -> Option<Fault> {
    line(schedule, random, |action, random| {
        let mut rows = rows(&mut action.work);
        let [one, other] = [random.below(rows.len()), random.below(rows.len())];
        let [first, second] = [*rows[one], *rows[other]];
        (*rows[one], *rows[other]) = (second, first);
        Some(())
    })
}

fn other_lane(schedule: &mut Schedule, random: &mut Random) -> Option<Fault> {
    let rings = schedule.rings.clone();
    line(schedule, random, |action, random| {
        let Work::Launch { at, lane, .. } = &mut action.work else { return None };
        *lane = random.below(rings[at.ring].lanes as usize + 1) as u32;
        Some(())
    })
}

fn places(work: &mut Work) -> Vec<&mut Place> {
    match work {
        Work::Launch { at, .. } | Work::Feed { at, .. } | Work::Report { at, .. } => {
            vec![at]
        }
        Work::Transfer { from, to, .. } => vec![&mut from.at, &mut to.at],
        Work::Collective { .. } => Vec::new(),
    }
}

fn other_place(schedule: &mut Schedule, random: &mut Random) -> Option<Fault> {
    let lengths: Vec<usize> =
        schedule.rings.values().map(|ring| ring.devices.len()).collect();
    let rings: Vec<_> = schedule.rings.ids().collect();
    line(schedule, random, |action, random| {
        let mut places = places(&mut action.work);
        let index = random.below(places.len());
        let at = places.get_mut(index)?;
        if random.below(2) == 0 {
            at.ring = random.pick(&rings)?;
        }
        at.place = random.below(lengths[at.ring.index()]) as u32;
        Some(())
    })
}

fn other_group(schedule: &mut Schedule, random: &mut Random) -> Option<Fault> {
    let groups: Vec<GroupId> = schedule.groups.ids().collect();
    let joint = those(schedule, |a| matches!(a.work, Work::Collective { .. }));
    at_line(schedule, random.pick(&joint)?, |action| {
        let Work::Collective { group, .. } = &mut action.work else { return None };
        *group = random.pick(&groups)?;
        Some(())
    })
}

fn ends_exchanged(schedule: &mut Schedule, random: &mut Random) -> Option<Fault> {
    let moves = those(schedule, |action| content(&action.work).is_some());
    at_line(schedule, random.pick(&moves)?, |action| {
        match &mut action.work {
            Work::Transfer { from, to, .. } => std::mem::swap(from, to),
            Work::Collective { from, to, .. } => std::mem::swap(from, to),
            Work::Launch { .. } | Work::Feed { .. } | Work::Report { .. } => return None,
        }
        Some(())
    })
}

fn other_link(schedule: &mut Schedule, random: &mut Random) -> Option<Fault> {
    let moves = those(schedule, |action| content(&action.work).is_some());
    at_line(schedule, random.pick(&moves)?, |action| {
        let (Work::Transfer { link, .. } | Work::Collective { link, .. }) =
            &mut action.work
        else {
            return None;
        };
        *link = Id::new(link.index() + 1);
        Some(())
    })
}

fn other_kind(schedule: &mut Schedule, random: &mut Random) -> Option<Fault> {
    let joint = those(schedule, |a| matches!(a.work, Work::Collective { .. }));
    at_line(schedule, random.pick(&joint)?, |action| {
        let Work::Collective { kind, .. } = &mut action.work else { return None };
        *kind = random.pick(&[
            Collective::AllReduce,
            Collective::ReduceScatter,
            Collective::AllGather,
        ])?;
        Some(())
    })
}

fn other_micro_batch(schedule: &mut Schedule, random: &mut Random) -> Option<Fault> {
    let all = schedule.cell_micro_batches() as usize;
    let single = |work: &Work| match work {
        Work::Launch { micro_batch, .. } => micro_batch.is_some(),
        Work::Feed { .. } | Work::Report { .. } => true,
        Work::Transfer { .. } | Work::Collective { .. } => false,
    };
    let lines = those(schedule, |action| single(&action.work));
    at_line(schedule, random.pick(&lines)?, |action| {
        let other = MicroBatch::new(random.below(all + 1));
        match &mut action.work {
            Work::Launch { micro_batch, .. } => *micro_batch = Some(other),
            Work::Feed { micro_batch, .. } | Work::Report { micro_batch, .. } => {
                *micro_batch = other;
            }
            Work::Transfer { .. } | Work::Collective { .. } => return None,
        }
        Some(())
    })
}

fn other_routine(schedule: &mut Schedule, random: &mut Random) -> Option<Fault> {
    let routines: Vec<RoutineId> = schedule.routines.ids().collect();
    let launches = those(schedule, |a| matches!(a.work, Work::Launch { .. }));
    at_line(schedule, random.pick(&launches)?, |action| {
        let Work::Launch { routine, .. } = &mut action.work else { return None };
        *routine = random.pick(&routines)?;
        Some(())
    })
}

fn other_content(
    schedule: &mut Schedule,
    random: &mut Random,
    change: impl FnOnce(&mut Content, &mut Random) -> Option<()>,
) -> Option<Fault> {
    let moves = those(schedule, |action| content(&action.work).is_some());
    at_line(schedule, random.pick(&moves)?, |action| {
        let (Work::Transfer { content, .. } | Work::Collective { content, .. }) =
            &mut action.work
        else {
            return None;
        };
        change(content, random)
    })
}

fn content_stage(schedule: &mut Schedule, random: &mut Random) -> Option<Fault> {
    let stages = schedule.job.elements.len();
    other_content(schedule, random, |content, random| {
        match content {
            Content::Parameter(stage)
            | Content::Optimizer(stage)
            | Content::Gradient(stage, _) => *stage = Stage::new(random.below(stages)),
            Content::Squares(first, last) => {
                let stage = if random.below(2) == 0 { first } else { last };
                *stage = Stage::new(random.below(stages));
            }
            Content::Value(value, _) | Content::ValueGradient(value, _) => {
                *value = Id::new(random.below(stages));
            }
        }
        Some(())
    })
}

fn content_micro_batch(schedule: &mut Schedule, random: &mut Random) -> Option<Fault> {
    let all = schedule.cell_micro_batches() as usize;
    other_content(schedule, random, |content, random| {
        match content {
            Content::Value(_, i) | Content::ValueGradient(_, i) => {
                *i = MicroBatch::new(random.below(all));
            }
            Content::Parameter(_)
            | Content::Optimizer(_)
            | Content::Gradient(..)
            | Content::Squares(..) => return None,
        }
        Some(())
    })
}

fn content_sum(schedule: &mut Schedule, random: &mut Random) -> Option<Fault> {
    let all = schedule.plan.all_micro_batches() as usize;
    let sums =
        |action: &Action| matches!(content(&action.work), Some(Content::Gradient(..)));
    let moves = those(schedule, sums);
    at_line(schedule, random.pick(&moves)?, |action| {
        let (Work::Transfer { content, .. } | Work::Collective { content, .. }) =
            &mut action.work
        else {
            return None;
        };
        let Content::Gradient(_, sum) = content else { return None };
        let mut parts = sum.parts();
        match random.below(4) {
            0 => drop(parts.pop()?),
            1 => parts.push(Sum::One(MicroBatch::new(random.below(all)))),
            2 => parts.reverse(),
            _ => {
                let last = parts.pop()?;
                parts.push(Sum::all(vec![last]));
            }
        }
        **sum = Sum::all(parts);
        Some(())
    })
}

/// Puts other lines into the table, given as old lines; waits follow the lines that they are of,
/// waits on lines that are gone are dropped.
fn arrange(schedule: &mut Schedule, order: &[ActionId]) {
    let mut places = BTreeMap::new();
    for (place, id) in order.iter().enumerate() {
        places.entry(*id).or_insert(ActionId::new(place));
    }
    let lines = order.iter().map(|id| {
        let mut action = schedule.actions[*id].clone();
        let moved =
            |wait: &Wait| Some(Wait { action: *places.get(&wait.action)?, ..*wait });
        action.after = action.after.iter().filter_map(moved).collect();
        action
    });
    schedule.actions = lines.collect::<Table<ActionId, Action>>();
}

fn erase(schedule: &mut Schedule, random: &mut Random) -> Option<Fault> {
    let mut order: Vec<ActionId> = schedule.actions.ids().collect();
    let gone = order.remove(random.below(order.len()));
    let erased = schedule.actions[gone].clone();
    let mut fault = Fault::default().lacking(schedule, gone);
    fault.focus.clear();
    if let Some(task) = schedule.task(&erased) {
        fault = fault.through(task.stage);
    }
    if let Work::Report { micro_batch, .. } = erased.work {
        fault = fault.through(micro_batch);
    }
    // Others waited for each other through it, or in its queue.
    let before = erased.after.iter().map(|wait| wait.action);
    let behind = schedule.actions.iter();
    let behind = behind
        .filter(|(_, action)| action.after.iter().any(|wait| wait.action == gone))
        .map(|(id, _)| id);
    let queued = schedule
        .actions
        .iter()
        .filter(|(id, action)| *id != gone && action.queue() == erased.queue());
    let queued = queued.map(|(id, _)| id);
    for neighbour in before.chain(behind).chain(queued).map(Id::index) {
        let left = neighbour - usize::from(neighbour > gone.index());
        fault = fault.through(ActionId::new(left));
    }
    arrange(schedule, &order);
    Some(fault)
}

fn swap(schedule: &mut Schedule, random: &mut Random) -> Option<Fault> {
    let mut order: Vec<ActionId> = schedule.actions.ids().collect();
    let first = random.below(order.len() - 1);
    order.swap(first, first + 1);
    arrange(schedule, &order);
    let [one, other] = [first, first + 1].map(ActionId::new);
    Some(Fault::of(schedule, one).at(other).beside(other))
}

fn move_away(schedule: &mut Schedule, random: &mut Random) -> Option<Fault> {
    let mut order: Vec<ActionId> = schedule.actions.ids().collect();
    let line = order.remove(random.below(order.len()));
    let place = random.below(order.len() + 1);
    order.insert(place, line);
    arrange(schedule, &order);
    Some(passing(schedule, ActionId::new(place)))
}

/// Lines that were ordered through another line, perhaps through others in between, may be what a
/// report about it names.
fn passing(schedule: &Schedule, line: ActionId) -> Fault {
    let mut behind = BTreeSet::from([line]);
    loop {
        let follows = |action: &Action| {
            behind.iter().any(|before| {
                action.queue() == schedule.actions[*before].queue()
                    || action.after.iter().any(|wait| wait.action == *before)
            })
        };
        let actions = schedule.actions.iter();
        let more: Vec<ActionId> = actions
            .filter(|(id, action)| !behind.contains(id) && follows(action))
            .map(|(id, _)| id)
            .collect();
        if more.is_empty() {
            break;
        }
        behind.extend(more);
    }
    behind.into_iter().fold(Fault::of(schedule, line), |fault, id| fault.through(id))
}

fn twice(schedule: &mut Schedule, random: &mut Random) -> Option<Fault> {
    let mut order: Vec<ActionId> = schedule.actions.ids().collect();
    let line = random.below(order.len());
    order.insert(line + 1, order[line]);
    arrange(schedule, &order);
    let [one, other] = [line + 1, line].map(ActionId::new);
    Some(Fault::of(schedule, one).at(other).beside(other))
}
