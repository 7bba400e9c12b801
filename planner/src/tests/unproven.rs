//! Schedules that the compiler makes and the checker refuses: that is a fault of ours, and told as one.

use super::everything;
use crate::{
    Excluded, Family, Reason, Searched, Sizes, Unproven,
    answer::refusal::refuse,
    remarks, sample,
    search::{progress::Progress, ranking::survey},
    space::counts::Counts,
};
use roundelay_codegen::lower;
use roundelay_kernels::Kernels;
use roundelay_schedule::{
    Bytes, LANES_MAX, Order, Placement, Plan, Rule, Schedule, Violations, Waits, check,
};

fn pipeline() -> Plan {
    sample::plan(Rule::Sync, Placement::Pipeline, Order::Gpipe, 2, 2)
}

/// What the checker finds in a schedule that is changed like this.
fn found(change: impl FnOnce(&mut Schedule)) -> Violations {
    let mut schedule =
        lower(&sample::program(2, 8), &pipeline()).expect("the plan is one");
    change(&mut schedule);
    check(schedule, &Kernels).expect_err("it is wrong now")
}

/// As a compiler makes it that forgets all waits.
fn waitless() -> Violations {
    found(|schedule| {
        let actions = schedule.actions.iter_mut();
        actions.for_each(|(_, action)| action.after = Waits::default());
    })
}

#[test]
fn nothing_but_a_limit_excuses_the_compiler() {
    let Reason::Unproven(unproven) = Reason::unproven(&waitless()) else {
        panic!("waits are no matter of limits");
    };
    let text = unproven.to_string();
    assert!(text.contains("fault of Roundelay"), "{text}");
    let crowded = found(|schedule| {
        let rings = schedule.rings.iter_mut();
        rings.for_each(|(_, ring)| ring.lanes = LANES_MAX + 1);
    });
    assert!(matches!(Reason::unproven(&crowded), Reason::Refused(_)), "{crowded}");
}

#[test]
fn a_search_that_ends_at_a_fault_of_the_compiler_is_no_refusal_of_the_program() {
    let mut program = sample::program(2, 8);
    let told = |program: &_| {
        let mut ranking = survey(program, &everything(), &mut Progress::default());
        let (family, counts) = (Family::from(&pipeline()), Counts::from(&pipeline()));
        let reason = Reason::unproven(&waitless());
        let sizes = Sizes::One(counts);
        ranking.space.excluded.push(Excluded { family, sizes, reason, number: 1 });
        ranking
    };
    let beside = remarks(&told(&program), &program);
    assert!(beside[0].contains("this is a fault of Roundelay"), "{beside:?}");
    program.search.memory = Some(Bytes(1));
    let refused = refuse(&program, &everything(), &told(&program));
    assert_eq!(refused.searched, Searched::Unproven);
    let text = refused.to_string();
    assert!(text.starts_with("the compiler: sync"), "{text}");
    assert!(text.ends_with(Unproven::HINT) && !text.contains("fits"), "{text}");
}
