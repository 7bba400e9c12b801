//! What only the next step waits for stands behind the messages of the step: sums of gradients that
//! are whole, and the updates behind them (`Side` of `codegen/src/lower/draft.rs`).

use crate::{
    orders::{Times, compiled, compiled_clipping, pipeline, step, units},
    plans::{kinds, pipelines},
    support::{plan, program},
};
use roundelay_codegen::lower;
use roundelay_schedule::{
    Access, Action, ActionId, Content, Fold, Id, MicroBatch, Order, Pass, Place,
    Placement, Plan, Routine, Row, Rule, Schedule, Stage, States, Work,
};
use std::collections::BTreeMap;

const UNIT: u64 = 1_000_000;

/// Plans whose stages send each other messages, and whose members add up gradients.
fn plans() -> Vec<Plan> {
    let (n, stages) = (8, 4);
    let cuts: Vec<u32> = (1..stages).collect();
    let kinds = kinds(4, stages).into_iter().filter(|(_, placement, ..)| {
        matches!(placement, Placement::Pipeline | Placement::Shared)
    });
    let shared = kinds.map(|kind| plan(kind, 4, stages)).filter_map(|plan| {
        match (plan.placement, plan.rule.is_synchronous()) {
            (Placement::Pipeline, _) => Some(plan.replicated(2, 1)),
            (Placement::Shared, true) => Some(plan),
            _ => None,
        }
    });
    let folded = pipelines(n, &cuts);
    let folded = folded.into_iter().filter(|plan| plan.order.fold() != Fold::Mirror);
    let split = [States::Replicated, States::Zero1, States::Zero2, States::Zero3];
    let folded = folded.flat_map(|plan| {
        split.map(|states| Plan { states, ..plan.clone() }.replicated(2, 1))
    });
    shared.chain(folded).collect()
}

fn lowered(plan: &Plan) -> Schedule {
    lower(&program(plan.stages, plan.all_micro_batches()), plan).unwrap()
}

/// The last launch above that makes what a row holds.
fn maker(schedule: &Schedule, (at, row): (Place, Row), above: ActionId) -> ActionId {
    let makes = |action: &Action| match &action.work {
        Work::Launch { at: own, routine, rows, .. } if *own == at => {
            let arguments = &schedule.routines[*routine].arguments;
            let mut bound = rows.iter().zip(arguments);
            bound.any(|(own, argument)| *own == row && argument.access != Access::Read)
        }
        _ => false,
    };
    let mut above = schedule.actions.iter().take(above.index());
    let made = above.rfind(|(_, action)| makes(action));
    made.expect("what is sent was made").0
}

/// The messages of a schedule: who sends, what made it, and where it stands.
fn messages(schedule: &Schedule) -> Vec<(Place, ActionId, ActionId)> {
    let message = |(id, action): (ActionId, &Action)| match &action.work {
        Work::Transfer {
            from,
            content: Content::Value(..) | Content::ValueGradient(..),
            ..
        } => Some((from.at, maker(schedule, (from.at, from.row), id), id)),
        _ => None,
    };
    schedule.actions.iter().filter_map(message).collect()
}

/// The sums of a schedule that no pass of their members follows in the period, and those of steps
/// without an end: who adds up, and where they stand.
fn closing(schedule: &Schedule) -> Vec<(&[Place], ActionId)> {
    let passes = |at: &Place, below: ActionId| {
        let mut below = schedule.actions.values().skip(below.index());
        below.any(|action| match &action.work {
            Work::Launch { at: own, micro_batch, .. } => {
                own == at && micro_batch.is_some()
            }
            _ => false,
        })
    };
    let mut sums = Vec::new();
    for (id, action) in schedule.actions.iter() {
        if let Work::Collective { group, content: Content::Gradient(..), .. } =
            &action.work
        {
            let members = &*schedule.groups[*group].places;
            let ends = !members.iter().any(|member| passes(member, id));
            if ends || !schedule.plan.rule.is_synchronous() {
                sums.push((members, id));
            }
        }
    }
    sums
}

/// A message is above every sum that is not above the pass which makes it, so neither a port nor
/// a queue of messages in list order keeps it waiting for a sum.
#[test]
fn no_message_stands_behind_a_sum_that_the_step_does_not_need() {
    let mut compared = 0;
    for plan in plans() {
        let schedule = lowered(&plan);
        let messages = messages(&schedule);
        let sums = closing(&schedule);
        assert!(!sums.is_empty(), "{plan:?}");
        for (members, sum) in sums {
            for (from, made, sent) in messages.iter().filter(|m| members.contains(&m.0)) {
                compared += 1;
                let between = *made < sum && sum < *sent;
                assert!(!between, "{from:?} {made:?} {sum:?} {sent:?}: {plan:?}");
            }
        }
    }
    assert!(compared > 1000, "only {compared} pairs");
}

/// A sum takes as long as a pass here, and no pass of the step starts later for it.
#[test]
fn sums_at_the_end_of_a_step_keep_no_pass_waiting() {
    let times = Times { forward: UNIT, input: UNIT, weight: UNIT, message: UNIT / 2 };
    for (order, chunks, states) in [
        (Order::Gpipe, 1, States::Replicated),
        (Order::OneForwardOneBackward, 1, States::Replicated),
        (Order::OneForwardOneBackward, 1, States::Zero1),
        (Order::Eager, 1, States::Zero1),
        (Order::ZeroBubbleH1, 1, States::Zero1),
        (Order::Interleaved, 2, States::Zero1),
        (Order::ZeroBubbleV, 2, States::Zero1),
        (Order::Wave, 2, States::Zero1),
    ] {
        let alone = pipeline(order, 4, chunks, 8);
        let folded = Plan { states, ..alone.clone() }.replicated(2, 1);
        let spans = [&alone, &folded].map(|plan| step(&compiled(plan, times)).span);
        assert_eq!(spans[0], spans[1], "{order} {states:?}");
        for plan in [&alone, &folded] {
            let clipping = step(&compiled_clipping(plan, times)).span;
            assert_eq!(units(spans[0]), units(clipping), "{order} {states:?} that clips");
        }
    }
}

