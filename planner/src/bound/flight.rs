//! The law of flight: what a device holds while it takes its list. A forward pass keeps its
//! activations until its backward pass, or the halves of it, are done; a sum of gradients is held
//! from the first pass that adds to it to the last one, whole or in a shard: the update may follow at
//! once, and leave its place to the next sum. Parameters that are split are whole while a pass of
//! their stage runs, and so is its scratch memory.

use super::rest::{Held, share};
use crate::load::StageLoad;
use roundelay_schedule::{Bytes, Id, Kind, Listed, Pass, Placement, Plan, States};

/// What a device whose list is yet to be found, or whose micro-batches come from others, holds at
/// least while it takes its last micro-batch back.
pub(super) fn of_last(plan: &Plan, loads: &[StageLoad]) -> (Bytes, Kind) {
    let stages = 0..plan.stages;
    let listed = |pass, stage| Listed::new(pass, stage, 0);
    let passes: Vec<(Listed, u32)> = match plan.placement {
        Placement::Pipeline if plan.order.is_found() && plan.chunks == 1 => {
            let halves = [Pass::Forward, Pass::InputGradient, Pass::WeightGradient];
            let own = |stage| halves.map(|pass| (listed(pass, stage), stage));
            stages.flat_map(own).collect()
        }
        Placement::Data if !plan.rule.is_synchronous() => {
            let there = stages.clone().map(|stage| listed(Pass::Forward, stage));
            let back = stages.rev().map(|stage| listed(Pass::Backward, stage));
            there.chain(back).map(|listed| (listed, 0)).collect()
        }
        _ => return (Bytes(0), Kind::Parameter),
    };
    let devices =
        passes.iter().map(|(_, device)| *device as usize + 1).max().unwrap_or(0);
    fullest(plan, loads, (&passes, devices))
}

/// What the fullest device holds at least at one time, and the kind that takes most of it.
pub(super) fn fullest(
    plan: &Plan,
    loads: &[StageLoad],
    (passes, devices): (&[(Listed, u32)], usize),
) -> (Bytes, Kind) {
    let mut seen = vec![false; devices * loads.len()];
    let mut devices = vec![Device::default(); devices];
    for (listed, device) in passes {
        let (device, stage) = (*device as usize, listed.stage.index());
        let first = !std::mem::replace(&mut seen[device * loads.len() + stage], true);
        if first {
            let own = Held { activation: 0, ..Held::all(&loads[stage]) };
            devices[device].rest = devices[device].rest + share(plan, own);
        }
    }
    let adds = |pass| matches!(pass, Pass::Backward | Pass::WeightGradient);
    let mut all = vec![0u32; seen.len()];
    for (listed, device) in passes.iter().filter(|(listed, _)| adds(listed.pass)) {
        all[*device as usize * loads.len() + listed.stage.index()] += 1;
    }
    let mut left = all.clone();
    for (listed, device) in passes {
        let (number, stage) = (*device as usize, listed.stage.index());
        let place = number * loads.len() + stage;
        let sum = adds(listed.pass).then(|| {
            left[place] -= 1;
            Sum { opens: left[place] + 1 == all[place], closes: left[place] == 0 }
        });
        devices[number].take(plan, &loads[stage], listed.pass, sum);
    }
    let fullest = devices.into_iter().max_by_key(|device| device.most);
    let Some(device) = fullest else { return (Bytes(0), Kind::Parameter) };
    (Bytes(device.most), device.kind())
}

/// What a pass that adds to a sum of gradients is to it.
#[derive(Clone, Copy, Debug)]
struct Sum {
    /// Nothing was there before.
    opens: bool,
    /// Nothing comes after.
    closes: bool,
}

/// One device on its way through its list.
#[derive(Clone, Copy, Debug, Default)]
struct Device {
    /// What it holds at rest.
    rest: Held,
    /// Activations in flight.
    flying: u64,
    /// Sums of gradients.
    sums: u64,
    /// The most at one time, and what of it is in flight or a sum.
    most: u64,
    part: [u64; 2],
}

impl Device {
    fn take(&mut self, plan: &Plan, load: &StageLoad, pass: Pass, sum: Option<Sum>) {
        let first = sum.is_some_and(|sum| sum.opens);
        let split = match plan.states {
            States::Replicated | States::Handoff | States::Zero1 => false,
            States::Zero2 | States::Zero3 | States::Hsdp => true,
        };
        let parts = u64::from(plan.parts()).max(1);
        match pass {
            Pass::Forward => self.flying += load.kept().0,
            Pass::InputGradient => self.flying += load.adjoint.0,
            _ if first && !split => self.sums += load.gradient.0,
            _ => {}
        }
        let whole = match plan.states {
            States::Zero3 | States::Hsdp => load.parameters.0,
            States::Handoff => load.parameters.0.saturating_sub(self.rest.parameter),
            States::Replicated | States::Zero1 | States::Zero2 => 0,
        };
        let gradient = if sum.is_some() && split { load.gradient.0 } else { 0 };
        let scratch = match pass {
            Pass::Forward => load.scratch[0],
            Pass::Backward | Pass::InputGradient => load.scratch[1],
            Pass::WeightGradient => load.scratch[2],
            Pass::Combine | Pass::Update => Bytes(0),
        };
        self.count(whole + gradient + scratch.0, self.sums + gradient);
        match pass {
            Pass::Backward => self.flying -= load.kept().0,
            Pass::InputGradient => self.flying -= load.activation.0,
            Pass::WeightGradient => {
                self.flying -= load.retained.0 + load.adjoint.0;
            }
            _ => {}
        }
        if first && split {
            self.sums += load.gradient.0 / parts;
        }
        if sum.is_some_and(|sum| sum.closes) {
            self.sums -= load.gradient.0 / if split { parts } else { 1 };
        }
    }

    fn count(&mut self, besides: u64, sums: u64) {
        let all = self.rest.total() + self.flying + self.sums + besides;
        if all > self.most {
            self.most = all;
            self.part = [self.flying, sums];
        }
    }

    fn kind(&self) -> Kind {
        let [flying, sums] = self.part;
        let kinds = [
            (self.rest.parameter, Kind::Parameter),
            (self.rest.optimizer, Kind::Optimizer),
            (flying, Kind::Activation),
            (sums, Kind::Gradient),
        ];
        kinds.into_iter().max().map_or(Kind::Parameter, |(_, kind)| kind)
    }
}
