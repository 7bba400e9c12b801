//! Values of expressions: numbers, extents, tensors, and arithmetic on those that are no tensors.

use crate::{
    Code, Dimension, Extent, Mistake, Quantity, Source, limit,
    quantity::{LARGEST, rounded},
    syntax::Operator,
};
use roundelay_schedule::{Element, Rate, Reading};
use std::fmt;

/// What an expression is worth.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A whole number.
    Integer(i64),
    /// A real number.
    Real(f64),
    /// `true` or `false`.
    Truth(bool),
    /// A multiple of the number of examples.
    Examples(u64),
    /// A number with a unit.
    Quantity(Quantity),
    /// A text.
    Text(String),
    /// A list in brackets.
    List(Vec<Value>),
    /// A learning rate as a function of the update count.
    Rate(Rate),
    /// What a node computes, a parameter, or an input.
    Tensor(TensorValue),
    /// What `metric` takes.
    Metric(Measure),
}

/// A number of every micro-batch, and what is said about many of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Measure {
    /// The path of bindings to it.
    pub name: String,
    /// The number.
    pub tensor: TensorValue,
    /// What is said about many.
    pub reading: Reading,
}

/// Something that operators read.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorValue {
    /// Where it comes from.
    pub source: Source,
    /// Element type.
    pub element: Element,
    /// Extents.
    pub shape: Vec<Extent>,
}

impl Extent {
    /// A fixed extent.
    pub fn fixed(size: u64) -> Self {
        Self { size, per_example: false }
    }
    /// The number of examples in a micro-batch.
    pub fn batch() -> Self {
        Self { size: 1, per_example: true }
    }
}

impl Value {
    /// What messages call it.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Value::Integer(_) => "a whole number",
            Value::Real(_) => "a real number",
            Value::Truth(_) => "a truth value",
            Value::Examples(_) => "a multiple of `batch`",
            Value::Quantity(quantity) => match quantity.dimension {
                Dimension::Memory => "a size in bytes",
                Dimension::ByteRate => "a data rate",
                Dimension::FlopRate => "an arithmetic rate",
                Dimension::Time => "a time",
                Dimension::Price => "a price",
            },
            Value::Text(_) => "a text",
            Value::List(_) => "a list",
            Value::Rate(_) => "a learning rate",
            Value::Tensor(_) => "a tensor",
            Value::Metric(_) => "a metric",
        }
    }

    /// The number, when it is one without unit.
    pub(crate) fn real(&self) -> Option<f64> {
        match self {
            Value::Integer(number) => Some(*number as f64),
            Value::Real(number) => Some(*number),
            Value::Truth(_)
            | Value::Examples(_)
            | Value::Quantity(_)
            | Value::Text(_)
            | Value::List(_)
            | Value::Rate(_)
            | Value::Tensor(_)
            | Value::Metric(_) => None,
        }
    }

    /// The extent that it stands for in a shape.
    pub(crate) fn extent(&self) -> Result<Extent, Mistake> {
        let extent = match self {
            Value::Integer(size) if *size > 0 => Extent::fixed(size.unsigned_abs()),
            Value::Examples(size) => Extent { size: *size, per_example: true },
            Value::Integer(size) => {
                let message = format!("expected an extent of at least 1, found {size}");
                return Err(Mistake::new(Code::Value, message));
            }
            other => {
                let message = format!("expected an extent, found {}", other.kind());
                let hint = "extents are whole numbers and multiples of `batch`";
                return Err(Mistake::new(Code::Type, message).hint(hint));
            }
        };
        match extent.size <= limit::ELEMENTS {
            true => Ok(extent),
            false => Err(too_many_elements()),
        }
    }
}

/// The declared size of a tensor is exceeded.
pub(crate) fn too_many_elements() -> Mistake {
    let message = format!("a tensor has at most {} elements", limit::ELEMENTS);
    Mistake::new(Code::Limit, message)
}

/// `a OP b` for values that are no tensors.
pub(crate) fn arithmetic(
    operator: Operator,
    one: &Value,
    other: &Value,
) -> Result<Value, Mistake> {
    use Value::{Examples, Integer, Quantity};
    match (one, other) {
        (Integer(a), Integer(b)) => integers(operator, *a, *b),
        (Examples(a), Integer(b)) | (Integer(b), Examples(a))
            if operator == Operator::Multiply =>
        {
            multiple(*a, *b).map(Examples)
        }
        (Quantity(a), _) => match other {
            Quantity(b) if a.dimension == b.dimension => sum(operator, *a, *b),
            _ => scaled(operator, *a, other),
        },
        (_, Quantity(b)) if operator == Operator::Multiply => scaled(operator, *b, one),
        _ => match (one.real(), other.real()) {
            (Some(a), Some(b)) => reals(operator, a, b),
            _ => Err(unfit(operator, one, other)),
        },
    }
}

/// `-a` for a value that is no tensor.
pub(crate) fn negative(value: &Value) -> Result<Value, Mistake> {
    match value {
        Value::Integer(number) => {
            number.checked_neg().map(Value::Integer).ok_or_else(overflow)
        }
        Value::Real(number) => Ok(Value::Real(-number)),
        Value::Quantity(_) => Err(never_negative(value).hint("take the `-` away")),
        other => {
            let message = format!("expected a number after `-`, found {}", other.kind());
            Err(Mistake::new(Code::Type, message))
        }
    }
}

