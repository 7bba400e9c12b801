//! Laws of numbers: which of them a family has in a program, before any cost is known.

use crate::space::{
    counts::Counts,
    cuts::{Chain, InsideUnits, Uncuttable},
    family::Family,
    reason::{PASSES_MAX, Reason},
};
use roundelay_dsl::{Numbers, Program};
use roundelay_schedule::{
    DeviceList, LANES_MAX, MICRO_BATCHES_MAX, Misfit, Order, Placement, Rule, States,
    counted, list_faults,
};

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
    check_direction(family, counts)?;
    let Counts { micro_batches: n, stages: s, .. } = counts;
    let (batch, all) = (program.train.batch, counts.all_micro_batches());
    if all == 0 || !batch.is_multiple_of(all) {
        return Err(Reason::Indivisible { batch });
    }
    let nodes = u32::try_from(program.model.cuttable()).unwrap_or(u32::MAX);
    if s == 0 || s > nodes {
        let tied = Vec::new();
        return Err(Reason::Uncuttable(Uncuttable {
            stages: s,
            least: 1,
            most: nodes,
            inside: InsideUnits::Cut,
            tied,
        }));
    }
    if n > MICRO_BATCHES_MAX {
        return Err(Reason::ManyMicroBatches { micro_batches: n });
    }
    if family.placement == Placement::Concurrent && n > LANES_MAX {
        return Err(Reason::ManyLanes { micro_batches: n });
    }
    let passes = (u64::from(n) * u64::from(s)).saturating_mul(counts.slices.into());
    if passes > PASSES_MAX {
        return Err(Reason::TooLong { passes, most: PASSES_MAX });
    }
    check_tensor(program, counts)?;
    check_order(family, counts, lists)?;
    // No number of workers makes up for what came before.
    if family.placement == Placement::Data && all == 1 {
        return Err(Reason::OneWorker);
    }
    check_replicas(family, counts)
}

/// Whether pipelines in opposite directions are asked to have replicas, which no sizes would give them.
fn check_direction(family: Family, counts: Counts) -> Result<(), Reason> {
    match family.is_mirrored() && counts.replicas > 1 {
        true => Err(Reason::MirroredReplicas),
        false => Ok(()),
    }
}

/// Whether tensors can be split like this, whatever the model.
fn check_tensor(program: &Program, counts: Counts) -> Result<(), Reason> {
    check_halves(program, counts)?;
    let tensor = counts.tensor;
    tensor.check_slices(counts.slices)?;
    tensor.check_parts()?;
    tensor.check_contraction()?;
    Ok(tensor.check_images()?)
}

/// Whether the examples of a micro-batch can be taken in halves.
fn check_halves(program: &Program, counts: Counts) -> Result<(), Reason> {
    counts.tensor.check_halves()?;
    let examples = program.train.batch / counts.all_micro_batches().max(1);
    match examples.is_multiple_of(counts.tensor.overdecompose) {
        true => Ok(()),
        false => Err(Reason::OddHalves { examples }),
    }
}

/// Whether the order is defined for the numbers.
fn check_order(
    family: Family,
    counts: Counts,
    lists: &[DeviceList],
) -> Result<(), Reason> {
    let Counts { micro_batches: n, stages: s, chunks, slices, .. } = counts;
    family.order.fits_slices(slices).map_err(Reason::Misfit)?;
    if family.placement != Placement::Pipeline {
        return if chunks == 1 { Ok(()) } else { Err(Reason::Misfit(Misfit::Chunks(1))) };
    }
    if family.order == Order::Listed {
        let faults = list_faults(lists, s, n);
        let first = faults.into_iter().next();
        return first.map_or(Ok(()), |fault| Err(Reason::WrongLists(fault.to_string())));
    }
    family.order.fits(chunks, s, n).map_err(Reason::Misfit)
}

/// Whether a family has this many replicas.
fn check_replicas(family: Family, counts: Counts) -> Result<(), Reason> {
    let members = counts.members(family);
    family.placement.check_replicas(family.rule, counts.replicas)?;
    match family.states {
        States::Replicated | States::Handoff => {}
        States::Zero1 | States::Zero2 | States::Zero3 | States::Hsdp => {
            if members == 1 {
                return Err(Reason::OneReplica);
            }
        }
    }
    Ok(())
}

/// Whether the replicas of a family split into this many shards.
///
/// # Errors
/// When they do not.
pub(crate) fn check_shards(family: Family, counts: Counts) -> Result<(), Reason> {
    Ok(family.states.check_shards(counts.shards, counts.members(family))?)
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

fn available(program: &Program) -> u32 {
    u32::try_from(program.target.devices.len()).unwrap_or(u32::MAX)
}

/// Whether the cluster has this many devices.
pub(crate) fn has_devices(program: &Program, needed: u32) -> Result<(), Reason> {
    let available = available(program);
    match needed > available {
        true => Err(Reason::TooFewDevices { needed, available }),
        false => Ok(()),
    }
}

/// Whether a window that ends here lies in a cluster that has enough devices for it.
pub(crate) fn check_end(program: &Program, end: u32) -> Result<(), Reason> {
    let available = available(program);
    match end > available {
        true => Err(Reason::BehindTheLast { end, available }),
        false => Ok(()),
    }
}

/// Whether the cluster has this many devices, and the program allows as many.
pub(crate) fn check_devices(program: &Program, needed: u32) -> Result<(), Reason> {
    has_devices(program, needed)?;
    match nearest(&program.search.devices, needed) {
        nearest if nearest == needed => Ok(()),
        nearest => {
            let available = available(program);
            Err(Reason::DevicesNotAllowed { needed, nearest, available })
        }
    }
}

/// The number that is allowed and nearest to another one, which is that one where it is allowed.
fn nearest(allowed: &Numbers, wanted: u32) -> u32 {
    let ranges = match allowed {
        Numbers::Open => return wanted,
        Numbers::Ranges(ranges) => ranges,
    };
    let bounded = |bound: u64| u32::try_from(bound).unwrap_or(u32::MAX);
    let inside = ranges
        .iter()
        .map(|(least, most)| wanted.max(bounded(*least)).min(bounded(*most)));
    inside.min_by_key(|number| number.abs_diff(wanted)).unwrap_or(0)
}

/// Whether `cuts` cut a chain into `stages` stages.
///
/// # Errors
/// What is wrong with them.
pub(crate) fn check_cuts(chain: &Chain, cuts: &[u32], stages: u32) -> Result<(), Reason> {
    let nodes = chain.times.len();
    let wrong = |text: String| Err(Reason::WrongCuts(text));
    if cuts.len() + 1 != stages as usize {
        let found = cuts.len() as u64;
        let made = counted(found + 1, "stage");
        return wrong(format!("{} make {made}", counted(found, "cut")));
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
    let is_cut = |at: &usize| cuts.iter().any(|cut| *cut as usize == *at);
    if let Some(missing) = chain.boundaries.iter().find(|at| !is_cut(at)) {
        return wrong(format!("a unit starts at {missing}, which must be a cut"));
    }
    if chain.inside == InsideUnits::Whole && cuts.len() > chain.boundaries.len() {
        let starts = &chain.boundaries;
        return wrong(format!(
            "a gradient hops back between units, so each is one stage: units start at {starts:?}"
        ));
    }
    Ok(())
}
