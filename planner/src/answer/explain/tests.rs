//! Reasons, and that every answer is found again with its lines.

use super::*;
use crate::{
    document, plan,
    rewrite::Stop,
    sample::{self, Random},
    search::{progress::Progress, ranking::survey},
    space::tied::Tied,
    tests::random_program,
};
use roundelay_dsl::Objective;
use roundelay_schedule::{Nanos, Order, Placement, Rewrite, Rule};

#[test]
fn reasons_name_the_bound_and_the_differing_decisions() {
    let plan = |n| sample::plan(Rule::Sync, Placement::Pipeline, Order::Gpipe, n, 2);
    let candidate = |n, time| sample::candidate(&plan(n), Nanos(time), 0);
    let mut ranking = sample::ranking();
    ranking.plans = vec![candidate(4, 1_000), candidate(8, 1_500)];
    let explained = |ranking: &Ranking| {
        explain(&sample::program(2, 8), &Options::default(), ranking).to_string()
    };
    assert!(!explained(&ranking).contains("cuts:"));
    let shared = ["wte", "embedding", "head"].map(str::to_owned);
    ranking.space.tied = Some(Tied { parameters: vec![shared], most: 2, nodes: 9 });
    let text = explained(&ranking);
    assert!(text.contains("cuts: embedding and `head` both use `wte`"), "{text}");
    assert!(text.contains("take 750 ns of 1.00 us (75 %)"), "{text}");
    assert!(text.contains("rank 2 has micro_batches 8: time +50.0 %"), "{text}");
    ranking.plans[0].bound.traffic = Nanos(900);
    let text = explained(&ranking);
    let busiest = "messages, sums and shards on the busiest links take 900 ns of 1.00 us";
    assert!(text.contains(busiest), "{text}");
}

#[test]
fn memory_is_told_by_its_largest_kinds() {
    let plan = sample::plan(Rule::Sync, Placement::Pipeline, Order::Gpipe, 4, 2);
    let mut candidate = sample::candidate(&plan, Nanos(1_000), 0);
    candidate.device_peak = Bytes(101);
    let kinds = [Kind::Metric, Kind::Activation, Kind::Workspace, Kind::Parameter];
    candidate.memory = kinds.into_iter().zip([1, 40, 20, 60].map(Bytes)).collect();
    let told = memory(&candidate);
    let most =
        "takes 101 B; most of it is parameter 60 B, activation 40 B, workspace 20 B";
    assert!(told.ends_with(most), "{told}");
}

#[test]
fn rewrites_are_named_where_they_are_few_and_counted_where_they_are_many() {
    let plan = sample::plan(Rule::Sync, Placement::Pipeline, Order::Gpipe, 4, 2);
    let mut candidate = sample::candidate(&plan, Nanos(1_000), 0);
    assert_eq!(rewrites(&candidate), None);
    let all = &mut candidate.plan.rewrites;
    (0..20).for_each(|site| all.insert(Rewrite::Affine, site));
    [7, 3].into_iter().for_each(|site| all.insert(Rewrite::AffineGelu, site));
    let mut ranking = sample::ranking();
    ranking.plans = vec![candidate];
    ranking.rewriting.insert(Stop::Saturated, 5);
    ranking.rewriting.insert(Stop::Rounds, 1);
    let program = sample::program(2, 8);
    let explanation = explain(&program, &Options::default(), &ranking).to_string();
    for line in [
        "rewrites: affine at 20 operations, affine_gelu at o3 o7\n",
        "rewrites: e-graphs of neighbouring calls: 5 saturated, 1 stopped at the limit \
         of rounds\n",
    ] {
        assert!(explanation.contains(line), "{explanation}");
    }
    let json =
        serde_json::to_value(document(&ranking, &program)).expect("it is plain data");
    assert_eq!(json["plans"][0]["rewrites"]["affine_gelu"], serde_json::json!([3, 7]));
    assert_eq!(json["rewriting"], serde_json::json!({ "saturated": 5, "rounds": 1 }));
}

