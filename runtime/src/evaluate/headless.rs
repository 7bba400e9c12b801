//! A schedule without the heads of units: a model as it is used. What a forward pass makes for the
//! losses of heads alone is left out: calls from which nothing comes that a later stage reads.

use crate::code::{CodeError, parse_call};
use roundelay_schedule::{
    Access, Call, Operand, Pass, Role, Routine, RoutineId, Schedule,
};
use std::{collections::BTreeSet, ops::Range};

/// The same schedule whose forward passes run no heads, and the places of the metrics that are not
/// measured then.
///
/// # Errors
/// When a kernel call is malformed.
pub(super) fn headless(
    schedule: &Schedule,
) -> Result<(Schedule, BTreeSet<usize>), CodeError> {
    let mut own = schedule.clone();
    let mut unmeasured = BTreeSet::new();
    for (id, routine) in own.routines.iter_mut() {
        if routine.pass == Pass::Forward && !schedule.ends(routine.stage) {
            let parts = parts(schedule, id, routine)?;
            unmeasured.extend(measured(schedule, routine, &parts));
            let needed = needed(routine, &parts);
            let mut needed = needed.iter();
            routine.calls.retain(|_| needed.next().copied().unwrap_or(true));
        }
    }
    Ok((own, unmeasured))
}

/// What a call does with some bytes of an argument.
#[derive(Clone)]
struct Part {
    argument: u32,
    bytes: Range<u64>,
    access: Access,
}

/// What each call of a routine touches.
fn parts(
    schedule: &Schedule,
    routine: RoutineId,
    own: &Routine,
) -> Result<Vec<Vec<Part>>, CodeError> {
    let dtype = schedule.job.dtype;
    let of = |(number, call): (usize, &Call)| {
        let kernel = parse_call(call, routine, number)?;
        let touched = kernel.accesses().iter().zip(kernel.sizes(dtype));
        let part = |(operand, (access, size)): (&Operand, (&Access, _))| {
            let roundelay_schedule::Bytes(size) = size;
            let bytes = operand.offset.0..operand.offset.0 + size;
            Part { argument: operand.argument, bytes, access: *access }
        };
        Ok(call.operands.iter().zip(touched).map(part).collect())
    };
    own.calls.iter().enumerate().map(of).collect()
}

/// The metrics whose numbers a routine writes; the loss stands before them.
fn measured(schedule: &Schedule, routine: &Routine, parts: &[Vec<Part>]) -> Vec<usize> {
    let width = schedule.job.dtype.wide_size();
    let is_metric = |part: &&Part| {
        routine.arguments[part.argument as usize].role == Role::Metric
            && part.access != Access::Read
    };
    let written = parts.iter().flatten().filter(is_metric);
    written
        .filter_map(|part| (part.bytes.start / width).checked_sub(1))
        .map(|n| n as usize)
        .collect()
}

/// Which calls make something that a later stage reads: followed from the last to the first.
fn needed(routine: &Routine, parts: &[Vec<Part>]) -> Vec<bool> {
    let crosses = (0u32..).zip(&routine.arguments).filter(|(_, argument)| {
        matches!(argument.role, Role::Value(_)) && argument.access != Access::Read
    });
    let mut wanted: Vec<(u32, Range<u64>)> =
        crosses.map(|(number, argument)| (number, 0..argument.size.0)).collect();
    let mut needed = vec![false; parts.len()];
    for (call, needed) in parts.iter().zip(&mut needed).rev() {
        let makes = |part: &&Part| part.access != Access::Read;
        let meets = |part: &Part| {
            wanted.iter().any(|(argument, bytes)| {
                *argument == part.argument
                    && bytes.start.max(part.bytes.start) < bytes.end.min(part.bytes.end)
            })
        };
        *needed = call.iter().filter(makes).any(meets);
        if !*needed {
            continue;
        }
        for part in call.iter().filter(|part| part.access == Access::Write) {
            wanted = wanted.into_iter().flat_map(|own| outside(own, part)).collect();
        }
        let read = call.iter().filter(|part| part.access != Access::Write);
        wanted.extend(read.map(|part| (part.argument, part.bytes.clone())));
    }
    needed
}

