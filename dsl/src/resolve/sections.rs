//! The keys of every section as data, for whoever writes documents or completes what is typed.

use super::{component, objective, plan, stage, train};

/// A section, by its name behind that of the section around it and a dot, and the keys that stand in
/// its braces.
pub const SECTIONS: [(&str, &[&str]); 14] = [
    ("device", &component::DEVICE_KEYS),
    ("device.compute", &component::COMPUTE_KEYS),
    ("device.bandwidth", &component::MEMORY_RATE_KEYS),
    ("link", &component::LINK_KEYS),
    ("link.bandwidth", &component::RATE_KEYS),
    ("link.short", &component::PROTOCOL_KEYS),
    ("link.nvls", &component::PROTOCOL_KEYS),
    ("train", &train::KEYS),
    ("train.evaluate", &train::EVALUATE_KEYS),
    ("train.dtype", &train::DTYPE_KEYS),
    ("plan", &plan::KEYS),
    ("plan.tensor", &plan::TENSOR),
    ("plan.stage", &stage::STAGE_KEYS),
    ("plan.result", &objective::RESULT_KEYS),
];
