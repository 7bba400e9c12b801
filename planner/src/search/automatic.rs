//! Orders of pipelines that are found from times and memory: ZB-1p and ZB-2p of arXiv 2401.10241,
//! and the same with all the memory that the devices have.
//!
//! The plan is lowered once with a plain order. What its routines and messages take, what they
//! keep and what else lies in the arenas are then known exactly; the order that is found for them
//! stands in the plan as lists, so lowering decides nothing.

mod alarms;
mod find;
mod greedy;
mod messages;
mod pipe;
mod read;

use crate::{
    costs::{
        calls::{self, Costs},
        memory,
    },
    search::evaluate::Evaluator,
    space::reason::Reason,
};
use find::Aim;
use pipe::{Limited, Merit, Passes, Pipe, lists};
use roundelay_dsl::{Objective, Program};
use roundelay_schedule::{Bytes, Nanos, Order, Plan, simulate_steady};

/// Orders that are lowered at most before the room of `zb_auto` counts as filled: messages may need
/// more of it than those of the plain order.
const TRIALS: u64 = 32;

/// The plan with the lists of its order where these are found and not there yet; any other as it
/// is: what tests look at without a search.
///
/// # Errors
/// When the plan cannot be lowered or priced.
#[doc(hidden)]
pub fn with_found_lists(program: &Program, plan: &Plan) -> Result<Plan, Reason> {
    Evaluator::new(program, &Costs::new(program)).complete(plan)
}

impl Evaluator<'_> {
    /// As [`with_found_lists`].
    pub(super) fn complete(&self, plan: &Plan) -> Result<Plan, Reason> {
        if !plan.order.is_found() || !plan.lists.is_empty() {
            return Ok(plan.clone());
        }
        let plain = plain(plan);
        let mut schedule = self.lowerer.laid_out(&plain).map_err(Reason::refused)?;
        calls::price_with(&mut schedule, self.costs).map_err(Reason::refused)?;
        let limited = read::pipe(self.program, &schedule);
        let found = match (plan.order, self.program.search.objective) {
            (Order::ZeroBubbleAuto, Objective::Memory) => {
                roomy(self, plan, limited.clone(), Aim::Memory)?
            }
            (Order::ZeroBubbleAuto, _) => {
                let own = roomy(self, plan, limited.clone(), Aim::Time)?;
                soonest(self, plan, (&limited, own))?
            }
            _ => find::find(&limited, Aim::Time, &[]).map(|(_, passes)| passes),
        };
        Ok(found.map_or(plain, |passes| listed(plan, &passes)))
    }
}

/// Of an order and those within the limits of ZB-1p and ZB-2p that have room the first that takes
/// least on the clock: it knows what a pipeline does not, that messages wait for each other at a port.
fn soonest(
    evaluator: &Evaluator<'_>,
    plan: &Plan,
    (limited, own): (&Limited, Option<Passes>),
) -> Result<Option<Passes>, Reason> {
    let mut all: Vec<Passes> = own.into_iter().collect();
    for times in [1, 2] {
        let found = find::find(&limited.pipe.limited(times), Aim::Time, &[]);
        let passes = found.map(|(_, passes)| passes);
        all.extend(passes.filter(|own| limited.excess(own) <= 0 && !all.contains(own)));
    }
    if all.len() < 2 {
        return Ok(all.pop());
    }
    let mut best: Option<(Nanos, Passes)> = None;
    for passes in all {
        let found = listed(plan, &passes);
        let checked = match evaluator.checked(&found) {
            Err(Reason::Memory(_)) => continue,
            found => found?.0,
        };
        let time = simulate_steady(&checked).step_time();
        if best.as_ref().is_none_or(|(least, _)| time < *least) {
            best = Some((time, passes));
        }
    }
    Ok(best.map(|(_, passes)| passes))
}

/// The best order that is found and has room when it is lowered. One that has none is not tried
/// again, and the devices that lack room get less: a quarter of what they lack at first, so that
/// little is passed over, and ever more of it. Once one had no room, none is taken that is worse
/// than an order with fixed rules that has.
fn roomy(
    evaluator: &Evaluator<'_>,
    plan: &Plan,
    mut limited: Limited,
    aim: Aim,
) -> Result<Option<Passes>, Reason> {
    let lacks = |passes: &Passes| {
        let found = listed(plan, passes);
        let schedule = evaluator.lowerer.laid_out(&found).map_err(Reason::refused);
        schedule.map(|schedule| memory::lacks(evaluator.program, &schedule))
    };
    let mut tried = Vec::new();
    let mut known = None;
    for trial in 0..TRIALS {
        let Some((merit, passes)) = find::find(&limited, aim, &tried) else { break };
        if known.as_ref().is_some_and(|(known, _)| *known <= merit) {
            break;
        }
        let lacking = lacks(&passes)?;
        if lacking.is_empty() {
            return Ok(Some(passes));
        }
        if trial == 0 && aim == Aim::Time {
            known = fixed(&limited.pipe, |passes| Ok(lacks(passes)?.is_empty()))?;
        }
        for (device, room) in plan.cell_devices().zip(limited.rooms.each_mut()) {
            let lacking = lacking.get(&device).copied().unwrap_or_default();
            *room = *room - Bytes((lacking.0 * (trial + 4)).div_ceil(16));
        }
        tried.push(passes);
    }
    Ok(known.map(|(_, passes)| passes))
}

/// The best order with fixed rules that has room.
fn fixed(
    pipe: &Pipe,
    has_room: impl Fn(&Passes) -> Result<bool, Reason>,
) -> Result<Option<(Merit, Passes)>, Reason> {
    let each = find::handcrafted(pipe).into_iter();
    let each = each.filter_map(|passes| Some((pipe.merit(&passes)?, passes)));
    let mut each: Vec<(Merit, Passes)> = each.collect();
    each.sort_by_key(|(merit, _)| *merit);
    for (merit, passes) in each {
        if has_room(&passes)? {
            return Ok(Some((merit, passes)));
        }
    }
    Ok(None)
}

/// The plan with these passes.
fn listed(plan: &Plan, passes: &Passes) -> Plan {
    Plan { lists: lists(passes), ..plan.clone() }
}

/// The plan with 1F1B, each W right behind its I.
fn plain(plan: &Plan) -> Plan {
    listed(plan, &find::plain(plan.stages as usize, plan.micro_batches as usize))
}

#[cfg(test)]
mod tests;
