//! Whatever number of a schedule is changed, the checker answers; it never panics and stays
//! within its limits.

use crate::tiny::{
    Letters, accumulate, delayed, halves::halves, id, pipeline, reduced, turning,
};
use roundelay_schedule::{
    Access, Action, Buffer, BufferId, Bytes, Content, Element, Id, Place, Placement,
    Reduction, Rest, RingId, Routine, Row, Rule, Schedule, Sum, Table, Work, check,
};

/// A small generator: the same numbers in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % bound.max(1)
    }
    fn small(&mut self) -> u32 {
        [u32::MAX, 1 << 31, 1 << 16, 4000, 0, 1, 2, 3, 5][self.below(9)]
    }
    fn bytes(&mut self) -> u64 {
        [u64::MAX, 1 << 47, u64::from(u32::MAX), 0, 4, 64, 128, 3][self.below(8)]
    }
    fn of<'a, I: Id, T>(&mut self, table: &'a mut Table<I, T>) -> Option<&'a mut T> {
        let index = self.below(table.len());
        table.iter_mut().nth(index).map(|(_, row)| row)
    }
    fn in_list<'a, T>(&mut self, list: &'a mut [T]) -> Option<&'a mut T> {
        let index = self.below(list.len());
        list.get_mut(index)
    }
}

fn mutate(schedule: &mut Schedule, n: &mut Numbers) {
    match n.below(8) {
        0 => devices(schedule, n),
        1 => plan(schedule, n),
        2 => job(schedule, n),
        3 | 4 => drop(n.of(&mut schedule.buffers).map(|b| buffer(b, n))),
        5 => drop(n.of(&mut schedule.routines).map(|r| routine(r, n))),
        _ => drop(n.of(&mut schedule.actions).map(|a| action(a, n))),
    }
}

fn devices(schedule: &mut Schedule, n: &mut Numbers) {
    let (number, bytes) = (n.small(), n.bytes());
    let (ring, group) = (n.below(3), n.below(3));
    match n.below(9) {
        0 => schedule.rings[id(0)].turn = number,
        1 => schedule.rings[id(0)].lanes = number,
        2 => schedule.rings[id(0)].devices.push(id(number as usize)),
        3 => schedule.rings[id(0)].devices.clear(),
        4 => schedule.target.domains[0].devices = number..n.small(),
        5 => drop(n.of(&mut schedule.target.devices).map(|d| d.memory = Bytes(bytes))),
        6 => drop(n.of(&mut schedule.target.devices).map(|d| d.pool = id(ring))),
        7 => drop(n.of(&mut schedule.groups).map(|g| g.axes.push(id(group)))),
        _ => drop(n.of(&mut schedule.groups).map(|g| g.places[0].place = number)),
    }
}

fn plan(schedule: &mut Schedule, n: &mut Numbers) {
    let plan = &mut schedule.plan;
    match n.below(8) {
        0 => plan.micro_batches = n.small(),
        1 => plan.stages = n.small(),
        2 => plan.rule = Rule::CyclicSlack(n.small()),
        3 => plan.cuts.push(n.small()),
        4 => plan.placement = Placement::ALL[n.below(5)],
        5 => plan.reduction = Reduction::ByDevice,
        6 => plan.devices.push(id(n.small() as usize)),
        _ => plan.replicas = n.small(),
    }
}

fn job(schedule: &mut Schedule, n: &mut Numbers) {
    let (number, bytes) = (n.small(), n.bytes());
    let shape = vec![n.bytes(), n.bytes(), n.bytes()];
    match n.below(7) {
        0 => schedule.job.batch = number,
        1 => schedule.job.elements[id(0)] = bytes,
        2 => schedule.job.parameters[0].offset = bytes,
        3 => schedule.job.parameters[0].shape = shape,
        4 => schedule.job.inputs[id(0)].shape = shape,
        5 => drop(n.of(&mut schedule.axes).map(|axis| axis.extent = number)),
        _ => drop(n.of(&mut schedule.axes).map(|axis| axis.stride = number)),
    }
}

