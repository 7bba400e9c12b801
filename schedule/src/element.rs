//! Element types: what parameters, activations and gradients are stored in, and what is kept
//! wider beside them.
//!
//! A training in 16 bits is mixed: parameters, activations and their gradients have 16 bits.
//! Losses, statistics, the optimizer's states and the master copy of the parameters, which is the
//! last of those states, have 32; so have the sums of parameter gradients where a program asks for
//! it. AdamW thus keeps 2 + 2 + 12 bytes per parameter, or 2 + 4 + 12.

use crate::spelled::held_as_text;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// Element type of real numbers, and how gradients are summed.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(into = "String", try_from = "String")]
pub enum Float {
    /// 32 bits.
    F32,
    /// 64 bits; for tests.
    F64,
    /// 16 bits with the exponent of 32, in mixed precision.
    Bf16(GradientSums),
    /// IEEE 16 bits, in mixed precision.
    F16(GradientSums),
}

/// What sums of parameter gradients are kept in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GradientSums {
    /// The type of the parameters.
    Same,
    /// 32 bits.
    F32,
}

/// A type that machines without 16-bit arithmetic compute in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Native {
    /// 32 bits.
    F32,
    /// 64 bits.
    F64,
}

/// Element type of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Element {
    /// The job's real type.
    Real,
    /// Real numbers of 32 bits in a job of 16.
    Wide,
    /// 32-bit integers: tokens, classes.
    I32,
}

/// The spelling of a type that no job has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an element type; there are f32, f64, bf16, f16, bf16+f32, f16+f32")]
pub struct NoFloat(String);

impl Float {
    /// All types, in the order in which messages list them.
    pub const ALL: [Float; 6] = [
        Float::F32,
        Float::F64,
        Float::Bf16(GradientSums::Same),
        Float::F16(GradientSums::Same),
        Float::Bf16(GradientSums::F32),
        Float::F16(GradientSums::F32),
    ];

    /// Size of a parameter or an activation in bytes.
    pub fn size(self) -> u64 {
        match self {
            Float::F32 => 4,
            Float::F64 => 8,
            Float::Bf16(_) | Float::F16(_) => 2,
        }
    }

    /// Size of a statistic, a loss or a state of the optimizer in bytes.
    pub fn wide_size(self) -> u64 {
        self.size().max(4)
    }

    /// What kernels compute with in place of a number: those of 16 bits compute in 32.
    pub fn computed(self, number: f64) -> f64 {
        match self {
            Float::F64 => number,
            Float::F32 | Float::Bf16(_) | Float::F16(_) => f64::from(number as f32),
        }
    }

    /// The element of sums of parameter gradients.
    pub fn gradient(self) -> Element {
        match self {
            Float::F32 | Float::F64 => Element::Real,
            Float::Bf16(sums) | Float::F16(sums) => match sums {
                GradientSums::Same => Element::Real,
                GradientSums::F32 => Element::Wide,
            },
        }
    }

    /// Copies of the parameters that the optimizer keeps: one in mixed precision.
    pub fn masters(self) -> u64 {
        match self {
            Float::F32 | Float::F64 => 0,
            Float::Bf16(_) | Float::F16(_) => 1,
        }
    }

    /// How an element is spelled: where nothing is narrow, nothing is wide.
    pub fn spelled(self, element: Element) -> Element {
        match (self, element) {
            (Float::F32 | Float::F64, Element::Wide) => Element::Real,
            (Float::F32 | Float::F64 | Float::Bf16(_) | Float::F16(_), element) => {
                element
            }
        }
    }

    /// The type for machines without 16-bit arithmetic; none where the job needs that.
    pub fn native(self) -> Option<Native> {
        match self {
            Float::F32 => Some(Native::F32),
            Float::F64 => Some(Native::F64),
            Float::Bf16(_) | Float::F16(_) => None,
        }
    }
}

impl Element {
    /// Size of one element in bytes.
    pub fn size(self, dtype: Float) -> u64 {
        match self {
            Element::Real => dtype.size(),
            Element::Wide => dtype.wide_size(),
            Element::I32 => 4,
        }
    }
}

impl fmt::Display for Float {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Float::F32 => "f32",
            Float::F64 => "f64",
            Float::Bf16(GradientSums::Same) => "bf16",
            Float::F16(GradientSums::Same) => "f16",
            Float::Bf16(GradientSums::F32) => "bf16+f32",
            Float::F16(GradientSums::F32) => "f16+f32",
        })
    }
}

impl FromStr for Float {
    type Err = NoFloat;
    fn from_str(text: &str) -> Result<Self, NoFloat> {
        let found = Self::ALL.into_iter().find(|float| float.to_string() == text);
        found.ok_or_else(|| NoFloat(text.to_owned()))
    }
}

held_as_text!(Float);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_are_read_back() {
        for float in Float::ALL {
            assert_eq!(float.to_string().parse(), Ok(float));
        }
        assert!("f8".parse::<Float>().is_err());
    }

    #[test]
    fn mixed_precision_keeps_sums_and_masters_in_32_bits() {
        let adamw = 2;
        let bytes = |float: Float| {
            let states = (adamw + float.masters()) * float.wide_size();
            float.size() + float.gradient().size(float) + states
        };
        assert_eq!(Float::ALL.map(bytes), [16, 32, 16, 16, 18, 18]);
        for float in [Float::F32, Float::F64] {
            assert_eq!(float.spelled(Element::Wide), Element::Real);
        }
    }
}
