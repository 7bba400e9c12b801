//! Matrix products: packed panels and register tiles.
//!
//! The crate `gemm` 0.19 allocates in every call (packing buffers and a list of flags), and
//! sums in blocks that follow the size of the caches. Here every element of a product is one
//! chain of fused multiply-adds in order of k, started from what it is added to. So the bits
//! do not depend on the tile, the instruction set, the number of threads, or how rows are
//! split; and the packing buffers of a thread are allocated once and only grow.
//!
//! The loops follow Goto and van de Geijn 2008, but a is read in place where it is stored by
//! rows: out is cut into blocks of columns and depth whose part of b fits in the second cache
//! level once it is packed into panels of one tile's width.

mod packing;
mod tile;

use crate::{
    Real,
    line::Lanes,
    simd::{Level, level, with_tile},
    store::Store,
    team::Cut,
};
use packing::pack_block;
use std::ops::Range;
use tile::multiply_rows;

/// A matrix to read: element (i, j) stands at i · `row` + j · `column`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a, R> {
    pub(crate) data: &'a [R],
    pub(crate) row: usize,
    pub(crate) column: usize,
}

/// A matrix to write: element (i, j) stands at i · `row` + j.
pub(crate) struct Target<'a, R> {
    pub(crate) data: &'a mut [R],
    pub(crate) row: usize,
}

impl<R> Target<'_, R> {
    /// The part that starts at (row, column).
    #[inline(always)]
    fn from(&mut self, row: usize, column: usize) -> Target<'_, R> {
        Target { data: &mut self.data[row * self.row + column..], row: self.row }
    }
}

/// Depth of one block.
const DEPTH: usize = 256;
/// Lines per row of one block of b: with `DEPTH`, 256 KiB.
const LINES: usize = 16;
/// Rows of the largest tile.
const MOST_ROWS: usize = 8;
/// Tiles that are packed together from an a that is stored by columns.
const STRIP: usize = 8;
/// Lines of the widest panel.
const MOST_LINES: usize = 2;
/// What packing an element costs, in operations of a product.
const PACKING: usize = 16;

impl<'a, R> View<'a, R> {
    /// The part that starts at (row, column).
    #[inline(always)]
    pub(crate) fn from(self, row: usize, column: usize) -> Self {
        let start = row * self.row + column * self.column;
        Self { data: &self.data[start..], ..self }
    }
    /// Rows as columns.
    #[inline(always)]
    pub(crate) fn transposed(self) -> Self {
        Self { row: self.column, column: self.row, ..self }
    }
    /// Its first rows and columns, to multiply with.
    #[inline(always)]
    pub(crate) fn factor(self, depth: usize, columns: usize) -> Factor<'a, R>
    where
        R: Real,
    {
        Factor::Plain(self, Portion::whole::<R>(depth, columns))
    }
}

/// Memory of one thread that only grows.
pub struct Buffers<R: Real> {
    panels: Vec<R::Line>,
    rows: Vec<R>,
    /// For grids of scores, when threads share a launch.
    pub(crate) scratch: Vec<R>,
    /// For a whole packed matrix; lent with [`lend_lines`].
    shared: Vec<R::Line>,
}

impl<R: Real> Buffers<R> {
    pub(crate) const fn new() -> Self {
        Self {
            panels: Vec::new(),
            rows: Vec::new(),
            scratch: Vec::new(),
            shared: Vec::new(),
        }
    }
    /// Grows to what a product needs, and to `scratch` elements of scratch memory.
    pub(crate) fn reserve(&mut self, scratch: usize) {
        let scratch = scratch.max(self.scratch.len());
        self.scratch.resize(scratch, R::ZERO);
        self.panels.resize(DEPTH * LINES, R::Line::splat(R::ZERO));
        self.rows.resize(DEPTH * STRIP * MOST_ROWS, R::ZERO);
    }
}

/// Lends the calling thread at least `count` lines for [`pack`]. Unlike `with_buffers` this may
/// go on while its helpers multiply. The memory only grows, so a kernel that calls this once in
/// `prepare` allocates nothing later.
pub(crate) fn lend_lines<R: Real, T>(
    count: usize,
    work: impl FnOnce(&mut [R::Line]) -> T,
) -> T {
    let mut lines = R::with_buffers(|buffers| std::mem::take(&mut buffers.shared));
    lines.resize(count.max(lines.len()), R::Line::splat(R::ZERO));
    let result = work(&mut lines[..count]);
    R::with_buffers(|buffers| buffers.shared = lines);
    result
}

