//! An array of a state, wherever its numbers are.

use super::StateError;
use std::borrow::Cow;

/// An array of a state, or where it can be had from.
pub trait ArrayNumbers {
    /// How many bytes it has.
    fn length(&self) -> usize;

    /// Its numbers, in native byte order.
    ///
    /// # Errors
    /// [`StateError::Read`] when they lie in a file that cannot be read any more.
    fn bytes(&self) -> Result<Cow<'_, [u8]>, StateError>;
}

impl ArrayNumbers for Vec<u8> {
    fn length(&self) -> usize {
        self.len()
    }

    fn bytes(&self) -> Result<Cow<'_, [u8]>, StateError> {
        Ok(Cow::Borrowed(self))
    }
}
