//! What calls look up by: numbers that an input brings, in place or copied, and that all exist.

use crate::tiny::{Letters, call, chain, id};
use roundelay_schedule::{Call, Element, Operand, Schedule, check};

const PARAMETERS: u32 = 0;
const TOKENS: u32 = 1;
const ACTIVATION: u32 = 2;
const LOSS: u32 = 3;
const COPIES: u32 = 4;

/// A call whose operands in `numbers` are whole numbers.
fn of_numbers(kernel: &str, arguments: &[u32], numbers: &[u32]) -> Call {
    let mut call = call(kernel, arguments.iter().copied());
    let whole = |operand: &&mut Operand| numbers.contains(&operand.argument);
    call.operands.iter_mut().filter(whole).for_each(|o| o.element = Element::I32);
    call
}

fn copy() -> Call {
    of_numbers("rw", &[TOKENS, COPIES], &[TOKENS, COPIES])
}

/// A look at the parameters by these numbers.
fn look_up(numbers: u32) -> Call {
    of_numbers("#rrw", &[PARAMETERS, numbers, ACTIVATION], &[numbers])
}

/// A forward pass of these calls, with tokens below a bound.
fn passing(bound: u64, calls: &[Call]) -> Schedule {
    let mut schedule = chain();
    let input = &mut schedule.job.inputs[id(0)];
    (input.element, input.bound) = (Element::I32, bound);
    let loss = call("rw", [ACTIVATION, LOSS]);
    schedule.routines[id(0)].calls = [calls, &[loss]].concat().into();
    schedule
}

fn told(bound: u64, calls: &[Call]) -> String {
    let found = check(passing(bound, calls), &Letters);
    found.expect_err("it looks up what there may not be").to_string()
}

/// Tables have rows for all that inputs may hold.
#[test]
fn what_is_looked_up_exists() {
    for calls in [&[look_up(TOKENS)][..], &[copy(), look_up(COPIES)]] {
        for bound in [1, 8] {
            assert!(check(passing(bound, calls), &Letters).is_ok());
        }
        for bound in [0, 9] {
            let told = told(bound, calls);
            let numbers = format!("numbers are below {bound} (0: any)");
            assert!(told.contains(&numbers), "{told}");
            assert!(told.contains("no more than 8 entries"), "{told}");
        }
    }
}

/// Bits that are no whole numbers of an input may be any number.
#[test]
fn what_is_looked_up_by_is_an_input() {
    let real = call("rw", [PARAMETERS, COPIES]);
    let of_reals = of_numbers("rw", &[PARAMETERS, COPIES], &[COPIES]);
    let cases = [
        (PARAMETERS, vec![]),
        (COPIES, vec![of_reals]),
        (COPIES, vec![real.clone()]),
        (COPIES, vec![copy(), real]),
    ];
    for (numbers, mut calls) in cases {
        calls.push(look_up(numbers));
        let told = told(8, &calls);
        let expected =
            format!("looks up by argument {numbers}, whose numbers no input brings");
        assert!(told.contains(&expected), "{told}");
    }
}
