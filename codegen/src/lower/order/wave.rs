//! Wave pipelines (Hanayo, arXiv 2308.15762): W waves are 2W chunks on each device, which go down
//! and up the devices W times. Backward passes go first, then the oldest micro-batch; whoever is
//! free starts what it can.

use super::lists::Pipeline;
use roundelay_schedule::{DeviceList, Item, Pass, pass_length};
use std::{cmp::Reverse, collections::BinaryHeap};

/// The lists of all devices. A micro-batch enters while fewer than 2p are on their way: with p
/// of them no device keeps more than p, as published, and with more of them the bubble stays
/// small.
pub(super) fn waves(pipeline: Pipeline) -> Vec<DeviceList> {
    let mut wave = Wave::new(pipeline);
    while let Some(Reverse((time, device))) = wave.wakes.pop() {
        wave.wake(device, time);
    }
    wave.lists
}

/// A stage while the devices are filled: when each micro-batch was done, forward and backward.
#[derive(Clone, Debug, Default)]
struct StageEnds {
    forward: Vec<u64>,
    backward: Vec<u64>,
}

struct Wave {
    pipeline: Pipeline,
    stages: Vec<StageEnds>,
    free: Vec<u64>,
    lists: Vec<DeviceList>,
    /// When devices look for something to do.
    wakes: BinaryHeap<Reverse<(u64, u32)>>,
}

impl Wave {
    fn new(pipeline: Pipeline) -> Self {
        let Pipeline { devices, chunks, .. } = pipeline;
        Self {
            pipeline,
            stages: vec![StageEnds::default(); (devices * chunks) as usize],
            free: vec![0; devices as usize],
            lists: vec![Vec::new(); devices as usize],
            wakes: (0..devices).map(|device| Reverse((0, device))).collect(),
        }
    }

    /// The device of a stage.
    fn seat(&self, stage: u32) -> u32 {
        let p = self.pipeline.devices;
        let (chunk, rank) = (stage / p, stage % p);
        if chunk.is_multiple_of(2) { rank } else { p - 1 - rank }
    }

    fn wake(&mut self, device: u32, now: u64) {
        if self.free[device as usize] > now {
            return;
        }
        let p = self.pipeline.devices;
        let own = (0..self.pipeline.chunks).map(|chunk| match chunk.is_multiple_of(2) {
            true => chunk * p + device,
            false => chunk * p + p - 1 - device,
        });
        let open = own.flat_map(|stage| {
            let backward = self.backward(stage, now).map(|i| (false, i, stage));
            let forward = self.forward(stage, now).map(|i| (true, i, stage));
            [backward, forward].into_iter().flatten()
        });
        let Some((forward, i, stage)) = open.min() else { return };
        let pass = if forward { Pass::Forward } else { Pass::Backward };
        let end = now + pass_length(pass);
        let ends = &mut self.stages[stage as usize];
        let (ends, next) = match forward {
            true => (&mut ends.forward, Some(stage + 1)),
            false => (&mut ends.backward, stage.checked_sub(1)),
        };
        ends.push(end);
        self.free[device as usize] = end;
        self.lists[device as usize].push(Item::new(pass, stage, i));
        self.wakes.push(Reverse((end, device)));
        let known = next.filter(|next| (*next as usize) < self.stages.len());
        self.wakes.extend(known.map(|next| Reverse((end, self.seat(next)))));
    }

    /// The next micro-batch whose forward pass a stage can start.
    fn forward(&self, stage: u32, now: u64) -> Option<u32> {
        let ends = &self.stages[stage as usize];
        let next = ends.forward.len();
        let there = match stage.checked_sub(1) {
            Some(above) => done(&self.stages[above as usize].forward, next, now),
            None => next - ends.backward.len() < 2 * self.pipeline.devices as usize,
        };
        let open = there && next < self.pipeline.micro_batches as usize;
        open.then(|| number(next))
    }

    /// The next micro-batch whose backward pass a stage can start.
    fn backward(&self, stage: u32, now: u64) -> Option<u32> {
        let ends = &self.stages[stage as usize];
        let next = ends.backward.len();
        let behind = self.stages.get(stage as usize + 1);
        let there = behind.is_none_or(|behind| done(&behind.backward, next, now));
        (there && done(&ends.forward, next, now)).then(|| number(next))
    }
}

fn done(ends: &[u64], number: usize, now: u64) -> bool {
    ends.get(number).is_some_and(|end| *end <= now)
}

fn number(next: usize) -> u32 {
    u32::try_from(next).expect("a plan counts micro-batches in 32 bits")
}