/// What stages find of a norm moves behind the messages that its ends have made by then.
#[test]
fn no_message_stands_behind_a_norm_that_the_step_does_not_need() {
    let mut compared = 0;
    for plan in plans() {
        let mut program = program(plan.stages, plan.all_micro_batches());
        program.train.optimizer.clip = 1.0;
        let schedule = lower(&program, &plan).unwrap();
        let messages = messages(&schedule);
        for (id, action) in schedule.actions.iter() {
            let Work::Transfer { from, to, content: Content::Squares(..), .. } =
                &action.work
            else {
                continue;
            };
            for (_, made, sent) in
                messages.iter().filter(|m| [from.at, to.at].contains(&m.0))
            {
                compared += 1;
                assert!(
                    !(*made < id && id < *sent),
                    "{made:?} {id:?} {sent:?}: {plan:?}"
                );
            }
        }
    }
    assert!(compared > 1000, "only {compared} pairs");
}

/// Whether a line is a pass at a place.
fn is_pass(action: &Action, place: Place) -> bool {
    matches!(&action.work, Work::Launch { at, micro_batch: Some(_), .. } if *at == place)
}

/// The last line that adds to the gradient of a stage at a place.
fn whole(schedule: &Schedule, place: Place, stage: Stage) -> ActionId {
    let adds = |action: &Action| match &action.work {
        Work::Launch { at, routine, .. } => {
            let Routine { pass, stage: own, .. } = schedule.routines[*routine];
            let adds = matches!(pass, Pass::Backward | Pass::WeightGradient);
            adds && (*at, own) == (place, stage)
        }
        _ => false,
    };
    let mut lines = schedule.actions.iter();
    lines.rfind(|(_, action)| adds(action)).expect("somebody adds to it").0
}

/// A queue is taken in list order, so no sum waits for one that becomes whole later; and none has
/// more than one pass to hide behind go by.
#[test]
fn sums_of_a_device_stand_in_the_order_in_which_they_become_whole() {
    let states = [States::Replicated, States::Zero1, States::Zero2, States::Zero3];
    let on_one = states.map(|states| {
        let kind = (Rule::Sync, Placement::Accumulate, Order::Sequential, states);
        plan(kind, 4, 4).replicated(2, 1)
    });
    let synchronous = plans().into_iter().filter(|plan| plan.rule.is_synchronous());
    let mut compared = 0;
    for plan in synchronous.chain(on_one) {
        let schedule = lowered(&plan);
        let mut before: BTreeMap<&[Place], ActionId> = BTreeMap::new();
        for (id, action) in schedule.actions.iter() {
            let Work::Collective { group, content: Content::Gradient(stage, _), .. } =
                &action.work
            else {
                continue;
            };
            let members = &*schedule.groups[*group].places;
            let whole = whole(&schedule, members[0], *stage);
            if id < whole {
                continue;
            }
            let earlier = before.insert(members, whole);
            assert!(earlier.is_none_or(|earlier| earlier <= whole), "{id} {plan:?}");
            let between = schedule.actions.iter().filter(|(pass, action)| {
                whole < *pass && *pass < id && is_pass(action, members[0])
            });
            assert!(between.count() <= 1, "{id} {plan:?}");
            compared += 1;
        }
    }
    assert!(compared > 100, "only {compared} sums");
}

/// Without a flush the sum has until a pass reads what the update makes, or begins the next sum.
/// With the freshest rule that pass is the next one.
#[test]
fn an_update_without_a_flush_waits_for_its_reader() {
    let (n, stages) = (8, 4);
    let long = Times { forward: UNIT, input: UNIT, weight: UNIT, message: UNIT / 4 };
    let between = [Rule::CyclicV2, Rule::CyclicSlack(2), Rule::CyclicV1].map(|rule| {
        let kind = (rule, Placement::Pipeline, Order::Cyclic, States::Replicated);
        let schedule = compiled(&plan(kind, n, stages).replicated(8, 1), long);
        let stage = Stage::new(1);
        let lines = schedule.actions.iter();
        let launches = lines.filter_map(|(id, action)| match &action.work {
            Work::Launch { at, routine, micro_batch, .. } => {
                let Routine { pass, stage: own, .. } = schedule.routines[*routine];
                (own == stage).then_some((id, *at, pass, *micro_batch))
            }
            _ => None,
        });
        let launches: Vec<_> = launches.collect();
        let line = |wanted: Pass, i: Option<MicroBatch>| {
            let is_it =
                |(_, _, pass, own): &&(_, _, Pass, _)| *pass == wanted && *own == i;
            let (id, at, ..) = *launches.iter().find(is_it).expect("the stage has it");
            // Of one step: what lags stands a period later.
            let period = u64::from(schedule.actions[id].lag);
            (at, period * schedule.actions.len() as u64 + id.index() as u64)
        };
        let last = MicroBatch::new(n as usize - 1);
        let (place, whole) = line(Pass::Backward, Some(last));
        let (_, update) = line(Pass::Update, None);
        let between = (whole + 1..update).filter(|number| {
            let id = ActionId::new(*number as usize % schedule.actions.len());
            is_pass(&schedule.actions[id], place)
        });
        between.count()
    });
    assert_eq!(between, [0, 1, 1]);
}
