//! The search space as data: every plan to try, and every combination that is no plan, with the
//! reason.

use crate::{
    counts::Counts,
    cuts::{Chain, Uncuttable, cut},
    family::{Clash, Family},
    reason::{PASSES_MAX, Reason},
    tied::Tied,
    values::Values,
};
use roundelay_dsl::{Choice, Program};
use roundelay_schedule::{
    DeviceList, Fold, Misfit, Order, Placement, Plan, Recompute, Rule, Sequence, States,
    Tensor, list_faults,
};
use std::collections::BTreeMap;

/// What is searched.
#[derive(Clone, Debug, Default)]
pub struct Space {
    /// Name and values of every decision, in the order of the search.
    pub decisions: Vec<(&'static str, Vec<String>)>,
    /// Number of combinations of these values.
    pub combinations: u64,
    /// Plans to try, in the order of the search.
    pub plans: Vec<Plan>,
    /// Combinations that are no plan to try.
    pub excluded: Vec<Excluded>,
    /// What parameters with several users leave of the cut points.
    pub tied: Option<Tied>,
}

/// Combinations that are no plan to try.
#[derive(Clone, Debug, PartialEq)]
pub struct Excluded {
    /// The decisions without a number.
    pub family: Family,
    /// The numbers.
    pub sizes: Sizes,
    /// Why.
    pub reason: Reason,
}

/// The numbers of an exclusion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sizes {
    /// All that are tried.
    All,
    /// These.
    One(Counts),
}

impl Space {
    /// Enumerates rule × placement × order × states, then N, S, v, R and shards, then what all
    /// stages compute again that the program does not pin; the cuts follow from the chain of
    /// the micro-batch size. `chain` gives the node list for a number of examples on one of the
    /// devices that split tensors, or why there is none.
    pub fn new(
        program: &Program,
        chain: impl Fn(u32, Tensor) -> Result<Chain, Reason>,
    ) -> Self {
        let values = Values::new(program);
        let families = Family::all(
            &values.rules,
            &values.placements,
            &values.orders,
            &values.states,
        );
        let mut filler = Filler {
            program,
            values: &values,
            cutter: Cutter {
                program,
                chain,
                chains: BTreeMap::new(),
                known: BTreeMap::new(),
            },
            plans: Vec::new(),
            excluded: Vec::new(),
            combinations: 0,
        };
        for family in &families {
            filler.fill(*family);
        }
        let Filler { plans, excluded, cutter, combinations, .. } = filler;
        let mut chains = cutter.chains.values().filter_map(|chain| chain.as_ref().ok());
        let tied = chains.next().and_then(|chain| Tied::new(&program.model, chain));
        Self { decisions: values.described(), combinations, plans, excluded, tied }
    }
}

/// Walks through the combinations and sorts them into plans and exclusions.
struct Filler<'a, C> {
    program: &'a Program,
    values: &'a Values,
    cutter: Cutter<'a, C>,
    plans: Vec<Plan>,
    excluded: Vec<Excluded>,
    combinations: u64,
}

