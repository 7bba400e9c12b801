//! Optimizers: the table of exceptional ranges, the gradient's norm where it is clipped, constants
//! of the step, and the step of every element.

use super::{
    Argument,
    draft::{Draft, NOWHERE, Shape, count},
    form::{Form, Role},
    source::OPTIMIZER,
};
use crate::optimizer::{Adamw, Common, Master, Sgd};
use Role::{Either, Narrow, Wide};
use roundelay_schedule::Treatment;

/// Words that one launch writes into a table.
const WORDS: usize = 32;
/// Numbers of `Constants` in `optimizer.cu`.
const CONSTANTS: usize = 4;

/// What both rules need before elements are stepped.
struct Prepared {
    ranges: [Argument; 3],
    /// Sums of squares of the gradient, and how many.
    squares: [Argument; 2],
    clip: Argument,
    share: Argument,
    average: Argument,
    constants: Argument,
}

fn prepare(draft: &mut Draft, common: &Common, elements: usize) -> Prepared {
    let ranges = ranges(draft, common);
    let share = Argument::Double(1.0 / common.micro_batches);
    let squares = match common.clip == 0.0 {
        true => [NOWHERE, count(0)],
        false => {
            let shape = Shape::each(elements, 8);
            let blocks = shape.grid[0] as usize;
            let partial = Argument::Address(draft.scratch(blocks * 8));
            let operands = [draft.operand(0), partial, count(elements), share];
            let arguments = operands.into_iter().chain(ranges).collect();
            let symbol = format!("trained_squares_{}", draft.types.either.name());
            draft.launch(OPTIMIZER, symbol, shape, arguments);
            [partial, count(blocks)]
        }
    };
    let mut momenta = common.exceptions.iter().filter_map(|(.., rule)| rule.momentum());
    let average = Argument::Double(momenta.next_back().unwrap_or(0.0));
    let constants = draft.wide_scratch(CONSTANTS);
    let clip = Argument::Double(common.clip);
    Prepared { ranges, squares, clip, share, average, constants }
}

/// Writes the ranges that are not decayed into scratch memory: the table, its length, and where
/// the slice starts in the stage's parameters.
fn ranges(draft: &mut Draft, common: &Common) -> [Argument; 3] {
    let words: Vec<u64> = common
        .exceptions
        .iter()
        .flat_map(|(begin, end, treatment)| {
            let kind = match treatment {
                Treatment::Decayed => 0,
                Treatment::Spared => 1,
                Treatment::Averaged { .. } => 2,
            };
            [*begin, end | kind << 62]
        })
        .collect();
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
    [table, count(words.len() / 2), Argument::SliceOffset]
}

/// What each operand is stored in: gradient, parameter, next, then states.
fn roles(states: usize, master: Master) -> Vec<Role> {
    let states = match master {
        Master::Absent => states,
        Master::Kept => states + 1,
    };
    let mut roles = vec![Either, Narrow, Narrow];
    roles.extend(std::iter::repeat_n(Wide, states));
    roles
}

/// The master copy behind the other states.
fn master(draft: &Draft, master: Master, operand: usize) -> Argument {
    match master {
        Master::Absent => NOWHERE,
        Master::Kept => draft.operand(operand),
    }
}

impl Form for Sgd {
    fn roles(&self) -> Vec<Role> {
        roles(usize::from(self.momentum != 0.0), self.master)
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let Prepared { ranges, squares, clip, share, average, constants } =
            prepare(draft, &self.common, self.count);
        let arguments =
            vec![constants, Argument::Scalars, squares[0], squares[1], clip, share];
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
        roles(2, self.master)
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let Prepared { ranges, squares, clip, share, average, constants } =
            prepare(draft, &self.common, self.count);
        let [beta1, beta2] = self.betas.map(Argument::Double);
        let decay = Argument::Double(self.common.weight_decay);
        let norm = [squares[0], squares[1], clip, share];
        let arguments = [constants, Argument::Scalars].into_iter().chain(norm);
        let arguments = arguments.chain([beta1, beta2, decay]).collect();
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
