//! `slice`, `slice_backward`, `slice_integers`, `prepend`: rows of sequences (batch, s, n), copied.

use crate::{
    Context, Real, kernel::Define, operand::Operands, plain::rows as plain,
    signature::Signature, store::Store,
};
use roundelay_schedule::Access;

/// Some neighbouring rows of every sequence.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Window {
    /// Elements before the window.
    pub(crate) start: usize,
    /// Elements of the window.
    pub(crate) length: usize,
    /// Elements of a whole sequence.
    pub(crate) whole: usize,
}

impl Window {
    /// `rows` rows of `columns`, over all sequences, cut from sequences (batch, s, n).
    fn new(
        call: &mut Signature<'_>,
        (rows, columns): (usize, usize),
        [batch, sequence, width]: [usize; 3],
    ) -> Result<Self, String> {
        let first = call.integer("first", "at least 0", |first| first >= 0)?;
        let fits = rows.is_multiple_of(batch) && columns == width;
        let count = rows / batch;
        let first = usize::try_from(first).unwrap_or(usize::MAX);
        match first.checked_add(count) {
            Some(end) if fits && end <= sequence => Ok(Self {
                start: first * width,
                length: count * width,
                whole: sequence * width,
            }),
            _ => Err(format!(
                "rows {first} .. of ({batch}, {sequence}, {width}) are no ({rows}, \
                 {columns})"
            )),
        }
    }
}

/// out (batch, t, n) = rows `first` .. `first` + t of x (batch, s, n).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Slice {
    pub(crate) sequences: usize,
    pub(crate) window: Window,
    pub(crate) store: Store,
}

/// dx (batch, s, n) = dy (batch, t, n) in rows `first` .. `first` + t, zero elsewhere.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SliceBackward {
    pub(crate) sequences: usize,
    pub(crate) window: Window,
    pub(crate) store: Store,
}

/// out (batch, t) i32 = places `first` .. `first` + t of x (batch, s) i32.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SliceIntegers {
    pub(crate) sequences: usize,
    pub(crate) window: Window,
}

/// y (batch, s + 1, n) = row (n), then x (batch, s, n).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Prepend {
    pub(crate) sequences: usize,
    /// Elements of the row.
    pub(crate) width: usize,
    /// Elements of a sequence of x.
    pub(crate) length: usize,
}

impl Define for Slice {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let store = call.store()?;
        let whole = call.sequence("x", Access::Read)?;
        let part = call.matrix("out", store.access())?;
        let window = Window::new(call, part, whole)?;
        Ok(Self { sequences: whole[0], window, store })
    }
    fn flops(&self) -> u64 {
        0
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        plain::slice(&self.window, operands.read(), operands.write(), self.store);
    }
}

impl Define for SliceBackward {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let store = call.store()?;
        let part = call.matrix("dy", Access::Read)?;
        let whole = call.sequence("dx", store.access())?;
        let window = Window::new(call, part, whole)?;
        Ok(Self { sequences: whole[0], window, store })
    }
    fn flops(&self) -> u64 {
        0
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let (dy, dx) = (operands.read(), operands.write());
        plain::slice_backward(&self.window, dy, dx, self.store);
    }
}

impl Define for SliceIntegers {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let (sequence, length) = (call.count("sequence")?, call.count("length")?);
        let all = call.integers("x")?;
        if !all.is_multiple_of(sequence) {
            return Err(format!("{all} numbers are not sequences of {sequence}"));
        }
        let sequences = all / sequence;
        let part = sequences.checked_mul(length).ok_or("`length` is too long")?;
        call.integers_written("out", part)?;
        let window = Window::new(call, (part, 1), [sequences, sequence, 1])?;
        Ok(Self { sequences, window })
    }
    fn flops(&self) -> u64 {
        0
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        plain::slice_integers(&self.window, operands.integers(), operands.integers_mut());
    }
}

impl Define for Prepend {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let [batch, sequence, width] = call.sequence("x", Access::Read)?;
        call.vector("row", Access::Read, width)?;
        call.shaped("y", Access::Write, (batch * (sequence + 1), width))?;
        Ok(Self { sequences: batch, length: sequence * width, width })
    }
    fn flops(&self) -> u64 {
        0
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let (x, row) = (operands.read(), operands.read());
        plain::prepend(self.length, x, row, operands.write());
    }
}
