//! Lowers plans of one program, for whoever weighs many: those that differ in who runs what when
//! alone have the same code, and it is derived once.

use super::{
    LowerError, arranged, code::CodeKey, draft::Draft, drafted, fitting, order::Slots,
};
use crate::{Stages, rewrite::LoweringChoice};
use roundelay_dsl::Program;
use roundelay_schedule::{Plan, Schedule};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

/// Codes that are remembered: plans that are lowered one after another are often alike.
const KEPT: usize = 4;

/// Code that somebody derives, or has derived.
type Code = Arc<OnceLock<Result<Stages, LowerError>>>;

/// Lowers plans of a program; where they list no rewrites, or no ways of maps, with those that a
/// choice chooses.
pub struct Lowerer<'a> {
    program: &'a Program,
    choice: &'a dyn LoweringChoice,
    /// Used last, stands last.
    known: Mutex<VecDeque<(CodeKey, Code)>>,
}

impl<'a> Lowerer<'a> {
    /// No code is known yet.
    pub fn new(program: &'a Program, choice: &'a dyn LoweringChoice) -> Self {
        Self { program, choice, known: Mutex::default() }
    }

    /// As [`super::lower_with`], as far as memory is laid out, and goes on only if that is admitted:
    /// the schedule that `admit` sees lacks the waits of its actions alone. Neither has a
    /// fingerprint.
    ///
    /// # Errors
    /// As [`super::lower`]; what `admit` says is the inner result.
    pub fn lower_if<E>(
        &self,
        plan: &Plan,
        admit: impl FnOnce(&Schedule) -> Result<(), E>,
    ) -> Result<Result<Schedule, E>, LowerError> {
        self.drafted(plan, |draft| {
            let arranged = arranged(draft)?;
            let admitted = admit(&arranged.schedule);
            Ok(admitted.map(|()| arranged.with_waits()))
        })
    }

    /// As [`super::lower_with`], as far as memory is laid out: the schedule lacks the waits of its
    /// actions, and a fingerprint.
    ///
    /// # Errors
    /// As [`super::lower`].
    pub fn laid_out(&self, plan: &Plan) -> Result<Schedule, LowerError> {
        self.drafted(plan, |draft| Ok(arranged(draft)?.schedule))
    }

    /// What `finish` makes of the draft of a plan. Who wants code that another one derives waits
    /// for it.
    fn drafted<T>(
        &self,
        plan: &Plan,
        finish: impl FnOnce(Draft<'_>) -> Result<T, LowerError>,
    ) -> Result<T, LowerError> {
        let program = &*fitting(self.program, plan)?;
        let order = Slots::new(plan, plan.cell_micro_batches())?;
        let key = CodeKey::new(program, plan, &order);
        let code = self.entry(&key);
        let code = code.get_or_init(|| key.derive(program, self.choice));
        let code = code.as_ref().map_err(LowerError::clone)?;
        drafted(program, plan, (order, code), finish)
    }

    /// Where the code of a key is, or will be.
    fn entry(&self, key: &CodeKey) -> Code {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let place = known.iter().position(|(other, _)| other == key);
        let entry = place.and_then(|place| known.remove(place));
        let (key, code) = entry.unwrap_or_else(|| (key.clone(), Code::default()));
        if known.len() == KEPT {
            known.pop_front();
        }
        known.push_back((key, code.clone()));
        code
    }
}
