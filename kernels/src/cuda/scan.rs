//! Counting words of memory.

use super::{
    Argument, CallPlace, Function, Launch,
    draft::{count, extent},
    source::SCAN,
};
use roundelay_schedule::Bytes;

/// How many of each `each` words of operand 0, which has `words` words of 32 bits, equal `word`:
/// a whole number of 32 bits for each run goes to operand 1.
pub fn count_words(words: usize, each: usize, word: u32) -> Launch {
    let operand = |index| Argument::Address(CallPlace::Operand(index, Bytes(0)));
    let function = Function { source: SCAN, symbol: "count_words".to_owned() };
    Launch {
        function,
        grid: [extent(words.div_ceil(each.max(1))), 1, 1],
        block: [256, 1, 1],
        shared: Bytes(0),
        arguments: vec![
            operand(0),
            count(words),
            count(each),
            Argument::Unsigned(word),
            operand(1),
        ],
    }
}
