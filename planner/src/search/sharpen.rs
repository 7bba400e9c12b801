//! Sharper bounds for plans that are still open: from the costs of nodes to the stages' routines,
//! and from those to the lists of the devices. What plans share is made once.

use crate::{
    costs::{
        calls::Costs,
        core::Core,
        load::StageLoad,
        memory::Room,
        stages::{Cell, KnownStages, backward_form},
    },
    parallel::parallel,
    search::bound::{
        Bound, Lists, Network, held_by_elements, held_by_lists, held_by_nodes,
        held_by_stages, lists_of,
    },
    space::{
        counts::Counts,
        cuts::{Chain, Messages, Users},
        cutting::{
            Basis, CutKey, Cuttings, DeviceSorts, ELEMENTS, Grain, Seating, Seats,
        },
        family::Family,
        outline::Outline,
        reason::Reason,
    },
};
use roundelay_codegen::StageForm;
use roundelay_dsl::Program;
use roundelay_schedule::{
    Bytes, Fold, Id, Kind, Order, Placement, Plan, Recompute, Rule, Stage,
};
use std::collections::{BTreeMap, BTreeSet};

/// How many passes of lists are kept at one time, at most.
const PASSES_KEPT: usize = 1 << 22;

/// How many plans one thread asks where they are cut before it takes others.
const PART: usize = 1 << 14;

/// By what a bound was found; each step is sharper than the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sharpness {
    /// The costs of single nodes.
    Nodes,
    /// The routines of stages.
    Stages,
    /// The lists of devices, where the plan has them: no bound is sharper.
    Lists,
}

/// What decides what stages take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LoadKey {
    /// The number of their cuts.
    cutting: usize,
    recompute: Recompute,
    halves: Halves,
}

/// Which stages have their backward passes in halves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Halves {
    None,
    All,
    /// As the program's own lists say.
    Listed,
}

/// What decides the lists of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ListKey {
    placement: Placement,
    order: Order,
    micro_batches: u32,
    stages: u32,
    chunks: u32,
}

/// The bounds of a program's plans.
pub(crate) struct Bounds<'a> {
    program: &'a Program,
    differ: Differ,
    cuttings: Cuttings,
    network: Network<'a>,
    /// What devices may take.
    pub room: Room,
    stages: KnownStages<'a>,
    loads: BTreeMap<LoadKey, Result<Vec<StageLoad>, Reason>>,
    lists: BTreeMap<ListKey, Option<Lists>>,
    /// Passes of all lists.
    passes: usize,
}

impl<'a> Bounds<'a> {
    /// The bounds of these plans.
    pub(crate) fn new(program: &'a Program, costs: &'a Costs, plans: &[Outline]) -> Self {
        let room = Room::new(program);
        let (sorts, has_uneven_room) = (DeviceSorts::of(costs, &room), room.is_uneven());
        let has_ties = !Chain::uncosted(&program.model).ties.is_empty();
        let differ = Differ { sorts, has_uneven_room, has_ties };
        let wanted = wanted(program, plans, differ);
        let core = Core::new(program);
        let wanted = in_both_ways(program, wanted);
        let basis = Basis { program, core: &core, costs, room: &room };
        let cuttings = Cuttings::new(basis, &wanted);
        let stages = KnownStages::new(program, costs, core, &cuttings.nodes);
        Self {
            program,
            differ,
            stages,
            cuttings,
            network: Network::new(&program.target),
            room,
            loads: BTreeMap::new(),
            lists: BTreeMap::new(),
            passes: 0,
        }
    }

    /// The first bound of a plan.
    ///
    /// # Errors
    /// Why it is no plan.
    pub(crate) fn first(
        &self,
        outline: &Outline,
        network: &mut Network<'_>,
    ) -> Result<Bound, Reason> {
        let cutting = self.cuttings.get(self.cut_key(outline))?;
        let plan = outline.bare(self.program);
        if self.differ.has_uneven_room {
            self.has_room(outline, &held_by_nodes(self.program, &plan, cutting))?;
        }
        let bound = Bound::of_nodes(self.program, &plan, cutting, network);
        Ok(if outline.is_sliced() { bound.of_slices(self.program) } else { bound })
    }

    fn cut_key(&self, outline: &Outline) -> CutKey {
        cut_key(self.program, outline, self.differ)
    }

    /// Some plans, and beside each group of them that differ in what they compute again those that
    /// hide messages, if these are cut elsewhere.
    pub(crate) fn cut_apart(&self, plans: Vec<Outline>) -> Vec<Outline> {
        let differ = self.cuttings.differ();
        if differ.is_empty() {
            return plans;
        }
        let mut all = Vec::with_capacity(plans.len());
        for group in plans.chunk_by(Outline::is_alike) {
            all.extend(group);
            if differ.contains(&self.cut_key(&group[0])) {
                let hidden =
                    |own: &Outline| Outline { messages: Messages::Hidden, ..*own };
                all.extend(group.iter().map(hidden));
            }
        }
        all
    }

