//! The element types that kernels compute in.

use crate::{
    function,
    kernel::Launch,
    line::{Lanes, Line},
    product::Buffers,
    registers::Registers,
};
use roundelay_schedule::Float;
use std::{cell::RefCell, fmt, iter, ops};

/// A real element type: f32, or f64 for tests.
///
/// Elementary functions are those of `libm`, so that a result does not depend on the system.
pub trait Real:
    Launch
    + Copy
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
    /// The least number that is finite.
    const LOWEST: Self;
    /// 64 bytes of numbers.
    type Line: Lanes<Self> + Registers<Self>;
    /// A line in 512-bit registers.
    #[cfg(target_arch = "x86_64")]
    type Wide: Registers<Self>;
    /// A line in 256-bit registers.
    #[cfg(target_arch = "x86_64")]
    type Half: Registers<Self>;

    /// The nearest value.
    fn of(value: f64) -> Self;
    /// The same value.
    fn widen(self) -> f64;
    /// The greater of two numbers; the second one where either is none.
    fn greater(self, other: Self) -> Self;
    /// The greater of two numbers; none where either is none.
    fn greater_or_none(self, other: Self) -> Self;
    /// max(x, 0), of either zero +0; no number of what is none.
    fn rectified(self) -> Self;
    /// Whether it is greater than another one; what is no number is greater than all that are.
    fn exceeds(self, other: Self) -> bool;
    /// self · b + c, rounded once.
    fn fused(self, b: Self, c: Self) -> Self;
    /// √x.
    fn sqrt(self) -> Self;
    /// e^x.
    fn exp(self) -> Self;
    /// ln x.
    fn ln(self) -> Self;
    /// The error function.
    fn erf(self) -> Self;
    /// The hyperbolic tangent.
    fn tanh(self) -> Self;
    /// e^x that vectorises in f32, there within 3e-7 of its value.
    fn quick_exp(self) -> Self;
    /// tanh x that vectorises in f32, there within 3e-7 of its value.
    fn quick_tanh(self) -> Self;
    /// Distribution Φ(x) and density φ(x) of the standard normal, in f32 within 1e-6 of their
    /// values.
    fn normal(self) -> (Self, Self);
    /// Lends this thread's packing buffers; not to be nested.
    fn with_buffers<T>(work: impl FnOnce(&mut Buffers<Self>) -> T) -> T;
}

macro_rules! implement_real {
    (
        $type:ident, $lanes:literal, $wide:ident, $half:ident,
        $exp:path, $ln:path, $erf:path, $tanh:path
    ) => {
        impl Real for $type {
            const DTYPE: Float = implement_real!(dtype $type);
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const NEGATIVE_INFINITY: Self = $type::NEG_INFINITY;
            const LOWEST: Self = $type::MIN;
            type Line = Line<$type, $lanes>;
            #[cfg(target_arch = "x86_64")]
            type Wide = [std::arch::x86_64::$wide; 1];
            #[cfg(target_arch = "x86_64")]
            type Half = [std::arch::x86_64::$half; 2];

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
            fn greater_or_none(self, other: Self) -> Self {
                if self.is_nan() { self } else { self.greater(other) }
            }
            #[inline(always)]
            fn rectified(self) -> Self {
                if self <= 0.0 { 0.0 } else { self }
            }
            #[inline(always)]
            fn exceeds(self, other: Self) -> bool {
                (self > other || self.is_nan()) && !other.is_nan()
            }
            #[inline(always)]
            fn fused(self, b: Self, c: Self) -> Self {
                self.mul_add(b, c)
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
            fn tanh(self) -> Self {
                $tanh(self)
            }
            #[inline(always)]
            fn quick_exp(self) -> Self {
                implement_real!(quick_exp $type, self)
            }
            #[inline(always)]
            fn quick_tanh(self) -> Self {
                implement_real!(quick_tanh $type, self)
            }
            #[inline(always)]
            fn normal(self) -> (Self, Self) {
                implement_real!(normal $type, self)
            }
            fn with_buffers<T>(work: impl FnOnce(&mut Buffers<Self>) -> T) -> T {
                thread_local! {
                    static BUFFERS: RefCell<Buffers<$type>> =
                        const { RefCell::new(Buffers::new()) };
                }
                BUFFERS.with_borrow_mut(work)
            }
        }
    };
    (quick_exp f32, $x:expr) => { function::exp($x) };
    (quick_exp f64, $x:expr) => { libm::exp($x) };
    (quick_tanh f32, $x:expr) => { function::tanh($x) };
    (quick_tanh f64, $x:expr) => { libm::tanh($x) };
    (normal f32, $x:expr) => { function::normal($x) };
    (normal f64, $x:expr) => { function::wide_normal($x) };
    (dtype f32) => {
        Float::F32
    };
    (dtype f64) => {
        Float::F64
    };
}

implement_real!(f32, 16, __m512, __m256, libm::expf, libm::logf, libm::erff, libm::tanhf);
implement_real!(f64, 8, __m512d, __m256d, libm::exp, libm::log, libm::erf, libm::tanh);