/// Planning again with the lines of every question gives its answer; returns how many questions
/// there are.
fn found_again(program: &Program) -> usize {
    let Ok(ranking) = plan(program, &Options::default()) else { return 0 };
    let explanation = explain(program, &Options::default(), &ranking);
    for WhatIf { question, lines, answer, .. } in &explanation.what_if {
        let mut changed = program.clone();
        let done = changed.set_all(lines);
        done.unwrap_or_else(|mistake| panic!("{question}: {mistake}"));
        // What `plan` ranks, without the changes that it would tell where nothing fits.
        let again = survey(&changed, &Options::default(), &mut Progress::default());
        let first = again.plans.into_iter().next();
        assert_eq!(first.as_ref(), answer.plan(), "{question}: {lines:?}");
    }
    let text = explanation.to_string();
    assert_eq!(text.matches(" <- --set ").count(), explanation.what_if.len(), "{text}");
    explanation.what_if.len()
}

#[test]
fn every_answer_is_found_again_with_its_lines() {
    let mut random = Random::new(19);
    let mut asked = 0;
    for _ in 0..4 {
        asked += found_again(&random_program(&mut random));
    }
    assert!(asked > 20, "only {asked} questions");
}

#[test]
fn what_is_scarce_binds_and_what_is_not_does_not() {
    let mut program = sample::program(4, 8);
    program.search.placement = roundelay_dsl::Choice::OneOf(vec![Placement::Data]);
    let ranking = plan(&program, &Options::default()).expect("plans fit");
    let of = |program: &Program, ranking: &Ranking| {
        explain(program, &Options::default(), ranking)
    };
    let plenty = of(&program, &ranking);
    assert!(plenty.binding.contains("link bus"), "{}", plenty.binding);
    assert!(!plenty.binding.contains("memory: 4 GB"), "{}", plenty.binding);
    let questions: Vec<&str> =
        plenty.what_if.iter().map(|what| what.question.as_str()).collect();
    for asked in [
        "4 GB more on each device",
        "link bus twice as fast",
        "one device fewer",
        "the runner-up",
    ] {
        assert!(questions.contains(&asked), "{questions:?}");
    }
    let least = ranking.plans[0].device_peak;
    program.search.memory = Some(least - Bytes(1));
    let tight = plan(&program, &Options::default()).expect("something else fits");
    let tight = of(&program, &tight);
    assert!(tight.binding.contains("memory: 4 GB more"), "{}", tight.binding);
    assert!(tight.binding.contains(" % of the step time"), "{}", tight.binding);
    program.search.objective = Objective::Cost;
    let price = roundelay_dsl::NanoDollarsPerHour(1_000_000_000);
    let devices = program.target.devices.iter();
    program.prices = devices.map(|(id, _)| (id, price)).collect();
    let cheap = plan(&program, &Options::default()).expect("something fits");
    let cheap = of(&program, &cheap).binding;
    assert!(!cheap.contains(" saves ") || cheap.contains(" % of the cost"), "{cheap}");
}

/// Where memory is minimised it is what binds; of plans on as few devices as there can be the
/// faster one is the better one.
#[test]
fn what_binds_is_what_is_minimised() {
    let mut program = sample::program(4, 8);
    let binding = |program: &Program| {
        let ranking = plan(program, &Options::default()).expect("plans fit");
        (explain(program, &Options::default(), &ranking).binding, ranking)
    };
    program.search.objective = Objective::Memory;
    let (told, ranking) = binding(&program);
    assert!(told.starts_with("the fullest device takes "), "{told}");
    program.search.objective = Objective::Devices;
    let (told, roomy) = binding(&program);
    assert_eq!(roomy.best().devices.len(), 1);
    assert!(told.contains("neither more memory nor a faster link"), "{told}");
    let least = ranking.plans[0].device_peak;
    program.search.devices = roundelay_dsl::Numbers::Ranges(vec![(1, 1)]);
    program.search.memory = Some(roomy.plans[0].device_peak - Bytes(1));
    let (told, tight) = binding(&program);
    assert!(least <= tight.plans[0].device_peak);
    assert!(tight.plans[0].step_time > roomy.plans[0].step_time);
    assert!(told.contains("memory: 4 GB more on each device saves "), "{told}");
}

