//! What would change: each question is a list of lines as `--set` takes them, and its answer is
//! the best plan of the program with these lines, found by planning again.

use crate::{
    answer::{
        amounts::{exact, exact_rate},
        approach::Approach,
        shifted_cuts::better_cuts,
    },
    search::{
        candidate::Candidate,
        objective::Goal,
        ranking::{Options, Ranking, best},
    },
    space::decision::{Decision, Number, cuts_line},
};
use roundelay_dsl::{Objective, Program, kind_of};
use roundelay_schedule::{Bytes, Pool};
use std::collections::BTreeMap;

/// How much more memory is asked about.
const MORE: Bytes = Bytes(4_000_000_000);

/// How much slower or faster a link is where approaches are compared.
const TIMES: [u64; 2] = [4, 16];

/// Which parts of the memory are left where approaches are compared.
const PARTS: [u64; 2] = [2, 4];

/// A question and its answer.
#[derive(Clone, Debug, PartialEq)]
pub struct WhatIf {
    /// What is changed.
    pub question: String,
    /// The lines that change it.
    pub lines: Vec<String>,
    /// What comes of it.
    pub answer: Answer,
    /// What the change is made to.
    pub(crate) subject: Subject,
    /// What is minimised, with the numbers of the changed program.
    pub(crate) goal: Goal,
}

/// The answer to a question.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The best plan then.
    Plan(Box<Candidate>),
    /// Nothing is allowed and fits.
    NoPlan,
    /// The lines cannot be set; why.
    Unsettable(String),
}

impl Answer {
    /// The best plan, if there is one.
    pub fn plan(&self) -> Option<&Candidate> {
        match self {
            Self::Plan(plan) => Some(plan),
            Self::NoPlan | Self::Unsettable(_) => None,
        }
    }

    /// Why the lines cannot be set, if they cannot.
    pub fn mistake(&self) -> Option<&str> {
        match self {
            Self::Unsettable(mistake) => Some(mistake),
            Self::Plan(_) | Self::NoPlan => None,
        }
    }
}

/// What a question changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// Something that the plan is given: memory, a link; its name.
    Given(String),
    /// Something that is taken away: a device, or what a decision was.
    Taken,
    /// Nothing but the plan itself: the runner-up.
    Pinned,
}

/// A question without its answer.
type Question = (String, Vec<String>, Subject);

/// The best plan of a program with some lines, and that program.
pub(crate) fn plan_with(
    program: &Program,
    options: &Options,
    lines: &[String],
) -> (Answer, Program) {
    let mut changed = program.clone();
    let answer = match changed.set_all(lines) {
        Ok(()) => best(&changed, options)
            .map_or(Answer::NoPlan, |plan| Answer::Plan(Box::new(plan))),
        Err(mistake) => Answer::Unsettable(mistake.message),
    };
    (answer, changed)
}

/// Asks about the first plan of a ranking.
pub(crate) struct Asker<'a> {
    program: &'a Program,
    options: &'a Options,
    ranking: &'a Ranking,
    first: &'a Candidate,
}

impl<'a> Asker<'a> {
    /// None where there is no plan to ask about.
    pub(crate) fn new(
        program: &'a Program,
        options: &'a Options,
        ranking: &'a Ranking,
    ) -> Option<Self> {
        let first = ranking.plans.first()?;
        Some(Self { program, options, ranking, first })
    }

    /// All questions, with their answers.
    pub(crate) fn questions(&self) -> Vec<WhatIf> {
        let mut all = vec![more_memory(self.program)];
        all.extend(faster_links(self.program));
        all.extend(one_device_fewer(self.first));
        all.extend(other_batches(self.program));
        let mut asked: Vec<WhatIf> =
            all.into_iter().map(|question| self.ask_of_first(question)).collect();
        let others = Decision::ALL.into_iter().filter_map(|d| self.without(d));
        asked.extend(others.map(|question| self.told_outside(self.ask(question))));
        asked.extend(self.other_cuts());
        asked.extend(self.runner_up());
        asked.extend(self.other_approaches());
        asked
    }

