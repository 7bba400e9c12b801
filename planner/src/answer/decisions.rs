//! A plan's decisions by name, the same names in table, JSON, plan file and language.

use crate::space::{counts::Counts, family::Family};
use roundelay_schedule::{Plan, Recompute};

/// Name and value of every decision of a plan.
pub fn decisions(plan: &Plan) -> Vec<(&'static str, String)> {
    let cuts: Vec<String> = plan.cuts.iter().map(u32::to_string).collect();
    vec![
        ("rule", plan.rule.to_string()),
        ("placement", plan.placement.to_string()),
        ("order", plan.order.to_string()),
        ("states", plan.states.to_string()),
        ("recompute", recompute(&plan.recompute)),
        ("replicas", plan.replicas.to_string()),
        ("shards", plan.shards.to_string()),
        ("tensor.rows", plan.tensor.rows.to_string()),
        ("tensor.columns", plan.tensor.columns.to_string()),
        ("tensor.depth", plan.depth().to_string()),
        ("tensor.contraction", plan.tensor.contraction.to_string()),
        ("tensor.overdecompose", plan.tensor.overdecompose.to_string()),
        ("sequence", plan.tensor.sequence.to_string()),
        ("images", plan.tensor.images.to_string()),
        ("micro_batches", plan.micro_batches.to_string()),
        ("stages", plan.stages.to_string()),
        ("chunks", plan.chunks.to_string()),
        ("slices", plan.slices.to_string()),
        ("first_device", plan.first_device().to_string()),
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
