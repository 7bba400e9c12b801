//! Calls, their memory, and one well-formed random call of every kernel.
#![allow(dead_code, reason = "every test file uses another part")]
#![allow(unsafe_code, reason = "a kernel is run on addresses")]

pub(crate) mod images;
pub(crate) mod norms;
pub(crate) mod parts;
pub(crate) mod sample;

use roundelay_kernels::{Context, Kernel, Mode, Real};
use roundelay_schedule::{Attribute, Bytes, Call, Element, Operand};
use std::collections::BTreeMap;

/// A call under construction.
pub(crate) fn call(kernel: &str) -> Call {
    Call { kernel: kernel.to_owned(), attributes: BTreeMap::new(), operands: Vec::new() }
}

/// Adds to a call.
pub(crate) trait Build: Sized {
    fn with(self, name: &str, value: Attribute) -> Self;
    fn operand(self, element: Element, shape: &[u64]) -> Self;
    fn real(self, shape: &[u64]) -> Self {
        self.operand(Element::Real, shape)
    }
    fn reals(self, shapes: &[&[u64]]) -> Self {
        shapes.iter().fold(self, |call, shape| call.real(shape))
    }
    fn integers(self, shape: &[u64]) -> Self {
        self.operand(Element::I32, shape)
    }
    fn flag(self, name: &str, value: bool) -> Self {
        self.with(name, Attribute::Flag(value))
    }
    fn number(self, name: &str, value: f64) -> Self {
        self.with(name, Attribute::Real(value))
    }
    fn integer(self, name: &str, value: i64) -> Self {
        self.with(name, Attribute::Integer(value))
    }
}

impl Build for Call {
    fn with(mut self, name: &str, value: Attribute) -> Self {
        self.attributes.insert(name.to_owned(), value);
        self
    }
    fn operand(mut self, element: Element, shape: &[u64]) -> Self {
        let argument = self.operands.len() as u32;
        let shape = shape.to_vec();
        self.operands.push(Operand { argument, offset: Bytes(0), element, shape });
        self
    }
}

/// The contents of one operand.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Array<R> {
    Real(Vec<R>),
    Integer(Vec<i32>),
}

impl<R: Real> Array<R> {
    pub(crate) fn values(&self) -> &[R] {
        match self {
            Array::Real(values) => values,
            Array::Integer(_) => panic!("an operand of whole numbers has no real values"),
        }
    }
    pub(crate) fn pointer(&mut self) -> *mut u8 {
        match self {
            Array::Real(values) => values.as_mut_ptr().cast(),
            Array::Integer(values) => values.as_mut_ptr().cast(),
        }
    }
}

/// Which body of a kernel runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    Fast,
    Plain,
}

pub(crate) const CONTEXT: Context = Context {
    step: 3,
    micro_batch: 1,
    seed: 11,
    mode: Mode::Training,
    rate: 0.05,
    slice_offset: 0,
    part: 0,
    threads: 1,
};

/// Runs a call on its own memory.
pub(crate) fn run<R: Real>(
    call: &Call,
    arrays: &mut [Array<R>],
    body: Body,
    context: &Context,
) {
    let kernel = Kernel::parse(call).expect("the call is well formed");
    let pointers: Vec<*mut u8> = arrays.iter_mut().map(Array::pointer).collect();
    run_at::<R>(&kernel, &pointers, body, context);
}

/// Runs a call on addresses of arrays that have the right lengths.
pub(crate) fn run_at<R: Real>(
    kernel: &Kernel,
    pointers: &[*mut u8],
    body: Body,
    context: &Context,
) {
    // SAFETY: the callers pass vectors of the operands' lengths, which do not overlap.
    match body {
        Body::Fast => unsafe { kernel.run::<R>(pointers, context) },
        Body::Plain => unsafe { kernel.run_plain::<R>(pointers, context) },
    }
}

/// Real arrays of f64, the plain body, all operands back.
pub(crate) fn evaluate(call: &Call, arrays: Vec<Array<f64>>) -> Vec<Array<f64>> {
    let mut arrays = arrays;
    run(call, &mut arrays, Body::Plain, &CONTEXT);
    arrays
}
