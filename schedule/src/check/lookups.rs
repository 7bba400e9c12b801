//! Rule 1 for whole numbers: those that a call looks something up by are an input's, or copies that
//! the same routine has made and nothing has written over, and what is looked up exists for all of
//! them.

use crate::{
    Access, Call, Catalogue, Element, Indices, Input, InputId, Operand, Origin, Role,
    Routine, Schedule,
};
use std::ops::Range;

/// The whole numbers of one routine while its calls are walked through.
pub(super) struct Lookups<'a> {
    schedule: &'a Schedule,
    catalogue: &'a dyn Catalogue,
    routine: &'a Routine,
    copies: Vec<Copied>,
}

/// Numbers of an input that a call before has copied.
struct Copied {
    argument: u32,
    bytes: Range<u64>,
    input: InputId,
}

impl<'a> Lookups<'a> {
    pub(super) fn new(
        schedule: &'a Schedule,
        catalogue: &'a dyn Catalogue,
        routine: &'a Routine,
    ) -> Self {
        Self { schedule, catalogue, routine, copies: Vec::new() }
    }

    /// Checks the next call, whose operands are these bytes of their arguments.
    ///
    /// # Errors
    /// What it reads that no input brings, or that does not fit what it looks up.
    pub(super) fn check(
        &mut self,
        call: &Call,
        accesses: &[Access],
        ranges: &[Range<u64>],
    ) -> Result<(), String> {
        let sources = self.sources(call, accesses, ranges);
        let legal = self.exist(call, &sources).and_then(|()| self.shares(call, &sources));
        self.follow(call, accesses, ranges, &sources);
        legal
    }

    /// The input that the elements of each operand are of, as far as one is known.
    fn sources(
        &self,
        call: &Call,
        accesses: &[Access],
        ranges: &[Range<u64>],
    ) -> Vec<Option<InputId>> {
        let source = |(index, operand): (usize, &Operand)| {
            let role = self.routine.arguments.get(operand.argument as usize)?.role;
            match (role, operand.element, accesses[index]) {
                (_, _, Access::Write) => None,
                (Role::Input(input), _, _) => Some(input),
                (_, Element::I32, _) => self.copied(operand.argument, &ranges[index]),
                (_, Element::Real | Element::Wide, _) => None,
            }
        };
        call.operands.iter().enumerate().map(source).collect()
    }

    fn copied(&self, argument: u32, bytes: &Range<u64>) -> Option<InputId> {
        let holds = |copied: &&Copied| {
            copied.argument == argument
                && copied.bytes.start <= bytes.start
                && bytes.end <= copied.bytes.end
        };
        self.copies.iter().find(holds).map(|copied| copied.input)
    }

    /// What is looked up by an input exists for all its numbers.
    fn exist(&self, call: &Call, sources: &[Option<InputId>]) -> Result<(), String> {
        let looks_up = whole_numbers(call).next().is_some();
        let indices = looks_up.then(|| self.catalogue.indices(call)).flatten();
        let Some(Indices { operand, below, mask: _ }) = indices else { return Ok(()) };
        let Some(input) = sources[operand] else {
            return Err(format!(
                "looks up by argument {}, whose numbers no input brings; read them of an input, or \
                 of a copy that nothing has written over",
                call.operands[operand].argument
            ));
        };
        let Input { name, bound, .. } = &self.schedule.job.inputs[input];
        match (1..=below).contains(bound) {
            true => Ok(()),
            false => Err(format!(
                "looks up by `{name}`, whose numbers are below {bound} (0: any), but has no more \
                 than {below} entries; write that as the bound of the input, or less"
            )),
        }
    }

    /// Shares are read with the targets of which they are, by who leaves out the same ones.
    fn shares(&self, call: &Call, sources: &[Option<InputId>]) -> Result<(), String> {
        let inputs = &self.schedule.job.inputs;
        for read in sources.iter().flatten() {
            let Input { name, origin: Origin::Shares { of, mask }, .. } = &inputs[*read]
            else {
                continue;
            };
            let fits = self.catalogue.indices(call).is_some_and(|indices| {
                let targets = sources[indices.operand].map(|input| &inputs[input]);
                let is_own = targets.is_some_and(|targets| targets.name == *of);
                indices.mask == Some(*mask) && is_own
            });
            if !fits {
                return Err(format!(
                    "reads `{name}`, the shares of `{of}` where {mask} stands for none, but does \
                     not look up by them or leaves out another number; read the shares of its own \
                     targets"
                ));
            }
        }
        Ok(())
    }

    /// Copies that the call writes over are none any longer, and what it copies is one.
    fn follow(
        &mut self,
        call: &Call,
        accesses: &[Access],
        ranges: &[Range<u64>],
        sources: &[Option<InputId>],
    ) {
        let read = whole_numbers(call).find_map(|(index, _)| sources[index]);
        for (index, Operand { argument, element, .. }) in call.operands.iter().enumerate()
        {
            if accesses[index] == Access::Read {
                continue;
            }
            let bytes = ranges[index].clone();
            self.copies.retain(|copied| !copied.is_met(*argument, &bytes));
            let copied = (*element == Element::I32).then_some(read).flatten();
            self.copies.extend(copied.map(|input| Copied {
                argument: *argument,
                bytes,
                input,
            }));
        }
    }
}

impl Copied {
    fn is_met(&self, argument: u32, bytes: &Range<u64>) -> bool {
        self.argument == argument
            && self.bytes.start.max(bytes.start) < self.bytes.end.min(bytes.end)
    }
}

/// The operands of a call that are whole numbers.
fn whole_numbers(call: &Call) -> impl Iterator<Item = (usize, &Operand)> {
    let all = call.operands.iter().enumerate();
    all.filter(|(_, operand)| operand.element == Element::I32)
}
