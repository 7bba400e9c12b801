//! Where a program is cut, and what its stages take at least by the costs of single nodes: once
//! for each number of micro-batches, way to split tensors, number of stages and their devices, before any stage is made.

use crate::{
    costs::{
        calls::{Costs, Kinds, On},
        core::{Core, stages_between},
        load::{LoadError, update_of},
        memory::Room,
        nodes::{Nodes, Split, Times},
    },
    parallel::parallel,
    space::{
        cuts::{Apart, Chain, Messages, Speeds, Uneven, Users, cut, until_loss},
        laws::check_cuts,
        reason::Reason,
        spread::Spread,
    },
};
use roundelay_dsl::Program;
use roundelay_schedule::{
    Bytes, DeviceId, DeviceList, Fold, Id, Images, Levels, LinkId, Nanos, Sequence,
    Tensor, Tie as StageTie, listed_in,
};
use std::collections::{BTreeMap, BTreeSet};

/// What one pass works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Grain {
    /// Micro-batches of all replicas.
    pub micro_batches: u32,
    /// How tensors are split.
    pub tensor: Tensor,
}

/// What decides where a plan is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CutKey {
    /// Of every pass.
    pub grain: Grain,
    /// How many.
    pub stages: u32,
    /// Whether they may part the users of a parameter.
    pub users: Users,
    /// Where they are.
    pub seating: Seating,
}

/// Where stages are, as far as it makes a difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Seating {
    /// Their devices where they have several.
    pub seats: Option<Seats>,
    /// What messages between these cost.
    pub messages: Messages,
    /// All devices at all coordinates, where there are several kinds, or where the first one is not
    /// that of the cluster.
    pub spread: Option<Spread>,
    /// Bytes that [`ELEMENTS`] elements of a stage take at rest, where devices differ in memory.
    pub held: Option<Bytes>,
}

impl CutKey {
    /// The same stages, if messages between them are hidden.
    pub(crate) fn hidden(&self) -> Self {
        Self { seating: Seating { messages: Messages::Hidden, ..self.seating }, ..*self }
    }
}

/// So many elements are asked for what each of them takes.
pub(crate) const ELEMENTS: u64 = 1 << 20;

/// Whether devices differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceSorts {
    /// All are alike.
    One,
    /// In what they take for a kernel, or in memory.
    Several,
}

impl DeviceSorts {
    /// Those of a program.
    pub(crate) fn of(costs: &Costs, room: &Room) -> Self {
        match costs.kinds() > 1 || room.is_uneven() {
            true => Self::Several,
            false => Self::One,
        }
    }
}

/// Which device of a cell has which stage: of several, in this direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Seats {
    pub fold: Fold,
    pub devices: u32,
}

impl Seats {
    /// The device of a stage; where its list says it, as if it were in turn.
    pub(crate) fn of(self, stage: u32) -> u32 {
        let (turn, rank) = (stage / self.devices, stage % self.devices);
        match self.fold {
            Fold::Snake if turn % 2 == 1 => self.devices - 1 - rank,
            Fold::Snake | Fold::Loop | Fold::Mirror | Fold::Lists => rank,
        }
    }

    /// How many of this many stages a device has; at most, where a program has these lists.
    fn stages_of_one(self, stages: u32, lists: &[DeviceList]) -> u64 {
        let chunks = u64::from(stages / self.devices.max(1)).max(1);
        let listed = |list: &DeviceList| {
            let stages: BTreeSet<_> = listed_in(list).map(|own| own.stage).collect();
            stages.len() as u64
        };
        match self.fold {
            Fold::Loop | Fold::Snake => chunks,
            Fold::Mirror => 2 * chunks,
            Fold::Lists => lists.iter().map(listed).max().unwrap_or(1).max(1),
        }
    }

