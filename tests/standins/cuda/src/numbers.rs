//! Numbers of every type that a matrix may have, in memory that may not be aligned.

use half::{bf16, f16};
use std::ptr;

/// The library's numbers of types.
const F32: u32 = 0;
const F64: u32 = 1;
const F16: u32 = 2;
const BF16: u32 = 14;

/// How a number is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    F32,
    F64,
    F16,
    Bf16,
}

impl Number {
    /// By the library's number of it.
    pub(crate) fn of(kind: u32) -> Option<Self> {
        match kind {
            F32 => Some(Self::F32),
            F64 => Some(Self::F64),
            F16 => Some(Self::F16),
            BF16 => Some(Self::Bf16),
            _ => None,
        }
    }

    /// Bytes of one.
    pub(crate) fn size(self) -> u64 {
        match self {
            Self::F64 => 8,
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }

    /// The number at an address.
    ///
    /// # Safety
    /// It is one of live memory.
    pub(crate) unsafe fn read(self, at: u64) -> f64 {
        // SAFETY: the caller says so.
        unsafe {
            match self {
                Self::F32 => f64::from(ptr::read_unaligned(at as *const f32)),
                Self::F64 => ptr::read_unaligned(at as *const f64),
                Self::F16 => ptr::read_unaligned(at as *const f16).to_f64(),
                Self::Bf16 => ptr::read_unaligned(at as *const bf16).to_f64(),
            }
        }
    }

    /// Puts a number at an address.
    ///
    /// # Safety
    /// It is one of live memory.
    pub(crate) unsafe fn write(self, at: u64, value: f64) {
        // SAFETY: the caller says so.
        unsafe {
            match self {
                Self::F32 => ptr::write_unaligned(at as *mut f32, value as f32),
                Self::F64 => ptr::write_unaligned(at as *mut f64, value),
                Self::F16 => ptr::write_unaligned(at as *mut f16, f16::from_f64(value)),
                Self::Bf16 => {
                    ptr::write_unaligned(at as *mut bf16, bf16::from_f64(value));
                }
            }
        }
    }
}
