//! What streams do, one piece at a time.

use crate::{
    convolutions::Convolution, graphs::Graph, kernels::Kernel, products::Product,
};
use std::{
    ptr,
    sync::{Arc, OnceLock},
};

/// One piece of work.
#[derive(Clone)]
pub(crate) enum Work {
    /// Nothing: a moment.
    Nothing,
    /// Sets bytes.
    Fill { to: u64, byte: u8, bytes: u64 },
    /// Copies `rows` rows of `width` bytes.
    Copy { from: u64, to: u64, width: u64, rows: u64, from_pitch: u64, to_pitch: u64 },
    /// Runs a kernel.
    Kernel(Kernel),
    /// Multiplies matrices.
    Product(Box<Product>),
    /// Convolves images.
    Convolution(Box<Convolution>),
    /// Makes a graph of operations.
    Graph(Box<Graph>),
    /// Keeps the time at which it is done, which the world knows.
    Stamp(Arc<OnceLock<u64>>),
    /// Something that never ends.
    Endless,
    /// Messages between ranks, by number; only the world can do them.
    Exchange(u64),
}

impl Work {
    /// What costs and refusals call it; none where it has neither.
    pub(crate) fn name(&self) -> Option<String> {
        match self {
            Work::Nothing
            | Work::Fill { .. }
            | Work::Copy { .. }
            | Work::Stamp(_)
            | Work::Endless
            | Work::Exchange(_) => None,
            Work::Kernel(kernel) => Some(format!("{kernel:?}")),
            Work::Product(product) => Some(format!("product-{}", product.place)),
            Work::Convolution(own) => Some(format!("engine-{}", own.offered.name())),
            Work::Graph(own) => Some(format!("engine-{}", own.offered.name())),
        }
    }

    /// Does it.
    pub(crate) fn run(&self) {
        match self {
            Work::Nothing | Work::Exchange(_) | Work::Endless | Work::Stamp(_) => {}
            // SAFETY: the range was live when this was given, and memory is not freed before.
            Work::Fill { to, byte, bytes } => unsafe {
                ptr::write_bytes(*to as *mut u8, *byte, *bytes as usize);
            },
            Work::Copy { from, to, width, rows, from_pitch, to_pitch } => {
                for row in 0..*rows {
                    let from = (from + row * from_pitch) as *const u8;
                    let to = (to + row * to_pitch) as *mut u8;
                    // SAFETY: as above; the two may overlap.
                    unsafe { ptr::copy(from, to, *width as usize) };
                }
            }
            Work::Kernel(kernel) => kernel.run(),
            Work::Product(product) => product.run(),
            Work::Convolution(convolution) => convolution.run(),
            Work::Graph(graph) => graph.run(),
        }
    }
}
