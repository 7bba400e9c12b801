//! Aligned memory that kernels on several threads share, and the right to touch it.
//!
//! A [`Memory`] is bytes behind one shared reference; a [`Claim`] is the promise that a set of
//! ranges is for now the holder's own. Machines make a claim where the checker's proof holds, and
//! nowhere else; views borrow from it, so that one holder cannot alias itself.
#![expect(unsafe_code, reason = "threads write disjoint ranges of one allocation")]

use roundelay_kernels::Real;
use std::{cell::UnsafeCell, collections::TryReserveError, ops::Range, ptr, slice};

/// Rows start at multiples of this many bytes.
pub(crate) const ALIGNMENT: usize = 64;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; ALIGNMENT]);

/// A block of bytes, zero at first, aligned to 64.
pub(crate) struct Memory {
    lines: Box<[UnsafeCell<Line>]>,
    bytes: usize,
}

// SAFETY: the bytes are reached only with a claim, whose maker promises that no two threads touch
// overlapping ranges at one time unless both read.
unsafe impl Sync for Memory {}

/// The right to touch certain ranges for a while.
pub(crate) struct Claim(());

/// Arrays of numbers that others have claimed, to be looked at for a while; sized once.
pub(crate) struct Views<R>(Vec<*const [R]>);

/// The first bytes and lengths of what a routine works on; sized once.
pub(crate) struct Arguments(Vec<(*mut u8, u64)>);

impl Claim {
    /// # Safety
    /// While the claim lives, whoever else touches a range that is passed with it only reads, and
    /// so does its holder. Ranges that are written or pushed as arguments together with others
    /// do not overlap them, unless they are the same.
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }
}

impl Memory {
    /// `bytes` zeros.
    ///
    /// # Panics
    /// When the system does not hand them out.
    pub(crate) fn new(bytes: u64) -> Self {
        Self::try_new(bytes).expect("the system hands out the memory")
    }

    /// `bytes` zeros.
    ///
    /// # Errors
    /// When the system does not hand them out; one that promises more than it has may.
    pub(crate) fn try_new(bytes: u64) -> Result<Self, TryReserveError> {
        // What no machine can address, no vector can reserve.
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let mut lines = Vec::new();
        lines.try_reserve_exact(bytes.div_ceil(ALIGNMENT))?;
        lines.resize_with(bytes.div_ceil(ALIGNMENT), || {
            UnsafeCell::new(Line([0; ALIGNMENT]))
        });
        Ok(Self { lines: lines.into_boxed_slice(), bytes })
    }

    /// Number of bytes.
    pub(crate) fn len(&self) -> u64 {
        self.bytes as u64
    }

    /// The address of the first byte.
    pub(crate) fn start(&self) -> *mut u8 {
        self.at(&(0..0))
    }

    /// The address of a range.
    ///
    /// # Panics
    /// When the range is not inside.
    fn at(&self, range: &Range<u64>) -> *mut u8 {
        let inside = range.start <= range.end && range.end <= self.len();
        assert!(inside, "bytes {range:?} of {}", self.bytes);
        let first = UnsafeCell::raw_get(self.lines.as_ptr()).cast::<u8>();
        first.wrapping_add(range.start as usize)
    }

    /// A range, to read.
    pub(crate) fn read<'a>(&'a self, _: &'a Claim, range: Range<u64>) -> &'a [u8] {
        let length = (range.end - range.start) as usize;
        // SAFETY: `at` checks the bounds, all bytes were initialised by `new`, and the claim
        // keeps writers away.
        unsafe { slice::from_raw_parts(self.at(&range), length) }
    }

