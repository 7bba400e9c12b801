//! The values that each decision is tried with, in order.

mod left_out;
mod numbers;
mod stages;
mod tensors;

pub(crate) use left_out::left_out;
pub(crate) use numbers::{Fitting, Known};
pub(crate) use tensors::{has_sequences, has_windows};

use crate::space::{
    decision::{Decision, Number},
    family::Family,
    grid::Grid,
    reason::Reason,
    windows::Windows,
};
use numbers::{Tried, divisors_of, largest, powers_of_two, sorted};
use roundelay_dsl::{
    Choice, Numbers, Objective, Operation, Program, Projections, Search, Sight,
};
use roundelay_schedule::{
    Contraction, Images, Order, Placement, Recompute, Rule, Sequence, States, Tensor,
};
use stages::{Others, Stages};
use std::collections::BTreeSet;

/// Divisors of the batch up to this number are tried even when they are no power of two, as
/// micro-batches and as replicas.
const SMALL: u64 = 16;
/// Stages on one device that are tried when they are left open.
const OPEN_CHUNKS: [u32; 5] = [1, 2, 3, 4, 8];
/// Slices of each sequence that are tried when an order asks for some, and most of all.
const OPEN_SLICES: [u32; 4] = [2, 4, 8, 16];
const SLICES_MAX: u64 = 4096;
/// Micro-batches that are left open, at most, or this many for each device: more are tried only
/// when the program asks for them.
const OPEN_MICRO_BATCHES: u64 = 512;
const OPEN_MICRO_BATCHES_PER_DEVICE: u64 = 4;
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
    /// Numbers of slices that are tried where an order asks for some.
    open_slices: Vec<u32>,
    /// Lists of the order `listed`.
    pub lists: usize,
    stages: Stages,
    replicas: Replicas,
    /// Numbers of shards that are asked for, else those of depths: they come to the same.
    shards: Numbers,
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

