//! Approaches: the systems that people compare, by what their gradients are and by how devices
//! split tensors, and the best plan of each.

use crate::{
    costs::calls::Costs,
    search::{
        candidate::Candidate,
        local,
        progress::Progress,
        ranking::{Options, Plans, Ranking},
    },
    space::{Space, outline::Outline},
};
use roundelay_dsl::{Choice, Program};
use roundelay_schedule::{Exactness, Plan, Rule, Tensor};
use serde::Serialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

/// What a plan is, whatever else it decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Approach {
    /// The class of its rule: exact under `sync`, delayed under cyclic rules, truncated or local
    /// in units.
    pub gradients: Exactness,
    /// How devices split tensors.
    pub tensors: Tensors,
}

/// How devices split tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Tensors {
    /// They do not.
    Whole,
    /// In one direction, as Megatron does.
    Rows,
    /// In two, as Tensor3D does.
    Grid,
}

/// The best plan of an approach.
#[derive(Clone, Debug, PartialEq)]
pub struct Leader {
    /// The approach.
    pub approach: Approach,
    /// Its best plan; none when no plan of it was found.
    pub candidate: Option<Candidate>,
    /// Whether no plan of it was left open, so that where none was found there is none.
    pub is_complete: bool,
    /// How much better another one of the approach may be: (it − least open bound) / it.
    pub gap: f64,
}

impl Approach {
    fn new(rule: Rule, tensor: Tensor) -> Self {
        let tensors = match (tensor.rows, tensor.columns) {
            (1, 1) => Tensors::Whole,
            (_, 1) => Tensors::Rows,
            _ => Tensors::Grid,
        };
        Self { gradients: rule.exactness(), tensors }
    }

    /// The one that a plan belongs to.
    pub fn of(plan: &Plan) -> Self {
        Self::new(plan.rule, plan.tensor)
    }
}

impl fmt::Display for Approach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.gradients {
            Exactness::Exact | Exactness::Reordered => "synchronous",
            Exactness::Delayed => "cyclic",
            Exactness::Truncated => "units with one hop back",
            Exactness::Local => "local units",
        })?;
        f.write_str(match self.tensors {
            Tensors::Whole => "",
            Tensors::Rows => ", tensors in rows",
            Tensors::Grid => ", tensors on a grid",
        })
    }
}

/// The best plan of each approach that a program allows, best first; none where there is but one
/// approach. The first plan of a ranking leads its own one, if no other can be better; each of the
/// others is searched alone, in the space that its rules have, where no other approach makes its plans
/// superfluous.
pub(crate) fn leaders(
    program: &Program,
    options: &Options,
    ranking: &Ranking,
    progress: &mut Progress<'_>,
) -> Vec<Leader> {
    let Some(first) = ranking.plans.first() else { return Vec::new() };
    let own = Approach::of(&first.plan);
    let lead = |candidate: &Candidate, gap| {
        let approach = Approach::of(&candidate.plan);
        Leader { approach, candidate: Some(candidate.clone()), gap, is_complete: true }
    };
    let mut all: Vec<Leader> = ranking.plans.iter().map(|plan| lead(plan, 0.0)).collect();
    all[0].gap = ranking.gap();
    let once = Options { top: 1, ..*options };
    for program in local::programs(program) {
        for program in of_each_class(&program, ranking) {
            if progress.stopped {
                break;
            }
            let costs = Costs::new(&program);
            for (approach, outlines) in approaches(&program) {
                let is_settled = approach == own && ranking.is_optimal();
                if !is_settled && !progress.stopped {
                    let plans = Plans { program: &program, costs: &costs, outlines };
                    let mut found = Ranking::of_plans(plans, &once, progress);
                    found.place_in(ranking);
                    all.push(Leader::new(approach, found));
                }
            }
        }
    }
    best_of_each(all, ranking)
}

/// A program with the rules of each allowed class alone.
fn of_each_class(program: &Program, ranking: &Ranking) -> Vec<Program> {
    let mut classes = BTreeMap::<Exactness, BTreeSet<Rule>>::new();
    let rules = ranking.space.plans.iter().map(|plan| plan.family.rule);
    for rule in rules.filter(|rule| local::has(program, *rule)) {
        classes.entry(rule.exactness()).or_default().insert(rule);
    }
    let allowed = classes.into_iter().filter(|(class, _)| *class <= ranking.allowed);
    let one = |(_, rules): (Exactness, BTreeSet<Rule>)| {
        let mut own = program.clone();
        own.search.rule = Choice::OneOf(rules.into_iter().collect());
        own
    };
    allowed.map(one).collect()
}

/// The plans of a program by approach.
fn approaches(program: &Program) -> BTreeMap<Approach, Vec<Outline>> {
    let mut all = BTreeMap::<Approach, Vec<Outline>>::new();
    for plan in Space::new(program).plans {
        let approach = Approach::new(plan.family.rule, plan.counts.tensor);
        all.entry(approach).or_default().push(plan);
    }
    all
}

/// One leader of each approach, best first, those without a plan last; none where there is but one
/// approach.
fn best_of_each(mut all: Vec<Leader>, ranking: &Ranking) -> Vec<Leader> {
    let score = |leader: &Leader| {
        let score = leader.candidate.as_ref().map(|best| best.score(&ranking.goal));
        (score.is_none(), score)
    };
    all.sort_by_key(|leader| (leader.approach, score(leader)));
    all.dedup_by(|other, kept| {
        let is_same = other.approach == kept.approach;
        if is_same {
            kept.gap = kept.gap.max(kept.gap_to(other, ranking));
            kept.is_complete &= other.is_complete;
        }
        is_same
    });
    all.sort_by_key(score);
    match all.len() {
        1 => Vec::new(),
        _ => all,
    }
}

impl Ranking {
    /// Gives plans of a part of a space their places in all of it, and the place behind all to those
    /// that something else in the whole makes superfluous.
    fn place_in(&mut self, whole: &Ranking) {
        let all = &whole.space.plans;
        for candidate in &mut self.plans {
            let own = self.space.plans[candidate.number];
            let place = all.iter().position(|plan| *plan == own);
            candidate.number = place.unwrap_or(all.len());
        }
    }
}

impl Leader {
    fn new(approach: Approach, found: Ranking) -> Self {
        let is_complete = found.left_open() == 0 && !found.interrupted;
        let gap = found.gap();
        let candidate = found.plans.into_iter().next();
        Self { approach, candidate, gap, is_complete }
    }

    /// How much better a plan may be that a worse leader of the same approach left open.
    fn gap_to(&self, other: &Leader, ranking: &Ranking) -> f64 {
        let worth = |leader: &Leader| {
            let best = leader.candidate.as_ref()?;
            Some(best.score(&ranking.goal).0 as f64)
        };
        match (worth(self), worth(other)) {
            (Some(own), Some(other_worth)) if own > 0.0 => {
                1.0 - other_worth * (1.0 - other.gap) / own
            }
            _ => 0.0,
        }
    }
}
