//! The best plan of each approach, against all plans.

use super::{
    brute_force::{cluster, pick, second_kind},
    delayed, everything,
};
use crate::{
    Approach, Candidate, Compare, Explanation, Options, Ranking, Tensors, document,
    explain, plan,
    sample::Random,
    search::{
        progress::Progress,
        ranking::{best, survey},
    },
    table,
};
use roundelay_dsl::{Choice, Objective, Program};
use roundelay_schedule::{Exactness, Hop, Order, Placement, Recompute, Rule, States};
use std::collections::{BTreeMap, BTreeSet};

const RULES: [Rule; 4] = [
    Rule::Sync,
    Rule::CyclicV2,
    Rule::Local { units: 2, hop: Hop::None },
    Rule::Local { units: 2, hop: Hop::Added },
];

/// All three families, alone and combined, in a space that can be clocked whole.
fn open(devices: usize, batch: u32) -> Program {
    let mut program = delayed(devices, batch);
    let search = &mut program.search;
    search.exactness = Some(Exactness::Local);
    search.rule = Choice::OneOf(RULES.into());
    search.placement = Choice::OneOf(vec![Placement::Data, Placement::Pipeline]);
    let orders = [Order::Parallel, Order::Cyclic, Order::OneForwardOneBackward];
    search.order = Choice::OneOf(orders.into());
    search.states = Choice::OneOf(vec![States::Replicated]);
    search.recompute = Choice::OneOf(vec![Recompute::None]);
    program
}

fn compared(program: &Program) -> Ranking {
    let options = Options { top: 1, compare: Compare::Approaches, ..everything() };
    survey(program, &options, &mut Progress::default())
}

/// What a plan is worth but for its place in the order of a search.
fn worth(candidate: &Candidate) -> (u64, u64) {
    (candidate.step_time.0, candidate.device_peak.0)
}

#[test]
fn each_leader_is_the_best_plan_of_its_approach() {
    let mut random = Random::new(41);
    let mut approaches = BTreeMap::<Approach, usize>::new();
    for round in 0..12 {
        let mut program = open(pick(&mut random, &[2, 4, 8]), 8);
        cluster(&mut random, &mut program);
        let ranking = compared(&program);
        let every = survey(&program, &everything(), &mut Progress::default());
        let best = |approach: Approach| {
            every.plans.iter().find(|plan| Approach::of(&plan.plan) == approach)
        };
        for leader in &ranking.approaches {
            *approaches.entry(leader.approach).or_default() += 1;
            let found = leader.candidate.as_ref();
            assert_eq!(found.map(worth), best(leader.approach).map(worth), "{round}");
            assert_eq!(leader.gap, 0.0, "{round}: {}", leader.approach);
        }
        let known: Vec<Approach> =
            ranking.approaches.iter().map(|leader| leader.approach).collect();
        for plan in &every.plans {
            let approach = Approach::of(&plan.plan);
            assert!(known.contains(&approach), "{round}: {approach} of {known:?}");
        }
        let led = ranking.approaches.iter().filter_map(|lead| lead.candidate.as_ref());
        assert!(led.clone().map(worth).is_sorted_by_key(|(time, _)| time), "{round}");
        assert_eq!(led.map(worth).next(), ranking.plans.first().map(worth), "{round}");
    }
    let gradients: Vec<Exactness> = approaches.keys().map(|one| one.gradients).collect();
    for class in
        [Exactness::Exact, Exactness::Delayed, Exactness::Truncated, Exactness::Local]
    {
        assert!(gradients.contains(&class), "{approaches:?}");
    }
    for tensors in [Tensors::Whole, Tensors::Rows, Tensors::Grid] {
        assert!(approaches.keys().any(|one| one.tensors == tensors), "{approaches:?}");
    }
}

