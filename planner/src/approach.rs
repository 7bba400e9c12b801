//! Approaches: the systems that people compare, by what their gradients are and by how devices
//! split tensors, and the best plan of each.

use crate::{
    candidate::Candidate,
    clerk::{Classes, Clerk, Grouping},
    cost::Costs,
    local,
    outline::Outline,
    progress::Progress,
    ranking::{Options, Ranking, aim, gap, joined},
    search::{Open, search},
};
use roundelay_dsl::Program;
use roundelay_schedule::{Exactness, Plan, Rule, Tensor};
use serde::Serialize;
use std::{collections::BTreeMap, fmt};

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
    /// Its best plan; none when nothing of it fits.
    pub candidate: Option<Candidate>,
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
/// approach. The first plan of a ranking leads its own one; each of the others is searched alone.
pub(crate) fn leaders(
    program: &Program,
    options: &Options,
    ranking: &Ranking,
    progress: &mut Progress<'_>,
) -> Vec<Leader> {
    let Some(first) = ranking.plans.first() else { return Vec::new() };
    let own = Approach::of(&first.plan);
    let mut all =
        vec![Leader { approach: own, candidate: Some(first.clone()), gap: ranking.gap }];
    for program in local::programs(program) {
        let costs = Costs::new(&program);
        for (approach, plans) in approaches(&program, ranking) {
            if approach == own || progress.stopped {
                continue;
            }
            let (clerk, classes) =
                Clerk::new(&program, &costs, plans, Grouping::of(ranking.goal.objective));
            let (candidate, gap) = best((clerk, classes), options, ranking, progress);
            all.push(Leader { approach, candidate, gap });
        }
    }
    best_of_each(all, ranking)
}

/// The plans of a program that its ranking allows, by approach.
fn approaches(program: &Program, ranking: &Ranking) -> BTreeMap<Approach, Vec<Outline>> {
    let mut all = BTreeMap::<Approach, Vec<Outline>>::new();
    let plans = ranking.space.plans.iter();
    for plan in plans.filter(|plan| local::has(program, plan.family.rule)) {
        let approach = Approach::new(plan.family.rule, plan.counts.tensor);
        if approach.gradients <= ranking.allowed {
            all.entry(approach).or_default().push(*plan);
        }
    }
    all
}

/// The best of some plans, and how much better another one may be.
fn best(
    (mut clerk, classes): (Clerk<'_>, Classes),
    options: &Options,
    ranking: &Ranking,
    progress: &mut Progress<'_>,
) -> (Option<Candidate>, f64) {
    let goal = &ranking.goal;
    let classes = classes.into_iter().filter(|(class, _)| *class <= ranking.allowed);
    let parts: Vec<Vec<Open>> = classes.flat_map(|(_, parts)| parts).collect();
    let found = search(joined(parts), aim(goal, options, 1), &mut clerk, progress);
    let best = found.best.into_iter().next();
    let score = best.as_ref().map(|best| best.score(goal));
    (best, gap(score, found.open))
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
        }
        is_same
    });
    all.sort_by_key(score);
    match all.len() {
        1 => Vec::new(),
        _ => all,
    }
}

impl Leader {
    /// How much better a plan may be that a worse leader of the same approach left open.
    fn gap_to(&self, other: &Leader, ranking: &Ranking) -> f64 {
        let worth = |leader: &Leader| {
            let best = leader.candidate.as_ref()?;
            Some(best.score(&ranking.goal)[0] as f64)
        };
        match (worth(self), worth(other)) {
            (Some(own), Some(other_worth)) if own > 0.0 => {
                1.0 - other_worth * (1.0 - other.gap) / own
            }
            _ => 0.0,
        }
    }
}
