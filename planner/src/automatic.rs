//! Orders of pipelines that are found from times and memory: ZB-1p and ZB-2p of arXiv 2401.10241,
//! and the same with all the memory that the devices have.
//!
//! The plan is lowered once with a plain order. What its routines and messages take, what they
//! keep and what else lies in the arenas are then known exactly; the order that is found for them
//! stands in the plan as lists, so lowering decides nothing.

mod find;
mod greedy;
mod pipe;
mod read;

use crate::{
    cost::{self, Costs},
    memory,
    reason::Reason,
};
use find::Aim;
use pipe::{Pipe, StageHalves};
use roundelay_codegen::lower_with;
use roundelay_dsl::{Objective, Program};
use roundelay_schedule::{Order, Plan};

/// How often the room of `zb_auto` is made smaller because messages need more of it than those
/// of the plain order.
const TRIALS: u32 = 4;

/// The plan with the lists of its order where these are found and not there yet; any other as it
/// is.
///
/// # Errors
/// When the plan cannot be lowered or priced.
pub fn with_found_lists(program: &Program, plan: &Plan) -> Result<Plan, Reason> {
    complete(program, &Costs::new(program), plan)
}

/// As [`with_found_lists`], with costs at hand.
pub(crate) fn complete(
    program: &Program,
    costs: &Costs,
    plan: &Plan,
) -> Result<Plan, Reason> {
    if !plan.order.is_found() || !plan.lists.is_empty() {
        return Ok(plan.clone());
    }
    let plain = plain(plan);
    let algebra = &costs.algebra;
    let mut schedule = lower_with(program, &plain, algebra).map_err(refused)?;
    cost::price_with(&mut schedule, costs).map_err(refused)?;
    let mut pipe = read::pipe(program, &schedule);
    let aim = match (program.search.objective, plan.order) {
        (Objective::Memory, Order::ZeroBubbleAuto) => Aim::Memory,
        _ => Aim::Time,
    };
    for _ in 0..TRIALS {
        let Some((_, passes)) = find::find(&pipe, aim) else { break };
        let found = Plan { lists: pipe.lists(&passes), ..plan.clone() };
        let lacks = match plan.order {
            Order::ZeroBubbleAuto => {
                let schedule = lower_with(program, &found, algebra).map_err(refused)?;
                memory::fits(program, &schedule).err()
            }
            _ => None,
        };
        let Some(lacks) = lacks else { return Ok(found) };
        for room in &mut pipe.room {
            room.shrink(lacks.missing);
        }
    }
    Ok(plain)
}

fn refused(error: impl std::fmt::Display) -> Reason {
    Reason::Refused(error.to_string())
}

/// The plan with 1F1B, each W right behind its I.
fn plain(plan: &Plan) -> Plan {
    let pipe = Pipe {
        stages: vec![StageHalves::default(); plan.stages as usize],
        micro_batches: plan.micro_batches as usize,
        room: Vec::new(),
    };
    Plan { lists: pipe.lists(&find::plain(&pipe)), ..plan.clone() }
}

#[cfg(test)]
mod tests;
