//! Where a program is cut, and what its stages take at least by the costs of single nodes: once
//! for each number of micro-batches, way to split tensors, number of stages and their devices, before any stage is made.

use crate::{
    bill::Reach,
    core::Core,
    cost::Costs,
    cuts::{Apart, Chain, cut},
    laws::check_cuts,
    load::{LoadError, update_of},
    nodes::{Nodes, Times},
    parallel::parallel,
    reason::Reason,
};
use roundelay_dsl::Program;
use roundelay_schedule::{
    Bytes, DeviceId, Fold, Id, Images, Levels, LinkId, Nanos, Sequence, Target, Tensor,
};
use std::collections::{BTreeMap, BTreeSet};

/// Micro-batches of all replicas, and how tensors are split.
type Grain = (u32, Tensor);

/// A grain, stages, and their devices where they have several.
pub(crate) type Count = (Grain, u32, Option<Seats>);

/// Which device of a cell has which stage: of several, in this direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Seats {
    pub fold: Fold,
    pub devices: u32,
}

impl Seats {
    /// The device of a stage; where its list says it, as if it were in turn.
    fn of(self, stage: u32) -> u32 {
        let (turn, rank) = (stage / self.devices, stage % self.devices);
        match self.fold {
            Fold::Snake if turn % 2 == 1 => self.devices - 1 - rank,
            Fold::Snake | Fold::Loop | Fold::Mirror | Fold::Lists => rank,
        }
    }

    /// The link at each cut between so many stages; none between stages of one device.
    fn links(self, target: &Target, tensor: Tensor, stages: u32) -> Vec<Option<LinkId>> {
        let levels = Levels::new(target);
        let device = |stage| DeviceId::new((self.of(stage) * tensor.parts()) as usize);
        let between = |cut| {
            let [one, other] = [cut - 1, cut].map(device);
            (one != other).then(|| levels.link_between(one, other)).flatten()
        };
        (1..stages).map(between).collect()
    }
}

/// The part of what crosses that each part of a grid sends.
fn own_part(tensor: Tensor, bytes: Bytes) -> Bytes {
    let is_split = tensor.sequence == Sequence::Split || tensor.images == Images::Split;
    let rows = if is_split { tensor.rows } else { 1 };
    Bytes(bytes.0.div_ceil(u64::from(rows * tensor.columns).max(1)))
}

/// A cut model by the costs of its nodes.
#[derive(Clone, Debug)]
pub(crate) struct Cutting {
    /// First node of every stage but the first.
    pub cuts: Vec<u32>,
    /// Forward and backward pass of each stage.
    pub passes: InARow,
    /// Forward, and what the backward pass makes for the stage before where it is in halves.
    pub turns: InARow,
    /// Elements of each stage's parameters, without padding.
    pub elements: Vec<u64>,
    /// Whether the backward pass of every stage that has parameters reads some.
    pub reads: bool,
    /// Elements of all stages, and of the largest one.
    pub all: u64,
    pub largest: u64,
    /// The update of all stages at once.
    pub update: Nanos,
    /// The largest stage.
    pub widest: usize,
    /// Whether every stage reads of the one before, and gives a gradient back.
    pub linked: bool,
}

/// What stages that follow each other take.
#[derive(Clone, Debug)]
pub(crate) struct InARow {
    /// Each of them.
    pub own: Vec<Nanos>,
    /// All before each.
    pub before: Vec<Nanos>,
    /// All of them.
    pub all: Nanos,
}

/// Cuts by what decides them, or why there are none.
#[derive(Debug, Default)]
pub(crate) struct Cuttings {
    known: BTreeMap<Count, Result<usize, Reason>>,
    /// Those that differ.
    distinct: Vec<Cutting>,
    /// The nodes of the short model, for each way to split tensors where they are known.
    pub nodes: BTreeMap<Tensor, Nodes>,
}

impl Cuttings {
    /// All that are wanted; independent ones on several threads.
    pub(crate) fn new(
        (program, core): (&Program, &Core),
        costs: &Costs,
        wanted: &BTreeSet<Count>,
        threads: usize,
    ) -> Self {
        let grains: BTreeSet<Grain> = wanted.iter().map(|(grain, ..)| *grain).collect();
        let grains: Vec<Grain> = grains.into_iter().collect();
        let (nodes, chains) = chains((program, core), costs, &grains, threads);
        let mut groups: BTreeMap<(Grain, u32), Vec<Option<Seats>>> = BTreeMap::new();
        for (grain, stages, seats) in wanted {
            groups.entry((*grain, *stages)).or_default().push(*seats);
        }
        let groups: Vec<_> = groups.into_iter().collect();
        let found = parallel(&groups, threads, &|((grain, stages), seats)| {
            let costed = chains[grain].as_ref().map_err(Clone::clone)?;
            cut_all(program, costed, (grain.1, *stages), seats)
        });
        let mut cuttings = Self { nodes, ..Self::default() };
        for (((grain, stages), seats), found) in groups.into_iter().zip(found) {
            let first = cuttings.distinct.len();
            let of = match found {
                Ok((distinct, of)) => {
                    cuttings.distinct.extend(distinct);
                    of.into_iter().map(|own| Ok(first + own)).collect()
                }
                Err(reason) => vec![Err(reason); seats.len()],
            };
            let counts = seats.into_iter().map(|seats| (grain, stages, seats));
            cuttings.known.extend(counts.zip(of));
        }
        cuttings
    }

