//! Pairs of passes, one planted fault each, refused with the right violation.

use crate::{orders::pipeline, support::program};
use roundelay_codegen::lower;
use roundelay_kernels::Kernels;
use roundelay_schedule::{
    Access, Action, ActionId, BufferId, Id, Order, Pass, Place, Schedule, Violation,
    Violations, Wait, Work, check,
};

/// Four devices and eight micro-batches, and the first line that is beside a forward pass: an I,
/// with its W right behind.
fn paired() -> (Schedule, ActionId, ActionId) {
    let plan = pipeline(Order::DualPipePaired, 4, 1, 8);
    let schedule = lower(&program(4, 8), &plan).unwrap();
    let pair = |(id, action): (ActionId, &Action)| Some((action.work.beside()?, id));
    let found = schedule.actions.iter().find_map(pair);
    let (head, own) = found.expect("there is a pair");
    (schedule, head, own)
}

fn refused(
    fault: impl FnOnce(&mut Schedule, (ActionId, ActionId)),
) -> (Violations, ActionId) {
    let (mut schedule, head, own) = paired();
    fault(&mut schedule, (head, own));
    (check(schedule, &Kernels).expect_err("the fault must be found"), own)
}

fn tells(fault: impl FnOnce(&mut Schedule, (ActionId, ActionId)), told: &str) {
    let (found, _) = refused(fault);
    assert!(found.to_string().contains(told), "{told}: {found}");
}

fn beside(action: &mut Action) -> &mut Option<ActionId> {
    match &mut action.work {
        Work::Launch { beside, .. } => beside,
        other => panic!("{other:?}"),
    }
}

fn next(id: ActionId) -> ActionId {
    ActionId::new(id.index() + 1)
}

#[test]
fn a_pair_is_a_forward_pass_and_a_backward_pass_that_start_together() {
    let (schedule, head, own) = paired();
    let tasks = [head, own, next(own)].map(|id| schedule.task(&schedule.actions[id]));
    let passes = tasks.map(|task| task.unwrap().pass);
    assert_eq!(passes, [Pass::Forward, Pass::InputGradient, Pass::WeightGradient]);
    let waits = [head, own, next(own)].map(|id| &schedule.actions[id].after);
    assert!(waits[0] == waits[1] && waits[1] == waits[2] && !waits[0].is_empty());
    check(schedule, &Kernels).unwrap();
}

#[test]
fn a_pair_that_is_none_is_told() {
    let far = ActionId::new(1 << 20);
    let stand = "which does not stand above";
    tells(|s, (_, own)| *beside(&mut s.actions[own]) = Some(far), stand);
    tells(|s, (_, own)| *beside(&mut s.actions[own]) = Some(next(own)), stand);
    tells(
        |s, (_, own)| *beside(&mut s.actions[next(own)]) = Some(own),
        "which is not a forward pass",
    );
    tells(
        |s, (_, own)| *beside(&mut s.actions[own]) = Some(ActionId::new(0)),
        "which is not a launch",
    );
    tells(
        |s, (_, own)| {
            if let Work::Launch { lane, .. } = &mut s.actions[own].work {
                *lane = 0;
            }
        },
        "take another lane there",
    );
    tells(
        |s, (head, _)| {
            let waits = &mut s.actions[head].after;
            *waits = waits[1..].into();
        },
        "but waits for other actions",
    );
    tells(
        |s, (_, own)| *beside(&mut s.actions[next(own)]) = None,
        "what is not one backward pass",
    );
    tells(|s, (_, own)| s.actions[own].lag = 1, "which serves another step");
}

/// It would end behind a pass that stands behind it in its lane.
#[test]
fn a_launch_between_the_passes_of_a_pair_is_refused() {
    tells(
        |s, (head, own)| {
            let Work::Launch { at, lane, .. } = s.actions[own].work else {
                panic!("a pass is launched");
            };
            let update = |action: &Action| {
                let task = s.task(action).map(|task| task.pass);
                task == Some(Pass::Update) && place(action) == Some(at)
            };
            let later = s.actions.iter().find(|(_, action)| update(action));
            let later = later.expect("each device has an update").0;
            raise(s, later, own);
            let raised = &mut s.actions[own];
            raised.after = [Wait { action: head, distance: 0 }].as_slice().into();
            if let Work::Launch { lane: own, .. } = &mut raised.work {
                *own = lane;
            }
        },
        "move it above or below both",
    );
}

fn place(action: &Action) -> Option<Place> {
    match action.work {
        Work::Launch { at, .. } => Some(at),
        _ => None,
    }
}

/// Moves a line up, to where another one stood.
fn raise(schedule: &mut Schedule, from: ActionId, to: ActionId) {
    let mut order: Vec<ActionId> = schedule.actions.ids().collect();
    let moved = order.remove(from.index());
    order.insert(to.index(), moved);
    let mut places = vec![from; order.len()];
    for (place, old) in order.iter().enumerate() {
        places[old.index()] = ActionId::new(place);
    }
    let renamed = |old: &ActionId| {
        let mut action = schedule.actions[*old].clone();
        for wait in action.after.iter_mut() {
            wait.action = places[wait.action.index()];
        }
        if let Work::Launch { beside: Some(head), .. } = &mut action.work {
            *head = places[head.index()];
        }
        action
    };
    schedule.actions = order.iter().map(renamed).collect();
}

/// A backward pass that waits for the forward pass beside it cannot start with it.
#[test]
fn a_pair_whose_passes_need_each_other_is_refused() {
    let wait = |head| Wait { action: head, distance: 0 };
    tells(
        |s, (head, own)| s.actions[own].after.push(wait(head)),
        "but waits for other actions",
    );
    tells(
        |s, (head, own)| {
            for id in [head, own, next(own)] {
                s.actions[id].after.push(wait(head));
            }
        },
        "which does not stand above; add a distance",
    );
}

/// Passes of a pair that share memory are a race: nothing orders them.
#[test]
fn a_pair_that_shares_memory_is_a_race() {
    let (found, own) = refused(|s, (head, own)| {
        let [other, moved] = [head, own].map(|id| written(s, id));
        s.buffers[moved].offset = s.buffers[other].offset;
    });
    let races = |violation: &Violation| matches!(violation, Violation::Race { action, .. } if *action == own);
    assert!(found.iter().any(races), "{found}");
}

/// A buffer that a launch writes.
fn written(schedule: &Schedule, id: ActionId) -> BufferId {
    let touches = schedule.touches(&schedule.actions[id]);
    let written = touches.iter().find(|touch| touch.access == Access::Write);
    written.expect("every pass leaves something").row.buffer
}
