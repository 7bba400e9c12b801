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
        Pass::Combine | Pass::Norm | Pass::Update => 0,
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
    while let Some(device) = run.ready.pop() {
        while run.step(device) {}
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
    passes: Passes,
    split: Vec<bool>,
    /// Devices that may go on.
    ready: Vec<usize>,
    /// Of each device that waits for a pass the one that came before it to wait for the same.
    before: Vec<Option<u32>>,
    times: Vec<ItemTime>,
}

/// What is known of a pass.
#[derive(Clone, Copy)]
enum Known {
    /// Nothing, and nobody asked.
    Nothing,
    /// This device was the last to come and wait for it.
    Awaited(u32),
    /// When it is done.
    Ends(u64),
}

/// What is known of each pass of a pipeline.
struct Passes {
    known: Vec<Known>,
    micro_batches: usize,
}

impl Passes {
    fn new(stages: usize, micro_batches: usize) -> Self {
        Self { known: vec![Known::Nothing; 4 * stages * micro_batches], micro_batches }
    }

    fn place(&self, listed: Listed) -> usize {
        let kind = match listed.pass {
            Pass::Forward => 0,
            Pass::Backward => 1,
            Pass::InputGradient => 2,
            Pass::WeightGradient | Pass::Combine | Pass::Norm | Pass::Update => 3,
        };
        let row = 4 * listed.stage.index() + kind;
        row * self.micro_batches + listed.micro_batch.index()
    }

    fn of(&self, listed: Listed) -> Known {
        self.known[self.place(listed)]
    }

    /// Sets what is known; returns what was known before.
    fn set(&mut self, listed: Listed, known: Known) -> Known {
        let place = self.place(listed);
        std::mem::replace(&mut self.known[place], known)
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
            passes: Passes::new(stages, micro_batches),
            split,
            ready: (0..lists.len()).rev().collect(),
            before: vec![None; lists.len()],
            times: Vec::with_capacity(lists.iter().map(Vec::len).sum()),
        }
    }

    /// Starts the next item of a device, if all that it needs has a time.
    fn step(&mut self, device: usize) -> bool {
        let Some(item) = self.lists[device].get(self.place[device]).copied() else {
            return false;
        };
        let start = match self.needed(&item) {
            Ok(end) => end.max(self.free[device]),
            Err((_, need)) => {
                self.wait(device, need);
                return false;
            }
        };
        let lengths = item.passes().iter().map(|listed| pass_length(listed.pass));
        let end = start + lengths.sum::<u64>();
        self.place[device] += 1;
        self.free[device] = end;
        for listed in item.passes() {
            if let Known::Awaited(last) = self.passes.set(*listed, Known::Ends(end)) {
                self.wake(last);
            }
        }
        self.times.push(ItemTime { item, start, end });
        true
    }

    /// When all is done that an item needs, or one of its passes and another that has no time.
    fn needed(&self, item: &Item) -> Result<u64, (Listed, Listed)> {
        let mut last = 0;
        let gradient = |stage: usize| match self.split[stage] {
            true => Pass::InputGradient,
            false => Pass::Backward,
        };
        for listed in item.passes() {
            let needs = needs(*listed, self.units, gradient);
            for need in needs.into_iter().flatten() {
                let halves = (listed.pass, need.pass)
                    == (Pass::WeightGradient, Pass::InputGradient);
                if halves && item.passes().contains(&need) {
                    continue;
                }
                match self.passes.of(need) {
                    Known::Ends(end) => last = end.max(last),
                    Known::Nothing | Known::Awaited(_) => return Err((*listed, need)),
                }
            }
        }
        Ok(last)
    }

    fn wait(&mut self, device: usize, need: Listed) {
        let last = u32::try_from(device).expect("devices are counted in 32 bits");
        self.before[device] = match self.passes.set(need, Known::Awaited(last)) {
            Known::Awaited(before) => Some(before),
            Known::Nothing | Known::Ends(_) => None,
        };
    }

    /// All that wait for one pass go on.
    fn wake(&mut self, last: u32) {
        let mut waiting = Some(last);
        while let Some(device) = waiting {
            self.ready.push(device as usize);
            waiting = self.before[device as usize].take();
        }
    }

    fn stuck(&self) -> Vec<(usize, usize, Listed, Listed)> {
        let places = self.place.iter().copied().enumerate();
        let next = places.filter_map(|(device, place)| {
            let (listed, missing) = self.needed(self.lists[device].get(place)?).err()?;
            Some((device, place, listed, missing))
        });
        next.collect()
    }
}

/// The passes that must be done before, where `gradient` is the pass of a stage that makes the gradient
/// of its input. A slice also follows the slice before, and backward the slice behind.
pub(super) fn needs(
    listed: Listed,
    units: &Units,
    gradient: impl Fn(usize) -> Pass,
) -> [Option<Listed>; 3] {
    let stage = listed.stage.index();
    let beside =
        |pass, stage: usize| Some(Listed { pass, stage: Id::new(stage), ..listed });
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
        Pass::Combine | Pass::Norm | Pass::Update => [None; 3],
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