fn buffer(buffer: &mut Buffer, n: &mut Numbers) {
    match n.below(8) {
        0 => buffer.offset = Bytes(n.bytes()),
        1 => buffer.size = Bytes(n.bytes()),
        2 => buffer.slots = n.small(),
        3 => buffer.turn = n.small(),
        4 => buffer.home = RingId::new(n.below(3)),
        5 => buffer.rest = Rest::Transient,
        6 => buffer.rest = Rest::Carried(vec![vec![Some(n.small())]]),
        _ => buffer.rest = Rest::Carried(vec![vec![None]; 2]),
    }
}

fn routine(routine: &mut Routine, n: &mut Numbers) {
    let (number, bytes) = (n.small(), n.bytes());
    let shape = vec![n.bytes(), n.bytes()];
    let access = [Access::Read, Access::Write, Access::Update][n.below(3)];
    let argument = n.below(routine.arguments.len());
    // A routine that was hit before may be without calls.
    let Some(call) = routine.calls.first_mut() else { return };
    let operand = n.below(call.operands.len());
    let operand = &mut call.operands[operand];
    match n.below(9) {
        0 => routine.stage = id(number as usize),
        1 => routine.arguments[argument].size = Bytes(bytes),
        2 => routine.arguments[argument].access = access,
        3 => drop(routine.arguments.pop()),
        4 => operand.argument = number,
        5 => operand.offset = Bytes(bytes),
        6 => operand.shape = shape.into(),
        7 => operand.element = Element::I32,
        _ => routine.calls.clear(),
    }
}

fn action(action: &mut Action, n: &mut Numbers) {
    let number = n.small();
    match n.below(7) {
        0 => action.lag = number,
        1 => action.reach = number,
        2 => drop(n.in_list(&mut action.after).map(|wait| wait.distance = number)),
        3 => drop(n.in_list(&mut action.after).map(|w| w.action = id(number as usize))),
        _ => work(&mut action.work, n),
    }
}

fn work(work: &mut Work, n: &mut Numbers) {
    let number = n.small() as usize;
    match work {
        Work::Launch { at, lane, routine, micro_batch, rows, beside } => match n.below(6)
        {
            0 => place(at, n),
            1 => *lane = number as u32,
            2 => *routine = id(number % 8),
            3 => *micro_batch = [None, Some(id(number))][n.below(2)],
            4 => *beside = [None, Some(id(number))][n.below(2)],
            _ => drop(n.in_list(rows).map(|bound| row(bound, n))),
        },
        Work::Transfer { link, from, to, content } => match n.below(6) {
            0 => *link = id(number),
            1 => place(&mut from.at, n),
            2 => place(&mut to.at, n),
            3 => row(&mut from.row, n),
            4 => row(&mut to.row, n),
            _ => {
                *content =
                    Content::Gradient(id(number), Box::new(Sum::list([id(number)])));
            }
        },
        Work::Collective { link, group, from, to, content, .. } => match n.below(5) {
            0 => *link = id(number),
            1 => *group = id(number),
            2 => row(from, n),
            3 => row(to, n),
            _ => *content = Content::Value(id(number), id(0)),
        },
        Work::Feed { at, micro_batch, row: bound }
        | Work::Report { at, micro_batch, row: bound } => match n.below(3) {
            0 => place(at, n),
            1 => *micro_batch = id(number),
            _ => row(bound, n),
        },
    }
}

fn place(at: &mut Place, n: &mut Numbers) {
    match n.below(2) {
        0 => at.place = n.small(),
        _ => at.ring = RingId::new(n.below(4)),
    }
}

fn row(row: &mut Row, n: &mut Numbers) {
    match n.below(2) {
        0 => row.place = n.small(),
        _ => row.buffer = BufferId::new(n.below(14)),
    }
}

#[test]
fn no_mutant_makes_the_checker_panic() {
    let sound = [accumulate(2), delayed(2), reduced(), turning(), pipeline(), halves(2)];
    let mut numbers = Numbers(7);
    let mut refused = 0;
    for round in 0..2000 {
        let mut mutant = sound[round % sound.len()].clone();
        for _ in 0..1 + numbers.below(2) {
            mutate(&mut mutant, &mut numbers);
        }
        if let Err(violations) = check(mutant, &Letters) {
            refused += 1;
            assert!(!violations.to_string().is_empty());
        }
    }
    assert!(refused > 1000, "only {refused} of 2000 mutants were refused");
}
