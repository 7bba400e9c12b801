//! Compiles a function once per instruction set and picks the best one at run time.
//!
//! Loops are written so that the compiler vectorises them, with fused multiply-add and a fixed
//! number of lanes; so every instruction set gives the same bits.

use std::sync::OnceLock;

/// Instruction sets that functions are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// 512-bit vectors.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// 256-bit vectors.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// What every processor of this architecture has.
    Portable,
}

/// The best instruction set of this processor.
#[inline]
pub(crate) fn level() -> Level {
    static LEVEL: OnceLock<Level> = OnceLock::new();
    #[cfg(test)]
    if PORTABLE.get() {
        return Level::Portable;
    }
    *LEVEL.get_or_init(detect)
}

fn detect() -> Level {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512bw")
        {
            return Level::Avx512;
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            return Level::Avx2;
        }
    }
    Level::Portable
}

#[cfg(test)]
thread_local! {
    /// Whether this thread does without special instructions.
    pub(crate) static PORTABLE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Defines a function that is compiled once per [`Level`]. What it calls must be
/// `inline(always)` to be compiled with it.
macro_rules! vectorize {
    (
        $(#[$meta:meta])*
        $visibility:vis fn $name:ident<$real:ident $(, const $size:ident: usize)*>(
            $($argument:ident: $type:ty),* $(,)?
        ) $(-> $result:ty)? $body:block
    ) => {
        $(#[$meta])*
        #[allow(unsafe_code, reason = "instruction sets are checked before use")]
        $visibility fn $name<$real: $crate::Real $(, const $size: usize)*>(
            $($argument: $type),*
        ) $(-> $result)? {
            #[inline(always)]
            fn portable<$real: $crate::Real $(, const $size: usize)*>(
                $($argument: $type),*
            ) $(-> $result)? $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")]
            fn avx512<$real: $crate::Real $(, const $size: usize)*>(
                $($argument: $type),*
            ) $(-> $result)? {
                portable::<$real $(, $size)*>($($argument),*)
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2<$real: $crate::Real $(, const $size: usize)*>(
                $($argument: $type),*
            ) $(-> $result)? {
                portable::<$real $(, $size)*>($($argument),*)
            }

            match $crate::simd::level() {
                #[cfg(target_arch = "x86_64")]
                $crate::simd::Level::Avx512 => {
                    // SAFETY: `level` has seen the features.
                    unsafe { avx512::<$real $(, $size)*>($($argument),*) }
                }
                #[cfg(target_arch = "x86_64")]
                $crate::simd::Level::Avx2 => {
                    // SAFETY: `level` has seen the features.
                    unsafe { avx2::<$real $(, $size)*>($($argument),*) }
                }
                $crate::simd::Level::Portable => portable::<$real $(, $size)*>($($argument),*),
            }
        }
    };
}
pub(crate) use vectorize;

/// Calls a function that is generic in the rows M and lines L of a register tile with those that
/// suit this processor.
macro_rules! with_tile {
    ($body:ident::<$real:ident>($($argument:expr),* $(,)?)) => {
        match $crate::simd::level() {
            #[cfg(target_arch = "x86_64")]
            $crate::simd::Level::Avx512 => $body::<$real, 8, 2>($($argument),*),
            #[cfg(target_arch = "x86_64")]
            $crate::simd::Level::Avx2 => $body::<$real, 6, 1>($($argument),*),
            $crate::simd::Level::Portable => $body::<$real, 4, 1>($($argument),*),
        }
    };
}
pub(crate) use with_tile;
