//! The law of rest: what a device holds of states, and of one micro-batch that turns round.

use super::{holders, seated, sums, work::splits};
use crate::{costs::load::StageLoad, space::cutting::Cutting};
use roundelay_dsl::Program;
use roundelay_schedule::{Bytes, Kind, Order, Placement, Plan, Rule, States};

/// States alone, by the elements of the fullest device.
pub(super) fn of_nodes(program: &Program, plan: &Plan, most: Most) -> (Bytes, Kind) {
    let dtype = program.train.dtype;
    let width = program.train.optimizer.arrays(dtype) * dtype.wide_size();
    let rest = share(
        plan,
        Held {
            parameter: most.all * dtype.size(),
            optimizer: most.all * width,
            ..Held::default()
        },
    );
    let working = match plan.states {
        States::Handoff => {
            let (parameter, optimizer) = (most.one * dtype.size(), most.one * width);
            let owner = Held { parameter, optimizer, ..Held::default() };
            if owner.total() > rest.total() { owner } else { rest }
        }
        States::Zero3 | States::Hsdp => {
            Held { parameter: rest.parameter + most.one * dtype.size(), ..rest }
        }
        States::Replicated | States::Zero1 | States::Zero2 => rest,
    };
    let gradient = most.sums(plan) * dtype.gradient().size(dtype);
    let held = Held { gradient, ..working };
    (Bytes(held.total()), held.kind())
}

/// Elements of the stages of the fullest device of a cell.
#[derive(Clone, Copy, Debug)]
pub(super) struct Most {
    /// The device; where several take a stage, the first.
    pub(super) device: u32,
    /// All of them.
    pub(super) all: u64,
    /// One that it passes through.
    one: u64,
    /// Whether the backward passes of all stages read parameters.
    pub(super) reads: bool,
}

impl Most {
    /// Of one stage alone.
    pub(super) fn one(elements: u64) -> Self {
        Self { device: 0, all: elements, one: elements, reads: true }
    }

    /// Elements of gradients that are sure to be there when the device takes its last micro-batch
    /// back through one stage: its sum, and where micro-batches follow each other those of all
    /// stages, to which the ones before have added.
    fn sums(self, plan: &Plan) -> u64 {
        let follow = plan.placement == Placement::Accumulate && plan.micro_batches > 1;
        match (plan.rule, plan.states) {
            (Rule::Sync, States::Replicated | States::Zero1) if follow => self.all,
            _ => self.one,
        }
    }
}

/// Those of each device of a cell; of one that stands for all where all have the same.
pub(super) fn each_most(plan: &Plan, cutting: &Cutting) -> Vec<Most> {
    let Cutting { elements, reads, .. } = cutting;
    let on = |(device, all, one)| Most { device, all, one, reads: *reads };
    let own = || (0..).zip(elements.iter().copied());
    match plan.placement {
        Placement::Accumulate | Placement::Concurrent | Placement::Data => {
            vec![most(plan, cutting)]
        }
        Placement::Shared => own().map(|(stage, all)| on((stage, all, 0))).collect(),
        Placement::Pipeline if plan.chunks == 1 && plan.lists.is_empty() => {
            own().map(|(stage, all)| on((stage, all, all))).collect()
        }
        Placement::Pipeline => {
            let sums = (0..).zip(sums(plan, elements.iter().copied()));
            sums.map(|(device, all)| on((device, all, 0))).collect()
        }
    }
}

pub(super) fn most(plan: &Plan, cutting: &Cutting) -> Most {
    let Cutting { elements, largest: one, widest, all, reads, .. } = cutting;
    let (one, reads) = (*one, *reads);
    let on = |device: usize, all, one| Most {
        device: u32::try_from(device).unwrap_or(u32::MAX),
        all,
        one,
        reads,
    };
    match plan.placement {
        Placement::Accumulate | Placement::Concurrent | Placement::Data => {
            on(0, *all, one)
        }
        Placement::Shared => on(*widest, one, 0),
        Placement::Pipeline if plan.chunks == 1 && plan.lists.is_empty() => {
            on(*widest, one, one)
        }
        Placement::Pipeline => {
            let all = sums(plan, elements.iter().copied()).into_iter().enumerate();
            let most = all.max_by_key(|(_, elements)| *elements);
            let (device, all) = most.unwrap_or_default();
            on(device, all, 0)
        }
    }
}

