//! Plans of a space that another plan of it makes superfluous: the same, or never worse.

use crate::space::{counts::Counts, family::Family, laws::check_delay, values::Values};
use roundelay_dsl::Objective;
use roundelay_schedule::{Fold, Order, Placement, Rule, States};
use std::{collections::BTreeMap, fmt};

/// What of a space makes a plan superfluous.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Superior {
    /// Rule sync, for no version lags behind.
    NoLag,
    /// A rule with the same versions.
    SameVersions(Rule),
    /// Rule sync, for nothing overlaps.
    NoOverlap,
    /// So many workers.
    Workers(u32),
    /// So many workers with their own data.
    DataWorkers(u32),
    /// So many replicas.
    Replicas(u32),
    /// Replicated states, for groups of one split nothing.
    WholeStates,
    /// ZeRO-3, for one group has all replicas.
    WholeGroup,
    /// Micro-batches one after another, for there is one device.
    OneDevice,
    /// Placement data, for there is one stage.
    OneStage,
    /// A pipeline, for there is one micro-batch.
    OneInPipeline,
    /// Another order, for there is one micro-batch.
    OneMicroBatch(Order),
    /// The same plan, for its stages are pinned.
    Pinned,
}

impl fmt::Display for Superior {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLag => f.write_str("no version lags behind, so this is rule sync"),
            Self::SameVersions(rule) => write!(f, "{rule} has the same version map"),
            Self::NoOverlap => f.write_str(
                "a delay saves nothing where nothing overlaps: sync is no worse",
            ),
            Self::Workers(n) => {
                write!(f, "{n} workers without replicas are the same")
            }
            Self::DataWorkers(n) => write!(f, "data with {n} workers is the same"),
            Self::Replicas(n) => write!(f, "accumulate with {n} replicas is the same"),
            Self::WholeStates => {
                f.write_str("groups of one split nothing: replicated is no worse")
            }
            Self::WholeGroup => f.write_str("one group of all replicas is zero3"),
            Self::OneDevice => f.write_str("accumulate is no worse on one device"),
            Self::OneStage => f.write_str("data is the same with one stage"),
            Self::OneInPipeline => {
                f.write_str("pipeline is the same with one micro-batch")
            }
            Self::OneMicroBatch(order) => {
                write!(f, "{order} is the same with one micro-batch")
            }
            Self::Pinned => f.write_str("every stage is pinned"),
        }
    }
}

/// What is known of version maps in one family: why its rule is superfluous for N and S.
#[derive(Debug, Default)]
pub(crate) struct SameRules {
    known: BTreeMap<(u32, u32), Option<Superior>>,
}

/// The plan of the space that makes this one superfluous: the same, or never worse.
pub(crate) fn equal(
    values: &Values,
    family: Family,
    counts: Counts,
    rules: &mut SameRules,
) -> Option<Superior> {
    let Counts { micro_batches: n, stages: s, .. } = counts;
    rules
        .find(values, family, n, s)
        .or_else(|| accumulating(values, family))
        .or_else(|| same_members(values, family, counts))
        .or_else(|| same_device(values, family, counts))
        .or_else(|| same_rings(values, family, counts))
        .or_else(|| same_order(values, family, counts))
}

/// Workers instead of replicas, or states that split as much.
fn same_members(values: &Values, family: Family, counts: Counts) -> Option<Superior> {
    let Counts { micro_batches: n, stages: s, replicas, shards, .. } = counts;
    let Family { rule, placement, states, .. } = family;
    let all = counts.all_micro_batches();
    let as_workers = || {
        replicas > 1
            && rule.is_synchronous()
            && values.micro_batches.contains(&all)
            && values.tries_replicas(all, 1)
            && values.tries_stages(all, s)
    };
    match placement {
        Placement::Data | Placement::Shared if as_workers() => {
            return Some(Superior::Workers(all));
        }
        Placement::Accumulate
            if n == 1
                && values.placements.contains(&Placement::Data)
                && values.orders.contains(&Order::Parallel)
                && as_workers() =>
        {
            return Some(Superior::DataWorkers(all));
        }
        // A worker with one micro-batch is a replica with one.
        Placement::Data
            if rule.is_synchronous()
                && replicas > 1
                && values.placements.contains(&Placement::Accumulate)
                && values.orders.contains(&Order::Sequential)
                && values.micro_batches.contains(&1)
                && values.tries_replicas(1, all)
                && values.tries_stages(1, s) =>
        {
            return Some(Superior::Replicas(all));
        }
        _ => {}
    }
    let tried = |states| values.states.contains(&states);
    match (states, shards) {
        (States::Hsdp, 1) if tried(States::Replicated) => Some(Superior::WholeStates),
        (States::Hsdp, _) if shards == counts.members(family) && tried(States::Zero3) => {
            Some(Superior::WholeGroup)
        }
        _ => None,
    }
}

