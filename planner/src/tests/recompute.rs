//! When plans compute again: only where less of it does not fit, or where memory is
//! minimised.

use super::{
    all,
    brute_force::{cluster, pick, within_bounds},
    everything, refusal,
};
use crate::{
    Candidate, Options, plan,
    sample::{self, Random},
    search::ranking::{allowed, best},
};
use roundelay_dsl::{Choice, Numbers, Objective, PinnedStages, Program};
use roundelay_schedule::{
    Bytes, Exactness, Kind, Order, Placement, Recompute, Rule, Sequence, Share, States,
};
use std::collections::{BTreeMap, BTreeSet};

/// Six layers on one device, so that what layers keep is most of the memory.
fn program() -> Program {
    let mut program = sample::program(1, 4);
    program.model = sample::gpt(6, 32, 16, false);
    sample::give_room(&mut program, Bytes(1 << 30));
    program
}

/// Random programs that are compared.
const PROGRAMS: usize = 15;

fn uniform(candidate: &Candidate) -> Recompute {
    candidate.plan.recompute[0]
}

#[test]
fn each_way_takes_less_memory_and_more_time_than_the_one_before() {
    let mut program = program();
    program.search.objective = Objective::Memory;
    program.search.recompute = Choice::OneOf(Recompute::ALL.to_vec());
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
        all.into_iter().for_each(within_bounds);
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
    assert!(refused.contains("- recompute selective(share = "), "{refused}");
}

/// Who lacks a little of the memory computes little again, and more the more it lacks; no fewer sixteenths
/// fit. Where a program names the ways, one of these holds for all.
#[test]
fn the_first_plan_computes_as_little_again_as_fits() {
    let mut program = program();
    program.model = sample::gpt(8, 32, 16, false);
    program.search.placement = Choice::OneOf(vec![Placement::Accumulate]);
    program.search.stages = Numbers::Ranges(vec![(1, 1)]);
    program.search.micro_batches = Numbers::Ranges(vec![(1, 1)]);
    let first = |program: &Program| {
        let found = plan(program, &Options::default()).ok()?;
        found.plans.into_iter().next()
    };
    let mut known = BTreeMap::new();
    let mut pinned = |recompute: Recompute| {
        let found = known.entry(recompute).or_insert_with(|| {
            let mut program = program.clone();
            program.search.recompute = Choice::OneOf(vec![recompute]);
            first(&program).expect("there is room")
        });
        found.clone()
    };
    let least = pinned(Recompute::Full).device_peak;
    let most = pinned(Recompute::None).device_peak;
    let mut shares = BTreeSet::new();
    for part in (0..64).rev() {
        let limit = least + Bytes((most - least).0 * part / 64);
        let mut tight = program.clone();
        tight.search.memory = Some(limit);
        let found = first(&tight).expect("`full` fits");
        assert!(found.device_peak <= limit && found.bound.step_time() <= found.step_time);
        let own = uniform(&found);
        let named = pinned(own);
        assert_eq!(
            (named.step_time, named.bound),
            (found.step_time, found.bound),
            "{own}"
        );
        assert!(shares.last().is_none_or(|last| *last <= own), "{own} after {shares:?}");
        shares.insert(own);
        let whole = own.ways()[1];
        let sixteenths = (1..16).map(|some| Share::nearest(f64::from(some) / 16.0));
        let fewer = sixteenths.flatten().filter_map(|share| whole.of(share));
        for fewer in fewer.filter(|fewer| *fewer < own) {
            let less = pinned(fewer);
            // Two shares of few layers may be as many.
            let is_less = less.step_time < found.step_time;
            assert!(less.device_peak > limit || !is_less, "{fewer} fits too");
        }
        tight.search.recompute = Choice::OneOf(Recompute::ALL.to_vec());
        let named = first(&tight).expect("`full` fits");
        assert!(Recompute::ALL.contains(&uniform(&named)));
        assert!(named.step_time >= found.step_time);
    }
    assert!(shares.len() > 12, "{shares:?}");
}

/// A share may take less memory than the whole.
#[test]
fn what_takes_least_memory_may_be_a_share() {
    let mut program = sample::program(1, 32);
    program.model = sample::gpt(4, 32, 16, false);
    sample::give_room(&mut program, Bytes(1 << 30));
    program.search.placement = Choice::OneOf(vec![Placement::Accumulate]);
    program.search.micro_batches = Numbers::Ranges(vec![(1, 1)]);
    program.search.stages = Numbers::Ranges(vec![(1, 1)]);
    program.search.objective = Objective::Memory;
    let first = |program: &Program| {
        let found = plan(program, &Options::default()).expect("there is room");
        assert_eq!(found.candidates, found.clocked + found.pruned);
        found.plans.into_iter().next().expect("there is room")
    };
    let named = |ways: &[Recompute]| {
        let mut program = program.clone();
        program.search.recompute = Choice::OneOf(ways.to_vec());
        first(&program).device_peak
    };
    let sixteenths = (1..16).filter_map(|some| Share::nearest(f64::from(some) / 16.0));
    let shares: Vec<_> = sixteenths.filter_map(|own| Recompute::Full.of(own)).collect();
    let (whole, share) = (named(Recompute::ALL), named(&shares));
    assert!(share < whole, "{share} {whole}");
    let least = first(&program);
    assert_eq!(least.device_peak, share);
    assert!(shares.contains(&uniform(&least)), "{}", uniform(&least));
}

