//! When each pass starts if the devices take their lists in order, or who waits for ever.

use super::{DeviceList, Item, Listed, listed_in};
use crate::{Id, MicroBatch, Pass, Stage, Units};
use std::fmt;

/// What each pass takes, in units of a forward pass: a backward pass takes twice a
/// forward pass, and each of its halves as much as a forward pass.
pub fn pass_length(pass: Pass) -> u64 {
    match pass {
        Pass::Backward => 2,
        Pass::Forward | Pass::InputGradient | Pass::WeightGradient => 1,
        Pass::Combine | Pass::Update => 0,
    }
}

/// An item of a list and when it runs, in units of a forward pass. A pair takes as long
/// as its passes one after the other: what of it hides is a property of a device, not of
/// an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemTime {
    /// The pass, or the pair.
    pub item: Item,
    /// When it starts.
    pub start: u64,
    /// When it is done.
    pub end: u64,
}

impl ItemTime {
    /// Where it stands among the items of all devices in a lowered schedule: in the order
    /// of time. At one time a backward pass stands first: it frees what a forward pass
    /// takes. A pair stands where its forward pass does: that may take nothing which the
    /// backward pass frees.
    pub fn list_order(&self) -> (u64, bool, MicroBatch, Stage) {
        let Listed { stage, pass, micro_batch } = self.item.first();
        (self.start, pass == Pass::Forward, micro_batch, stage)
    }
}

/// Lists that cannot go on: each of these devices waits for a pass that never comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// Device, place in its list, the pass there, and a pass that it waits for.
    pub devices: Vec<(usize, usize, Listed, Listed)>,
}

/// When every item starts if a device takes the next one of its list as soon as what all
/// its passes need is done, and messages take no time. The last stage of a unit needs no
/// gradient of a later one, but where one hops back, for its weights. The passes of a pair are
/// done together.
///
/// # Errors
/// When no order of the devices lets all of them come to their ends.
pub fn item_times(lists: &[DeviceList], units: &Units) -> Result<Vec<ItemTime>, Stuck> {
    let mut run = Run::new(lists, units);
    let mut ready: Vec<usize> = (0..lists.len()).rev().collect();
    while let Some(device) = ready.pop() {
        while let Some(item) = run.step(device) {
            for listed in item.passes() {
                ready.extend(run.waiting.take(*listed));
            }
        }
    }
    match run.stuck() {
        devices if devices.is_empty() => Ok(run.times),
        devices => Err(Stuck { devices }),
    }
}

/// The devices on their way through their lists.
struct Run<'a> {
    lists: &'a [DeviceList],
    units: &'a Units,
    place: Vec<usize>,
    free: Vec<u64>,
    ends: Passes<Option<u64>>,
    split: Vec<bool>,
    waiting: Waiting,
    times: Vec<ItemTime>,
}

/// Who waits for a pass.
struct Waiting(Passes<Vec<usize>>);

/// One value for each pass of a pipeline.
struct Passes<T> {
    values: Vec<T>,
    micro_batches: usize,
}

impl<T: Clone + Default> Passes<T> {
    fn new(stages: usize, micro_batches: usize) -> Self {
        Self { values: vec![T::default(); 4 * stages * micro_batches], micro_batches }
    }

    fn at(&mut self, listed: Listed) -> &mut T {
        let kind = match listed.pass {
            Pass::Forward => 0,
            Pass::Backward => 1,
            Pass::InputGradient => 2,
            Pass::WeightGradient | Pass::Combine | Pass::Update => 3,
        };
        let row = 4 * listed.stage.index() + kind;
        &mut self.values[row * self.micro_batches + listed.micro_batch.index()]
    }
}

impl Waiting {
    fn take(&mut self, listed: Listed) -> Vec<usize> {
        std::mem::take(self.0.at(listed))
    }
}

impl<'a> Run<'a> {
    fn new(lists: &'a [DeviceList], units: &'a Units) -> Self {
        let stages = units.stages() as usize;
        let all = || lists.iter().flat_map(|list| listed_in(list));
        let micro_batches = all().map(|l| l.micro_batch.index() + 1).max().unwrap_or(0);
        let mut split = vec![false; stages];
        for listed in all().filter(|listed| listed.pass == Pass::InputGradient) {
            split[listed.stage.index()] = true;
        }
        Self {
            lists,
            units,
            place: vec![0; lists.len()],
            free: vec![0; lists.len()],
            ends: Passes::new(stages, micro_batches),
            split,
            waiting: Waiting(Passes::new(stages, micro_batches)),
            times: Vec::new(),
        }
    }

