//! The machine of a run: what was asked for, against what is here.

use super::{On, RunError, RunEvent};
use roundelay_runtime::{
    AnyMachine, Control, Cpu, CpuOptions, CpuRank, Cuda, CudaError, CudaOptions, Dataset,
    Ended, Fill, Graphs, MachineError, check_native,
};
use roundelay_schedule::{Checked, Float};
use std::{fmt::Display, sync::Arc, time::Duration};

/// What a run was settled on, after a look at what is here.
#[derive(Clone, Copy)]
pub(super) enum Settled<'a> {
    /// CPU threads.
    Cpu,
    /// CPU threads for the device of this rank.
    CpuRank(&'a Arc<Control>),
    /// One GPU.
    Gpu(Graphs),
    /// One GPU if it can do what the schedule asks for, else CPU threads.
    GpuOrCpu(Graphs),
    /// The GPU of this rank among those that train together.
    Rank(Graphs, &'a Arc<Control>),
}

impl<'a> Settled<'a> {
    pub(super) fn of(
        schedule: &Checked,
        on: On,
        control: Option<&'a Arc<Control>>,
        listener: &mut impl FnMut(RunEvent),
    ) -> Result<Self, RunError> {
        let dtype = schedule.job.dtype;
        let settled = match (on, control) {
            (On::Cpu, None) => Self::Cpu,
            (On::Cpu, Some(control)) => Self::CpuRank(control),
            (On::Cuda(graphs), Some(control)) => {
                some_gpu()?;
                Self::Rank(graphs, control)
            }
            (On::Best(graphs), Some(control)) => match lacking(control)? {
                None => Self::Rank(graphs, control),
                Some(absent) => {
                    check_native(dtype)?;
                    listener(on_cpu(&absent));
                    Self::CpuRank(control)
                }
            },
            (On::Cuda(graphs), None) => {
                some_gpu()?;
                Self::Gpu(graphs)
            }
            (On::Best(graphs), None) => match Cuda::count() {
                Ok(_) => Self::GpuOrCpu(graphs),
                Err(absent) => {
                    check_native(dtype)?;
                    listener(on_cpu(&absent));
                    Self::Cpu
                }
            },
        };
        match settled {
            Self::Cpu => {
                check_native(dtype)?;
                Cpu::room(schedule).map_err(MachineError::from)?;
            }
            Self::CpuRank(control) => {
                check_native(dtype)?;
                CpuRank::room(schedule, control).map_err(MachineError::from)?;
            }
            Self::Gpu(_) | Self::GpuOrCpu(_) | Self::Rank(..) => refuse_unscaled(dtype)?,
        }
        Ok(settled)
    }

    /// The machine; its arenas start poisoned.
    pub(super) fn machine(
        self,
        schedule: &Checked,
        data: Dataset,
        deadline: Duration,
        listener: &mut impl FnMut(RunEvent),
    ) -> Result<AnyMachine, RunError> {
        let fill = Fill::Poison;
        let cpu = |data| {
            let options = CpuOptions { fill, deadline, ..CpuOptions::default() };
            Cpu::new(schedule, Box::new(data), options).map(AnyMachine::from)
        };
        let options =
            |graphs| CudaOptions { fill, graphs, deadline, ..CudaOptions::default() };
        let gpu = |data, graphs| {
            Cuda::new(schedule, Box::new(data), options(graphs)).map(AnyMachine::from)
        };
        let made = match self {
            Self::Cpu => cpu(data).map_err(MachineError::from),
            Self::CpuRank(control) => {
                let deadline = control.patience();
                let options = CpuOptions { fill, deadline, ..CpuOptions::default() };
                let control = Arc::clone(control);
                CpuRank::new(schedule, Box::new(data), options, control)
                    .map(AnyMachine::from)
                    .map_err(MachineError::from)
            }
            Self::Gpu(graphs) => gpu(data, graphs).map_err(MachineError::from),
            Self::GpuOrCpu(graphs) => match gpu(data.clone(), graphs) {
                Ok(made) => Ok(made),
                Err(refusal) => {
                    check_native(schedule.job.dtype)?;
                    listener(on_cpu(&refusal));
                    cpu(data).map_err(MachineError::from)
                }
            },
            Self::Rank(graphs, control) => {
                let deadline = control.patience();
                let options = CudaOptions { deadline, ..options(graphs) };
                let control = Arc::clone(control);
                Cuda::of_rank(schedule, Box::new(data), options, control)
                    .map(AnyMachine::from)
                    .map_err(MachineError::from)
            }
        };
        Ok(made?)
    }
}

/// What the first rank without a GPU lacks: ranks of several kinds could not go on together, so all or
/// none take their CPUs.
fn lacking(control: &Control) -> Result<Option<String>, Ended> {
    let own = match Cuda::ordinal_of(control.seat()) {
        Ok(_) => String::new(),
        Err(CudaError::NoGpu { count, .. }) => {
            format!("there are {count} GPUs, fewer than processes")
        }
        Err(absent) => absent.to_string(),
    };
    let all = control.gather(own.into_bytes());
    let all = all.map_err(|trouble| control.ended(trouble))?;
    let mut lacking = (0..).zip(&all).filter(|(_, absent)| !absent.is_empty());
    let told = |(rank, absent): (u32, &Vec<u8>)| {
        format!("on rank {rank} {}", String::from_utf8_lossy(absent))
    };
    Ok(lacking.next().map(told))
}

pub(super) fn some_gpu() -> Result<(), MachineError> {
    Cuda::count().map(drop).map_err(|absent| CudaError::from(absent).into())
}

pub(super) fn on_cpu(reason: &dyn Display) -> RunEvent {
    RunEvent::Note(format!("runs on the CPU: {reason}"))
}

/// The type whose losses would have to be scaled.
pub(crate) fn refuse_unscaled(dtype: Float) -> Result<(), RunError> {
    match dtype {
        Float::F16(_) => Err(RunError::Unscaled(dtype)),
        Float::F32 | Float::F64 | Float::Bf16(_) => Ok(()),
    }
}
