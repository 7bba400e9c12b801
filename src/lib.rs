//! Roundelay: a compiler for parallel training.
