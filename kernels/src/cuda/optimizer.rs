//! Optimizers: the table of exceptional ranges, the gradient's norm where it is clipped, constants
//! of the step, and the step of every element. And the square of a norm alone, for those who have
//! a part of the gradient.

use super::{
    Argument,
    draft::{Draft, NOWHERE, Shape, adding, count},
    form::{Form, Role},
    source::OPTIMIZER,
};
use crate::optimizer::{Adamw, Common, Copied, Master, Norm, Sgd, Squares};
use Role::{Either, Narrow, Wide};
use roundelay_schedule::Treatment;

/// Words that one launch writes into a table.
const WORDS: usize = 32;
/// Numbers of `Constants` in `optimizer.cu`.
const CONSTANTS: usize = 4;

/// What both rules need before elements are stepped.
struct Prepared {
    ranges: [Argument; 3],
    /// Sums of squares of the gradient, how many, and the sum of all where that is given.
    squares: [Argument; 3],
    clip: Argument,
    share: Argument,
    average: Argument,
    constants: Argument,
}

/// Of a call on this many elements whose last operand is the square of the norm, where it is given.
fn prepare(
    draft: &mut Draft,
    common: &Common,
    (elements, last): (usize, usize),
) -> Prepared {
    let ranges = ranges(draft, common);
    let share = Argument::Double(1.0 / common.micro_batches);
    let squares = match common.norm {
        Norm::Given => [NOWHERE, count(0), draft.operand(last)],
        Norm::Own if common.clip == 0.0 => [NOWHERE, count(0), NOWHERE],
        Norm::Own => {
            let [partial, blocks] =
                partial_squares(draft, "trained_squares", (elements, share), ranges);
            [partial, blocks, NOWHERE]
        }
    };
    let mut momenta = common.exceptions.iter().filter_map(|(.., rule)| rule.momentum());
    let average = Argument::Double(momenta.next_back().unwrap_or(0.0));
    let constants = draft.wide_scratch(CONSTANTS);
    let clip = Argument::Double(common.clip);
    Prepared { ranges, squares, clip, share, average, constants }
}

/// Sums of squares of pieces of operand 0, and how many there are.
fn partial_squares(
    draft: &mut Draft,
    name: &str,
    (elements, share): (usize, Argument),
    table: [Argument; 3],
) -> [Argument; 2] {
    let shape = Shape::each(elements, 8);
    let blocks = shape.grid[0] as usize;
    let partial = Argument::Address(draft.scratch(blocks * 8));
    let operands = [draft.operand(0), partial, count(elements), share];
    let arguments = operands.into_iter().chain(table).collect();
    let symbol = format!("{name}_{}", draft.types.either.name());
    draft.launch(OPTIMIZER, symbol, shape, arguments);
    [partial, count(blocks)]
}

/// Writes the ranges that are not decayed into scratch memory: the table, its length, and where
/// the slice starts in the stage's parameters.
fn ranges(draft: &mut Draft, common: &Common) -> [Argument; 3] {
    let words = common.exceptions.iter().map(|(begin, end, treatment)| {
        let kind = match treatment {
            Treatment::Decayed => 0,
            Treatment::Spared => 1,
            Treatment::Averaged { .. } => 2,
        };
        [*begin, end | kind << 62]
    });
    table(draft, words.collect())
}

/// Writes rows of words into scratch memory: where they are, how many rows, and where the slice
/// starts in the stage's parameters.
fn table<const WIDTH: usize>(
    draft: &mut Draft,
    rows: Vec<[u64; WIDTH]>,
) -> [Argument; 3] {
    let words = rows.as_flattened();
    if words.is_empty() {
        return [NOWHERE, count(0), Argument::SliceOffset];
    }
    let table = Argument::Address(draft.scratch(words.len() * 8));
    for (piece, words) in words.chunks(WORDS).enumerate() {
        let length = Argument::Unsigned(words.len() as u32);
        let padded = words.iter().copied().chain(std::iter::repeat(0)).take(WORDS);
        let mut arguments = vec![table, count(piece * WORDS), length];
        arguments.extend(padded.map(Argument::Unsigned64));
        draft.launch(OPTIMIZER, "write_words".to_owned(), Shape::block(32), arguments);
    }
    [table, count(rows.len()), Argument::SliceOffset]
}