#[test]
fn other_batches_are_weighed_with_their_own_steps() {
    let mut program = sample::program(2, 8);
    program.search.objective = Objective::TimeToResult;
    program.search.learning = roundelay_dsl::Learning {
        least_steps: Some(1000),
        critical_batch: Some(16),
        staleness: Some(1000),
    };
    let ranking = plan(&program, &Options::default()).expect("plans fit");
    let explanation = explain(&program, &Options::default(), &ranking);
    let part = document(&ranking, &program).with_explanation(&explanation).explain;
    let rows = part.expect("it was asked for").what_if;
    let steps = |question: &str| {
        let row = rows.iter().find(|row| row.question == question);
        let plan = row.and_then(|row| row.plan.as_ref()).expect("it is answered");
        assert!(plan.time_to_result_s.is_some());
        plan.steps_to_result
    };
    assert_eq!(steps("half the batch"), Some(5000));
    assert_eq!(steps("twice the batch"), Some(2000));
    assert_eq!(steps("the runner-up"), Some(3000));
}

#[test]
fn reasons_stand_in_the_document() {
    let mut program = sample::program(2, 4);
    program.search.objective = Objective::Memory;
    let ranking = plan(&program, &Options::default()).expect("plans fit");
    let explanation = explain(&program, &Options::default(), &ranking);
    let part = document(&ranking, &program).with_explanation(&explanation).explain;
    let part = part.expect("it was asked for");
    assert_eq!(part.reasons.len(), ranking.plans.len());
    let runner_up = part.what_if.last().expect("there are questions");
    assert_eq!(runner_up.question, "the runner-up");
    let second = runner_up.plan.as_ref().map(|plan| plan.device_peak_bytes);
    assert_eq!(second, Some(ranking.plans[1].device_peak.0));
}

#[test]
fn every_decision_with_other_values_is_asked_about() {
    let mut program = sample::program(4, 8);
    let rows = [1, 2, 4].map(|rows| (rows, rows));
    program.search.rows = roundelay_dsl::Numbers::Ranges(rows.to_vec());
    let ranking = plan(&program, &Options::default()).expect("plans fit");
    let explanation = explain(&program, &Options::default(), &ranking);
    let rows = explanation
        .what_if
        .iter()
        .find(|what| what.question.starts_with("without tensor.rows "))
        .expect("there are other rows");
    assert!(rows.lines[0].starts_with("tensor { rows "), "{:?}", rows.lines);
    assert_eq!(rows.answer.mistake(), None);
}

/// Stages that are named are tried with every N, and some of those that are left open with one alone.
#[test]
fn an_answer_that_beats_the_best_of_the_space_lies_outside() {
    let program = sample::program(4, 8);
    let mut ranking = plan(&program, &Options::default()).expect("plans fit");
    let outside = |ranking: &Ranking| {
        let explanation = explain(&program, &Options::default(), ranking);
        let is_answered = |what: &WhatIf| {
            what.question.starts_with("without ") && what.answer.plan().is_some()
        };
        let answered = explanation.what_if.into_iter().filter(is_answered);
        let told = |what: WhatIf| what.question.contains("outside the space");
        answered.map(told).collect::<Vec<bool>>()
    };
    assert!(ranking.is_optimal());
    assert!(outside(&ranking).into_iter().all(|told| !told));
    ranking.plans[0].step_time.0 *= 1000;
    let told = outside(&ranking);
    assert!(!told.is_empty() && told.into_iter().all(|told| told));
}

/// A name that the language cannot spell.
#[test]
fn a_question_that_cannot_be_set_says_so() {
    let mut program = sample::program(2, 4);
    program.target.links.iter_mut().for_each(|(_, link)| link.name = "the bus".into());
    let ranking = plan(&program, &Options::default()).expect("plans fit");
    let explanation = explain(&program, &Options::default(), &ranking);
    let asked = explanation.what_if.iter().find(|what| what.answer.mistake().is_some());
    let asked = asked.expect("its line does not parse");
    assert_eq!(asked.question, "link the bus twice as fast");
    let text = explanation.to_string();
    assert!(text.contains("link the bus twice as fast: cannot be set: "), "{text}");
    let part = document(&ranking, &program).with_explanation(&explanation).explain;
    let rows = part.expect("it was asked for").what_if;
    let row = rows.iter().find(|row| row.mistake.is_some()).expect("it is told");
    assert_eq!(row.question, asked.question);
}
