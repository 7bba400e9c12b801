//! Arguments of calls: which there are, which one is meant, and what it must be.

use crate::{
    Code, Extent, Mistake, TensorValue, Value, limit, near::Asked, value::spelled,
};
use roundelay_schedule::Element;
use std::ops::RangeInclusive;

/// An argument that a callee knows.
#[derive(Clone, Copy, Debug)]
pub struct Formal {
    /// Its name.
    pub name: &'static str,
    /// Its value when it is left out; without one it must be given.
    pub default: Option<Fallback>,
}

/// The value of an argument that is left out.
#[derive(Clone, Copy, Debug)]
pub enum Fallback {
    /// A number.
    Number(f64),
    /// A truth value.
    Truth(bool),
    /// An empty list.
    Empty,
    /// None: the callee asks whether it is given.
    Absent,
}

/// An argument that must be given.
pub(crate) const fn required(name: &'static str) -> Formal {
    Formal { name, default: None }
}

/// An argument that may be left out.
pub(crate) const fn optional(name: &'static str, default: Fallback) -> Formal {
    Formal { name, default: Some(default) }
}

/// Why arguments do not fit: which one, when one is at fault, and what is wrong.
pub(crate) struct Misfit {
    /// Index among the given arguments.
    pub(crate) given: Option<usize>,
    /// What is wrong.
    pub(crate) mistake: Mistake,
}

/// An argument of a callee as calls see it.
#[derive(Clone, Copy)]
pub(crate) struct Slot<'a> {
    /// Its name.
    pub(crate) name: &'a str,
    /// Whether it must be given.
    pub(crate) needed: bool,
}

impl Formal {
    /// What calls see of it.
    pub(crate) fn slot(&self) -> Slot<'static> {
        Slot { name: self.name, needed: self.default.is_none() }
    }
}