/// What of some bytes a part leaves.
fn outside((argument, bytes): (u32, Range<u64>), part: &Part) -> Vec<(u32, Range<u64>)> {
    if argument != part.argument {
        return vec![(argument, bytes)];
    }
    let before = bytes.start..bytes.end.min(part.bytes.start);
    let behind = bytes.start.max(part.bytes.end)..bytes.end;
    let left = [before, behind].into_iter().filter(|left| !left.is_empty());
    left.map(|left| (argument, left)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use roundelay_codegen::lower;
    use roundelay_dsl::{NoFiles, SourceFile, parse};
    use roundelay_schedule::{
        Argument, Bytes, Hop, Id, Nanos, Order, Placement, Plan, Rule, Shared, Stage,
        States, ValueId,
    };

    const READ: Access = Access::Read;
    const WRITE: Access = Access::Write;

    fn part(argument: u32, bytes: Range<u64>, access: Access) -> Part {
        Part { argument, bytes, access }
    }

    /// What a language model in three units runs where it is used: no stage before the last has
    /// a loss, and each leaves out the calls of its head alone.
    #[test]
    fn no_stage_before_the_last_runs_a_head() {
        for hop in [Hop::None, Hop::Added] {
            let schedule = in_units(hop);
            let (used, unmeasured) =
                headless(&schedule).expect("kernels are well formed");
            assert_eq!(unmeasured.len(), 2, "the losses of two heads");
            let losses = |routine: &Routine| {
                let is_loss = |call: &&Call| call.kernel.starts_with("cross_entropy");
                routine.calls.iter().filter(is_loss).count()
            };
            for (id, own) in used.routines.iter() {
                let whole = &schedule.routines[id];
                if own.pass != Pass::Forward || schedule.ends(own.stage) {
                    assert_eq!(own.calls, whole.calls, "{}", own.name);
                    continue;
                }
                assert_eq!((losses(whole), losses(own)), (1, 0), "{}", own.name);
                assert!(own.calls.len() < whole.calls.len(), "{}", own.name);
                assert!(!own.calls.is_empty(), "{}", own.name);
            }
        }
    }

    fn in_units(hop: Hop) -> Schedule {
        let text = "model it {
                input tokens: i32[batch, 8]
                input targets: i32[batch, 8]
                x = embedding(tokens, 24, 16)
                repeat 3 as layer { x = x + linear(layer_norm(x), 16) }
                loss cross_entropy(linear(layer_norm(x), 24), targets)
            }
            device core { memory 1 GB, compute 1 GFLOP/s, bandwidth 1 GB/s }
            link bus { bandwidth 1 GB/s, latency 1 us }
            cluster three { 3 x core joined by bus }
            train { data synthetic, batch 4, optimizer sgd(lr = 0.1), steps 2 }";
        let source = SourceFile::new("it.rdl", text.to_owned());
        let (whole, _) = parse(&source, &NoFiles).expect("it is right");
        let rule = Rule::Local { units: 3, hop };
        let program = whole.under(rule).expect("there are three layers");
        let cuts = program.model.boundaries();
        let (placement, order) = (Placement::Pipeline, Order::OneForwardOneBackward);
        let plan = Plan::new(rule, placement, order, States::Replicated, 2, cuts.clone());
        lower(&program, &plan.with_boundaries(cuts)).expect("it fits")
    }

    /// A head works in the memory that the trunk works in, before and after it.
    #[test]
    fn what_a_head_makes_is_left_out_wherever_it_lies() {
        let argument = |role, access| Argument { role, access, size: Bytes(64) };
        let arguments = vec![
            argument(Role::Value(ValueId::new(0)), WRITE),
            argument(Role::Workspace, WRITE),
            argument(Role::Metric, WRITE),
        ];
        let (pass, stage, predicted) = (Pass::Forward, Stage::new(0), Nanos(0));
        let (name, calls) = ("F0".to_owned(), Shared::default());
        let routine = Routine { name, pass, stage, arguments, calls, predicted };
        let trunk = vec![part(1, 0..32, WRITE)];
        let head = vec![part(1, 0..16, READ), part(1, 32..48, WRITE)];
        let more = vec![part(1, 32..48, READ), part(2, 0..8, WRITE)];
        let over = vec![part(1, 0..48, WRITE)];
        let value = vec![part(1, 0..32, READ), part(0, 0..64, WRITE)];
        let calls = [trunk.clone(), head.clone(), more.clone(), value.clone()];
        assert_eq!(needed(&routine, &calls), [true, false, false, true]);
        let calls = [trunk, head, more, over, value];
        assert_eq!(needed(&routine, &calls), [false, false, false, true, true]);
    }
}
