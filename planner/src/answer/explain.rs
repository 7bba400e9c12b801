//! Reasons: what binds a plan's time and memory, why it is not another one, and what would
//! change.

use crate::{
    answer::{
        approach::Approach,
        decisions::{differences, summary},
        table::long,
        what_if::{Answer, Asker, Subject, WhatIf},
    },
    rewrite::Stop,
    search::{
        candidate::{Candidate, seconds},
        ranking::{Options, Ranking},
    },
};
use roundelay_dsl::{Objective, Program};
use roundelay_schedule::{Bytes, Kind, Sites, counted};
use std::{collections::BTreeMap, fmt};

/// Why the plans of a ranking stand where they stand, and what would change the first.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// The plans in a few words, each with its reasons.
    pub plans: Vec<(String, Vec<String>)>,
    /// What limits the cut points, when parameters with several users do.
    pub cuts: Option<String>,
    /// How rewrites were found.
    pub rewriting: String,
    /// How the ways of maps were found, where some were.
    pub sharding: Option<String>,
    /// What holds back the first plan.
    pub binding: String,
    /// What would change, by planning again.
    pub what_if: Vec<WhatIf>,
    /// The approaches that have plans, best first, then those that come first under some change
    /// alone; none where there is but one.
    pub approaches: Vec<Approach>,
    /// What comes first where links or memory are others, where there are several approaches.
    pub turns: Vec<WhatIf>,
    /// The first plan.
    first: Candidate,
}

/// Explains a ranking that has plans; each question about what would change is one more search.
pub fn explain(program: &Program, options: &Options, ranking: &Ranking) -> Explanation {
    let nexts = ranking.plans.iter().skip(1).map(Some).chain([None]);
    let numbered = (1..).zip(ranking.plans.iter().zip(nexts));
    let plans = numbered.map(|(rank, (candidate, next))| {
        let mut reasons = vec![
            format!("time: {}", time(candidate)),
            format!("memory: {}", memory(candidate)),
            format!("times: {}", candidate.origins),
        ];
        reasons.extend(rewrites(candidate));
        reasons.extend(maps(candidate));
        reasons.extend(next.map(|next| runner_up(candidate, rank + 1, next)));
        (summary(&candidate.plan), reasons)
    });
    let asker = Asker::new(program, options, ranking);
    let asked = asker.map(|asker| (asker.questions(), asker.turns()));
    let (what_if, turns) = asked.unwrap_or_default();
    let led = ranking.approaches.iter().filter(|lead| lead.candidate.is_some());
    let mut approaches: Vec<Approach> = led.map(|lead| lead.approach).collect();
    for approach in turns.iter().filter_map(WhatIf::approach) {
        if !approaches.contains(&approach) {
            approaches.push(approach);
        }
    }
    Explanation {
        plans: plans.collect(),
        cuts: cuts(ranking),
        rewriting: rewriting(ranking),
        sharding: sharding(ranking),
        binding: binding(ranking, &what_if),
        what_if,
        approaches,
        turns,
        first: ranking.plans[0].clone(),
    }
}

/// What is given more of and then saves something.
fn binding(ranking: &Ranking, what_if: &[WhatIf]) -> String {
    let first = &ranking.plans[0];
    let saves = |what: &WhatIf| match &what.subject {
        Subject::Given(name) => {
            let saving = 100.0 * what.saving(first, &ranking.goal);
            (saving > 0.0).then(|| {
                let of = saved(what, ranking);
                format!("{name}: {} saves {saving:.2} % of {of}", what.question)
            })
        }
        Subject::Taken | Subject::Pinned => None,
    };
    let found: Vec<String> = what_if.iter().filter_map(saves).collect();
    let more = match found.is_empty() {
        false => found.join("; "),
        true => "neither more memory nor a faster link saves anything".to_owned(),
    };
    let scarce = match ranking.goal.objective {
        Objective::Memory => memory(first),
        Objective::StepTime
        | Objective::Devices
        | Objective::Cost
        | Objective::TimeToResult => time(first),
    };
    format!("{scarce}; {more}")
}

