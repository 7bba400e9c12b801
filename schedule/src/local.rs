//! Local rules: which stages gradients pass between, and which plans have such units.

use crate::{Hop, Order, Placement, Plan, PlanFault, Rule, counted};
use std::ops::Range;

/// The units of a local rule, as runs of stages; under other rules all stages are one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Units {
    /// Per stage, the stages of its unit.
    stages: Vec<Range<u32>>,
    /// Stages one behind the other that are slices of one.
    slices: u32,
    hop: Hop,
}

impl Units {
    /// All stages in one unit.
    pub fn one(stages: u32) -> Self {
        Self { stages: vec![0..stages; stages as usize], slices: 1, hop: Hop::None }
    }

    /// The units of a plan, which begin where cuts are boundaries.
    pub fn of(plan: &Plan) -> Self {
        if plan.slices > 1 {
            return Self { slices: plan.slices, ..Self::one(plan.pass_stages()) };
        }
        let starts = (1..).zip(&plan.cuts);
        let starts = starts.filter(|(_, cut)| plan.boundaries.contains(cut));
        let starts: Vec<u32> = [0].into_iter().chain(starts.map(|(s, _)| s)).collect();
        let ends = starts[1..].iter().copied().chain([plan.stages]);
        let units = starts.iter().copied().zip(ends);
        let stages = units.flat_map(|(start, end)| (start..end).map(move |_| start..end));
        let hop = if plan.boundaries.is_empty() { Hop::None } else { plan.rule.hop() };
        Self { stages: stages.collect(), slices: 1, hop }
    }

    /// The stage behind a boundary whose gradient the weights of this one wait for.
    pub fn hop_from(&self, stage: u32) -> Option<u32> {
        let next = stage + 1;
        let hops = self.is_hopping() && next < self.stages();
        (hops && self.unit(next) != self.unit(stage)).then_some(next)
    }

    /// Whether a gradient comes back between units. Then the backward pass of each is in halves:
    /// I makes what goes back and waits for no unit, W waits for the next one.
    pub fn is_hopping(&self) -> bool {
        match self.hop {
            Hop::None => false,
            Hop::Added | Hop::Alone => true,
        }
    }

    /// The stages of the unit that a stage belongs to.
    ///
    /// # Panics
    /// When there is no such stage.
    pub fn unit(&self, stage: u32) -> Range<u32> {
        self.stages[stage as usize].clone()
    }

    /// Slices of each stage, which stand one behind the other: each follows the same slice of the
    /// stage before, and the slice before.
    pub fn slices(&self) -> u32 {
        self.slices
    }

    /// Number of stages.
    pub fn stages(&self) -> u32 {
        u32::try_from(self.stages.len()).unwrap_or(u32::MAX)
    }

    /// The stages of each unit, in order.
    pub fn iter(&self) -> impl Iterator<Item = Range<u32>> {
        let own = self.stages.iter().zip(0..);
        own.filter(|(unit, stage)| unit.start == *stage).map(|(unit, _)| unit.clone())
    }
}

impl Placement {
    /// The orders in which the units of a local rule follow each other: on one device, on a device
    /// per worker, or on devices of their own.
    pub fn orders_of_units(self) -> &'static [Order] {
        match self {
            Placement::Accumulate => &[Order::Sequential],
            Placement::Data => &[Order::Parallel],
            Placement::Pipeline => &[Order::OneForwardOneBackward],
            Placement::Concurrent | Placement::Shared => &[],
        }
    }
}

impl Plan {
    /// Units are those of the rule: K units have K − 1 boundaries, which are cuts.
    ///
    /// # Errors
    /// What keeps them from it.
    pub(crate) fn check_units(&self) -> Result<(), PlanFault> {
        let Self { rule, placement, order, boundaries, cuts, stages, .. } = self;
        let (units, possible) = match *rule {
            Rule::Local { units, hop: _ } => (units, placement.takes(*order, *rule)),
            Rule::Sync | Rule::CyclicV1 | Rule::CyclicV2 | Rule::CyclicSlack(_) => {
                (1, true)
            }
        };
        let fault = |message| Err(PlanFault::Units(message));
        if !possible {
            return fault(format!(
                "{rule} goes with accumulate in sequential order, data in parallel order or \
                 pipeline in 1f1b order, not with {placement} in {order} order"
            ));
        }
        if rule.hop() != Hop::None && units > 1 && *stages != units {
            return fault(format!(
                "{rule} has one stage for each unit, not {}",
                counted((*stages).into(), "stage")
            ));
        }
        let ascending = boundaries.windows(2).all(|pair| pair[0] < pair[1]);
        let many = boundaries.len() as u64 + 1 == u64::from(units);
        if many && ascending && boundaries.iter().all(|own| cuts.contains(own)) {
            return Ok(());
        }
        fault(format!(
            "{rule} needs one ascending boundary less than units, each a cut, found \
             boundaries {boundaries:?} for the cuts {cuts:?}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::States;

    fn plan(units: u32, cuts: Vec<u32>, boundaries: &[u32]) -> Plan {
        let rule = Rule::Local { units, hop: Hop::None };
        let (placement, order) = (Placement::Accumulate, Order::Sequential);
        Plan::new(rule, placement, order, States::Replicated, 2, cuts)
            .with_boundaries(boundaries.to_vec())
    }

    #[test]
    fn units_are_runs_of_whole_stages() {
        let units = Units::of(&plan(3, vec![2, 5, 7, 9], &[5, 9]));
        assert_eq!(units.iter().collect::<Vec<_>>(), [0..2, 2..4, 4..5]);
        assert_eq!((units.unit(1), units.unit(2), units.unit(4)), (0..2, 2..4, 4..5));
        assert_eq!(Units::of(&plan(1, vec![3], &[])), Units::one(2));
    }

    #[test]
    fn boundaries_are_cuts_one_less_than_units() {
        assert_eq!(plan(2, vec![2, 5], &[5]).check_units(), Ok(()));
        for (units, boundaries) in [(2, vec![]), (2, vec![3]), (3, vec![5, 2])] {
            let fault = plan(units, vec![2, 5], &boundaries).check_units().unwrap_err();
            assert!(fault.to_string().contains("boundar"));
        }
        let cyclic = Plan {
            placement: Placement::Concurrent,
            order: Order::Parallel,
            ..plan(2, vec![5], &[5])
        };
        let fault = cyclic.check_units().unwrap_err();
        assert!(fault.to_string().contains("accumulate"));
    }
}