impl<C: Fn(u32, Tensor) -> Result<Chain, Reason>> Filler<'_, C> {
    fn fill(&mut self, family: Family) {
        let counts = self.values.counts(family);
        self.combinations += counts.len() as u64;
        if let Err(clash) = family.check(&self.program.train.optimizer) {
            if self.is_asked_for(clash) {
                let reason = Reason::Clash(clash);
                self.excluded.push(Excluded { family, sizes: Sizes::All, reason });
            }
            return;
        }
        for counts in counts {
            match self.plan(family, counts) {
                Ok(plan) => {
                    let plans = recomputing(self.program, &self.values.recompute, &plan);
                    self.plans.extend(plans);
                }
                Err(reason) => {
                    let sizes = Sizes::One(counts);
                    self.excluded.push(Excluded { family, sizes, reason });
                }
            }
        }
    }

    /// Whether somebody may wonder about a clash: orders and states that are left open follow
    /// rule and placement without a word.
    fn is_asked_for(&self, clash: Clash) -> bool {
        let search = &self.program.search;
        match clash {
            Clash::WrongOrder { .. } => search.order != Choice::Open,
            Clash::StatesNeedMembers(_)
            | Clash::StatesNeedOneHolder(_)
            | Clash::HandoffNeedsWorkers
            | Clash::ShardsNeedSync(_)
            | Clash::HandoffNeedsCyclic => search.states != Choice::Open,
            Clash::ClipNeedsWholeGradient(_) => true,
        }
    }

    fn plan(&mut self, family: Family, counts: Counts) -> Result<Plan, Reason> {
        let Family { rule, placement, order, states } = family;
        let Counts { micro_batches: n, stages: s, chunks, replicas, shards, tensor } =
            counts;
        check_sizes(self.program, family, counts, &self.program.search.lists)?;
        let pins = self.program.search.pinned.iter().map(|pin| pin.last);
        if let Some(stage) = pins.filter(|last| *last >= s).max() {
            return Err(Reason::NoStage { stage });
        }
        let cuts = self.cutter.cuts((counts.all_micro_batches(), tensor), s)?;
        check_delay(family, n, s)?;
        check_devices(self.program, family, counts)?;
        if let Some(equal) = equal(self.values, family, counts) {
            return Err(Reason::Equal(equal));
        }
        let lists = match order {
            Order::Listed => self.program.search.lists.clone(),
            _ => Vec::new(),
        };
        Ok(Plan::new(rule, placement, order, states, n, cuts)
            .with_chunks(chunks)
            .with_lists(lists)
            .with_tensor(tensor)
            .replicated(replicas, shards))
    }
}

/// A plan with each way to compute again, least first; each once.
pub(crate) fn recomputing(
    program: &Program,
    values: &[Recompute],
    plan: &Plan,
) -> Vec<Plan> {
    let mut plans: Vec<Plan> = Vec::new();
    for recompute in values {
        let mut next = plan.clone().recomputing(*recompute);
        for pin in &program.search.pinned {
            let stages = pin.first as usize..=pin.last as usize;
            next.recompute[stages].fill(pin.recompute);
        }
        if !plans.contains(&next) {
            plans.push(next);
        }
    }
    plans
}

/// Whether the numbers make sense for a family in this program; cheap checks first, so that no
/// number is too large for the later ones.
///
/// # Errors
/// The first thing that does not go.
pub(crate) fn check_sizes(
    program: &Program,
    family: Family,
    counts: Counts,
    lists: &[DeviceList],
) -> Result<(), Reason> {
    let Counts { micro_batches: n, stages: s, .. } = counts;
    let (batch, all) = (program.train.batch, counts.all_micro_batches());
    if all == 0 || !batch.is_multiple_of(all) {
        return Err(Reason::Indivisible { batch });
    }
    let nodes = u32::try_from(program.model.cuttable()).unwrap_or(u32::MAX);
    if s == 0 || s > nodes {
        let tied = Vec::new();
        return Err(Reason::Uncuttable(Uncuttable { stages: s, most: nodes, tied }));
    }
    let passes = u64::from(n) * u64::from(s);
    if passes > PASSES_MAX {
        return Err(Reason::TooLong { passes });
    }
    if family.placement == Placement::Data && all == 1 {
        return Err(Reason::OneWorker);
    }
    check_tensor(program, counts.tensor)?;
    check_order(family, counts, lists)?;
    check_replicas(family, counts)
}

/// Whether tensors can be split like this, whatever the model.
fn check_tensor(program: &Program, tensor: Tensor) -> Result<(), Reason> {
    match tensor {
        Tensor { rows: 0, .. } | Tensor { rows: 1, sequence: Sequence::Split } => {
            Err(Reason::NoRows)
        }
        Tensor { rows: 2.., .. } if program.train.optimizer.clip > 0.0 => {
            Err(Reason::ClipNeedsWholeTensors)
        }
        _ => Ok(()),
    }
}

/// Whether the order is defined for the numbers.
fn check_order(
    family: Family,
    counts: Counts,
    lists: &[DeviceList],
) -> Result<(), Reason> {
    let Counts { micro_batches: n, stages: s, chunks, replicas, .. } = counts;
    if family.placement != Placement::Pipeline {
        return if chunks == 1 { Ok(()) } else { Err(Reason::Misfit(Misfit::Chunks(1))) };
    }
    if family.order == Order::Listed {
        let faults = list_faults(lists, s, n);
        let first = faults.into_iter().next();
        return first.map_or(Ok(()), |fault| Err(Reason::Refused(fault.to_string())));
    }
    family.order.fits(chunks, s, n).map_err(Reason::Misfit)?;
    match (family.order.fold(), replicas) {
        (Fold::Mirror, 2..) => Err(Reason::MirroredReplicas),
        _ => Ok(()),
    }
}

