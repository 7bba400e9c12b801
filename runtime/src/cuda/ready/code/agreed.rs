//! Ranks make the same thing in the same way, whatever each of them had kept or found fastest.
//!
//! Each makes everything ready as one process does, and tries what is not kept on its own GPU. Then the
//! ranks bring what they keep, and the word of the lowest one that has any for a thing stands for all. Who
//! made something in another way makes everything once more. That word is on the disk of its rank, and
//! is never replaced there: so the next run agrees on the same, and one process that finds it too. A
//! rank that can keep nothing tries nothing, because its word would not be there the next time; it takes
//! those of others, and where nobody has one the first way stands for all.

use super::Code;
use crate::{
    cuda::{
        CudaError,
        ready::choices::{Words, merged},
    },
    ranks::Control,
};
use roundelay_schedule::Schedule;

impl Code {
    /// Agrees with all other ranks; all do, once they have made their code.
    ///
    /// # Errors
    /// When a rank cannot make something in the way that stands, or whatever else goes wrong on one of
    /// them.
    pub(in crate::cuda) fn agree(
        &mut self,
        schedule: &Schedule,
        control: &Control,
    ) -> Result<(), CudaError> {
        let ended = |trouble| CudaError::from(control.ended(trouble));
        let own = self.tools.tuner.choices().words();
        let agreed = control.settle(&own, merged).map_err(ended)?;
        if self.tools.tuner.choices().stray(&agreed).is_some() {
            self.again(schedule, agreed.clone())?;
        }
        let choices = self.tools.tuner.choices();
        if let Some(file) = choices.stray(&agreed) {
            let said = format!(
                "it cannot make what `{file}` says in the way that the lowest rank with that choice \
                 keeps; give all ranks the same libraries, or take that file from the cache \
                 (ROUNDELAY_CACHE) of every rank"
            );
            return Err(ended(control.fail(&said)));
        }
        choices.keep_agreed(&agreed);
        Ok(())
    }

    /// Makes all routines once more, everything in the way that ranks agreed on.
    fn again(&mut self, schedule: &Schedule, agreed: Words) -> Result<(), CudaError> {
        self.tools.tuner.agree(agreed);
        self.multiplier.forget();
        self.convolver.forget();
        self.attender.forget();
        self.fill(schedule)
    }
}