impl Values {
    /// What to try for a program. Open decisions take every value that is known; open numbers
    /// take powers of two, small divisors and the number of devices.
    pub(crate) fn new(program: &Program) -> Self {
        let search = &program.search;
        let devices = usable_devices(program);
        let micro_batches = search.micro_batches_to_try();
        let micro_batches = known_micro_batches(program, devices).tried(&micro_batches);
        let chunks = Tried::new(&search.chunks, &known_chunks(program));
        let slices = known_slices(program);
        let others =
            Others { devices, micro_batches: &micro_batches, chunks: chunks.named() };
        let stages = Stages::new(program, others);
        Self {
            objective: search.objective,
            rules: one_of(&search.rule, &known_rules()),
            placements: one_of(&search.placement, Placement::ALL),
            orders: one_of(&search.order, &known_orders(program)),
            states: one_of(&search.states, States::ALL),
            recompute: ascending(one_of(&search.recompute, Recompute::ALL)),
            micro_batches,
            chunks,
            slices: Tried::new(&search.slices, &slices),
            open_slices: slices.open,
            lists: search.lists.len(),
            stages,
            replicas: Replicas::new(program, devices),
            shards: shards_to_try(search),
            tensors: tensors::tensors(program, devices),
            domains: domains(program),
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

    /// Numbers of shards to try where this many devices hold the same stages, each with `cell`
    /// devices of its own.
    pub(crate) fn shards(&self, members: u32, cell: u32) -> Vec<u32> {
        known_shards(&self.domains, members.into(), cell).tried(&self.shards)
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
            (Tried::Open, true) if !self.open_slices.is_empty() => {
                self.open_slices.clone()
            }
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
        self.stages.tried()
    }

    /// Whether this many stages are tried with N micro-batches, if they are at all.
    ///
    /// # Errors
    /// Why they are not.
    pub(crate) fn check_stages(
        &self,
        micro_batches: u32,
        stages: u32,
    ) -> Result<(), Reason> {
        self.stages.check(micro_batches, stages)
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
        let of =
            |number: Number, values: &[u32]| (Decision::Number(number), shown(values));
        let counted = |count| counted(tensors, count);
        let contractions = tried(Contraction::ALL, tensors, |tensor| tensor.contraction);
        let sequences = tried(Sequence::ALL, tensors, |tensor| tensor.sequence);
        let images = tried(Images::ALL, tensors, |tensor| tensor.images);
        let all = [
            (Decision::Rule, shown(&self.rules)),
            (Decision::Placement, shown(&self.placements)),
            (Decision::Order, shown(&self.orders)),
            (Decision::States, shown(&self.states)),
            (Decision::Recompute, shown(&self.recompute)),
            of(Number::Chunks, &self.all_chunks()),
            of(Number::Slices, &self.all_slices()),
            of(Number::Replicas, &self.all_replicas()),
            of(Number::Shards, &grid.all_shards(self)),
            of(Number::Rows, &counted(|tensor| tensor.rows)),
            of(Number::Columns, &counted(|tensor| tensor.columns)),
            of(Number::Overdecompose, &counted(|tensor| tensor.overdecompose)),
            of(Number::Depth, &depths),
            (Decision::Contraction, shown(&contractions)),
            (Decision::Sequence, shown(&sequences)),
            (Decision::Images, shown(&images)),
            of(Number::MicroBatches, &self.micro_batches),
            of(Number::Stages, self.stages()),
            of(Number::FirstDevice, &grid.all_windows()),
        ];
        all.map(|(decision, values)| (decision.name(), values)).to_vec()
    }
}

impl Replicas {
    fn new(program: &Program, devices: u64) -> Self {
        let known = known_replicas(program, devices);
        match &program.search.replicas {
            Numbers::Open => {
                Self::Open { known: known.open, batch: program.train.batch.into() }
            }
            asked @ Numbers::Ranges(_) => Self::Listed(known.tried(asked)),
        }
    }

    /// Those that are tried with some N.
    fn known(&self) -> &[u32] {
        match self {
            Self::Listed(values) | Self::Open { known: values, .. } => values,
        }
    }

    /// Whether this many replicas are tried with N micro-batches each, if they are at all.
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

/// What is known of numbers of slices: open ones divide the sequence of the first causal attention.
fn known_slices(program: &Program) -> Known {
    let nodes = program.model.nodes.values();
    let mut attending = nodes.filter(|node| {
        matches!(
            node.operation,
            Operation::Attention {
                sight: Sight { causal: true, .. },
                projections: Projections::Apart,
                ..
            }
        )
    });
    let first = attending.next().and_then(|node| node.shape.get(1));
    let fitting = first.map_or(Fitting::All, |extent| Fitting::DivisorsOf(extent.size));
    let open =
        OPEN_SLICES.into_iter().filter(|k| first.is_some() && fitting.has((*k).into()));
    Known { within: 1..=SLICES_MAX, fitting, open: open.collect() }
}

/// What is known of numbers of stages on one device.
fn known_chunks(program: &Program) -> Known {
    let most = (program.model.cuttable() as u64).max(1);
    Known { within: 1..=most, fitting: Fitting::All, open: OPEN_CHUNKS.to_vec() }
}

/// What is known of numbers of replicas: divisors of the number of devices, powers of two, small numbers,
/// and the largest that divides the batch.
fn known_replicas(program: &Program, devices: u64) -> Known {
    let fitting = Fitting::DivisorsOf(program.train.batch.into());
    let small = 1..=devices.min(SMALL);
    let open = powers_of_two(devices).chain(divisors_of(devices)).chain(small);
    let open = sorted(open.chain(largest(devices, fitting)));
    Known { within: 1..=devices.max(1), fitting, open }
}

/// What is known of numbers of shards where this many devices hold the same stages, each with `cell`
/// devices of its own: open ones fill a link level, or are powers of two.
fn known_shards(domains: &[u32], members: u64, cell: u32) -> Known {
    let fitting = Fitting::DivisorsOf(members);
    let levels = domains.iter().map(|devices| u64::from(devices / cell.max(1)));
    let inside = |shards: &u64| (2..members).contains(shards) && fitting.has(*shards);
    let open = sorted(levels.chain(powers_of_two(members)).filter(inside));
    Known { within: 1..=members.max(1), fitting, open }
}

/// The numbers of shards that are asked for, else those of depths: they come to the same.
fn shards_to_try(search: &Search) -> Numbers {
    match &search.shards {
        Numbers::Open => search.depth.clone(),
        asked @ Numbers::Ranges(_) => asked.clone(),
    }
}

/// Devices of each link level.
fn domains(program: &Program) -> Vec<u32> {
    program.target.domains.iter().map(|domain| domain.devices.len() as u32).collect()
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

/// What is known of numbers of micro-batches: powers of two, small numbers, the devices, the largest
/// that finds a device each, and the batch.
fn known_micro_batches(program: &Program, devices: u64) -> Known {
    let batch = u64::from(program.train.batch).max(1);
    let fitting = Fitting::DivisorsOf(batch);
    let by_devices = devices.saturating_mul(OPEN_MICRO_BATCHES_PER_DEVICE);
    let most = by_devices.max(OPEN_MICRO_BATCHES).min(batch);
    let small = 1..=devices.min(SMALL);
    let open = powers_of_two(most).chain(small).chain([devices, batch]);
    let open = open.chain(largest(devices, fitting));
    let open = sorted(open.filter(|n| (1..=most).contains(n) && fitting.has(*n)));
    Known { within: 1..=batch, fitting, open }
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

    #[test]
    fn open_micro_batches_are_bounded_by_themselves_or_by_devices() {
        let most = |devices: usize| {
            let program = sample::program(devices, 1 << 20);
            Values::new(&program).micro_batches.last().copied()
        };
        assert_eq!([4, 1 << 14].map(most), [Some(512), Some(1 << 16)]);
    }

    /// Where one device more leaves no divisor of the batch.
    #[test]
    fn replicas_and_micro_batches_that_fill_the_devices_are_tried_on_more() {
        for devices in [40, 41, 47] {
            let values = Values::new(&sample::program(devices, 120));
            assert!(values.tries_replicas(1, 40) && values.micro_batches.contains(&40));
        }
    }

    /// Law: numbers that are listed are all tried, however many there are.
    #[test]
    fn listed_numbers_are_all_tried() {
        let mut program = sample::program(40, 5040);
        program.model = sample::gpt(12, 32, 16, false);
        let divisors: Vec<u32> = (1..=40).filter(|n| 5040 % n == 0).collect();
        assert!(divisors.len() > 16);
        let listed = Numbers::Ranges(
            divisors.iter().map(|n| ((*n).into(), (*n).into())).collect(),
        );
        let search = &mut program.search;
        for numbers in [
            &mut search.micro_batches,
            &mut search.stages,
            &mut search.replicas,
            &mut search.rows,
            &mut search.first_device,
        ] {
            *numbers = listed.clone();
        }
        let values = Values::new(&program);
        assert_eq!(values.micro_batches, divisors);
        assert_eq!(values.stages(), divisors);
        assert_eq!(values.replicas(1), divisors);
        assert_eq!(counted(&values.tensors, |tensor| tensor.rows), divisors);
        assert_eq!(values.windows.starts(1), divisors);
        assert_eq!(left_out(&program), None);
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
