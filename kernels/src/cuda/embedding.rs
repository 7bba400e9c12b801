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

/// Bits that one pass of the sort looks at.
const DIGIT: u32 = 4;
/// Tokens that one thread of the sort counts.
const EACH: usize = 16;

impl Table {
    fn look_up(&self, draft: &mut Draft) {
        let [tokens, table, y] = draft.operands(0);
        let shape = Shape::each(self.tokens * self.columns, draft.at_once());
        let [whole, each] = [self.whole, self.each].map(count);
        let extents = [count(self.tokens), count(self.columns), whole, each, self.part];
        let arguments = [tokens, table, y].into_iter().chain(extents).collect();
        draft.narrow((EMBEDDING, "look_up"), shape, arguments);
    }

    /// Sorts the tokens, then every row of the table gathers its own.
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
        let counts = self.counts(draft);
        for shift in (0..bits).step_by(DIGIT as usize) {
            self.sort(draft, [keys, order, counts, other_keys, other_order], shift);
            (keys, other_keys) = (other_keys, keys);
            (order, other_order) = (other_order, order);
        }
        let (columns, adding) = (count(self.columns), adding(store));
        let arguments =
            vec![keys, order, dy, dtable, count(self.tokens), columns, adding];
        let grid = [extent(self.each), 1, 1];
        let shape = Shape { grid, block: [128, 1, 1], shared: Bytes(0) };
        draft.pair((EMBEDDING, "gather_slopes"), shape, arguments);
    }

    /// Threads of the sort.
    fn threads(&self) -> usize {
        self.tokens.div_ceil(EACH).next_multiple_of(256)
    }

    fn counts(&self, draft: &mut Draft) -> Argument {
        Argument::Address(draft.scratch(self.threads() * (4 << DIGIT)))
    }

    /// Orders keys by one digit, equal ones as they are.
    fn sort(&self, draft: &mut Draft, places: [Argument; 5], shift: u32) {
        let [keys, order, counts, other_keys, other_order] = places;
        let grid = [extent(self.threads() / 256), 1, 1];
        let shape = Shape { grid, block: [256, 1, 1], shared: Bytes(0) };
        let (tokens, each, shift) =
            (count(self.tokens), count(EACH), Argument::Unsigned(shift));
        let mut launch = |symbol: &str, shape, arguments| {
            draft.launch(EMBEDDING, symbol.to_owned(), shape, arguments);
        };
        launch("count_digits", shape, vec![keys, counts, tokens, each, shift]);
        let all = count(self.threads() << DIGIT);
        launch("sum_before", Shape::block(1024), vec![counts, all]);
        let arguments =
            vec![keys, order, counts, other_keys, other_order, tokens, each, shift];
        launch("move_digits", shape, arguments);
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