/// What each operand is stored in: gradient, parameter, next, then states, and the square of the
/// norm where it is given.
fn roles(states: usize, master: Master, common: &Common) -> Vec<Role> {
    let states = last(states, master) - 3 + common.behind();
    let mut roles = vec![Either, Narrow, Narrow];
    roles.extend(std::iter::repeat_n(Wide, states));
    roles
}

/// The operand behind all states.
fn last(states: usize, master: Master) -> usize {
    match master {
        Master::Absent => 3 + states,
        Master::Kept => 4 + states,
    }
}

/// The master copy behind the other states.
fn master(draft: &Draft, master: Master, operand: usize) -> Argument {
    match master {
        Master::Absent => NOWHERE,
        Master::Kept => draft.operand(operand),
    }
}

impl Form for Squares {
    fn roles(&self) -> Vec<Role> {
        vec![Either, Wide]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let rows = self.copied.iter();
        let rows = rows.map(|Copied { begin, end, copies }| [*begin, *end, *copies]);
        let table = table(draft, rows.collect());
        let share = Argument::Double(1.0 / self.micro_batches);
        let [partial, blocks] =
            partial_squares(draft, "own_squares", (self.count, share), table);
        let arguments = vec![partial, blocks, draft.operand(1), adding(self.store)];
        draft.wide((OPTIMIZER, "squares"), Shape::block(256), arguments);
        Ok(())
    }
}

impl Form for Sgd {
    fn roles(&self) -> Vec<Role> {
        roles(usize::from(self.momentum != 0.0), self.master, &self.common)
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let last = last(usize::from(self.momentum != 0.0), self.master);
        let Prepared { ranges, squares, clip, share, average, constants } =
            prepare(draft, &self.common, (self.count, last));
        let arguments = [constants, Argument::Scalars].into_iter().chain(squares);
        let arguments = arguments.chain([clip, share]).collect();
        draft.wide((OPTIMIZER, "sgd_constants"), Shape::block(256), arguments);
        let [gradient, parameter, next] = draft.operands(0);
        let (momentum, behind) = match self.momentum == 0.0 {
            true => (NOWHERE, 3),
            false => (draft.operand(3), 4),
        };
        let master = master(draft, self.master, behind);
        let states = [gradient, parameter, next, momentum, master, constants];
        let rule = [
            share,
            average,
            Argument::Double(self.common.weight_decay),
            Argument::Double(self.momentum),
            Argument::Unsigned(self.nesterov.into()),
        ];
        let extents = [count(self.count)].into_iter().chain(ranges);
        let arguments = states.into_iter().chain(extents).chain(rule).collect();
        let shape = Shape::each(self.count, draft.at_once());
        draft.pair((OPTIMIZER, "sgd"), shape, arguments);
        Ok(())
    }
}

impl Form for Adamw {
    fn roles(&self) -> Vec<Role> {
        roles(2, self.master, &self.common)
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let Prepared { ranges, squares, clip, share, average, constants } =
            prepare(draft, &self.common, (self.count, last(2, self.master)));
        let [beta1, beta2] = self.betas.map(Argument::Double);
        let decay = Argument::Double(self.common.weight_decay);
        let arguments = [constants, Argument::Scalars].into_iter().chain(squares);
        let arguments = arguments.chain([clip, share, beta1, beta2, decay]).collect();
        draft.wide((OPTIMIZER, "adamw_constants"), Shape::block(256), arguments);
        let [gradient, parameter, next, mean, square] = draft.operands(0);
        let master = master(draft, self.master, 5);
        let states = [gradient, parameter, next, mean, square, master, constants];
        let rule = [share, average, beta1, beta2, Argument::Double(self.epsilon)];
        let extents = [count(self.count)].into_iter().chain(ranges);
        let arguments = states.into_iter().chain(extents).chain(rule).collect();
        let shape = Shape::each(self.count, draft.at_once());
        draft.pair((OPTIMIZER, "adamw"), shape, arguments);
        Ok(())
    }
}
