//! Tensor rows: exchanges inside of routines are made by as many rows as there are, over a link
//! that joins them, and count among what is moved.

use crate::tiny::{Builder, Letters, accumulate, call, empty, id, reduced, row};
use roundelay_schedule::{
    Access, Argument, Attribute, Axis, Bytes, Call, Contraction, Culprit, DeviceId,
    Direction, Division, Id, Line, LinkId, Pass, Role, Rule, Schedule, Split, Splits,
    Subject, Tensor, Violation, Violations, Work, check,
};

/// Puts it on this many devices, all of them in use.
fn place(schedule: &mut Schedule, devices: u32) {
    let Schedule { target, plan, .. } = empty(Rule::Sync, 1, 1, devices);
    schedule.target = target;
    schedule.plan.devices = plan.devices;
}

/// The same with its parameters split among two rows; the forward pass sums up what it keeps.
fn split(mut schedule: Schedule) -> Schedule {
    let devices = schedule.target.devices.len() as u32;
    place(&mut schedule, 2 * devices);
    schedule.plan.tensor = Tensor { rows: 2, ..Tensor::WHOLE };
    schedule.axes.iter_mut().for_each(|(_, axis)| axis.stride *= 2);
    let splits = Splits::Tensors;
    schedule.axes.push(Axis { name: "row".to_owned(), extent: 2, stride: 1, splits });
    for parameter in &mut schedule.job.parameters {
        parameter.split = Division::One(Split { extent: 0, whole: 31, line: None });
    }
    let scratch = schedule.buffer(0, Subject::Workspace, 1, 0);
    let (_, forward) = schedule
        .routines
        .iter_mut()
        .find(|(_, routine)| routine.pass == Pass::Forward)
        .expect("every model has a forward pass");
    let (role, access) = (Role::Workspace, Access::Write);
    forward.arguments.push(Argument { role, access, size: Bytes(64) });
    forward.calls.push(exchange([2, 4]));
    let forward = schedule.routines.iter().find(|(_, r)| r.pass == Pass::Forward);
    let forward = forward.expect("it was found before").0;
    for (_, action) in schedule.actions.iter_mut() {
        if let Work::Launch { routine, rows, .. } = &mut action.work
            && *routine == forward
        {
            *rows = rows.iter().copied().chain([row(scratch, 0)]).collect();
        }
    }
    schedule
}

fn exchange(arguments: [u32; 2]) -> Call {
    call("=rw", arguments)
}

fn refused(mut schedule: Schedule, fault: impl FnOnce(&mut Schedule)) -> Violations {
    fault(&mut schedule);
    check(schedule, &Letters).expect_err("the fault must be found")
}

fn says(found: &Violations, culprit: Culprit, part: &str) -> bool {
    found.iter().any(|violation| match violation {
        Violation::Malformed { culprit: own, problem } => {
            *own == culprit && problem.contains(part)
        }
        _ => false,
    })
}

#[test]
fn every_launch_with_an_exchange_is_a_message_and_sends_half_of_the_array_twice() {
    let checked = check(split(accumulate(3)), &Letters).unwrap();
    let facts = checked.facts();
    assert_eq!(facts.messages, 3);
    assert_eq!(facts.sent[&DeviceId::new(0)], Bytes(3 * 64));
    assert_eq!(facts.link_bytes[&LinkId::new(0)], Bytes(2 * 3 * 64));
}

#[test]
fn replicas_exchange_for_themselves_and_reduce_row_by_row() {
    let checked = check(split(reduced()), &Letters).unwrap();
    let facts = checked.facts();
    // A collective for each row, an exchange at each of two coordinates.
    assert_eq!(facts.messages, 2 + 2);
    assert_eq!(facts.sent[&DeviceId::new(0)], Bytes(64 + 64));
    assert_eq!(facts.link_bytes[&LinkId::new(0)], Bytes(4 * (64 + 64)));
}

#[test]
fn an_exchange_is_made_by_all_rows_that_there_are() {
    let routine = Culprit::Call(id(0), 1);
    let found = refused(accumulate(1), |s| {
        s.routines[id(0)].calls.push(exchange([2, 3]));
    });
    assert!(says(&found, routine, "no axis of the schedule splits tensors"), "{found}");
    let found = refused(split(accumulate(1)), |s| {
        place(s, 3);
        s.axes[id(0)].extent = 3;
        s.plan.tensor.rows = 3;
        s.job.parameters[0].split =
            Division::One(Split { extent: 0, whole: 48, line: None });
    });
    assert!(
        says(
            &found,
            routine,
            "2 parts that are 1 apart make it together, which 3 tensor rows are not"
        ),
        "{found}"
    );
}

/// The same among a grid of two rows and two columns, whose exchange runs along the rows.
fn crossed(schedule: Schedule) -> Schedule {
    let mut schedule = split(schedule);
    let devices = schedule.target.devices.len() as u32;
    place(&mut schedule, 2 * devices);
    schedule.plan.tensor = Tensor::grid(2, 2);
    let last = schedule.axes.len() - 1;
    for (id, axis) in schedule.axes.iter_mut() {
        match id.index() == last {
            true => axis.extent = 4,
            false => axis.stride *= 2,
        }
    }
    for parameter in &mut schedule.job.parameters {
        let line = Some(schedule.plan.tensor.line(Direction::Rows));
        parameter.split = Division::One(Split { extent: 0, whole: 31, line });
    }
    for (_, routine) in schedule.routines.iter_mut() {
        for call in routine.calls.iter_mut().filter(|call| call.kernel == "=rw") {
            call.attributes.insert("stride".into(), Attribute::Integer(2));
        }
    }
    schedule
}

