//! A parameter of a file of weights, as an array of a state.

use super::{convert, order};
use crate::{
    ArrayNumbers, StateError,
    container::{Container, Place},
    digest::Digest,
    native::{rounded, wide_type},
    state::Made,
};
use roundelay_schedule::{Float, ParameterKind};
use std::{borrow::Cow, sync::Arc};

/// Real numbers in a file, as numbers of a type in our order.
#[derive(Debug)]
pub(super) struct Converted {
    pub(super) container: Arc<Container>,
    pub(super) place: Place,
    /// By which their order in the file is another one.
    pub(super) kind: ParameterKind,
    /// Extents in our order.
    pub(super) shape: Vec<u64>,
    pub(super) dtype: Float,
}

impl ArrayNumbers for Converted {
    fn length(&self) -> usize {
        (self.shape.iter().product::<u64>() * self.dtype.size()) as usize
    }

    fn bytes(&self) -> Result<Cow<'_, [u8]>, StateError> {
        let Self { container, place, kind, shape, dtype } = self;
        let wide = wide_type(*dtype);
        let numbers = {
            let stored = container.read(place).map_err(|error| container.lost(&error))?;
            convert::numbers(place.dtype, &stored, wide)
        };
        let numbers = order::from_file(*kind, numbers, shape, wide.size());
        Ok(Cow::Owned(rounded(numbers, *dtype)))
    }
}

impl Made for Converted {
    fn tell(&self, digest: &mut Digest) -> Result<(), StateError> {
        let Self { container, place, kind, shape: _, dtype: _ } = self;
        digest.add(format!("{:?} {kind:?}", place.dtype).as_bytes());
        container.add_to(digest, place).map_err(|error| container.lost(&error))
    }
}
