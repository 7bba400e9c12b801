//! The laws of work and of the flush: how long the busiest device computes, and how long it must
//! wait for others before and after.

use super::{holders, ring, seated, sums, writes::Writes};
use crate::{
    costs::load::{Split, StageLoad},
    space::cutting::Cutting,
};
use roundelay_schedule::{Nanos, Order, Placement, Plan, Rule, States};

/// Work by the passes of stages and the elements that are updated, and path and flush of a
/// pipeline by passes alone.
pub(super) fn of_nodes(plan: &Plan, cutting: &Cutting) -> (Nanos, Nanos) {
    let beside = beside(plan);
    let of_stage = |stage: usize| {
        let update = cutting.updates[stage];
        beside(update, Split { combine: Nanos(0), update })
    };
    let work = busiest(plan, &cutting.passes.own, &of_stage);
    let apart = matches!(plan.placement, Placement::Pipeline | Placement::Shared);
    if !apart || plan.rule != Rule::Sync || !cutting.linked {
        return (work, Nanos(0));
    }
    let turned = if splits(plan) { &cutting.turns } else { &cutting.passes };
    // One micro-batch goes there and back.
    let path = turned.all;
    if !flushes(plan) || holders(plan) > 1 || !plan.lists.is_empty() {
        return (work, path);
    }
    let n = u64::from(plan.micro_batches);
    // A device of a loop or a snake has the stage of its own number first.
    let way = |(own, before): (Nanos, &Nanos)| own * n + *before;
    let longest = match plan.chunks {
        1 => turned.own.iter().copied().zip(&turned.before).map(way).max(),
        _ => {
            let own = sums(plan, turned.own.iter().map(|own| own.0)).into_iter();
            own.map(Nanos).zip(&turned.before).map(way).max()
        }
    };
    (work, longest.map_or(path, |longest| path.max(longest)))
}

/// Law: the busiest device does at least its share of all forward and backward passes, and what its
/// stages do beside them. Lanes of one device share its arithmetic.
pub(super) fn of_stages(plan: &Plan, loads: &[StageLoad]) -> Nanos {
    let passes: Vec<Nanos> = loads.iter().map(StageLoad::pass).collect();
    let beside = beside(plan);
    let writes = Writes::of(plan);
    busiest(plan, &passes, &|stage| {
        let load = &loads[stage];
        beside(load.update, load.split) + writes.more_of_all(plan, load)
    })
}

/// What a device does in a step for a stage besides its passes: the update of all or of its own
/// part, and where each micro-batch's sum is split up at once, adding the own part of it to that of
/// those before.
fn beside(plan: &Plan) -> impl Fn(Nanos, Split) -> Nanos {
    of_state(plan, plan.cell_micro_batches().saturating_sub(1).into())
}

/// What of it is left when the last pass of a stage is done.
pub(super) fn closing(plan: &Plan, load: &StageLoad) -> Nanos {
    let later = plan.cell_micro_batches().saturating_sub(1).min(1);
    of_state(plan, later.into())(load.update, load.split)
}

/// The update of a stage and this many additions.
fn of_state(plan: &Plan, additions: u64) -> impl Fn(Nanos, Split) -> Nanos {
    let nothing = !plan.rule.is_synchronous() || holders(plan) > 1;
    let (states, parts) = (plan.states, u64::from(plan.parts().max(1)));
    let part = move |all: Nanos| Nanos(all.0 / parts);
    move |update, split| match states {
        _ if nothing => Nanos(0),
        States::Replicated => update,
        States::Zero1 => part(split.update),
        States::Zero2 | States::Zero3 | States::Hsdp => {
            part(split.update) + part(split.combine) * additions
        }
        States::Handoff => Nanos(0),
    }
}

/// By the passes of stages, and what is done for each besides.
fn busiest(plan: &Plan, passes: &[Nanos], beside: &impl Fn(usize) -> Nanos) -> Nanos {
    let n = u64::from(plan.micro_batches);
    let all = || -> Nanos { passes.iter().copied().sum() };
    let others = || -> Nanos { (0..passes.len()).map(beside).sum() };
    match plan.placement {
        Placement::Accumulate | Placement::Concurrent => all() * n + others(),
        Placement::Data => all() + others(),
        Placement::Pipeline if plan.chunks == 1 && plan.lists.is_empty() => {
            pipeline(plan, passes, beside)
        }
        Placement::Pipeline => {
            let own = |(stage, pass): (usize, &Nanos)| (*pass * n + beside(stage)).0;
            let each = sums(plan, passes.iter().enumerate().map(own));
            let most = each.into_iter().max().unwrap_or(0);
            Nanos(most / holders(plan))
        }
        Placement::Shared => (0..)
            .zip(passes)
            .map(|(stage, pass)| Nanos((*pass * n).0 / ring(plan, stage).max(1)))
            .max()
            .unwrap_or_default(),
    }
}

/// One stage on each device, or on two in opposite directions.
fn pipeline(plan: &Plan, passes: &[Nanos], beside: &impl Fn(usize) -> Nanos) -> Nanos {
    let n = u64::from(plan.micro_batches);
    let own = |stage: usize| passes[stage] * n + beside(stage);
    match holders(plan) {
        1 => (0..passes.len()).map(own).max().unwrap_or_default(),
        _ => {
            let opposite = |stage: usize| own(stage) + own(passes.len() - 1 - stage);
            let most = (0..passes.len()).map(opposite).max().unwrap_or_default();
            Nanos(most.0 / 2)
        }
    }
}

/// Whether a plan is a pipeline that comes to rest after each step.
fn flushes(plan: &Plan) -> bool {
    plan.placement == Placement::Pipeline && plan.rule == Rule::Sync
}

/// Whether some backward pass may be in halves.
pub(super) fn splits(plan: &Plan) -> bool {
    plan.order.splits_backward() || plan.order == Order::Listed
}

/// Whether every stage reads of the one before, and gives a gradient back.
pub(super) fn are_linked(loads: &[StageLoad]) -> bool {
    let follow = |load: &StageLoad| load.down.is_some() && load.up.is_some();
    loads.iter().rev().skip(1).all(follow)
}

/// Law: in a synchronous pipeline whose stages follow each other, device 0 begins a step with the
/// first forward pass and ends it behind its last backward pass. A device whose first stage is j
/// cannot begin before the forward passes of the stages before j; after its last pass that others
/// wait for come the backward passes of the stages before j, and what closes stage 0. Where
/// backward passes are in halves, others wait for the first halves alone.
pub(super) fn flush(plan: &Plan, loads: &[StageLoad]) -> Nanos {
    let apart = holders(plan) > 1 || !are_linked(loads);
    if !flushes(plan) || apart || plan.order == Order::Listed {
        return Nanos(0);
    }
    let n = u64::from(plan.micro_batches);
    let first = loads.first();
    let first = first.map_or(Nanos(0), |load| load.weight + closing(plan, load));
    let mut around = vec![Nanos(0)];
    for load in loads {
        let before = around.last().copied().unwrap_or_default();
        around.push(before + load.forward + load.turn());
    }
    let writes = Writes::of(plan);
    let work = |load: &StageLoad| match splits(plan) {
        true => (load.forward + load.turn()) * n,
        false => load.pass() * n + writes.more_of_all(plan, load),
    };
    let own = |stages: Vec<usize>| -> Nanos {
        let work = stages.iter().map(|stage| work(&loads[*stage]));
        let least = stages.iter().min().map_or(Nanos(0), |first| around[*first]);
        work.sum::<Nanos>() + least
    };
    let longest = seated(plan).into_iter().map(own).max().unwrap_or_default();
    longest + first
}