/// Two lines of two parts each make an exchange of their own.
#[test]
fn lines_of_a_grid_exchange_side_by_side() {
    let checked = check(crossed(accumulate(3)), &Letters).unwrap();
    let facts = checked.facts();
    assert_eq!(facts.messages, 2 * 3);
    assert_eq!(facts.sent[&DeviceId::new(0)], Bytes(3 * 64));
    assert_eq!(facts.link_bytes[&LinkId::new(0)], Bytes(4 * 3 * 64));
}

#[test]
fn lines_are_those_of_the_grid() {
    let job = Culprit::Header("job");
    let with = |splits: Division| {
        refused(crossed(accumulate(1)), |s| s.job.parameters[0].split = splits)
    };
    let grid = Tensor::grid(2, 2);
    let rows = Split { extent: 0, whole: 31, line: Some(grid.line(Direction::Rows)) };
    let found = with(Division::Two([rows, rows]));
    assert!(says(&found, job, "is split twice by the same parts"), "{found}");
    let line = rows.line.map(|line| Line { parts: 3, ..line });
    let found = with(Division::One(Split { line, ..rows }));
    let expected =
        "by 3 parts that are 2 apart, which 2 tensor rows and 2 columns are not";
    assert!(says(&found, job, expected), "{found}");
    let found = refused(crossed(accumulate(1)), |s| {
        let stride = ("stride".into(), Attribute::Integer(4));
        s.routines[id(0)].calls[1].attributes.extend([stride]);
    });
    let expected = "2 parts that are 4 apart make it together, which 2 tensor rows and 2 columns are not";
    assert!(says(&found, Culprit::Call(id(0), 1), expected), "{found}");
}

#[test]
fn columns_that_gather_stand_in_one_row() {
    let found = refused(crossed(accumulate(1)), |s| {
        s.plan.tensor.contraction = Contraction::Gather;
    });
    let expected = "contraction gather is not for a grid of 2 x 2 with sequences whole";
    assert!(says(&found, Culprit::Header("plan"), expected), "{found}");
}

/// Half of a column of four rows is as far apart as its rows, but no line of the grid.
#[test]
fn pieces_of_lines_are_none() {
    let grid = Tensor::grid(4, 2);
    let four = |s: &mut Schedule| {
        place(s, 8);
        s.plan.tensor = grid;
        s.axes[id(0)].extent = 8;
    };
    let found = refused(crossed(accumulate(1)), four);
    let expected =
        "by 2 parts that are 2 apart, which 4 tensor rows and 2 columns are not";
    assert!(says(&found, Culprit::Header("job"), expected), "{found}");
    let found = refused(crossed(accumulate(1)), |s| {
        four(s);
        let line = Some(grid.line(Direction::Rows));
        for parameter in &mut s.job.parameters {
            parameter.split = Division::One(Split { extent: 0, whole: 61, line });
        }
    });
    let expected = "2 parts that are 2 apart make it together, which 4 tensor rows and 2 \
                    columns are not";
    assert!(says(&found, Culprit::Call(id(0), 1), expected), "{found}");
}

#[test]
fn lines_of_single_parts_are_those_of_every_grid() {
    let grid = Tensor::grid(4, 2);
    let has = |parts, stride| grid.has(Line { parts, stride });
    assert!(
        [(4, 2), (2, 1), (8, 1), (1, 1), (1, 8)].iter().all(|line| has(line.0, line.1))
    );
    assert!(
        ![(2, 2), (4, 1), (2, 4), (1, 0), (1, 3)].iter().any(|line| has(line.0, line.1))
    );
}

#[test]
fn a_parameter_holds_the_part_of_one_row() {
    let job = Culprit::Header("job");
    let with = |extent, whole| {
        refused(split(accumulate(1)), |s| {
            s.job.parameters[0].split =
                Division::One(Split { extent, whole, line: None });
        })
    };
    let expected = "holds 16 of 48 in extent 0; one of 2 parts holds 24";
    assert!(says(&with(0, 48), job, expected), "{}", with(0, 48));
    let expected = "is split along extent 7, which it does not have";
    assert!(says(&with(7, 48), job, expected), "{}", with(7, 48));
    let whole = refused(accumulate(1), |s| {
        s.job.parameters[0].split =
            Division::One(Split { extent: 0, whole: 16, line: None });
    });
    assert!(says(&whole, job, "but tensors are whole"), "{whole}");
}

#[test]
fn a_link_joins_the_rows_that_exchange() {
    let found = refused(split(accumulate(1)), |s| s.target.domains.clear());
    assert!(says(&found, Culprit::Action(id(1)), "which no link joins"), "{found}");
}

#[test]
fn rows_lie_next_to_each_other_and_clip_by_the_norm_of_all() {
    let axes = Culprit::Header("axes");
    let found = refused(split(reduced()), |s| {
        let all: Vec<Axis> = s.axes.values().rev().cloned().collect();
        s.axes = all.into_iter().collect();
    });
    assert!(says(&found, axes, "is the last one"), "{found}");
    let whole = split(accumulate(1));
    let mut routines = whole.routines.iter();
    let update = routines.find(|(_, routine)| routine.pass == Pass::Update).unwrap().0;
    let found = refused(whole.clone(), |s| s.job.optimizer.clip = 1.0);
    let expected = "clips by the norm of a part of the gradient";
    assert!(says(&found, Culprit::Routine(update), expected), "{found}");
}
