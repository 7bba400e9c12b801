//! Who finds what keeps decisions from going together, whatever the model: the one list for all who
//! read, check or lower plans. Checks that need less than a plan are methods of what they need, for
//! those who search.

use super::{Placement, Plan, PlanFault, States};
use crate::{DeviceId, Id, Misfit, Order, Rule, Sequence, Target, Tensor, plan_faults};
use std::collections::BTreeSet;

/// What a fault is looked for with.
type Check = fn(&Plan, &Target) -> Result<(), PlanFault>;

/// All checks of a plan whose numbers are at least one, what others count on before those.
const CHECKS: [Check; 17] = [
    |plan, _| plan.check_cuts(),
    |plan, _| plan.check_recompute(),
    |plan, _| plan.check_delays(),
    |plan, _| plan.check_units(),
    |plan, _| plan.check_slices(),
    |plan, _| plan.check_ties(),
    |plan, _| plan.check_replicas(),
    |plan, _| plan.check_shards(),
    |plan, _| plan.check_reduction(),
    |plan, _| plan.tensor.check_parts(),
    |plan, _| plan.tensor.check_contraction(),
    |plan, _| plan.tensor.check_images(),
    |plan, _| plan.tensor.check_halves(),
    |plan, _| plan.check_order(),
    |plan, _| plan.check_states(),
    |plan, _| plan.check_lists(),
    Plan::check_devices,
];

impl Plan {
    /// Everything that keeps the decisions from going together on a cluster, whatever the model. Found
    /// one by one: whoever takes the first never comes to tables of N times S entries that nothing
    /// bounds.
    pub fn faults<'a>(
        &'a self,
        target: &'a Target,
    ) -> impl Iterator<Item = PlanFault> + 'a {
        let counted = self.zeros().next().is_none();
        let checks = CHECKS.iter().filter(move |_| counted);
        self.zeros().chain(checks.filter_map(|check| check(self, target).err()))
    }

    /// The numbers that are 0, of those of which a plan has one at least.
    pub fn zeros(&self) -> impl Iterator<Item = PlanFault> + use<> {
        let numbers = [
            ("replicas", self.replicas),
            ("shards", self.shards),
            ("stages", self.stages),
            ("chunks", self.chunks),
            ("micro_batches", self.micro_batches),
            ("slices", self.slices),
        ];
        let zeros = numbers.into_iter().filter(|(_, number)| *number == 0);
        zeros.map(|(decision, _)| PlanFault::Zero(decision))
    }
}

/// # Errors
/// Each check says what keeps the plan from being one.
impl Plan {
    /// S stages have S − 1 ascending cuts.
    fn check_cuts(&self) -> Result<(), PlanFault> {
        let Self { cuts, stages, .. } = self;
        let ascending = cuts.windows(2).all(|pair| pair[0] < pair[1]);
        match cuts.len() as u64 + 1 == u64::from(*stages) && ascending {
            true => Ok(()),
            false => Err(PlanFault::Cuts { stages: *stages, cuts: cuts.clone() }),
        }
    }

    /// Every stage has a value of `recompute`.
    fn check_recompute(&self) -> Result<(), PlanFault> {
        let (stages, found) = (self.stages, self.recompute.len());
        match found as u64 == u64::from(stages) {
            true => Ok(()),
            false => Err(PlanFault::Recompute { stages, found }),
        }
    }

    /// The version map is the rule's. That is made anew, so N and S must be numbers that a computer can
    /// count to.
    fn check_delays(&self) -> Result<(), PlanFault> {
        let Self { rule, placement, micro_batches, stages, .. } = *self;
        let expected = rule.delays(placement.timeline(), micro_batches, stages);
        match self.delays.apart(&expected) {
            None => Ok(()),
            Some(apart) => Err(PlanFault::Delays { rule, placement, apart }),
        }
    }

    /// The order belongs to rule and placement, and is defined for the numbers. Where a rule has none in
    /// a placement, units say so.
    fn check_order(&self) -> Result<(), PlanFault> {
        let Self { rule, placement, order, chunks, stages, micro_batches, .. } = *self;
        let belongs = |order: &Order| placement.takes(*order, rule);
        let first = Order::ALL.iter().copied().find(belongs);
        if let Some(fits) = first.filter(|_| !belongs(&order)) {
            return Err(PlanFault::WrongOrder { order, rule, placement, fits });
        }
        let fits = match placement {
            Placement::Pipeline => order.fits(chunks, stages, micro_batches),
            Placement::Accumulate
            | Placement::Concurrent
            | Placement::Data
            | Placement::Shared => match chunks {
                1 => Ok(()),
                _ => Err(Misfit::Chunks(1)),
            },
        };
        fits.map_err(|misfit| PlanFault::Order { order, misfit })
    }

    /// Rule, placement and order can have the states, and several split them that are split.
    fn check_states(&self) -> Result<(), PlanFault> {
        let Self { states, rule, placement, order, .. } = *self;
        states.check(rule, placement, order).map_err(PlanFault::States)?;
        match states {
            States::Zero1 | States::Zero2 | States::Zero3 | States::Hsdp
                if self.members() == 1 =>
            {
                Err(PlanFault::OneReplica(states))
            }
            States::Replicated
            | States::Handoff
            | States::Zero1
            | States::Zero2
            | States::Zero3
            | States::Hsdp => Ok(()),
        }
    }

