//! One planted fault each: refused, with the right violation at the right line.

use crate::tiny::{
    Builder, Letters, accumulate, action, at, delayed, id, pipeline, reduced, row,
    turning,
};
use roundelay_schedule::{
    Access, Action, Belonging, Bytes, Collective, Content, Culprit, Held, Id, Parameter,
    ParameterKind, Pass, Rest, Schedule, Sum, Treatment, Violation, Violations, Waits,
    Work, check,
};

fn refused(mut schedule: Schedule, fault: impl FnOnce(&mut Schedule)) -> Violations {
    fault(&mut schedule);
    check(schedule, &Letters).expect_err("the fault must be found")
}

fn erase(schedule: &mut Schedule, index: usize) {
    let mut lines: Vec<Action> = schedule.actions.values().cloned().collect();
    lines.remove(index);
    schedule.actions = lines.into_iter().collect();
    *schedule = std::mem::replace(schedule, accumulate(1)).chained();
}

fn rows(schedule: &mut Schedule, index: usize) -> &mut [roundelay_schedule::Row] {
    match &mut schedule.actions[action(index)].work {
        Work::Launch { rows, .. } => rows,
        other => panic!("no launch: {other:?}"),
    }
}

fn lines(violations: &Violations) -> Vec<usize> {
    violations.iter().filter_map(|v| v.action()).map(Id::index).collect()
}

#[test]
fn a_dropped_wait_is_a_race() {
    // F of the first micro-batch no longer waits for its feed.
    let found = refused(accumulate(1), |s| s.actions[action(1)].after = Waits::default());
    assert!(found.iter().any(|v| matches!(
        v,
        Violation::Race { action: line, access: Access::Read, earlier, distance: 0, .. }
            if *line == action(1) && *earlier == action(0)
    )));
    // The report no longer waits for the loss; the next forward pass no longer waits for it.
    let found = refused(accumulate(1), |s| s.actions[action(2)].after = Waits::default());
    assert!(
        found.iter().any(|v| matches!(
            v,
            Violation::Race { action: line, access: Access::Read, earlier, distance: 0, .. }
                if (*line, *earlier) == (action(2), action(1))
        )),
        "{found}"
    );
}

/// What is told of this many micro-batches with a fault: how much, and of which lines, counted from the
/// end of the list that is nearer.
fn told(
    micro_batches: u32,
    fault: impl FnOnce(&mut Schedule, usize),
) -> (usize, Vec<(char, usize)>) {
    let last = 4 * micro_batches as usize;
    let found = refused(accumulate(micro_batches), |s| fault(s, last));
    let place = |line: usize| if line < 6 { ('+', line) } else { ('-', last + 1 - line) };
    (found.total(), lines(&found).into_iter().map(place).collect())
}

/// Whoever looks side by side at a list that is long enough says what one says alone, in the order
/// of the list.
#[test]
fn a_long_list_is_refused_like_a_short_one() {
    let malformed = |s: &mut Schedule, last: usize| {
        s.actions[action(last)].lag = 1 << 20;
        rows(s, 1)[0] = row(99, 0);
    };
    assert_eq!(told(4100, malformed), (2, vec![('+', 1), ('-', 1)]));
    let wrong = |s: &mut Schedule, last: usize| {
        s.actions[action(last - 2)].after = Waits::default();
        s.actions[action(1)].after = Waits::default();
        s.actions.push(s.actions[action(2)].clone());
    };
    let (total, places) = told(4100, wrong);
    assert!(places.contains(&('+', 1)) && places.contains(&('-', 0)), "{places:?}");
    assert_eq!((total, places), told(3, wrong));
}

#[test]
fn running_averages_have_one_momentum_that_is_a_share() {
    let averaged = |momenta: [f64; 2]| {
        refused(pipeline(), |s| {
            for (parameter, momentum) in s.job.parameters.iter_mut().zip(momenta) {
                parameter.treatment = Treatment::Averaged { momentum };
            }
        })
        .to_string()
    };
    let two = averaged([0.1, 0.2]);
    assert!(
        two.contains("weight.1 averages with momentum 0.2, weight.0 with 0.1"),
        "{two}"
    );
    for momentum in [-0.1, 1.5, f64::NAN] {
        let found = averaged([momentum; 2]);
        assert!(found.contains("it lies from 0 to 1"), "{found}");
    }
}

/// Other calls may write what an update writes, but what they make of it nobody knows.
#[test]
fn an_update_is_a_call_of_the_optimizer() {
    let found = refused(accumulate(1), |s| {
        let mut all = s.routines.iter_mut().map(|(_, own)| own);
        let update = all.find(|own| own.pass == Pass::Update).unwrap();
        update.calls[0].kernel = "rru".into();
    });
    let told = "is not a step of the optimizer; a pass U calls `sgd`";
    assert!(found.to_string().contains(told), "{found}");
}

