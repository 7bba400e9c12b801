//! The networks that people know, at small width: the models of `tests/pytorch`, on many devices.

use crate::models::{job, program};
use roundelay::Program;

/// ResNet-18; its statistics want more than one example in a micro-batch.
pub(crate) fn resnet(batch: u32) -> Program {
    with_job(include_str!("../pytorch/resnet.rdl"), batch)
}

/// Grouped convolutions, pools, group normalisation and sliding windows.
pub(crate) fn hybrid(batch: u32) -> Program {
    with_job(include_str!("../pytorch/hybrid.rdl"), batch)
}

/// A vision transformer.
pub(crate) fn vit(batch: u32) -> Program {
    with_job(include_str!("../pytorch/vit.rdl"), batch)
}

/// Rotary positions, shared key heads, gated feed-forward blocks.
pub(crate) fn llama(batch: u32) -> Program {
    with_job(include_str!("../pytorch/llama.rdl"), batch)
}

/// GPT-2 in one stage: its head shares the table of its embedding.
pub(crate) fn gpt2(batch: u32) -> Program {
    with_job(include_str!("../pytorch/gpt2.rdl"), batch)
}

/// GPT-2 that can be cut: its head has a weight of its own.
pub(crate) fn untied_gpt2(batch: u32) -> Program {
    let tied = include_str!("../pytorch/gpt2.rdl");
    with_job(&tied.replace("weight = table, bias = false", "vocab, bias = false"), batch)
}

/// The model of a program, trained as the small models are.
fn with_job(text: &str, batch: u32) -> Program {
    let (model, _) = text.split_once("\ntrain {").expect("a program trains its model");
    program(&format!("{model}\n{}", job(batch)))
}
