//! What a kernel may know besides its operands.

/// Everything that may change from one launch of the same call to the next.
///
/// A result depends on operands, call and context alone, and never on `threads`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Context {
    /// The training step t that is served, counted from zero.
    pub step: u64,
    /// Which update of an optimizer's state update `step` is, counted from one where the state is zero.
    pub updates: u64,
    /// The micro-batch, counted from zero.
    pub micro_batch: u64,
    /// The job's seed.
    pub seed: u64,
    /// Whether masks are drawn.
    pub mode: Mode,
    /// The learning rate of update `step`.
    pub rate: f64,
    /// Where an optimizer's operands start in the stage's flat parameters, in elements.
    pub slice_offset: u64,
    /// Which part of every split tensor is here, counted from zero.
    pub part: u32,
    /// Threads of the device, at least one.
    pub threads: usize,
}

/// What a forward pass is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Dropout draws its masks.
    Training,
    /// Dropout copies.
    Evaluation,
}
