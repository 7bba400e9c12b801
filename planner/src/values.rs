//! The values that each decision is tried with, in order.

mod numbers;
mod tensors;

pub(crate) use numbers::thinned;
pub(crate) use tensors::{has_sequences, has_windows};

use crate::{family::Family, grid::Grid, reason::Reason, windows::Windows};
use numbers::{Tried, divisors_of, listed, number, powers_of_two, sorted};
use roundelay_dsl::{
    Choice, Numbers, Objective, Operation, Program, Projections, Search,
};
use roundelay_schedule::{
    Contraction, Hop, Images, Order, Placement, Recompute, Rule, Sequence, States, Tensor,
};
use std::collections::BTreeSet;

/// Divisors of the batch up to this number are tried even when they are no power of two, as
/// micro-batches and as replicas.
const SMALL: u64 = 16;
/// Stages on one device that are tried when they are left open.
const OPEN_CHUNKS: [u32; 5] = [1, 2, 3, 4, 8];
/// Slices of each sequence that are tried when an order asks for some, and most of all.
const OPEN_SLICES: [u32; 4] = [2, 4, 8, 16];
const SLICES_MAX: u64 = 4096;
/// Micro-batches that are left open, at most, or so many for each device: more are tried only
/// when the program asks for them.
const OPEN_MICRO_BATCHES: u64 = 512;
const OPEN_MICRO_BATCHES_PER_DEVICE: u64 = 4;
/// Numbers of stages that are left open are at most so many, or one for each device, times the
/// chunks that are named.
const OPEN_STAGES: u64 = 64;
/// Numbers of stages that are left open keep N · S at or below this, or S at one per unit: more passes
/// in one period are tried only when the program asks for them.
const OPEN_PASSES: u64 = 8192;

/// What is tried for every decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Values {
    /// What is minimised.
    pub objective: Objective,
    /// Rules.
    pub rules: Vec<Rule>,
    /// Placements.
    pub placements: Vec<Placement>,
    /// Orders.
    pub orders: Vec<Order>,
    /// State placements.
    pub states: Vec<States>,
    /// What all stages compute again that the program does not pin.
    pub recompute: Vec<Recompute>,
    /// Numbers of micro-batches.
    pub micro_batches: Vec<u32>,
    /// Stages on one device of a pipeline.
    chunks: Tried,
    /// Slices of each sequence.
    slices: Tried,
    /// Open numbers of slices that divide the model's sequences.
    divisors: Vec<u32>,
    /// Lists of the order `listed`.
    pub lists: usize,
    stages: Stages,
    replicas: Replicas,
    shards: Numbers,
    depth: Numbers,
    /// Ways to split tensors.
    pub tensors: Vec<Tensor>,
    /// Devices that the innermost link levels join.
    domains: Vec<u32>,
    /// Where plans of fewer devices than all may begin.
    pub windows: Windows,
}

/// Numbers of replicas, which depend on N when they are left open.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Replicas {
    Open {
        /// Divisors of the number of devices, powers of two and small numbers.
        known: Vec<u32>,
        batch: u64,
    },
    Listed(Vec<u32>),
}

/// Numbers of stages, the same with every N: what is listed is tried, or counted with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stages {
    /// Powers of two, what divides the devices and twice that, multiples of the chunks that are named,
    /// and numbers of micro-batches.
    Open {
        known: Vec<u32>,
        /// Those among them that are numbers of micro-batches and nothing else.
        as_many: Vec<u32>,
        /// Units of a local rule are whole stages.
        units: u32,
    },
    Listed(Vec<u32>),
}