    /// The cuts for these numbers.
    ///
    /// # Errors
    /// Why there are none.
    pub(crate) fn get(&self, count: Count) -> Result<&Cutting, Reason> {
        self.number(count).map(|number| &self.distinct[number])
    }

    /// The number of these cuts: equal ones of as many stages and micro-batches have one.
    ///
    /// # Errors
    /// Why there are none.
    pub(crate) fn number(&self, count: Count) -> Result<usize, Reason> {
        self.known.get(&count).expect("all numbers of the space were cut").clone()
    }
}

/// The cuts of a chain for each way to seat its stages: those that differ, and which each way has.
fn cut_all(
    program: &Program,
    costed: &CostedChain,
    (tensor, stages): (Tensor, u32),
    seats: &[Option<Seats>],
) -> Result<(Vec<Cutting>, Vec<usize>), Reason> {
    let chain = &costed.chain;
    if let Some(cuts) = &program.search.cuts {
        check_cuts(chain, cuts, stages)?;
        return Ok((vec![Cutting::at(costed, cuts.clone())], vec![0; seats.len()]));
    }
    if seats.iter().all(Option::is_none) {
        let cuts = cut(chain, stages).map_err(Reason::Uncuttable)?;
        return Ok((vec![Cutting::at(costed, cuts)], vec![0; seats.len()]));
    }
    let apart = Apart::new(chain, stages).map_err(Reason::Uncuttable)?;
    let best = |seats: &Option<Seats>| match seats {
        None => &apart.balanced[..],
        Some(seats) => {
            let links = seats.links(&program.target, tensor, stages);
            apart.best(chain, |cut, bytes| {
                let link = links[cut].map(|link| &program.target.links[link]);
                let bytes = own_part(tensor, bytes);
                link.map_or(Nanos(0), |link| link.transfer_time(bytes))
            })
        }
    };
    let cuts: Vec<&[u32]> = seats.iter().map(best).collect();
    let mut distinct = cuts.clone();
    distinct.sort_unstable();
    distinct.dedup();
    let of = cuts.iter().map(|own| distinct.partition_point(|other| other < own));
    let of = of.collect();
    Ok((distinct.into_iter().map(|own| Cutting::at(costed, own.to_vec())).collect(), of))
}

/// A chain, what its nodes take at least, the elements of their own parameters, and whether their
/// backward passes read parameters.
struct CostedChain {
    chain: Chain,
    passes: Vec<Nanos>,
    turns: Vec<Nanos>,
    elements: Vec<u64>,
    reads: Vec<bool>,
    update: Nanos,
}

/// The nodes of each way to split tensors, and the chain of each grain.
fn chains(
    (program, core): (&Program, &Core),
    costs: &Costs,
    grains: &[Grain],
    threads: usize,
) -> (BTreeMap<Tensor, Nodes>, BTreeMap<Grain, Result<CostedChain, Reason>>) {
    let examples = |grain: &Grain| program.train.batch / grain.0;
    let size = |grain: &Grain| (examples(grain), grain.1);
    let refused = |error: LoadError| Reason::Refused(error.to_string());
    let model = (program, &core.model);
    // Those for which lines hold come last, so that one of them stands for its way.
    let mut splits = grains.to_vec();
    splits.sort_by_key(|grain| Reach::Most.holds(examples(grain), grain.1));
    let splits: BTreeMap<Tensor, Grain> =
        splits.into_iter().map(|grain| (grain.1, grain)).collect();
    let splits: Vec<Grain> = splits.into_values().collect();
    let found = parallel(&splits, threads, &|grain| {
        Nodes::new(model, size(grain), costs).map_err(refused)
    });
    let tensors = splits.iter().map(|(_, tensor)| *tensor);
    let known: BTreeMap<Tensor, Result<Nodes, Reason>> = tensors.zip(found).collect();
    let places = core.nodes(&program.model);
    let uncosted = Chain::uncosted(&program.model);
    let chain = |grain: &Grain| {
        let of = |nodes: &Nodes| {
            let Times { weights, passes, turns } = nodes.times(examples(grain), costs);
            let [weights, passes, turns] = [weights, passes, turns]
                .map(|of| places.iter().map(|at| of[*at]).collect::<Vec<Nanos>>());
            let elements: Vec<u64> =
                places.iter().map(|at| nodes.elements[*at]).collect();
            let reads = places.iter().map(|at| nodes.reads[*at]).collect();
            let update = match program.profiles.is_empty() {
                true => update_of(program, elements.iter().sum::<u64>().max(1), costs)?,
                false => Nanos(0),
            };
            let (model, dtype) = (&program.model, program.train.dtype);
            let size = examples(grain).into();
            let chain = uncosted.taking(model, weights, size, dtype);
            Ok(CostedChain { chain, passes, turns, elements, reads, update })
        };
        match &known[&grain.1] {
            Ok(known) if known.reach.holds(examples(grain), grain.1) => of(known),
            _ => Nodes::of_one(model, size(grain), costs).and_then(|own| of(&own)),
        }
        .map_err(refused)
    };
    let chains = parallel(grains, threads, &chain);
    let chains = grains.iter().copied().zip(chains).collect();
    let known =
        known.into_iter().filter_map(|(tensor, nodes)| Some((tensor, nodes.ok()?)));
    (known.collect(), chains)
}

