//! The law of flight: what a device holds while it takes its list. A forward pass keeps its
//! activations until its backward pass, or the halves of it, are done; a sum of gradients is held
//! from the first pass that adds to it to the last one, whole or in a shard: the update may follow at
//! once, and leave its place to the next sum. Parameters that are split are whole while a pass of
//! their stage runs, and so is its scratch memory.

use super::{
    lists::Lists,
    rest::{Held, share},
};
use crate::load::StageLoad;
use roundelay_schedule::{Bytes, Id, Kind, Pass, Plan, States};

/// What the fullest device holds at least at one time, and the kind that takes most of it.
pub(super) fn fullest(plan: &Plan, loads: &[StageLoad], lists: &Lists) -> (Bytes, Kind) {
    let mut devices = vec![Device::default(); lists.devices];
    let mut seen = vec![false; lists.devices * loads.len()];
    for (listed, device) in &lists.passes {
        let (device, stage) = (*device as usize, listed.stage.index());
        let first = !std::mem::replace(&mut seen[device * loads.len() + stage], true);
        if first {
            let own = Held { activation: 0, ..Held::all(&loads[stage]) };
            devices[device].rest = devices[device].rest + share(plan, own);
        }
    }
    let adds = |pass| matches!(pass, Pass::Backward | Pass::WeightGradient);
    let mut all = vec![0u32; lists.devices * loads.len()];
    for (listed, device) in lists.passes.iter().filter(|(listed, _)| adds(listed.pass)) {
        all[*device as usize * loads.len() + listed.stage.index()] += 1;
    }
    let mut left = all.clone();
    for (listed, device) in &lists.passes {
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
            _ => 0,
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
