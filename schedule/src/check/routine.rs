//! Rule 1 for routines: calls that the catalogue accepts, operands inside their arguments, and
//! accesses that keep what the arguments declare.
//!
//! Sums of gradients that leave a routine are proven to be whole: none of their terms is written over
//! another. Of a sum within one routine, in its workspace, no more is proven than that it is written
//! before it is read: which arrays are one sum follows from derivatives, which the checker does not
//! know, and workspace is written over as soon as it is free.

use super::{
    Culprit, arguments, exchanges, faults::Faults, lookups::Lookups, needs::Needs,
    ranges::Ranges, update,
};
use crate::{
    Access, Argument, Call, Catalogue, Element, Method, Operand, Pass, Repeated, Role,
    Routine, RoutineId, Schedule,
};
use std::ops::Range;

/// Checks all routines; needs a sound job.
pub(super) fn check(schedule: &Schedule, catalogue: &dyn Catalogue, faults: &mut Faults) {
    let mut needs = Needs::new(schedule);
    let mut known = Repeated::default();
    for (id, routine) in schedule.routines.iter() {
        let before = faults.total();
        arguments::check(schedule, id, routine, faults);
        if faults.total() == before {
            let mut body = Body::new(schedule, catalogue, (id, routine));
            body.check(&mut known, faults);
            arguments::demands(schedule, (id, routine), body.lost, faults);
            body.tell(&mut needs);
        }
    }
    if faults.is_empty() {
        needs.check(faults);
    }
}

/// What a call is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Deed {
    /// To compute.
    Compute,
    /// To update parameters; where the next ones lie where these do, that is an update.
    Update,
}

impl Deed {
    fn of(call: &Call) -> Self {
        match Method::KERNELS.contains(&&*call.kernel) {
            true => Deed::Update,
            false => Deed::Compute,
        }
    }
}

/// What calls do to their operands.
type Accesses<'a> = Repeated<'a, Vec<Access>>;

/// One routine while its calls are walked through.
struct Body<'a> {
    schedule: &'a Schedule,
    catalogue: &'a dyn Catalogue,
    id: RoutineId,
    routine: &'a Routine,
    written: Vec<Ranges>,
    updated: Vec<Ranges>,
    /// Read before the routine wrote it.
    needed: Vec<Ranges>,
    lookups: Lookups<'a>,
    /// Whether a call was refused of which nobody can say what it would write: what is missing
    /// after it may be that.
    lost: bool,
}