impl Values {
    /// What to try for a program. Open decisions take every value that is known; open numbers
    /// take powers of two, small divisors and the number of devices.
    pub(crate) fn new(program: &Program) -> Self {
        let Search {
            rule,
            placement,
            order,
            states,
            recompute,
            chunks,
            slices,
            cuts,
            shards,
            depth,
            ..
        } = &program.search;
        let stages = program.search.stages_to_try();
        let devices = usable_devices(program);
        let nodes = program.model.cuttable() as u64;
        let units = program.model.boundaries().len() as u64 + 1;
        let micro_batches = program.search.micro_batches_to_try();
        let micro_batches =
            micro_batch_counts(&micro_batches, u64::from(program.train.batch), devices);
        let chunks = Tried::new(chunks, nodes.max(1));
        // Other stages than those that pinned cuts make are refused by the law of cuts.
        let made = cuts.as_ref().map(|cuts| cuts.len() as u64 + 1);
        let stages = match (made.filter(|made| stages.allows(*made)), stages) {
            (Some(made), _) => Stages::Listed(vec![number(made)]),
            (None, Numbers::Open) if program.model.hop() != Hop::None => {
                Stages::Listed(vec![number(units)])
            }
            (None, Numbers::Open) => {
                Stages::open((nodes, units), devices, (&micro_batches, chunks.named()))
            }
            (None, Numbers::Ranges(ranges)) => {
                Stages::Listed(thinned(listed(&ranges, nodes.max(1))))
            }
        };
        Self {
            objective: program.search.objective,
            rules: one_of(rule, &known_rules()),
            placements: one_of(placement, Placement::ALL),
            orders: one_of(order, &known_orders(program)),
            states: one_of(states, States::ALL),
            recompute: ascending(one_of(recompute, Recompute::ALL)),
            micro_batches,
            chunks,
            slices: Tried::new(slices, SLICES_MAX),
            divisors: divisors(program),
            lists: program.search.lists.len(),
            stages,
            replicas: Replicas::new(program, devices),
            shards: shards.clone(),
            depth: depth.clone(),
            tensors: tensors::tensors(program, devices),
            domains: program
                .target
                .domains
                .iter()
                .map(|d| d.devices.len() as u32)
                .collect(),
            windows: Windows::new(program),
        }
    }

    /// Numbers of replicas to try with N micro-batches each.
    pub(crate) fn replicas(&self, micro_batches: u32) -> Vec<u32> {
        let fits = |r: &u32| self.replicas.fit(micro_batches, *r);
        self.replicas.known().iter().copied().filter(fits).collect()
    }

    /// Whether this number of replicas is among [`Values::replicas`].
    pub(crate) fn tries_replicas(&self, micro_batches: u32, replicas: u32) -> bool {
        self.replicas.known().contains(&replicas)
            && self.replicas.fit(micro_batches, replicas)
    }

    /// Numbers of shards to try where so many devices hold the same stages, each with `cell`
    /// devices of its own: open ones are those of the depths that are asked for, else those that
    /// fill a link level, and powers of two.
    pub(crate) fn shards(&self, members: u32, cell: u32) -> Vec<u32> {
        match (&self.shards, &self.depth) {
            (Numbers::Ranges(ranges), _) | (Numbers::Open, Numbers::Ranges(ranges)) => {
                thinned(listed(ranges, u64::from(members).max(1)))
            }
            (Numbers::Open, Numbers::Open) => {
                let inside = |shards: &u64| {
                    *shards > 1
                        && *shards < u64::from(members)
                        && u64::from(members).is_multiple_of(*shards)
                };
                let levels = self.domains.iter().map(|d| u64::from(d / cell.max(1)));
                let powers = powers_of_two(u64::from(members));
                sorted(levels.chain(powers).filter(inside))
            }
        }
    }

    /// Stages on one device to try; open ones are those for which the order is defined.
    pub(crate) fn chunks(&self, family: Family, stages: u32) -> Vec<u32> {
        // Lists say which stages a device has; one number of them is as good as any.
        if family.order == Order::Listed {
            return vec![self.chunks.named().first().copied().unwrap_or(1)];
        }
        if let Tried::Listed(values) = &self.chunks {
            return values.clone();
        }
        if family.placement != Placement::Pipeline {
            return vec![1];
        }
        let known = OPEN_CHUNKS.into_iter();
        let fits = |v: &u32| stages >= *v && family.order.fits_chunks(*v, stages).is_ok();
        let found: Vec<u32> = known.filter(fits).collect();
        if found.is_empty() { vec![1] } else { found }
    }

