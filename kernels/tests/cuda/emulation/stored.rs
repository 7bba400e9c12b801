//! Operands as device memory has them: numbers of 16, 32 or 64 bits, between canaries.

use crate::common::Array;
use roundelay_schedule::{Element, Float};

/// Bytes behind an operand that nobody may touch.
const CANARIES: usize = 64;
const CANARY: u8 = 0xa5;

/// Where an operand begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// Where 16 bytes can be moved at once.
    Aligned,
    /// One element further on.
    Unaligned,
}

/// One operand in memory.
pub(crate) struct Stored {
    memory: Vec<u128>,
    /// Bytes before it.
    first: usize,
    length: usize,
    element: Element,
    dtype: Float,
}

/// The nearest bf16, ties to even.
fn bf16(value: f64) -> u16 {
    let bits = (value as f32).to_bits();
    if value.is_nan() {
        return 0x7fc0;
    }
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

/// The value of an IEEE half.
pub(crate) fn half_value(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 0x3ff));
    let size = match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1.0 + fraction / 1024.0) * 2f64.powi(exponent - 15),
    };
    if bits >> 15 == 1 { -size } else { size }
}

/// The nearest half, ties to even: a whole number of the steps between halves of that exponent.
fn half(value: f64) -> u16 {
    let size = value.abs();
    let sign = u16::from(value.is_sign_negative()) << 15;
    if size.is_nan() || size >= 65520.0 {
        return sign | if size.is_nan() { 0x7e00 } else { 0x7c00 };
    }
    let exponent = ((size.to_bits() >> 52) as i32 - 1023).max(-14);
    let steps = (size * 2f64.powi(10 - exponent)).round_ties_even();
    // Of normal numbers the first step is 1024, and 2048 is where the next exponent begins.
    let first = ((exponent + 14) as u16) << 10;
    sign | (first + steps as u16)
}

fn bits(value: f64, element: Element, dtype: Float) -> u64 {
    match (element.size(dtype), dtype) {
        (2, Float::Bf16(_)) => bf16(value).into(),
        (2, _) => half(value).into(),
        (4, _) => (value as f32).to_bits().into(),
        _ => value.to_bits(),
    }
}

impl Stored {
    pub(crate) fn new(array: &Array<f64>, element: Element, dtype: Float) -> Self {
        let (length, words): (usize, Vec<u64>) = match array {
            Array::Real(values) => {
                (values.len(), values.iter().map(|x| bits(*x, element, dtype)).collect())
            }
            Array::Integer(values) => {
                (values.len(), values.iter().map(|x| u64::from(*x as u32)).collect())
            }
        };
        let size = element.size(dtype) as usize;
        let bytes = words.iter().flat_map(|word| word.to_ne_bytes()[..size].to_vec());
        let mut bytes: Vec<u8> = bytes.collect();
        bytes.resize((bytes.len() + CANARIES).next_multiple_of(16), CANARY);
        let memory = bytes.chunks(16).map(|x| u128::from_ne_bytes(x.try_into().unwrap()));
        Self { memory: memory.collect(), first: 0, length, element, dtype }
    }
    /// The same, begun elsewhere.
    pub(crate) fn placed(mut self, placement: Placement) -> Self {
        if placement == Placement::Unaligned {
            let mut bytes = self.bytes();
            bytes.rotate_right(self.size());
            self.first = self.size();
            self.fill(&bytes);
        }
        self
    }
    pub(crate) fn pointer(&mut self) -> *mut u8 {
        self.memory.as_mut_ptr().cast::<u8>().wrapping_add(self.first)
    }
    fn fill(&mut self, bytes: &[u8]) {
        let words = bytes.chunks(16).map(|x| u128::from_ne_bytes(x.try_into().unwrap()));
        self.memory = words.collect();
    }
    fn size(&self) -> usize {
        self.element.size(self.dtype) as usize
    }
    fn bytes(&self) -> Vec<u8> {
        self.memory.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }
    /// Makes every number none.
    pub(crate) fn poison(&mut self) {
        let mut bytes = self.bytes();
        bytes[self.first..][..self.length * self.size()].fill(0xff);
        self.fill(&bytes);
    }
    /// What is stored; panics where somebody wrote before or behind it.
    pub(crate) fn values(&self) -> Vec<f64> {
        let (bytes, size) = (self.bytes(), self.size());
        let (before, rest) = bytes.split_at(self.first);
        let (own, behind) = rest.split_at(self.length * size);
        let others = before.iter().chain(behind);
        assert!(others.copied().all(|byte| byte == CANARY), "written outside");
        let value = |bytes: &[u8]| match (size, self.dtype) {
            (2, Float::Bf16(_)) => {
                let high = u16::from_ne_bytes(bytes.try_into().unwrap());
                f64::from(f32::from_bits(u32::from(high) << 16))
            }
            (2, _) => half_value(u16::from_ne_bytes(bytes.try_into().unwrap())),
            (4, _) => f64::from(f32::from_ne_bytes(bytes.try_into().unwrap())),
            _ => f64::from_ne_bytes(bytes.try_into().unwrap()),
        };
        own.chunks(size).map(value).collect()
    }
    /// The same numbers for the reference.
    pub(crate) fn array(&self, like: &Array<f64>) -> Array<f64> {
        match like {
            Array::Real(_) => Array::Real(self.values()),
            Array::Integer(values) => Array::Integer(values.clone()),
        }
    }
}

#[test]
fn halves_and_bfloats_round_to_even() {
    for bits in 0..0x7c00u16 {
        assert_eq!(half(half_value(bits)), bits);
        assert_eq!(half(-half_value(bits)), bits | 0x8000);
        let middle = (half_value(bits) + half_value(bits + 1)) / 2.0;
        if bits < 0x7bff {
            assert_eq!(half(middle) % 2, 0, "{middle}");
            assert_eq!(half(middle.next_down()), bits);
            assert_eq!(half(middle.next_up()), bits + 1);
        }
    }
    assert_eq!(bf16(1.0), 0x3f80);
    assert_eq!(bf16(1.0 + 2f64.powi(-8)), 0x3f80);
    assert_eq!(bf16(1.0 + 3.0 * 2f64.powi(-8)), 0x3f82);
}