/// Law: at rest a device holds its share of parameters and optimizer state, and when a
/// micro-batch turns from forward to backward, what its forward kept on that device.
pub(super) fn of_stages(plan: &Plan, loads: &[StageLoad]) -> (Bytes, Kind) {
    let fullest = each(plan, loads).into_iter().max_by_key(Held::total);
    let held = fullest.unwrap_or_default();
    (Bytes(held.total()), held.kind())
}

/// What each device of a cell holds; one that stands for all where all hold as much.
pub(super) fn each(plan: &Plan, loads: &[StageLoad]) -> Vec<Held> {
    let own = loads.iter().map(|load| share(plan, Held::all(load)));
    match plan.placement {
        Placement::Accumulate | Placement::Concurrent | Placement::Data => {
            let all = own.fold(Held::default(), |sum, held| sum + held);
            let all = turning(plan, loads, all).keeping(lanes(plan));
            vec![match plan.states {
                States::Handoff => owning(plan, loads, all),
                States::Replicated
                | States::Zero1
                | States::Zero2
                | States::Zero3
                | States::Hsdp => all,
            }]
        }
        Placement::Shared => own.map(|held| held.keeping(lanes(plan))).collect(),
        Placement::Pipeline => {
            let (timeline, n) = (plan.placement.timeline(), plan.micro_batches);
            let stalest: Vec<u32> = plan.rule.stalest(timeline, n, plan.stages).collect();
            let stages = (loads, stalest.as_slice());
            (0..)
                .zip(seated(plan))
                .map(|(rank, own)| on_device(plan, rank, stages, &own))
                .collect()
        }
    }
}

/// Law: of a state that travels somebody keeps the versions that are still seen, the optimizer's
/// part, and when the update comes the whole sum. So the fullest worker holds no less than the
/// owner of any stage, which takes its own micro-batch through all stages as well.
fn owning(plan: &Plan, loads: &[StageLoad], all: Held) -> Held {
    let stalest =
        plan.rule.stalest(plan.placement.timeline(), plan.micro_batches, plan.stages);
    let owner = |(load, stalest): (&StageLoad, u32)| Held {
        parameter: load.parameters.0 * (1 + u64::from(stalest)),
        optimizer: load.optimizer.0,
        gradient: load.gradient.0,
        activation: all.activation,
    };
    let owners = loads.iter().zip(stalest).map(owner);
    owners.chain([all]).max_by_key(Held::total).unwrap_or_default()
}

/// With what the stages keep that are sure to be on their way together: all of them, but under a
/// local rule one, since a unit has turned before the next one begins.
fn turning(plan: &Plan, loads: &[StageLoad], all: Held) -> Held {
    match plan.rule {
        Rule::Sync | Rule::CyclicV1 | Rule::CyclicV2 | Rule::CyclicSlack(_) => all,
        Rule::Local { .. } => {
            let most = loads.iter().map(|load| load.kept().0).max().unwrap_or(0);
            Held { activation: most, ..all }
        }
    }
}