#[test]
fn names_are_apart_and_fit_files() {
    let parameter = |(place, name): (usize, &&str)| Parameter {
        belonging: Belonging::Model,
        name: (*name).to_owned(),
        stage: id(0),
        offset: if place == 0 { 0 } else { 16 },
        shape: vec![if place == 0 { 16 } else { 0 }],
        kind: ParameterKind::Plain,
        split: roundelay_schedule::Division::default(),
        initial: roundelay_schedule::Initial::Constant(0.0),
        treatment: Treatment::Decayed,
    };
    let named = |names: &[&str]| {
        let mut schedule = accumulate(1);
        schedule.job.parameters = names.iter().enumerate().map(parameter).collect();
        check(schedule, &Letters)
    };
    assert!(named(&["layer.0.weight", "layer-1_bias"]).is_ok());
    let mut filters = accumulate(1);
    filters.job.parameters = vec![parameter((0, &"w"))];
    filters.job.parameters[0].kind = ParameterKind::Filters;
    let flat =
        check(filters, &Letters).expect_err("filters have four extents").to_string();
    assert!(flat.contains("filters w have four extents, found [16]"), "{flat}");
    let twice = named(&["w", "w"]).expect_err("one name is there twice").to_string();
    assert!(twice.contains("two parameters are called `w`"), "{twice}");
    let long = "n".repeat(4097);
    for name in
        ["", "a#m", "a@-1", "__metadata__", "../evil", "/evil", "a/b", "a b", &long]
    {
        let wrong = named(&[name]).expect_err("files cannot have it").to_string();
        assert!(wrong.contains("names arrays in files"), "{name}: {wrong}");
    }
    let input = |name: &str| {
        let mut schedule = accumulate(1);
        let inputs = schedule.job.inputs.values().cloned();
        let named = |own| roundelay_schedule::Input { name: name.to_owned(), ..own };
        schedule.job.inputs = inputs.map(named).collect();
        check(schedule, &Letters)
    };
    let wrong = input("../evil").expect_err("it would leave the folder").to_string();
    assert!(wrong.contains("input `../evil` names arrays in files"), "{wrong}");
}

#[test]
fn every_wait_of_a_chain_through_two_devices_matters() {
    let length = pipeline().actions.len();
    for line in 1..length {
        let schedule = pipeline();
        let same = schedule.actions[action(line)].queue()
            == schedule.actions[action(line - 1)].queue();
        // B1 follows F1 on its lane; that the loss was reported orders the next period alone.
        if !same && line != 5 {
            let found =
                refused(schedule, |s| s.actions[action(line)].after = Waits::default());
            assert!(
                found.iter().all(|v| matches!(v, Violation::Race { .. })),
                "a{line}: {found}"
            );
        }
    }
}

#[test]
fn a_wrong_version_names_reader_and_writer() {
    let found = refused(delayed(2), |s| rows(s, 1)[0] = row(0, 0));
    let Violation::Content { action: line, expected, found: held, .. } = found.first()
    else {
        panic!("{found}");
    };
    assert_eq!(*line, action(1));
    assert_eq!(*expected, Held::Parameter(id(0), -1));
    assert_eq!(*held, Held::Parameter(id(0), 0));
    let text = found.to_string();
    assert!(text.contains("a1 reads b0.0 on r0.0, which holds θ(s0, t)"), "{text}");
    assert!(text.contains("expected θ(s0, t−1)"), "{text}");
}

#[test]
fn one_slot_fewer_overwrites_a_version_that_is_still_read() {
    let found = refused(delayed(1), |s| {
        s.buffers[id(0)].slots = 1;
        s.buffers[id(0)].rest = Rest::Carried(vec![vec![Some(0)]]);
        for line in [1, 3, 4] {
            rows(s, line)[0] = row(0, 0);
        }
        rows(s, 4)[1] = row(0, 0);
    });
    assert!(found.iter().any(|v| matches!(v, Violation::Alias { .. })), "{found}");
    assert!(found.iter().any(|v| matches!(v, Violation::Content { .. })), "{found}");
}

#[test]
fn an_erased_line_is_missing() {
    // Of three micro-batches the second backward, the report, the update.
    for line in [7, 2, 12] {
        let found = refused(accumulate(3), |s| erase(s, line));
        assert!(found.iter().any(|v| matches!(v, Violation::Missing { .. })), "{found}");
    }
    let found = refused(accumulate(3), |s| erase(s, 0));
    assert!(matches!(
        found.first(),
        Violation::Content { action: line, expected: Held::Input(..), .. } if *line == action(0)
    ));
}

