//! Where a machine is in a training.

use crate::state::State;

/// From which state a machine began, and which step comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Course {
    /// Step of the state that was loaded.
    first: u64,
    /// That of the state.
    pub(crate) origin: u64,
    /// T: the next training step.
    pub(crate) step: u64,
}

impl Course {
    /// At the start of what goes on from a state.
    pub(crate) fn from(state: &State) -> Self {
        let State { step, origin, dtype: _, tensors: _ } = *state;
        Self { first: step, origin, step }
    }

    /// Steps since the state was loaded.
    pub(crate) fn steps(self) -> u64 {
        self.step - self.first
    }
}