    /// Planning again where links or memory are others, to see which approach comes first; nothing
    /// where there is one approach.
    pub(crate) fn turns(&self) -> Vec<WhatIf> {
        let program = self.program;
        if self.ranking.approaches.is_empty() {
            return Vec::new();
        }
        let mut all = Vec::new();
        for times in TIMES {
            let how = format!("{times} times slower");
            all.extend(links(program, &how, |rate| rate / times));
        }
        for times in TIMES {
            let faster = |rate: u64| rate.saturating_mul(times);
            all.extend(links(program, &format!("{times} times as fast"), faster));
        }
        for part in PARTS {
            let lines = memory_lines(program, |bytes, _| Bytes(bytes.0 / part));
            let question = format!("1/{part} of the memory of each device");
            all.push((question, lines, Subject::Given("memory".to_owned())));
        }
        all.into_iter().map(|question| self.ask_of_first(question)).collect()
    }

    fn ask(&self, (question, lines, subject): Question) -> WhatIf {
        let (answer, changed) = plan_with(self.program, self.options, &lines);
        let goal = Goal::new(&changed);
        WhatIf { question, lines, answer, subject, goal }
    }

    /// Asks a question about the first plan. Where that plan is given something, cuts of the space may
    /// be others, and it may be better with its own.
    fn ask_of_first(&self, question: Question) -> WhatIf {
        let asked = self.ask(question.clone());
        let (question, mut lines, subject) = question;
        let cuts = &self.first.plan.cuts;
        let same = asked.answer.plan().is_some_and(|plan| plan.plan.cuts == *cuts);
        match subject {
            Subject::Given(_) if !same && !cuts.is_empty() => {
                lines.push(cuts_line(cuts));
                let own = self.ask((question, lines, subject));
                if self.saving(&own) > self.saving(&asked) { own } else { asked }
            }
            Subject::Given(_) | Subject::Taken | Subject::Pinned => asked,
        }
    }

    fn saving(&self, asked: &WhatIf) -> f64 {
        asked.saving(self.first, &self.ranking.goal)
    }

    /// Every value of a decision but that of the first plan, where others were tried.
    fn without(&self, decision: Decision) -> Option<Question> {
        let Self { program, ranking, first, .. } = self;
        let name = decision.name();
        // States and shards ask for depth where the program does not, rows and columns for halves where
        // nothing is split.
        let (depth, halves) = (Number::Depth, Number::Overdecompose);
        let others_ask = (decision == Decision::Number(depth)
            && decision.is_open(&program.search))
            || (decision == Decision::Number(halves) && first.plan.tensor.parts() == 1);
        if others_ask || !decision.is_about(&first.plan) {
            return None;
        }
        let tried = ranking.space.decisions.iter().find(|(known, _)| *known == name);
        let decided = crate::decisions(&first.plan);
        let own =
            decided.iter().find(|(known, _)| *known == name).map(|(_, value)| value)?;
        let (_, values) = tried?;
        let others: Vec<&str> = values
            .iter()
            .filter(|value| *value != own && *value != "listed")
            .map(String::as_str)
            .collect();
        if others.is_empty() || !values.contains(own) {
            return None;
        }
        let line = decision.line(&others.join(" | "));
        Some((format!("without {name} {own}"), vec![line], Subject::Taken))
    }

    /// Says of an answer that it lies outside the space: what is named may be tried with more of the other
    /// numbers than what is left open, and nothing inside is better than the best.
    fn told_outside(&self, mut asked: WhatIf) -> WhatIf {
        if self.ranking.is_optimal() && self.saving(&asked) > 0.0 {
            asked.question += ", outside the space that was searched";
        }
        asked
    }

    /// Cuts that the space has not, where the first plan is better with them.
    fn other_cuts(&self) -> Option<WhatIf> {
        let cuts = better_cuts(self.program, self.first)?;
        let line = cuts_line(&cuts);
        let question =
            ("stages that begin elsewhere".to_owned(), vec![line], Subject::Pinned);
        Some(self.ask(question))
    }

    fn runner_up(&self) -> Option<WhatIf> {
        self.pinned("the runner-up".to_owned(), self.ranking.plans.get(1)?)
    }

