//! Recorded work.

use super::{DriverError, driver};
use cudarc::driver::sys::{CUgraph, CUgraphExec};
use std::ptr;

/// A graph of work that can be launched again and again.
pub(crate) struct Graph {
    graph: CUgraph,
    executable: CUgraphExec,
}

// SAFETY: the driver takes handles from any thread whose context is theirs.
unsafe impl Send for Graph {}

impl Graph {
    /// Makes what was recorded ready to launch.
    pub(super) fn new(graph: CUgraph) -> Result<Self, DriverError> {
        let mut own = Self { graph, executable: ptr::null_mut() };
        // SAFETY: the graph is live; an executable one is written.
        unsafe {
            driver!(cuGraphInstantiateWithFlags(&raw mut own.executable, graph, 0))
        }?;
        Ok(own)
    }

    /// The driver's handle.
    pub(super) fn raw(&self) -> CUgraphExec {
        self.executable
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: both were made here; a launch that is under way keeps what it needs.
        unsafe {
            if !self.executable.is_null() {
                let _ = driver!(cuGraphExecDestroy(self.executable));
            }
            let _ = driver!(cuGraphDestroy(self.graph));
        }
    }
}
