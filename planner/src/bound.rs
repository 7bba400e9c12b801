//! Admissible lower bounds: no legal schedule of a plan is faster or smaller.

use crate::{load::StageLoad, traffic::traffic};
use roundelay_schedule::{
    Bytes, Fold, Kind, Nanos, Order, Placement, Plan, Rule, States, Target,
};

/// Lower bounds of one plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Of the busiest device: the work that the placement puts there.
    pub work: Nanos,
    /// Of the longest chain of dependences, per training step that it spans.
    pub path: Nanos,
    /// Of the ports of the busiest device: what collectives of replicas and workers let through.
    pub traffic: Nanos,
    /// Of the fullest device: what it must hold at one time.
    pub memory: Bytes,
    /// The kind that takes most of it.
    pub kind: Kind,
}

impl Bound {
    /// The bounds of a plan whose stages take `loads` on the fastest device of the cluster.
    pub fn new(plan: &Plan, loads: &[StageLoad], target: &Target) -> Self {
        let (memory, kind) = memory(plan, loads);
        Self {
            work: work(plan, loads),
            path: path(plan, loads),
            traffic: traffic(plan, loads, target),
            memory,
            kind,
        }
    }

    /// Of the time of one training step.
    pub fn step_time(&self) -> Nanos {
        self.work.max(self.path).max(self.traffic)
    }
}

/// Law: the busiest device does at least its share of all forward and backward passes. Lanes of
/// one device share its arithmetic.
fn work(plan: &Plan, loads: &[StageLoad]) -> Nanos {
    let n = u64::from(plan.micro_batches);
    let all: Nanos = loads.iter().map(StageLoad::pass).sum();
    let ring = |stage: u32| -> u64 {
        match plan.rule {
            Rule::Sync => n,
            Rule::CyclicV1 | Rule::CyclicV2 | Rule::CyclicSlack(_) => {
                let Plan { placement, rule, micro_batches, stages, .. } = *plan;
                u64::from(placement.ring(rule, micro_batches, stages, stage))
            }
        }
    };
    match plan.placement {
        Placement::Accumulate | Placement::Concurrent => all * n,
        Placement::Data => all,
        Placement::Pipeline => {
            let devices = seated(plan, loads).into_iter();
            let each = devices.map(|own| own.into_iter().map(StageLoad::pass).sum());
            let most: Nanos = each.max().unwrap_or_default();
            Nanos((most * n).0 / holders(plan))
        }
        Placement::Shared => (0..)
            .zip(loads)
            .map(|(stage, load)| Nanos((load.pass() * n).0 / ring(stage).max(1)))
            .max()
            .unwrap_or_default(),
    }
}

/// Law: a micro-batch i that sees θ^j of step t − τ is followed, after its forward and backward
/// through stages j..S, by the update that micro-batch i of step t + 1 + τ sees. So 1 + τ(i, j)
/// training steps take at least Σ_{k ≥ j} (f_k + b_k). Where backward passes are in halves, those
/// that make gradients of parameters do not follow each other: only Σ f_k is sure.
fn path(plan: &Plan, loads: &[StageLoad]) -> Nanos {
    let split = plan.order.splits_backward() || plan.order == Order::Listed;
    let mut rest = Nanos(0);
    let mut longest = Nanos(0);
    for (stage, load) in loads.iter().enumerate().rev() {
        rest += if split { load.forward } else { load.pass() };
        let freshest =
            (0..plan.micro_batches as usize).map(|i| plan.delays.delay(i, stage)).min();
        let steps = 1 + u64::from(freshest.unwrap_or(0));
        longest = longest.max(Nanos(rest.0 / steps));
    }
    longest
}

/// Law: at rest a device holds its share of parameters and optimizer state, and when a
/// micro-batch turns from forward to backward, what its forward kept on that device.
fn memory(plan: &Plan, loads: &[StageLoad]) -> (Bytes, Kind) {
    let own = loads.iter().map(|load| share(plan, Held::all(load)));
    let held = match plan.placement {
        Placement::Accumulate | Placement::Concurrent | Placement::Data => {
            own.fold(Held::default(), |sum, held| sum + held).keeping(lanes(plan))
        }
        Placement::Shared => own
            .map(|held| held.keeping(lanes(plan)))
            .max_by_key(Held::total)
            .unwrap_or_default(),
        Placement::Pipeline => (0..)
            .zip(seated(plan, loads))
            .map(|(rank, loads)| on_device(plan, rank, &loads))
            .max_by_key(Held::total)
            .unwrap_or_default(),
    };
    (Bytes(held.total()), held.kind())
}

/// Devices of a pipeline that have the same stage.
fn holders(plan: &Plan) -> u64 {
    if plan.order.fold() == Fold::Mirror { 2 } else { 1 }
}

