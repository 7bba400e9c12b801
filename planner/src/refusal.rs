//! When nothing fits: the binding constraint, and what would make it fit, found by relaxing one
//! constraint at a time.

use crate::{
    candidate::Candidate,
    decisions::summary,
    excluded::{Excluded, Sizes},
    family::Clash,
    memory,
    progress::Progress,
    ranking::{Options, Ranking, survey},
    reason::Reason,
};
use roundelay_dsl::{Choice, Numbers, Objective, Program, Search};
use roundelay_schedule::Bytes;
use std::fmt;

/// Larger clusters are not tried as a repair.
const DEVICES_MAX: u32 = 1024;

/// Why no plan of the space fits, and what would make one fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Refusal {
    /// The constraint that the plans that came furthest do not meet.
    pub binding: String,
    /// Changes, each of which suffices alone, with the plan that it makes possible.
    pub repairs: Vec<String>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no plan fits: {}", self.binding)?;
        if self.repairs.is_empty() {
            return write!(f, "\n  no single change makes one fit");
        }
        write!(f, "\n  one of these would make it fit:")?;
        self.repairs.iter().try_for_each(|repair| write!(f, "\n  - {repair}"))
    }
}

/// The refusal of a program whose search came out empty.
pub(crate) fn refuse(program: &Program, options: &Options, ranking: &Ranking) -> Refusal {
    let once = Options { top: 1, ..*options };
    let tried = |relaxed: &Program| {
        let found = survey(relaxed, &once, &mut Progress::default());
        found.plans.into_iter().next()
    };
    let mut repairs: Vec<String> = ranking
        .weaker
        .iter()
        .map(|weaker| repair(&weaker.line, &weaker.candidate))
        .collect();
    repairs.extend(more_memory(program, ranking, tried));
    for (change, relaxed) in relaxations(program, ranking) {
        repairs.extend(tried(&relaxed).map(|found| repair(&change, &found)));
    }
    Refusal { binding: binding(ranking), repairs }
}

fn repair(change: &str, candidate: &Candidate) -> String {
    format!("{change}: {} would fit", summary(&candidate.plan))
}

/// What holds back the plans that came furthest.
fn binding(ranking: &Ranking) -> String {
    if let Some(weaker) = ranking.weaker.first() {
        return format!(
            "exactness: what fits is {}, the program allows {}",
            weaker.exactness, ranking.allowed
        );
    }
    let furthest = ranking.space.excluded.iter().min_by_key(|excluded| depth(excluded));
    match furthest {
        Some(Excluded { family, sizes: Sizes::All, reason, .. }) => {
            format!("{}: {family}: {reason}", constraint(reason))
        }
        Some(Excluded { family, sizes: Sizes::One(counts), reason, .. }) => {
            format!("{}: {family}, {counts}: {reason}", constraint(reason))
        }
        None => "devices: the cluster has none".to_owned(),
    }
}

/// How far an excluded plan is from fitting: the last phase it reached, then what is missing.
fn depth(excluded: &Excluded) -> (u32, u64) {
    match &excluded.reason {
        Reason::Memory(short) => (0, short.missing.0),
        Reason::TooFewDevices { needed, .. } | Reason::DevicesNotAllowed { needed } => {
            (1, u64::from(*needed))
        }
        Reason::DelayTooShort { least } => (2, u64::from(*least)),
        Reason::Refused(_) => (3, 0),
        Reason::WrongCuts(_) | Reason::Uncuttable(_) | Reason::NoStage { .. } => (4, 0),
        Reason::Indivisible { .. } => (5, 0),
        Reason::TooLong { passes } => (5, *passes),
        Reason::OneWorker
        | Reason::OneReplica
        | Reason::MirroredReplicas
        | Reason::Misfit(_)
        | Reason::ReplicasNeedSync
        | Reason::UnevenShards { .. } => (6, 0),
        Reason::Clash(Clash::ClipNeedsWholeGradient(_)) => (7, 0),
        Reason::Clash(_) => (7, 1),
        Reason::Equal(_) => (8, 0),
    }
}

/// The constraint that a reason belongs to.
fn constraint(reason: &Reason) -> &'static str {
    match reason {
        Reason::Memory(_) => "memory",
        Reason::TooFewDevices { .. } | Reason::DevicesNotAllowed { .. } => "devices",
        Reason::DelayTooShort { .. }
        | Reason::Indivisible { .. }
        | Reason::TooLong { .. }
        | Reason::OneWorker => "micro_batches",
        Reason::OneReplica | Reason::ReplicasNeedSync | Reason::MirroredReplicas => {
            "replicas"
        }
        Reason::Misfit(_) => "order",
        Reason::UnevenShards { .. } => "shards",
        Reason::WrongCuts(_) => "cuts",
        Reason::Uncuttable(_) | Reason::NoStage { .. } => "stages",
        Reason::Clash(_) => "decisions that do not go together",
        Reason::Refused(_) | Reason::Equal(_) => "the model",
    }
}

