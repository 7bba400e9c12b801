//! The document that `plan --json` prints: format 1, described in `docs/plan.schema.json`.

use crate::{
    answer::{
        approach::Approach, decisions::recompute, explain::Explanation, front::Front,
        what_if::WhatIf, workload::Workload,
    },
    costs::measured::Origins,
    rewrite::Stop,
    search::{
        candidate::{Candidate, seconds},
        objective::{FemtoDollars, Goal},
        ranking::Ranking,
    },
};
use roundelay_dsl::Program;
use roundelay_schedule::{
    Contraction, Exactness, Images, Kind, MapWay, Order, Placement, Rewrite, Rule,
    Sequence, Sites, States, Tie,
};
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
    /// What a training step asks for, whatever the plan.
    #[serde(flatten)]
    pub workload: Workload,
    /// Allowed plans, best first.
    pub plans: Vec<PlanRow>,
    /// The best plan of each weaker class.
    pub weaker: Vec<WeakerRow>,
    /// The best plan of each approach, best first, where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub approaches: Vec<ApproachRow>,
    /// Values tried per decision, and their number.
    pub space: BTreeMap<&'static str, TriedValues>,
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
    /// How many e-graphs were asked which calls are one, by why they grew no further.
    pub rewriting: BTreeMap<Stop, usize>,
    /// The same of those that were asked how maps are split.
    pub sharding: BTreeMap<Stop, usize>,
    /// How long the search took.
    pub elapsed_s: f64,
    /// What a reader should know before believing the plans, where it was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The front, where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub front: Option<FrontPart>,
    /// Reasons, where they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explain: Option<ExplainPart>,
}

/// Why plans stand where they stand, and what would change the first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExplainPart {
    /// What holds back the first plan.
    pub binding: String,
    /// The reasons of every plan, in the order of the plans.
    pub reasons: Vec<Vec<String>>,
    /// What limits the cut points.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cuts: Option<String>,
    /// Questions with their answers.
    pub what_if: Vec<WhatIfRow>,
    /// What comes first where links or memory are others, where there are several approaches.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub turns: Vec<WhatIfRow>,
}

/// What a change leads to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WhatIfRow {
    /// What is changed.
    pub question: String,
    /// Values of `--set`, all together.
    pub set: Vec<String>,
    /// The best plan then, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanRow>,
    /// Why the values cannot be set, where they cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mistake: Option<String>,
}

/// Plans that no other beats in step time, peak memory and number of devices together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FrontPart {
    /// The plans, fastest first.
    pub plans: Vec<PlanRow>,
    /// Whether no allowed plan of the space is missing.
    pub complete: bool,
    /// Plans that were bounded away.
    pub pruned: usize,
    /// Plans that were lowered and clocked.
    pub clocked: usize,
    /// Plans that were left open.
    pub open: usize,
    /// How long the search took.
    pub elapsed_s: f64,
}

/// The values that one decision was tried with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TriedValues {
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
    /// Slices of each sequence.
    pub slices: u32,
    /// Replicas that split states among them under `hsdp`.
    pub shards: u32,
    /// S.
    pub stages: u32,
    /// First node of every stage but the first.
    pub cuts: Vec<u32>,
    /// The stages that use the same parameters, one list for all that the same stages use.
    pub ties: Vec<Tie>,
    /// N.
    pub micro_batches: u32,
    /// Who holds parameters, gradients and optimizer state.
    pub states: States,
    /// Tensor parallelism.
    pub tensor: TensorRow,
    /// What tensor rows do where features are whole.
    pub sequence: Sequence,
    /// What tensor rows do with the pixels of images.
    pub images: Images,
    /// What is computed again for backward: one word for all stages, or one per stage.
    pub recompute: String,
    /// The rules that make one call of two, each with the operations at which it is applied.
    pub rewrites: BTreeMap<Rewrite, Vec<u32>>,
    /// How affine maps are split, each way with the operations that go it.
    pub maps: BTreeMap<MapWay, Vec<u32>>,
    /// Devices in use.
    pub devices: usize,
    /// The first of them.
    pub first_device: u32,
    /// Time of one training step in the steady state.
    pub step_time_s: f64,
    /// Examples per second in the steady state.
    pub samples_per_s: f64,
    /// Arena of the fullest device.
    pub device_peak_bytes: u64,
    /// Bytes by kind on that device.
    pub memory: BTreeMap<Kind, u64>,
    /// Memory by pool.
    pub pools: BTreeMap<String, PoolRow>,
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
    pub calls: CallCounts,
    /// No legal schedule of this plan has a shorter step.
    pub lower_bound_s: f64,
    /// What a training step costs, in US dollars, where the devices in use have prices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_per_step_usd: Option<f64>,
    /// What a million examples cost, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_per_million_samples_usd: Option<f64>,
    /// Training steps until the result, where the program says how its model learns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps_to_result: Option<u64>,
    /// Time until the result, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_to_result_s: Option<f64>,
}