    /// The link at each cut between this many stages from this device on; none between stages of one
    /// device.
    fn links(
        self,
        levels: &Levels<'_>,
        (first, tensor): (u32, Tensor),
        stages: u32,
    ) -> Vec<Option<LinkId>> {
        let number = |stage| first + self.of(stage) * tensor.parts();
        let device = |stage| DeviceId::new(number(stage) as usize);
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
    /// The kinds of devices of each stage, where there are several.
    pub kinds: Vec<Kinds>,
    /// Forward and backward pass of each stage.
    pub passes: InARow,
    /// Forward, and what the backward pass makes for the stage before where it is in halves.
    pub turns: InARow,
    /// Which stages use the same parameters.
    pub ties: Vec<StageTie>,
    /// Elements at least of each stage's own parameters, without padding.
    pub elements: Vec<u64>,
    /// Whether the backward pass of every stage that has parameters reads some.
    pub reads: bool,
    /// Elements of all stages, and of the largest one.
    pub all: u64,
    pub largest: u64,
    /// What the update of each stage takes at least: by the law of the roofline, as large a part of
    /// the update of all as its elements are of all. A table may say less.
    pub updates: Vec<Nanos>,
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

/// What cuts are found by.
#[derive(Clone, Copy)]
pub(crate) struct Basis<'a> {
    pub program: &'a Program,
    pub core: &'a Core,
    pub costs: &'a Costs,
    pub room: &'a Room,
}

impl Basis<'_> {
    fn sorts(self) -> DeviceSorts {
        DeviceSorts::of(self.costs, self.room)
    }
}

/// Cuts by what decides them, or why there are none.
#[derive(Debug, Default)]
pub(crate) struct Cuttings {
    known: BTreeMap<CutKey, Result<usize, Reason>>,
    /// Those that differ.
    distinct: Vec<Cutting>,
    /// The nodes of the short model, for each way to split tensors where they are known.
    pub nodes: BTreeMap<Tensor, Nodes>,
}

impl Cuttings {
    /// All that are wanted; independent ones on several threads.
    pub(crate) fn new(basis: Basis<'_>, wanted: &BTreeSet<CutKey>) -> Self {
        let program = basis.program;
        let grains: BTreeSet<Grain> = wanted.iter().map(|key| key.grain).collect();
        let grains: Vec<Grain> = grains.into_iter().collect();
        let levels = Levels::new(&program.target);
        let (nodes, chains) = chains(basis, &grains);
        let mut groups: BTreeMap<(Grain, u32, Users), Vec<Seating>> = BTreeMap::new();
        for CutKey { grain, stages, users, seating } in wanted {
            groups.entry((*grain, *stages, *users)).or_default().push(*seating);
        }
        let groups: Vec<_> = groups.into_iter().collect();
        let found = parallel(&groups, &|((grain, stages, users), seatings)| {
            let costed = chains[grain].as_ref().map_err(Clone::clone)?;
            let chain = costed.chain.clone().with(*users);
            let cutter = Cutter {
                program,
                levels: &levels,
                costed,
                chain: &chain,
                tensor: grain.tensor,
                stages: *stages,
                balanced: None,
                apart: BTreeMap::new(),
            };
            cut_all(cutter, basis, seatings)
        });
        let mut cuttings = Self { nodes, ..Self::default() };
        for (((grain, stages, users), seatings), found) in groups.into_iter().zip(found) {
            let first = cuttings.distinct.len();
            let of = match found {
                Ok((distinct, of)) => {
                    cuttings.distinct.extend(distinct);
                    of.into_iter().map(|own| Ok(first + own)).collect()
                }
                Err(reason) => vec![Err(reason); seatings.len()],
            };
            let counts = seatings.into_iter().map(|seating| CutKey {
                grain,
                stages,
                users,
                seating,
            });
            cuttings.known.extend(counts.zip(of));
        }
        cuttings
    }

    /// The cuts for these numbers.
    ///
    /// # Errors
    /// Why there are none.
    pub(crate) fn get(&self, key: CutKey) -> Result<&Cutting, Reason> {
        self.number(key).map(|number| &self.distinct[number])
    }

