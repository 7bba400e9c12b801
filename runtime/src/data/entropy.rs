//! The bigram entropy of held-out data: what a model must beat to have learned more than which
//! token follows which.

use super::Corpus;

/// The largest vocabulary for which pairs are counted.
const VOCABULARY: u64 = 2048;

/// Mean of −ln p(b | a) in nats over all neighbouring tokens a, b of the held-out part, where p is
/// fitted on the training part; none for vocabularies above 2048, fewer than two tokens, or a source that is too
/// large to be kept in memory, because a walk through it takes its time.
///
/// p interpolates counts as in Witten and Bell 1991: with c(a) pairs that begin with a, d(a) of
/// them different, p(b | a) = (c(a, b) + d(a) p(b)) / (c(a) + d(a)); p(b) is the share of b with
/// one added to each count, so nothing has probability zero. The vocabulary ends at `bound`, or
/// earlier at the largest token, but for bytes has all 256.
pub(super) fn bigram(corpus: &Corpus, bound: u64) -> Option<f64> {
    let largest = corpus.largest().filter(|_| corpus.is_kept())?;
    let vocabulary = bound.min((u64::from(largest) + 1).max(256));
    let held_out = corpus.held_out();
    if vocabulary > VOCABULARY || held_out.end - held_out.start < 2 {
        return None;
    }
    let model = Bigram::fit(corpus.range(corpus.training()), vocabulary as usize);
    let pairs = held_out.end - held_out.start - 1;
    let followers = corpus.range(held_out.start + 1..held_out.end);
    let total: f64 =
        corpus.range(held_out).zip(followers).map(|(a, b)| -model.share(a, b).ln()).sum();
    Some(total / pairs as f64)
}

/// Counts of tokens and of pairs.
struct Bigram {
    vocabulary: usize,
    singles: Vec<f64>,
    pairs: Vec<u32>,
    begun: Vec<f64>,
    different: Vec<f64>,
}

impl Bigram {
    fn fit(tokens: impl Iterator<Item = u32>, vocabulary: usize) -> Self {
        let mut singles = vec![1u64; vocabulary];
        let mut pairs = vec![0u32; vocabulary * vocabulary];
        let mut last = None;
        for token in tokens.map(|token| token as usize) {
            singles[token] += 1;
            if let Some(before) = last.replace(token) {
                pairs[before * vocabulary + token] += 1;
            }
        }
        let all = singles.iter().sum::<u64>() as f64;
        let rows = || pairs.chunks_exact(vocabulary);
        let begun = rows().map(|row| row.iter().copied().map(f64::from).sum()).collect();
        let different =
            rows().map(|row| row.iter().filter(|count| **count > 0).count() as f64);
        Self {
            vocabulary,
            singles: singles.into_iter().map(|count| count as f64 / all).collect(),
            begun,
            different: different.collect(),
            pairs,
        }
    }

    /// p(b | a).
    fn share(&self, a: u32, b: u32) -> f64 {
        let (a, b) = (a as usize, b as usize);
        let [begun, different] = [self.begun[a], self.different[a]];
        if begun == 0.0 {
            return self.singles[b];
        }
        let count = f64::from(self.pairs[a * self.vocabulary + b]);
        (count + different * self.singles[b]) / (begun + different)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;
    use roundelay_kernels::random::Stream;

    fn corpus(bytes: &[u8], name: &str) -> Corpus {
        let folder = Scratch::new(name);
        folder.write("t", bytes);
        Corpus::text(folder.path(), &["t".into()]).unwrap()
    }

    #[test]
    fn shares_sum_to_one() {
        let stream = Stream::new(3, &[]);
        let tokens = (0..500).map(|k| stream.below(k, 6) as u32);
        let model = Bigram::fit(tokens, 9);
        for a in 0..9 {
            let sum: f64 = (0..9).map(|b| model.share(a, b)).sum();
            assert!((sum - 1.0).abs() < 1e-12, "{a}: {sum}");
            assert!((0..9).all(|b| model.share(a, b) > 0.0));
        }
    }

    #[test]
    fn a_share_follows_the_formula() {
        let model = Bigram::fit([0, 1, 0, 1, 0, 2].into_iter(), 3);
        let singles = [4.0 / 9.0, 3.0 / 9.0, 2.0 / 9.0];
        assert!((model.share(0, 1) - (2.0 + 2.0 * singles[1]) / 5.0).abs() < 1e-12);
        assert!((model.share(0, 0) - 2.0 * singles[0] / 5.0).abs() < 1e-12);
        assert_eq!(model.share(2, 0), singles[0], "2 begins no pair");
    }

    #[test]
    fn known_sources_have_their_entropy() {
        let stream = Stream::new(1, &[]);
        let fair: Vec<u8> =
            (0..100_000).map(|k| b"abcd"[stream.below(k, 4) as usize]).collect();
        let entropy = bigram(&corpus(&fair, "entropy-fair"), 256).unwrap();
        assert!((entropy - 4f64.ln()).abs() < 0.01, "{entropy}");
        let cycle: Vec<u8> = (0..100_000u32).map(|k| b"abcd"[k as usize % 4]).collect();
        let entropy = bigram(&corpus(&cycle, "entropy-cycle"), 256).unwrap();
        assert!(entropy < 1e-3, "{entropy}");
    }

    #[test]
    fn too_little_to_look_at_has_none() {
        assert_eq!(bigram(&corpus(b"", "entropy-none"), 256), None);
        assert_eq!(bigram(&corpus(b"abcdefghijk", "entropy-one"), 256), None);
    }
}
