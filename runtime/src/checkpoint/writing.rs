//! A checkpoint on its way from a machine to disk, array by array: a state may be more than the process that
//! writes it has room for.

use super::{CheckpointError, Checkpoints, format::Writer};
use crate::{
    MachineError,
    container::Form,
    output::Unfinished,
    state::{Moment, gather::Wanted},
};
use roundelay_schedule::Float;
use std::{fs::File, io, ops::ControlFlow, path::PathBuf};

/// Why a machine's checkpoint was not written.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// The machine could not be saved.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The machine rests, and the file could not be written; then what was there before is untouched.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
}

/// A checkpoint that is being written. What goes wrong first is told at the end, and no array is taken
/// after it.
pub(crate) struct Writing<'a> {
    checkpoints: &'a Checkpoints,
    step: u64,
    open: io::Result<(Unfinished, Writer<File>)>,
}

impl<'a> Writing<'a> {
    /// The checkpoint of a state of a type at a moment, with these arrays.
    pub(crate) fn begin(
        checkpoints: &'a Checkpoints,
        (moment, dtype): (Moment, Float),
        arrays: &[Wanted<'_>],
    ) -> Self {
        let form =
            |own: &Wanted<'_>| (own.name.clone(), Form::new(own.dtype, &own.shape));
        let forms = arrays.iter().map(form).collect();
        let path = Checkpoints::file_of(&checkpoints.folder, moment.step);
        let open = Unfinished::begin(&path).and_then(|(unfinished, file)| {
            let of = (moment, dtype);
            Ok((unfinished, Writer::begin(file, &checkpoints.provenance, of, forms)?))
        });
        Self { checkpoints, step: moment.step, open }
    }

    /// Takes the next array.
    pub(crate) fn put(&mut self, numbers: &[u8]) -> ControlFlow<()> {
        let Ok((_, writer)) = &mut self.open else { return ControlFlow::Break(()) };
        match writer.put(numbers) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.open = Err(error);
                ControlFlow::Break(())
            }
        }
    }

    /// Brings the checkpoint to disk, as [`Checkpoints::save`] does.
    pub(crate) fn end(self) -> Result<PathBuf, CheckpointError> {
        self.checkpoints.keep(self.step, |_| {
            let (unfinished, writer) = self.open?;
            unfinished.finish(&writer.end()?)
        })
    }
}
