//! Expressions without tensors and names: settings of devices, training and plan.

use crate::{
    Code, Mistake, Span, Value, near,
    parse::joined_unit,
    quantity::quantity,
    report::{Known, Report},
    signature::{
        Arguments, Fallback, Formal, Misfit, Slot, assign, both, optional, required,
    },
    syntax::{Argument, Expression, ExpressionKind, Name},
    value::{arithmetic, negative},
};
use roundelay_schedule::{Rate, nearest};

/// What a constant expression is worth.
pub(super) fn constant(expression: &Expression, report: &mut Report) -> Known<Value> {
    let span = expression.span;
    match &expression.kind {
        ExpressionKind::Number(digits, unit) => {
            number(digits, unit.as_deref()).map_err(|m| report.error(span, m))
        }
        ExpressionKind::Text(text) => Ok(Value::Text(text.clone())),
        ExpressionKind::Shape(items) => list(items, report),
        ExpressionKind::Negative(inner) => {
            let value = constant(inner, report)?;
            negative(&value).map_err(|mistake| report.error(span, mistake))
        }
        ExpressionKind::Chain(first, others) => {
            let mut value = constant(first, report)?;
            for (operator, other) in others {
                let other = constant(other, report)?;
                value = arithmetic(*operator, &value, &other)
                    .map_err(|mistake| report.error(span, mistake))?;
            }
            Ok(value)
        }
        ExpressionKind::Call(name, given) => {
            one_of("rate", &RATES, (name, given), span, report).map(Value::Rate)
        }
        ExpressionKind::Name(name) => truth(name, span, report),
        ExpressionKind::Index(..) => {
            Err(report.error(span, Mistake::new(Code::Type, "expected a constant")))
        }
    }
}

/// `4`, `0.5`, `2 GB`.
pub(super) fn number(digits: &str, unit: Option<&str>) -> Result<Value, Mistake> {
    if let Some(unit) = unit {
        return quantity(digits, unit).map(Value::Quantity);
    }
    if let Ok(whole) = digits.parse::<i64>() {
        return Ok(Value::Integer(whole));
    }
    let whole = digits.bytes().all(|byte| byte.is_ascii_digit());
    match digits.parse::<f64>() {
        Ok(real) if real.is_finite() && !whole => Ok(Value::Real(real)),
        _ => {
            Err(Mistake::new(Code::Value, format!("the number `{digits}` is too large")))
        }
    }
}

fn list(items: &[Expression], report: &mut Report) -> Known<Value> {
    let values: Vec<Known<Value>> =
        items.iter().map(|item| constant(item, report)).collect();
    values.into_iter().collect::<Known<_>>().map(Value::List)
}

fn truth(name: &str, span: Span, report: &mut Report) -> Known<Value> {
    match name {
        "true" => Ok(Value::Truth(true)),
        "false" => Ok(Value::Truth(false)),
        _ => {
            let message = format!("expected a constant, found the name `{name}`");
            let mistake = Mistake::new(Code::UnknownName, message);
            let meant = nearest(name, ["true", "false"]);
            let hint = meant.map(|word| format!("did you mean `{word}`?"));
            let told = || hint.into_iter().fold(mistake, Mistake::hint);
            Err(report.error(span, joined_unit(name).unwrap_or_else(told)))
        }
    }
}

const STEP: &[Formal] = &[required("lr"), required("factor"), required("every")];
/// Most training steps.
const STEPS_MAX: u64 = 1 << 40;

const COSINE: &[Formal] =
    &[required("lr"), required("steps"), optional("last", Fallback::Number(0.0))];
const WARMUP: &[Formal] = &[required("steps"), required("rate")];

/// `step(lr, factor, every)`, `cosine(lr, steps, last)`, `warmup(steps, rate)`.
const RATES: [Callee<Rate, Vec<Mistake>>; 3] =
    [("step", STEP, step), ("cosine", COSINE, cosine), ("warmup", WARMUP, warmup)];

fn step(arguments: &Arguments) -> Result<Rate, Vec<Mistake>> {
    let at_least_zero = |name| arguments.real_in(name, 0.0, f64::MAX);
    let rates = both(at_least_zero("lr"), at_least_zero("factor"));
    let ((initial, factor), every) = both(rates, arguments.size("every"))?;
    Ok(Rate::Step { initial, factor, every })
}

fn cosine(arguments: &Arguments) -> Result<Rate, Vec<Mistake>> {
    let at_least_zero = |name| arguments.real_in(name, 0.0, f64::MAX);
    let rates = both(at_least_zero("lr"), at_least_zero("last"));
    let ((initial, last), steps) = both(rates, arguments.size("steps"))?;
    Ok(Rate::Cosine { initial, steps, last })
}

