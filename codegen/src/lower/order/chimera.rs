//! Chimera (arXiv 2107.06925): two pipelines in opposite directions over the same
//! devices. Stage j is on device j for micro-batches that go down, and on device p − 1 −
//! j for those that go up.
//!
//! Units of p micro-batches, half down and half up, are joined without a seam: each
//! direction takes a micro-batch every two slots, as if it had the devices for itself,
//! and of what a device can start it takes the pass whose slot there is first. In slots
//! of equal length one unit is the published one, N micro-batches take 2N + p − 2 slots,
//! and no device keeps more than p.

use super::lists::Pipeline;
use roundelay_schedule::{DeviceList, Item, Order, Pass};

/// The lists of all devices, slot by slot.
pub(super) fn chimera(pipeline: Pipeline) -> Vec<DeviceList> {
    let Pipeline { devices: p, micro_batches, .. } = pipeline;
    let (up, down): (Vec<u32>, Vec<u32>) =
        (0..micro_batches).partition(|i| Order::Chimera.goes_up(*i, p, micro_batches));
    let mut streams = [Stream::new(p, down), Stream::new(p, up)];
    let mut lists: Vec<DeviceList> = vec![Vec::new(); p as usize];
    let passes = 2 * micro_batches as usize;
    while lists.iter().any(|list| list.len() < passes) {
        let seats = |device| [(0, device), (1, p - 1 - device)];
        let next = |device: u32| {
            let own = seats(device).into_iter();
            let open = own.flat_map(|(direction, stage): (usize, u32)| {
                let steps = streams[direction].open(stage);
                steps.into_iter().flatten().map(move |step| (step, direction))
            });
            open.min()
        };
        let chosen: Vec<Option<(Step, usize)>> = (0..p).map(next).collect();
        for (list, chosen) in lists.iter_mut().zip(chosen) {
            list.extend(chosen.map(|(step, way)| streams[way].take(step)));
        }
    }
    lists
}

/// What a device can start: a pass of a stage, by the slot that it has if nothing is in
/// the way. Of two in one slot the backward pass goes first: it frees what a forward pass
/// takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Step {
    slot: u32,
    forward: bool,
    stage: u32,
}

/// The micro-batches of one direction, and how many each stage has done.
struct Stream {
    micro_batches: Vec<u32>,
    forwards: Vec<u32>,
    backwards: Vec<u32>,
}

impl Stream {
    fn new(stages: u32, micro_batches: Vec<u32>) -> Self {
        let none = vec![0; stages as usize];
        Self { micro_batches, forwards: none.clone(), backwards: none }
    }

    /// The next forward and the next backward pass of a stage, if what they need was done
    /// in earlier slots.
    fn open(&self, stage: u32) -> [Option<Step>; 2] {
        let (own, last) = (stage as usize, self.forwards.len() - 1);
        let (forward, backward) = (self.forwards[own], self.backwards[own]);
        let comes = match stage.checked_sub(1) {
            Some(above) => self.forwards[above as usize],
            None => self.micro_batches.len() as u32,
        };
        let turns = if own == last { forward } else { self.backwards[own + 1] };
        let slots = 2 * self.forwards.len() as u32;
        let step =
            |number: u32, forward, slot| Step { slot: 2 * number + slot, forward, stage };
        [
            (forward < comes).then(|| step(forward, true, stage)),
            (backward < turns.min(forward))
                .then(|| step(backward, false, slots - 1 - stage)),
        ]
    }

    fn take(&mut self, Step { forward, stage, .. }: Step) -> Item {
        let (done, pass) = match forward {
            true => (&mut self.forwards, Pass::Forward),
            false => (&mut self.backwards, Pass::Backward),
        };
        let next = &mut done[stage as usize];
        *next += 1;
        Item::new(pass, stage, self.micro_batches[*next as usize - 1])
    }
}