impl Cutting {
    /// What the update of one stage takes at least: by the law of the roofline, as large a part of
    /// the update of all as its elements are of all. A table may say less.
    pub(crate) fn update(&self, stage: usize) -> Nanos {
        let part = u128::from(self.update.0) * u128::from(self.elements[stage])
            / u128::from(self.all.max(1));
        Nanos(u64::try_from(part).unwrap_or(u64::MAX))
    }

    fn at(costed: &CostedChain, cuts: Vec<u32>) -> Self {
        let CostedChain { chain, passes, turns, elements, reads, update } = costed;
        let starts = std::iter::once(0).chain(cuts.iter().map(|cut| *cut as usize));
        let ends = cuts.iter().map(|cut| *cut as usize).chain([elements.len()]);
        let stages: Vec<_> = starts.zip(ends).map(|(first, end)| first..end).collect();
        let own = stages.iter().cloned();
        let elements: Vec<u64> =
            own.clone().map(|own| elements[own].iter().sum()).collect();
        let read = own.clone().map(|own| reads[own].contains(&true));
        let reads = read.zip(&elements).all(|(reads, elements)| reads || *elements == 0);
        let in_a_row = |times: &[Nanos]| {
            let own = own.clone().map(|own| times[own].iter().copied().sum());
            InARow::new(own.collect())
        };
        let most = elements.iter().copied().enumerate().max_by_key(|(_, own)| *own);
        let (widest, largest) = most.unwrap_or_default();
        Self {
            all: elements.iter().sum(),
            reads,
            largest,
            update: *update,
            widest,
            linked: chain.links(&cuts),
            passes: in_a_row(passes),
            turns: in_a_row(turns),
            elements,
            cuts,
        }
    }
}

impl InARow {
    fn new(own: Vec<Nanos>) -> Self {
        let mut all = Nanos(0);
        let before = own.iter().map(|time| {
            let before = all;
            all += *time;
            before
        });
        Self { before: before.collect(), all, own }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        sample,
        stages::{Cell, KnownStages},
    };
    use roundelay_codegen::StageForm;

    #[test]
    fn a_part_of_the_update_takes_no_more_than_its_stage() {
        let mut program = sample::program(4, 4);
        program.model = sample::gpt(14, 32, 16, false);
        let (costs, core) = (Costs::new(&program), Core::whole(&program));
        let counts = |tensor| (1..=9).map(move |stages| ((2, tensor), stages, None));
        let wanted: BTreeSet<Count> =
            sample::SPLITS.into_iter().flat_map(counts).collect();
        let cuttings = Cuttings::new((&program, &core), &costs, &wanted, 1);
        let mut known = KnownStages::new(&program, &costs, core, &cuttings.nodes);
        let mut compared = 0;
        for (grain, stages, seats) in wanted {
            let Ok(cutting) = cuttings.get((grain, stages, seats)) else { continue };
            let (examples, tensor) = (program.train.batch / grain.0, grain.1);
            let forms = vec![StageForm::default(); stages as usize];
            let cell = Cell { examples, tensor, cuts: &cutting.cuts, forms };
            for (stage, load) in known.load_of(cell).unwrap().iter().enumerate() {
                let part = cutting.update(stage);
                assert!(part <= load.update, "{part} {load:?}");
                compared += usize::from(part > Nanos(0));
            }
        }
        assert!(compared > 100, "only {compared} stages were compared");
    }
}
