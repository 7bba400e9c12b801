//! A machine of any kind, for whatever does not care which.

use crate::{
    ArrayNumbers, CheckpointError, Checkpoints, CpuError, CudaError, EvaluateError,
    Evaluated, Evaluator, Loss, Measured, Record, Saved, State, Touched,
    checkpoint::Writing,
    cpu::Cpu,
    cuda::Cuda,
    state::{
        Extent, Moment,
        gather::{self, Taker},
    },
};
use roundelay_schedule::{Checked, DeviceId, Kind, Nanos};
use std::{collections::BTreeMap, ops::ControlFlow, path::Path};

/// A machine that replays one schedule.
pub enum AnyMachine {
    /// CPU threads.
    Cpu(Box<Cpu>),
    /// A GPU.
    Cuda(Box<Cuda>),
}

/// Why a machine could not go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MachineError {
    /// CPU threads.
    #[error(transparent)]
    Cpu(#[from] CpuError),
    /// A GPU.
    #[error(transparent)]
    Cuda(Box<CudaError>),
}

impl MachineError {
    /// What would repair it, as the message ends with; empty where the message is all.
    pub fn hint(&self) -> String {
        match self {
            Self::Cpu(error) => error.hint(),
            Self::Cuda(error) => error.hint(),
        }
    }

    /// The file that is at fault, where one is.
    pub fn path(&self) -> Option<&Path> {
        if let Self::Cpu(CpuError::State(error)) = self {
            return error.path();
        }
        let Self::Cuda(error) = self else { return None };
        if let CudaError::State(error) = &**error { error.path() } else { None }
    }
}

/// Why the state of a machine is not in a file.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// The machine could not be saved.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The file could not be written. The machine rests, and what was there before is untouched.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
}

impl SaveError {
    /// What would repair it, as the message ends with; empty where the message is all.
    pub fn hint(&self) -> String {
        match self {
            Self::Machine(error) => error.hint(),
            Self::Checkpoint(error) => error.hint().to_owned(),
        }
    }

    /// The file that is at fault, where one is.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Machine(error) => error.path(),
            Self::Checkpoint(error) => Some(error.path()),
        }
    }
}

impl From<CudaError> for MachineError {
    fn from(error: CudaError) -> Self {
        Self::Cuda(Box::new(error))
    }
}

impl From<Cpu> for AnyMachine {
    fn from(cpu: Cpu) -> Self {
        Self::Cpu(Box::new(cpu))
    }
}

impl From<Cuda> for AnyMachine {
    fn from(cuda: Cuda) -> Self {
        Self::Cuda(Box::new(cuda))
    }
}

impl AnyMachine {
    /// The schedule that is replayed.
    pub fn schedule(&self) -> &Checked {
        match self {
            Self::Cpu(cpu) => cpu.schedule(),
            Self::Cuda(cuda) => cuda.schedule(),
        }
    }

    /// T: the next training step.
    pub fn step(&self) -> u64 {
        match self {
            Self::Cpu(cpu) => cpu.step(),
            Self::Cuda(cuda) => cuda.step(),
        }
    }

    /// Whether it has the state of all ranks when it saves.
    pub fn is_first(&self) -> bool {
        match self {
            Self::Cpu(cpu) => cpu.is_first(),
            Self::Cuda(cuda) => cuda.is_first(),
        }
    }

    /// What looks at held-out data where this machine is, beside it.
    ///
    /// # Errors
    /// When there is too little memory, or something else is missing.
    pub fn evaluator(&self) -> Result<Evaluator, EvaluateError> {
        match self {
            Self::Cpu(cpu) => Ok(Evaluator::new(cpu.schedule())?),
            Self::Cuda(cuda) => {
                Evaluator::on_gpu(cuda.schedule(), Evaluated::Trained, cuda.beside())
            }
        }
    }

    /// Fills every carried row; the next step is the state's. What is measured starts anew.
    ///
    /// # Errors
    /// When the state does not fit, or something failed before.
    pub fn load<A: ArrayNumbers>(
        &mut self,
        state: &State<A>,
    ) -> Result<(), MachineError> {
        match self {
            Self::Cpu(cpu) => Ok(cpu.load(state)?),
            Self::Cuda(cuda) => Ok(cuda.load(state)?),
        }
    }

    /// The training state, in global terms; none on other ranks than the first.
    ///
    /// # Errors
    /// When something failed before, or fails now.
    pub fn save(&mut self) -> Result<Option<State>, MachineError> {
        match self {
            Self::Cpu(cpu) => Ok(cpu.save()?),
            Self::Cuda(cuda) => Ok(cuda.save()?),
        }
    }

    /// The newest parameters, as a state without optimizer state and older versions: what a look at held-out
    /// data and a file of weights take. As [`AnyMachine::save`] otherwise.
    ///
    /// # Errors
    /// As [`AnyMachine::save`].
    pub fn newest(&mut self) -> Result<Option<State>, MachineError> {
        match self {
            Self::Cpu(cpu) => Ok(cpu.newest()?),
            Self::Cuda(cuda) => Ok(cuda.newest()?),
        }
    }

