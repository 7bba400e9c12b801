//! A checkpoint on its way from a machine to disk, array by array: a state may be more than the process that
//! writes it has room for.

use super::{CheckpointError, Checkpoints, Saved, format::Writer};
use crate::{
    container::Form,
    output::Unfinished,
    state::{Moment, gather::Wanted},
};
use roundelay_schedule::Float;
use std::{fs::File, io, ops::ControlFlow};

/// A checkpoint that is being written. No array is taken after something went wrong with it, which is told
/// at the end.
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
    pub(crate) fn put(&mut self, name: &str, numbers: &[u8]) -> ControlFlow<()> {
        let Ok((_, writer)) = &mut self.open else { return ControlFlow::Break(()) };
        match writer.put(name, numbers) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.open = Err(error);
                ControlFlow::Break(())
            }
        }
    }

    /// Brings the checkpoint to disk, as [`Checkpoints::save`] does.
    pub(crate) fn end(self) -> Result<Saved, CheckpointError> {
        let Self { checkpoints, step, open } = self;
        let written =
            open.and_then(|(unfinished, writer)| unfinished.finish(&writer.end()?));
        checkpoints.keep(step, written)
    }
}
