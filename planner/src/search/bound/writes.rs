//! Which backward passes of a step write the gradient of their stage, and which add to it: the two
//! take different times.

use super::holders;
use crate::costs::load::StageLoad;
use roundelay_schedule::{Nanos, Placement, Plan, States};

/// The backward passes of a stage that write its gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writes {
    /// Every one, for what it makes is split up at once.
    Every,
    /// The first on each device, to which the others add.
    First,
    /// Left open: each takes as long as the faster of both.
    Open,
}

impl Writes {
    /// Those of a plan.
    pub(super) fn of(plan: &Plan) -> Self {
        let in_turn = matches!(plan.placement, Placement::Data | Placement::Shared)
            && !plan.rule.is_synchronous();
        match plan.states {
            _ if in_turn || holders(plan) > 1 => Self::Open,
            States::Replicated | States::Zero1 => Self::First,
            States::Zero2 | States::Zero3 | States::Hsdp => Self::Every,
            States::Handoff => Self::Open,
        }
    }

    /// What the pass on a micro-batch of a device takes more than the faster of both.
    pub(super) fn more(self, load: &StageLoad, micro_batch: usize) -> Nanos {
        let [writing, adding] = load.more;
        match self {
            Self::First if micro_batch > 0 => adding,
            Self::First | Self::Every => writing,
            Self::Open => Nanos(0),
        }
    }

    /// The same of all micro-batches of a device.
    pub(super) fn more_of_all(self, plan: &Plan, load: &StageLoad) -> Nanos {
        let later = u64::from(plan.cell_micro_batches().saturating_sub(1));
        self.more(load, 0) + self.more(load, 1) * later
    }
}
