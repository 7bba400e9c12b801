//! Backward passes in halves: all input gradients of a step, then all weight gradients.

use super::{
    Access::{Read, Update, Write},
    Builder, at, empty, id, row,
};
use roundelay_schedule::{Pass, Role, RoutineId, Row, Rule, Schedule, Subject};

/// One device, one stage, N micro-batches: per micro-batch feed, F, report, I; then W of each;
/// then U in place. Buffers: parameters, gradient, activation, input, loss, retained, adjoint;
/// the last two have a slot per micro-batch.
pub(crate) fn halves(n: u32) -> Schedule {
    let mut schedule = empty(Rule::Sync, n, 1, 1);
    schedule.ring(&[0], 0);
    super::single(&mut schedule, 1);
    schedule.carry(0, &[&[Some(0)]]);
    schedule.buffer(0, Subject::Retained(id(0)), n, 0);
    schedule.buffer(0, Subject::Adjoint(id(0)), n, 0);
    let [forward, input, first, next] = routines(&mut schedule);
    let (here, parameter) = (at(0, 0), row(0, 0));
    let late = |i: usize| [row(5, i as u32), row(6, i as u32)];
    for i in 0..n as usize {
        let [retained, adjoint] = late(i);
        schedule.feed(here, i, row(3, 0));
        let rows = [parameter, row(3, 0), row(2, 0), row(4, 0), retained];
        schedule.launch(here, forward, Some(i), &rows);
        schedule.report(here, i, row(4, 0));
        schedule.launch(here, input, Some(i), &[parameter, row(2, 0), adjoint]);
    }
    for i in 0..n as usize {
        let [retained, adjoint] = late(i);
        let weight = if i == 0 { first } else { next };
        let rows: [Row; 3] = [retained, adjoint, row(1, 0)];
        schedule.launch(here, weight, Some(i), &rows);
    }
    let update = [(Role::Parameter, Update), (Role::Gradient, Read)];
    let update = schedule.routine(Pass::Update, 0, &update);
    schedule.launch(here, update, None, &[parameter, row(1, 0)]);
    schedule.chained()
}

/// F, I, the first W and a later one.
fn routines(schedule: &mut Schedule) -> [RoutineId; 4] {
    let forward = [
        (Role::Parameter, Read),
        (Role::Input(id(0)), Read),
        (Role::Activation, Write),
        (Role::Metric, Write),
        (Role::Retained, Write),
    ];
    let input =
        [(Role::Parameter, Read), (Role::Activation, Read), (Role::Adjoint, Write)];
    let weight = |access| {
        [(Role::Retained, Read), (Role::Adjoint, Read), (Role::Gradient, access)]
    };
    [
        schedule.routine(Pass::Forward, 0, &forward),
        schedule.routine(Pass::InputGradient, 0, &input),
        schedule.routine(Pass::WeightGradient, 0, &weight(Write)),
        schedule.routine(Pass::WeightGradient, 0, &weight(Update)),
    ]
}

/// Line of F, I or W of a micro-batch of `halves(n)`.
pub(crate) fn line(pass: Pass, i: usize, n: usize) -> usize {
    match pass {
        Pass::Forward => 4 * i + 1,
        Pass::InputGradient => 4 * i + 3,
        Pass::WeightGradient => 4 * n + i,
        Pass::Backward | Pass::Combine | Pass::Norm | Pass::Update => {
            unreachable!("no such line is asked for")
        }
    }
}

/// A whole backward pass of the stage over the same rows.
pub(crate) fn whole(schedule: &mut Schedule) -> RoutineId {
    let whole =
        [(Role::Parameter, Read), (Role::Activation, Read), (Role::Gradient, Update)];
    schedule.routine(Pass::Backward, 0, &whole)
}
