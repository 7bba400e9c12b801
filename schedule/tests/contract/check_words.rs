//! What is wrong is told in words, and in those of the file where it has some.

use crate::tiny::{
    Letters, accumulate, action, delayed, id, pipeline, reduced, row, turning,
};
use roundelay_schedule::{
    Access, Collective, Content, Culprit, Lines, Rest, Role, Schedule, Slice, Subject,
    Sum, Work, check, write,
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

/// Of 840 gradients nobody reads all to find the one that is wrong.
#[test]
fn long_sums_are_told_by_where_they_part() {
    let swapped = told(accumulate(40), |s| {
        for (line, i) in
            [(34, 9), (35, 9), (33, 9), (32, 9), (36, 8), (37, 8), (38, 8), (39, 8)]
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
    let first = swapped.lines().next().unwrap();
    assert!(
        first.contains("makes the gradient sum i0+i1+i2+i3+i4+i5+i6+i7+i9"),
        "{first}"
    );
    assert!(first.contains("plan adds i0+i1+i2+i3+… (40 gradients)"), "{first}");
    assert!(first.contains("(after 8 gradients i9 comes in place of i8)"), "{first}");
    assert!(swapped.lines().all(|line| line.len() < 400), "{swapped}");
}

/// Rests and what is lost have no line of their own: the buffer's, or that of all of them, is told.
#[test]
fn what_is_wrong_between_segments_has_a_place() {
    let culprits = |fault: fn(&mut Schedule)| {
        let mut schedule = turning();
        fault(&mut schedule);
        let found = check(schedule, &Letters).expect_err("the fault is found");
        found.iter().map(|one| one.culprit()).collect::<Vec<_>>()
    };
    let lost = culprits(|s| s.buffers[id(0)].rest = Rest::Transient);
    assert!(lost.contains(&Some(Culprit::Header("buffers"))), "{lost:?}");
    let rest =
        culprits(|s| s.buffers[id(0)].rest = Rest::Carried(vec![vec![Some(0)]; 2]));
    assert!(rest.iter().all(Option::is_some), "{rest:?}");
}

#[test]
fn handles_may_be_written_with_quotes_and_blanks() {
    let text = write(&accumulate(1));
    let plain = Lines::of(&text);
    let odd = text.replace("\n  b3:", "\n  \"b3\":").replace("\n  b4:", "\n  b4 :");
    assert_ne!(odd, text);
    let odd = Lines::of(&odd);
    for buffer in [3, 4] {
        let culprit = Culprit::Buffer(id(buffer));
        assert_eq!(odd.line(culprit), plain.line(culprit));
        assert!(odd.line(culprit).is_some());
    }
    let actions = text.lines().position(|line| line == "actions");
    assert_eq!(plain.line(Culprit::Header("actions")), actions.map(|index| index + 1));
}

#[test]
fn slices_are_named_as_in_files() {
    let slices = [Slice::Whole, Slice::Shard(id(0))];
    let told = slices.map(|slice| Subject::Squares(slice).to_string());
    assert_eq!(told, ["squares(whole)", "squares(shard of y0)"]);
}