/// Number of kernel calls of the plan's routines by where their times come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CallCounts {
    /// As the table of the device says.
    pub measured: usize,
    /// Scaled from measured calls of the same kernel.
    pub scaled: usize,
    /// By the roofline.
    pub guessed: usize,
}

/// Degrees of tensor parallelism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TensorRow {
    /// Rows of the grid of devices.
    pub rows: u32,
    /// Its columns.
    pub columns: u32,
    /// Parts of a micro-batch's examples that take turns; 1 where they are taken together.
    pub overdecompose: u32,
    /// Its depth: members that divide parameters, by `states` and `shards`.
    pub depth: u32,
    /// How maps multiply features that columns divide.
    pub contraction: Contraction,
}

/// What the devices of one pool take of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PoolRow {
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
    /// How much better another of the class may be.
    pub gap: f64,
    /// The plan; its rank is that within its class.
    pub plan: PlanRow,
}

/// The best plan of an approach.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ApproachRow {
    /// The class of its rules, and how devices split tensors.
    #[serde(flatten)]
    pub approach: Approach,
    /// How much better another of the approach may be.
    pub gap: f64,
    /// The plan, where one was found; its rank is that within its approach.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanRow>,
}

/// The document of a ranking of a program's plans.
pub fn document(ranking: &Ranking, program: &Program) -> Document {
    let plans = (1..).zip(&ranking.plans);
    let weaker = ranking.weaker.iter().map(|weaker| WeakerRow {
        exactness: weaker.exactness,
        line: weaker.line.clone(),
        gap: weaker.gap,
        plan: plan_row(1, &weaker.candidate, &ranking.goal),
    });
    let approaches = ranking.approaches.iter().map(|leader| {
        let plan = leader.candidate.as_ref().map(|best| plan_row(1, best, &ranking.goal));
        ApproachRow { approach: leader.approach, gap: leader.gap, plan }
    });
    let space = ranking.space.decisions.iter().map(|(name, values)| {
        (*name, TriedValues { values: values.clone(), number: values.len() })
    });
    Document {
        format: FORMAT,
        objective: ranking.goal.objective.name(),
        exactness: ranking.allowed,
        workload: Workload::new(program, ranking),
        plans: plans
            .map(|(rank, candidate)| plan_row(rank, candidate, &ranking.goal))
            .collect(),
        weaker: weaker.collect(),
        approaches: approaches.collect(),
        space: space.collect(),
        combinations: ranking.space.combinations,
        excluded: ranking.space.dropped.clone(),
        candidates: ranking.candidates,
        pruned: ranking.pruned,
        clocked: ranking.clocked,
        optimal: ranking.is_optimal(),
        gap: ranking.gap(),
        rewriting: ranking.rewriting.clone(),
        sharding: ranking.sharding.clone(),
        elapsed_s: ranking.elapsed.as_secs_f64(),
        notes: Vec::new(),
        front: None,
        explain: None,
    }
}

