//! The numbers that a space tries, family by family, each worked out once.

use crate::space::{counts::Counts, family::Family, values::Values};
use roundelay_schedule::{Order, Placement, States};
use std::{collections::BTreeMap, sync::Arc};

/// What the numbers of all families share.
#[derive(Clone, Debug, Default)]
pub(crate) struct Grid {
    /// N and S, in the order of the search.
    pub points: Vec<(u32, u32)>,
    /// R by N.
    replicas: BTreeMap<u32, Vec<u32>>,
    /// Numbers of shards by members and devices of a cell.
    shards: BTreeMap<(u32, u32), Arc<[u32]>>,
    /// First devices by the number of devices.
    windows: BTreeMap<u32, Arc<[u32]>>,
    /// The number of shards of states that are not split in groups.
    whole: Arc<[u32]>,
    /// Combinations by what makes a difference.
    numbers: BTreeMap<(Placement, Option<Order>, bool, bool), u64>,
}

impl Grid {
    /// The numbers of some values.
    pub(crate) fn new(values: &Values) -> Self {
        let points = values.micro_batches.iter().flat_map(|n| {
            let point = |s: &u32| (*n, *s);
            values.stages().iter().map(point)
        });
        let replicas = values.micro_batches.iter().map(|n| (*n, values.replicas(*n)));
        Self {
            points: points.collect(),
            replicas: replicas.collect(),
            shards: BTreeMap::new(),
            windows: BTreeMap::new(),
            whole: [1].into(),
            numbers: BTreeMap::new(),
        }
    }

    /// R to try with N micro-batches each.
    pub(crate) fn replicas(&self, micro_batches: u32) -> &[u32] {
        self.replicas.get(&micro_batches).map_or(&[], Vec::as_slice)
    }

    /// Numbers of shards to try with the other numbers.
    pub(crate) fn shards(
        &mut self,
        values: &Values,
        family: Family,
        counts: Counts,
    ) -> Arc<[u32]> {
        if family.states != States::Hsdp {
            return Arc::clone(&self.whole);
        }
        let members = counts.members(family).max(1);
        let cell = counts.devices(family, values.lists) / members;
        let new = || values.shards(members, cell).into();
        Arc::clone(self.shards.entry((members, cell)).or_insert_with(new))
    }

    /// The first devices to try where a plan takes this many.
    pub(crate) fn windows(&mut self, values: &Values, devices: u32) -> Arc<[u32]> {
        let new = || values.windows.starts(devices).into();
        Arc::clone(self.windows.entry(devices).or_insert_with(new))
    }

    /// Every first device that is tried with some number of devices.
    pub(crate) fn all_windows(&self) -> Vec<u32> {
        let all = self.windows.values().flat_map(|starts| starts.iter().copied());
        all.collect::<std::collections::BTreeSet<u32>>().into_iter().collect()
    }

    /// How many combinations of numbers a family has.
    pub(crate) fn number(&mut self, values: &Values, family: Family) -> u64 {
        let Family { rule, placement, order, states } = family;
        let order = (placement == Placement::Pipeline).then_some(order);
        let (sync, split) = (rule.is_synchronous(), states == States::Hsdp);
        let key = (placement, order, sync, split);
        if let Some(known) = self.numbers.get(&key) {
            return *known;
        }
        let mut number = 0;
        self.each(values, family, |grid, counts| {
            let devices = counts.devices(family, values.lists);
            number += grid.shards(values, family, counts).len() as u64
                * grid.windows(values, devices).len() as u64;
        });
        self.numbers.insert(key, number);
        number
    }

    /// Takes over the numbers of shards and first devices that another one of the same values worked
    /// out.
    pub(crate) fn learn(&mut self, other: Self) {
        self.shards.extend(other.shards);
        self.windows.extend(other.windows);
    }

    /// Every number of shards that is tried in some family; one where nothing is asked.
    pub(crate) fn all_shards(&self, values: &Values) -> Vec<u32> {
        let whole = values.states.iter().any(|states| *states != States::Hsdp);
        let mut all: std::collections::BTreeSet<u32> =
            whole.then_some(1).into_iter().collect();
        all.extend(self.shards.values().flat_map(|shards| shards.iter().copied()));
        all.into_iter().collect()
    }

    /// Calls `visit` with all numbers of a family but those of shards and of first devices.
    pub(crate) fn each(
        &mut self,
        values: &Values,
        family: Family,
        mut visit: impl FnMut(&mut Self, Counts),
    ) {
        for point in 0..self.points.len() {
            let (micro_batches, stages) = self.points[point];
            let slices = values.slices(family);
            let chunks = values.chunks(family, stages);
            let flows = chunks.iter().flat_map(|v| slices.iter().map(|k| (*v, *k)));
            for (chunks, slices) in flows {
                for replica in 0..self.replicas(micro_batches).len() {
                    let replicas = self.replicas(micro_batches)[replica];
                    for &tensor in &values.tensors {
                        let counts = Counts {
                            micro_batches,
                            stages,
                            chunks,
                            slices,
                            replicas,
                            shards: 1,
                            tensor,
                            first_device: 0,
                        };
                        visit(self, counts);
                    }
                }
            }
        }
    }
}