    /// Another plan than the first, pinned by the decisions in which it differs, or by all of them; and by
    /// its cuts, where a better plan differs in these alone.
    fn pinned(&self, question: String, other: &Candidate) -> Option<WhatIf> {
        let differing = crate::differences(&self.first.plan, &other.plan);
        let differs = |d: &Decision| differing.iter().any(|(name, ..)| *name == d.name());
        let lines = |wanted: &dyn Fn(&Decision) -> bool| -> Option<Vec<String>> {
            // Depth follows from states, shards and replicas.
            let depth = Decision::Number(Number::Depth);
            let all = Decision::ALL.into_iter().filter(|d| *d != depth && wanted(d));
            let each = all.map(|d| d.lines(&self.program.search, &other.plan));
            each.collect::<Option<Vec<_>>>().map(|lines| lines.concat())
        };
        let all = |d: &Decision| d.is_about(&other.plan);
        let ways = [lines(&differs), lines(&all)].into_iter().flatten();
        let cuts = cuts_line(&other.plan.cuts);
        let cut = |mut lines: Vec<String>| {
            lines.push(cuts.clone());
            lines
        };
        let cut = ways.clone().map(cut);
        ways.filter(|lines| !lines.is_empty()).chain(cut).find_map(|lines| {
            let asked = self.ask((question.clone(), lines, Subject::Pinned));
            let is_told = match &asked.answer {
                Answer::Plan(found) => found.plan == other.plan,
                Answer::NoPlan => false,
                Answer::Unsettable(_) => true,
            };
            is_told.then_some(asked)
        })
    }

    /// The best plans of other approaches than the first plan's, pinned.
    fn other_approaches(&self) -> Vec<WhatIf> {
        let own = Approach::of(&self.first.plan);
        let others =
            self.ranking.approaches.iter().filter(|leader| leader.approach != own);
        let each = others.filter_map(|leader| {
            let question = format!("the best of {}", leader.approach);
            self.pinned(question, leader.candidate.as_ref()?)
        });
        each.collect()
    }
}

fn more_memory(program: &Program) -> Question {
    let more = |bytes: Bytes, users: u64| Bytes(bytes.0 + MORE.0 * users);
    let question = format!("{} more on each device", exact(MORE.0));
    (question, memory_lines(program, more), Subject::Given("memory".to_owned()))
}

/// Lines that give every device, every pool that several share, and a bound of the program another
/// memory: `change` of what it is and of how many devices use it.
fn memory_lines(program: &Program, change: impl Fn(Bytes, u64) -> Bytes) -> Vec<String> {
    let target = &program.target;
    let mut lines = Vec::new();
    let mut kinds: BTreeMap<&str, Bytes> = BTreeMap::new();
    for device in target.devices.values() {
        let kind = kinds.entry(kind_of(&device.name)).or_default();
        *kind = (*kind).max(device.memory + device.reserved);
    }
    for (kind, memory) in kinds {
        lines.push(format!("{kind}.memory = {}", exact(change(memory, 1).0)));
    }
    let used = target.devices.values().map(|device| &target.pools[device.pool]);
    let users = by_name(used);
    let pools = by_name(program.shared_pools());
    let shared: BTreeMap<&str, Bytes> =
        program.shared_pools().map(|pool| (pool.name.as_str(), pool.capacity)).collect();
    for (pool, capacity) in shared {
        let users = users.get(pool).map_or(0, |users| users / pools[pool]);
        lines.push(format!("{pool}.sharing = {}", exact(change(capacity, users).0)));
    }
    if let Some(bound) = program.search.memory {
        lines.push(format!("memory <= {}", exact(change(bound, 1).0)));
    }
    lines
}

/// How many pools of each name there are among some.
fn by_name<'a>(pools: impl Iterator<Item = &'a Pool>) -> BTreeMap<&'a str, u64> {
    let mut numbers = BTreeMap::new();
    pools.for_each(|pool| *numbers.entry(pool.name.as_str()).or_default() += 1);
    numbers
}

fn faster_links(program: &Program) -> Vec<Question> {
    links(program, "twice as fast", |rate| rate.saturating_mul(2))
}

