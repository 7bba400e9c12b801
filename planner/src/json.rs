//! The document that `plan --json` prints: format 1, described in `docs/plan.schema.json`.

use crate::{
    candidate::{Candidate, seconds},
    decisions::recompute,
    measured::Origins,
    ranking::Ranking,
};
use roundelay_schedule::{Exactness, Kind, Order, Placement, Rule, States};
use serde::Serialize;
use std::collections::BTreeMap;

/// Version of the document.
const FORMAT: u32 = 1;

/// The whole answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Document {
    /// Version of the document.
    pub format: u32,
    /// What is minimised.
    pub objective: &'static str,
    /// The weakest class that the program allows.
    pub exactness: Exactness,
    /// Allowed plans, best first.
    pub plans: Vec<PlanRow>,
    /// The best plan of each weaker class.
    pub weaker: Vec<WeakerRow>,
    /// Values tried per decision, and their number.
    pub space: BTreeMap<&'static str, Values>,
    /// Combinations of these values.
    pub combinations: u64,
    /// How many of them are no plan to try, by reason; the others are candidates.
    pub excluded: BTreeMap<&'static str, u64>,
    /// Plans whose cost was computed.
    pub candidates: usize,
    /// Plans that were bounded away.
    pub pruned: usize,
    /// Plans that were lowered and clocked.
    pub clocked: usize,
    /// Whether no plan of the space is better than the first.
    pub optimal: bool,
    /// (best − least open bound) / best.
    pub gap: f64,
    /// How long the search took.
    pub elapsed_s: f64,
}

/// The values that one decision was tried with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Values {
    /// As the language spells them.
    pub values: Vec<String>,
    /// Their number.
    pub number: usize,
}

/// One plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlanRow {
    /// Counts from one.
    pub rank: usize,
    /// Which parameter version each (stage, micro-batch) uses.
    pub rule: Rule,
    /// The class of its gradients.
    pub exactness: Exactness,
    /// How tasks meet devices.
    pub placement: Placement,
    /// In which order each device takes its tasks.
    pub order: Order,
    /// Data replicas of the cell.
    pub replicas: u32,
    /// Stages on one device of a pipeline.
    pub chunks: u32,
    /// Replicas that split states among them under `hsdp`.
    pub shards: u32,
    /// S.
    pub stages: u32,
    /// First node of every stage but the first.
    pub cuts: Vec<u32>,
    /// N.
    pub micro_batches: u32,
    /// Who holds parameters, gradients and optimizer state.
    pub states: States,
    /// Tensor parallelism.
    pub tensor: Tensor,
    /// What is computed again for backward: one word for all stages, or one per stage.
    pub recompute: String,
    /// Devices in use.
    pub devices: usize,
    /// Time of one training step in the steady state.
    pub step_time_s: f64,
    /// Examples per second in the steady state.
    pub samples_per_s: f64,
    /// Arena of the fullest device.
    pub device_peak_bytes: u64,
    /// Bytes by kind on that device.
    pub memory: BTreeMap<Kind, u64>,
    /// Memory by pool.
    pub pools: BTreeMap<String, Pool>,
    /// Bytes that a device sends in one training step, on average.
    pub comm_bytes_per_device: u64,
    /// Largest number of sequential communication slots between two compute slots.
    pub comm_rounds: u32,
    /// Idle share of the devices' time.
    pub bubble: f64,
    /// Largest number of updates that some parameters lag behind.
    pub staleness: u32,
    /// Share of (stage, micro-batch) that is not fresh.
    pub stale_share: f64,
    /// Where the times of its kernel calls come from.
    pub calls: Calls,
    /// No legal schedule of this plan has a shorter step.
    pub lower_bound_s: f64,
}

/// Number of kernel calls of the plan's routines by where their times come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Calls {
    /// As the table of the device says.
    pub measured: usize,
    /// Scaled from measured calls of the same kernel.
    pub scaled: usize,
    /// By the roofline.
    pub guessed: usize,
}

/// Degrees of tensor parallelism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Tensor {
    /// Rows of the grid of devices.
    pub rows: u32,
    /// Its columns.
    pub columns: u32,
    /// Its depth.
    pub depth: u32,
}

/// What the devices of one pool take of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Pool {
    /// Most bytes that hold something needed at one time, summed over devices.
    pub live_peak_bytes: u64,
    /// Bytes of all arenas.
    pub arena_bytes: u64,
}

/// The best plan of a class that is not allowed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WeakerRow {
    /// The class.
    pub exactness: Exactness,
    /// The line that would allow it.
    pub line: String,
    /// The plan; its rank is that within its class.
    pub plan: PlanRow,
}

/// The document of a ranking.
pub fn document(ranking: &Ranking) -> Document {
    let plans = (1..).zip(&ranking.plans);
    let weaker = ranking.weaker.iter().map(|weaker| WeakerRow {
        exactness: weaker.exactness,
        line: weaker.line.clone(),
        plan: plan_row(1, &weaker.candidate),
    });
    let space = ranking.space.decisions.iter().map(|(name, values)| {
        (*name, Values { values: values.clone(), number: values.len() })
    });
    Document {
        format: FORMAT,
        objective: ranking.objective_name(),
        exactness: ranking.allowed,
        plans: plans.map(|(rank, candidate)| plan_row(rank, candidate)).collect(),
        weaker: weaker.collect(),
        space: space.collect(),
        combinations: ranking.space.combinations,
        excluded: ranking.space.dropped.clone(),
        candidates: ranking.candidates,
        pruned: ranking.pruned,
        clocked: ranking.clocked,
        optimal: ranking.optimal,
        gap: ranking.gap,
        elapsed_s: ranking.elapsed.as_secs_f64(),
    }
}

fn plan_row(rank: usize, candidate: &Candidate) -> PlanRow {
    let plan = &candidate.plan;
    let Origins { measured, scaled, guessed } = candidate.origins;
    let pool = |(name, used): (&String, &crate::candidate::PoolUse)| {
        let (live_peak_bytes, arena_bytes) = (used.live_peak.0, used.arena.0);
        (name.clone(), Pool { live_peak_bytes, arena_bytes })
    };
    PlanRow {
        rank,
        rule: plan.rule,
        exactness: plan.exactness(),
        placement: plan.placement,
        order: plan.order,
        replicas: plan.replicas,
        chunks: plan.chunks,
        shards: plan.shards,
        stages: plan.stages,
        cuts: plan.cuts.clone(),
        micro_batches: plan.micro_batches,
        states: plan.states,
        tensor: Tensor { rows: 1, columns: 1, depth: 1 },
        recompute: recompute(&plan.recompute),
        devices: plan.devices.len(),
        step_time_s: seconds(candidate.step_time),
        samples_per_s: candidate.samples_per_s(),
        device_peak_bytes: candidate.device_peak.0,
        memory: candidate.memory.iter().map(|(kind, bytes)| (*kind, bytes.0)).collect(),
        pools: candidate.pools.iter().map(pool).collect(),
        comm_bytes_per_device: candidate.comm_bytes_per_device.0,
        comm_rounds: candidate.comm_rounds,
        bubble: candidate.bubble,
        staleness: candidate.staleness(),
        stale_share: candidate.stale_share(),
        calls: Calls { measured, scaled, guessed },
        lower_bound_s: seconds(candidate.bound.step_time()),
    }
}

impl Document {
    /// The document as text.
    pub fn to_text(&self) -> String {
        serde_json::to_string_pretty(self)
            .expect("a document is made of numbers, names and lists")
    }
}

#[cfg(test)]
mod tests;