/// Plans behind the first compute as little again as fits too: else one that was ranked behind it would
/// be better. How many are ranked makes no difference to the first.
#[test]
fn more_memory_makes_no_plan_slower() {
    let quickstart = include_str!("../../../examples/quickstart.rdl");
    let mut last = None;
    for kilobytes in [7900, 8000, 8200, 8400, 8800, 9200, 10_000, 12_000] {
        let mut program = sample::parsed(quickstart);
        let limit = format!("memory <= {kilobytes} kB");
        program.set_all(&["devices 3", &limit]).expect("these are decisions");
        let found = plan(&program, &Options::default()).expect("something fits");
        assert_eq!(found.gap(), 0.0, "{kilobytes}");
        let is_share = !Recompute::ALL.contains(&uniform(&found.plans[0]));
        assert_eq!(found.is_first_lessened(), is_share, "{kilobytes} kB");
        assert_eq!(best(&program, &Options::default()).as_ref(), found.plans.first());
        let time = found.plans[0].step_time;
        let is_slower = last.is_some_and(|last| time > last);
        assert!(!is_slower, "{kilobytes} kB: {time} after {last:?}");
        last = Some(time);
    }
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

/// Who keeps less has more micro-batches in flight, and that may be worth more than it takes to
/// compute again.
#[test]
fn an_order_that_is_found_computes_again_where_that_is_faster() {
    let mut program = sample::program(4, 32);
    program.model = sample::gpt(8, 32, 16, false);
    sample::give_room(&mut program, Bytes(1 << 30));
    program.search.placement = Choice::OneOf(vec![Placement::Pipeline]);
    program.search.order = Choice::OneOf(vec![Order::ZeroBubbleAuto]);
    let one = |number| Numbers::Ranges(vec![(number, number)]);
    program.search.stages = one(4);
    program.search.micro_batches = one(8);
    program.search.replicas = one(1);
    program.search.rows = one(1);
    let best = |program: &Program| {
        let found = plan(program, &Options::default()).ok()?;
        found.plans.into_iter().next()
    };
    let most = best(&program).expect("there is room").device_peak;
    let mut again = 0;
    for part in (11..32).step_by(5) {
        program.search.memory = Some(Bytes(most.0 * part / 32));
        let Some(found) = best(&program) else { continue };
        let pinned = Recompute::ALL.iter().filter_map(|recompute| {
            let mut program = program.clone();
            program.search.recompute = Choice::OneOf(vec![*recompute]);
            Some((best(&program)?.step_time, *recompute))
        });
        let pinned: Vec<_> = pinned.collect();
        let least = pinned.iter().min().expect("one of them is found");
        assert_eq!(found.step_time, least.0, "{part}: {pinned:?}");
        again += usize::from(*least != pinned[0]);
    }
    assert!(again > 0, "the least is always the fastest");
}

/// Plans of a random program that differ in what they compute again, the one with less of
/// it first.
fn ways(random: &mut Random) -> Vec<[Candidate; 2]> {
    let mut program = sample::program(pick(random, &[1, 2, 4]), 8);
    program.model = sample::gpt(2, 8, 16, false);
    cluster(random, &mut program);
    sample::give_room(&mut program, Bytes(1 << 30));
    let search = &mut program.search;
    // Where memory is minimised, all ways that are named are clocked.
    search.objective = Objective::Memory;
    search.recompute = Choice::OneOf(Recompute::ALL.to_vec());
    search.exactness = Some(Exactness::Delayed);
    search.rule = Choice::OneOf(vec![pick(random, &[Rule::Sync, Rule::CyclicV2])]);
    let orders = [Order::OneForwardOneBackward, Order::Eager, Order::ZeroBubbleH1];
    let order = pick(random, &orders);
    search.order =
        Choice::OneOf(vec![order, Order::Sequential, Order::Parallel, Order::Cyclic]);
    search.states = Choice::OneOf(vec![States::Replicated, pick(random, States::ALL)]);
    search.stages = Numbers::Ranges(vec![(1, 4)]);
    search.micro_batches = Numbers::Ranges(vec![(2, 4)]);
    let plans = allowed(&program, &everything());
    let way = |one: &Candidate, recompute| {
        let wanted = one.plan.clone().recomputing(recompute);
        plans.iter().find(|candidate| candidate.plan == wanted).cloned()
    };
    let none = plans.iter().filter(|candidate| uniform(candidate) == Recompute::None);
    let all = none.flat_map(|none| {
        let ways = Recompute::ALL.iter().filter_map(|recompute| way(none, *recompute));
        let ways: Vec<Candidate> = ways.collect();
        ways.windows(2).map(|pair| [0, 1].map(|k| pair[k].clone())).collect::<Vec<_>>()
    });
    all.collect()
}

/// That less of it is no slower is a rule and no law. Lengths of passes move messages,
/// which may then meet less. And where rows share the tokens, `none` gathers again what
/// `selective` keeps.
#[test]
fn more_of_it_is_seldom_faster_and_never_much() {
    let mut random = Random::new(19);
    let mut faster = [0, 0];
    for _ in 0..PROGRAMS {
        for [less, more] in ways(&mut random) {
            let (split, thousandths) = match less.plan.tensor.sequence {
                Sequence::Whole => (0, 990),
                Sequence::Split => (1, 940),
            };
            faster[split] += usize::from(more.step_time < less.step_time);
            let least = less.step_time * thousandths;
            assert!(more.step_time * 1000 >= least, "{} {:?}", less.step_time, more.plan);
        }
    }
    assert!(faster.iter().all(|count| *count > 0), "it is a law: {faster:?}");
}
