//! Declared limits: beyond them a schedule is refused, so that no file makes the checker or a
//! machine allocate without bound.

/// Micro-batches that one replica takes in a training step.
pub const MICRO_BATCHES_MAX: u32 = 1 << 14;
/// Micro-batches of one training step, over all replicas.
pub(super) const ALL_MICRO_BATCHES: u64 = 1 << 18;
/// Micro-batches times stages.
pub(super) const TASKS: u64 = 1 << 20;
/// Periods until rings and slots are back where they were, and of wait distances.
pub(super) const PERIODS: u64 = 1 << 12;
/// Lag and reach.
pub(super) const LAG: u64 = 1 << 8;
/// Devices of a target, and coordinates of all axes together.
pub(super) const DEVICES: u64 = 1 << 16;
/// Lanes of a device.
pub const LANES_MAX: u32 = 1 << 10;
/// Slots of one buffer.
pub(super) const SLOTS: u32 = 1 << 16;
/// Values that cross stage boundaries.
pub(super) const VALUES: usize = 1 << 20;
/// One past the largest address, and bytes of anything.
pub(super) const BYTES: u64 = 1 << 48;
/// Slots of all buffers on all devices of the cell, and pairs of them that share addresses.
pub(super) const CELLS: u64 = 1 << 21;
/// Instances of actions that the checker follows, and marks that a machine keeps.
pub(super) const INSTANCES: u64 = 1 << 25;
/// Gradients of the sums that moves carry, where they stand as runs; what begins another one counts with it.
pub(super) const TERMS: u64 = 1 << 22;
/// Slack of a cyclic rule.
pub const SLACK_MAX: u32 = 1 << 16;
/// Violations that are kept; more are counted.
pub(super) const KEPT: usize = 50;
/// Entries of all vector clocks that are open at once.
pub(super) const CLOCKS: usize = 1 << 27;
/// Domains of a target.
pub(super) const DOMAINS: usize = 1 << 17;
/// Bytes of a name that is a key in files.
pub(super) const KEY: usize = 1 << 12;
/// Bytes of a name that files get, beside what tells their kind.
pub(super) const FILE_NAME: usize = 250;
