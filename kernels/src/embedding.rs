//! Table look-up by token.

use crate::{
    Context, Real,
    kernel::Define,
    operand::Operands,
    plain::embedding as plain,
    signature::{Signature, product},
    store::Store,
    team::{for_each_part, rows_per_part},
};
use roundelay_schedule::Access;
use std::ops::Range;

/// y_i = table\[tokens_i\].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Embedding {
    pub(crate) tokens: usize,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

/// dtable\[tokens_i\] += dy_i, in order of i.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EmbeddingBackward {
    pub(crate) tokens: usize,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) store: Store,
}

impl Define for Embedding {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let tokens = call.integers("tokens")?;
        let (rows, columns) = call.matrix("table", Access::Read)?;
        call.looked_up(tokens, columns);
        call.index_rows(rows);
        call.shaped("y", Access::Write, (tokens, columns))?;
        Ok(Self { tokens, rows, columns })
    }
    fn flops(&self) -> u64 {
        0
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let (tokens, table) = (operands.integers(), operands.read());
        plain::embedding(tokens, table, operands.write(), self.columns);
    }
}

impl Define for EmbeddingBackward {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let store = call.store()?;
        let tokens = call.integers("tokens")?;
        let (rows, columns) = call.matrix("dy", Access::Read)?;
        if rows != tokens {
            return Err(format!("`dy` has {rows} rows for {tokens} tokens"));
        }
        let rows = call.rows("dtable", store.access(), columns)?;
        call.looked_up(tokens, columns);
        call.index_rows(rows);
        Ok(Self { tokens, rows, columns, store })
    }
    fn flops(&self) -> u64 {
        product([self.tokens, self.columns])
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let (tokens, dy) = (operands.integers(), operands.read());
        let dtable = operands.write();
        let rows = dtable.len() / self.columns;
        let share = rows_per_part(context.threads, rows, 4 * self.columns);
        let parts = dtable.chunks_mut(share * self.columns).enumerate();
        for_each_part(parts, |(part, dtable)| {
            let own = part * share..rows.min((part + 1) * share);
            self.gather(tokens, dy, own, rows, dtable);
        });
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let (tokens, dy) = (operands.integers(), operands.read());
        plain::embedding_backward(tokens, dy, operands.write(), self.columns, self.store);
    }
}

impl EmbeddingBackward {
    /// The gradients of a table's `own` rows.
    fn gather<R: Real>(
        &self,
        tokens: &[i32],
        dy: &[R],
        own: Range<usize>,
        rows: usize,
        dtable: &mut [R],
    ) {
        self.store.clear(dtable);
        let first = own.start * self.columns;
        for (token, dy) in tokens.iter().zip(dy.chunks(self.columns)) {
            let row = row_of(*token, rows, self.columns);
            if own.contains(&(row.start / self.columns)) {
                let target = &mut dtable[row.start - first..row.end - first];
                for (target, dy) in target.iter_mut().zip(dy) {
                    *target += *dy;
                }
            }
        }
    }
}

/// Where a token's row stands in a table.
pub(crate) fn row_of(token: i32, rows: usize, columns: usize) -> Range<usize> {
    let row = usize::try_from(token).unwrap_or(usize::MAX);
    assert!(row < rows, "token {token} is outside of a table of {rows} rows");
    row * columns..(row + 1) * columns
}