/// Lends this thread's scratch memory beside its packing buffers.
pub(crate) fn with_scratch<R: Real>(
    length: usize,
    work: impl FnOnce(&mut [R], &mut Buffers<R>),
) {
    R::with_buffers(|buffers| {
        buffers.reserve(length);
        let mut own = std::mem::take(&mut buffers.scratch);
        work(&mut own[..length], buffers);
        buffers.scratch = own;
    });
}

/// Blocks of a matrix b that follow each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Portion {
    depth: usize,
    columns: usize,
    first: usize,
    count: usize,
}

impl Portion {
    /// All of b.
    #[inline(always)]
    pub(crate) fn whole<R: Real>(depth: usize, columns: usize) -> Self {
        let count = depth.div_ceil(DEPTH) * columns.div_ceil(LINES * R::Line::COUNT);
        Self { depth, columns, first: 0, count }
    }
    /// The same, at most so many blocks at a time.
    pub(crate) fn cut(self, most: usize) -> impl ExactSizeIterator<Item = Self> {
        (0..self.count).step_by(most).map(move |start| Self {
            first: self.first + start,
            count: most.min(self.count - start),
            ..self
        })
    }
    /// `store` is for blocks that start at the first row of b.
    #[inline(always)]
    fn blocks<R: Real>(self, store: Store) -> impl Iterator<Item = Block> {
        let Self { depth, columns, first, count } = self;
        let (width, down) = (LINES * R::Line::COUNT, depth.div_ceil(DEPTH));
        (first..first + count).map(move |number| {
            let (first, top) = (number / down * width, number % down * DEPTH);
            Block {
                columns: width.min(columns - first),
                depth: DEPTH.min(depth - top),
                first,
                top,
                store: if top == 0 { store } else { Store::Add },
            }
        })
    }
    /// Lines that [`pack`] fills.
    pub(crate) fn lines<R: Real>(self) -> usize {
        self.blocks::<R>(Store::Write).map(|block| block.lines::<R>()).sum()
    }
}

/// What is packed of a matrix b, once for many products: see [`pack`].
#[derive(Clone, Copy)]
pub(crate) struct Panels<'a, R: Real> {
    lines: &'a [R::Line],
    portion: Portion,
}

/// The matrix b of a product. How it is given changes no bit.
#[derive(Clone, Copy)]
pub(crate) enum Factor<'a, R: Real> {
    /// As it stands; every block is packed when it is met.
    Plain(View<'a, R>, Portion),
    /// Packed before.
    Packed(Panels<'a, R>),
}

impl<R: Real> Factor<'_, R> {
    fn portion(&self) -> Portion {
        match *self {
            Factor::Plain(_, portion) | Factor::Packed(Panels { portion, .. }) => portion,
        }
    }
}

/// Lines that [`pack`] fills with all of a matrix.
#[inline(always)]
pub(crate) fn packed_lines<R: Real>(depth: usize, columns: usize) -> usize {
    depth * columns.div_ceil(R::Line::COUNT).next_multiple_of(MOST_LINES)
}

/// Where [`pack`] puts line `line` of row `row`.
#[inline(always)]
pub(crate) fn packed_place<R: Real>(
    depth: usize,
    columns: usize,
    row: usize,
    line: usize,
) -> usize {
    let wide = match level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => 2,
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => 1,
        Level::Portable => 1,
    };
    let (block, line) = (line / LINES, line % LINES);
    let (top, row) = (row / DEPTH * DEPTH, row % DEPTH);
    let columns = columns - block * LINES * R::Line::COUNT;
    let lines = columns.div_ceil(R::Line::COUNT).min(LINES);
    let start = block * depth * LINES + top * lines.next_multiple_of(MOST_LINES);
    let panel = line / wide * wide * DEPTH.min(depth - top);
    start + panel + row * wide + line % wide
}

impl<'a, R: Real> Panels<'a, R> {
    /// A matrix whose lines were written where [`packed_place`] says.
    pub(crate) fn new(lines: &'a [R::Line], depth: usize, columns: usize) -> Self {
        Self { lines, portion: Portion::whole::<R>(depth, columns) }
    }
    /// To multiply with.
    pub(crate) fn factor(self) -> Factor<'a, R> {
        Factor::Packed(self)
    }
}

