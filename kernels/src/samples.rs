//! One well-formed random call of every kernel, with contents: what references, fast kernels and
//! functions of devices are held to each other on.

mod calls;
mod images;
mod large;
mod mixes;
mod norms;
mod parts;
mod usual;

pub use calls::{Draw, contents, results, sample, sample_in};
pub use large::large;
pub use mixes::{Mix, mixed, tolerance};
pub use usual::usual;

use crate::Real;
use roundelay_schedule::{Attribute, Bytes, Call, Constants, Element, Operand};

/// A call under construction.
pub fn call(kernel: &str) -> Call {
    Call {
        kernel: kernel.to_owned().into(),
        attributes: Constants::default(),
        operands: Vec::new(),
    }
}

/// Adds to a call.
pub trait Build: Sized {
    /// An attribute.
    fn with(self, name: &str, value: Attribute) -> Self;
    /// An operand that is an argument of its own.
    fn operand(self, element: Element, shape: &[u64]) -> Self;
    /// A real operand.
    fn real(self, shape: &[u64]) -> Self {
        self.operand(Element::Real, shape)
    }
    /// Real operands.
    fn reals(self, shapes: &[&[u64]]) -> Self {
        shapes.iter().fold(self, |call, shape| call.real(shape))
    }
    /// An operand of whole numbers.
    fn integers(self, shape: &[u64]) -> Self {
        self.operand(Element::I32, shape)
    }
    /// A flag.
    fn flag(self, name: &str, value: bool) -> Self {
        self.with(name, Attribute::Flag(value))
    }
    /// A real attribute.
    fn number(self, name: &str, value: f64) -> Self {
        self.with(name, Attribute::Real(value))
    }
    /// A whole attribute.
    fn integer(self, name: &str, value: i64) -> Self {
        self.with(name, Attribute::Integer(value))
    }
}

impl Build for Call {
    fn with(mut self, name: &str, value: Attribute) -> Self {
        self.attributes.insert(name.to_owned().into(), value);
        self
    }
    fn operand(mut self, element: Element, shape: &[u64]) -> Self {
        let argument = self.operands.len() as u32;
        let shape = shape.into();
        self.operands.push(Operand { argument, offset: Bytes(0), element, shape });
        self
    }
}

/// The contents of one operand.
#[derive(Clone, Debug, PartialEq)]
pub enum Array<R> {
    /// Real numbers.
    Real(Vec<R>),
    /// Whole numbers.
    Integer(Vec<i32>),
}

impl<R: Real> Array<R> {
    /// Its real numbers.
    ///
    /// # Panics
    /// When it has whole ones.
    pub fn values(&self) -> &[R] {
        match self {
            Array::Real(values) => values,
            Array::Integer(_) => panic!("an operand of whole numbers has no real values"),
        }
    }
    /// Its numbers, whole ones too, as reals.
    pub fn numbers(&self) -> Vec<R> {
        match self {
            Array::Real(values) => values.clone(),
            Array::Integer(values) => {
                values.iter().map(|value| R::of(f64::from(*value))).collect()
            }
        }
    }
    /// Where its first number is.
    pub fn pointer(&mut self) -> *mut u8 {
        match self {
            Array::Real(values) => values.as_mut_ptr().cast(),
            Array::Integer(values) => values.as_mut_ptr().cast(),
        }
    }
}
