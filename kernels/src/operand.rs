//! Turns a launch's pointers into slices. The one place where a call touches raw memory.
#![allow(unsafe_code, reason = "operands arrive as addresses inside an arena")]

use crate::Real;
use roundelay_schedule::{Access, Element};
use std::{marker::PhantomData, ops::Range, slice};

/// What is known of an operand before its address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) element: Element,
    pub(crate) access: Access,
    pub(crate) length: usize,
    /// Elements that pass between memory and chip: all, but where rows of a table are looked up.
    pub(crate) passes: u64,
    /// Whether it is such a table.
    pub(crate) is_looked_up: bool,
    /// Elements of a row that factors of a product are read by: the last extent, none of a vector.
    pub(crate) row: u64,
}

/// The operands of one launch, handed out one after another in table order.
///
/// Each is handed out once, with the access that the call declares, so the slices can only
/// alias when the promise of [`Operands::new`] is broken. Of two that are one memory, the one that
/// is read is not handed out: [`Current`] says so instead.
pub(crate) struct Operands<'a, R> {
    slots: slice::Iter<'a, Slot>,
    pointers: slice::Iter<'a, *mut u8>,
    element: PhantomData<R>,
}

/// Where a kernel finds the numbers that it replaces.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Current<'a, R> {
    /// In the memory that receives the next ones.
    InPlace,
    /// Elsewhere.
    Separate(&'a [R]),
}

/// Numbers that are put aside at once, before their memory is written.
const ASIDE: usize = 1024;

impl<'a, R: Real> Current<'a, R> {
    /// Those that a range of the next ones replaces.
    pub(crate) fn part(self, range: Range<usize>) -> Self {
        match self {
            Current::InPlace => Current::InPlace,
            Current::Separate(all) => Current::Separate(&all[range]),
        }
    }

    /// All of them; `next` is where the next ones go.
    pub(crate) fn all<'b>(self, next: &'b [R]) -> &'b [R]
    where
        'a: 'b,
    {
        match self {
            Current::InPlace => next,
            Current::Separate(all) => all,
        }
    }

    /// One of them; `place` is where the next one goes.
    pub(crate) fn at(self, index: usize, place: &R) -> R {
        match self {
            Current::InPlace => *place,
            Current::Separate(all) => all[index],
        }
    }

    /// Makes all of `next`, element by element: `make` gets the place of the first, the numbers as
    /// they were, and where the next ones go, at once or piece by piece.
    #[inline(always)]
    pub(crate) fn replace(self, next: &mut [R], make: impl FnMut(usize, &[R], &mut [R])) {
        self.replace_rows(next, 1, make);
    }

    /// The same where pieces are whole rows of this many elements, or each a part of one.
    #[inline(always)]
    pub(crate) fn replace_rows(
        self,
        next: &mut [R],
        columns: usize,
        mut make: impl FnMut(usize, &[R], &mut [R]),
    ) {
        let Current::Separate(all) = self else {
            let mut aside = [R::ZERO; ASIDE];
            let together = (ASIDE / columns).max(1) * columns;
            let mut first = 0;
            for rows in next.chunks_mut(together) {
                for piece in rows.chunks_mut(ASIDE) {
                    let all = &mut aside[..piece.len()];
                    all.copy_from_slice(piece);
                    make(first, all, piece);
                    first += piece.len();
                }
            }
            return;
        };
        make(0, all, next);
    }
}

/// An output that several threads write, each its own ranges.
pub(crate) struct Shared<'a, R> {
    first: *mut R,
    length: usize,
    memory: PhantomData<&'a mut [R]>,
}

// SAFETY: whoever takes a part promises that nobody else has one that overlaps.
unsafe impl<R: Send> Sync for Shared<'_, R> {}

impl<'a, R> Shared<'a, R> {
    /// All of an output.
    pub(crate) fn new(output: &'a mut [R]) -> Self {
        let (first, length) = (output.as_mut_ptr(), output.len());
        Self { first, length, memory: PhantomData }
    }

