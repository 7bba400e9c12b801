//! Local rules train models of their own. So a program is searched as one program for each model,
//! and what is found is put together.

use crate::{
    search::{objective::Score, ranking::Ranking},
    space::Space,
};
use roundelay_dsl::{Choice, Program};
use roundelay_schedule::Rule;
use std::borrow::Cow;

/// The programs to search: the one without local rules, then one for each of them. A rule whose
/// model cannot be made is left out.
pub(crate) fn programs(program: &Program) -> Vec<Cow<'_, Program>> {
    if !program.model.boundaries().is_empty() {
        return vec![Cow::Borrowed(program)];
    }
    let (others, local) = rules(program);
    let base = match (&others, local.is_empty()) {
        (_, true) => Some(Cow::Borrowed(program)),
        (Choice::OneOf(rules), _) if rules.is_empty() => None,
        (rules, _) => Some(with_rules(program.clone(), rules.clone())),
    };
    let one = |rule: Rule| {
        let own = program.under(rule).ok()?.into_owned();
        Some(with_rules(own, Choice::OneOf(vec![rule])))
    };
    base.into_iter().chain(local.into_iter().filter_map(one)).collect()
}

fn with_rules<'a>(mut program: Program, rules: Choice<Rule>) -> Cow<'a, Program> {
    program.search.rule = rules;
    Cow::Owned(program)
}

/// The rules of a program that keep its model, and those that do not.
fn rules(program: &Program) -> (Choice<Rule>, Vec<Rule>) {
    let is_local = |rule: &Rule| matches!(rule, Rule::Local { .. });
    match &program.search.rule {
        Choice::Open => (Choice::Open, program.search.open_local_rules()),
        Choice::OneOf(rules) => {
            let (local, others) = rules.iter().copied().partition(is_local);
            (Choice::OneOf(others), local)
        }
    }
}

/// Whether a program of [`programs`] is the one that has plans of this rule.
pub(crate) fn has(program: &Program, rule: Rule) -> bool {
    match rule {
        Rule::Local { .. } => program.search.rule == Choice::OneOf(vec![rule]),
        Rule::Sync | Rule::CyclicV1 | Rule::CyclicV2 | Rule::CyclicSlack(_) => {
            let is_open = match &program.search.rule {
                Choice::Open => true,
                Choice::OneOf(rules) => rules.contains(&rule),
            };
            is_open && program.model.boundaries().is_empty()
        }
    }
}

/// What was found of all programs, as if it were one; there is at least one.
pub(crate) fn joined(rankings: Vec<Ranking>, top: usize) -> Ranking {
    let mut all = rankings.into_iter();
    let first = all.next().expect("a program is searched as one at least");
    all.fold(first, |one, other| two(one, other, top))
}

fn two(mut one: Ranking, mut other: Ranking, top: usize) -> Ranking {
    let before = one.space.plans.len();
    let weaker = other.weaker.iter_mut().map(|weaker| &mut weaker.candidate);
    other.plans.iter_mut().chain(weaker).for_each(|plan| plan.number += before);
    let place_behind = |(worth, [rest @ .., number]): Score| {
        let [second, third, stale] = rest;
        (worth, [second, third, stale, number + before as u64])
    };
    one.open = one.open.into_iter().chain(other.open.map(place_behind)).min();
    one.plans.append(&mut other.plans);
    one.goal.keep_best(&mut one.plans, top);
    one.weaker.append(&mut other.weaker);
    one.weaker
        .sort_by_key(|weaker| (weaker.exactness, weaker.candidate.score(&one.goal)));
    one.weaker.dedup_by_key(|weaker| weaker.exactness);
    one.space.join(other.space);
    one.candidates += other.candidates;
    one.pruned += other.pruned;
    one.clocked += other.clocked;
    one.interrupted |= other.interrupted;
    for (own, others) in
        [(&mut one.rewriting, other.rewriting), (&mut one.sharding, other.sharding)]
    {
        others
            .into_iter()
            .for_each(|(stop, count)| *own.entry(stop).or_default() += count);
    }
    one.elapsed += other.elapsed;
    one
}

impl Space {
    /// Both spaces, one after the other.
    fn join(&mut self, other: Self) {
        for (name, values) in other.decisions {
            match self.decisions.iter_mut().find(|(known, _)| *known == name) {
                None => self.decisions.push((name, values)),
                Some((_, known)) => {
                    let new = values.into_iter().filter(|value| !known.contains(value));
                    known.extend(new.collect::<Vec<_>>());
                }
            }
        }
        self.combinations += other.combinations;
        self.plans.extend(other.plans);
        for (reason, count) in other.dropped {
            *self.dropped.entry(reason).or_default() += count;
        }
        self.excluded.extend(other.excluded);
        self.tied = self.tied.take().or(other.tied);
    }
}
