//! A call that is not well formed is told alone: what it would have written is missing nowhere else.

use crate::tiny::{Letters, chain, id};
use roundelay_schedule::{Bytes, Call, Culprit, Schedule, Violation, check};

/// What is at fault, each with what is said of it.
fn told(fault: impl FnOnce(&mut Schedule)) -> Vec<(Culprit, String)> {
    let mut schedule = chain();
    fault(&mut schedule);
    let found = check(schedule, &Letters).expect_err("the fault must be found");
    let told = found.iter().map(|violation| match violation {
        Violation::Malformed { culprit, problem } => (*culprit, problem.clone()),
        other => panic!("{other}"),
    });
    told.collect()
}

#[test]
fn a_malformed_call_is_told_alone() {
    assert!(check(chain(), &Letters).is_ok());
    type Fault = fn(&mut Call);
    let faults: [(Fault, &str); 6] = [
        (|call| call.operands[2].argument = 9, "there is no argument 9"),
        (|call| call.operands[0].argument = 9, "there is no argument 9"),
        (|call| call.operands[2].argument = 0, "operands 0 and 2 overlap"),
        (|call| call.operands.truncate(2), "needs 3 operands"),
        (|call| call.operands[2].offset = Bytes(4), "does not lie inside argument 4"),
        (|call| call.kernel = "x".into(), "there is no kernel `x`"),
    ];
    for (fault, said) in faults {
        let told = told(|s| fault(&mut s.routines[id(0)].calls[0]));
        let [(culprit, problem)] = &told[..] else { panic!("{said}: {told:?}") };
        assert_eq!(*culprit, Culprit::Call(id(0), 0), "{problem}");
        assert!(problem.contains(said), "{problem}");
    }
    let told = told(|s| s.routines[id(0)].calls[1].operands[1].argument = 1);
    let [(culprit, problem)] = &told[..] else { panic!("{told:?}") };
    assert_eq!(*culprit, Culprit::Call(id(0), 1));
    assert!(problem.contains("writes argument 1, which is only read"), "{problem}");
}

/// What is left out is missing where it is read first; who reads what is made of it has no fault.
#[test]
fn what_is_missing_is_told_where_it_is_read() {
    let told = told(|s| drop(s.routines[id(0)].calls.remove(0)));
    let [(culprit, problem)] = &told[..] else { panic!("{told:?}") };
    assert_eq!(*culprit, Culprit::Call(id(0), 0));
    assert!(problem.contains("reads argument 4 before it is written"), "{problem}");
}

/// A gradient is not missing because the call that makes it is malformed.
#[test]
fn what_a_malformed_call_would_make_is_not_missing() {
    let told = told(|s| s.routines[id(1)].calls[0].operands[2].argument = 9);
    let [(culprit, problem)] = &told[..] else { panic!("{told:?}") };
    assert_eq!(*culprit, Culprit::Call(id(1), 0));
    assert!(problem.contains("there is no argument 9"), "{problem}");
}

/// Other faults of the routine, and those of other routines, are told beside it.
#[test]
fn every_malformed_call_is_told() {
    let told = told(|s| {
        s.routines[id(0)].calls[0].kernel = "x".into();
        s.routines[id(0)].calls[2].operands[1].argument = 9;
        s.routines[id(1)].calls[0].kernel = "y".into();
    });
    let culprits: Vec<Culprit> = told.iter().map(|(culprit, _)| *culprit).collect();
    assert_eq!(culprits, [(0, 0), (0, 2), (1, 0)].map(|(k, n)| Culprit::Call(id(k), n)));
}