    /// Writes the training state to a folder of checkpoints, as [`Checkpoints::save`] does, but never holds
    /// it: beside the machine there is one array of one parameter at a time, with a part of it where it is
    /// split, or with several ranks up to 4 MiB of smaller ones, and what these sent. All ranks call this,
    /// and the first one writes, if it has a folder.
    ///
    /// # Errors
    /// On every rank when the machine cannot be saved; on the first one alone when the checkpoint cannot be
    /// written, and then all machines rest as before.
    pub fn checkpoint(
        &mut self,
        checkpoints: Option<&Checkpoints>,
    ) -> Result<Option<Saved>, SaveError> {
        let moment = self.moment()?;
        let mut writing = checkpoints.filter(|_| self.is_first()).map(|checkpoints| {
            let arrays = gather::wanted(self.schedule(), moment, Extent::Whole);
            Writing::begin(checkpoints, (moment, self.schedule().job.dtype), &arrays)
        });
        self.hand_over(&mut |array, numbers| match &mut writing {
            Some(writing) => writing.put(&array.name, &numbers),
            None => ControlFlow::Break(()),
        })?;
        writing.map(|writing| Ok(writing.end()?)).transpose()
    }

    fn moment(&self) -> Result<Moment, MachineError> {
        match self {
            Self::Cpu(cpu) => Ok(cpu.moment()?),
            Self::Cuda(cuda) => Ok(cuda.moment()?),
        }
    }

    /// Hands the whole state over on the first rank, array by array.
    fn hand_over(&mut self, take: &mut Taker<'_>) -> Result<(), MachineError> {
        match self {
            Self::Cpu(cpu) => Ok(cpu.hand_over(Extent::Whole, take)?),
            Self::Cuda(cuda) => Ok(cuda.hand_over(Extent::Whole, take)?),
        }
    }

    /// Runs the training steps from here to `end`, or until `goes_on` says no, and comes to rest.
    ///
    /// # Errors
    /// When an action failed or nothing moves any more; the machine cannot be used afterwards.
    pub fn replay_while(
        &mut self,
        end: u64,
        listener: &mut dyn FnMut(Loss),
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<(), MachineError> {
        match self {
            Self::Cpu(cpu) => Ok(cpu.replay_while(end, listener, goes_on)?),
            Self::Cuda(cuda) => Ok(cuda.replay_while(end, listener, goes_on)?),
        }
    }

    /// What was counted since the state was loaded, on the first rank by all of them.
    ///
    /// # Errors
    /// When something failed before, or fails now.
    pub fn measured(&mut self) -> Result<Measured, MachineError> {
        match self {
            Self::Cpu(cpu) => Ok(cpu.measured()?),
            Self::Cuda(cuda) => Ok(cuda.measured()?),
        }
    }

    /// What was done in the last replay, and when; nothing where no times are kept.
    ///
    /// # Errors
    /// When something failed before, or fails now.
    pub fn record(&mut self) -> Result<Record, MachineError> {
        match self {
            Self::Cpu(cpu) => Ok(cpu.record()),
            Self::Cuda(cuda) => Ok(cuda.record()?),
        }
    }

    /// Runs the training steps from here to `end` as a machine that keeps no times does, and says
    /// what steady periods took; does nothing, and says nothing, where to time calls costs so
    /// little that a step takes the same.
    ///
    /// # Errors
    /// As [`AnyMachine::replay_while`].
    pub fn pace(&mut self, end: u64) -> Result<Option<Vec<Nanos>>, MachineError> {
        match self {
            Self::Cpu(_) => Ok(None),
            Self::Cuda(cuda) => Ok(Some(cuda.pace(end)?)),
        }
    }

    /// Whether this rank or another one wishes something; all ranks ask.
    ///
    /// # Errors
    /// When something goes wrong on one of them.
    pub fn any(&mut self, wish: bool) -> Result<bool, MachineError> {
        match self {
            Self::Cpu(cpu) => Ok(cpu.any(wish)?),
            Self::Cuda(cuda) => Ok(cuda.any(wish)?),
        }
    }

    /// Parts from the other ranks, when all is done.
    ///
    /// # Errors
    /// When something goes wrong on one of them.
    pub fn leave(&mut self) -> Result<(), MachineError> {
        match self {
            Self::Cpu(cpu) => Ok(cpu.leave()?),
            Self::Cuda(cuda) => Ok(cuda.leave()?),
        }
    }

    /// What was really used of each kind of memory, since the state was loaded; needs
    /// [`crate::Fill::Poison`].
    ///
    /// # Errors
    /// When something failed before, or fails now.
    pub fn touched(
        &mut self,
    ) -> Result<BTreeMap<(DeviceId, Kind), Touched>, MachineError> {
        match self {
            Self::Cpu(cpu) => Ok(cpu.touched()?),
            Self::Cuda(cuda) => Ok(cuda.touched()?),
        }
    }
}