/// Which given argument each slot takes, names first, then positions from the left; or all that does
/// not fit. That one is missing is said only where the others fit: it may be the one that is misnamed.
pub(crate) fn assign(
    callee: &str,
    slots: &[Slot<'_>],
    given: &[Option<&str>],
) -> Result<Vec<Option<usize>>, Vec<Misfit>> {
    let names: Vec<&str> = slots.iter().map(|slot| slot.name).collect();
    let mut taken: Vec<Option<usize>> = vec![None; slots.len()];
    let mut misfits: Vec<Misfit> = Vec::new();
    for index in 0..given.len() {
        match free_slot(callee, &names, given, index, &taken) {
            Ok(slot) => taken[slot] = Some(index),
            Err(mistake) => misfits.push(Misfit { given: Some(index), mistake }),
        }
        // More would not be told.
        if misfits.len() > limit::DIAGNOSTICS {
            break;
        }
    }
    if !misfits.is_empty() {
        return Err(distinct(misfits));
    }
    let lacking =
        |(slot, taken): &(&Slot<'_>, &Option<usize>)| slot.needed && taken.is_none();
    match slots.iter().zip(&taken).find(lacking) {
        Some((slot, _)) => {
            let mistake = missing(callee, slot.name, &names);
            Err(vec![Misfit { given: None, mistake }])
        }
        None => Ok(taken),
    }
}

/// Each mistake where it stands first.
fn distinct(misfits: Vec<Misfit>) -> Vec<Misfit> {
    let mut all: Vec<Misfit> = Vec::new();
    for misfit in misfits {
        if all.iter().all(|earlier| earlier.mistake != misfit.mistake) {
            all.push(misfit);
        }
    }
    all
}

/// The slot that one given argument takes.
fn free_slot(
    callee: &str,
    names: &[&str],
    given: &[Option<&str>],
    index: usize,
    taken: &[Option<usize>],
) -> Result<usize, Mistake> {
    let slot = match given[index] {
        Some(name) => names
            .iter()
            .position(|known| *known == name)
            .ok_or_else(|| unknown_argument(callee, name, names))?,
        None => index,
    };
    match taken.get(slot) {
        None => Err(too_many(callee, names.len(), given.len())),
        Some(None) => Ok(slot),
        Some(Some(_)) if given[index].is_none() => {
            Err(behind_a_name(callee, names[slot]))
        }
        Some(Some(_)) => Err(given_twice(callee, names[slot])),
    }
}

fn unknown_argument(callee: &str, name: &str, formals: &[&str]) -> Mistake {
    let message = format!("`{callee}` has no argument `{name}`");
    let mistake = Mistake::new(Code::UnknownName, message);
    mistake.meant(Asked::Argument(callee), name, formals.iter().copied())
}

fn too_many(callee: &str, known: usize, given: usize) -> Mistake {
    let message = format!("`{callee}` takes {known} arguments, found {given}");
    Mistake::new(Code::Type, message)
}

fn given_twice(callee: &str, name: &str) -> Mistake {
    let message = format!("argument `{name}` of `{callee}` is given twice");
    Mistake::new(Code::Duplicate, message)
}

/// An argument without a name whose place one with a name before it has taken.
fn behind_a_name(callee: &str, named: &str) -> Mistake {
    let message = format!(
        "an argument of `{callee}` without a name stands behind `{named} = …`, which has its \
         place"
    );
    let mistake = Mistake::new(Code::Type, message);
    mistake.hint("write arguments without a name first")
}

/// An argument that must be given is not.
pub(crate) fn missing(callee: &str, name: &str, formals: &[&str]) -> Mistake {
    let message = format!("`{callee}` needs the argument `{name}`");
    let hint = format!("write `{callee}({})`", formals.join(", "));
    Mistake::new(Code::Missing, message).hint(hint)
}

/// The arguments of one call, by name.
#[derive(Clone, Debug)]
pub(crate) struct Arguments {
    callee: &'static str,
    formals: &'static [Formal],
    values: Vec<Option<Value>>,
}

impl Arguments {
    /// Gives each formal its value; or the first mistake.
    pub(crate) fn bind(
        callee: &'static str,
        formals: &'static [Formal],
        given: Vec<(Option<&str>, Value)>,
    ) -> Result<Self, Mistake> {
        let slots: Vec<Slot<'_>> = formals.iter().map(Formal::slot).collect();
        let (names, values): (Vec<Option<&str>>, Vec<Value>) = given.into_iter().unzip();
        let taken = assign(callee, &slots, &names).map_err(|misfits| {
            misfits.into_iter().next().expect("there is one").mistake
        })?;
        Ok(Self::placed(callee, formals, &taken, &values))
    }

    /// Gives each formal the value that it takes.
    pub(crate) fn placed(
        callee: &'static str,
        formals: &'static [Formal],
        taken: &[Option<usize>],
        values: &[Value],
    ) -> Self {
        let value = |slot: &Option<usize>| slot.map(|index| values[index].clone());
        Self { callee, formals, values: taken.iter().map(value).collect() }
    }

    /// The value of an argument.
    pub(crate) fn value(&self, name: &'static str) -> Value {
        let index = self.formals.iter().position(|formal| formal.name == name);
        let index = index.expect("operators ask for arguments that they declare");
        match (&self.values[index], self.formals[index].default) {
            (Some(value), _) => value.clone(),
            (None, Some(Fallback::Number(number))) => Value::Real(number),
            (None, Some(Fallback::Truth(truth))) => Value::Truth(truth),
            (None, Some(Fallback::Empty)) => Value::List(Vec::new()),
            (None, Some(Fallback::Absent)) => {
                unreachable!("an operator asks whether `{name}` is given")
            }
            (None, None) => unreachable!("arguments without default are given"),
        }
    }

    /// The value of an argument, when it is given.
    pub(crate) fn given(&self, name: &'static str) -> Option<Value> {
        let index = self.formals.iter().position(|formal| formal.name == name);
        let index = index.expect("operators ask for arguments that they declare");
        self.values[index].clone()
    }

    /// What `read` makes of an argument, when it is given.
    pub(crate) fn optional<T>(
        &self,
        name: &'static str,
        read: impl FnOnce(&Self, &'static str) -> Result<T, Mistake>,
    ) -> Result<Option<T>, Mistake> {
        self.given(name).map(|_| read(self, name)).transpose()
    }

    fn wrong(&self, name: &'static str, expected: &str, found: &str) -> Mistake {
        let Self { callee, .. } = self;
        let message = format!("`{name}` of `{callee}` must be {expected}, found {found}");
        Mistake::new(Code::Type, message).argument(name)
    }

    /// A number that is out of its bounds.
    fn outside(&self, name: &'static str, expected: &str, found: &str) -> Mistake {
        Mistake { code: Code::Value, ..self.wrong(name, expected, found) }
    }

    /// A tensor of real numbers.
    pub(crate) fn real_tensor(&self, name: &'static str) -> Result<TensorValue, Mistake> {
        let tensor = self.tensor(name, "a tensor of real numbers")?;
        match tensor.element {
            Element::Real | Element::Wide => Ok(tensor),
            Element::I32 => {
                Err(self.wrong(name, "a tensor of real numbers", "whole numbers (i32)"))
            }
        }
    }

    /// A tensor of whole numbers.
    pub(crate) fn integer_tensor(
        &self,
        name: &'static str,
    ) -> Result<TensorValue, Mistake> {
        let tensor = self.tensor(name, "an i32 input")?;
        match tensor.element {
            Element::I32 => Ok(tensor),
            Element::Real | Element::Wide => {
                Err(self.wrong(name, "an i32 input", "real numbers"))
            }
        }
    }

    fn tensor(&self, name: &'static str, expected: &str) -> Result<TensorValue, Mistake> {
        match self.value(name) {
            Value::Tensor(tensor) => Ok(tensor),
            other => Err(self.wrong(name, expected, other.kind())),
        }
    }

    /// A whole number of at least one, within the limits of extents.
    pub(crate) fn size(&self, name: &'static str) -> Result<u64, Mistake> {
        let whole = "a whole number of at least 1";
        let value = self.value(name);
        match (&value, value.extent()) {
            (Value::Integer(_), Ok(extent)) => Ok(extent.size),
            (Value::Integer(number), Err(_)) if *number > 0 => {
                let most = format!("at most {}", limit::ELEMENTS);
                let wrong = self.wrong(name, &most, &number.to_string());
                Err(Mistake { code: Code::Limit, ..wrong })
            }
            (Value::Integer(number), _) => {
                Err(self.wrong(name, whole, &number.to_string()))
            }
            (other, _) => Err(self.wrong(name, whole, other.kind())),
        }
    }

    /// A whole number of at least zero.
    pub(crate) fn whole(&self, name: &'static str) -> Result<u64, Mistake> {
        self.whole_within(name, "at least 0", 0..=u64::MAX)
    }

    /// A whole number from `least` to `most`.
    pub(crate) fn whole_in(
        &self,
        name: &'static str,
        (least, most): (u64, u64),
    ) -> Result<u64, Mistake> {
        self.whole_within(name, &format!("from {least} to {most}"), least..=most)
    }

    fn whole_within(
        &self,
        name: &'static str,
        expected: &str,
        bounds: RangeInclusive<u64>,
    ) -> Result<u64, Mistake> {
        let value = self.value(name);
        let number = match value {
            Value::Integer(number) => i128::from(number),
            Value::Real(number)
                if number.abs() < 2f64.powi(64) && number.fract() == 0.0 =>
            {
                number as i128
            }
            other => return Err(self.wrong(name, "a whole number", other.kind())),
        };
        let found = u64::try_from(number).ok().filter(|found| bounds.contains(found));
        found.ok_or_else(|| self.outside(name, expected, &number.to_string()))
    }

    /// A text in quotes.
    pub(crate) fn text(&self, name: &'static str) -> Result<String, Mistake> {
        match self.value(name) {
            Value::Text(text) => Ok(text),
            other => Err(self.wrong(name, "a text in quotes", other.kind())),
        }
    }

    /// A real number in a closed range.
    pub(crate) fn real_in(
        &self,
        name: &'static str,
        least: f64,
        most: f64,
    ) -> Result<f64, Mistake> {
        let expected = match most {
            f64::MAX => format!("at least {least}"),
            _ => format!("from {least} to {most}"),
        };
        self.real_within(name, &expected, |number| (least..=most).contains(&number))
    }

    /// A finite real number above zero.
    pub(crate) fn above_zero(&self, name: &'static str) -> Result<f64, Mistake> {
        let fits = |number: f64| number > 0.0 && number.is_finite();
        self.real_within(name, "a number above 0", fits)
    }

    /// A real number of at least zero and below one.
    pub(crate) fn share(&self, name: &'static str) -> Result<f64, Mistake> {
        let fits = |number: f64| (0.0..1.0).contains(&number);
        self.real_within(name, "at least 0 and below 1", fits)
    }

    /// Every refusal names the bounds in full, whichever of them is crossed.
    fn real_within(
        &self,
        name: &'static str,
        expected: &str,
        fits: impl Fn(f64) -> bool,
    ) -> Result<f64, Mistake> {
        let value = self.value(name);
        let number =
            value.real().ok_or_else(|| self.wrong(name, "a number", value.kind()))?;
        let found = Some(number).filter(|number| fits(*number));
        found.ok_or_else(|| self.outside(name, expected, &number.to_string()))
    }

    /// `true` or `false`.
    pub(crate) fn truth(&self, name: &'static str) -> Result<bool, Mistake> {
        match self.value(name) {
            Value::Truth(truth) => Ok(truth),
            other => Err(self.wrong(name, "`true` or `false`", other.kind())),
        }
    }

    /// A shape in brackets.
    pub(crate) fn shape(&self, name: &'static str) -> Result<Vec<Extent>, Mistake> {
        match self.value(name) {
            Value::List(items) => shape(&items).map_err(|m| m.argument(name)),
            other => Err(self.wrong(name, "a shape such as `[batch, 8]`", other.kind())),
        }
    }

    /// Texts in brackets.
    pub(crate) fn texts(&self, name: &'static str) -> Result<Vec<String>, Mistake> {
        let wrong = |found: &Value| self.wrong(name, "texts in brackets", found.kind());
        match self.value(name) {
            Value::List(items) => items
                .into_iter()
                .map(|item| match item {
                    Value::Text(text) => Ok(text),
                    other => Err(wrong(&other)),
                })
                .collect(),
            other => Err(wrong(&other)),
        }
    }
}

impl From<Mistake> for Vec<Mistake> {
    fn from(mistake: Mistake) -> Self {
        vec![mistake]
    }
}

/// Both, or all that is wrong with either.
pub(crate) fn both<A, B>(
    one: Result<A, impl Into<Vec<Mistake>>>,
    other: Result<B, impl Into<Vec<Mistake>>>,
) -> Result<(A, B), Vec<Mistake>> {
    match (one.map_err(Into::into), other.map_err(Into::into)) {
        (Ok(one), Ok(other)) => Ok((one, other)),
        (Err(mut all), Err(others)) => {
            all.extend(others);
            Err(all)
        }
        (Err(all), Ok(_)) | (Ok(_), Err(all)) => Err(all),
    }
}

/// The extents of a list.
pub(crate) fn shape(items: &[Value]) -> Result<Vec<Extent>, Mistake> {
    items.iter().map(Value::extent).collect()
}

/// Two shapes that should fit do not.
pub(crate) fn unfit_shapes(what: &str, expected: &[Extent], found: &[Extent]) -> Mistake {
    let [expected, found] = [expected, found].map(spelled);
    Mistake::new(
        Code::Shape,
        format!("{what} must have the shape {expected}, found {found}"),
    )
}