    /// Whether each device of a cell has room for what it holds at least, where devices differ in
    /// what they may take.
    fn has_room(&self, outline: &Outline, held: &[(Bytes, Kind)]) -> Result<(), Reason> {
        // Workers of their own do not all hold as much as the fullest.
        if outline.family.has_workers_apart() {
            return Ok(());
        }
        let fits = self.room.for_each(self.program, outline.spread(), held);
        fits.map_err(Reason::Memory)
    }

    /// The plan itself.
    ///
    /// # Errors
    /// Why it is no plan.
    pub(crate) fn plan(&self, outline: &Outline) -> Result<Plan, Reason> {
        let cutting = self.cuttings.get(self.cut_key(outline))?;
        Ok(outline.plan(self.program, &cutting.cuts).with_ties(cutting.ties.clone()))
    }

    /// The next sharper bounds of some plans, in their order.
    pub(crate) fn sharper(
        &mut self,
        open: &[(Outline, Bound, Sharpness)],
    ) -> Vec<Result<(Bound, Sharpness), Reason>> {
        let whole = open.iter().filter(|(outline, ..)| !outline.is_sliced());
        self.make_loads(whole.clone().map(|(outline, ..)| outline));
        let far = whole.filter(|(_, _, known)| *known == Sharpness::Stages);
        self.make_lists(far.map(|(outline, ..)| outline));
        open.iter()
            .map(|(outline, bound, known)| self.next(outline, *bound, *known))
            .collect()
    }

    /// The sharpest bound of a plan.
    ///
    /// # Errors
    /// Why it is no plan.
    pub(crate) fn sharpest(&mut self, outline: &Outline) -> Result<Bound, Reason> {
        let first = self.first(outline, &mut Network::new(&self.program.target))?;
        if !outline.is_sliced() {
            self.make_loads([outline].into_iter());
            self.make_lists([outline].into_iter());
        }
        let (next, sharpness) = self.next(outline, first, Sharpness::Nodes)?;
        Ok(self.next(outline, next, sharpness)?.0)
    }

    /// The next sharper bound of a plan whose loads and lists are made, as far as it needs them.
    fn next(
        &mut self,
        outline: &Outline,
        bound: Bound,
        known: Sharpness,
    ) -> Result<(Bound, Sharpness), Reason> {
        // What stages of slices take is not derived before they are clocked.
        if outline.is_sliced() {
            return Ok((bound, Sharpness::Lists));
        }
        let plan = outline.bare(self.program);
        let loads = self.loads[&self.load_key(outline)?].as_ref();
        let loads = loads.map_err(Clone::clone)?;
        match known {
            Sharpness::Nodes => {
                if self.differ.has_uneven_room {
                    for held in held_by_stages(&plan, loads) {
                        self.has_room(outline, &held)?;
                    }
                }
                let spread = outline.spread();
                let capacity = |seat| self.room.least(spread.at(seat));
                let network = &mut self.network;
                let next = Bound::of_stages(&plan, loads, network);
                let next = next.in_room(&plan, loads, capacity, network);
                Ok((bound.and(next), Sharpness::Stages))
            }
            Sharpness::Stages | Sharpness::Lists => {
                let lists = self.lists.get(&list_key(outline));
                let next = match lists.and_then(Option::as_ref) {
                    Some(lists) => {
                        if self.differ.has_uneven_room {
                            let held = held_by_lists(&plan, loads, lists);
                            self.has_room(outline, &held)?;
                        }
                        bound.following(&plan, loads, lists, &mut self.network)
                    }
                    None => bound,
                };
                Ok((next, Sharpness::Lists))
            }
        }
    }

    fn load_key(&self, outline: &Outline) -> Result<LoadKey, Reason> {
        let halves = match outline.family.order {
            Order::Listed => Halves::Listed,
            order if order.splits_backward() => Halves::All,
            _ => Halves::None,
        };
        let cutting = self.cuttings.number(self.cut_key(outline))?;
        Ok(LoadKey { cutting, recompute: outline.recompute, halves })
    }