/// Whether a family has so many replicas, and shards of them.
fn check_replicas(family: Family, counts: Counts) -> Result<(), Reason> {
    let members = counts.members(family);
    let apart = matches!(family.placement, Placement::Data | Placement::Shared);
    if counts.replicas > 1 && apart && family.rule != Rule::Sync {
        return Err(Reason::ReplicasNeedSync);
    }
    match family.states {
        States::Replicated | States::Handoff => {}
        States::Zero1 | States::Zero2 | States::Zero3 | States::Hsdp => {
            if members == 1 {
                return Err(Reason::OneReplica);
            }
        }
    }
    let split = counts.shards == 1 || family.states == States::Hsdp;
    if counts.shards == 0 || !members.is_multiple_of(counts.shards) || !split {
        return Err(Reason::UnevenShards { members });
    }
    Ok(())
}

/// Whether the delay of a rule is long enough for its placement.
///
/// # Errors
/// The least N for which it is.
pub(crate) fn check_delay(family: Family, n: u32, s: u32) -> Result<(), Reason> {
    if family.placement == Placement::Pipeline
        && family.rule == Rule::CyclicV1
        && n + 1 < s
    {
        return Err(Reason::DelayTooShort { least: s - 1 });
    }
    Ok(())
}

/// Whether the cluster and the program have the devices that a family takes.
fn check_devices(
    program: &Program,
    family: Family,
    counts: Counts,
) -> Result<(), Reason> {
    let available = u32::try_from(program.target.devices.len()).unwrap_or(u32::MAX);
    let needed = counts.devices(family, program.search.lists.len());
    if needed > available {
        return Err(Reason::TooFewDevices { needed, available });
    }
    if !program.search.devices.allows(u64::from(needed)) {
        return Err(Reason::DevicesNotAllowed { needed });
    }
    Ok(())
}

/// The plan of the space that makes this one superfluous: the same, or never worse.
fn equal(values: &Values, family: Family, counts: Counts) -> Option<String> {
    let Counts { micro_batches: n, stages: s, .. } = counts;
    same_rule(values, family, n, s)
        .or_else(|| same_members(values, family, counts))
        .or_else(|| same_placement(values, family, counts))
}

/// Workers instead of replicas, or states that split as much.
fn same_members(values: &Values, family: Family, counts: Counts) -> Option<String> {
    let Counts { micro_batches: n, stages: s, replicas, shards, .. } = counts;
    let Family { rule, placement, states, .. } = family;
    let all = counts.all_micro_batches();
    let as_workers = replicas > 1
        && rule == Rule::Sync
        && values.micro_batches.contains(&all)
        && values.replicas(all).contains(&1)
        && values.stages(all).contains(&s);
    match placement {
        Placement::Data | Placement::Shared if as_workers => {
            return Some(format!("{all} workers without replicas are the same"));
        }
        Placement::Accumulate
            if as_workers
                && n == 1
                && values.placements.contains(&Placement::Data)
                && values.orders.contains(&Order::Parallel) =>
        {
            return Some(format!("data with {all} workers is the same"));
        }
        _ => {}
    }
    let tried = |states| values.states.contains(&states);
    match (states, shards) {
        (States::Hsdp, 1) if tried(States::Replicated) => {
            Some("groups of one split nothing: replicated is no worse".into())
        }
        (States::Hsdp, _) if shards == counts.members(family) && tried(States::Zero3) => {
            Some("one group of all replicas is zero3".into())
        }
        _ => None,
    }
}

/// A stricter rule with the same versions, or one that is no slower.
fn same_rule(values: &Values, family: Family, n: u32, s: u32) -> Option<String> {
    let delays = |rule: Rule| rule.delays(family.placement.timeline(), n, s);
    if family.rule != Rule::Sync && delays(family.rule).max() == 0 {
        return Some("no version lags behind, so this is rule sync".into());
    }
    let same_map = |rule: &&Rule| delays(**rule) == delays(family.rule);
    let mut earlier = values.rules.iter().take_while(|rule| **rule != family.rule);
    if let Some(rule) = earlier.find(same_map) {
        return Some(format!("{rule} has the same version map"));
    }
    let accumulates = family.placement == Placement::Accumulate;
    let delayed = family.rule != Rule::Sync && values.rules.contains(&Rule::Sync);
    (accumulates && delayed)
        .then(|| "a delay saves nothing where nothing overlaps: sync is no worse".into())
}

