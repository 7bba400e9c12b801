//! Who holds what, and which states go with which rule, placement and order: the one law for who
//! searches plans and who checks them.

use super::Placement;
use crate::{Fold, Order, Rule, spelled::spelled};
use std::fmt;

spelled! {
    /// Who holds parameters, gradients and optimizer state.
    pub enum States: "states" {
        /// Whoever computes with a stage has all of it.
        Replicated = "replicated",
        /// Optimizer state is split over the workers.
        Zero1 = "zero1",
        /// Gradients too.
        Zero2 = "zero2",
        /// Parameters too: each pass of a stage gathers them, and drops them again.
        Zero3 = "zero3",
        /// As `zero3` inside groups of `shards` replicas; the groups are replicas of each other.
        Hsdp = "hsdp",
        /// Cyclic point-to-point ZeRO: a stage travels from its user to its next user.
        Handoff = "handoff",
    }
}

/// Why states do not go with the decisions without a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StatesFault {
    /// Sharded states where nothing repeats a whole pass.
    NeedMembers(States),
    /// Sharded states where two devices of a cell hold a stage.
    NeedOneHolder(States),
    /// Sharded states where slices of sequences add up their gradients.
    NeedWholeSequences(States),
    /// Travelling states without workers.
    HandoffNeedsWorkers,
    /// ZeRO's collectives under a cyclic rule, where workers never meet.
    NeedSync {
        /// The states that shard.
        states: States,
        /// The placement whose workers never meet.
        placement: Placement,
    },
    /// Hand-over under sync, where all workers want a stage at the same time.
    HandoffNeedsCyclic,
}

impl States {
    /// Among how many of the members that hold a stage its parameters are divided, in groups of
    /// `shards` under `hsdp`.
    pub fn depth(self, members: u32, shards: u32) -> u32 {
        match self {
            States::Replicated | States::Zero1 | States::Zero2 | States::Handoff => 1,
            States::Zero3 => members,
            States::Hsdp => shards,
        }
    }

    /// Whether a rule, a placement and an order can have these states, whatever the numbers.
    ///
    /// # Errors
    /// What the states would need.
    pub fn check(
        self,
        rule: Rule,
        placement: Placement,
        order: Order,
    ) -> Result<(), StatesFault> {
        let sync = rule.is_synchronous();
        match self {
            States::Replicated => Ok(()),
            States::Handoff if placement != Placement::Data => {
                Err(StatesFault::HandoffNeedsWorkers)
            }
            States::Handoff if sync => Err(StatesFault::HandoffNeedsCyclic),
            States::Handoff => Ok(()),
            States::Zero1 | States::Zero2 | States::Zero3 | States::Hsdp => {
                self.check_shared(sync, placement, order)
            }
        }
    }

    /// As [`States::check`], of states that several split.
    fn check_shared(
        self,
        sync: bool,
        placement: Placement,
        order: Order,
    ) -> Result<(), StatesFault> {
        let pipeline = placement == Placement::Pipeline;
        if pipeline && order.fold() == Fold::Mirror {
            return Err(StatesFault::NeedOneHolder(self));
        }
        if pipeline && order.takes_slices() {
            return Err(StatesFault::NeedWholeSequences(self));
        }
        match placement {
            Placement::Concurrent | Placement::Shared => {
                Err(StatesFault::NeedMembers(self))
            }
            Placement::Accumulate | Placement::Data | Placement::Pipeline if !sync => {
                Err(StatesFault::NeedSync { states: self, placement })
            }
            Placement::Accumulate | Placement::Data | Placement::Pipeline => Ok(()),
        }
    }
}

impl fmt::Display for StatesFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StatesFault::NeedMembers(states) => write!(
                f,
                "states {states} are split over replicas or workers, one pass at a time: \
                 use placement accumulate, data or pipeline"
            ),
            StatesFault::NeedOneHolder(states) => write!(
                f,
                "states {states} are split over replicas, and pipelines in opposite directions \
                 have none"
            ),
            StatesFault::NeedWholeSequences(states) => write!(
                f,
                "states {states} are split over replicas, and slices of sequences add up their \
                 gradients where they are: use replicated"
            ),
            StatesFault::HandoffNeedsWorkers => {
                f.write_str("states handoff travel along the workers of placement data")
            }
            StatesFault::NeedSync { states, placement: Placement::Data } => write!(
                f,
                "states {states} need all workers at one time, which a cyclic rule never \
                 has: use handoff"
            ),
            StatesFault::NeedSync { states, placement } => write!(
                f,
                "states {states} need all who share a stage at one time, which a cyclic rule \
                 never has: use replicated in placement {placement}, or rule sync"
            ),
            StatesFault::HandoffNeedsCyclic => write!(
                f,
                "under sync all workers want a stage at one time, so it cannot be handed \
                 over: use zero3"
            ),
        }
    }
}
