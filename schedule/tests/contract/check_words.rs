//! What is wrong is told in words, and in those of the file where it has some.

use crate::tiny::{Letters, accumulate, action, delayed, id, pipeline, reduced, row};
use roundelay_schedule::{
    Access, Collective, Content, Role, Schedule, Slice, Subject, Sum, Work, check,
};

fn told(mut schedule: Schedule, fault: impl FnOnce(&mut Schedule)) -> String {
    fault(&mut schedule);
    check(schedule, &Letters).expect_err("the fault is found").to_string()
}

fn with_content(schedule: &mut Schedule, line: usize, other: Content) {
    match &mut schedule.actions[action(line)].work {
        Work::Transfer { content, .. } | Work::Collective { content, .. } => {
            *content = other;
        }
        work => panic!("moves nothing: {work:?}"),
    }
}

#[test]
fn wrong_delays_are_told_with_stage_and_micro_batch() {
    let told = told(delayed(2), |s| s.plan.delays = accumulate(2).plan.delays);
    let said = "plan: the delays are not those of cyclic_v1 for accumulate: stage s0 has delay 0 \
                for micro-batch i0, where the rule demands 1; one more is wrong";
    assert_eq!(told, said);
}

#[test]
fn arguments_and_rows_are_named_as_in_files() {
    let told_of = |fault: fn(&mut Schedule)| told(accumulate(1), fault);
    let write = told_of(|s| s.routines[id(0)].arguments[0].access = Access::Write);
    assert!(write.contains("pass F must not write parameter"), "{write}");
    let twice = told_of(|s| s.routines[id(0)].arguments[1].role = Role::Activation);
    assert!(twice.contains("binds activation twice"), "{twice}");
    let absent = told_of(|s| s.routines[id(0)].arguments[1].role = Role::Input(id(7)));
    assert!(absent.contains("binds input(n7) of 64 bytes"), "{absent}");
    let stranger = told_of(|s| s.buffers[id(2)].subject = Subject::Value(id(1 << 30)));
    assert!(stranger.contains("holds value(v1073741824); name a stage"), "{stranger}");
    let other = told_of(|s| match &mut s.actions[action(1)].work {
        Work::Launch { rows, .. } => rows[1] = row(1, 0),
        work => panic!("no launch: {work:?}"),
    });
    let said = "binds b1.0, which holds gradient(s0, whole), as input(n0) of s0";
    assert!(other.contains(said), "{other}");
}

#[test]
fn what_is_moved_is_named_as_in_files() {
    let sum = Sum::list([id(0), id(1)]);
    let other = told(pipeline(), |s| {
        with_content(s, 2, Content::Gradient(id(1), Box::new(sum)));
    });
    let said =
        "moves gradient(s1, [i0, i1]) from value(v0) to value(v0); all must be the same";
    assert!(other.contains(said), "{other}");
    let scattered = told(reduced(), |s| match &mut s.actions[action(4)].work {
        Work::Collective { kind, .. } => *kind = Collective::ReduceScatter,
        work => panic!("no collective: {work:?}"),
    });
    assert!(scattered.contains("reduce_scatter from b1.0 to b1.0"), "{scattered}");
    let nothing = told(reduced(), |s| with_content(s, 4, Content::Optimizer(id(0))));
    let said = "moves optimizer(s0) between rows that hold something else";
    assert!(nothing.contains(said), "{nothing}");
}

#[test]
fn slices_are_named_as_in_files() {
    let slices = [Slice::Whole, Slice::Shard(id(0))];
    let told = slices.map(|slice| Subject::Squares(slice).to_string());
    assert_eq!(told, ["squares(whole)", "squares(shard of y0)"]);
}