/// What device `rank` of a pipeline is sure to hold: when its last stage turns a micro-batch
/// round, all its stages keep something of it.
fn on_device(
    plan: &Plan,
    rank: u64,
    (loads, stalest): (&[StageLoad], &[u32]),
    stages: &[usize],
) -> Held {
    let own = || stages.iter().map(|stage| &loads[*stage]);
    let each = own().map(|load| share(plan, Held::all(load)));
    let all = each.fold(Held::default(), |sum, held| sum + held);
    let (p, n) = (u64::from(plan.pipeline_devices()), u64::from(plan.micro_batches));
    let activation = match holders(plan) {
        1 => all.activation,
        _ => own().map(|load| load.kept().0).min().unwrap_or(0),
    };
    let before_the_first_turns = match plan.order {
        // A unit has its own warm-up, and the last stage of each turns at once.
        _ if matches!(plan.rule, Rule::Local { .. }) => 1,
        Order::Gpipe | Order::BreadthFirst => n,
        Order::OneForwardOneBackward
        | Order::Eager
        | Order::ZeroBubbleH1
        | Order::ZeroBubbleH2 => n.min(p - rank),
        // A micro-batch comes every two slots, and is back at stage j after 2(S − j) − 1.
        Order::Cyclic => p - rank,
        _ => 1,
    };
    let versions: u64 = stages
        .iter()
        .map(|stage| loads[*stage].parameters.0 * u64::from(stalest[*stage]))
        .sum();
    // Each version that some micro-batch still sees has a place of its own.
    let parameter = match plan.states {
        States::Replicated => all.parameter + versions,
        _ => all.parameter,
    };
    // The first of them that turns writes the gradient, while the others are still there.
    let gradient = match stages {
        [stage] if !splits(plan) => loads[*stage].gradient.0,
        _ => 0,
    };
    let activation = activation * before_the_first_turns;
    Held { activation, parameter, gradient, ..all }
}

/// What one device is sure to hold of a stage that it computes with. Under a cyclic rule the
/// optimizer state of a ring or of workers is with one of them.
pub(super) fn share(plan: &Plan, all: Held) -> Held {
    let parts = u64::from(plan.parts()).max(1);
    match plan.states {
        States::Replicated
            if plan.placement == Placement::Shared && !plan.rule.is_synchronous() =>
        {
            Held { optimizer: 0, ..all }
        }
        States::Replicated => all,
        // What is updated comes together again when its unit begins the next step.
        States::Zero1 | States::Zero2 if gathers_late(plan) => Held {
            parameter: all.parameter / parts,
            optimizer: all.optimizer / parts,
            ..all
        },
        States::Zero1 | States::Zero2 => Held { optimizer: all.optimizer / parts, ..all },
        States::Zero3 | States::Hsdp => {
            let (parameter, optimizer) = (all.parameter / parts, all.optimizer / parts);
            Held { parameter, optimizer, ..all }
        }
        // All states are with some worker at rest, so the fullest has its part of them.
        States::Handoff => {
            let workers = u64::from(plan.micro_batches).max(1);
            let (parameter, optimizer) =
                (all.parameter / workers, all.optimizer / workers);
            Held { parameter, optimizer, ..all }
        }
    }
}

/// Whether units with one micro-batch each are done with their parameters before others begin.
fn gathers_late(plan: &Plan) -> bool {
    matches!(plan.rule, Rule::Local { .. }) && plan.cell_micro_batches() == 1
}

/// Bytes that a device is sure to hold at one time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Held {
    pub(super) parameter: u64,
    pub(super) optimizer: u64,
    pub(super) activation: u64,
    pub(super) gradient: u64,
}

impl Held {
    pub(super) fn all(load: &StageLoad) -> Self {
        Self {
            parameter: load.parameters.0,
            optimizer: load.optimizer.0,
            activation: load.kept().0,
            gradient: 0,
        }
    }
    fn keeping(self, micro_batches: u64) -> Self {
        Self { activation: self.activation * micro_batches, ..self }
    }
    pub(super) fn total(&self) -> u64 {
        self.parameter + self.optimizer + self.activation + self.gradient
    }
    pub(super) fn kind(&self) -> Kind {
        let kinds = [
            (self.parameter, Kind::Parameter),
            (self.optimizer, Kind::Optimizer),
            (self.activation, Kind::Activation),
            (self.gradient, Kind::Gradient),
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
            gradient: self.gradient + other.gradient,
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