fn warmup(arguments: &Arguments) -> Result<Rate, Vec<Mistake>> {
    let steps = arguments.whole_in("steps", (0, STEPS_MAX));
    let (after, steps) = both(learning_rate(arguments, "rate"), steps)?;
    Ok(Rate::Warmup { steps, after: Box::new(after) })
}

/// An argument that is a number or a rate.
pub(super) fn learning_rate(
    arguments: &Arguments,
    name: &'static str,
) -> Result<Rate, Mistake> {
    match arguments.value(name) {
        Value::Rate(rate) => Ok(rate),
        _ => arguments.real_in(name, 0.0, f64::MAX).map(Rate::Constant),
    }
}

/// A call with constant arguments: its name, what it takes, and what it makes of that.
pub(super) type Callee<T, E = Mistake> =
    (&'static str, &'static [Formal], fn(&Arguments) -> Result<T, E>);

/// What a call makes, which is one of these.
pub(super) fn one_of<T, E: Into<Vec<Mistake>>>(
    what: &str,
    known: &[Callee<T, E>],
    (name, given): (&Name, &[Argument]),
    span: Span,
    report: &mut Report,
) -> Known<T> {
    let found = known.iter().find(|(callee, ..)| *callee == name.text);
    let Some((callee, formals, make)) = found else {
        let names = known.iter().map(|(callee, ..)| *callee);
        return Err(report.error(name.span, near::unknown(what, &name.text, names)));
    };
    made_of_all(callee, formals, given, span, report, |all| make(all).map_err(E::into))
}

/// What a call makes of its constant arguments.
pub(super) fn made<T>(
    callee: &'static str,
    formals: &'static [Formal],
    given: &[Argument],
    span: Span,
    report: &mut Report,
    make: impl FnOnce(&Arguments) -> Result<T, Mistake>,
) -> Known<T> {
    made_of_all(callee, formals, given, span, report, |all| Ok(make(all)?))
}

/// The same of a call that says all that is wrong with them.
fn made_of_all<T>(
    callee: &'static str,
    formals: &'static [Formal],
    given: &[Argument],
    span: Span,
    report: &mut Report,
    make: impl FnOnce(&Arguments) -> Result<T, Vec<Mistake>>,
) -> Known<T> {
    let arguments = bind(callee, formals, given, span, report)?;
    make(&arguments).map_err(|wrong| {
        for mistake in wrong {
            report.error(place(&mistake, formals, given, span), mistake);
        }
        report.earlier()
    })
}

/// Binds the constant arguments of a call.
fn bind(
    callee: &'static str,
    formals: &'static [Formal],
    given: &[Argument],
    span: Span,
    report: &mut Report,
) -> Known<Arguments> {
    let slots: Vec<Slot<'_>> = formals.iter().map(Formal::slot).collect();
    let taken = assigned(callee, &slots, given, span, report);
    let values: Vec<Known<Value>> =
        given.iter().map(|argument| constant(&argument.value, report)).collect();
    let values = values.into_iter().collect::<Known<Vec<Value>>>();
    let (taken, values) = (taken?, values?);
    Ok(Arguments::placed(callee, formals, &taken, &values))
}

/// Which given argument each one of the callee is; all that does not fit is reported.
pub(super) fn assigned(
    callee: &str,
    slots: &[Slot<'_>],
    given: &[Argument],
    span: Span,
    report: &mut Report,
) -> Known<Vec<Option<usize>>> {
    let names: Vec<Option<&str>> = given.iter().map(name_of).collect();
    assign(callee, slots, &names).map_err(|misfits| {
        for Misfit { given: index, mistake } in misfits {
            let place = index.map_or(span, |index| place_of(&given[index]));
            report.error(place, mistake);
        }
        report.earlier()
    })
}

/// The name that an argument is given by.
pub(super) fn name_of(argument: &Argument) -> Option<&str> {
    argument.name.as_ref().map(|name| name.text.as_str())
}

/// Where an argument stands: at its name, when it has one.
pub(super) fn place_of(argument: &Argument) -> Span {
    argument.name.as_ref().map_or(argument.value.span, |name| name.span)
}

/// The place of the argument that a mistake names, else the whole call.
pub(super) fn place(
    mistake: &Mistake,
    formals: &[Formal],
    given: &[Argument],
    span: Span,
) -> Span {
    let Some(wanted) = mistake.argument else { return span };
    let position = formals.iter().position(|formal| formal.name == wanted);
    let named = given.iter().find(|argument| name_of(argument) == Some(wanted));
    let placed = position.and_then(|index| given.get(index));
    let placed = placed.filter(|argument| argument.name.is_none());
    named.or(placed).map_or(span, |argument| argument.value.span)
}
