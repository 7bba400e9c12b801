//! The machine of a run: what was asked for, against what is here.

use super::{On, RunError, RunEvent, RunOptions};
use roundelay_runtime::{
    AnyMachine, Control, Cpu, CpuOptions, Cuda, CudaError, CudaOptions, Dataset, Ended,
    Fill, Graphs, Kept, MachineError, check_native,
};
use roundelay_schedule::{Checked, Float};
use std::{fmt::Display, sync::Arc, time::Duration};

/// What a run was settled on, after a look at what is here.
pub(super) struct Settled<'a> {
    on: Chosen,
    /// The way to the other ranks, each with one device, if several train together.
    control: Option<&'a Arc<Control>>,
}

/// What devices of a schedule are.
enum Chosen {
    /// CPU threads.
    Cpu,
    /// A GPU.
    Gpu(Graphs),
    /// One GPU if it can do what the schedule asks for, else CPU threads; no choice of several ranks,
    /// which must be alike.
    GpuOrCpu(Graphs),
}

impl<'a> Settled<'a> {
    pub(super) fn of(
        schedule: &Checked,
        options: &RunOptions,
        control: Option<&'a Arc<Control>>,
        listener: &mut impl FnMut(RunEvent),
    ) -> Result<Self, RunError> {
        let dtype = schedule.job.dtype;
        trains(options.on, dtype)?;
        computes(options.on, dtype)?;
        let on = match options.on {
            On::Cpu => Chosen::Cpu,
            On::Cuda(graphs) => Chosen::Gpu(graphs),
            On::Best(graphs) => match (lacking(control)?, control) {
                (None, Some(_)) => Chosen::Gpu(graphs),
                (None, None) => Chosen::GpuOrCpu(graphs),
                (Some(absent), _) => {
                    let note = |note| listener(RunEvent::Note(note));
                    turn_to_cpu(dtype, &absent, note)?;
                    Chosen::Cpu
                }
            },
        };
        match on {
            Chosen::Cpu => room(schedule, kept(options), control)?,
            Chosen::Gpu(_) | Chosen::GpuOrCpu(_) => {}
        }
        Ok(Self { on, control })
    }

    /// The machine.
    pub(super) fn machine(
        self,
        schedule: &Checked,
        data: Dataset,
        deadline: Duration,
        listener: &mut impl FnMut(RunEvent),
    ) -> Result<AnyMachine, RunError> {
        let cpu = |data| cpu(schedule, data, deadline, self.control);
        let gpu = |data, graphs| gpu(schedule, data, (deadline, graphs), self.control);
        match self.on {
            Chosen::Cpu => Ok(cpu(data)?),
            Chosen::Gpu(graphs) => Ok(gpu(data, graphs)?),
            Chosen::GpuOrCpu(graphs) => match gpu(data.clone(), graphs) {
                Ok(made) => Ok(made),
                Err(refusal) => {
                    let note = |note| listener(RunEvent::Note(note));
                    turn_to_cpu(schedule.job.dtype, &refusal, note)?;
                    Ok(cpu(data)?)
                }
            },
        }
    }
}

/// What a run gathers from its devices.
fn kept(options: &RunOptions) -> Kept {
    match &options.save {
        Some(_) => Kept::Parameters,
        None => Kept::Nothing,
    }
}

/// Looks whether there is the memory that CPU threads take.
fn room(
    schedule: &Checked,
    kept: Kept,
    control: Option<&Arc<Control>>,
) -> Result<(), MachineError> {
    match control {
        None => Cpu::room(schedule, kept)?,
        Some(control) => Cpu::room_of_ranks(schedule, kept, control)?,
    }
    Ok(())
}

/// CPU threads, whose arenas start poisoned.
fn cpu(
    schedule: &Checked,
    data: Dataset,
    deadline: Duration,
    control: Option<&Arc<Control>>,
) -> Result<AnyMachine, MachineError> {
    let options = CpuOptions { fill: Fill::Poison, deadline, ..CpuOptions::default() };
    let data = Box::new(data);
    Ok(match control {
        None => Cpu::new(schedule, data, options)?.into(),
        Some(control) => {
            Cpu::of_rank(schedule, data, options, Arc::clone(control))?.into()
        }
    })
}

/// A GPU, whose arenas start poisoned.
fn gpu(
    schedule: &Checked,
    data: Dataset,
    (deadline, graphs): (Duration, Graphs),
    control: Option<&Arc<Control>>,
) -> Result<AnyMachine, MachineError> {
    let fill = Fill::Poison;
    let options = CudaOptions { fill, graphs, deadline, ..CudaOptions::default() };
    let data = Box::new(data);
    Ok(match control {
        None => Cuda::new(schedule, data, options)?.into(),
        Some(control) => {
            Cuda::of_rank(schedule, data, options, Arc::clone(control))?.into()
        }
    })
}

/// Why there is no GPU; of several ranks what the first one without a GPU lacks: ranks of several kinds
/// could not go on together, so all or none take their CPUs.
fn lacking(control: Option<&Arc<Control>>) -> Result<Option<String>, Ended> {
    let Some(control) = control else {
        return Ok(Cuda::count().err().map(|absent| absent.to_string()));
    };
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

/// Refuses a type whose losses would have to be scaled, which the CPU does not compute with at all.
pub(super) fn trains(on: On, dtype: Float) -> Result<(), RunError> {
    match on {
        On::Cpu => Ok(()),
        On::Cuda(_) | On::Best(_) => refuse_unscaled(dtype),
    }
}

/// Refuses a kind of device that was demanded and is not here, or that does not compute with a type.
fn computes(on: On, dtype: Float) -> Result<(), RunError> {
    match on {
        On::Cpu => Ok(check_native(dtype).map(drop)?),
        On::Cuda(_) => demanded_gpu(dtype),
        On::Best(_) => Ok(()),
    }
}

/// Refuses what no device here computes with. This is the word of one process, which other ranks may not
/// share: what is best for several they find together.
pub(super) fn computes_here(on: On, dtype: Float) -> Result<(), RunError> {
    match on {
        On::Cpu | On::Cuda(_) => computes(on, dtype),
        On::Best(_) => {
            some_gpu().or_else(|refusal| turn_to_cpu(dtype, &refusal, |_note| ()))
        }
    }
}

/// A GPU that nothing else stands in for.
pub(super) fn demanded_gpu(dtype: Float) -> Result<(), RunError> {
    Cuda::count().map(drop).map_err(|absent| RunError::NoCuda { absent, dtype })
}

/// Takes the CPU in place of a GPU, and notes why; where the CPU cannot either, both have their say.
pub(crate) fn turn_to_cpu(
    dtype: Float,
    refusal: &dyn Display,
    note: impl FnOnce(String),
) -> Result<(), RunError> {
    let nowhere = |cpu| RunError::Nowhere { gpu: refusal.to_string(), cpu };
    check_native(dtype).map_err(nowhere)?;
    note(format!("runs on the CPU: {refusal}"));
    Ok(())
}

/// The type whose losses would have to be scaled.
pub(crate) fn refuse_unscaled(dtype: Float) -> Result<(), RunError> {
    match dtype {
        Float::F16(_) => Err(RunError::Unscaled(dtype)),
        Float::F32 | Float::F64 | Float::Bf16(_) => Ok(()),
    }
}
