//! The smallest changes that make a plan fit. Each is a list of lines as `--set` takes them, and
//! is told only after planning with it. Decisions that the program restricts come first, then its
//! own bound of memory, a weaker class of exactness, another batch, and last what must be bought:
//! memory, then devices; of a number the value that is nearest to an allowed one. Where no single
//! change helps, as few as suffice at once, without weaker exactness if there are such.

use crate::{
    answer::{
        amounts::exact,
        decisions::summary,
        what_if::{Answer, plan_with},
    },
    search::{
        candidate::Candidate,
        ranking::{Options, Ranking},
    },
    space::{
        decision::{Decision, Number},
        excluded::{Excluded, Sizes},
        reason::Reason,
    },
};
use roundelay_dsl::{Numbers, Objective, Program, kind_of};
use roundelay_schedule::{Bytes, Exactness, Nanos, Pool};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, iter,
};

/// Searches for changes at most, in one refusal.
const SEARCHES: usize = 40;
/// So many larger numbers of rows are tried, each twice the one before.
const WIDER: usize = 3;
/// Larger clusters are not tried.
const DEVICES_MAX: u32 = 1024;

/// A change with which a plan fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repair {
    /// Lines for the `plan` section, or behind `--set`; those with a dot behind `--set` alone.
    pub lines: Vec<String>,
    /// How much more it is, where it is an amount; else empty.
    pub amount: String,
    /// The plan that then is the best.
    pub plan: String,
    /// Its step time.
    pub step_time: Nanos,
}

impl fmt::Display for Repair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lines, amount, plan, step_time } = self;
        f.write_str(&lines.join(", "))?;
        if !amount.is_empty() {
            write!(f, " ({amount})")?;
        }
        write!(f, ": {plan} fits, {step_time} a step")
    }
}

/// What became of the changes that might make a plan fit.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Those that do, the smallest first.
    pub repairs: Vec<Repair>,
    /// Those that were not tried.
    pub untried: Vec<String>,
    /// Those whose lines cannot be set, each with the reason.
    pub mistaken: Vec<String>,
}

/// Changes that make a plan fit.
pub(crate) fn changes(
    program: &Program,
    options: &Options,
    ranking: &Ranking,
) -> Changes {
    let mut mender = Mender {
        program,
        options: Options { top: NEAREST, ..*options },
        ranking,
        left: SEARCHES,
        changes: Changes::default(),
    };
    mender.decisions();
    mender.wider();
    mender.own_bound();
    mender.exactness();
    mender.batch();
    mender.memory();
    mender.devices();
    if mender.changes.repairs.is_empty() {
        mender.everything();
    }
    mender.changes
}

/// Of this many plans that fit, the one that is nearest to what is allowed is taken.
const NEAREST: usize = 10;

/// Looks for changes, as long as there are searches left.
struct Mender<'a> {
    program: &'a Program,
    options: Options,
    ranking: &'a Ranking,
    left: usize,
    changes: Changes,
}

