//! Lowers, prices, checks and clocks plans.

use crate::{
    costs::{
        calls::{self, Costs},
        measured::Origins,
        memory,
    },
    search::{
        bound::Bound,
        candidate::{Candidate, PoolUse},
        waiting,
    },
    space::reason::Reason,
};
use roundelay_codegen::Lowerer;
use roundelay_dsl::Program;
use roundelay_kernels::Kernels;
use roundelay_schedule::{
    Bytes, Checked, DeviceId, Kind, Plan, Schedule, check, simulate_steady,
};
use std::collections::BTreeMap;

/// Evaluates plans of a program.
pub(crate) struct Evaluator<'a> {
    pub(crate) program: &'a Program,
    pub(crate) costs: &'a Costs,
    pub(super) lowerer: Lowerer<'a>,
}

impl<'a> Evaluator<'a> {
    pub(crate) fn new(program: &'a Program, costs: &'a Costs) -> Self {
        Self { program, costs, lowerer: Lowerer::new(program, &costs.algebra) }
    }

    /// The plan with its costs, with the lists of its order where these are found: what is shown was
    /// lowered, checked and clocked. Its bound and its place in the order of the search stand beside.
    ///
    /// # Errors
    /// Why it is no plan after all.
    pub(crate) fn evaluate(
        &self,
        plan: &Plan,
        (bound, number): (Bound, usize),
    ) -> Result<Candidate, Reason> {
        let (checked, origins) = self.checked(&self.complete(plan)?)?;
        candidate((bound, number), &checked, (self.costs, origins))
    }

    /// The plan, whose lists are there where its order has some, lowered, priced and checked.
    ///
    /// # Errors
    /// Why it is no plan after all.
    pub(super) fn checked(&self, plan: &Plan) -> Result<(Checked, Origins), Reason> {
        let admit = |schedule: &Schedule| memory::fits(self.program, schedule);
        let lowered = self.lowerer.lower_if(plan, admit);
        let mut schedule = lowered.map_err(Reason::refused)?.map_err(Reason::Memory)?;
        let priced = calls::price_with(&mut schedule, self.costs);
        let origins = priced.map_err(Reason::refused)?;
        let checked = check(schedule, &Kernels);
        Ok((checked.map_err(|found| Reason::unproven(&found))?, origins))
    }
}

fn candidate(
    (bound, number): (Bound, usize),
    checked: &Checked,
    (costs, origins): (&Costs, Origins),
) -> Result<Candidate, Reason> {
    let run = simulate_steady(checked);
    if let Some(endless) = run.endless() {
        return Err(Reason::Endless(endless));
    }
    let cells = memory::cells(checked);
    let arena = memory::arenas(checked);
    let fullest = cells.values().max_by_key(|cell| arena(**cell)).copied();
    let facts = checked.facts();
    let sent: Bytes = facts.link_bytes.values().copied().sum();
    Ok(Candidate {
        plan: checked.plan.clone(),
        batch: checked.job.batch,
        step_time: run.step_time(),
        device_peak: fullest.map(&arena).unwrap_or_default(),
        memory: fullest.map(|cell| kinds(checked, cell)).unwrap_or_default(),
        pools: pools(checked, &cells, arena),
        comm_bytes_per_device: Bytes(sent.0.div_ceil(cells.len().max(1) as u64)),
        comm_rounds: facts.comm_rounds,
        bubble: run.bubble(),
        idle: waiting::idle(costs, checked, &run).map_err(Reason::refused)?,
        origins,
        bound,
        number,
    })
}

fn kinds(checked: &Checked, cell: DeviceId) -> BTreeMap<Kind, Bytes> {
    let bytes = |kind| (kind, checked.bytes_of(cell, kind));
    Kind::ALL.iter().copied().map(bytes).filter(|(_, bytes)| bytes.0 > 0).collect()
}

/// What the devices of each pool take together; a device that repeats one of the cell takes as
/// much.
fn pools(
    checked: &Checked,
    cells: &BTreeMap<DeviceId, DeviceId>,
    arena: impl Fn(DeviceId) -> Bytes,
) -> BTreeMap<String, PoolUse> {
    let live_peak = &checked.facts().device_live_peak;
    let labels = checked.target.pool_labels();
    let mut pools: BTreeMap<String, PoolUse> = BTreeMap::new();
    for (device, cell) in cells {
        let pool = checked.target.devices[*device].pool;
        let used = pools.entry(labels[pool].clone()).or_default();
        used.live_peak += live_peak.get(cell).copied().unwrap_or_default();
        used.arena += arena(*cell);
    }
    pools
}