    /// Lists of passes, where it takes some, are one training step.
    fn check_lists(&self) -> Result<(), PlanFault> {
        let faults = if self.takes_lists() { plan_faults(self) } else { Vec::new() };
        faults.into_iter().next().map_or(Ok(()), |fault| Err(PlanFault::Lists(fault)))
    }

    /// Only workers that update together have replicas, and one pipeline in one direction.
    fn check_replicas(&self) -> Result<(), PlanFault> {
        self.placement.check_replicas(self.rule, self.replicas)?;
        match self.is_mirrored() && self.replicas > 1 {
            true => Err(PlanFault::MirroredReplicas),
            false => Ok(()),
        }
    }

    /// Shards divide those that hold a stage, where states are split in groups.
    fn check_shards(&self) -> Result<(), PlanFault> {
        self.states.check_shards(self.shards, self.members())
    }

    /// Gradients are summed as the collectives of this plan do it.
    fn check_reduction(&self) -> Result<(), PlanFault> {
        let (found, expected) = (self.reduction, self.own_reduction());
        match found == expected {
            true => Ok(()),
            false => Err(PlanFault::Reduction { found, expected }),
        }
    }

    /// The devices are there, each once, and as many as the placement takes; replicas lie side by side,
    /// and so do parts of tensors.
    fn check_devices(&self, target: &Target) -> Result<(), PlanFault> {
        let count = target.devices.len();
        let unknown = self.devices.iter().find(|id| target.devices.get(**id).is_none());
        if let Some(&device) = unknown {
            return Err(PlanFault::UnknownDevice { device, count });
        }
        let mut before = BTreeSet::new();
        if let Some(&twice) = self.devices.iter().find(|device| !before.insert(**device))
        {
            return Err(PlanFault::Repeated(twice));
        }
        let (wanted, found) = (self.device_count(), self.devices.len());
        if found as u64 != u64::from(wanted) {
            return Err(PlanFault::Devices { wanted, found });
        }
        let cell = (self.device_count() / self.members().max(1)).max(1) as usize;
        let copies = |number| (number % cell, number / cell * cell);
        let parts = self.tensor.parts().max(1) as usize;
        let pieces = |number| (number / parts * parts, number % parts);
        self.in_line(copies)?;
        self.in_line(pieces)
    }

    /// Each device lies so far behind an earlier one of the plan, as `line` says: which, how far.
    fn in_line(&self, line: impl Fn(usize) -> (usize, usize)) -> Result<(), PlanFault> {
        for (number, &found) in self.devices.iter().enumerate() {
            let (first, behind) = line(number);
            let expected = self.devices[first].index() + behind;
            if found.index() != expected {
                let expected = DeviceId::new(expected);
                return Err(PlanFault::Scattered { number, found, expected });
            }
        }
        Ok(())
    }
}

impl Placement {
    /// Only workers that update together have replicas.
    ///
    /// # Errors
    /// Those of workers that never meet.
    pub fn check_replicas(self, rule: Rule, replicas: u32) -> Result<(), PlanFault> {
        let alone = matches!(self, Placement::Data | Placement::Shared);
        match replicas > 1 && alone && !rule.is_synchronous() {
            true => Err(PlanFault::Replicas { placement: self, rule }),
            false => Ok(()),
        }
    }
}

impl States {
    /// Shards divide this many members that hold a stage, where states are split in groups.
    ///
    /// # Errors
    /// Other states, or shards that divide no members.
    pub fn check_shards(self, shards: u32, members: u32) -> Result<(), PlanFault> {
        if shards > 1 && self != States::Hsdp {
            return Err(PlanFault::NeedlessShards { shards, states: self });
        }
        match shards >= 1 && members.is_multiple_of(shards) {
            true => Ok(()),
            false => Err(PlanFault::UnevenShards { members, shards }),
        }
    }
}

/// # Errors
/// Each check says what keeps tensors from being split so.
impl Tensor {
    /// There are parts, and several where they split a sequence.
    pub fn check_parts(&self) -> Result<(), PlanFault> {
        match self.parts() {
            0 => Err(PlanFault::NoParts),
            1 if self.sequence == Sequence::Split => Err(PlanFault::NoParts),
            _ => Ok(()),
        }
    }

    /// Tensors are whole where sequences are in slices.
    pub fn check_slices(&self, slices: u32) -> Result<(), PlanFault> {
        match slices > 1 && self.parts() > 1 {
            true => Err(PlanFault::SlicedTensor(*self)),
            false => Ok(()),
        }
    }

    /// Micro-batches are whole, or in halves where there are several parts.
    pub fn check_halves(&self) -> Result<(), PlanFault> {
        match (self.overdecompose, self.parts()) {
            (1, _) | (2, 2..) => Ok(()),
            (halves, _) => Err(PlanFault::Overdecomposed(halves)),
        }
    }

    /// Columns multiply as they can.
    pub fn check_contraction(&self) -> Result<(), PlanFault> {
        self.can_contract().then_some(()).ok_or(PlanFault::Contraction(*self))
    }

    /// Images lie as they can.
    pub fn check_images(&self) -> Result<(), PlanFault> {
        self.can_lie().then_some(()).ok_or(PlanFault::Images(*self))
    }
}
