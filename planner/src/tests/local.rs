//! Local rules in a search: every bound holds, every plan is found, and the class is never chosen
//! where a program does not allow it.

use super::{
    brute_force::{cluster, pick, some, within_bounds},
    delayed, everything,
};
use crate::{
    Options,
    answer::{front::front, plan_file::check_plan},
    appraise, plan,
    sample::Random,
    search::{progress::Progress, ranking::survey},
};
use roundelay_dsl::{Choice, Program};
use roundelay_schedule::{Exactness, Hop, Order, Placement, Recompute, Rule, States};

/// Programs that are compared.
const PROGRAMS: usize = 60;

fn local(devices: usize, batch: u32, rules: Vec<Rule>) -> Program {
    let mut program = delayed(devices, batch);
    program.search.exactness = Some(Exactness::Local);
    program.search.rule = Choice::OneOf(rules);
    program
}

fn random(random: &mut Random) -> Program {
    let devices = pick(random, &[1, 2, 3, 4, 6, 8]);
    let hop = pick(random, &[Hop::None, Hop::Added, Hop::Alone]);
    let rules = [2, 3, 4].map(|units| Rule::Local { units, hop });
    let [first, ..] = some(random, &rules, 1)[..] else { unreachable!("one at least") };
    let mut chosen = vec![first];
    if random.below(2) == 0 {
        chosen.push(Rule::Sync);
    }
    let mut program = local(devices, pick(random, &[1, 2, 4, 8]), chosen);
    cluster(random, &mut program);
    let search = &mut program.search;
    let placements = [Placement::Accumulate, Placement::Data, Placement::Pipeline];
    search.placement = Choice::OneOf(some(random, &placements, 3));
    let orders = [Order::Sequential, Order::Parallel, Order::OneForwardOneBackward];
    search.order = Choice::OneOf(orders.into());
    search.states = Choice::OneOf(some(random, States::ALL, 2));
    search.recompute = Choice::OneOf(some(random, Recompute::ALL, 2));
    program
}

#[test]
fn no_bound_of_a_local_plan_is_beaten() {
    let mut numbers = Random::new(17);
    let (mut found, mut units, mut hops) = (0, 0, 0);
    for round in 0..PROGRAMS {
        let program = random(&mut numbers);
        let every = survey(&program, &everything(), &mut Progress::default());
        every.plans.iter().for_each(within_bounds);
        let Some(least) = every.plans.first() else { continue };
        found += 1;
        units += usize::from(!least.plan.boundaries.is_empty());
        hops += every.plans.iter().filter(|own| own.plan.rule.hop() != Hop::None).count();
        for candidate in &every.plans {
            assert_eq!(check_plan(&candidate.plan, &program), [], "round {round}");
        }
        let best_first = Options { top: 1, ..everything() };
        let ranking = survey(&program, &best_first, &mut Progress::default());
        assert!(ranking.is_optimal(), "round {round}: gap {}", ranking.gap());
        assert_eq!(ranking.plans[0].plan, least.plan, "round {round}");
        assert_eq!(ranking.candidates, every.candidates, "round {round}");
    }
    assert!(found > PROGRAMS / 2 && units > 5, "{found} plans, {units} in units");
    assert!(hops > 60, "{hops} plans with hops");
}

#[test]
fn a_plan_by_itself_costs_what_it_does_in_a_search() {
    let program = local(4, 8, vec![Rule::Local { units: 4, hop: Hop::None }, Rule::Sync]);
    let ranking = plan(&program, &Options::default()).expect("something fits");
    for candidate in &ranking.plans {
        let found = appraise(&program, &candidate.plan).expect("it was clocked before");
        assert_eq!(found.step_time, candidate.step_time);
        assert_eq!(found.device_peak, candidate.device_peak);
    }
    let front = front(&program, &ranking, 200);
    let fastest = front.plans.iter().map(|plan| plan.step_time).min();
    assert_eq!(fastest, Some(ranking.plans[0].step_time));
}

/// Units of a pipeline win where links are slow; without leave no plan has any.
#[test]
fn local_gradients_need_leave() {
    let open = |exactness| {
        let mut program = local(4, 8, vec![]);
        program.search.rule = Choice::Open;
        program.search.exactness = exactness;
        let ranking = plan(&program, &Options::default()).expect("something fits");
        let weaker = ranking.weaker.iter().map(|weaker| weaker.exactness);
        let shown = ranking.plans.iter().map(|plan| plan.exactness());
        shown.chain(weaker).max().expect("there are plans")
    };
    assert!(open(None) < Exactness::Local);
    assert!(open(Some(Exactness::Delayed)) < Exactness::Local);
    let mut program = local(4, 8, vec![Rule::Local { units: 2, hop: Hop::None }]);
    program.search.exactness = None;
    let refusal = plan(&program, &Options::default()).expect_err("it needs leave");
    assert!(refusal.to_string().contains("local"), "{refusal}");
    program.search.exactness = Some(Exactness::Local);
    let ranking = plan(&program, &Options::default()).expect("now it has leave");
    assert!(ranking.plans.iter().all(|plan| plan.exactness() == Exactness::Local));
    assert!(ranking.plans.iter().all(|plan| plan.plan.boundaries.len() == 1));
}

/// Each class of local rules needs leave of its own, and is found where it has it.
#[test]
fn gradients_that_hop_back_need_less_leave() {
    let overlapping = Rule::Local { units: 4, hop: Hop::Added };
    let mut program = local(4, 8, vec![overlapping]);
    program.search.exactness = Some(Exactness::Truncated);
    program.search.placement = Choice::OneOf(vec![Placement::Pipeline]);
    let ranking = plan(&program, &Options::default()).expect("it has leave");
    for candidate in &ranking.plans {
        assert_eq!(candidate.exactness(), Exactness::Truncated);
        assert_eq!((candidate.plan.rule, candidate.plan.stages), (overlapping, 4));
    }
    program.search.exactness = Some(Exactness::Delayed);
    let refusal = plan(&program, &Options::default()).expect_err("it needs leave");
    assert!(refusal.to_string().contains("truncated"), "{refusal}");
    program.search.exactness = Some(Exactness::Truncated);
    program.set_all(&["stages=8"]).expect("a number of stages");
    let refusal = plan(&program, &Options::default()).expect_err("units are stages");
    assert!(refusal.to_string().contains("one for each unit"), "{refusal}");
    let mut open = local(4, 8, vec![]);
    open.search.rule = Choice::Open;
    open.search.exactness = Some(Exactness::Truncated);
    let ranking = plan(&open, &Options::default()).expect("something fits");
    let (_, rules) =
        ranking.space.decisions.iter().find(|(name, _)| *name == "rule").unwrap();
    for rule in ["local(units = 2, overlap = 1)", "pairwise(units = 4)"] {
        assert!(rules.iter().any(|known| known == rule), "{rules:?}");
    }
    assert!(!rules.iter().any(|known| known == "local(units = 2)"), "{rules:?}");
}

#[test]
fn a_model_without_so_many_layers_is_refused() {
    let program = local(4, 8, vec![Rule::Local { units: 9, hop: Hop::None }]);
    let refusal = plan(&program, &Options::default()).expect_err("it has four layers");
    assert!(refusal.to_string().contains("9 units need as many layers"), "{refusal}");
}
