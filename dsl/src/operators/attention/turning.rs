//! What a program says of rotary positions (arXiv 2104.09864), which may be stretched (arXiv
//! 2306.15595, 2407.21783).

use crate::{Code, Mistake, Stretch, Value, signature::Arguments};

/// Base of the rotary angles that `rotary = true` stands for.
const BASE: f64 = 10_000.0;

/// Whether queries and keys are turned by their positions.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rotary {
    /// They are not.
    Without,
    /// By angles of this base, stretched, this many leading elements of every head.
    Turned { base: f64, elements: u64, stretch: Stretch },
}

/// How queries and keys with heads of `depth` elements are turned.
pub(super) fn rotary(arguments: &Arguments, depth: u64) -> Result<Rotary, Mistake> {
    let base = match arguments.given("rotary") {
        None | Some(Value::Truth(false)) => return still(arguments),
        Some(Value::Truth(true)) => BASE,
        Some(_) => arguments.real_in("rotary", 1.0, f64::MAX)?,
    };
    let turned = |arguments: &Arguments, name| arguments.whole_in(name, (2, depth));
    let is_wide = arguments.given("head_width").is_some();
    let (elements, said, what, hint) = match arguments.optional("turned", turned)? {
        Some(elements) => (elements, "turned", "`turned` is", "write an even number"),
        None if is_wide => {
            (depth, "head_width", "a head has", "`head_width` must be even")
        }
        None => (
            depth,
            "rotary",
            "a head has",
            "the width must be an even multiple of the number of heads",
        ),
    };
    if elements.is_multiple_of(2) {
        return Ok(Rotary::Turned { base, elements, stretch: stretch(arguments)? });
    }
    let message = format!("rotary positions turn pairs, but {what} {elements}");
    Err(Mistake::new(Code::Shape, message).hint(hint).argument(said))
}

/// What says how heads turn, besides the base.
const TURNING: [&str; 5] =
    ["turned", "rotary_factor", "rotary_original", "rotary_low", "rotary_high"];

/// No positions, of which nothing else may be said then.
fn still(arguments: &Arguments) -> Result<Rotary, Mistake> {
    match TURNING.into_iter().find(|name| arguments.given(name).is_some()) {
        None => Ok(Rotary::Without),
        Some(name) => {
            let mistake = Mistake::new(Code::Missing, "nothing turns without `rotary`");
            Err(mistake.hint("write `rotary = 10000`").argument(name))
        }
    }
}

/// What says which waves are long.
const LONG: [&str; 3] = ["rotary_original", "rotary_low", "rotary_high"];

fn stretch(arguments: &Arguments) -> Result<Stretch, Mistake> {
    let is_given = |name: &&'static str| arguments.given(name).is_some();
    let at_least_one =
        |arguments: &Arguments, name| arguments.real_in(name, 1.0, f64::MAX);
    let factor = arguments.optional("rotary_factor", at_least_one)?;
    let (said, left_out) =
        (LONG.into_iter().find(is_given), LONG.into_iter().find(|name| !is_given(name)));
    match (factor, said, left_out) {
        (None, None, _) => Ok(Stretch::None),
        (Some(factor), None, _) => Ok(Stretch::Even { factor }),
        (None, Some(said), _) => {
            let message = format!("`{said}` says nothing without `rotary_factor`");
            let hint = "write `rotary_factor = 8`, by which angles are divided";
            Err(Mistake::new(Code::Missing, message).hint(hint).argument(said))
        }
        (Some(_), Some(said), Some(left_out)) => {
            let message = format!("`{said}` says nothing without `{left_out}`");
            let hint = "give `rotary_original`, `rotary_low` and `rotary_high` together";
            Err(Mistake::new(Code::Missing, message).hint(hint).argument(said))
        }
        (Some(factor), Some(_), None) => long(arguments, factor),
    }
}

/// Long waves alone are stretched.
fn long(arguments: &Arguments, factor: f64) -> Result<Stretch, Mistake> {
    let original = arguments.size("rotary_original")?;
    let low = arguments.above_zero("rotary_low")?;
    let high = arguments.above_zero("rotary_high")?;
    if low < high {
        return Ok(Stretch::Long { factor, original, low, high });
    }
    let message = format!("`rotary_low` is {low}, but `rotary_high` is only {high}");
    let hint = "pairs that turn more than `rotary_high` times stay: it must be above \
                `rotary_low`";
    Err(Mistake::new(Code::Value, message).hint(hint).argument("rotary_low"))
}