/// What a saving is a share of: of as many devices the faster plan is the better one.
fn saved(what: &WhatIf, ranking: &Ranking) -> &'static str {
    let devices = |candidate: &Candidate| candidate.plan.devices.len();
    let now = devices(&ranking.plans[0]);
    match ranking.goal.objective {
        Objective::Devices if what.answer.plan().map(devices) != Some(now) => {
            "the devices"
        }
        Objective::Devices | Objective::StepTime => "the step time",
        Objective::Memory => "the memory",
        Objective::Cost => "the cost",
        Objective::TimeToResult => "the time to the result",
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (rank, (summary, reasons)) in (1..).zip(&self.plans) {
            writeln!(f, "{rank}. {summary}")?;
            reasons.iter().try_for_each(|reason| writeln!(f, "   {reason}"))?;
        }
        writeln!(f, "\nbinds the first plan: {}", self.binding)?;
        if !self.what_if.is_empty() {
            writeln!(
                f,
                "what would change it; each line is found again with its `--set`:"
            )?;
        }
        self.what_if
            .iter()
            .try_for_each(|what| writeln!(f, "  {}", self.question_with_answer(what)))?;
        self.fmt_turns(f)?;
        self.cuts.iter().try_for_each(|cuts| writeln!(f, "cuts: {cuts}"))?;
        writeln!(f, "rewrites: {}", self.rewriting)?;
        self.sharding.iter().try_for_each(|sharding| writeln!(f, "maps: {sharding}"))
    }
}

impl Explanation {
    /// Every approach with the changes under which it comes first.
    fn fmt_turns(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.turns.is_empty() {
            return Ok(());
        }
        writeln!(f, "when each approach comes first, by planning again:")?;
        for approach in &self.approaches {
            let is_first = Approach::of(&self.first.plan) == *approach;
            let turns: Vec<&WhatIf> = self
                .turns
                .iter()
                .filter(|turn| turn.approach() == Some(*approach))
                .collect();
            let now = match (is_first, turns.is_empty()) {
                (true, _) => " as it is",
                (false, true) => " under none of these changes",
                (false, false) => "",
            };
            writeln!(f, "  {approach}:{now}")?;
            turns.into_iter().try_for_each(|turn| {
                writeln!(f, "    {}", self.question_with_answer(turn))
            })?;
        }
        let mut none = self.turns.iter().filter(|turn| turn.approach().is_none());
        none.try_for_each(|turn| writeln!(f, "  {}", self.question_with_answer(turn)))
    }

    fn question_with_answer(&self, what: &WhatIf) -> String {
        let set = what.lines.iter().map(|line| format!(" --set \"{line}\""));
        let set: String = set.collect();
        format!("{}: {} <-{set}", what.question, self.answer(what))
    }

    /// The answer to a question, against the first plan.
    fn answer(&self, what: &WhatIf) -> String {
        let answer = match &what.answer {
            Answer::Plan(answer) => answer,
            Answer::NoPlan => return "no plan".to_owned(),
            Answer::Unsettable(mistake) => return format!("cannot be set: {mistake}"),
        };
        let first = &self.first;
        let plan = match answer.plan == first.plan {
            true => "the same plan".to_owned(),
            false => summary(&answer.plan),
        };
        let time = seconds(answer.step_time) / seconds(first.step_time);
        let peak = answer.device_peak.0 as f64 / (first.device_peak.0 as f64).max(1.0);
        let percent = |share: f64| format!("{:+.1} %", 100.0 * (share - 1.0));
        let (plan_then, then) = (&answer.plan, answer.step_time);
        let cost = what.goal.cost(plan_then, then).map(|cost| format!(", {cost} a step"));
        let result = what.goal.time_to_result(plan_then, then);
        let result = result.map(|time| format!(", {} to the result", long(time.0)));
        format!(
            "{plan}: step time {then} ({}), peak memory {} ({}), {}{}{}",
            percent(time),
            answer.device_peak,
            percent(peak),
            counted(plan_then.devices.len() as u64, "device"),
            cost.unwrap_or_default(),
            result.unwrap_or_default()
        )
    }
}

/// What limits the cut points, when parameters with several users do.
fn cuts(ranking: &Ranking) -> Option<String> {
    ranking.space.tied.as_ref().map(ToString::to_string)
}