/// The operations that go each way.
fn maps(plan: &roundelay_schedule::Plan) -> BTreeMap<MapWay, Vec<u32>> {
    let ways = plan.maps.by_way().into_iter();
    ways.map(|(way, sites)| (way, sites.iter().collect())).collect()
}

fn sites((rewrite, sites): (Rewrite, &Sites)) -> (Rewrite, Vec<u32>) {
    (rewrite, sites.iter().collect())
}

pub(crate) fn plan_row(rank: usize, candidate: &Candidate, goal: &Goal) -> PlanRow {
    let (plan, time) = (&candidate.plan, candidate.step_time);
    let Origins { measured, scaled, guessed } = candidate.origins;
    let pool = |(name, used): (&String, &crate::search::candidate::PoolUse)| {
        let (live_peak_bytes, arena_bytes) = (used.live_peak.0, used.arena.0);
        (name.clone(), PoolRow { live_peak_bytes, arena_bytes })
    };
    PlanRow {
        rank,
        rule: plan.rule,
        exactness: plan.exactness(),
        placement: plan.placement,
        order: plan.order,
        replicas: plan.replicas,
        chunks: plan.chunks,
        slices: plan.slices,
        shards: plan.shards,
        stages: plan.stages,
        cuts: plan.cuts.clone(),
        ties: plan.ties.clone(),
        micro_batches: plan.micro_batches,
        states: plan.states,
        tensor: TensorRow {
            rows: plan.tensor.rows,
            columns: plan.tensor.columns,
            overdecompose: plan.tensor.overdecompose,
            depth: plan.depth(),
            contraction: plan.tensor.contraction,
        },
        sequence: plan.tensor.sequence,
        images: plan.tensor.images,
        recompute: recompute(&plan.recompute),
        rewrites: plan.rewrites.iter().map(sites).collect(),
        maps: maps(plan),
        devices: plan.devices.len(),
        first_device: plan.first_device(),
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
        calls: CallCounts { measured, scaled, guessed },
        lower_bound_s: seconds(candidate.bound.step_time()),
        cost_per_step_usd: goal.cost(plan, time).map(FemtoDollars::dollars),
        cost_per_million_samples_usd: goal.cost_of_a_million(plan, time),
        steps_to_result: goal.steps_to_result(plan),
        time_to_result_s: goal.time_to_result(plan, time).map(seconds),
    }
}

impl Document {
    /// The document with what [`crate::remarks`] says.
    pub fn with_notes(self, notes: Vec<String>) -> Self {
        Self { notes, ..self }
    }

    /// The document with a front.
    pub fn with_front(self, front: &Front, goal: &Goal) -> Self {
        let rows = (1..).zip(&front.plans);
        let part = FrontPart {
            plans: rows.map(|(rank, plan)| plan_row(rank, plan, goal)).collect(),
            complete: front.is_complete(),
            pruned: front.pruned,
            clocked: front.clocked,
            open: front.open,
            elapsed_s: front.elapsed.as_secs_f64(),
        };
        Self { front: Some(part), ..self }
    }

    /// The document with reasons.
    pub fn with_explanation(self, explanation: &Explanation) -> Self {
        let row = |what: &WhatIf| WhatIfRow {
            question: what.question.clone(),
            set: what.lines.clone(),
            plan: what.answer.plan().map(|answer| plan_row(1, answer, &what.goal)),
            mistake: what.answer.mistake().map(str::to_owned),
        };
        let reasons = explanation.plans.iter().map(|(_, reasons)| reasons.clone());
        let part = ExplainPart {
            binding: explanation.binding.clone(),
            reasons: reasons.collect(),
            cuts: explanation.cuts.clone(),
            what_if: explanation.what_if.iter().map(row).collect(),
            turns: explanation.turns.iter().map(row).collect(),
        };
        Self { explain: Some(part), ..self }
    }
}

#[cfg(test)]
mod tests;
