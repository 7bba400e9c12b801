//! Pipelines that go down the devices and up again: device r has the stages r and 2p − 1 − r.
//! "Pipeline Parallelism with Controllable Memory", arXiv 2405.15362, and ZB-V of arXiv
//! 2401.10241.

use super::{
    lists::Pipeline,
    squeeze::{First, Pattern, Policy, squeeze},
};
use roundelay_schedule::{DeviceList, Id, Item, Listed, MicroBatch, Pass};

/// Slots of the building block that is repeated for every micro-batch: F, I and W of two chunks.
const BLOCK: u32 = 6;

/// The order of the building blocks, and two ways to squeeze warm-up and cool-down.
const POLICIES: [Policy; 3] = [
    Policy { window: 1, first: First::Pattern, overtaken: 0 },
    Policy { window: 3, first: First::Farthest(3), overtaken: 0 },
    Policy { window: 8, first: First::Farthest(2), overtaken: 2 },
];

/// ZB-V: no bubble if all passes take equal time, activations of p micro-batches.
pub(super) fn zero_bubble(pipeline: Pipeline, rank: u32) -> DeviceList {
    let Pipeline { devices, micro_batches, .. } = pipeline;
    // Defined from 2p − 1 micro-batches on; with fewer, those that are not there are left out.
    let mut list = VeeList::new(pipeline, rank, micro_batches.max(2 * devices - 1));
    let after = devices - rank;
    list.repeat(2 * after - 1, &[(Pass::Forward, 0)]);
    list.repeat(rank, &[(Pass::Forward, 1), (Pass::Forward, 0)]);
    let turn = [(Pass::InputGradient, 1), (Pass::WeightGradient, 1)];
    list.repeat(after, &[&[(Pass::Forward, 1)], &turn[..]].concat());
    let down = [(Pass::Forward, 0), (Pass::InputGradient, 0), (Pass::WeightGradient, 0)];
    let up = [(Pass::Forward, 1), (Pass::InputGradient, 1), (Pass::WeightGradient, 1)];
    while list.remain(Pass::Forward, 1) || list.remain(Pass::Forward, 0) {
        list.repeat(1, &[down, up].concat());
    }
    list.repeat(rank, &[(Pass::InputGradient, 0), (Pass::InputGradient, 1)]);
    list.repeat(after, &[(Pass::InputGradient, 0), (Pass::WeightGradient, 0)]);
    for chunk in [1, 0] {
        while list.remain(Pass::WeightGradient, chunk) {
            list.repeat(1, &[(Pass::WeightGradient, chunk)]);
        }
    }
    let end = MicroBatch::numbered(micro_batches);
    let kept = list.listed.into_iter().filter(|listed| listed.micro_batch < end);
    kept.map(Item::One).collect()
}

/// A list of a device with two chunks, while it grows.
struct VeeList {
    stages: [u32; 2],
    micro_batches: u32,
    next: [[u32; 2]; 3],
    listed: Vec<Listed>,
}

impl VeeList {
    fn new(pipeline: Pipeline, rank: u32, micro_batches: u32) -> Self {
        let stages = stages(pipeline, rank);
        Self { stages, micro_batches, next: [[0; 2]; 3], listed: Vec::new() }
    }

    fn repeat(&mut self, times: u32, passes: &[(Pass, usize)]) {
        for (pass, chunk) in (0..times).flat_map(|_| passes).copied() {
            let next = &mut self.next[kind(pass)][chunk];
            if *next < self.micro_batches {
                self.listed.push(Listed::new(pass, self.stages[chunk], *next));
                *next += 1;
            }
        }
    }

    fn remain(&self, pass: Pass, chunk: usize) -> bool {
        self.next[kind(pass)][chunk] < self.micro_batches
    }
}

fn kind(pass: Pass) -> usize {
    match pass {
        Pass::Forward => 0,
        Pass::Backward | Pass::InputGradient => 1,
        Pass::WeightGradient | Pass::Combine | Pass::Norm | Pass::Update => 2,
    }
}

fn stages(pipeline: Pipeline, rank: u32) -> [u32; 2] {
    [rank, 2 * pipeline.devices - 1 - rank]
}

/// V-Half: activations of ⌊p/2⌋ + 1 micro-batches.
pub(super) fn half(pipeline: Pipeline) -> Vec<DeviceList> {
    let p = pipeline.devices;
    let even = if p.is_multiple_of(2) { 3 } else { 0 };
    let starts =
        |i: u32| [2 * i, 3 * p - 2 - i, 3 * p + even + 2 * i - 1, 6 * p + even - 2 - i];
    repeated(pipeline, p / 2 + 1, starts)
}

/// V-Min: activations of ⌊(p + 4)/3⌋ micro-batches.
pub(super) fn minimal(pipeline: Pipeline) -> Vec<DeviceList> {
    let p = pipeline.devices;
    let third = if p.is_multiple_of(3) { 2 } else { 0 };
    let starts = |i: u32| [i, 2 * p - 1 - i, 2 * p + third + i, 4 * p + third - 1 - i];
    repeated(pipeline, (p + 4) / 3, starts)
}

/// The building block of F₀, F₁, I₁, I₀ on each device, once per micro-batch, squeezed.
fn repeated(
    pipeline: Pipeline,
    kept: u32,
    starts: impl Fn(u32) -> [u32; 4],
) -> Vec<DeviceList> {
    let Pipeline { devices, micro_batches, .. } = pipeline;
    let list = |rank: u32| {
        let [down, up] = stages(pipeline, rank);
        let block = [
            (Pass::Forward, down),
            (Pass::Forward, up),
            (Pass::InputGradient, up),
            (Pass::InputGradient, down),
        ];
        let starts = starts(rank);
        let timed = (0..micro_batches).flat_map(|i| {
            let one = move |((pass, stage), start): ((Pass, u32), u32)| {
                (start + BLOCK * i, Listed::new(pass, stage, i))
            };
            block.into_iter().zip(starts).map(one)
        });
        let mut timed: Vec<(u32, Listed)> = timed.collect();
        timed.sort_by_key(|(start, _)| *start);
        timed.into_iter().map(|(_, listed)| listed).collect()
    };
    let pattern = Pattern {
        lists: (0..devices).map(list).collect(),
        stages: 2 * devices,
        micro_batches,
        kept_max: 2 * kept,
    };
    squeeze(&pattern, &POLICIES)
}