    /// Starts the next item of a device, if all that it needs has a time.
    fn step(&mut self, device: usize) -> Option<Item> {
        let item = *self.lists[device].get(self.place[device])?;
        let mut start = self.free[device];
        for (_, need) in self.needs(item) {
            match *self.ends.at(need) {
                Some(end) => start = start.max(end),
                None => {
                    self.waiting.0.at(need).push(device);
                    return None;
                }
            }
        }
        let lengths = item.passes().iter().map(|listed| pass_length(listed.pass));
        let end = start + lengths.sum::<u64>();
        self.place[device] += 1;
        self.free[device] = end;
        for listed in item.passes() {
            *self.ends.at(*listed) = Some(end);
        }
        self.times.push(ItemTime { item, start, end });
        Some(item)
    }

    /// What each pass of an item needs of others.
    fn needs(&self, item: Item) -> Vec<(Listed, Listed)> {
        let of = |listed: Listed| {
            let needs = needs(listed, self.units, &self.split);
            needs.into_iter().flatten().map(move |need| (listed, need))
        };
        let all = item.passes().iter().copied().flat_map(of);
        let is_other = |(listed, need): &(Listed, Listed)| {
            let halves = (listed.pass, need.pass);
            halves != (Pass::WeightGradient, Pass::InputGradient)
                || !item.passes().contains(need)
        };
        all.filter(is_other).collect()
    }

    fn stuck(&mut self) -> Vec<(usize, usize, Listed, Listed)> {
        let mut found = Vec::new();
        for (device, list) in self.lists.iter().enumerate() {
            let place = self.place[device];
            let Some(item) = list.get(place).copied() else { continue };
            let needs = self.needs(item);
            let missing =
                needs.into_iter().find(|(_, need)| self.ends.at(*need).is_none());
            found.extend(
                missing.map(|(listed, missing)| (device, place, listed, missing)),
            );
        }
        found
    }
}

/// The passes that must be done before. A slice also follows the slice before, and backward the
/// slice behind.
fn needs(listed: Listed, units: &Units, split: &[bool]) -> [Option<Listed>; 3] {
    let stage = listed.stage.index();
    let beside =
        |pass, stage: usize| Some(Listed { pass, stage: Id::new(stage), ..listed });
    let gradient = |stage: usize| match split[stage] {
        true => Pass::InputGradient,
        false => Pass::Backward,
    };
    let unit = units.unit(u32::try_from(stage).unwrap_or(u32::MAX));
    let slices = units.slices() as usize;
    let (own, last) = (stage % slices, slices - 1);
    let turned = |stage: usize| {
        (stage < unit.end as usize).then(|| beside(gradient(stage), stage)).flatten()
    };
    let forward = |above: Option<usize>| above.and_then(|at| beside(Pass::Forward, at));
    match listed.pass {
        Pass::Forward => {
            let slice = if own > 0 { stage.checked_sub(1) } else { None };
            [forward(stage.checked_sub(slices)), forward(slice), None]
        }
        Pass::Backward | Pass::InputGradient => {
            let slice = if own < last { turned(stage + 1) } else { None };
            [beside(Pass::Forward, stage), turned(stage + slices), slice]
        }
        Pass::WeightGradient => {
            let hop = units.hop_from(u32::try_from(stage).unwrap_or(u32::MAX));
            let hop =
                hop.and_then(|stage| beside(gradient(stage as usize), stage as usize));
            [beside(Pass::InputGradient, stage), hop, None]
        }
        Pass::Combine | Pass::Update => [None; 3],
    }
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = |(device, place, listed, missing): &(usize, usize, Listed, Listed)| {
            format!(
                "device {device} stops at its pass {place}, {listed}, which needs {missing}"
            )
        };
        let all: Vec<String> = self.devices.iter().map(one).collect();
        f.write_str(&all.join("; "))
    }
}