/// One question for each link that joins devices: what if its bandwidth were another?
fn links(
    program: &Program,
    how: &str,
    change: impl Fn(u64) -> u64 + Copy,
) -> Vec<Question> {
    let mut rates: BTreeMap<&str, u64> = BTreeMap::new();
    let domains = program.target.domains.iter();
    for domain in domains.filter(|domain| domain.devices.len() > 1) {
        let link = &program.target.links[domain.link];
        rates.insert(&link.name, link.bandwidth.0);
    }
    let changed = |(name, rate): (&str, u64)| {
        let line = format!("{name}.bandwidth = {}", exact_rate(change(rate)));
        let question = format!("link {name} {how}");
        (question, vec![line], Subject::Given(format!("link {name}")))
    };
    rates.into_iter().map(changed).collect()
}

fn one_device_fewer(first: &Candidate) -> Option<Question> {
    let fewer = first.plan.devices.len().checked_sub(1).filter(|fewer| *fewer > 0)?;
    let line = format!("devices <= {fewer}");
    Some(("one device fewer".to_owned(), vec![line], Subject::Taken))
}

/// Half and twice the batch, where the program says how its model learns.
fn other_batches(program: &Program) -> Vec<Question> {
    if program.search.objective != Objective::TimeToResult {
        return Vec::new();
    }
    let batch = program.train.batch;
    let half = (batch.is_multiple_of(2)).then_some(("half", batch / 2));
    let twice = batch.checked_mul(2).map(|batch| ("twice", batch));
    let question = |(share, batch)| {
        let line = format!("train.batch = {batch}");
        (format!("{share} the batch"), vec![line], Subject::Taken)
    };
    half.into_iter().chain(twice).map(question).collect()
}

impl WhatIf {
    /// The approach of the best plan then.
    pub(crate) fn approach(&self) -> Option<Approach> {
        self.answer.plan().map(|answer| Approach::of(&answer.plan))
    }

    /// The part of the objective that is saved; below zero when it is worse. Of plans on as many
    /// devices the faster one is the better one, so there it is the part of the time.
    pub(crate) fn saving(&self, first: &Candidate, goal: &Goal) -> f64 {
        let Some(answer) = self.answer.plan() else { return f64::NEG_INFINITY };
        let [(then, [then_next, ..]), (now, [now_next, ..])] =
            [answer.score(&self.goal), first.score(goal)];
        let (then, now) = match goal.objective == Objective::Devices && then == now {
            true => (then_next.into(), now_next.into()),
            false => (then, now),
        };
        1.0 - then as f64 / (now as f64).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use roundelay_schedule::{Nanos, Plan, States, Tensor};

    /// Which decisions are asked about where every value of them was tried.
    fn asked(plan: &Plan) -> Vec<&'static str> {
        let tried = [
            ("tensor.contraction", "alternate gather each"),
            ("sequence", "whole split"),
            ("images", "whole split"),
            ("tensor.overdecompose", "1 2"),
            ("shards", "1 2"),
        ];
        let words = |values: &str| values.split(' ').map(str::to_owned).collect();
        let mut ranking = sample::ranking();
        ranking.space.decisions =
            tried.map(|(name, values)| (name, words(values))).to_vec();
        let first = sample::candidate(plan, Nanos(1_000), 0);
        let (program, options) = (sample::program(4, 8), Options::default());
        let asker = Asker {
            program: &program,
            options: &options,
            ranking: &ranking,
            first: &first,
        };
        let is_asked = |decision: &Decision| asker.without(*decision).is_some();
        Decision::ALL.into_iter().filter(is_asked).map(Decision::name).collect()
    }

    /// Lines about anything else would change nothing of the plan.
    #[test]
    fn only_what_the_first_plan_has_is_asked_about() {
        let of = |tensor| asked(&Plan { tensor, ..sample::plan_on(4) });
        let split = ["sequence", "images", "tensor.overdecompose"];
        let columns =
            ["sequence", "images", "tensor.contraction", "tensor.overdecompose"];
        assert_eq!(of(Tensor::WHOLE), [""; 0]);
        assert_eq!(of(Tensor::grid(2, 1)), split);
        assert_eq!(of(Tensor::grid(1, 2)), columns);
        assert_eq!(of(Tensor::grid(2, 2)), columns);
        let states = States::Hsdp;
        assert_eq!(asked(&Plan { states, ..sample::plan_on(4) }), ["shards"]);
    }
}