impl SameRules {
    /// A rule that stands before this one and has the same versions.
    fn find(
        &mut self,
        values: &Values,
        family: Family,
        n: u32,
        s: u32,
    ) -> Option<Superior> {
        let (rule, timeline) = (family.rule, family.placement.timeline());
        if rule.is_synchronous() {
            return None;
        }
        let find = || {
            if rule.stalest(timeline, n, s).all(|delay| delay == 0) {
                return Some(Superior::NoLag);
            }
            let mut earlier = values.rules.iter().take_while(|other| **other != rule);
            let lawful = |other| check_delay(Family { rule: other, ..family }, n, s);
            let same = earlier.find(|other| {
                lawful(**other).is_ok() && rule.delays_like(**other, timeline, n, s)
            });
            same.map(|rule| Superior::SameVersions(*rule))
        };
        *self.known.entry((n, s)).or_insert_with(find)
    }
}

/// A rule with delays where nothing overlaps.
fn accumulating(values: &Values, family: Family) -> Option<Superior> {
    let accumulates = family.placement == Placement::Accumulate;
    let delayed = !family.rule.is_synchronous() && values.rules.contains(&Rule::Sync);
    (accumulates && delayed).then_some(Superior::NoOverlap)
}

/// Whether a placement and an order are both among what is tried.
fn tried(values: &Values, placement: Placement, order: Order) -> bool {
    values.placements.contains(&placement) && values.orders.contains(&order)
}

/// Whether micro-batches one after another are tried with this many stages, which then are neither
/// chunks nor in slices.
fn accumulates(values: &Values, family: Family, stages: u32) -> bool {
    let (placement, order) = (Placement::Accumulate, Order::Sequential);
    let family = Family { placement, order, ..family };
    tried(values, placement, order)
        && values.slices(family).contains(&1)
        && values.chunks(family, stages).contains(&1)
}

/// On one device nothing is gained by a placement that moves things. Stages stay a choice: each
/// frees its gradients before the next one has any.
fn same_device(values: &Values, family: Family, counts: Counts) -> Option<Superior> {
    let Counts { micro_batches: n, stages: s, replicas, .. } = counts;
    let Family { rule, placement, order, .. } = family;
    let parts = counts.tensor.parts();
    // Parts of an arena fit one another by chance, so plans that keep as much may differ in memory;
    // whoever looks for the front asks by memory.
    let by_time = values.objective != Objective::Memory;
    // Slices keep less at a time, so they may fit where whole sequences do not.
    let whole = counts.slices == 1;
    let alone = counts.devices(family, values.lists) == replicas * parts;
    if !(alone && by_time && whole) {
        return None;
    }
    let sync = rule.is_synchronous();
    let looped = counts.chunks != 1;
    // One micro-batch goes there and back through all chunks of its device, whatever the order; on
    // a wave each does so before the next one starts.
    let one_way = n == 1 && !order.splits_backward();
    let in_turn = !looped || one_way || order == Order::Wave;
    let one_by_one = n == 1 || (sync && placement != Placement::Concurrent);
    // Without a flush sums over replicas hide behind the next step.
    let hides = !sync && replicas > 1 && placement == Placement::Pipeline;
    let moves = placement != Placement::Accumulate;
    (moves && in_turn && one_by_one && !hides && accumulates(values, family, s))
        .then_some(Superior::OneDevice)
}

/// A ring of devices per stage turns nothing where there is one stage, or one micro-batch.
fn same_rings(values: &Values, family: Family, counts: Counts) -> Option<Superior> {
    let Counts { micro_batches: n, stages: s, .. } = counts;
    if !family.rule.is_synchronous() || family.placement != Placement::Shared {
        return None;
    }
    let workers = counts.all_micro_batches() > 1;
    if s == 1 && workers && tried(values, Placement::Data, Order::Parallel) {
        return Some(Superior::OneStage);
    }
    (n == 1 && tried(values, Placement::Pipeline, Order::Gpipe))
        .then_some(Superior::OneInPipeline)
}

/// One micro-batch passes a pipeline in one way, whatever its order, unless it flows in slices.
fn same_order(values: &Values, family: Family, counts: Counts) -> Option<Superior> {
    let Family { rule, order, .. } = family;
    if counts.micro_batches != 1 || counts.slices != 1 {
        return None;
    }
    let late = rule == Rule::Sync
        && order.is_of_pipelines()
        && order.fold() == Fold::Loop
        && order != Order::Gpipe
        && !order.splits_backward()
        && counts.chunks == 1;
    let plain = |order| tried(values, Placement::Pipeline, order);
    if late && plain(Order::Gpipe) {
        return Some(Superior::OneMicroBatch(Order::Gpipe));
    }
    (order.is_found() && plain(Order::ZeroBubbleH1))
        .then_some(Superior::OneMicroBatch(Order::ZeroBubbleH1))
}

#[cfg(test)]
mod tests;