    /// What decides cuts that are elsewhere if messages are hidden.
    pub(crate) fn differ(&self) -> BTreeSet<CutKey> {
        let of = |key: &CutKey| self.known.get(key)?.as_ref().ok();
        let differs = |key: &CutKey| {
            let found = of(key).zip(of(&key.hidden()));
            found.is_some_and(|(own, hidden)| own != hidden)
        };
        self.known.keys().copied().filter(differs).collect()
    }

    /// The number of these cuts: equal ones of as many stages and micro-batches have one.
    ///
    /// # Errors
    /// Why there are none.
    pub(crate) fn number(&self, key: CutKey) -> Result<usize, Reason> {
        self.known.get(&key).expect("all numbers of the space were cut").clone()
    }
}

/// The cuts of a chain for each way to seat its stages: those that differ, and which each way has.
fn cut_all(
    mut cutter: Cutter<'_>,
    basis: Basis<'_>,
    seatings: &[Seating],
) -> Result<(Vec<Cutting>, Vec<usize>), Reason> {
    let Basis { program, costs, room, .. } = basis;
    let Cutter { costed, chain, stages, .. } = cutter;
    let lists = &program.search.lists;
    let mut all = Vec::with_capacity(seatings.len());
    for seating in seatings {
        let spread = seating.spread.filter(|_| basis.sorts() == DeviceSorts::Several);
        let each = |spread: Spread| {
            spread.each_stage(stages, lists, |devices| costs.kinds_of(devices))
        };
        let kinds: Vec<Kinds> = spread.map(each).unwrap_or_default();
        let rooms = |(spread, held): (Spread, Bytes)| {
            let several =
                seating.seats.map_or(1, |seats| seats.stages_of_one(stages, lists));
            let elements = |own: Bytes| {
                let all = u128::from(own.0) * u128::from(ELEMENTS)
                    / u128::from(held.0.max(1) * several);
                u64::try_from(all).unwrap_or(u64::MAX)
            };
            spread.each_stage(stages, lists, |devices| elements(room.least(devices)))
        };
        let rooms: Vec<u64> = spread.zip(seating.held).map(rooms).unwrap_or_default();
        all.push((cutter.cut(*seating, (&kinds, &rooms))?, kinds));
    }
    let mut distinct = all.clone();
    distinct.sort_unstable();
    distinct.dedup();
    let of = all.iter().map(|own| distinct.partition_point(|other| other < own));
    let of = of.collect();
    let cutting = |(cuts, kinds)| Cutting::at((costed, chain), cuts, kinds);
    Ok((distinct.into_iter().map(cutting).collect(), of))
}

/// Cuts one chain for all ways to seat this many stages.
struct Cutter<'a> {
    program: &'a Program,
    levels: &'a Levels<'a>,
    costed: &'a CostedChain,
    /// Its chain, whose users may be apart.
    chain: &'a Chain,
    tensor: Tensor,
    stages: u32,
    /// Balanced cuts of stages that are alike, once they are known.
    balanced: Option<Vec<u32>>,
    /// By the kinds of devices of the stages, and for how many elements they have room.
    apart: BTreeMap<(Vec<Kinds>, Vec<u64>), Apart>,
}

