//! Who holds what: states on devices.

use crate::spelled::spelled;

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
}