/// A simpler placement, order or cut that does the same.
fn same_placement(values: &Values, family: Family, counts: Counts) -> Option<String> {
    let Counts { micro_batches: n, stages: s, replicas, .. } = counts;
    let tried = |placement, order| {
        values.placements.contains(&placement) && values.orders.contains(&order)
    };
    let Family { rule, placement, order, .. } = family;
    let sync = rule == Rule::Sync;
    let rows = counts.tensor.rows;
    let one_device = counts.devices(family, values.lists) == replicas * rows;
    let simple = placement == Placement::Accumulate;
    let one_by_one = n == 1 || (sync && placement != Placement::Concurrent);
    if one_device
        && !simple
        && one_by_one
        && tried(Placement::Accumulate, Order::Sequential)
    {
        return Some("accumulate is no worse on one device".into());
    }
    let fewer = values.stages(n).first().is_some_and(|least| *least < s);
    if sync && one_device && replicas == 1 && fewer {
        return Some("on one device cuts move nothing: fewer stages are the same".into());
    }
    if sync && placement == Placement::Shared {
        if s == 1 && tried(Placement::Data, Order::Parallel) {
            return Some("data is the same with one stage".into());
        }
        if n == 1 && tried(Placement::Pipeline, Order::Gpipe) {
            return Some("pipeline is the same with one micro-batch".into());
        }
    }
    let late = n == 1
        && order.is_of_pipelines()
        && order.fold() == Fold::Loop
        && order != Order::Gpipe
        && !order.splits_backward()
        && counts.chunks == 1;
    (late && tried(Placement::Pipeline, Order::Gpipe))
        .then(|| "gpipe is the same with one micro-batch".into())
}

/// Number of micro-batches, and how tensors are split.
type Grain = (u32, Tensor);

/// Finds cuts, once per grain and S.
struct Cutter<'a, C> {
    program: &'a Program,
    chain: C,
    chains: BTreeMap<Grain, Result<Chain, Reason>>,
    known: BTreeMap<(Grain, u32), Result<Vec<u32>, Reason>>,
}

impl<C: Fn(u32, Tensor) -> Result<Chain, Reason>> Cutter<'_, C> {
    fn cuts(&mut self, grain: Grain, s: u32) -> Result<Vec<u32>, Reason> {
        if let Some(known) = self.known.get(&(grain, s)) {
            return known.clone();
        }
        let (n, tensor) = grain;
        let examples = self.program.train.batch / n;
        let chain = self.chains.entry(grain);
        let chain = chain.or_insert_with(|| (self.chain)(examples, tensor));
        let find = |chain: &Chain| match &self.program.search.cuts {
            Some(cuts) => check_cuts(chain, cuts, s).map(|()| cuts.clone()),
            None => cut(chain, s).map_err(Reason::Uncuttable),
        };
        let found = chain.as_ref().map_err(Clone::clone).and_then(find);
        self.known.insert((grain, s), found.clone());
        found
    }
}

/// Whether `cuts` cut a chain into `stages` stages.
///
/// # Errors
/// What is wrong with them.
pub(crate) fn check_cuts(chain: &Chain, cuts: &[u32], stages: u32) -> Result<(), Reason> {
    let nodes = chain.times.len();
    let wrong = |text: String| Err(Reason::WrongCuts(text));
    if cuts.len() + 1 != stages as usize {
        return wrong(format!("{} cuts make {} stages", cuts.len(), cuts.len() + 1));
    }
    if !cuts.is_sorted_by(|one, next| one < next) {
        return wrong("cuts must ascend".into());
    }
    for cut in cuts.iter().map(|cut| *cut as usize) {
        if cut == 0 || cut >= nodes {
            return wrong(format!("cut {cut} is not between 1 and {}", nodes - 1));
        }
        if let Some(tie) = chain.tie_at(cut) {
            let name = &tie.parameter;
            return wrong(format!("cut {cut} parts nodes that share {name}"));
        }
    }
    Ok(())
}
