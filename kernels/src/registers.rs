//! A line of numbers in the registers of one instruction set.
//!
//! Loops over the lanes of a line become vector instructions where the compiler sees it. In the
//! tile of a product, where the speed of everything depends on it, they are named instead.

use crate::{
    Real,
    line::{Lanes, Line},
};
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64 as x86;

/// A line in registers.
#[allow(
    unsafe_code,
    reason = "an instruction that a processor lacks must not be reached"
)]
pub trait Registers<R: Real>: Copy {
    /// # Safety
    ///
    /// The processor has the instruction set, here and below.
    unsafe fn from_line(line: &R::Line) -> Self;
    /// # Safety
    ///
    /// As for [`Registers::from_line`].
    unsafe fn into_line(self) -> R::Line;
    /// self + a · b in every lane, rounded once.
    ///
    /// # Safety
    ///
    /// As for [`Registers::from_line`].
    unsafe fn plus_product(self, a: R, b: &R::Line) -> Self;
}

/// Asks for a line, which is read soon, in the second cache level. It changes no result.
#[inline(always)]
#[allow(unsafe_code, reason = "the instruction takes an address")]
pub(crate) fn fetch<R: Real>(line: &R::Line) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every processor of this family has the instruction, which cannot fault.
    unsafe {
        x86::_mm_prefetch::<{ x86::_MM_HINT_T1 }>(std::ptr::from_ref(line).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

#[allow(unsafe_code, reason = "the trait asks for it")]
impl<R: Real<Line = Self>, const N: usize> Registers<R> for Line<R, N> {
    #[inline(always)]
    unsafe fn from_line(line: &Self) -> Self {
        *line
    }
    #[inline(always)]
    unsafe fn into_line(self) -> Self {
        self
    }
    #[inline(always)]
    unsafe fn plus_product(self, a: R, b: &Self) -> Self {
        Lanes::fused(self, a, b)
    }
}

/// Lines of `$count` numbers in `$parts` registers of `$lanes` each.
#[cfg(target_arch = "x86_64")]
macro_rules! implement_registers {
    (
        $real:ident, $count:literal, [$register:ident; $parts:literal] of $lanes:literal,
        $load:ident, $store:ident, $splat:ident, $fused:ident
    ) => {
        #[allow(unsafe_code, reason = "vector instructions work on addresses")]
        impl Registers<$real> for [x86::$register; $parts] {
            #[inline(always)]
            unsafe fn from_line(line: &Line<$real, $count>) -> Self {
                // SAFETY: the processor has the instruction, and a line has all the parts.
                std::array::from_fn(|part| unsafe {
                    x86::$load(line.0.as_ptr().add(part * $lanes))
                })
            }
            #[inline(always)]
            unsafe fn into_line(self) -> Line<$real, $count> {
                let mut line = Line([0.0; $count]);
                for (part, register) in self.into_iter().enumerate() {
                    // SAFETY: the processor has the instruction, and a line has all the parts.
                    unsafe {
                        x86::$store(line.0.as_mut_ptr().add(part * $lanes), register);
                    }
                }
                line
            }
            #[inline(always)]
            unsafe fn plus_product(mut self, a: $real, b: &Line<$real, $count>) -> Self {
                for (part, sum) in self.iter_mut().enumerate() {
                    // SAFETY: the processor has the instructions, and a line has all the parts.
                    unsafe {
                        let b = x86::$load(b.0.as_ptr().add(part * $lanes));
                        *sum = x86::$fused(x86::$splat(a), b, *sum);
                    }
                }
                self
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
implement_registers!(
    f32, 16, [__m512; 1] of 16,
    _mm512_loadu_ps, _mm512_storeu_ps, _mm512_set1_ps, _mm512_fmadd_ps
);
#[cfg(target_arch = "x86_64")]
implement_registers!(
    f64, 8, [__m512d; 1] of 8,
    _mm512_loadu_pd, _mm512_storeu_pd, _mm512_set1_pd, _mm512_fmadd_pd
);
#[cfg(target_arch = "x86_64")]
implement_registers!(
    f32, 16, [__m256; 2] of 8,
    _mm256_loadu_ps, _mm256_storeu_ps, _mm256_set1_ps, _mm256_fmadd_ps
);
#[cfg(target_arch = "x86_64")]
implement_registers!(
    f64, 8, [__m256d; 2] of 4,
    _mm256_loadu_pd, _mm256_storeu_pd, _mm256_set1_pd, _mm256_fmadd_pd
);
