//! `matmul`: products of dense matrices.

use crate::{
    Context, Real,
    kernel::Define,
    operand::Operands,
    plain,
    product::{Factor, Finished, Portion, Target, View, lend_lines, multiply_then, pack},
    signature::{Signature, product},
    store::Store,
    team::{Cut, MOST_PARTS},
};
use roundelay_schedule::Access;
use smallvec::SmallVec;

/// out (m, n) = a (m, k) · b (k, n).
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Matmul {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) transpose_a: bool,
    pub(crate) transpose_b: bool,
    pub(crate) store: Store,
}

/// Most blocks of b that are packed at once, for all threads: 8 MiB.
const MOST_SHARED: usize = 32;

/// Rows for which the panels of b come near once.
const ROWS: usize = 64;

/// Elements between neighbours of a matrix.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Strides {
    pub(crate) row: usize,
    pub(crate) column: usize,
}

impl Matmul {
    /// x (m, k) · weightᵀ (n, k).
    pub(crate) fn affine([m, n, k]: [usize; 3]) -> Self {
        Self { m, n, k, transpose_a: false, transpose_b: true, store: Store::Write }
    }
    /// Multiplies part by part; `finishes` takes the rows of one part and says what finishes
    /// each.
    pub(crate) fn run<R: Real, F, I>(
        &self,
        a: &[R],
        b: &[R],
        out: &mut [R],
        threads: usize,
        finishes: impl FnOnce(usize) -> I,
    ) where
        F: FnMut(Finished, &mut Target<'_, R>) + Send,
        I: ExactSizeIterator<Item = F>,
    {
        let (rows, columns) = (self.a_strides(), self.b_strides());
        let a = View { data: a, row: rows.row, column: rows.column };
        let b = View { data: b, row: columns.row, column: columns.column };
        let cut = Cut::at_multiples(ROWS, threads, self.m, 2 * self.n * self.k);
        let rows = cut.rows;
        let parts = out.chunks_mut(rows * self.n).zip(finishes(rows)).enumerate();
        let mut parts: SmallVec<[_; MOST_PARTS]> = parts.collect();
        let mut multiply = |b: Factor<'_, R>| {
            cut.each(parts.iter_mut(), |(index, (out, finish))| {
                let (count, a) = (out.len() / self.n, a.from(*index * rows, 0));
                let out = &mut Target { data: out, row: self.n };
                R::with_buffers(|buffers| {
                    multiply_then(count, a, b, out, self.store, buffers, finish);
                });
            });
        };
        if rows >= self.m {
            return multiply(b.factor(self.k, self.n));
        }
        for portion in self.portions::<R>() {
            lend_lines::<R, _>(portion.lines::<R>(), |lines| {
                multiply(pack(b, portion, threads, lines).factor());
            });
        }
    }
    /// What is packed of b at a time.
    fn portions<R: Real>(&self) -> impl Iterator<Item = Portion> {
        Portion::whole::<R>(self.k, self.n).cut(MOST_SHARED)
    }
    /// Multiplies, and nothing follows.
    pub(crate) fn multiply<R: Real>(
        &self,
        a: &[R],
        b: &[R],
        out: &mut [R],
        threads: usize,
    ) {
        let nothing = |_: Finished, _: &mut Target<'_, R>| ();
        self.run(a, b, out, threads, |rows| {
            std::iter::repeat_n(nothing, self.m.div_ceil(rows))
        });
    }
    /// Strides of a as (m, k).
    pub(crate) fn a_strides(&self) -> Strides {
        match self.transpose_a {
            false => Strides { row: self.k, column: 1 },
            true => Strides { row: 1, column: self.m },
        }
    }
    /// Strides of b as (k, n).
    pub(crate) fn b_strides(&self) -> Strides {
        match self.transpose_b {
            false => Strides { row: self.n, column: 1 },
            true => Strides { row: 1, column: self.k },
        }
    }
}

impl Define for Matmul {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let transpose_a = call.flag("transpose_a")?;
        let transpose_b = call.flag("transpose_b")?;
        let store = call.store()?;
        let (rows, columns) = call.matrix("a", Access::Read)?;
        let (m, k) = if transpose_a { (columns, rows) } else { (rows, columns) };
        let (rows, n) = call.matrix("b", Access::Read)?;
        let (depth, n) = if transpose_b { (n, rows) } else { (rows, n) };
        if depth != k {
            return Err(format!("`a` has inner extent {k}, but `b` has {depth}"));
        }
        call.shaped("out", store.access(), (m, n))?;
        Ok(Self { m, n, k, transpose_a, transpose_b, store })
    }
    fn flops(&self) -> u64 {
        product([2, self.m, self.n, self.k])
    }
    fn packed<R: Real>(&self) -> usize {
        self.portions::<R>().map(Portion::lines::<R>).max().unwrap_or(0)
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let (a, b, out) = (operands.read(), operands.read(), operands.write());
        self.multiply(a, b, out, context.threads);
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let (a, b) = (operands.read(), operands.read());
        plain::matmul::matmul(self, a, b, operands.write(), self.store);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Stream;

    #[test]
    fn threads_that_share_portions_change_no_bit() {
        let product = Matmul::affine([70, 4400, 260]);
        assert_eq!(product.portions::<f32>().count(), 2);
        let stream = Stream::new(7, &[]);
        let fill = |length: usize| -> Vec<f32> {
            (0..length as u64).map(|index| stream.normal(index) as f32).collect()
        };
        let (a, b) = (fill(product.m * product.k), fill(product.n * product.k));
        let negate = |part: Finished, out: &mut Target<'_, f32>| {
            for row in part.rows {
                let row = &mut out.data[row * out.row..][part.columns.clone()];
                row.iter_mut().for_each(|sum| *sum = -*sum);
            }
        };
        let made = |threads| -> Vec<u32> {
            let mut out = vec![f32::NAN; product.m * product.n];
            product.run(&a, &b, &mut out, threads, |rows| {
                std::iter::repeat_n(negate, product.m.div_ceil(rows))
            });
            out.into_iter().map(f32::to_bits).collect()
        };
        let alone = made(1);
        assert!([2, 3, 5].into_iter().all(|threads| made(threads) == alone));
    }
}
