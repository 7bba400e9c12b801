//! What a schedule computes, as one number. The checker proves that contents get where they belong; what
//! routines make of them it takes from whoever wrote them, and this number says whether they were changed
//! behind the compiler.

use super::{layout, node::node};
use crate::{Fnv, Parameter, Plan, Routine, Rule, Schedule};
use serde::Serialize;

impl Schedule {
    /// With this fingerprint of its program, and the digest of its code behind it.
    #[must_use]
    pub fn compiled_from(self, program: &str) -> Self {
        let fingerprint = format!("{program}-{:016x}", self.code_digest());
        Self { fingerprint, ..self }
    }

    /// Whether its routines, or where parameters lie in them, are others than those that were compiled; a
    /// fingerprint without their digest does not say.
    pub fn is_recoded(&self) -> bool {
        let compiled = self.fingerprint.split('-').nth(2);
        compiled.is_some_and(|digest| digest != format!("{:016x}", self.code_digest()))
    }

    /// The digest of what its routines compute of which numbers, row by row of the table, and of the
    /// losses that train them. How long they take, what they are called and how parameters begin is no
    /// part of it.
    pub fn code_digest(&self) -> u64 {
        let job = &self.job;
        let hash = Fnv::default();
        let hash =
            self.routines.iter().fold(hash, |hash, (_, own)| with_calls(hash, own));
        let hash = job.parameters.iter().fold(hash, with_place);
        let hash = with(hash, &(&job.elements, &job.inputs, job.dtype));
        with_losses(hash, &self.plan).value()
    }
}

/// Whose losses train a stage. Gradients that stop between units are no part of routines, which look
/// like those of a model whose values nobody differentiates.
fn with_losses(hash: Fnv, plan: &Plan) -> Fnv {
    match plan.rule {
        Rule::Local { .. } => with(hash, &(plan.rule, &plan.boundaries)),
        Rule::Sync | Rule::CyclicV1 | Rule::CyclicV2 | Rule::CyclicSlack(_) => hash,
    }
}

fn with_calls(hash: Fnv, routine: &Routine) -> Fnv {
    let Routine { name: _, pass, stage, arguments, calls, predicted: _ } = routine;
    with(hash, &(pass, stage, arguments, calls))
}

/// The plan and the program say the rest.
fn with_place(hash: Fnv, parameter: &Parameter) -> Fnv {
    let Parameter {
        name,
        belonging: _,
        stage,
        offset,
        shape,
        kind,
        split,
        initial: _,
        treatment,
    } = parameter;
    with(hash, &(name, stage, offset, shape, kind, split, treatment))
}

/// With a value as files spell it.
fn with(hash: Fnv, value: &impl Serialize) -> Fnv {
    let mut text = String::new();
    layout::flow(&mut text, &node(value));
    hash.with(text.as_bytes())
}