/// The stages of each device of a pipeline; of two pipelines in opposite directions, both.
fn seated<'a>(plan: &Plan, loads: &'a [StageLoad]) -> Vec<Vec<&'a StageLoad>> {
    let mut devices = vec![Vec::new(); plan.pipeline_devices() as usize];
    let last = devices.len().saturating_sub(1);
    for (stage, load) in (0..).zip(loads) {
        let seat = plan.seat(stage).map_or(0, |seat| seat as usize);
        devices[seat].push(load);
        if holders(plan) == 2 {
            devices[last - seat].push(load);
        }
    }
    devices
}

/// What device `rank` of a pipeline is sure to hold: when its last stage turns a micro-batch
/// round, all its stages keep something of it.
fn on_device(plan: &Plan, rank: u64, loads: &[&StageLoad]) -> Held {
    let each = loads.iter().map(|load| share(plan, Held::all(load)));
    let all = each.fold(Held::default(), |sum, held| sum + held);
    let (p, n) = (u64::from(plan.pipeline_devices()), u64::from(plan.micro_batches));
    let activation = match holders(plan) {
        1 => all.activation,
        _ => loads.iter().map(|load| load.activation.0).min().unwrap_or(0),
    };
    let before_the_first_turns = match plan.order {
        Order::Gpipe | Order::BreadthFirst => n,
        Order::OneForwardOneBackward
        | Order::Eager
        | Order::ZeroBubbleH1
        | Order::ZeroBubbleH2 => n.min(p - rank),
        _ => 1,
    };
    Held { activation: activation * before_the_first_turns, ..all }
}

/// What one device is sure to hold of a stage that it computes with. Under a cyclic rule the
/// optimizer state of a ring or of workers is with one of them.
fn share(plan: &Plan, all: Held) -> Held {
    let parts = u64::from(plan.parts()).max(1);
    match plan.states {
        States::Replicated if plan.placement == Placement::Shared => {
            Held { optimizer: 0, ..all }
        }
        States::Replicated => all,
        States::Zero1 | States::Zero2 => Held { optimizer: all.optimizer / parts, ..all },
        States::Zero3 | States::Hsdp => {
            let (parameter, optimizer) = (all.parameter / parts, all.optimizer / parts);
            Held { parameter, optimizer, ..all }
        }
        States::Handoff => Held { parameter: 0, optimizer: 0, ..all },
    }
}

/// Bytes that a device is sure to hold at one time.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    parameter: u64,
    optimizer: u64,
    activation: u64,
}

impl Held {
    fn all(load: &StageLoad) -> Self {
        Self {
            parameter: load.parameters.0,
            optimizer: load.optimizer.0,
            activation: load.activation.0,
        }
    }
    fn keeping(self, micro_batches: u64) -> Self {
        Self { activation: self.activation * micro_batches, ..self }
    }
    fn total(&self) -> u64 {
        self.parameter + self.optimizer + self.activation
    }
    fn kind(&self) -> Kind {
        let kinds = [
            (self.parameter, Kind::Parameter),
            (self.optimizer, Kind::Optimizer),
            (self.activation, Kind::Activation),
        ];
        kinds.into_iter().max().map_or(Kind::Parameter, |(_, kind)| kind)
    }
}

impl std::ops::Add for Held {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            parameter: self.parameter + other.parameter,
            optimizer: self.optimizer + other.optimizer,
            activation: self.activation + other.activation,
        }
    }
}

/// Micro-batches whose activations a device is sure to keep at one time.
fn lanes(plan: &Plan) -> u64 {
    match (plan.placement, plan.order) {
        (Placement::Concurrent, Order::Parallel) => u64::from(plan.micro_batches),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn delays_divide_the_path_and_devices_divide_the_work() {
        let load = StageLoad {
            forward: Nanos(1),
            backward: Nanos(2),
            parameters: Bytes(8),
            optimizer: Bytes(16),
            activation: Bytes(4),
        };
        let loads = vec![load; 4];
        let bound = |rule, placement, order| {
            let plan = sample::plan(rule, placement, order, 4, 4);
            Bound::new(&plan, &loads, &sample::target(16))
        };
        let sync = bound(Rule::Sync, Placement::Pipeline, Order::Gpipe);
        assert_eq!((sync.work, sync.path), (Nanos(12), Nanos(12)));
        assert_eq!(sync.memory, Bytes(8 + 16 + 4 * 4));
        let lazy = bound(Rule::CyclicV1, Placement::Data, Order::Cyclic);
        assert_eq!((lazy.work, lazy.path), (Nanos(12), Nanos(6)));
        let shared = bound(Rule::CyclicV2, Placement::Shared, Order::Cyclic);
        assert_eq!((shared.work, shared.path), (Nanos(12), Nanos(12)));
    }
}
