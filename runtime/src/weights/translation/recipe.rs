//! A file of arrays that are made one after another.

use crate::{
    OutputFile, WeightsError,
    container::{Form, Header},
    weights::TranslationError,
};
use roundelay_schedule::Bytes;
use safetensors::Dtype;
use std::{
    collections::BTreeMap,
    io::{self, BufWriter, Write},
};

/// An array that is yet to be made.
pub(super) struct Recipe<'a> {
    form: Form,
    numbers: Box<dyn Fn() -> Result<Vec<u8>, WeightsError> + 'a>,
}

impl<'a> Recipe<'a> {
    /// `numbers` makes them, little-endian, as many as the shape says.
    pub(super) fn new(
        dtype: Dtype,
        shape: &[u64],
        numbers: impl Fn() -> Result<Vec<u8>, WeightsError> + 'a,
    ) -> Self {
        Self { form: Form::of(dtype, shape), numbers: Box::new(numbers) }
    }
}

/// Makes the arrays, by name, and writes them as one file.
pub(super) fn write(
    recipes: &BTreeMap<String, Recipe<'_>>,
    to: &OutputFile,
) -> Result<(), TranslationError> {
    let forms = recipes.iter().map(|(name, recipe)| (name.clone(), &recipe.form));
    let header = Header::of(&forms.collect(), ("format", "pt".to_owned()));
    let length = header.as_ref().map_or(0, Header::file_length);
    OutputFile::demand_room(&[(to, Bytes(length))])?;
    let mut lost = None;
    let written = to.write_by(|out| {
        let header = header?;
        let out = &mut BufWriter::new(out);
        out.write_all(&header.bytes)?;
        for (name, place) in header.in_file() {
            let numbers = (recipes[name].numbers)().map_err(|error| {
                lost = Some(error);
                io::Error::other("what it is made of does not read")
            })?;
            place.takes(name, &numbers)?;
            out.write_all(&numbers)?;
        }
        out.flush()
    });
    match lost {
        Some(error) => Err(error.into()),
        None => Ok(written?),
    }
}
