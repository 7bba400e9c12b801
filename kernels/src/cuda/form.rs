//! Which steps a call is. Functions exist for the usual mixes of element types; other mixes are
//! converted to 32 bits before, and back after.

use super::{
    CallPlace, Launch, Number, Step, Steps,
    draft::{Draft, MOST_BLOCKS, Types},
    elementwise::convert,
};
use crate::operand::Slot;
use roundelay_schedule::{Access, Bytes, Element, Float};

/// A kernel as steps on a device.
pub(crate) trait Form {
    /// What each operand is stored in, in table order.
    fn roles(&self) -> Vec<Role>;
    /// The steps, in the draft's types.
    ///
    /// # Errors
    /// Why there is no form, as a sentence without full stop.
    fn write(&self, draft: &mut Draft) -> Result<(), String>;
}

/// What an operand may be stored in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The job's real type.
    Narrow,
    /// At least 32 bits.
    Wide,
    /// One of the two; all such operands of a call the same.
    Either,
    /// Whole numbers.
    Index,
}

/// The steps of a call whose operands are stored as `slots` say.
pub(crate) fn steps(
    form: &dyn Form,
    slots: &[Slot],
    dtype: Float,
) -> Result<Steps, String> {
    let roles = form.roles();
    debug_assert_eq!(roles.len(), slots.len(), "every operand has a role");
    let stored: Vec<Option<Number>> =
        slots.iter().map(|slot| stored(slot.element, dtype)).collect();
    let types = direct(&roles, &stored, narrow(dtype));
    let types = types.unwrap_or(Types { narrow: Number::F32, either: Number::F32 });
    let places =
        (0..slots.len()).map(|index| CallPlace::Operand(index, Bytes(0))).collect();
    let mut draft = Draft::new(types, places);
    let others: Vec<Conversion> = (0..slots.len())
        .filter_map(|operand| {
            let from = stored[operand]?;
            let to = wanted(roles[operand], types)?;
            (from != to).then_some(Conversion { operand, from, to })
        })
        .collect();
    let originals = before(&mut draft, &others, slots);
    form.write(&mut draft)?;
    after(&mut draft, &others, slots, &originals);
    let steps = draft.finish();
    steps.steps.iter().flat_map(launches).try_for_each(|launch| fits(&launch))?;
    Ok(steps)
}

/// Whether a device starts this many blocks.
fn fits(launch: &Launch) -> Result<(), String> {
    let grid = launch.grid.iter().zip(MOST_BLOCKS);
    for ((blocks, most), axis) in grid.zip(["x", "y", "z"]) {
        if *blocks > most {
            let symbol = &launch.function.symbol;
            return Err(format!(
                "`{symbol}` needs {blocks} blocks or more along {axis} on a CUDA device, \
                 which starts at most {most}"
            ));
        }
    }
    Ok(())
}

/// All functions of ours that may make a step.
fn launches(step: &Step) -> Vec<Launch> {
    match step {
        Step::Either(either) => {
            either.usual.iter().chain(either.sm90.iter().flatten()).cloned().collect()
        }
        Step::Launch(_)
        | Step::Product(_)
        | Step::Gradients(_)
        | Step::Convolution(_) => step.clone().launches(),
    }
}

/// An operand that is stored in another type than its function takes.
struct Conversion {
    operand: usize,
    from: Number,
    to: Number,
}

fn before(draft: &mut Draft, others: &[Conversion], slots: &[Slot]) -> Vec<CallPlace> {
    let each = others.iter().map(|other| {
        let (slot, original) = (&slots[other.operand], draft.place(other.operand));
        let copy = draft.scratch(slot.length.saturating_mul(other.to.size()));
        match slot.access {
            Access::Read | Access::Update => {
                convert(draft, [original, copy], [other.from, other.to], slot.length);
            }
            Access::Write => {}
        }
        draft.replace(other.operand, copy);
        original
    });
    each.collect()
}

fn after(
    draft: &mut Draft,
    others: &[Conversion],
    slots: &[Slot],
    originals: &[CallPlace],
) {
    for (other, original) in others.iter().zip(originals) {
        let (slot, copy) = (&slots[other.operand], draft.place(other.operand));
        match slot.access {
            Access::Write | Access::Update => {
                convert(draft, [copy, *original], [other.to, other.from], slot.length);
            }
            Access::Read => {}
        }
    }
}

/// The types for which no operand has to be converted.
fn direct(roles: &[Role], stored: &[Option<Number>], narrow: Number) -> Option<Types> {
    let is_either = |role: &&Role| **role == Role::Either;
    let first = roles.iter().position(|role| is_either(&role));
    let either = first.and_then(|operand| stored[operand]).unwrap_or(narrow);
    let types = Types { narrow, either };
    let fits = |(role, stored): (&Role, &Option<Number>)| wanted(*role, types) == *stored;
    roles.iter().zip(stored).all(fits).then_some(types)
}

fn wanted(role: Role, types: Types) -> Option<Number> {
    match role {
        Role::Narrow => Some(types.narrow),
        Role::Wide => Some(types.narrow.wide()),
        Role::Either => Some(types.either),
        Role::Index => None,
    }
}

fn narrow(dtype: Float) -> Number {
    match dtype {
        Float::F32 => Number::F32,
        Float::F64 => Number::F64,
        Float::Bf16(_) => Number::Bf16,
        Float::F16(_) => Number::F16,
    }
}

fn stored(element: Element, dtype: Float) -> Option<Number> {
    match element {
        Element::Real => Some(narrow(dtype)),
        Element::Wide => Some(narrow(dtype).wide()),
        Element::I32 => None,
    }
}