#[test]
fn a_line_done_twice_is_refused() {
    let found = refused(accumulate(1), |s| {
        let copy = s.actions[action(4)].clone();
        s.actions.push(copy);
    });
    assert!(found.iter().any(|v| matches!(
        v,
        Violation::Repeated { action: line, first, .. }
            if (*line, *first) == (action(5), action(4))
    )));
}

#[test]
fn swapped_backward_passes_make_another_sum() {
    let found = refused(accumulate(3), |s| {
        for (line, i) in
            [(5, 2), (7, 2), (9, 1), (11, 1), (4, 2), (6, 2), (8, 1), (10, 1)]
        {
            match &mut s.actions[action(line)].work {
                Work::Launch { micro_batch, .. } => *micro_batch = Some(id(i)),
                Work::Feed { micro_batch, .. } | Work::Report { micro_batch, .. } => {
                    *micro_batch = id(i);
                }
                other => panic!("{other:?}"),
            }
        }
    });
    let Violation::Tree { action: line, made, .. } = found.first() else {
        panic!("{found}");
    };
    assert_eq!(*line, action(7));
    assert_eq!(*made, Sum::list([id(0), id(2)]));
}

#[test]
fn a_gradient_that_starts_again_loses_the_first() {
    let found = refused(accumulate(2), |s| {
        let first = s.actions[action(3)].work.routine().expect("a launch").0;
        if let Work::Launch { routine, .. } = &mut s.actions[action(7)].work {
            *routine = first;
        }
    });
    assert_eq!(lines(&found)[0], 7, "{found}");
}

#[test]
fn a_lag_that_nothing_else_has_breaks_prologue_or_drain() {
    for line in 0..5 {
        let found = refused(accumulate(1), |s| s.actions[action(line)].lag = 1);
        assert!(
            found.iter().any(|v| matches!(v, Violation::Content { .. })),
            "a{line}: {found}"
        );
    }
}

#[test]
fn shared_addresses_of_overlapping_lives_are_refused() {
    // Loss over input: the backward pass reads neither, but the forward touches both.
    let found =
        refused(accumulate(1), |s| s.buffers[id(4)].offset = s.buffers[id(3)].offset);
    assert!(matches!(found.first(), Violation::Alias { .. }), "{found}");
    // Gradient over activation of the next micro-batch.
    let found = refused(accumulate(2), |s| {
        s.buffers[id(1)].offset = s.buffers[id(4)].offset;
    });
    assert!(found.iter().any(|v| matches!(v, Violation::Content { .. })), "{found}");
}

#[test]
fn shared_addresses_of_separate_lives_are_welcome() {
    // With one micro-batch the input is dead before the gradient is written.
    let mut schedule = accumulate(1);
    schedule.buffers[id(1)].offset = schedule.buffers[id(3)].offset;
    assert!(check(schedule, &Letters).is_ok());
}

#[test]
fn an_update_needs_the_reduced_gradient() {
    let found = refused(reduced(), |s| erase(s, 4));
    assert!(matches!(
        found.first(),
        Violation::Content {
            expected: Held::Gradient(..),
            found: Held::Gradient(..),
            ..
        }
    ));
    assert_eq!(lines(&found)[0], 4, "{found}");
}

#[test]
fn a_collective_must_fit_its_rows() {
    let found = refused(reduced(), |s| {
        if let Work::Collective { kind, .. } = &mut s.actions[action(4)].work {
            *kind = Collective::ReduceScatter;
        }
    });
    assert_eq!(lines(&found), [4], "{found}");
}

#[test]
fn a_turning_ring_must_hand_its_parameters_on() {
    let found = refused(turning(), |s| erase(s, 0));
    assert!(
        found.iter().any(|v| matches!(
            v,
            Violation::Content { expected: Held::Parameter(..), .. }
        ))
    );
    let found = refused(turning(), |s| {
        s.buffers[id(0)].rest = Rest::Carried(vec![vec![Some(0)], vec![Some(0)]]);
    });
    assert!(found.iter().any(|v| matches!(v, Violation::Rest { .. })), "{found}");
    let found = refused(turning(), |s| s.actions[action(0)].after = Waits::default());
    assert!(found.iter().any(|v| matches!(v, Violation::Race { .. })), "{found}");
}

#[test]
fn what_is_trained_must_be_kept() {
    let found = refused(accumulate(1), |s| s.buffers[id(0)].rest = Rest::Transient);
    assert!(found.iter().any(|v| matches!(v, Violation::Lost { .. })), "{found}");
}

#[test]
fn a_transfer_must_carry_what_it_says() {
    let found = refused(pipeline(), |s| {
        if let Work::Transfer { content, .. } = &mut s.actions[action(2)].work {
            *content = Content::ValueGradient(id(0), id(0));
        }
    });
    assert_eq!(lines(&found), [2], "{found}");
    let found = refused(pipeline(), |s| s.buffers[id(9)].size = Bytes(128));
    assert!(!lines(&found).is_empty() || found.total() > 0);
}