    /// Makes the loads that are not yet known.
    fn make_loads<'b>(&mut self, outlines: impl Iterator<Item = &'b Outline>) {
        let wanted: BTreeMap<LoadKey, &Outline> = outlines
            .filter_map(|outline| Some((self.load_key(outline).ok()?, outline)))
            .filter(|(key, _)| !self.loads.contains_key(key))
            .collect();
        let cell = |outline: &&Outline| {
            let key = cut_key(self.program, outline, self.differ);
            let cutting = self.cuttings.get(key)?;
            let recompute = outline.recomputes(self.program);
            let form = |(stage, recompute): (usize, Recompute)| {
                let order = outline.family.order;
                let lists = &self.program.search.lists;
                let backward = backward_form(order, lists, Stage::new(stage));
                StageForm { backward, recompute }
            };
            let forms = recompute.into_iter().enumerate().map(form).collect();
            let Grain { micro_batches, tensor } = key.grain;
            let examples = self.program.train.batch / micro_batches;
            let (cuts, kinds) = (&cutting.cuts, &cutting.kinds);
            Ok(Cell { examples, tensor, cuts, forms, kinds })
        };
        let cells: Vec<Result<Cell<'_>, Reason>> = wanted.values().map(cell).collect();
        let found = self.stages.loads(&cells);
        self.loads.extend(wanted.into_keys().zip(found));
    }

    /// Makes the lists that are not yet known; forgets old ones where they are too many.
    fn make_lists<'b>(&mut self, outlines: impl Iterator<Item = &'b Outline>) {
        if self.passes > PASSES_KEPT {
            self.lists.clear();
            self.passes = 0;
        }
        let keys: BTreeMap<ListKey, &Outline> = outlines
            .filter(|outline| outline.family.rule == Rule::Sync)
            .map(|outline| (list_key(outline), outline))
            .collect();
        let wanted: Vec<(ListKey, &Outline)> =
            keys.into_iter().filter(|(key, _)| !self.lists.contains_key(key)).collect();
        let found =
            parallel(&wanted, &|(_, outline)| lists_of(&outline.bare(self.program)));
        for ((key, _), lists) in wanted.into_iter().zip(found) {
            self.passes += lists.as_ref().map_or(0, Lists::len);
            self.lists.insert(key, lists);
        }
    }
}

/// How the devices of a program differ.
#[derive(Clone, Copy, Debug)]
struct Differ {
    sorts: DeviceSorts,
    /// Whether they do in memory.
    has_uneven_room: bool,
    /// Whether several nodes of the model use one parameter.
    has_ties: bool,
}

/// What decides where the plans are cut; most are cut where the one before is.
fn wanted(program: &Program, plans: &[Outline], differ: Differ) -> BTreeSet<CutKey> {
    let parts: Vec<&[Outline]> = plans.chunks(PART).collect();
    let of_part = |part: &&[Outline]| {
        let mut last = None;
        let keys = part.iter().map(|outline| cut_key(program, outline, differ));
        let new = keys.filter(|key| last.replace(*key) != Some(*key));
        new.collect::<BTreeSet<CutKey>>()
    };
    parallel(&parts, &of_part).into_iter().flatten().collect()
}

/// The same for each way to count messages, where stages send some and the program has no cuts.
fn in_both_ways(program: &Program, mut wanted: BTreeSet<CutKey>) -> BTreeSet<CutKey> {
    if program.search.cuts.is_none() {
        let apart = wanted.iter().filter(|key| key.seating.seats.is_some());
        let hidden: Vec<CutKey> = apart.map(CutKey::hidden).collect();
        wanted.extend(hidden);
    }
    wanted
}

/// What decides where a plan is cut.
fn cut_key(program: &Program, outline: &Outline, differ: Differ) -> CutKey {
    let Counts { tensor, stages, chunks, first_device, .. } = outline.counts;
    let Family { placement, order, .. } = outline.family;
    let messages = outline.messages;
    let seats = match placement {
        Placement::Pipeline => {
            let devices = stages / chunks.max(1);
            (devices > 1).then_some(Seats { fold: order.fold(), devices })
        }
        Placement::Shared => {
            (stages > 1).then_some(Seats { fold: Fold::Loop, devices: stages })
        }
        Placement::Accumulate | Placement::Concurrent | Placement::Data => None,
    };
    // Where all are of one kind links alone may differ, and then from device to device.
    let differs = !outline.family.has_workers_apart()
        && (differ.sorts == DeviceSorts::Several || first_device > 0);
    let cut_apart = differ.has_uneven_room && seats.is_some();
    let held =
        cut_apart.then(|| held_by_elements(program, &outline.bare(program), ELEMENTS));
    let spread = differs.then(|| outline.spread());
    let seating = Seating { seats, messages, spread, held };
    let micro_batches = outline.counts.all_micro_batches();
    let users = match differ.has_ties {
        true => outline.users(program),
        false => Users::Together,
    };
    CutKey { grain: Grain { micro_batches, tensor }, stages, users, seating }
}

fn list_key(outline: &Outline) -> ListKey {
    let Counts { micro_batches, stages, chunks, .. } = outline.counts;
    let Family { placement, order, .. } = outline.family;
    ListKey { placement, order, micro_batches, stages, chunks }
}
