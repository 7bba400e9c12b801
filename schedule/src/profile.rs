//! What kernel calls and copies take on one machine: `profile` writes it, the planner reads it.

mod file;

pub use file::{ProfileMistake, ProfileMistakes, read_profile, write_profile};

use crate::{
    Attribute, Bytes, BytesPerSecond, Call, Element, Float, Flops, Fnv, Input, Nanos,
    Operand,
};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Version of the file.
pub const PROFILE_FORMAT: u32 = 1;

/// Measured times of one machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Version of the file.
    pub format: u32,
    /// Name of the processor.
    pub processor: String,
    /// Threads of a device.
    pub threads: u32,
    /// Element type of real arrays.
    pub dtype: Float,
    /// What a launch takes besides its kernel calls.
    pub launch: Nanos,
    /// From the end of what a queue waits for on another queue until it goes on.
    pub wake: Nanos,
    /// What copies from one device to another take.
    pub copies: Copies,
    /// Number of calls, so that a file that was cut off is noticed.
    pub rows: usize,
    /// Times of kernel calls and feeds, by text, then by busy devices; no two with the same.
    pub calls: Vec<CallTime>,
}

/// Copies between devices, and the line that fits them: latency + bytes / bandwidth.
///
/// The line makes the sum of (predicted / measured − 1)² least, so that a small copy counts as
/// much as a large one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Copies {
    /// Time of a copy of nothing.
    pub latency: Nanos,
    /// Rate of one copy.
    pub bandwidth: BytesPerSecond,
    /// Root of the mean of (predicted / measured − 1)².
    pub residual: f64,
    /// The copies that were timed.
    pub points: Vec<CopyTime>,
}

/// A copy that was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CopyTime {
    /// Size of the copy.
    pub bytes: Bytes,
    /// Usual time of one copy.
    pub nanos: Nanos,
}

/// A kernel call that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallTime {
    /// Devices that computed at the time.
    pub busy: u32,
    /// Mean over the places in routines where the call stands of its usual time there.
    pub nanos: Nanos,
    /// Number of times it was timed.
    pub samples: u64,
    /// Upper minus lower quartile over the median, as a mean over places.
    pub spread: f64,
    /// Floating-point operations of the call.
    pub flops: Flops,
    /// Bytes that the call reads and writes.
    pub bytes: Bytes,
    /// The call as [`Call::text`] spells it.
    pub call: String,
}

impl Profile {
    /// Sixteen hexadecimal digits that change with every number of the table: the hash of its text.
    pub fn digest(&self) -> String {
        format!("{:016x}", Fnv::default().with(write_profile(self).as_bytes()).value())
    }
}

impl CallTime {
    /// Name of the kernel.
    pub fn kernel(&self) -> &str {
        kernel_of(&self.call)
    }
}

/// What filling an input of a micro-batch is called in a table: `feed(tokens) i32[8,128]`.
pub fn feed_text(input: &Input) -> String {
    let operand = spelled(input.element, &input.shape);
    format!("feed({}) {operand}", input.name)
}

/// An array in a call's text.
pub(crate) fn spelled(element: Element, shape: &[u64]) -> String {
    let element = match element {
        Element::Real => "real",
        Element::Wide => "wide",
        Element::I32 => "i32",
    };
    let extents: Vec<String> = shape.iter().map(ToString::to_string).collect();
    format!("{element}[{}]", extents.join(","))
}

/// The kernel's name at the start of a call's text.
pub fn kernel_of(text: &str) -> &str {
    text.split(['(', ' ']).next().unwrap_or(text)
}

impl Call {
    /// Kernel, attributes, element types and shapes, without places in memory:
    /// `matmul(transpose_b = true) real[8,4] real[2,4] real[8,2]`.
    pub fn text(&self) -> String {
        let mut text = self.kernel.to_string();
        for (index, (name, value)) in self.attributes.iter().enumerate() {
            let lead = if index == 0 { "(" } else { ", " };
            text += &format!("{lead}{name} = {}", Spelled(value));
        }
        text += if self.attributes.is_empty() { "" } else { ")" };
        for operand in &self.operands {
            text += &format!(" {}", spelled(operand.element, &operand.shape));
        }
        text
    }

    /// Whether both differ at most in places: then both have one [text](Self::text), but for the sign
    /// of zero.
    pub fn is_like(&self, other: &Self) -> bool {
        let is_like = |(one, other): (&Operand, &Operand)| {
            one.element == other.element && one.shape == other.shape
        };
        self.kernel == other.kernel
            && self.operands.len() == other.operands.len()
            && self.attributes == other.attributes
            && self.operands.iter().zip(&other.operands).all(is_like)
    }
}

/// An attribute in a call's text.
struct Spelled<'a>(&'a Attribute);

impl fmt::Display for Spelled<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Attribute::Flag(flag) => write!(f, "{flag}"),
            Attribute::Integer(number) => write!(f, "{number}"),
            Attribute::Real(number) => write!(f, "{number:?}"),
            Attribute::Integers(numbers) => {
                let numbers: Vec<String> =
                    numbers.iter().map(ToString::to_string).collect();
                write!(f, "[{}]", numbers.join(","))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Operand;

    #[test]
    fn a_call_is_spelled_without_places() {
        let operand = |element, shape: &[u64], offset| Operand {
            argument: 3,
            offset: Bytes(offset),
            element,
            shape: shape.into(),
        };
        let attributes = [
            ("heads", Attribute::Integer(2)),
            ("rate", Attribute::Real(0.1)),
            ("spared", Attribute::Integers(vec![1, 2])),
            ("flag", Attribute::Flag(true)),
        ];
        let mut call = Call {
            kernel: "attention".into(),
            attributes: attributes
                .map(|(name, value)| (name.into(), value))
                .into_iter()
                .collect(),
            operands: vec![
                operand(Element::Real, &[4, 2], 64),
                operand(Element::I32, &[4], 0),
            ],
        };
        let text = "attention(flag = true, heads = 2, rate = 0.1, spared = [1,2]) real[4,2] i32[4]";
        assert_eq!(call.text(), text);
        assert_eq!(kernel_of(text), "attention");
        let changes: [fn(&mut Call); 7] = [
            |call| call.kernel = "attentive".into(),
            |call| call.operands[0].offset = Bytes(0),
            |call| call.operands[1].argument = 0,
            |call| call.operands[0].shape = [2, 4].into(),
            |call| call.operands[1].element = Element::Real,
            |call| drop(call.operands.pop()),
            |call| drop(call.attributes.insert("heads".into(), Attribute::Integer(4))),
        ];
        for change in changes {
            let mut other = call.clone();
            change(&mut other);
            assert_eq!(call.is_like(&other), other.text() == text);
        }
        call.attributes.clear();
        assert_eq!(call.text(), "attention real[4,2] i32[4]");
        assert_eq!(kernel_of(&call.text()), "attention");
    }
}