/// Where a limit leaves plans open, what is shown below the first plan is never better than it, and
/// whoever asks for the best alone gets the same; and where none is said to be open it is the best.
#[test]
fn no_leader_is_better_than_the_first_plan() {
    let mut random = Random::new(57);
    let mut open_ones = 0;
    for round in 0..30 {
        let mut program = open(pick(&mut random, &[2, 4, 8]), 8);
        cluster(&mut random, &mut program);
        second_kind(&mut random, &mut program);
        program.search.objective = pick(&mut random, &Objective::ALL[..3]);
        let compare = Compare::Approaches;
        let few = Options { top: 3, clocked_max: 2, compare };
        let Ok(ranking) = plan(&program, &few) else { continue };
        open_ones += usize::from(!ranking.is_optimal());
        if ranking.is_optimal() {
            let all = Options { clocked_max: usize::MAX, compare: Compare::Plans, ..few };
            let best = best(&program, &all);
            assert_eq!(best.as_ref(), ranking.plans.first(), "round {round}: no best");
        }
        let score = |candidate: &Candidate| candidate.score(&ranking.goal);
        let first = score(&ranking.plans[0]);
        assert!(ranking.plans.is_sorted_by_key(score), "round {round}");
        let led = ranking.approaches.iter().filter_map(|lead| lead.candidate.as_ref());
        for leader in led {
            assert!(first <= score(leader), "round {round}: {:?}", leader.plan);
        }
        let alone = best(&program, &Options { compare: Compare::Plans, ..few });
        assert_eq!(alone.as_ref(), ranking.plans.first(), "round {round}");
        let numbers: BTreeSet<usize> =
            ranking.plans.iter().map(|plan| plan.number).collect();
        assert_eq!(numbers.len(), ranking.plans.len(), "round {round}: a plan twice");
    }
    assert!(open_ones > 5, "only {open_ones} searches met their limit");
}

#[test]
fn approaches_stand_in_the_table_where_a_program_opens_them() {
    let program = open(4, 8);
    let ranking = compared(&program);
    let text = table(&ranking, &program);
    assert!(text.contains("  exactness  "), "{text}");
    let (_, told) =
        text.split_once("Best plan of each approach:\n").expect("it is there");
    for approach in ["# synchronous\n", "# cyclic\n", "# local units\n"] {
        assert!(told.contains(approach), "{text}");
    }
    assert!(told.starts_with("   1  "), "the best of all leads its own:\n{text}");
    let json =
        serde_json::to_value(document(&ranking, &program)).expect("it is plain data");
    let rows = json["approaches"].as_array().expect("there are several");
    assert_eq!(rows.len(), ranking.approaches.len());
    assert!(rows.iter().any(|row| row["gradients"] == "delayed"), "{rows:?}");
    let mut strict = program.clone();
    strict.search.exactness = None;
    strict.search.rule = Choice::Open;
    assert!(compared(&strict).approaches.is_empty(), "nothing but sync is allowed");
    let mut one = program;
    one.search.rule = Choice::OneOf(vec![Rule::CyclicV2]);
    one.set_all(&["tensor.rows = 1", "tensor.columns = 1"]).expect("these are lines");
    assert!(compared(&one).approaches.is_empty(), "there is but one");
}

/// Every change is found again with its lines, and stands under the approach that it puts first.
#[test]
fn explain_says_when_each_approach_comes_first() {
    let program = open(4, 8);
    let options = Options { compare: Compare::Approaches, ..Options::default() };
    let ranking = plan(&program, &options).expect("something fits");
    let Explanation { approaches, turns, .. } = explain(&program, &options, &ranking);
    assert!(approaches.len() > 3, "{approaches:?}");
    let questions: Vec<&str> = turns.iter().map(|turn| turn.question.as_str()).collect();
    for asked in [
        "link bus 4 times slower",
        "link bus 16 times as fast",
        "1/4 of the memory of each device",
    ] {
        assert!(questions.contains(&asked), "{questions:?}");
    }
    for turn in &turns {
        let mut changed = program.clone();
        changed.set_all(&turn.lines).expect("these are lines");
        let again = plan(&changed, &Options::default()).ok();
        let first = again.map(|ranking| ranking.plans[0].clone());
        assert_eq!(first.as_ref(), turn.answer.plan(), "{}", turn.question);
    }
    let text = explain(&program, &options, &ranking).to_string();
    let (_, told) =
        text.split_once("when each approach comes first").expect("it is told");
    for approach in approaches {
        assert!(told.contains(&format!("\n  {approach}:")), "{text}");
    }
    assert_eq!(told.matches(" as it is\n").count(), 1, "{text}");
    assert_eq!(told.matches(" <- --set ").count(), turns.len(), "{text}");
    let pinned = text.matches("\n  the best of ").count();
    assert_eq!(pinned, ranking.approaches.len() - 1, "{text}");
}
