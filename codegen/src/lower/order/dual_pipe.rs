//! DualPipe (arXiv 2412.19437): two pipelines in opposite directions over the same
//! devices. Stage j is on device j for micro-batches that go down, and on device p − 1 −
//! j for those that go up.

use super::lists::Pipeline;
use roundelay_schedule::{DeviceList, Item, Listed, Pass, listed_in};
use std::collections::VecDeque;

/// The eight phases of DualPipe on one device. The passes of a pair stand one after the
/// other, and a whole backward pass is its two halves.
pub(super) fn serial(pipeline: Pipeline, rank: u32) -> DeviceList {
    listed_in(&paired(pipeline, rank)).map(Item::One).collect()
}

/// The same with its pairs: a forward pass of one direction, and beside it a whole
/// backward pass of the other.
pub(super) fn paired(pipeline: Pipeline, rank: u32) -> DeviceList {
    let (p, half) = (pipeline.devices, pipeline.devices / 2);
    let inner = rank.min(p - 1 - rank);
    let each = pipeline.micro_batches / 2;
    let mut list = DualList::new(pipeline, rank);
    let outer = half - inner - 1;
    list.forward(0, 2 * outer);
    for _ in 0..=inner {
        list.forward(0, 1);
        list.forward(1, 1);
    }
    for _ in 0..outer {
        list.input(1);
        list.weight();
        list.forward(1, 1);
    }
    for turn in 0..each + inner + 1 - p {
        if turn == 0 && inner + 1 == half {
            // The two devices in the middle hand each other their first gradients.
            list.forward(0, 1);
            list.whole(1);
        } else {
            list.pair(0, 1);
        }
        list.pair(1, 0);
    }
    for _ in 0..outer {
        list.whole(1);
        list.pair(1, 0);
    }
    for turn in 0..=inner {
        for direction in [1, 0] {
            let late = 2 * turn + u32::from(direction == 0) > inner;
            if late { list.input(direction) } else { list.whole(direction) }
        }
    }
    for _ in 0..outer {
        list.weight();
        list.input(0);
    }
    while list.weight() {}
    list.items
}

/// A list of a device in two pipelines while it grows; direction 0 is the one whose first
/// stages are near.
struct DualList {
    rank: u32,
    devices: u32,
    /// First micro-batch of each direction.
    first: [u32; 2],
    forwards: [u32; 2],
    inputs: [u32; 2],
    weights: VecDeque<Listed>,
    items: DeviceList,
}

impl DualList {
    fn new(pipeline: Pipeline, rank: u32) -> Self {
        let Pipeline { devices, micro_batches, .. } = pipeline;
        let (down, up) = (0, micro_batches / 2);
        let first = if rank < devices / 2 { [down, up] } else { [up, down] };
        Self {
            rank,
            devices,
            first,
            forwards: [0; 2],
            inputs: [0; 2],
            weights: VecDeque::new(),
            items: Vec::new(),
        }
    }

    /// The stage of this device for a direction.
    fn stage(&self, direction: usize) -> u32 {
        if self.first[direction] == 0 { self.rank } else { self.devices - 1 - self.rank }
    }

    fn next_forward(&mut self, direction: usize) -> Listed {
        let i = self.first[direction] + self.forwards[direction];
        self.forwards[direction] += 1;
        Listed::new(Pass::Forward, self.stage(direction), i)
    }

    /// I and W of the next backward pass.
    fn next_backward(&mut self, direction: usize) -> [Listed; 2] {
        let i = self.first[direction] + self.inputs[direction];
        self.inputs[direction] += 1;
        let stage = self.stage(direction);
        [Pass::InputGradient, Pass::WeightGradient]
            .map(|pass| Listed::new(pass, stage, i))
    }

    fn forward(&mut self, direction: usize, count: u32) {
        for _ in 0..count {
            let forward = self.next_forward(direction);
            self.items.push(Item::One(forward));
        }
    }

    fn input(&mut self, direction: usize) {
        let [input, weight] = self.next_backward(direction);
        self.items.push(Item::One(input));
        self.weights.push_back(weight);
    }

    /// The oldest weight gradient that is left, if one is.
    fn weight(&mut self) -> bool {
        let oldest = self.weights.pop_front();
        self.items.extend(oldest.map(Item::One));
        oldest.is_some()
    }

    /// A whole backward pass; older weight gradients wait for the end.
    fn whole(&mut self, direction: usize) {
        let halves = self.next_backward(direction);
        self.items.extend(halves.map(Item::One));
    }

    /// A forward pass of one direction, and beside it a whole backward pass of the other.
    fn pair(&mut self, forward: usize, backward: usize) {
        let forward = self.next_forward(forward);
        let [input, weight] = self.next_backward(backward);
        self.items.push(Item::Halves([forward, input, weight]));
    }
}