    /// A range of it.
    ///
    /// # Safety
    /// No other part that overlaps is in use meanwhile.
    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "parts are disjoint, as the caller promises")]
    pub(crate) unsafe fn part(&self, range: Range<usize>) -> &mut [R] {
        assert!(
            range.start <= range.end && range.end <= self.length,
            "a part lies inside of its output"
        );
        // SAFETY: the range is inside of the slice that `new` borrowed, and used alone.
        unsafe { slice::from_raw_parts_mut(self.first.add(range.start), range.len()) }
    }
}

impl<'a, R: Real> Operands<'a, R> {
    /// # Safety
    /// For the lifetime of the slices every pointer is aligned and valid for its slot's
    /// elements of type `R` or i32; no operand that is not only read overlaps another one,
    /// but each two of `Define::replaces` may be one memory.
    pub(crate) unsafe fn new(slots: &'a [Slot], pointers: &'a [*mut u8]) -> Self {
        assert_eq!(
            slots.len(),
            pointers.len(),
            "a launch binds every operand of its call"
        );
        Self { slots: slots.iter(), pointers: pointers.iter(), element: PhantomData }
    }

    /// The next operand, only read.
    pub(crate) fn read(&mut self) -> &'a [R] {
        let (pointer, length) = self.take(Element::Real, false);
        // SAFETY: `new` promises that the memory is valid, and is not written meanwhile.
        unsafe { slice::from_raw_parts(pointer.cast(), length) }
    }

    /// The next operands, only read.
    pub(crate) fn reads<const COUNT: usize>(&mut self) -> [&'a [R]; COUNT] {
        [(); COUNT].map(|()| self.read())
    }

    /// The next operand, only read, of whole numbers.
    pub(crate) fn integers(&mut self) -> &'a [i32] {
        let (pointer, length) = self.take(Element::I32, false);
        // SAFETY: `new` promises that the memory is valid, and is not written meanwhile.
        unsafe { slice::from_raw_parts(pointer.cast(), length) }
    }

    /// The next operand, written, of whole numbers.
    pub(crate) fn integers_mut(&mut self) -> &'a mut [i32] {
        let (pointer, length) = self.take(Element::I32, true);
        // SAFETY: `new` promises that the memory is valid, and that nothing else uses it.
        unsafe { slice::from_raw_parts_mut(pointer.cast(), length) }
    }

    /// The next operand, written or updated.
    pub(crate) fn write(&mut self) -> &'a mut [R] {
        let (pointer, length) = self.take(Element::Real, true);
        // SAFETY: `new` promises that the memory is valid, and that nothing else uses it.
        unsafe { slice::from_raw_parts_mut(pointer.cast(), length) }
    }

    /// The next operands, written or updated.
    pub(crate) fn writes<const COUNT: usize>(&mut self) -> [&'a mut [R]; COUNT] {
        [(); COUNT].map(|()| self.write())
    }

    /// The next operand, only read, unless it is the memory of the operand this many behind it.
    pub(crate) fn current(&mut self, behind: usize) -> Current<'a, R> {
        let pointers = self.pointers.as_slice();
        if pointers[0] == pointers[behind] {
            self.take(Element::Real, false);
            return Current::InPlace;
        }
        Current::Separate(self.read())
    }

    /// The next two operands: the parameters of an optimizer and their successors.
    pub(crate) fn current_and_next(&mut self) -> (Current<'a, R>, &'a mut [R]) {
        (self.current(1), self.write())
    }

    fn take(&mut self, element: Element, written: bool) -> (*mut u8, usize) {
        let slot = self.slots.next().expect("a kernel takes the operands it declared");
        let pointer = self.pointers.next().expect("there are as many pointers as slots");
        // Machines run calls in a type in which wide numbers are no wider than real ones.
        let whole = [slot.element, element].map(|element| element == Element::I32);
        assert_eq!(whole[0], whole[1], "a kernel takes elements as it declared");
        let declared = matches!(slot.access, Access::Write | Access::Update);
        assert_eq!(declared, written, "a kernel takes accesses as it declared");
        (*pointer, slot.length)
    }
}