    /// Slices of each sequence to try. Open ones are for orders that take slices, which are tried
    /// where the program names them.
    pub(crate) fn slices(&self, family: Family) -> Vec<u32> {
        match (&self.slices, family.order.takes_slices()) {
            (Tried::Listed(values), _) => values.clone(),
            (Tried::Open, true) if !self.divisors.is_empty() => self.divisors.clone(),
            (Tried::Open, _) => vec![1],
        }
    }

    /// Every number of slices that is tried in some family.
    fn all_slices(&self) -> Vec<u32> {
        let each = self.kinds().into_iter().flat_map(|family| self.slices(family));
        sorted(each.map(u64::from))
    }

    /// Every number of stages on one device that is tried in some family.
    fn all_chunks(&self) -> Vec<u32> {
        let each = self.kinds().into_iter().flat_map(|family| {
            let chunks = |s: &u32| self.chunks(family, *s);
            self.stages().iter().flat_map(chunks).collect::<Vec<_>>()
        });
        sorted(each.map(u64::from))
    }

    /// One family of each placement and order.
    fn kinds(&self) -> Vec<Family> {
        let (rules, states) = (&self.rules[..1], &self.states[..1]);
        Family::all(rules, &self.placements, &self.orders, states)
    }

    /// Every number of replicas that is tried with some N.
    fn all_replicas(&self) -> Vec<u32> {
        let each = self.micro_batches.iter().flat_map(|n| self.replicas(*n));
        sorted(each.map(u64::from))
    }

    /// Numbers of stages to try.
    pub(crate) fn stages(&self) -> &[u32] {
        match &self.stages {
            Stages::Listed(values) | Stages::Open { known: values, .. } => values,
        }
    }

    /// Whether so many stages are tried with N micro-batches, if they are at all.
    ///
    /// # Errors
    /// Why they are not.
    pub(crate) fn check_stages(
        &self,
        micro_batches: u32,
        stages: u32,
    ) -> Result<(), Reason> {
        let Stages::Open { as_many, units, .. } = &self.stages else { return Ok(()) };
        let passes = u64::from(micro_batches) * u64::from(stages);
        if stages > *units && passes > OPEN_PASSES {
            return Err(Reason::TooLong { passes, most: OPEN_PASSES });
        }
        match stages != micro_batches && as_many.binary_search(&stages).is_ok() {
            true => Err(Reason::NotAsMany { stages }),
            false => Ok(()),
        }
    }

    /// Whether a number of stages is tried with N micro-batches.
    pub(crate) fn tries_stages(&self, micro_batches: u32, stages: u32) -> bool {
        self.stages().contains(&stages)
            && self.check_stages(micro_batches, stages).is_ok()
    }

    /// Name and values of every decision, as text, in the order in which tables name them.
    pub(crate) fn described(
        &self,
        grid: &Grid,
        depths: &BTreeSet<u32>,
    ) -> Vec<(&'static str, Vec<String>)> {
        let depths: Vec<u32> = depths.iter().copied().collect();
        let tensors = &self.tensors;
        vec![
            ("rule", shown(&self.rules)),
            ("placement", shown(&self.placements)),
            ("order", shown(&self.orders)),
            ("states", shown(&self.states)),
            ("recompute", shown(&self.recompute)),
            ("chunks", shown(&self.all_chunks())),
            ("slices", shown(&self.all_slices())),
            ("replicas", shown(&self.all_replicas())),
            ("shards", shown(&grid.all_shards(self))),
            ("tensor.rows", shown(&counted(&self.tensors, |tensor| tensor.rows))),
            ("tensor.columns", shown(&counted(&self.tensors, |tensor| tensor.columns))),
            (
                "tensor.overdecompose",
                shown(&counted(&self.tensors, |tensor| tensor.overdecompose)),
            ),
            ("tensor.depth", shown(&depths)),
            (
                "tensor.contraction",
                shown(&tried(Contraction::ALL, tensors, |tensor| tensor.contraction)),
            ),
            ("sequence", shown(&tried(Sequence::ALL, tensors, |tensor| tensor.sequence))),
            ("images", shown(&tried(Images::ALL, tensors, |tensor| tensor.images))),
            ("micro_batches", shown(&self.micro_batches)),
            ("stages", shown(self.stages())),
            ("first_device", shown(&grid.all_windows())),
        ]
    }
}