impl Mender<'_> {
    /// Each decision that the program restricts, widened by what fits.
    fn decisions(&mut self) {
        for decision in Decision::ALL {
            let search = &self.program.search;
            if decision.is_open(search) || !self.has_room(decision.name()) {
                continue;
            }
            let mut relaxed = self.program.clone();
            decision.open(&mut relaxed.search);
            let near = |found: &&Candidate| decision.distance(search, &found.plan);
            let found = self.plans(&relaxed);
            let nearest = found.iter().min_by_key(near);
            let lines = nearest.and_then(|found| decision.lines(search, &found.plan));
            self.try_lines(lines.unwrap_or_default(), String::new());
        }
    }

    /// Where memory is short, more rows than open ones, which stay within the innermost links.
    fn wider(&mut self) {
        if self.program.search.rows != Numbers::Open || !self.lacks_memory() {
            return;
        }
        let decisions = &self.ranking.space.decisions;
        let rows = decisions
            .iter()
            .find(|(name, _)| *name == Decision::Number(Number::Rows).name());
        let tried = rows.into_iter().flat_map(|(_, values)| values);
        let Some(most) = tried.filter_map(|rows| rows.parse::<u32>().ok()).max() else {
            return;
        };
        let devices = self.program.target.devices.len() as u32;
        let doubled = |rows: &u32| rows.checked_mul(2).filter(|rows| *rows <= devices);
        for rows in iter::successors(doubled(&most), doubled).take(WIDER) {
            let line = Decision::Number(Number::Rows).line(&rows);
            if !self.has_room(&line) {
                return;
            }
            let lines = vec![line];
            if let Some(found) = self.planned(&lines) {
                let amount = format!("where {most} are tried at most");
                let repair = Repair::new(lines, amount, &found);
                return self.changes.repairs.push(repair);
            }
        }
    }

    /// The program's bound of memory, where devices have more.
    fn own_bound(&mut self) {
        let Some(bound) = self.program.search.memory.filter(|_| self.lacks_memory())
        else {
            return;
        };
        if !self.has_room("more memory within the devices") {
            return;
        }
        let mut relaxed = self.program.clone();
        relaxed.search.memory = None;
        relaxed.search.objective = Objective::Memory;
        if let Some(smallest) = self.plans(&relaxed).into_iter().next() {
            self.try_memory(smallest, |taken| {
                let peak = taken.device_peak;
                if peak <= bound {
                    return (Vec::new(), String::new());
                }
                let lines = vec![format!("memory <= {}", exact(peak.0))];
                (lines, format!("{} more on each device", peak - bound))
            });
        }
    }

    /// The strictest weaker class in which something fits.
    fn exactness(&mut self) {
        if let Some(weaker) = self.ranking.weaker.first() {
            let line = format!("exactness {}", weaker.exactness);
            self.try_lines(vec![line], String::new());
        }
    }

    /// The next larger batch that the least number of micro-batches divides.
    fn batch(&mut self) {
        let indivisible = |excluded: &Excluded| match (&excluded.reason, excluded.sizes) {
            (Reason::Indivisible { .. }, Sizes::One(counts)) => {
                Some(counts.all_micro_batches())
            }
            _ => None,
        };
        let least = self.ranking.space.excluded.iter().filter_map(indivisible).min();
        let batch = self.program.train.batch;
        let next = least.and_then(|n| Some((n, batch.checked_next_multiple_of(n)?)));
        if let Some((n, next)) = next {
            let amount = format!("instead of {batch}; {n} micro-batches divide it");
            self.try_lines(vec![format!("train.batch = {next}")], amount);
        }
    }

    /// As much memory as the plan takes that takes least.
    fn memory(&mut self) {
        let mut known = self.changes.repairs.iter();
        let bounded = known.any(|repair| repair.lines[0].starts_with("memory"));
        if !self.lacks_memory() || bounded || !self.has_room("more memory") {
            return;
        }
        let mut relaxed = self.program.clone();
        relaxed.search.memory = None;
        relaxed.search.objective = Objective::Memory;
        let endless = Bytes(u64::MAX / 4);
        let target = &mut relaxed.target;
        target.devices.iter_mut().for_each(|(_, device)| device.memory = endless);
        target.pools.iter_mut().for_each(|(_, pool)| pool.capacity = endless);
        if let Some(smallest) = self.plans(&relaxed).into_iter().next() {
            let program = self.program;
            self.try_memory(smallest, |taken| enough(program, taken));
        }
    }

    /// Keeps as much memory as a plan takes; where the search for that plan was cut short, what the
    /// best plan in that memory takes may be less, and is tried in its place.
    fn try_memory(
        &mut self,
        smallest: Candidate,
        needs: impl Fn(&Candidate) -> (Vec<String>, String),
    ) {
        let mut taken = smallest;
        let mut kept = None;
        for _ in 0..2 {
            let (lines, amount) = needs(&taken);
            if lines.is_empty() || !self.has_room(&lines.join(", ")) {
                break;
            }
            let Some(found) = self.planned(&lines) else { break };
            let repair = Repair::new(lines, amount, &found);
            if found.device_peak >= taken.device_peak {
                return self.changes.repairs.push(repair);
            }
            (kept, taken) = (Some(repair), found);
        }
        if let Some(mut repair) = kept {
            repair.amount.push_str(", perhaps less");
            self.changes.repairs.push(repair);
        }
    }

    /// More devices: as many as the least demanding plan takes, twice and eight times as many, then
    /// what lies between those that do not suffice and the first that do.
    fn devices(&mut self) {
        let available = self.program.target.devices.len() as u32;
        let needed = self.ranking.space.excluded.iter().filter_map(|excluded| {
            match excluded.reason {
                Reason::TooFewDevices { needed, .. }
                | Reason::BehindTheLast { end: needed, .. } => Some(needed),
                _ => None,
            }
        });
        let needed = needed.min().filter(|needed| *needed <= DEVICES_MAX);
        if needed.is_none() && !self.lacks_memory() {
            return;
        }
        let unit = unit(self.program);
        let rounded = |count: u32| available + (count - available).next_multiple_of(unit);
        let doubled = [2, 8].map(|times| available.saturating_mul(times));
        let mut counts: Vec<u32> =
            needed.into_iter().chain(doubled).map(rounded).collect();
        counts.retain(|count| (available + 1..=DEVICES_MAX).contains(count));
        counts.sort_unstable();
        counts.dedup();
        let Some((mut most, mut found)) = counts
            .iter()
            .find_map(|count| self.with_devices(*count).map(|found| (*count, found)))
        else {
            return;
        };
        let tried = counts.iter().rev().find(|count| **count < most);
        let mut least = tried.copied().unwrap_or(available);
        while most - least > unit {
            let middle = least + ((most - least) / unit / 2).max(1) * unit;
            match self.with_devices(middle) {
                Some(fewer) => (most, found) = (middle, fewer),
                None => least = middle,
            }
        }
        let lines = vec![format!("cluster.devices = {most}")];
        let amount = format!("instead of {available}");
        self.changes.repairs.push(Repair::new(lines, amount, &found));
    }

    fn with_devices(&mut self, count: u32) -> Option<Candidate> {
        if !self.has_room(&format!("{count} devices")) {
            return None;
        }
        self.planned(&[format!("cluster.devices = {count}")])
    }

    /// Several changes at once, in the class of exactness that the program allows, else in the
    /// strictest weaker one.
    fn everything(&mut self) {
        let allowed = self.program.search.weakest();
        let weaker = [Exactness::Delayed, Exactness::Truncated, Exactness::Local];
        let weaker = weaker.into_iter().filter(|class| *class > allowed);
        for exactness in [allowed].into_iter().chain(weaker) {
            let is_done = !self.changes.repairs.is_empty();
            if is_done || !self.has_room("several changes at once") {
                return;
            }
            self.several(exactness);
        }
    }

    /// All restrictions dropped at once, then restored one by one where a plan still fits, what
    /// changes most first: so none of the changes that are told can be left out.
    fn several(&mut self, exactness: Exactness) {
        let search = &self.program.search;
        let restricted = |decision: &Decision| !decision.is_open(search);
        let mut open: Vec<Decision> =
            Decision::ALL.into_iter().filter(restricted).collect();
        let mut plans = self.plans(&self.relaxed(&open, exactness));
        for decision in open.clone().into_iter().rev() {
            // The last search is for what was found.
            if plans.is_empty() || self.left <= 1 {
                break;
            }
            let fewer: Vec<Decision> =
                open.iter().copied().filter(|one| *one != decision).collect();
            let found = self.plans(&self.relaxed(&fewer, exactness));
            if !found.is_empty() {
                (open, plans) = (fewer, found);
            }
        }
        let search = &self.program.search;
        let far = |found: &&Candidate| -> u64 {
            open.iter().map(|decision| decision.distance(search, &found.plan)).sum()
        };
        let Some(found) = plans.iter().min_by_key(far) else { return };
        let weaker = found.exactness() > search.weakest();
        let class = weaker.then(|| format!("exactness {}", found.exactness()));
        let changed = open.iter().filter(|one| !one.allows(search, &found.plan));
        let pins = changed.flat_map(|d| d.lines(search, &found.plan).unwrap_or_default());
        self.try_lines(pins.chain(class).collect(), String::new());
    }

    /// The program without these restrictions.
    fn relaxed(&self, open: &[Decision], exactness: Exactness) -> Program {
        let mut relaxed = self.program.clone();
        open.iter().for_each(|decision| decision.open(&mut relaxed.search));
        relaxed.search.exactness = Some(exactness);
        relaxed
    }

    /// Keeps a change if a plan fits with it.
    fn try_lines(&mut self, lines: Vec<String>, amount: String) {
        if lines.is_empty() || !self.has_room(&lines.join(", ")) {
            return;
        }
        if let Some(found) = self.planned(&lines) {
            self.changes.repairs.push(Repair::new(lines, amount, &found));
        }
    }

    /// The best plan of the program with these lines.
    fn planned(&mut self, lines: &[String]) -> Option<Candidate> {
        let (answer, _) = plan_with(self.program, &self.options, lines);
        let found = match answer {
            Answer::Plan(found) => Some(*found),
            Answer::NoPlan => None,
            Answer::Unsettable(mistake) => {
                self.mistaken(lines, &mistake);
                return None;
            }
        };
        self.left -= 1;
        found
    }

    /// Remembers lines that cannot be set, the first for each reason.
    fn mistaken(&mut self, lines: &[String], reason: &str) {
        let known = &mut self.changes.mistaken;
        if !known.iter().any(|change| change.ends_with(reason)) {
            known.push(format!("{}: {reason}", lines.join(", ")));
        }
    }

    /// The best plans of a program.
    fn plans(&mut self, relaxed: &Program) -> Vec<Candidate> {
        self.left -= 1;
        crate::search::ranking::allowed(relaxed, &self.options)
    }

    /// Whether a search is left; else what is not tried is remembered.
    fn has_room(&mut self, what: &str) -> bool {
        if self.left == 0 {
            self.changes.untried.push(what.to_owned());
        }
        self.left > 0
    }

    fn lacks_memory(&self) -> bool {
        let mut excluded = self.ranking.space.excluded.iter();
        excluded.any(|excluded| matches!(excluded.reason, Reason::Memory(_)))
    }
}

