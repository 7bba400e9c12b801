//! Declared limits: what the language accepts at most, so that no input hangs or exhausts memory.

/// Bytes of one file.
pub const FILE_BYTES: usize = 4 << 20;
/// Files of one program.
pub const FILES: usize = 64;
/// Depth of nested brackets, bodies and calls of blocks.
pub const DEPTH: u8 = 48;
/// Diagnostics that are kept of one program.
pub const DIAGNOSTICS: usize = 100;
/// Depth of nested calls, bodies and expressions while repeats and blocks are expanded.
pub const CALLS: u32 = 100;
/// Bytes of a name.
pub const NAME_BYTES: usize = 64;
/// Bytes of a text in quotes.
pub const TEXT_BYTES: usize = 4096;
/// Expressions that are worked through when repeats and blocks are expanded.
pub const STEPS: u64 = 200_000;
/// Nodes of a model.
pub const NODES: usize = 100_000;
/// Parameters of a model.
pub const PARAMETERS: usize = 100_000;
/// Extents of a shape.
pub const RANK: usize = 8;
/// Elements of one parameter, or of what one example makes of one result.
pub const ELEMENTS: u64 = 1 << 40;
/// Elements of one result for a whole batch: steps over millions of tokens have logits, and stored
/// scores, of more than 2^44.
pub const BATCH_ELEMENTS: u64 = 1 << 46;
/// Elements of all results for a whole batch; 64 bits hold their bytes.
pub const ALL_ELEMENTS: u64 = 1 << 58;
/// Multiplications of one operation for a whole batch.
pub const WORK: u64 = 1 << 60;
/// Pixels of a window, of a stride and of padding.
pub const PIXELS: u64 = 1 << 20;
/// Patterns of parameters that weight decay spares.
pub const PATTERNS: usize = 64;
/// Stages times micro-batches of a file of lists.
pub const PASSES: u64 = 1 << 20;
/// Examples of a training step.
pub const BATCH: u32 = 1 << 24;
/// Devices of a cluster.
pub const DEVICES: u64 = 1 << 16;
