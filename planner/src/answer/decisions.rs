//! A plan's decisions by name, the same names in table, JSON, plan file and language.

use crate::space::{
    counts::Counts,
    decision::{Decision, Number},
    family::Family,
};
use roundelay_schedule::{Plan, Recompute};
use std::fmt::Display;

/// Name and value of every decision of a plan.
pub fn decisions(plan: &Plan) -> Vec<(&'static str, String)> {
    let named =
        |decision: Decision, value: &dyn Display| (decision.name(), value.to_string());
    let number = |number: Number| named(Decision::Number(number), &number.of(plan));
    let cuts: Vec<String> = plan.cuts.iter().map(u32::to_string).collect();
    vec![
        named(Decision::Rule, &plan.rule),
        named(Decision::Placement, &plan.placement),
        named(Decision::Order, &plan.order),
        named(Decision::States, &plan.states),
        named(Decision::Recompute, &recompute(&plan.recompute)),
        number(Number::Replicas),
        number(Number::Shards),
        number(Number::Rows),
        number(Number::Columns),
        number(Number::Depth),
        named(Decision::Contraction, &plan.tensor.contraction),
        number(Number::Overdecompose),
        named(Decision::Sequence, &plan.tensor.sequence),
        named(Decision::Images, &plan.tensor.images),
        number(Number::MicroBatches),
        number(Number::Stages),
        number(Number::Chunks),
        number(Number::Slices),
        number(Number::FirstDevice),
        ("cuts", format!("[{}]", cuts.join(", "))),
    ]
}

/// The decisions that two plans take differently: name, value of the first, value of the second.
pub fn differences(one: &Plan, other: &Plan) -> Vec<(&'static str, String, String)> {
    let pairs = decisions(one).into_iter().zip(decisions(other));
    let differing = pairs.filter(|(one, other)| one != other);
    differing.map(|((name, one), (_, other))| (name, one, other)).collect()
}

/// A plan in a few words.
pub fn summary(plan: &Plan) -> String {
    let again = match recompute(&plan.recompute) {
        none if none == Recompute::None.to_string() => String::new(),
        other => format!(", recompute {other}"),
    };
    format!("{}, {}{again}", Family::from(plan), Counts::from(plan))
}

/// What stages compute again: one word where all do the same, else one per stage.
pub(crate) fn recompute(stages: &[Recompute]) -> String {
    let words: Vec<String> = stages.iter().map(Recompute::to_string).collect();
    match words.split_first() {
        Some((first, rest)) if rest.iter().all(|word| word == first) => first.clone(),
        _ => words.join(", "),
    }
}