impl Stages {
    /// Numbers of stages that nobody names, from one per unit to one per node at most. Replicas, rows and
    /// columns leave a part of the devices to stages, each of which may have two of them.
    fn open(
        (nodes, units): (u64, u64),
        devices: u64,
        (micro_batches, chunks): (&[u32], &[u32]),
    ) -> Self {
        let lawful = |s: &u64| (units..=nodes).contains(s);
        let most = devices.max(OPEN_STAGES);
        let chunks = chunks.iter().map(|v| u64::from(*v));
        let parts = || divisors_of(devices).flat_map(|part| [part, 2 * part]);
        let usual = || powers_of_two(most).chain(parts().filter(|s| *s <= most));
        let multiples = chunks.flat_map(|v| usual().map(move |s| s.saturating_mul(v)));
        let usual = usual().chain(multiples);
        let usual = sorted(usual.filter(lawful).chain([units]));
        let special = micro_batches.iter().map(|n| u64::from(*n)).filter(lawful);
        let as_many = special.filter(|s| usual.binary_search(&number(*s)).is_err());
        let as_many = sorted(as_many);
        let known = usual.iter().chain(&as_many).map(|s| u64::from(*s));
        Self::Open { known: sorted(known), as_many, units: number(units) }
    }
}

impl Replicas {
    fn new(program: &Program, devices: u64) -> Self {
        let batch = u64::from(program.train.batch);
        match &program.search.replicas {
            Numbers::Open => {
                let small = 1..=devices.min(SMALL);
                let known = powers_of_two(devices).chain(divisors_of(devices));
                let known = sorted(known.chain(small));
                Self::Open { known, batch }
            }
            Numbers::Ranges(ranges) => {
                Self::Listed(thinned(listed(ranges, devices.max(1))))
            }
        }
    }

    /// Those that are tried with some N.
    fn known(&self) -> &[u32] {
        match self {
            Self::Listed(values) | Self::Open { known: values, .. } => values,
        }
    }

    /// Whether so many replicas are tried with N micro-batches each, if they are at all.
    fn fit(&self, micro_batches: u32, replicas: u32) -> bool {
        match self {
            Self::Listed(_) => true,
            Self::Open { batch, .. } => {
                let n = u64::from(micro_batches).max(1);
                let all = n.saturating_mul(u64::from(replicas));
                replicas == 1 || batch.is_multiple_of(all)
            }
        }
    }
}

fn counted(tensors: &[Tensor], count: fn(&Tensor) -> u32) -> Vec<u32> {
    sorted(tensors.iter().map(|tensor| u64::from(count(tensor))))
}

/// Those of all values that some of the ways to split tensors have.
fn tried<T: Copy + PartialEq>(
    all: &[T],
    tensors: &[Tensor],
    of: fn(&Tensor) -> T,
) -> Vec<T> {
    let tried = |one: &&T| tensors.iter().any(|tensor| of(tensor) == **one);
    all.iter().filter(tried).copied().collect()
}

/// The orders that are tried when the program leaves them open: all that there are, but lists
/// only where there are some.
fn known_orders(program: &Program) -> Vec<Order> {
    let listed = !program.search.lists.is_empty();
    let slices = match &program.search.slices {
        Numbers::Open => false,
        Numbers::Ranges(ranges) => ranges.iter().any(|(_, most)| *most > 1),
    };
    let known = |order: &&Order| match **order {
        Order::Listed => listed,
        order => slices || !order.takes_slices(),
    };
    Order::ALL.iter().filter(known).copied().collect()
}