#[test]
fn memory_has_an_end() {
    let found = refused(accumulate(1), |s| s.target.pools[id(0)].capacity = Bytes(64));
    assert!(matches!(found.first(), Violation::Overfull { .. }), "{found}");
}

#[test]
fn handles_out_of_range_are_named() {
    let found = refused(accumulate(1), |s| rows(s, 1)[0] = row(99, 0));
    assert_eq!(lines(&found), [1]);
    let found = refused(accumulate(1), |s| rows(s, 1)[0] = row(0, 7));
    assert_eq!(lines(&found), [1]);
    let found = refused(accumulate(1), |s| {
        if let Work::Launch { at: place, .. } = &mut s.actions[action(3)].work {
            *place = at(5, 0);
        }
    });
    assert!(lines(&found).iter().all(|line| *line == 3), "{found}");
    let found =
        refused(accumulate(1), |s| s.actions[action(2)].after[0].action = action(2));
    assert_eq!(lines(&found), [2]);
}

#[test]
fn routines_must_keep_what_their_arguments_declare() {
    // The kernel writes a gradient that the argument declares as updated.
    let found = refused(accumulate(2), |s| {
        s.routines[id(2)].calls[0].kernel = "rrw".into();
    });
    let culprit = Culprit::Call(id(2), 0);
    assert!(matches!(
        found.first(),
        Violation::Malformed { culprit: found, .. } if *found == culprit
    ));
    // An operand ends past its argument.
    let found = refused(accumulate(1), |s| {
        s.routines[id(0)].calls[0].operands[1].offset = Bytes(4);
    });
    assert!(found.to_string().contains("k0"), "{found}");
    // A kernel that does not exist.
    let found =
        refused(accumulate(1), |s| s.routines[id(0)].calls[0].kernel = "x".into());
    assert!(found.to_string().contains("there is no kernel `x`"), "{found}");
}

/// What is a sum over stages has a term of every stage that says so.
#[test]
fn a_sum_over_stages_gets_the_term_of_each() {
    let found = refused(pipeline(), |s| {
        s.routines[id(2)].arguments[2].access = Access::Update;
        s.routines[id(2)].calls[0].kernel = "rrrw".into();
    });
    assert!(found.to_string().contains("never gets the term of this stage"), "{found}");
}

/// No pass reads elements that nothing draws, loads or keeps.
#[test]
fn what_is_read_of_parameters_is_listed() {
    let read = |change: fn(&mut Vec<Parameter>)| {
        let found = refused(accumulate(1), |s| change(&mut s.job.parameters));
        let culprit = Culprit::Routine(id(0));
        assert!(matches!(
            found.first(),
            Violation::Malformed { culprit: found, .. } if *found == culprit
        ));
        found.to_string()
    };
    for found in [read(Vec::clear), read(|all| all[0].shape = vec![3, 5])] {
        assert!(found.contains("reads bytes 0 to 64 of argument"), "{found}");
        assert!(found.contains("list what lies there"), "{found}");
    }
    let mut apart = accumulate(1);
    let behind = Parameter { offset: 6, ..apart.job.parameters[0].clone() };
    apart.job.parameters[0].shape = vec![2, 3];
    let behind = Parameter { name: "behind".into(), shape: vec![10], ..behind };
    apart.job.parameters.push(behind);
    assert!(
        check(apart, &Letters).is_ok(),
        "two parameters that touch may be read as one"
    );
}

/// Norms and sums read whole arrays: what lies behind the parameters must be written too.
#[test]
fn a_gradient_is_begun_as_a_whole() {
    let short = |schedule: &mut Schedule| {
        schedule.job.parameters[0].shape = vec![12];
        let gradient = &mut schedule.routines[id(1)].calls[0].operands[2];
        gradient.shape = vec![12].into();
    };
    let found = refused(accumulate(1), short);
    let culprit = Culprit::Routine(id(1));
    assert!(found.iter().any(|violation| matches!(
        violation,
        Violation::Malformed { culprit: found, .. } if *found == culprit
    )));
    assert!(found.to_string().contains("behind its parameters"), "{found}");
}

#[test]
fn long_reports_end_with_a_count() {
    let found = refused(accumulate(3), |s| {
        for (_, line) in s.actions.iter_mut() {
            let wait = roundelay_schedule::Wait { action: action(9999), distance: 1 };
            line.after = [wait; 9].as_slice().into();
        }
    });
    assert_eq!(found.iter().len(), 50);
    assert_eq!(found.total(), 13 * 9);
    assert!(found.to_string().ends_with("and 67 more"));
}