impl Repair {
    /// Whether it changes which devices there are, or which a plan may take.
    pub(crate) fn changes_devices(&self) -> bool {
        let keys = ["cluster.devices", "devices", "first_device"];
        let changes = |line: &String| keys.iter().any(|key| line.starts_with(key));
        self.lines.iter().any(changes)
    }

    fn new(lines: Vec<String>, amount: String, found: &Candidate) -> Self {
        let (plan, step_time) = (summary(&found.plan), found.step_time);
        Self { lines, amount, plan, step_time }
    }
}

/// Lines that give devices, and memories that they share, what a plan takes, and how much more
/// that is.
fn enough(program: &Program, smallest: &Candidate) -> (Vec<String>, String) {
    let (target, peak) = (&program.target, smallest.device_peak);
    let mut lines = Vec::new();
    let mut amounts = Vec::new();
    if let Some(bound) = program.search.memory.filter(|bound| *bound < peak) {
        lines.push(format!("memory <= {}", exact(peak.0)));
        amounts.push(format!("{} more than the program allows", peak - bound));
    }
    let mut kinds: BTreeMap<&str, (Bytes, Bytes)> = BTreeMap::new();
    for id in &smallest.plan.devices {
        let device = &target.devices[*id];
        if device.memory < peak {
            let kind = kind_of(&device.name);
            kinds.insert(kind, (peak + device.reserved, peak - device.memory));
        }
    }
    for (kind, (memory, missing)) in kinds {
        lines.push(format!("{kind}.memory = {}", exact(memory.0)));
        amounts.push(format!("{missing} more on each device"));
    }
    for (name, (needed, missing)) in crowded(program, smallest) {
        lines.push(format!("{name}.sharing = {}", exact(needed.0)));
        amounts.push(format!("{missing} more in memory {name}"));
    }
    amounts.dedup();
    (lines, amounts.join(", "))
}

/// The memories that devices share and that are too small, by name: what the fullest takes, and how much
/// more that is.
fn crowded<'a>(
    program: &'a Program,
    smallest: &Candidate,
) -> BTreeMap<&'a str, (Bytes, Bytes)> {
    let shared: BTreeSet<&str> =
        program.shared_pools().map(|pool| pool.name.as_str()).collect();
    let labels = program.target.pool_labels();
    let mut crowded = BTreeMap::new();
    for (id, Pool { name, capacity }) in program.target.pools.iter() {
        let needed = smallest.pools.get(&labels[id]).map_or(Bytes(0), |used| used.arena);
        if shared.contains(name.as_str()) && needed > *capacity {
            let known = crowded.entry(name.as_str()).or_default();
            *known = (needed, needed - *capacity).max(*known);
        }
    }
    crowded
}

/// By how many devices a cluster grows at a time.
fn unit(program: &Program) -> u32 {
    let count = program.target.devices.len() as u32;
    let inner = program.target.domains.iter().map(|domain| &domain.devices);
    let ends = inner.filter(|devices| devices.end == count && devices.start > 0);
    ends.map(|devices| devices.end - devices.start).max().unwrap_or(1)
}