/// Open numbers of slices: those that divide the sequence of the first causal attention.
fn divisors(program: &Program) -> Vec<u32> {
    let nodes = program.model.nodes.values();
    let mut attending = nodes.filter(|node| {
        matches!(
            node.operation,
            Operation::Attention { causal: true, projections: Projections::Apart, .. }
        )
    });
    let first = attending.next().and_then(|node| node.shape.get(1));
    let length = first.map_or(1, |extent| extent.size);
    let divides = |k: &u32| length.is_multiple_of(u64::from(*k));
    OPEN_SLICES.into_iter().filter(divides).collect()
}

/// The rules that are tried when the program leaves them open.
fn known_rules() -> [Rule; 4] {
    [Rule::Sync, Rule::CyclicV2, Rule::CyclicV1, Rule::CyclicSlack(1)]
}

/// The largest number of devices that a plan may take.
pub(crate) fn usable_devices(program: &Program) -> u64 {
    let all = program.target.devices.len() as u64;
    let allowed = (1..=all).rev().find(|count| program.search.devices.allows(*count));
    allowed.unwrap_or(all)
}

fn one_of<T: Clone + PartialEq>(choice: &Choice<T>, known: &[T]) -> Vec<T> {
    let mut values: Vec<T> = Vec::new();
    let listed = match choice {
        Choice::Open => known,
        Choice::OneOf(listed) => listed,
    };
    for value in listed {
        if !values.contains(value) {
            values.push(value.clone());
        }
    }
    values
}

fn micro_batch_counts(wanted: &Numbers, batch: u64, devices: u64) -> Vec<u32> {
    let divides = |n: &u64| batch.is_multiple_of(*n);
    match wanted {
        Numbers::Open => {
            let by_devices = devices.saturating_mul(OPEN_MICRO_BATCHES_PER_DEVICE);
            let most = by_devices.max(OPEN_MICRO_BATCHES).min(batch).max(1);
            let small = 1..=devices.min(SMALL);
            let tried = powers_of_two(most).chain(small).chain([devices, batch]);
            sorted(tried.filter(|n| (1..=most).contains(n)).filter(divides))
        }
        Numbers::Ranges(ranges) => {
            let all = listed(ranges, batch.max(1));
            let dividing: Vec<u32> =
                all.iter().copied().filter(|n| divides(&u64::from(*n))).collect();
            if dividing.is_empty() { thinned(all) } else { thinned(dividing) }
        }
    }
}

fn ascending<T: Ord>(mut values: Vec<T>) -> Vec<T> {
    values.sort_unstable();
    values
}

