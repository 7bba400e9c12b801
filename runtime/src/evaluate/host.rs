//! Forward passes on threads of the host.

use super::{ForwardPass, ForwardPasses, PASSES, forward_passes, is_bound};
use crate::{
    CpuError, MachineError,
    code::CodeError,
    cpu::said,
    memory::Memory,
    plain::{Lent, Plain},
};
use roundelay_kernels::Context;
use roundelay_schedule::{Bytes, Id, InputId, Job, Role, Schedule, Stage};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Plain passes and the parameters that they read.
pub(super) struct HostPasses {
    job: Job,
    plain: Plain,
    passes: Vec<ForwardPass>,
    /// By state, then part.
    parameters: Vec<Vec<Memory>>,
}

impl HostPasses {
    /// The forward passes of a schedule.
    ///
    /// # Errors
    /// When a kernel call is malformed.
    pub(super) fn new(schedule: &Schedule) -> Result<Self, CodeError> {
        let job = schedule.job.clone();
        let plain = Plain::new(schedule, &PASSES, is_bound)?;
        let (size, parts) = (job.dtype.size(), schedule.tensor_parts());
        let flats = |n: &u64| (0..parts).map(|_| Memory::new(n * size)).collect();
        let parameters = job.elements.values().map(flats).collect();
        Ok(Self { passes: forward_passes(schedule), parameters, plain, job })
    }
}

impl ForwardPasses for HostPasses {
    fn place(
        &mut self,
        stage: Stage,
        part: u32,
        flat: &[u8],
    ) -> Result<(), MachineError> {
        let own = &mut self.parameters[stage.index()][part as usize];
        own.bytes_mut().copy_from_slice(flat);
        Ok(())
    }

    fn run(
        &mut self,
        fill: &mut dyn FnMut(InputId, &mut [u8]),
        context: &Context,
    ) -> Result<Vec<f64>, MachineError> {
        self.plain.feed(&self.job, fill);
        for pass in &self.passes {
            let mut bound: Vec<(Role, Lent<'_>)> = Vec::new();
            for (state, flats) in self.parameters.iter_mut().enumerate() {
                let flats = flats.iter_mut().map(Memory::bytes_mut).collect();
                bound.push((pass.role_of(Stage::new(state)), flats));
            }
            let run =
                AssertUnwindSafe(|| self.plain.run(pass.routine, context, &mut bound));
            catch_unwind(run).map_err(|panic| CpuError::Forward {
                routine: pass.routine,
                message: said(panic.as_ref()),
            })?;
        }
        Ok(self.plain.measured(&self.job).collect())
    }

    fn device_bytes(&self) -> Bytes {
        Bytes(0)
    }
}
