//! An affine walk over tokens with noise: x' = (a · x + c) mod v seven times out of eight, else
//! any token.

use super::{Example, stream};
use crate::data::inputs::Pair;
use roundelay_kernels::random::Stream;
use roundelay_schedule::{InputId, gcd};

const WALK: u64 = u64::from_le_bytes(*b"syn-walk");
const MAP: u64 = u64::from_le_bytes(*b"walk-map");

/// One token in this many is noise.
const NOISE: u64 = 8;

/// Tokens without a bound are below this.
const VOCABULARY: u64 = 256;

/// The walk; its map is a permutation, so that no token dies out.
#[derive(Clone, Debug)]
pub(in crate::data) struct Walk {
    pair: Pair,
    seed: u64,
    vocabulary: u64,
    factor: u64,
    shift: u64,
}

impl Walk {
    pub(super) fn new(pair: Pair, seed: u64) -> Self {
        let vocabulary = pair.declared.unwrap_or(VOCABULARY);
        let map = Stream::new(seed, &[MAP]);
        let shift = map.below(0, vocabulary);
        let mut factors = (1..1000).map(|k| 1 + map.below(k, vocabulary));
        let factor = factors.find(|factor| gcd(*factor, vocabulary) == 1).unwrap_or(1);
        Self { pair, seed, vocabulary, factor, shift }
    }

    pub(super) fn fill(&self, input: InputId, example: Example, row: &mut [u8]) {
        let walk = self.tokens(example).skip(self.pair.shift(input) as usize);
        for (number, token) in row.chunks_exact_mut(4).zip(walk) {
            number.copy_from_slice(&(token as i32).to_ne_bytes());
        }
    }

    fn tokens(&self, example: Example) -> impl Iterator<Item = u64> + '_ {
        let chance = stream(self.seed, WALK, example);
        let first = chance.below(0, self.vocabulary);
        let next = move |(place, token): &(u64, u64)| {
            let place = place + 2;
            let noise = chance.below(place, NOISE) == 0;
            let any = chance.below(place + 1, self.vocabulary);
            Some((place, if noise { any } else { self.follower(*token) }))
        };
        std::iter::successors(Some((0, first)), next).map(|(_, token)| token)
    }

    /// The token that follows when there is no noise.
    fn follower(&self, token: u64) -> u64 {
        (self.factor * token + self.shift) % self.vocabulary
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roundelay_schedule::Id;
    use std::collections::BTreeSet;

    fn walk(bound: u64, seed: u64) -> Walk {
        let (tokens, targets) = (InputId::new(0), InputId::new(1));
        let declared = Some(bound);
        Walk::new(Pair { tokens, targets, sequence: 4, declared }, seed)
    }

    #[test]
    fn a_vocabulary_of_all_integers_is_a_vocabulary() {
        let walk = walk(1 << 31, 3);
        let mut tokens = walk.tokens(Example::HeldOut { index: 0 }).take(100);
        assert!(tokens.any(|token| token >= VOCABULARY));
    }

    #[test]
    fn the_map_is_a_permutation() {
        for bound in [1, 2, 12, 97, 256] {
            for seed in 0..5 {
                let walk = walk(bound, seed);
                let all: BTreeSet<u64> = (0..bound).map(|x| walk.follower(x)).collect();
                assert_eq!(all.len() as u64, bound);
            }
        }
    }

    #[test]
    fn seven_in_eight_tokens_follow_the_rule() {
        let walk = walk(97, 3);
        let example = Example::Training { step: 5, index: 1 };
        let tokens: Vec<u64> = walk.tokens(example).take(8001).collect();
        let right = tokens.windows(2).filter(|w| w[1] == walk.follower(w[0])).count();
        assert!((6850..7200).contains(&right), "{right} of 8000");
        assert!(tokens.iter().all(|token| *token < 97));
    }

    #[test]
    fn targets_are_the_next_tokens() {
        let walk = walk(50, 9);
        let example = Example::HeldOut { index: 3 };
        let [mut tokens, mut targets] = [[0u8; 16]; 2];
        walk.fill(InputId::new(0), example, &mut tokens);
        walk.fill(InputId::new(1), example, &mut targets);
        assert_eq!(tokens[4..], targets[..12]);
    }
}