fn shown<T: ToString>(values: &[T]) -> Vec<String> {
    values.iter().map(T::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn open_numbers_are_powers_of_two_small_divisors_and_the_devices() {
        let program = sample::program(6, 96);
        let values = Values::new(&program);
        assert_eq!(values.micro_batches, [1, 2, 3, 4, 6, 8, 16, 32, 96]);
        // Down to one example in each, with replicas too.
        assert!(values.tries_replicas(16, 6) && values.tries_replicas(32, 3));
        assert_eq!(values.stages(), [1, 2, 3, 4, 6, 8]);
        assert_eq!(
            (values.check_stages(4, 3), values.check_stages(4, 6)),
            (Ok(()), Ok(()))
        );
        for (n, r) in (1..20).flat_map(|n| (1..20).map(move |r| (n, r))) {
            assert_eq!(values.tries_replicas(n, r), values.replicas(n).contains(&r));
        }
        for s in 1..20 {
            assert_eq!(values.tries_stages(s, s), values.stages().contains(&s));
        }
        let values = Values::new(&sample::program(5, 96));
        assert_eq!(values.check_stages(3, 3), Ok(()));
        assert_eq!(values.check_stages(4, 3), Err(Reason::NotAsMany { stages: 3 }));
    }

    /// No device is left over because replicas or rows take some, or because each has two stages.
    #[test]
    fn stages_divide_the_devices() {
        let tried = |devices, stages: &[u32]| {
            let mut program = sample::program(devices, 64);
            program.model = sample::gpt(12, 32, 16, false);
            let values = Values::new(&program);
            stages.iter().all(|s| values.tries_stages(1, *s))
        };
        assert!(tried(5, &[5, 10]) && tried(6, &[2, 3, 6, 12]));
        assert!(tried(12, &[3, 4, 6, 12, 24]) && tried(48, &[3, 12, 24, 48]));
        assert!(!tried(5, &[15]) && !tried(48, &[96]));
    }

    /// What one device more leaves over stays idle.
    #[test]
    fn one_device_more_takes_no_replicas_away() {
        let replicas = |devices, micro_batches| {
            let known = Values::new(&sample::program(devices, 96));
            known.replicas(micro_batches).into_iter().collect::<BTreeSet<u32>>()
        };
        for (devices, n) in (1..SMALL as usize).flat_map(|d| [1, 3, 8].map(|n| (d, n))) {
            assert!(replicas(devices, n).is_subset(&replicas(devices + 1, n)));
        }
        assert!(replicas(8, 2).contains(&6) && !replicas(8, 2).contains(&7));
    }

    /// What is listed is tried with every N but where it stands for as many micro-batches, or known to
    /// make too long a period.
    #[test]
    fn open_stages_go_down_to_nodes_and_have_the_chunks_that_are_named() {
        let mut program = sample::program(6, 1 << 12);
        program.model = sample::gpt(3, 32, 16, false);
        let nodes = program.model.cuttable() as u32;
        let values = Values::new(&program);
        let (most, known) = (values.stages().last().copied(), values.stages());
        assert!(most <= Some(nodes) && most > Some(nodes / 2), "{known:?} of {nodes}");
        assert!(known.contains(&12) && !known.contains(&18), "{known:?}");
        assert_eq!(values.check_stages(4096, 1), Ok(()));
        assert_eq!(values.check_stages(4096, 2), Ok(()));
        let long = Reason::TooLong { passes: 4 << 12, most: OPEN_PASSES };
        assert_eq!(values.check_stages(4096, 4), Err(long));
        program.search.chunks = Numbers::Ranges(vec![(3, 3)]);
        let values = Values::new(&program);
        assert!([3, 6, 12, 18, 24].iter().all(|s| values.tries_stages(4, *s)));
        // Two stages on each of 48 devices.
        let mut program = sample::program(48, 64);
        program.model = sample::gpt(30, 32, 16, false);
        program.search.chunks = Numbers::Ranges(vec![(2, 2)]);
        assert!(Values::new(&program).tries_stages(4, 96));
    }

    #[test]
    fn cuts_say_how_many_stages_there_are_unless_stages_say_otherwise() {
        let mut program = sample::program(4, 8);
        program.search.cuts = Some(vec![2, 5]);
        for (stages, tried) in [
            (Numbers::Open, &[3][..]),
            (Numbers::Ranges(vec![(1, 4)]), &[3]),
            (Numbers::Ranges(vec![(2, 2), (4, 4)]), &[2, 4]),
        ] {
            program.search.stages = stages;
            assert_eq!(Values::new(&program).stages(), tried);
        }
        let refused = crate::plan(&program, &crate::Options::default());
        let refused = refused.expect_err("no stages are both").to_string();
        assert!(refused.contains("2 cuts make 3 stages"), "{refused}");
    }

    #[test]
    fn open_micro_batches_are_bounded_by_themselves_or_by_devices() {
        let most = |devices: usize| {
            let program = sample::program(devices, 1 << 20);
            Values::new(&program).micro_batches.last().copied()
        };
        assert_eq!([4, 1 << 14].map(most), [Some(512), Some(1 << 16)]);
    }

    #[test]
    fn a_range_keeps_what_divides_and_never_becomes_empty() {
        let mut program = sample::program(4, 32);
        program.search.micro_batches = Numbers::Ranges(vec![(3, 20)]);
        assert_eq!(Values::new(&program).micro_batches, [4, 8, 16]);
        program.search.micro_batches =
            Numbers::Ranges(vec![(3, 3), (u64::MAX, u64::MAX)]);
        assert_eq!(Values::new(&program).micro_batches, [3, u32::MAX]);
    }
}