impl<'a> Body<'a> {
    fn new(
        schedule: &'a Schedule,
        catalogue: &'a dyn Catalogue,
        (id, routine): (RoutineId, &'a Routine),
    ) -> Self {
        let none = vec![Ranges::default(); routine.arguments.len()];
        let [written, updated, needed] = [none.clone(), none.clone(), none];
        let lookups = Lookups::new(schedule, catalogue, routine);
        let lost = false;
        Self { schedule, catalogue, id, routine, written, updated, needed, lookups, lost }
    }

    fn tell(&self, needs: &mut Needs<'_>) {
        for (number, Argument { role, access, size: _ }) in
            self.routine.arguments.iter().enumerate()
        {
            match access {
                Access::Write => {
                    needs.makes(self.id, *role, &self.written[number]);
                }
                Access::Read | Access::Update => {
                    needs.reads(self.id, *role, &self.needed[number]);
                }
            }
        }
    }

    fn check(&mut self, known: &mut Accesses<'a>, faults: &mut Faults) {
        let (routine, catalogue) = (self.routine, self.catalogue);
        for (number, call) in routine.calls.iter().enumerate() {
            let accesses = known.of(call, |call| catalogue.accesses(call));
            let placed = accesses
                .and_then(|accesses| Ok((accesses, self.places(call, accesses)?)));
            self.lost |= placed.is_err();
            let checked = placed.and_then(|(accesses, ranges)| {
                let touched = self.touch_all(call, accesses, &ranges);
                match self.lost {
                    true => touched,
                    false => touched.and(self.lookups.check(call, accesses, &ranges)),
                }
            });
            if let Err(problem) = checked {
                faults.malformed(
                    Culprit::Call(self.id, number),
                    format!("{}: {problem}", call.kernel),
                );
            }
        }
        for (argument, declared) in routine.arguments.iter().enumerate() {
            let read = self.drawn(argument, declared);
            let whole = read.and_then(|()| match self.lost {
                true => Ok(()),
                false => self.coverage(argument, declared),
            });
            if let Err(problem) = whole {
                faults.malformed(Culprit::Routine(self.id), problem);
            }
        }
    }

    /// The bytes of each operand of a call that is well formed.
    fn places(
        &self,
        call: &Call,
        accesses: &[Access],
    ) -> Result<Vec<Range<u64>>, String> {
        if accesses.len() != call.operands.len() {
            return Err(format!("needs {} operands", accesses.len()));
        }
        if let Some(exchanged) = self.catalogue.exchange(call, self.schedule.job.dtype) {
            exchanges::legal(self.schedule, exchanged)?;
        }
        match (Deed::of(call), self.routine.pass) {
            (Deed::Update, _) => update::check(self.schedule, self.routine, call)?,
            (Deed::Compute, Pass::Update) => {
                let own = self.schedule.job.optimizer.method.kernel();
                return Err(format!(
                    "is not a step of the optimizer; a pass U calls `{own}`"
                ));
            }
            (Deed::Compute, _) => {}
        }
        let mut ranges = Vec::with_capacity(accesses.len());
        for operand in &call.operands {
            ranges.push(self.range(operand)?);
        }
        distinct(call, accesses, &ranges, self.catalogue)?;
        Ok(ranges)
    }

    /// Touches what the operands are. After a fault it goes on: what the call writes is no fault of
    /// the calls that read it.
    fn touch_all(
        &mut self,
        call: &Call,
        accesses: &[Access],
        ranges: &[Range<u64>],
    ) -> Result<(), String> {
        let deed = Deed::of(call);
        let mut all = Ok(());
        // Reads of a call come before its writes.
        for wanted in [Access::Read, Access::Update, Access::Write] {
            for (index, range) in ranges.iter().enumerate() {
                if accesses[index] == wanted {
                    let argument = call.operands[index].argument as usize;
                    let one = self.may_touch(argument, range, wanted);
                    let declared = self.routine.arguments[argument].access;
                    self.lost |= declared == Access::Read && wanted != Access::Read;
                    self.touch(argument, range, wanted, deed);
                    all = all.and(one);
                }
            }
        }
        all
    }

    /// The bytes of an operand inside its argument.
    fn range(&self, operand: &Operand) -> Result<Range<u64>, String> {
        let Operand { argument, offset, element, shape: _ } = operand;
        let declared = self.routine.arguments.get(*argument as usize);
        let declared =
            declared.ok_or_else(|| format!("there is no argument {argument}"))?;
        let whole = match declared.role {
            Role::Input(input) => self.schedule.job.inputs[input].element == *element,
            _ => true,
        };
        let width = element.size(self.schedule.job.dtype);
        let size = operand.elements().and_then(|elements| elements.checked_mul(width));
        let end = size.and_then(|size| size.checked_add(offset.0));
        match end {
            Some(end) if end <= declared.size.0 && whole && offset.0 % width == 0 => {
                Ok(offset.0..end)
            }
            _ => Err(format!(
                "an operand does not lie inside argument {argument} of {} bytes, aligned and \
                 of its element type",
                declared.size.0
            )),
        }
    }

    fn may_touch(
        &self,
        argument: usize,
        range: &Range<u64>,
        access: Access,
    ) -> Result<(), String> {
        let Argument { role, access: declared, size: _ } =
            self.routine.arguments[argument];
        let gathers =
            role.is_sum() || matches!(role, Role::ValueGradient(_) | Role::Squares);
        let defined = self.written[argument].covers(range);
        let fresh = role == Role::Workspace || declared == Access::Write;
        match (declared, access) {
            (Access::Read, Access::Write | Access::Update) => {
                Err(format!("writes argument {argument}, which is only read"))
            }
            (_, Access::Read | Access::Update) if fresh && !defined && !self.lost => {
                Err(format!("reads argument {argument} before it is written"))
            }
            (Access::Update, Access::Write) if gathers => {
                Err(format!("overwrites argument {argument}, which adds up"))
            }
            (Access::Write, Access::Write)
                if gathers && self.written[argument].meets(range) =>
            {
                Err(format!("overwrites argument {argument}, written before"))
            }
            _ => Ok(()),
        }
    }

    fn touch(&mut self, argument: usize, range: &Range<u64>, access: Access, deed: Deed) {
        if access != Access::Write && !self.written[argument].covers(range) {
            self.needed[argument].add(range.clone());
        }
        let declared = self.routine.arguments[argument].access;
        let in_place = deed == Deed::Update && declared == Access::Update;
        match access {
            Access::Read => {}
            Access::Write if in_place => self.updated[argument].add(range.clone()),
            Access::Write => self.written[argument].add(range.clone()),
            Access::Update => self.updated[argument].add(range.clone()),
        }
    }

    /// What passes read of the parameters are parameters of the job: no other elements are drawn,
    /// loaded or kept under a name.
    fn drawn(&self, argument: usize, declared: &Argument) -> Result<(), String> {
        let Routine { pass, stage, .. } = *self.routine;
        let is_read = matches!(declared.role, Role::Parameter | Role::Tied(_));
        if !pass.is_on_micro_batch() || !is_read {
            return Ok(());
        }
        let state = self.schedule.plan.state_of(declared.role, stage);
        let job = &self.schedule.job;
        let real = Element::Real.size(job.dtype);
        let mut known = Ranges::default();
        for parameter in job.parameters_of(state) {
            let end = parameter.offset + parameter.elements();
            known.add(parameter.offset * real..end * real);
        }
        match self.needed[argument].iter().find(|read| !known.covers(read)) {
            None => Ok(()),
            Some(read) => Err(format!(
                "reads bytes {} to {} of argument {argument}, which are not all of parameters that \
                 the job lists; list what lies there, with its whole shape",
                read.start, read.end
            )),
        }
    }

    /// A norm is found.
    fn measured(&self, argument: usize) -> Result<(), String> {
        let number = 0..self.schedule.job.dtype.wide_size();
        let found =
            [&self.written, &self.updated].map(|all| all[argument].covers(&number));
        match found.contains(&true) {
            true => Ok(()),
            false => Err(missed(argument, "its number")),
        }
    }

    /// Gradients and new parameters reach every parameter of the stage.
    fn coverage(&self, argument: usize, declared: &Argument) -> Result<(), String> {
        let reached = match (self.routine.pass, declared.role, declared.access) {
            (
                Pass::Backward | Pass::WeightGradient | Pass::Combine,
                Role::Gradient | Role::TiedGradient(_),
                Access::Write,
            )
            | (Pass::Update, Role::NextParameter, _) => &self.written[argument],
            (
                Pass::Backward | Pass::WeightGradient | Pass::Combine,
                Role::Gradient | Role::TiedGradient(_),
                _,
            )
            | (Pass::Update, Role::Parameter, Access::Update) => &self.updated[argument],
            (Pass::Norm, Role::Squares, _) => return self.measured(argument),
            // What other stages add to is a sum with a term of this one.
            (_, Role::ValueGradient(_), Access::Update) => {
                return match self.updated[argument].iter().next() {
                    Some(_) => Ok(()),
                    None => Err(missed(argument, "the term of this stage")),
                };
            }
            _ => return Ok(()),
        };
        let job = &self.schedule.job;
        let real = match declared.role.is_sum() {
            true => job.gradient_width(),
            false => Element::Real.size(job.dtype),
        };
        let state = self.schedule.plan.state_of(declared.role, self.routine.stage);
        let whole = job.elements[state] * real;
        let sums = matches!(self.routine.pass, Pass::Backward | Pass::WeightGradient);
        if declared.size.0 < whole && !sums {
            let all = reached.covers(&(0..declared.size.0));
            return if all { Ok(()) } else { Err(missed(argument, "its shard")) };
        }
        for parameter in job.parameters_of(state) {
            let start = parameter.offset * real;
            if !reached.covers(&(start..start + parameter.elements() * real)) {
                return Err(missed(argument, &parameter.name));
            }
        }
        // Norms and sums read it too.
        let begun = declared.role.is_sum() && declared.access == Access::Write;
        if begun && !reached.covers(&(0..whole)) {
            return Err(missed(argument, "what lies between and behind its parameters"));
        }
        Ok(())
    }
}

/// What is written overlaps no other operand, but for one that it may replace: that is the same
/// memory, elements of one width.
fn distinct(
    call: &Call,
    accesses: &[Access],
    ranges: &[Range<u64>],
    catalogue: &dyn Catalogue,
) -> Result<(), String> {
    for (one, first) in ranges.iter().enumerate() {
        for (other, second) in ranges.iter().enumerate().skip(one + 1) {
            let [left, right] = [one, other].map(|place| &call.operands[place]);
            let same = left.argument == right.argument
                && first.start.max(second.start) < first.end.min(second.end);
            if !same || [one, other].iter().all(|o| accesses[*o] == Access::Read) {
                continue;
            }
            let alike = first == second && left.element == right.element;
            if !alike || !catalogue.replaces(call).contains(&[one, other]) {
                return Err(format!(
                    "operands {one} and {other} overlap, and one is written"
                ));
            }
        }
    }
    Ok(())
}

fn missed(argument: usize, part: &str) -> String {
    format!("argument {argument} never gets {part}; add the call that makes it")
}