/// Packs a portion of b into `lines`, of which there are [`Portion::lines`], on at most `threads`
/// threads. Any number of threads may share the result, and products with all portions, one
/// after another, have the bits of one with b.
pub(crate) fn pack<'a, R: Real>(
    b: View<'_, R>,
    portion: Portion,
    threads: usize,
    lines: &'a mut [R::Line],
) -> Panels<'a, R> {
    let elements = lines.len() * R::Line::COUNT / portion.count.max(1);
    let cut = Cut::new(threads, portion.count, PACKING * elements);
    let mut rest = &mut *lines;
    let parts = portion.cut(cut.rows).map(|own| {
        let length = own.lines::<R>();
        (own, rest.split_off_mut(..length).expect("blocks fill the lines"))
    });
    cut.each(parts, |(own, lines)| {
        with_tile!(pack_blocks::<R>(b, own, lines));
    });
    Panels { lines, portion }
}

/// Part of a product whose sums are whole: these rows and columns of what is multiplied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finished {
    pub(crate) rows: Range<usize>,
    pub(crate) columns: Range<usize>,
}

/// What is done with a part of a product while it is still in the nearest cache: a bias, an
/// activation, a residual. It is called once for every part.
pub(crate) type Finish<'f, R> = dyn FnMut(Finished, &mut Target<'_, R>) + 'f;

/// out = a · b, or out += a · b, for the first `rows` rows of a.
pub(crate) fn multiply<R: Real>(
    rows: usize,
    a: View<'_, R>,
    b: Factor<'_, R>,
    out: &mut Target<'_, R>,
    store: Store,
    buffers: &mut Buffers<R>,
) {
    multiply_then(rows, a, b, out, store, buffers, &mut |_, _| ());
}

/// As [`multiply`], then `finish`.
pub(crate) fn multiply_then<R: Real>(
    rows: usize,
    a: View<'_, R>,
    b: Factor<'_, R>,
    out: &mut Target<'_, R>,
    store: Store,
    buffers: &mut Buffers<R>,
    finish: &mut Finish<'_, R>,
) {
    buffers.reserve(0);
    with_tile!(multiply_blocks::<R>(rows, a, b, out, store, buffers, finish));
}

fn pack_blocks<R: Real, const M: usize, const L: usize>(
    b: View<'_, R>,
    portion: Portion,
    lines: &mut [R::Line],
) {
    let mut start = 0;
    for block in portion.blocks::<R>(Store::Write) {
        let lines = &mut lines[start..];
        pack_block::<R, L>(b.from(block.top, block.first), block, lines);
        start += block.lines::<R>();
    }
}

fn multiply_blocks<R: Real, const M: usize, const L: usize>(
    rows: usize,
    a: View<'_, R>,
    b: Factor<'_, R>,
    out: &mut Target<'_, R>,
    store: Store,
    buffers: &mut Buffers<R>,
    finish: &mut Finish<'_, R>,
) {
    let portion = b.portion();
    let mut start = 0;
    for block in portion.blocks::<R>(store) {
        let panels = match b {
            Factor::Plain(view, _) => {
                let view = view.from(block.top, block.first);
                pack_block::<R, L>(view, block, &mut buffers.panels);
                &buffers.panels
            }
            Factor::Packed(panels) => &panels.lines[start..],
        };
        start += block.lines::<R>();
        let finish = block.ends(portion.depth).then_some(&mut *finish);
        let (a, packed) = (a.from(0, block.top), &mut buffers.rows);
        multiply_rows::<R, M, L>(block, rows, a, panels, packed, out, finish);
    }
}

/// One block of columns and depth.
#[derive(Clone, Copy)]
struct Block {
    columns: usize,
    depth: usize,
    first: usize,
    top: usize,
    store: Store,
}

impl Block {
    /// Whether sums over `depth` rows of b are whole after it.
    #[inline(always)]
    fn ends(&self, depth: usize) -> bool {
        self.top + self.depth == depth
    }
    /// Lines that it takes once packed.
    #[inline(always)]
    fn lines<R: Real>(&self) -> usize {
        packed_lines::<R>(self.depth, self.columns)
    }
}

#[cfg(test)]
mod tests;