impl Cutter<'_> {
    fn cut(
        &mut self,
        seating: Seating,
        (kinds, rooms): (&[Kinds], &[u64]),
    ) -> Result<Vec<u32>, Reason> {
        let Self { program, levels, costed, chain, tensor, stages, .. } = *self;
        if let Some(cuts) = &program.search.cuts {
            check_cuts(chain, cuts, stages)?;
            return Ok(cuts.clone());
        }
        let Some(seats) = seating.seats else { return self.balanced() };
        let (times, elements) = (&costed.weights, &costed.elements);
        let speeds = match kinds {
            [] => Speeds::Alike,
            kinds => Speeds::Uneven(Uneven { times, kinds, elements, rooms }),
        };
        let key = (kinds.to_vec(), rooms.to_vec());
        if !self.apart.contains_key(&key) {
            let new = match speeds {
                Speeds::Alike => Apart::of_alike(chain, stages, self.balanced()?),
                speeds @ Speeds::Uneven(_) => {
                    Apart::new(chain, stages, speeds).map_err(Reason::Uncuttable)?
                }
            };
            self.apart.insert(key.clone(), new);
        }
        let first = seating.spread.map_or(0, Spread::first);
        let links = seats.links(levels, (first, tensor), stages);
        let best = self.apart[&key].best(chain, seating.messages, |cut, bytes| {
            let link = links[cut].map(|link| &program.target.links[link]);
            let bytes = own_part(tensor, bytes);
            link.map_or(Nanos(0), |link| link.transfer_time(bytes))
        });
        Ok(best.to_vec())
    }

    fn balanced(&mut self) -> Result<Vec<u32>, Reason> {
        match &self.balanced {
            Some(cuts) => Ok(cuts.clone()),
            None => {
                let cuts = cut(self.chain, self.stages).map_err(Reason::Uncuttable)?;
                Ok(self.balanced.insert(cuts).clone())
            }
        }
    }
}

/// A chain, what its nodes take at least, the elements of their own parameters, and whether their
/// backward passes read parameters.
struct CostedChain {
    chain: Chain,
    /// On the fastest devices.
    least: NodeTimes,
    /// On each kind of device, where devices differ.
    kinds: Vec<NodeTimes>,
    /// The weights of all nodes on each of them, as the chain has those on the fastest.
    weights: Vec<Vec<Nanos>>,
    elements: Vec<u64>,
    reads: Vec<bool>,
    update: Nanos,
}

/// What each node takes at least, in both directions and until others go on.
struct NodeTimes {
    passes: Vec<Nanos>,
    turns: Vec<Nanos>,
}

/// The nodes of each way to split tensors, and the chain of each grain.
fn chains(
    basis: Basis<'_>,
    grains: &[Grain],
) -> (BTreeMap<Tensor, Nodes>, BTreeMap<Grain, Result<CostedChain, Reason>>) {
    let Basis { program, core, costs, .. } = basis;
    let examples = |grain: &Grain| program.train.batch / grain.micro_batches;
    let mut sizes: BTreeMap<Tensor, Vec<u32>> = BTreeMap::new();
    for grain in grains {
        sizes.entry(grain.tensor).or_default().push(examples(grain));
    }
    let splits = splits(basis, sizes);
    let kinds = match basis.sorts() {
        DeviceSorts::One => 0,
        DeviceSorts::Several => costs.kinds(),
    };
    let places = core.nodes(&program.model);
    let uncosted = Chain::uncosted(&program.model);
    let costing = Costing { program, costs, kinds, places, uncosted };
    let chain = |grain: &Grain| {
        let split = splits[&grain.tensor].as_ref().map_err(Reason::refused)?;
        let nodes = split.of(examples(grain)).map_err(Reason::refused)?;
        costing.chain(nodes, examples(grain)).map_err(Reason::refused)
    };
    let chains = parallel(grains, &chain);
    let chains = grains.iter().copied().zip(chains).collect();
    let widest = |(tensor, split): (Tensor, Result<Split, LoadError>)| {
        Some((tensor, split.ok()?.into_widest()?))
    };
    (splits.into_iter().filter_map(widest).collect(), chains)
}

/// The nodes of each way to split tensors, for micro-batches of these sizes.
fn splits(
    Basis { program, core, costs, .. }: Basis<'_>,
    sizes: BTreeMap<Tensor, Vec<u32>>,
) -> BTreeMap<Tensor, Result<Split, LoadError>> {
    let model = (program, &core.model);
    let sizes: Vec<(Tensor, Vec<u32>)> = sizes.into_iter().collect();
    let found =
        parallel(&sizes, &|(tensor, sizes)| Split::new(model, (sizes, *tensor), costs));
    sizes.into_iter().map(|(tensor, _)| tensor).zip(found).collect()
}

