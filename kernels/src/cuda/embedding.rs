//! Table look-up and its gradient, also of one part of a table.

use super::{
    Argument,
    draft::{Draft, Shape, adding, count, extent},
    form::{Form, Role},
    source::EMBEDDING,
};
use crate::{
    embedding::{Embedding, EmbeddingBackward},
    part::{EmbeddingPart, EmbeddingPartBackward},
    store::Store,
};
use Role::{Either, Index, Narrow};
use roundelay_schedule::Bytes;

/// A table, or the part of one that is here.
struct Table {
    tokens: usize,
    columns: usize,
    /// Rows of all parts, and of one.
    whole: usize,
    each: usize,
    part: Argument,
}

/// Bits that one pass of the sort looks at: `DIGITS` of `embedding.cu` are this many.
const DIGIT: u32 = 8;
/// Tokens that one block of the sort counts: of `WARPS`, in each of `ROUNDS`.
const SORTED: usize = 8 * 8 * 32;
/// Sorted tokens whose gradients a block sums, `PIECE` of `embedding.cu`.
const PIECE: usize = 32;
/// Pieces of one row that are joined first, `GROUP` of `embedding.cu`.
const GROUP: usize = 32;

impl Table {
    fn look_up(&self, draft: &mut Draft) {
        let [tokens, table, y] = draft.operands(0);
        let shape = Shape::each(self.tokens * self.columns, draft.at_once());
        let [whole, each] = [self.whole, self.each].map(count);
        let extents = [count(self.tokens), count(self.columns), whole, each, self.part];
        let arguments = [tokens, table, y].into_iter().chain(extents).collect();
        draft.narrow((EMBEDDING, "look_up"), shape, arguments);
    }

    /// Sorts the tokens, then pieces of them gather the gradients of their rows.
    fn gather(&self, draft: &mut Draft, store: Store) {
        let [tokens, dy, dtable] = draft.operands(0);
        let [mut keys, mut order, mut other_keys, mut other_order] =
            [(); 4].map(|()| Argument::Address(draft.scratch(self.tokens * 4)));
        let [whole, each] = [self.whole, self.each].map(count);
        let arguments =
            vec![tokens, keys, order, count(self.tokens), whole, each, self.part];
        let shape = Shape::each(self.tokens, 1);
        draft.launch(EMBEDDING, "token_keys".to_owned(), shape, arguments);
        let bits = u64::BITS - (self.each as u64).leading_zeros();
        let counts = Argument::Address(draft.scratch(self.blocks() * (4 << DIGIT)));
        for shift in (0..bits).step_by(DIGIT as usize) {
            self.sort(draft, [keys, order, counts, other_keys, other_order], shift);
            (keys, other_keys) = (other_keys, keys);
            (order, other_order) = (other_order, order);
        }
        match store {
            Store::Write => self.clear(draft, [keys, dtable]),
            Store::Add => {}
        }
        self.sum(draft, [keys, order, dy, dtable], store);
    }

    /// Blocks of the sort.
    fn blocks(&self) -> usize {
        self.tokens.div_ceil(SORTED)
    }

    /// Orders keys by one digit, equal ones as they are.
    fn sort(&self, draft: &mut Draft, places: [Argument; 5], shift: u32) {
        let [keys, order, counts, other_keys, other_order] = places;
        let grid = [extent(self.blocks()), 1, 1];
        let shape = Shape { grid, block: [256, 1, 1], shared: Bytes(0) };
        let (tokens, shift) = (count(self.tokens), Argument::Unsigned(shift));
        let mut launch = |symbol: &str, shape, arguments| {
            draft.launch(EMBEDDING, symbol.to_owned(), shape, arguments);
        };
        launch("count_digits", shape, vec![keys, counts, tokens, shift]);
        let all = count(self.blocks() << DIGIT);
        launch("sum_before", Shape::block(1024), vec![counts, all]);
        let arguments = vec![keys, order, counts, other_keys, other_order, tokens, shift];
        launch("move_digits", shape, arguments);
    }

