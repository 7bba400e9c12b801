//! The element types that kernels compute in.

use roundelay_schedule::Float;
use std::{fmt, iter, ops};

/// A real element type: f32, or f64 for tests.
///
/// Elementary functions are those of `libm`, so that a result does not depend on the system.
pub trait Real:
    Copy
    + Default
    + PartialOrd
    + Send
    + Sync
    + fmt::Debug
    + ops::Add<Output = Self>
    + ops::Sub<Output = Self>
    + ops::Mul<Output = Self>
    + ops::Div<Output = Self>
    + ops::Neg<Output = Self>
    + ops::AddAssign
    + ops::SubAssign
    + ops::MulAssign
    + iter::Sum
    + 'static
{
    /// The type as data.
    const DTYPE: Float;
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// −∞.
    const NEGATIVE_INFINITY: Self;

    /// The nearest value.
    fn of(value: f64) -> Self;
    /// The same value.
    fn widen(self) -> f64;
    /// The greater of two numbers.
    fn greater(self, other: Self) -> Self;
    /// √x.
    fn sqrt(self) -> Self;
    /// e^x.
    fn exp(self) -> Self;
    /// ln x.
    fn ln(self) -> Self;
    /// The error function.
    fn erf(self) -> Self;
}

macro_rules! implement_real {
    ($type:ident, $exp:path, $ln:path, $erf:path) => {
        impl Real for $type {
            const DTYPE: Float = implement_real!(dtype $type);
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const NEGATIVE_INFINITY: Self = $type::NEG_INFINITY;

            #[inline(always)]
            fn of(value: f64) -> Self {
                value as $type
            }
            #[inline(always)]
            fn widen(self) -> f64 {
                f64::from(self)
            }
            #[inline(always)]
            fn greater(self, other: Self) -> Self {
                if self > other { self } else { other }
            }
            #[inline(always)]
            fn sqrt(self) -> Self {
                $type::sqrt(self)
            }
            fn exp(self) -> Self {
                $exp(self)
            }
            fn ln(self) -> Self {
                $ln(self)
            }
            fn erf(self) -> Self {
                $erf(self)
            }
        }
    };
    (dtype f32) => {
        Float::F32
    };
    (dtype f64) => {
        Float::F64
    };
}

implement_real!(f32, libm::expf, libm::logf, libm::erff);
implement_real!(f64, libm::exp, libm::log, libm::erf);
