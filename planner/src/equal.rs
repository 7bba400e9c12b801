//! Plans of a space that another plan of it makes superfluous: the same, or never worse.

use crate::{counts::Counts, family::Family, laws::check_delay, values::Values};
use roundelay_dsl::Objective;
use roundelay_schedule::{Fold, Order, Placement, Rule, States, Timeline};
use std::collections::BTreeMap;

/// What is known of version maps: why a rule is superfluous for N and S on a timeline.
#[derive(Debug, Default)]
pub(crate) struct SameRules {
    known: BTreeMap<(Rule, bool, u32, u32), Option<String>>,
}

/// The plan of the space that makes this one superfluous: the same, or never worse.
pub(crate) fn equal(
    values: &Values,
    family: Family,
    counts: Counts,
    rules: &mut SameRules,
) -> Option<String> {
    let Counts { micro_batches: n, stages: s, .. } = counts;
    rules
        .find(values, family, n, s)
        .or_else(|| accumulating(values, family))
        .or_else(|| same_members(values, family, counts))
        .or_else(|| same_placement(values, family, counts))
}

/// Workers instead of replicas, or states that split as much.
fn same_members(values: &Values, family: Family, counts: Counts) -> Option<String> {
    let Counts { micro_batches: n, stages: s, replicas, shards, .. } = counts;
    let Family { rule, placement, states, .. } = family;
    let all = counts.all_micro_batches();
    let as_workers = || {
        replicas > 1
            && rule.is_synchronous()
            && values.micro_batches.contains(&all)
            && values.tries_replicas(all, 1)
            && values.stages(all).contains(&s)
    };
    match placement {
        Placement::Data | Placement::Shared if as_workers() => {
            return Some(format!("{all} workers without replicas are the same"));
        }
        Placement::Accumulate
            if n == 1
                && values.placements.contains(&Placement::Data)
                && values.orders.contains(&Order::Parallel)
                && as_workers() =>
        {
            return Some(format!("data with {all} workers is the same"));
        }
        // A worker with one micro-batch is a replica with one.
        Placement::Data
            if rule.is_synchronous()
                && replicas > 1
                && values.placements.contains(&Placement::Accumulate)
                && values.orders.contains(&Order::Sequential)
                && values.micro_batches.contains(&1)
                && values.tries_replicas(1, all)
                && values.stages(1).contains(&s) =>
        {
            return Some(format!("accumulate with {all} replicas is the same"));
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

impl SameRules {
    /// A rule that stands before this one and has the same versions.
    fn find(
        &mut self,
        values: &Values,
        family: Family,
        n: u32,
        s: u32,
    ) -> Option<String> {
        let (rule, timeline) = (family.rule, family.placement.timeline());
        if rule.is_synchronous() {
            return None;
        }
        let find = || {
            let own = rule.delays(timeline, n, s);
            if own.max() == 0 {
                return Some("no version lags behind, so this is rule sync".into());
            }
            let mut earlier = values.rules.iter().take_while(|other| **other != rule);
            let lawful = |other| check_delay(Family { rule: other, ..family }, n, s);
            let same = earlier.find(|other| {
                lawful(**other).is_ok() && other.delays(timeline, n, s) == own
            });
            same.map(|rule| format!("{rule} has the same version map"))
        };
        let key = (rule, timeline == Timeline::FlushFree, n, s);
        self.known.entry(key).or_insert_with(find).clone()
    }
}

/// A rule with delays where nothing overlaps.
fn accumulating(values: &Values, family: Family) -> Option<String> {
    let accumulates = family.placement == Placement::Accumulate;
    let delayed = !family.rule.is_synchronous() && values.rules.contains(&Rule::Sync);
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
    let sync = rule.is_synchronous();
    let parts = counts.tensor.parts();
    let one_device = counts.devices(family, values.lists) == replicas * parts;
    let simple = placement == Placement::Accumulate;
    let looped = counts.chunks != 1;
    let one_by_one = n == 1 || (sync && placement != Placement::Concurrent);
    // Parts of an arena fit one another by chance, so plans that keep as much may differ in memory.
    let by_time = values.objective != Objective::Memory;
    if one_device
        && by_time
        && !simple
        && !looped
        && one_by_one
        && tried(Placement::Accumulate, Order::Sequential)
    {
        return Some("accumulate is no worse on one device".into());
    }
    // Units of a local rule are stages at least, so the fewest that are listed may be too few.
    let fewer =
        rule == Rule::Sync && values.stages(n).first().is_some_and(|least| *least < s);
    let alike = !looped && !values.pinned && by_time;
    if one_device && replicas == 1 && fewer && alike {
        return Some("on one device cuts move nothing: fewer stages are the same".into());
    }
    if sync && placement == Placement::Shared {
        let workers = counts.all_micro_batches() > 1;
        if s == 1 && workers && tried(Placement::Data, Order::Parallel) {
            return Some("data is the same with one stage".into());
        }
        if n == 1 && tried(Placement::Pipeline, Order::Gpipe) {
            return Some("pipeline is the same with one micro-batch".into());
        }
    }
    let late = n == 1
        && rule == Rule::Sync
        && order.is_of_pipelines()
        && order.fold() == Fold::Loop
        && order != Order::Gpipe
        && !order.splits_backward()
        && !looped;
    if late && tried(Placement::Pipeline, Order::Gpipe) {
        return Some("gpipe is the same with one micro-batch".into());
    }
    (n == 1 && order.is_found() && tried(Placement::Pipeline, Order::ZeroBubbleH1))
        .then(|| "zb_h1 is the same with one micro-batch".into())
}

#[cfg(test)]
mod tests;