/// Whole numbers stay whole when a quotient is exact.
fn integers(operator: Operator, a: i64, b: i64) -> Result<Value, Mistake> {
    let whole = match operator {
        Operator::Add => a.checked_add(b),
        Operator::Subtract => a.checked_sub(b),
        Operator::Multiply => a.checked_mul(b),
        Operator::Divide => match a.checked_rem(b) {
            Some(0) => a.checked_div(b),
            _ => return reals(operator, a as f64, b as f64),
        },
    };
    whole.map(Value::Integer).ok_or_else(overflow)
}

fn reals(operator: Operator, a: f64, b: f64) -> Result<Value, Mistake> {
    let result = match operator {
        Operator::Add => a + b,
        Operator::Subtract => a - b,
        Operator::Multiply => a * b,
        Operator::Divide => a / b,
    };
    match result.is_finite() {
        true => Ok(Value::Real(result)),
        false if b == 0.0 => Err(zero_divisor()),
        false => Err(overflow()),
    }
}

fn sum(operator: Operator, a: Quantity, b: Quantity) -> Result<Value, Mistake> {
    let amount = match operator {
        Operator::Add => a.amount.checked_add(b.amount),
        Operator::Subtract => {
            let less = a.amount.checked_sub(b.amount);
            Some(less.ok_or_else(|| never_negative(&Value::Quantity(a)))?)
        }
        Operator::Divide => {
            return reals(operator, a.amount as f64, b.amount as f64);
        }
        Operator::Multiply => {
            return Err(unfit(operator, &Value::Quantity(a), &Value::Quantity(b)));
        }
    };
    let amount = amount.filter(|amount| *amount < LARGEST);
    amount.map(|amount| Value::Quantity(Quantity { amount, ..a })).ok_or_else(overflow)
}

fn scaled(operator: Operator, quantity: Quantity, by: &Value) -> Result<Value, Mistake> {
    let value = Value::Quantity(quantity);
    let amount = match (operator, by.real()) {
        (Operator::Multiply | Operator::Divide, Some(by)) if by < 0.0 => {
            return Err(never_negative(&value));
        }
        (Operator::Divide, Some(0.0)) => return Err(zero_divisor()),
        (Operator::Multiply, Some(by)) => quantity.amount as f64 * by,
        (Operator::Divide, Some(by)) => quantity.amount as f64 / by,
        (Operator::Multiply | Operator::Divide, None)
        | (Operator::Add | Operator::Subtract, _) => {
            return Err(unfit(operator, &value, by));
        }
    };
    let amount = rounded(amount).ok_or_else(overflow)?;
    Ok(Value::Quantity(Quantity { amount, ..quantity }))
}

/// `batch * size * by`.
fn multiple(size: u64, by: i64) -> Result<u64, Mistake> {
    match u64::try_from(by) {
        Ok(by @ 1..) => size.checked_mul(by).ok_or_else(overflow),
        Ok(0) | Err(_) => {
            let message = format!("`batch` is multiplied by at least 1, found {by}");
            Err(Mistake::new(Code::Value, message))
        }
    }
}

fn unfit(operator: Operator, one: &Value, other: &Value) -> Mistake {
    let [one, other] = [one.kind(), other.kind()];
    Mistake::new(Code::Type, format!("`{operator}` does not fit {one} and {other}"))
}

pub(crate) fn overflow() -> Mistake {
    Mistake::new(Code::Value, "the result is too large for a number")
}

pub(crate) fn zero_divisor() -> Mistake {
    Mistake::new(Code::Value, "division by zero")
}

fn never_negative(value: &Value) -> Mistake {
    Mistake::new(Code::Value, format!("{} is never negative", value.kind()))
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Operator::Add => "+",
            Operator::Subtract => "-",
            Operator::Multiply => "*",
            Operator::Divide => "/",
        })
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.per_example, self.size) {
            (true, 1) => f.write_str("batch"),
            (true, size) => write!(f, "{size} * batch"),
            (false, size) => write!(f, "{size}"),
        }
    }
}

/// A shape as a program spells it: `[batch, 128]`.
pub(crate) fn spelled(shape: &[Extent]) -> String {
    let extents: Vec<String> = shape.iter().map(Extent::to_string).collect();
    format!("[{}]", extents.join(", "))
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Value::Integer(number)
    }
}
impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Value::Real(number)
    }
}
impl From<bool> for Value {
    fn from(truth: bool) -> Self {
        Value::Truth(truth)
    }
}
impl From<Extent> for Value {
    fn from(extent: Extent) -> Self {
        match extent.per_example {
            true => Value::Examples(extent.size),
            false => Value::Integer(i64::try_from(extent.size).unwrap_or(i64::MAX)),
        }
    }
}
impl From<TensorValue> for Value {
    fn from(tensor: TensorValue) -> Self {
        Value::Tensor(tensor)
    }
}
impl From<&TensorValue> for Value {
    fn from(tensor: &TensorValue) -> Self {
        Value::Tensor(tensor.clone())
    }
}
