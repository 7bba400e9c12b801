//! What one of several devices does of an operation on split tensors: `part`, `embedding_part`.
//! Which part is its own stands in the context.

use crate::{
    Context, Real,
    exchange::{each, inner, line},
    kernel::Define,
    operand::Operands,
    plain::part as plain,
    signature::{Signature, product},
    store::Store,
};
use roundelay_schedule::{Access, Line};
use std::ops::Range;

/// out (m, c) = the own columns of x (m, n), c = ⌈n / inner / parts⌉ · inner; zero behind the
/// last.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Part {
    pub(crate) line: Line,
    pub(crate) rows: usize,
    pub(crate) whole: usize,
    pub(crate) columns: usize,
    pub(crate) store: Store,
}

/// y_i = table\[tokens_i\] if that row is one of the own, else zero.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EmbeddingPart {
    pub(crate) whole: usize,
    pub(crate) tokens: usize,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

/// dtable\[tokens_i\] += dy_i for the own rows, in order of i.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EmbeddingPartBackward {
    pub(crate) whole: usize,
    pub(crate) tokens: usize,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) store: Store,
}

/// A part is no larger than the whole.
pub(crate) fn no_more(part: usize, whole: usize) -> Result<(), String> {
    match part <= whole {
        true => Ok(()),
        false => Err(format!("a part of {part} is larger than the whole of {whole}")),
    }
}

/// Which of `whole` belong to the own part of all, each part having room for `each`.
pub(crate) fn own(context: &Context, whole: usize, each: usize) -> Range<usize> {
    range(context.part, whole, each)
}

/// Which of `whole` stand at a place, each place having room for `each`.
fn range(place: u32, whole: usize, each: usize) -> Range<usize> {
    let first = (place as usize).saturating_mul(each).min(whole);
    first..first.saturating_add(each).min(whole)
}

impl Define for Part {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let store = call.store()?;
        let line = line(call)?;
        let (rows, whole) = call.matrix("x", Access::Read)?;
        let columns = each(whole, line.parts as usize, inner(call, whole)?);
        call.shaped("out", store.access(), (rows, columns))?;
        Ok(Self { line, rows, whole, columns, store })
    }
    fn flops(&self) -> u64 {
        0
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let (x, out) = (operands.read(), operands.write());
        let own = range(self.line.place(context.part), self.whole, self.columns);
        plain::part(x, out, (self.whole, self.columns), own, self.store);
    }
}

impl Define for EmbeddingPart {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let whole = call.count("whole")?;
        let tokens = call.integers("tokens")?;
        let (rows, columns) = call.matrix("table", Access::Read)?;
        call.looked_up(tokens, columns);
        call.index_rows(whole);
        no_more(rows, whole)?;
        call.shaped("y", Access::Write, (tokens, columns))?;
        Ok(Self { whole, tokens, rows, columns })
    }
    fn flops(&self) -> u64 {
        0
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let (tokens, table) = (operands.integers(), operands.read());
        let own = own(context, self.whole, table.len() / self.columns);
        for (token, y) in tokens.iter().zip(operands.write().chunks_mut(self.columns)) {
            match row(*token, self.whole, &own) {
                Some(row) => y.copy_from_slice(&table[row * self.columns..][..y.len()]),
                None => y.fill(R::ZERO),
            }
        }
    }
}

impl Define for EmbeddingPartBackward {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let store = call.store()?;
        let whole = call.count("whole")?;
        let tokens = call.integers("tokens")?;
        let (rows, columns) = call.matrix("dy", Access::Read)?;
        if rows != tokens {
            return Err(format!("`dy` has {rows} rows for {tokens} tokens"));
        }
        let rows = call.rows("dtable", store.access(), columns)?;
        call.looked_up(tokens, columns);
        call.index_rows(whole);
        no_more(rows, whole)?;
        Ok(Self { whole, tokens, rows, columns, store })
    }
    fn flops(&self) -> u64 {
        product([self.tokens, self.columns])
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let (tokens, dy) = (operands.integers(), operands.read());
        let table = operands.write();
        let own = own(context, self.whole, table.len() / self.columns);
        self.store.clear(table);
        for (token, dy) in tokens.iter().zip(dy.chunks(self.columns)) {
            let Some(row) = row(*token, self.whole, &own) else { continue };
            let target = &mut table[row * self.columns..];
            target.iter_mut().zip(dy).for_each(|(target, dy)| *target += *dy);
        }
    }
}

/// The place of a token among the own rows.
fn row(token: i32, whole: usize, own: &Range<usize>) -> Option<usize> {
    let row = usize::try_from(token).unwrap_or(usize::MAX);
    assert!(row < whole, "token {token} is outside of a table of {whole} rows");
    own.contains(&row).then(|| row - own.start)
}
