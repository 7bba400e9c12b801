//! What is asked of many calls, found once for those that differ in places alone: layers repeat.

use crate::Call;

/// Calls that are kept: to look through more would take longer than to ask again.
const KEPT: usize = 256;

/// What was found of calls that were asked for.
#[derive(Debug)]
pub struct Repeated<'a, T> {
    known: Vec<Known<'a, T>>,
    /// The one behind the last one that was asked for: layers repeat their calls in one order, so it
    /// is mostly the next.
    next: usize,
}

/// What was found of a call.
#[derive(Debug)]
struct Known<'a, T> {
    digest: u64,
    call: &'a Call,
    found: T,
}

impl<T> Default for Repeated<'_, T> {
    fn default() -> Self {
        Self { known: Vec::new(), next: 0 }
    }
}

impl<'a, T> Repeated<'a, T> {
    /// What `find` finds of a call, or found of one that differs in places alone.
    ///
    /// # Errors
    /// Those of `find`.
    pub fn of<E>(
        &mut self,
        call: &'a Call,
        find: impl FnOnce(&'a Call) -> Result<T, E>,
    ) -> Result<&T, E> {
        let digest = digest(call);
        let is_like =
            |known: &Known<'_, T>| known.digest == digest && known.call.is_like(call);
        let (earlier, later) = self.known.split_at(self.next);
        let number = match later.iter().chain(earlier).position(is_like) {
            Some(steps) => (self.next + steps) % self.known.len(),
            None => self.keep(Known { digest, call, found: find(call)? }),
        };
        self.next = number + 1;
        Ok(&self.known[number].found)
    }

    /// Where it is kept now, perhaps instead of another one.
    fn keep(&mut self, known: Known<'a, T>) -> usize {
        if self.known.len() < KEPT {
            self.known.push(known);
            return self.known.len() - 1;
        }
        let number = self.next % KEPT;
        self.known[number] = known;
        number
    }
}

/// A number that calls which are alike have in common, and most others do not.
fn digest(call: &Call) -> u64 {
    let extents = call.operands.iter().flat_map(|operand| operand.shape.iter());
    extents.fold(call.kernel.len() as u64, |digest, extent| {
        (digest.rotate_left(5) ^ extent).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bytes, Constants, Element, Operand};
    use std::convert::Infallible;

    fn call(length: u64, offset: u64) -> Call {
        let (argument, offset, element) = (0, Bytes(offset), Element::Real);
        let operand = Operand { argument, offset, element, shape: [length].into() };
        let (kernel, attributes) = ("copy".into(), Constants::default());
        Call { kernel, attributes, operands: vec![operand] }
    }

    #[test]
    fn each_call_is_asked_once_wherever_it_lies() {
        let lengths = [1, 2, 3, 1, 2, 3, 3, 1, 4, 1, 2, 3, 4, 2];
        let calls = lengths.into_iter().zip(0..).map(|(length, at)| call(length, 8 * at));
        let calls: Vec<Call> = calls.collect();
        let (mut repeated, mut asked) = (Repeated::default(), Vec::new());
        for (call, length) in calls.iter().zip(lengths) {
            let found = repeated.of(call, |call| {
                asked.push(call.operands[0].shape[0]);
                Ok::<u64, Infallible>(call.operands[0].shape[0])
            });
            assert_eq!(found, Ok(&length));
        }
        assert_eq!(asked, [1, 2, 3, 4]);
    }

    #[test]
    fn calls_of_one_digest_are_told_apart() {
        let copy = call(1, 0);
        let zero = Call { kernel: "zero".into(), ..copy.clone() };
        assert_eq!(digest(&copy), digest(&zero));
        let mut repeated = Repeated::default();
        for call in [&copy, &zero, &copy] {
            let found = repeated.of(call, |call| Ok::<_, Infallible>(&*call.kernel));
            assert_eq!(found, Ok(&&*call.kernel));
        }
    }

    #[test]
    fn of_many_calls_no_more_are_kept_than_so_many() {
        let calls: Vec<Call> = (0..3 * KEPT as u64).map(|n| call(1 + n, 0)).collect();
        let mut repeated = Repeated::default();
        for call in calls.iter().chain(&calls) {
            let length = call.operands[0].shape[0];
            assert_eq!(repeated.of(call, |_| Ok::<_, Infallible>(length)), Ok(&length));
        }
        assert_eq!(repeated.known.len(), KEPT);
    }

    #[test]
    fn what_is_not_found_is_asked_again() {
        let call = call(1, 0);
        let mut repeated = Repeated::default();
        assert_eq!(repeated.of(&call, |_| Err::<u64, _>("no")), Err("no"));
        assert_eq!(repeated.of(&call, |_| Ok::<_, &str>(7)), Ok(&7));
    }
}
