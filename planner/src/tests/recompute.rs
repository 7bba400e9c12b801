//! When plans compute again: only where less of it does not fit, or where memory is minimised.

use super::{
    all,
    brute_force::{cluster, pick},
    refusal,
};
use crate::{
    Candidate, Options, plan,
    sample::{self, Random},
};
use roundelay_dsl::{Choice, Numbers, Objective, PinnedStages, Program};
use roundelay_schedule::{Bytes, Kind, Order, Placement, Recompute, Rule};

/// Six layers on one device, so that what layers keep is most of the memory.
fn program() -> Program {
    let mut program = sample::program(1, 4);
    program.model = sample::gpt(6, 32, 16, false);
    let roomy = Bytes(1 << 30);
    program.target.devices.iter_mut().for_each(|(_, device)| device.memory = roomy);
    program.target.pools.iter_mut().for_each(|(_, pool)| pool.capacity = roomy);
    program
}

fn uniform(candidate: &Candidate) -> Recompute {
    candidate.plan.recompute[0]
}

#[test]
fn each_way_takes_less_memory_and_more_time_than_the_one_before() {
    let mut program = program();
    program.search.objective = Objective::Memory;
    let plans = all(&program).plans;
    let mut groups = 0;
    for none in plans.iter().filter(|c| uniform(c) == Recompute::None) {
        let of = |recompute| {
            let wanted = none.plan.clone().recomputing(recompute);
            plans.iter().find(|c| c.plan == wanted).expect("each way is clocked")
        };
        let all = [Recompute::None, Recompute::Selective, Recompute::Full].map(of);
        let kept = |c: &Candidate| c.memory.get(&Kind::Activation).copied();
        for pair in all.windows(2) {
            assert!(kept(pair[1]) < kept(pair[0]), "{:?}", none.plan);
            assert!(pair[0].step_time < pair[1].step_time, "{:?}", none.plan);
        }
        for candidate in all {
            assert!(candidate.bound.step_time() <= candidate.step_time);
            assert!(candidate.bound.memory <= candidate.device_peak);
        }
        groups += 1;
    }
    assert!(groups > 0 && plans.len() == 3 * groups, "{} of {groups}", plans.len());
    assert_ne!(uniform(&plans[0]), Recompute::None);
}

#[test]
fn what_fits_is_not_computed_again() {
    let mut program = program();
    let roomy = all(&program).plans;
    assert!(roomy.iter().all(|c| uniform(c) == Recompute::None));
    let least = roomy.iter().map(|c| c.device_peak).min().expect("plans fit");
    program.search.memory = Some(least - Bytes(1));
    let tight = plan(&program, &Options::default()).expect("something fits");
    assert!(tight.plans.iter().all(|c| uniform(c) != Recompute::None));
    assert!(tight.plans[0].step_time > roomy[0].step_time);
    program.search.recompute = Choice::OneOf(vec![Recompute::None]);
    let refused = refusal(&program).to_string();
    assert!(refused.contains("- recompute selective: "), "{refused}");
}

#[test]
fn pinned_stages_do_as_the_program_says() {
    let mut program = program();
    program.search.stages = Numbers::Ranges(vec![(2, 2)]);
    program.search.recompute = Choice::OneOf(vec![Recompute::None]);
    let pin = |stage, recompute| PinnedStages { first: stage, last: stage, recompute };
    program.search.pinned = vec![pin(0, Recompute::Full)];
    let plans = all(&program).plans;
    let pinned = [Recompute::Full, Recompute::None];
    assert!(!plans.is_empty() && plans.iter().all(|c| c.plan.recompute == pinned));
    program.search.pinned.push(pin(2, Recompute::Full));
    let refused = refusal(&program).to_string();
    assert!(refused.contains("pins stage 2, which is not there"), "{refused}");
}

/// Every plan of a random pipeline in each way to compute again, as step times in their order.
fn ways(random: &mut Random) -> Vec<(Candidate, Candidate)> {
    let mut program = sample::program(pick(random, &[2, 4]), 8);
    program.model = sample::gpt(3, 8, 16, false);
    cluster(random, &mut program);
    let roomy = Bytes(1 << 30);
    program.target.devices.iter_mut().for_each(|(_, device)| device.memory = roomy);
    program.target.pools.iter_mut().for_each(|(_, pool)| pool.capacity = roomy);
    let search = &mut program.search;
    search.objective = Objective::Memory;
    search.rule = Choice::OneOf(vec![Rule::Sync]);
    search.placement = Choice::OneOf(vec![Placement::Pipeline]);
    let orders = [Order::OneForwardOneBackward, Order::Gpipe, Order::ZeroBubbleH1];
    search.order = Choice::OneOf(vec![pick(random, &orders)]);
    search.stages = Numbers::Ranges(vec![(2, 4)]);
    search.micro_batches = Numbers::Ranges(vec![(2, 8)]);
    let plans = all(&program).plans;
    let find = |less: &Candidate, recompute| {
        let wanted = less.plan.clone().recomputing(recompute);
        plans.iter().find(|c| c.plan == wanted).cloned()
    };
    let none = plans.iter().filter(|c| uniform(c) == Recompute::None);
    let mut pairs = Vec::new();
    for none in none {
        let some = find(none, Recompute::Selective);
        let full = find(none, Recompute::Full);
        pairs.extend(some.clone().map(|some| (none.clone(), some)));
        pairs.extend(some.zip(full));
    }
    pairs
}

/// That less of it is no slower is a rule, not a law.
#[test]
fn more_of_it_is_seldom_faster_and_never_much() {
    let mut random = Random::new(7);
    let mut count = [0usize; 2];
    let mut most: f64 = 0.0;
    for _ in 0..24 {
        for (less, more) in ways(&mut random) {
            count[0] += 1;
            if more.step_time < less.step_time {
                count[1] += 1;
                let gain = 1.0 - more.step_time.0 as f64 / less.step_time.0 as f64;
                if gain > most { eprintln!("{gain} {:?} {} {}", more.plan, less.step_time, more.step_time); }
                most = most.max(gain);
            }
        }
    }
    panic!("{count:?} {most}");
}