/// Which bound is closest to the clocked time, and what is left. Each says what it counts: of parts of
/// split tensors a pass has the exchanges too.
fn time(candidate: &Candidate) -> String {
    let bound = &candidate.bound;
    let step = candidate.step_time;
    let passes = match candidate.plan.tensor.parts() {
        1 => "passes",
        _ => "passes with the exchanges of parts",
    };
    let (what, least, others) = match bound.work.max(bound.path) {
        _ if bound.traffic > bound.work.max(bound.path) => {
            let busiest = "messages, sums and shards on the busiest links".to_owned();
            (busiest, bound.traffic, "passes, updates and waiting")
        }
        work if work == bound.work => {
            let busiest = format!("{passes} and updates of the busiest device");
            (busiest, work, "messages and waiting")
        }
        path => {
            let longest = format!("{passes}, messages and updates of the longest chain");
            (longest, path, "waiting")
        }
    };
    let share = 100.0 * seconds(least) / seconds(step);
    let rest = step - least;
    format!("{what} take {least} of {step} ({share:.0} %); the other {rest} are {others}")
}

fn memory(candidate: &Candidate) -> String {
    let mut kinds: Vec<(Bytes, Kind)> =
        candidate.memory.iter().map(|(kind, bytes)| (*bytes, *kind)).collect();
    kinds.sort_by(|one, other| other.cmp(one));
    let parts: Vec<String> =
        kinds.iter().take(3).map(|(bytes, kind)| format!("{kind} {bytes}")).collect();
    let (peak, parts) = (candidate.device_peak, parts.join(", "));
    format!("the fullest device takes {peak}; most of it is {parts}")
}

/// Which neighbouring calls are one.
fn rewrites(candidate: &Candidate) -> Option<String> {
    let rewrites = &candidate.plan.rewrites;
    named("rewrites", rewrites.iter().map(|(rewrite, sites)| (rewrite, sites.clone())))
}

/// How affine maps are split.
fn maps(candidate: &Candidate) -> Option<String> {
    named("maps", candidate.plan.maps.by_way())
}

/// What is done where; none where nothing is.
fn named<T: fmt::Display>(
    what: &str,
    all: impl IntoIterator<Item = (T, Sites)>,
) -> Option<String> {
    let each = all.into_iter().map(|(name, sites)| match sites.iter().len() {
        count if count <= FEW_SITES => format!("{name} at {sites}"),
        count => format!("{name} at {count} operations"),
    });
    let each: Vec<String> = each.collect();
    (!each.is_empty()).then(|| format!("{what}: {}", each.join(", ")))
}

/// So many operations are named, more are counted; a plan file names them all.
const FEW_SITES: usize = 8;

fn rewriting(ranking: &Ranking) -> String {
    match by_stop(&ranking.rewriting) {
        None => "no neighbouring calls that a rule could join".to_owned(),
        Some(each) => format!("e-graphs of neighbouring calls: {each}"),
    }
}

/// How the ways of maps were found.
fn sharding(ranking: &Ranking) -> Option<String> {
    by_stop(&ranking.sharding).map(|each| format!("e-graphs of regions: {each}"))
}

/// E-graphs by why they grew no further; none where there are none.
fn by_stop(stops: &BTreeMap<Stop, usize>) -> Option<String> {
    let each = stops.iter().map(|(stop, count)| format!("{count} {stop}"));
    let each: Vec<String> = each.collect();
    (!each.is_empty()).then(|| each.join(", "))
}

fn runner_up(candidate: &Candidate, rank: usize, next: &Candidate) -> String {
    let changes: Vec<String> = differences(&candidate.plan, &next.plan)
        .into_iter()
        .map(|(name, _, other)| format!("{name} {other}"))
        .collect();
    let time = 100.0 * (seconds(next.step_time) / seconds(candidate.step_time) - 1.0);
    let peak = next.device_peak.0 as f64 / (candidate.device_peak.0 as f64).max(1.0);
    format!(
        "rank {rank} has {}: time {time:+.1} %, peak memory {:+.1} %",
        changes.join(", "),
        100.0 * (peak - 1.0)
    )
}

#[cfg(test)]
mod tests;
