//! What plans cost: calls, nodes of a model, stages, and whether devices have the memory.

pub(crate) mod alike;
pub(crate) mod bill;
pub(crate) mod calls;
pub(crate) mod core;
pub(crate) mod load;
pub(crate) mod measured;
pub(crate) mod memory;
pub(crate) mod nodes;
pub(crate) mod part_links;
pub(crate) mod pattern;
pub(crate) mod stages;
