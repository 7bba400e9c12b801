//! Cut points of stages on devices of their own: what crosses a cut takes time as well.

use super::{Chain, Uncuttable, cut_at};
use roundelay_schedule::{Bytes, Nanos};
use std::collections::BTreeSet;

/// Cuts a chain into stages on devices of their own, which send each other what crosses; `message`
/// is what that takes, one way.
///
/// Each stage waits for what it gets and gives, once in every micro-batch of a pipeline that has
/// no more under way than devices. So of all limits to what crosses any cut, each half as large
/// again as the one before, and none, it is taken that lets the slowest stage with its messages take
/// least when [`cut`] balances what the limit leaves; the largest of those that are equal.
///
/// # Errors
/// As [`cut`].
pub(crate) fn cut_apart(
    chain: &Chain,
    stages: u32,
    message: impl Fn(Bytes) -> Nanos,
) -> Result<Vec<u32>, Uncuttable> {
    chain.check(stages)?;
    let all = chain.positions();
    let crosses = |at: &usize| chain.crossing.get(*at).copied().unwrap_or_default();
    let fixed = |at: &usize| {
        *at == 0 || *at == chain.times.len() || chain.boundaries.contains(at)
    };
    let slowest = |cuts: &[u32]| {
        let sent: Vec<Nanos> =
            cuts.iter().map(|cut| message(crosses(&(*cut as usize)))).collect();
        let before = [Nanos(0)].into_iter().chain(sent.iter().copied());
        let behind = sent.iter().copied().chain([Nanos(0)]);
        let own = chain.stage_times(cuts).into_iter().zip(before.zip(behind));
        own.map(|(own, (before, behind))| own + before + behind).max()
    };
    let mut best = cut_at(chain, &all, stages);
    let mut least = slowest(&best);
    for limit in limits(all.iter().filter(|at| !fixed(at)).map(crosses)) {
        let left = all.iter().filter(|at| fixed(at) || crosses(at) <= limit);
        let left: Vec<usize> = left.copied().collect();
        if left.len() <= stages as usize {
            continue;
        }
        let cuts = cut_at(chain, &left, stages);
        let time = slowest(&cuts);
        if time < least {
            (best, least) = (cuts, time);
        }
    }
    Ok(best)
}

/// Some of these sizes, largest first: each is at least half as large again as the next.
fn limits(sizes: impl Iterator<Item = Bytes>) -> Vec<Bytes> {
    let mut limits: Vec<Bytes> = Vec::new();
    for size in sizes.collect::<BTreeSet<_>>() {
        if limits.last().is_none_or(|last| 2 * size.0 >= 3 * last.0) {
            limits.push(size);
        }
    }
    limits.reverse();
    limits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cuts::{Inside, cut},
        sample::Random,
    };

    /// Two layers of three nodes; inside them four times as much crosses as between them.
    fn layers() -> Chain {
        let crossing = [0, 4, 4, 1, 4, 4].map(Bytes).to_vec();
        Chain {
            reads: Vec::new(),
            times: [3, 3, 3, 3, 3, 1].map(Nanos).to_vec(),
            crossing,
            ties: Vec::new(),
            boundaries: Vec::new(),
            inside: Inside::Cut,
        }
    }

    /// Slow links move cuts to where little crosses, fast ones leave stages balanced.
    #[test]
    fn what_crosses_counts_as_much_as_it_takes() {
        let chain = layers();
        assert_eq!(cut(&chain, 3), Ok(vec![2, 4]));
        let at = |nanos: u64| cut_apart(&chain, 3, |bytes| Nanos(bytes.0 * nanos));
        assert_eq!(at(0), Ok(vec![2, 4]));
        assert_eq!(cut(&chain, 2), Ok(vec![3]));
        let uneven = Chain { times: [9, 1, 1, 1, 1, 9].map(Nanos).to_vec(), ..chain };
        let two = |nanos: u64| cut_apart(&uneven, 2, |bytes| Nanos(bytes.0 * nanos));
        assert_eq!(two(1_000), Ok(vec![3]));
        let steep = Chain { times: [1, 1, 1, 1, 1, 9].map(Nanos).to_vec(), ..uneven };
        let two = |nanos: u64| cut_apart(&steep, 2, |bytes| Nanos(bytes.0 * nanos));
        assert_eq!(two(0), Ok(vec![5]));
        // 9 + 4 · 1 against 11 + 1 · 1, and 9 + 4 · 0.
        assert_eq!(two(1), Ok(vec![3]));
    }

    /// By its own measure no cut that balances alone is better, and equal sizes change nothing.
    #[test]
    fn no_balanced_cut_sends_less() {
        let mut random = Random::new(6);
        for round in 0..400 {
            let nodes = 2 + random.below(9);
            let mut draw = |bound| (0..nodes).map(|_| random.below(bound)).collect();
            let (times, sizes): (Vec<u64>, Vec<u64>) = (draw(6), draw(9));
            let crossing =
                sizes.into_iter().map(|own| if round % 4 == 0 { 5 } else { own });
            let chain = Chain {
                reads: Vec::new(),
                times: times.into_iter().map(Nanos).collect(),
                crossing: crossing.map(Bytes).collect(),
                ties: Vec::new(),
                boundaries: Vec::new(),
                inside: Inside::Cut,
            };
            let stages = 1 + u32::try_from(random.below(4)).unwrap();
            let Ok(balanced) = cut(&chain, stages) else { continue };
            let apart = cut_apart(&chain, stages, |bytes| Nanos(bytes.0)).unwrap();
            let slowest = |cuts: &[u32]| {
                let sent = |cut: Option<&u32>| {
                    cut.map_or(0, |cut| chain.crossing[*cut as usize].0)
                };
                let times = chain.stage_times(cuts).into_iter().enumerate();
                let stage = |(number, own): (usize, Nanos)| {
                    let before =
                        number.checked_sub(1).and_then(|number| cuts.get(number));
                    own.0 + sent(before) + sent(cuts.get(number))
                };
                times.map(stage).max()
            };
            assert!(slowest(&apart) <= slowest(&balanced), "{chain:?}");
            if round % 4 == 0 {
                assert_eq!(apart, balanced);
            }
        }
    }
}
