//! What a plan that somebody wrote down decides otherwise than its program says.

use crate::space::decision::{Decision, Number, allows_recompute, cuts_line, pin_of};
use roundelay_dsl::{Program, Search};
use roundelay_schedule::{Exactness, Order, Plan};
use std::collections::BTreeSet;
use thiserror::Error;

/// A line of a program that a plan does not keep.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Breach {
    /// The key of the line, such as `stages` or `tensor.rows`.
    pub key: &'static str,
    /// Which of the lines with this key, counted from zero.
    pub number: usize,
    /// What the plan has, as a line that would allow it, or in words.
    pub has: String,
}

/// All lines of a program that a plan does not keep; what it takes of memory and the class of its
/// gradients apart.
pub fn breaches(plan: &Plan, program: &Program) -> Vec<Breach> {
    let search = &program.search;
    // Cuts have a line of their own.
    let stages = Decision::Number(Number::Stages);
    let broken = |decision: &Decision| match *decision == stages {
        true => !Number::Stages.allows(search, plan),
        false => !decision.allows(search, plan),
    };
    let others = Decision::ALL.into_iter().rev().filter(|d| *d != Decision::Recompute);
    let others = others.filter(broken).map(|decision| breach(decision, search, plan));
    let pinned = other_cuts(search, plan).into_iter().chain(other_lists(search, plan));
    others.chain(pinned).chain(recomputed(search, plan)).collect()
}

/// Gradients of a weaker class than a program allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the plan is {class}: {}; the program allows {allowed}", class.change())]
pub struct TooWeak {
    /// The class of the plan.
    pub class: Exactness,
    /// The weakest class that is allowed.
    pub allowed: Exactness,
}

/// Why a plan is refused whose gradients are of a weaker class than the program allows.
pub fn weaker(plan: &Plan, program: &Program) -> Option<TooWeak> {
    let class = plan.exactness();
    let allowed = program.search.weakest();
    (class > allowed).then_some(TooWeak { class, allowed })
}

fn breach(decision: Decision, search: &Search, plan: &Plan) -> Breach {
    let lines = decision.lines(search, plan).unwrap_or_default();
    let first = lines.first().map(|line| format!("`{line}`"));
    let has = first.unwrap_or_else(|| format!("`{} {}`", decision.name(), plan.order));
    Breach { key: decision.name(), number: 0, has }
}

/// Cuts are pinned beside the number of stages.
fn other_cuts(search: &Search, plan: &Plan) -> Option<Breach> {
    let has = format!("`{}`", cuts_line(&plan.cuts));
    let breach = Breach { key: "cuts", number: 0, has };
    search.cuts.as_ref().filter(|cuts| **cuts != plan.cuts).map(|_| breach)
}

/// Lists are pinned by their file.
fn other_lists(search: &Search, plan: &Plan) -> Option<Breach> {
    let listed = plan.order == Order::Listed && !search.lists.is_empty();
    let has = "other lists".to_owned();
    let breach = Breach { key: "order", number: 0, has };
    (listed && search.lists != plan.lists).then_some(breach)
}

/// The lines about what stages compute again, each with the first stage that does not keep it; a
/// pinned stage that is not there keeps nothing.
fn recomputed(search: &Search, plan: &Plan) -> BTreeSet<Breach> {
    let mut told: BTreeSet<(&'static str, usize)> = BTreeSet::new();
    let mut all = BTreeSet::new();
    for (stage, recompute) in (0u32..).zip(&plan.recompute) {
        let (key, number) = match pin_of(search, stage) {
            Some(pin) => ("stage", pin),
            None => ("recompute", 0),
        };
        if !allows_recompute(search, stage, recompute) && told.insert((key, number)) {
            let has = format!("`stage {stage} {{ recompute {recompute} }}`");
            all.insert(Breach { key, number, has });
        }
    }
    let absent = search.pinned.iter().enumerate().filter(|(_, p)| p.last >= plan.stages);
    let has = format!("`stages {}`", plan.stages);
    let absent = absent.filter(|(number, _)| !told.contains(&("stage", *number)));
    all.extend(absent.map(|(number, _)| Breach {
        key: "stage",
        number,
        has: has.clone(),
    }));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, plan, sample};

    fn keys(program: &Program, plan: &Plan) -> Vec<(&'static str, usize)> {
        let all = breaches(plan, program).into_iter();
        all.map(|breach| (breach.key, breach.number)).collect()
    }

    #[test]
    fn a_plan_of_a_search_keeps_every_line_of_its_program() {
        let mut program = sample::program(4, 8);
        program.search.exactness = Some(Exactness::Delayed);
        let every = Options { top: usize::MAX, ..Options::default() };
        let plans = plan(&program, &every).expect("plans fit").plans;
        assert!(plans.len() > 10);
        for candidate in &plans {
            assert_eq!(breaches(&candidate.plan, &program), []);
            assert_eq!(weaker(&candidate.plan, &program), None);
        }
        program.search.exactness = None;
        let delayed = plans.iter().find(|found| !found.plan.rule.is_synchronous());
        let delayed = &delayed.expect("cyclic rules are allowed").plan;
        let [class, allowed] = [Exactness::Delayed, Exactness::Reordered];
        assert_eq!(weaker(delayed, &program), Some(TooWeak { class, allowed }));
    }

    #[test]
    fn each_line_that_is_broken_is_told_once() {
        let mut program = sample::program(4, 8);
        let options = Options::default();
        program.set_all(&["placement pipeline", "stages 2"]).expect("both are decisions");
        let own = plan(&program, &options).expect("it fits").best().clone();
        for (lines, broken) in [
            (&["stages 4", "placement data"][..], &[("placement", 0), ("stages", 0)][..]),
            (&["rule cyclic_v1"], &[("rule", 0)]),
            (&["recompute full"], &[("recompute", 0)]),
            (
                &["stage 0 .. 1 { recompute full }", "stage 3 { recompute none }"],
                &[("stage", 0), ("stage", 1)],
            ),
            (&["recompute full", "stage 0 .. 1 { recompute none }"], &[]),
            (&["cuts [1]", "stages 2"], &[("cuts", 0)]),
            (&["cuts [1, 2]", "stages 3"], &[("stages", 0), ("cuts", 0)]),
        ] {
            let mut other = program.clone();
            other.search = Search::default();
            other.set_all(lines).expect("these are decisions");
            assert_ne!(own.cuts, [1]);
            assert!(own.recompute.iter().all(|r| r.to_string() == "none"));
            assert_eq!(keys(&other, &own), broken, "{lines:?}");
        }
    }
}
