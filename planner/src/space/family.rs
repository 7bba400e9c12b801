//! Families: the decisions without a number, and the laws that say which of them go together.

use crate::space::cuts::Users;
use roundelay_dsl::Program;
use roundelay_schedule::{
    Exactness, Fold, Order, Placement, Plan, Rule, States, StatesFault,
};
use std::fmt;

/// All decisions without a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Family {
    /// Which version each (stage, micro-batch) uses.
    pub rule: Rule,
    /// How tasks meet devices.
    pub placement: Placement,
    /// In which order each device takes its tasks.
    pub order: Order,
    /// Who holds parameters, gradients and optimizer state.
    pub states: States,
}

/// Why decisions without a number are not a plan together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Clash {
    /// The order belongs to another rule or placement.
    WrongOrder {
        /// What was asked for.
        order: Order,
        /// The order, or the first of the orders, that belongs here.
        fits: Order,
    },
    /// Units of a local rule where several micro-batches share a device, or devices a stage.
    UnitsNeedDevices {
        /// The rule.
        rule: Rule,
        /// What was asked for.
        placement: Placement,
    },
    /// States that the other decisions cannot have.
    States(StatesFault),
}

impl Family {
    /// Every combination of the values, rule by rule.
    pub fn all(
        rules: &[Rule],
        placements: &[Placement],
        orders: &[Order],
        states: &[States],
    ) -> Vec<Family> {
        let mut all = Vec::new();
        for &rule in rules {
            for &placement in placements {
                for &order in orders {
                    let with = |&states| Family { rule, placement, order, states };
                    all.extend(states.iter().map(with));
                }
            }
        }
        all
    }

    /// Whether workers that never meet compute all stages: each has backward passes that are priced on
    /// its own device, as only the first one begins a sum, and holds what the others do not.
    pub(crate) fn has_workers_apart(self) -> bool {
        self.placement == Placement::Data && !self.rule.is_synchronous()
    }

    /// Whether two pipelines run in opposite directions.
    pub(crate) fn is_mirrored(self) -> bool {
        self.placement == Placement::Pipeline && self.order.fold() == Fold::Mirror
    }

    /// Whether several stages may use one parameter, with this many slices of each sequence, in a
    /// program: the gradients that they make are added up in another order than in one stage.
    pub(crate) fn users(self, program: &Program, slices: u32) -> Users {
        let Self { rule, placement, states, order: _ } = self;
        let is_pipeline = (placement, rule, states)
            == (Placement::Pipeline, Rule::Sync, States::Replicated);
        let is_one_way = !self.is_mirrored() && slices == 1;
        let is_allowed = program.search.weakest() >= Exactness::Reordered;
        match is_pipeline && is_one_way && is_allowed {
            true => Users::Apart,
            false => Users::Together,
        }
    }

    /// Whether these decisions are a plan together, whatever the numbers.
    ///
    /// # Errors
    /// The first law that they break.
    pub fn check(self) -> Result<(), Clash> {
        let Self { rule, placement, order, states } = self;
        let belongs = |order| placement.takes(order, rule);
        let Some(&fits) = Order::ALL.iter().find(|order| belongs(**order)) else {
            return Err(Clash::UnitsNeedDevices { rule, placement });
        };
        if !belongs(order) {
            return Err(Clash::WrongOrder { order, fits });
        }
        states.check(rule, placement, order).map_err(Clash::States)
    }
}

impl From<&Plan> for Family {
    fn from(plan: &Plan) -> Self {
        let Plan { rule, placement, order, states, .. } = *plan;
        Self { rule, placement, order, states }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, placement, order, states } = self;
        write!(f, "{rule} {placement} {order} {states}")
    }
}

impl fmt::Display for Clash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Clash::WrongOrder { order, fits } => write!(
                f,
                "order {order} does not belong to this rule and placement: use {fits}"
            ),
            Clash::UnitsNeedDevices { rule, placement } => write!(
                f,
                "units of {rule} follow each other, which placement {placement} does not: use \
                 accumulate, data or pipeline"
            ),
            Clash::States(fault) => write!(f, "{fault}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_law_refuses_what_it_names_and_nothing_else() {
        let rules = [Rule::Sync, Rule::CyclicV2];
        let shown = [
            Order::Sequential,
            Order::Parallel,
            Order::Cyclic,
            Order::Gpipe,
            Order::OneForwardOneBackward,
            Order::Chimera,
        ];
        let families = Family::all(&rules, Placement::ALL, &shown, States::ALL);
        let lawful: Vec<_> = families
            .iter()
            .filter(|family| family.check().is_ok())
            .map(Family::to_string)
            .collect();
        assert_eq!(
            lawful,
            [
                "sync accumulate sequential replicated",
                "sync accumulate sequential zero1",
                "sync accumulate sequential zero2",
                "sync accumulate sequential zero3",
                "sync accumulate sequential hsdp",
                "sync concurrent parallel replicated",
                "sync data parallel replicated",
                "sync data parallel zero1",
                "sync data parallel zero2",
                "sync data parallel zero3",
                "sync data parallel hsdp",
                "sync shared parallel replicated",
                "sync pipeline gpipe replicated",
                "sync pipeline gpipe zero1",
                "sync pipeline gpipe zero2",
                "sync pipeline gpipe zero3",
                "sync pipeline gpipe hsdp",
                "sync pipeline 1f1b replicated",
                "sync pipeline 1f1b zero1",
                "sync pipeline 1f1b zero2",
                "sync pipeline 1f1b zero3",
                "sync pipeline 1f1b hsdp",
                "sync pipeline chimera replicated",
                "cyclic_v2 accumulate sequential replicated",
                "cyclic_v2 concurrent cyclic replicated",
                "cyclic_v2 data cyclic replicated",
                "cyclic_v2 data cyclic handoff",
                "cyclic_v2 shared cyclic replicated",
                "cyclic_v2 pipeline cyclic replicated",
            ]
        );
    }
}