/// Plans with memory without end, the smallest first: what the smallest lacks.
fn more_memory(
    program: &Program,
    ranking: &Ranking,
    tried: impl Fn(&Program) -> Option<Candidate>,
) -> Option<String> {
    let lacks = |excluded: &Excluded| matches!(excluded.reason, Reason::Memory(_));
    if !ranking.space.excluded.iter().any(lacks) {
        return None;
    }
    let mut relaxed = program.clone();
    relaxed.search.memory = None;
    relaxed.search.objective = Objective::Memory;
    let endless = Bytes(u64::MAX / 4);
    relaxed.target.devices.iter_mut().for_each(|(_, device)| device.memory = endless);
    relaxed.target.pools.iter_mut().for_each(|(_, pool)| pool.capacity = endless);
    let smallest = tried(&relaxed)?;
    let missing = missing(program, &smallest);
    Some(repair(&missing.join(" and "), &smallest))
}

/// What devices and pools lack for a plan.
fn missing(program: &Program, candidate: &Candidate) -> Vec<String> {
    let target = &program.target;
    let devices = candidate.plan.devices.iter();
    let least = devices
        .map(|device| memory::device_capacity(program, &target.devices[*device]))
        .min()
        .unwrap_or_default();
    let device = Some(candidate.device_peak - least).filter(|bytes| *bytes > Bytes(0));
    let device = device.map(|bytes| format!("{bytes} more on each device"));
    let pool = |pool: &roundelay_schedule::Pool| {
        let needed = candidate.pools.get(&pool.name)?.arena;
        let bytes = Some(needed - pool.capacity).filter(|bytes| *bytes > Bytes(0))?;
        Some(format!("{bytes} more in memory {}", pool.name))
    };
    device.into_iter().chain(target.pools.values().filter_map(pool)).collect()
}

/// The program with one constraint dropped or one number changed, and what that change is.
fn relaxations(program: &Program, ranking: &Ranking) -> Vec<(String, Program)> {
    let search = &program.search;
    let mut all = Vec::new();
    let mut dropped = |name: &str, set: bool, drop: fn(&mut Search)| {
        if set {
            let mut relaxed = program.clone();
            drop(&mut relaxed.search);
            all.push((format!("leave `{name}` open"), relaxed));
        }
    };
    dropped("rule", search.rule != Choice::Open, |search| search.rule = Choice::Open);
    dropped("placement", search.placement != Choice::Open, |search| {
        search.placement = Choice::Open;
    });
    dropped("order", search.order != Choice::Open, |search| search.order = Choice::Open);
    dropped("states", search.states != Choice::Open, |search| {
        search.states = Choice::Open;
    });
    let again = search.recompute != Choice::Open || !search.pinned.is_empty();
    dropped("recompute", again, |search| {
        search.recompute = Choice::Open;
        search.pinned.clear();
    });
    let staged = search.stages != Numbers::Open || search.cuts.is_some();
    dropped("stages", staged, |search| {
        search.stages = Numbers::Open;
        search.cuts = None;
    });
    dropped("micro_batches", search.micro_batches != Numbers::Open, |search| {
        search.micro_batches = Numbers::Open;
    });
    dropped("replicas", search.replicas != Numbers::Open, |search| {
        search.replicas = Numbers::Open;
    });
    dropped("shards", search.shards != Numbers::Open, |search| {
        search.shards = Numbers::Open;
    });
    dropped("devices", search.devices != Numbers::Open, |search| {
        search.devices = Numbers::Open;
    });
    all.extend(more_devices(program, ranking));
    all.extend(another_batch(program, ranking));
    all
}

/// The cluster with as many devices as the least demanding plan takes.
fn more_devices(program: &Program, ranking: &Ranking) -> Option<(String, Program)> {
    let needed = |excluded: &Excluded| match excluded.reason {
        Reason::TooFewDevices { needed, .. } => Some(needed),
        _ => None,
    };
    let needed = ranking.space.excluded.iter().filter_map(needed).min();
    let needed = needed.filter(|needed| *needed <= DEVICES_MAX)?;
    let mut relaxed = program.clone();
    let target = &mut relaxed.target;
    let (id, last) = target.devices.iter().last()?;
    let (last, profile) = (last.clone(), relaxed.profiles.get(&id).cloned());
    let available = u32::try_from(target.devices.len()).ok()?;
    while target.devices.len() < needed as usize {
        let id = target.devices.push(last.clone());
        relaxed.profiles.extend(profile.clone().map(|profile| (id, profile)));
    }
    let outermost = target.domains.last_mut();
    if let Some(domain) = outermost.filter(|domain| domain.devices.end == available) {
        domain.devices.end = needed;
    }
    Some((format!("{needed} devices instead of {available}"), relaxed))
}

/// The next larger batch that the least number of micro-batches divides.
fn another_batch(program: &Program, ranking: &Ranking) -> Option<(String, Program)> {
    let indivisible = |excluded: &Excluded| match (&excluded.reason, excluded.sizes) {
        (Reason::Indivisible { .. }, Sizes::One(counts)) => {
            Some(counts.all_micro_batches())
        }
        _ => None,
    };
    let n = ranking.space.excluded.iter().filter_map(indivisible).min()?;
    let batch = program.train.batch.checked_next_multiple_of(n)?;
    let mut relaxed = program.clone();
    relaxed.train.batch = batch;
    Some((format!("batch {batch}, which {n} micro-batches divide"), relaxed))
}