/// What makes costed chains of a model.
struct Costing<'a> {
    program: &'a Program,
    costs: &'a Costs,
    /// How many kinds of devices are told apart.
    kinds: usize,
    /// The node of the short model for each of the model.
    places: Vec<usize>,
    uncosted: Chain,
}

impl Costing<'_> {
    /// The chain for micro-batches of one size, by the nodes of the short model.
    fn chain(&self, nodes: &Nodes, examples: u32) -> Result<CostedChain, LoadError> {
        let Self { program, costs, kinds, places, uncosted } = self;
        let (model, dtype) = (&program.model, program.train.dtype);
        let times = |on| {
            let Times { weights, passes, turns } = nodes.times(examples, on, costs);
            let of_each = |of: Vec<Nanos>| places.iter().map(|at| of[*at]).collect();
            [weights, passes, turns].map(of_each)
        };
        let each = (0..*kinds).map(|kind| {
            let [weights, passes, turns]: [Vec<Nanos>; 3] = times(On::Kind(kind));
            (NodeTimes { passes, turns }, until_loss(weights, model.cuttable()))
        });
        let (kinds, of_kinds) = each.unzip();
        let elements: Vec<u64> = places.iter().map(|at| nodes.elements[*at]).collect();
        let update = match program.profiles.is_empty() {
            true => update_of(program, elements.iter().sum::<u64>().max(1), costs)?,
            false => Nanos(0),
        };
        let [weights, passes, turns] = times(On::Any);
        Ok(CostedChain {
            chain: uncosted.taking(model, weights, examples.into(), dtype),
            least: NodeTimes { passes, turns },
            kinds,
            weights: of_kinds,
            elements,
            reads: places.iter().map(|at| nodes.reads[*at]).collect(),
            update,
        })
    }
}

impl Cutting {
    fn at(
        (costed, chain): (&CostedChain, &Chain),
        cuts: Vec<u32>,
        kinds: Vec<Kinds>,
    ) -> Self {
        let CostedChain { elements, reads, update, .. } = costed;
        let stages: Vec<_> = stages_between(&cuts, elements.len()).collect();
        let own = stages.iter().cloned();
        let mut elements: Vec<u64> =
            own.clone().map(|own| elements[own].iter().sum()).collect();
        let updated: u64 = elements.iter().sum();
        for (tie, StageTie(users)) in chain.parted(&cuts) {
            let first = &mut elements[users[0] as usize];
            *first = first.saturating_sub(tie.elements);
        }
        let read = own.clone().map(|own| reads[own].contains(&true));
        let reads = read.zip(&elements).all(|(reads, elements)| reads || *elements == 0);
        let in_a_row = |times: fn(&NodeTimes) -> &[Nanos]| {
            let own = own.clone().enumerate().map(|(stage, own)| {
                let of = |all: &NodeTimes| times(all)[own.clone()].iter().copied().sum();
                match kinds.get(stage) {
                    Some(kinds) => kinds.slowest(|kind| of(&costed.kinds[kind])),
                    None => of(&costed.least),
                }
            });
            InARow::new(own.collect())
        };
        let most = elements.iter().copied().enumerate().max_by_key(|(_, own)| *own);
        let (widest, largest) = most.unwrap_or_default();
        let all: u64 = elements.iter().sum();
        let part = |own: &u64| {
            let part =
                u128::from(update.0) * u128::from(*own) / u128::from(updated.max(1));
            Nanos(u64::try_from(part).unwrap_or(u64::MAX))
        };
        Self {
            all,
            reads,
            largest,
            updates: elements.iter().map(part).collect(),
            widest,
            linked: chain.links(&cuts),
            ties: chain.stage_ties(&cuts),
            passes: in_a_row(|times| &times.passes),
            turns: in_a_row(|times| &times.turns),
            elements,
            cuts,
            kinds,
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
mod tests;