    /// A range, to write.
    pub(crate) fn write<'a>(
        &'a self,
        _: &'a mut Claim,
        range: Range<u64>,
    ) -> &'a mut [u8] {
        let length = (range.end - range.start) as usize;
        // SAFETY: `at` checks the bounds, all bytes were initialised by `new`, the claim keeps
        // everybody else away and is borrowed, so its holder has no other view.
        unsafe { slice::from_raw_parts_mut(self.at(&range), length) }
    }

    /// All bytes, for the one owner.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let all = 0..self.len();
        // SAFETY: as in `write`; `&mut self` excludes everybody else.
        unsafe { slice::from_raw_parts_mut(self.at(&all), self.bytes) }
    }

    /// All bytes as real numbers, for the one owner.
    pub(crate) fn numbers_of<R: Real>(&mut self) -> &mut [R] {
        let (all, count) = (0..self.len(), self.bytes / size_of::<R>());
        // SAFETY: as in `numbers_mut`; blocks start aligned, `&mut self` excludes everybody else.
        unsafe { slice::from_raw_parts_mut(self.at(&all).cast(), count) }
    }

    /// A range of real numbers, to read.
    pub(crate) fn numbers<'a, R: Real>(
        &'a self,
        claim: &'a Claim,
        range: Range<u64>,
    ) -> &'a [R] {
        let bytes = self.read(claim, range);
        assert!(
            bytes.as_ptr().addr().is_multiple_of(align_of::<R>()),
            "rows are aligned"
        );
        // SAFETY: the bytes are aligned, and every pattern is a number of type f32 or f64.
        unsafe {
            slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / size_of::<R>())
        }
    }

    /// A range of real numbers, to write.
    pub(crate) fn numbers_mut<'a, R: Real>(
        &'a self,
        claim: &'a mut Claim,
        range: Range<u64>,
    ) -> &'a mut [R] {
        let bytes = self.write(claim, range);
        assert!(
            bytes.as_ptr().addr().is_multiple_of(align_of::<R>()),
            "rows are aligned"
        );
        let length = bytes.len() / size_of::<R>();
        // SAFETY: the bytes are aligned, and every pattern is a number of type f32 or f64.
        unsafe { slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), length) }
    }

    /// Copies a range to the same number of bytes from `start` on in another memory.
    pub(crate) fn copy(&self, _: &mut Claim, range: Range<u64>, to: &Self, start: u64) {
        let length = range.end - range.start;
        let (source, target) = (self.at(&range), to.at(&(start..start + length)));
        // SAFETY: both ranges are inside and claimed; `copy` allows them to overlap.
        unsafe { ptr::copy(source, target, length as usize) };
    }
}

impl<R: Real> Views<R> {
    /// Room for `count` arrays.
    pub(crate) fn new(count: usize) -> Self {
        Self(Vec::with_capacity(count))
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds an array of this many bytes.
    pub(crate) fn push(&mut self, first: *const u8, bytes: u64) {
        let count = bytes as usize / size_of::<R>();
        self.0.push(ptr::slice_from_raw_parts(first.cast(), count));
    }

    /// All arrays.
    ///
    /// # Safety
    /// Every array is aligned and written, and nobody writes it while it is looked at.
    pub(crate) unsafe fn all(&self) -> &[&[R]] {
        let first = self.0.as_ptr().cast::<&[R]>();
        // SAFETY: a reference lies in memory as a pointer does, and the caller says that these
        // pointers may be references.
        unsafe { slice::from_raw_parts(first, self.0.len()) }
    }
}

impl Arguments {
    /// Room for `count` arguments.
    pub(crate) fn new(count: usize) -> Self {
        Self(Vec::with_capacity(count))
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds a claimed range.
    pub(crate) fn push(&mut self, _: &mut Claim, memory: &Memory, range: Range<u64>) {
        self.0.push((memory.at(&range), range.end - range.start));
    }

    /// Adds bytes that the caller keeps borrowed until the routine has run.
    pub(crate) fn push_bytes(&mut self, _: &mut Claim, bytes: &mut [u8]) {
        self.0.push((bytes.as_mut_ptr(), bytes.len() as u64));
    }

    /// The address of byte `offset` of an argument that is at least `size` bytes long.
    ///
    /// # Panics
    /// When it is shorter.
    pub(crate) fn address(&self, index: usize, offset: u64, size: u64) -> *mut u8 {
        let (first, length) = self.0[index];
        assert!(offset + size <= length, "argument {index} has {length} bytes");
        first.wrapping_add(offset as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_starts_as_zeros_on_an_aligned_address() {
        let memory = Memory::new(100);
        assert_eq!(memory.at(&(0..1)).addr() % ALIGNMENT, 0);
        // SAFETY: nobody else knows the memory.
        let claim = unsafe { Claim::new() };
        assert_eq!(memory.read(&claim, 0..100), [0; 100]);
    }

    #[test]
    fn what_no_machine_has_is_an_error() {
        for bytes in [1 << 60, u64::MAX] {
            assert!(Memory::try_new(bytes).is_err(), "{bytes} bytes");
        }
    }

    #[test]
    #[should_panic(expected = "bytes 96..101 of 100")]
    fn a_range_outside_is_refused() {
        let _ = Memory::new(100).at(&(96..101));
    }

    #[test]
    #[should_panic(expected = "argument 0 has 8 bytes")]
    fn an_operand_beyond_its_argument_is_refused() {
        let memory = Memory::new(64);
        let mut arguments = Arguments::new(1);
        // SAFETY: nobody else knows the memory.
        arguments.push(&mut unsafe { Claim::new() }, &memory, 0..8);
        let _ = arguments.address(0, 4, 8);
    }
}