    /// Makes rows zero that none of the sorted tokens has.
    fn clear(&self, draft: &mut Draft, [keys, dtable]: [Argument; 2]) {
        let begins = draft.scratch(self.each.saturating_add(1).saturating_mul(4));
        let begins = Argument::Address(begins);
        let rows = count(self.each);
        let arguments = vec![keys, begins, count(self.tokens), rows];
        let shape = Shape::each(self.each + 1, 1);
        draft.launch(EMBEDDING, "row_begins".to_owned(), shape, arguments);
        let symbol = format!("clear_rows_{}", draft.types.either.name());
        let shape = Shape::each(self.each * self.columns, draft.at_once());
        let arguments = vec![begins, dtable, rows, count(self.columns)];
        draft.launch(EMBEDDING, symbol, shape, arguments);
    }

    /// Sums the gradients of every row: those in one piece, then those in several, groups of which are joined
    /// before, lest a row with most tokens wait for a block that goes through all its pieces.
    fn sum(&self, draft: &mut Draft, places: [Argument; 4], store: Store) {
        let [keys, order, dy, dtable] = places;
        let pieces = self.tokens.div_ceil(PIECE);
        let sums = pieces.saturating_mul(2).saturating_mul(self.columns);
        let partial = draft.wide_scratch(sums);
        let threads = self.columns.div_ceil(draft.at_once()).next_multiple_of(32);
        let block = [extent(threads.min(256)), 1, 1];
        let shape = Shape { grid: [extent(pieces), 1, 1], block, shared: Bytes(0) };
        let extents = [self.tokens, self.columns, self.each].map(count);
        let extents = extents.into_iter().chain([adding(store)]);
        let arguments = [keys, order, dy, dtable, partial].into_iter();
        let arguments = arguments.chain(extents.clone()).collect();
        draft.pair((EMBEDDING, "gather_pieces"), shape, arguments);
        // Nothing begins before the first group, so none of its own joins it.
        let groups = self.tokens / (GROUP * PIECE);
        if groups > 1 {
            let grid = [extent(groups - 1), 1, 1];
            let [columns, rows] = [self.columns, self.each].map(count);
            let arguments = vec![keys, partial, columns, rows];
            let shape = Shape { grid, ..shape };
            draft.narrow((EMBEDDING, "join_groups"), shape, arguments);
        }
        let arguments = [keys, partial, dtable].into_iter().chain(extents).collect();
        draft.pair((EMBEDDING, "join_pieces"), shape, arguments);
    }
}

impl Form for Embedding {
    fn roles(&self) -> Vec<Role> {
        vec![Index, Narrow, Narrow]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let Self { tokens, rows, columns } = *self;
        let table = Table { tokens, columns, whole: rows, each: rows, part: count(0) };
        table.look_up(draft);
        Ok(())
    }
}

impl Form for EmbeddingBackward {
    fn roles(&self) -> Vec<Role> {
        vec![Index, Narrow, Either]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let Self { tokens, rows, columns, store } = *self;
        let table = Table { tokens, columns, whole: rows, each: rows, part: count(0) };
        table.gather(draft, store);
        Ok(())
    }
}

impl Form for EmbeddingPart {
    fn roles(&self) -> Vec<Role> {
        vec![Index, Narrow, Narrow]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let Self { whole, tokens, rows, columns } = *self;
        let table = Table { tokens, columns, whole, each: rows, part: Argument::Part };
        table.look_up(draft);
        Ok(())
    }
}

impl Form for EmbeddingPartBackward {
    fn roles(&self) -> Vec<Role> {
        vec![Index, Narrow, Either]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let Self { whole, tokens, rows, columns, store } = *self;
        let table = Table { tokens, columns, whole, each: rows, part: Argument::Part };
        table.gather(draft, store);
        Ok(())
    }
}
