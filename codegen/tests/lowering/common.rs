//! What the stages of one device keep lies in slots that they have in common.

use crate::{orders::pipeline, support::program_of};
use roundelay_codegen::lower;
use roundelay_kernels::Kernels;
use roundelay_schedule::{
    Buffer, Bytes, Checked, DeviceId, Order, Pass, Plan, Stage, Subject, Work, check,
};
use std::collections::{BTreeMap, BTreeSet};

/// A pipeline of layers of two nodes, of which the second one keeps what the first one makes.
fn compiled(plan: Plan) -> Checked {
    let plan = Plan { cuts: plan.cuts.iter().map(|cut| 2 * cut).collect(), ..plan };
    let batch = plan.all_micro_batches();
    let program = program_of("x = gelu(linear(x, 16))", plan.stages, batch);
    check(lower(&program, &plan).unwrap(), &Kernels).unwrap_or_else(|w| panic!("{w}"))
}

/// What a device keeps from forward passes to backward passes in list order: the most at one time, and
/// the sum of the most of each stage.
#[derive(Clone, Debug, Default)]
struct Kept {
    now: BTreeMap<Stage, usize>,
    most_of_each: BTreeMap<Stage, usize>,
    most: usize,
}

impl Kept {
    fn pass(&mut self, pass: Pass, stage: Stage) {
        let now = self.now.entry(stage).or_default();
        match pass {
            Pass::Forward => *now += 1,
            Pass::Backward | Pass::InputGradient => *now -= 1,
            Pass::WeightGradient | Pass::Combine | Pass::Norm | Pass::Update => return,
        }
        let most = self.most_of_each.entry(stage).or_default();
        *most = (*now).max(*most);
        self.most = self.now.values().sum::<usize>().max(self.most);
    }

    fn apart(&self) -> usize {
        self.most_of_each.values().sum()
    }
}

fn kept(schedule: &Checked) -> BTreeMap<DeviceId, Kept> {
    let mut devices: BTreeMap<DeviceId, Kept> = BTreeMap::new();
    for action in schedule.actions.values() {
        if let (Work::Launch { at, .. }, Some(task)) =
            (&action.work, schedule.task(action))
        {
            let device = schedule.rings[at.ring].device(at.place, 0);
            devices.entry(device).or_default().pass(task.pass, task.stage);
        }
    }
    devices
}

/// The buffers of a device for what forward passes keep.
fn activations(schedule: &Checked, device: DeviceId) -> Vec<&Buffer> {
    let buffers = schedule.buffers.values().filter(|buffer| {
        let is_own = matches!(buffer.subject, Subject::Activation(_));
        is_own && schedule.rings[buffer.home].devices.contains(&device)
    });
    buffers.collect()
}

#[test]
fn a_device_takes_as_many_slots_as_it_ever_keeps() {
    let mut less = 0;
    for (order, p, chunks, n) in [
        (Order::Interleaved, 4, 2, 8),
        (Order::Interleaved, 4, 3, 8),
        (Order::ZeroBubbleV, 4, 2, 8),
        (Order::HalfV, 8, 2, 24),
        (Order::MinimalV, 8, 2, 24),
    ] {
        let schedule = compiled(pipeline(order, p, chunks, n));
        for (device, kept) in kept(&schedule) {
            let buffers = activations(&schedule, device);
            let sizes: BTreeSet<Bytes> = buffers.iter().map(|own| own.size).collect();
            assert_eq!(buffers.len(), chunks as usize);
            let [size] = sizes.into_iter().collect::<Vec<_>>()[..] else { continue };
            let start = buffers.iter().map(|own| own.offset).min().unwrap();
            let end = buffers.iter().map(|own| own.offset + own.total()).max().unwrap();
            assert_eq!(end - start, size * kept.most as u64, "{order:?} {device}");
            less += usize::from(kept.most < kept.apart());
        }
    }
    assert!(less > 8, "{less} devices take less than apart");
}

/// Pairs have two lanes on a device, and one would wait for slots of the other.
#[test]
fn lists_with_pairs_have_no_slots_in_common() {
    let other = "1F0 1F1 1F2 1F3 3F0 3B0 1B0 3F1 3B1 3F2 3B2 3F3 3B3 1B1 1B2 1B3";
    let list = |text: &str| text.split(' ').map(|cell| cell.parse().unwrap()).collect();
    for (places, passes) in [(1, "2F3 2B1"), (2, "(2F3;2B1)OVERLAP_F_B")] {
        let own =
            format!("0F0 0F1 0F2 0F3 2F0 2B0 0B0 2F1 2F2 {passes} 2B2 2B3 0B1 0B2 0B3");
        let lists = [own.as_str(), other].map(list).into();
        let plan = pipeline(Order::Listed, 2, 2, 4).with_chunks(1).with_lists(lists);
        let schedule = compiled(plan);
        let first = schedule.plan.devices[0];
        let found: BTreeSet<Bytes> =
            activations(&schedule, first).iter().map(|own| own.offset).collect();
        assert_eq!(found.len(), places, "{passes}");
    }
}
