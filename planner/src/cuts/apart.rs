//! Cut points of stages on devices of their own: what crosses a cut takes time as well.

use super::{Chain, Uncuttable, Uneven, cut_at, uneven::Roomy};
use roundelay_schedule::{Bytes, Nanos};

/// What stages take.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Speeds<'a> {
    /// What the chain says, wherever they are.
    Alike,
    /// Each what it takes on its devices.
    Uneven(Uneven<'a>),
}

impl Speeds<'_> {
    fn cut_at(&self, chain: &Chain, positions: &[usize], stages: u32) -> Roomy {
        match self {
            Speeds::Alike => {
                Roomy { cuts: cut_at(chain, positions, stages), has_room: true }
            }
            Speeds::Uneven(uneven) => uneven.cut_at(chain, positions),
        }
    }
}

/// The cuts among which stages on devices of their own choose.
pub(crate) struct Apart {
    /// Balanced among all places, as [`super::cut`] does it.
    pub balanced: Vec<u32>,
    /// Balanced among the places where least crosses.
    pub narrow: Vec<u32>,
}

impl Apart {
    /// Both of a chain, for stages that take so much.
    ///
    /// # Errors
    /// As [`super::cut`].
    pub(crate) fn new(
        chain: &Chain,
        stages: u32,
        speeds: Speeds<'_>,
    ) -> Result<Self, Uncuttable> {
        chain.check(stages)?;
        let balanced = speeds.cut_at(chain, &chain.positions(), stages);
        Ok(Self::beside(balanced, (chain, stages, speeds)))
    }

    /// Both of stages that are alike, whose balanced cuts are known.
    pub(crate) fn of_alike(chain: &Chain, stages: u32, balanced: Vec<u32>) -> Self {
        let balanced = Roomy { cuts: balanced, has_room: true };
        Self::beside(balanced, (chain, stages, Speeds::Alike))
    }

    fn beside(
        balanced: Roomy,
        (chain, stages, speeds): (&Chain, u32, Speeds<'_>),
    ) -> Self {
        let positions = narrow(chain, &chain.positions(), stages);
        let narrow = speeds.cut_at(chain, &positions, stages);
        let keeps = narrow.has_room || !balanced.has_room;
        let narrow = if keeps { narrow.cuts } else { balanced.cuts.clone() };
        Self { balanced: balanced.cuts, narrow }
    }

    /// The cuts of stages that send each other what crosses; `message` is what that takes at the
    /// cut of a number, one way.
    ///
    /// Each stage waits for what it gets and gives, once in every micro-batch of a pipeline that
    /// has no more under way than devices. So that way to cut is taken whose slowest stage with
    /// its messages takes less; the first where they are equal.
    pub(crate) fn best(
        &self,
        (chain, speeds): (&Chain, Speeds<'_>),
        message: impl Fn(usize, Bytes) -> Nanos,
    ) -> &[u32] {
        let [balanced, narrow] = [&self.balanced, &self.narrow].map(|cuts| {
            let times = match speeds {
                Speeds::Alike => chain.stage_times(cuts),
                Speeds::Uneven(uneven) => uneven.stage_times(cuts),
            };
            slowest((chain, times), cuts, &message)
        });
        if narrow < balanced { &self.narrow } else { &self.balanced }
    }
}

/// The ends, all boundaries, and of the others those where least crosses: as many sizes of it as
/// leave a place for each stage.
fn narrow(chain: &Chain, all: &[usize], stages: u32) -> Vec<usize> {
    let crosses = |at: usize| chain.crossing.get(at).copied().unwrap_or_default();
    let is_fixed = |at: usize| {
        at == 0 || at == chain.times.len() || chain.boundaries.binary_search(&at).is_ok()
    };
    let mut sizes: Vec<Bytes> =
        all.iter().filter(|at| !is_fixed(**at)).map(|at| crosses(*at)).collect();
    sizes.sort_unstable();
    let fixed = all.iter().filter(|at| is_fixed(**at)).count();
    // So many stages begin at places that are not fixed, and one position more ends the last.
    let wanted = (stages as usize + 1).saturating_sub(fixed);
    let limit = sizes.get(wanted.saturating_sub(1)).copied().unwrap_or(Bytes(u64::MAX));
    let left = all.iter().filter(|at| is_fixed(**at) || crosses(**at) <= limit);
    left.copied().collect()
}

/// What the slowest of stages with these times takes with the messages before and behind it.
fn slowest(
    (chain, times): (&Chain, Vec<Nanos>),
    cuts: &[u32],
    message: impl Fn(usize, Bytes) -> Nanos,
) -> Option<Nanos> {
    let crosses =
        |cut: u32| chain.crossing.get(cut as usize).copied().unwrap_or_default();
    let sent: Vec<Nanos> = cuts
        .iter()
        .enumerate()
        .map(|(number, cut)| message(number, crosses(*cut)))
        .collect();
    let before = [Nanos(0)].into_iter().chain(sent.iter().copied());
    let behind = sent.iter().copied().chain([Nanos(0)]);
    let own = times.into_iter().zip(before.zip(behind));
    own.map(|(own, (before, behind))| own + before + behind).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cuts::{Inside, cut},
        sample::Random,
    };

    fn chain(times: &[u64], crossing: &[u64]) -> Chain {
        Chain {
            reads: Vec::new(),
            times: times.iter().copied().map(Nanos).collect(),
            crossing: crossing.iter().copied().map(Bytes).collect(),
            ties: Vec::new(),
            boundaries: Vec::new(),
            inside: Inside::Cut,
        }
    }

    /// Slow links move cuts to where little crosses, fast ones leave stages balanced: two layers
    /// of three nodes, inside of which four times as much crosses as between them.
    #[test]
    fn what_crosses_counts_as_much_as_it_takes() {
        let layers = chain(&[1, 1, 1, 1, 1, 9], &[0, 4, 4, 1, 4, 4]);
        let apart = Apart::new(&layers, 2, Speeds::Alike).unwrap();
        let at = |nanos: u64| {
            Ok(apart
                .best((&layers, Speeds::Alike), |_, bytes| Nanos(bytes.0 * nanos))
                .to_vec())
        };
        assert_eq!(at(0), cut(&layers, 2));
        assert_eq!(at(0), Ok(vec![5]));
        // 9 + 4 against 11 + 1.
        assert_eq!(at(1), Ok(vec![3]));
        assert_eq!(at(1_000), Ok(vec![3]));
    }

    /// Stages that share a device send nothing between them, wherever they are cut.
    #[test]
    fn each_cut_has_a_link_of_its_own() {
        let layers = chain(&[1, 1, 1, 1, 1, 9], &[0, 4, 4, 1, 4, 4]);
        let only = |slow: usize| {
            let message = |number, bytes: Bytes| match number == slow {
                true => Nanos(bytes.0),
                false => Nanos(0),
            };
            Ok(Apart::new(&layers, 2, Speeds::Alike)
                .unwrap()
                .best((&layers, Speeds::Alike), message)
                .to_vec())
        };
        assert_eq!(only(0), Ok(vec![3]));
        assert_eq!(only(1), cut(&layers, 2));
    }

    /// By its own measure balancing alone is never better, and where as much crosses everywhere
    /// nothing changes.
    #[test]
    fn no_balanced_cut_sends_less() {
        let mut random = Random::new(6);
        let mut better = 0;
        for round in 0..400 {
            let nodes = 2 + random.below(9);
            let mut draw =
                |bound| -> Vec<u64> { (0..nodes).map(|_| random.below(bound)).collect() };
            let (times, mut crossing) = (draw(6), draw(9));
            if round % 4 == 0 {
                crossing.fill(5);
            }
            let chain = chain(&times, &crossing);
            let stages = 1 + u32::try_from(random.below(4)).unwrap();
            let Ok(balanced) = cut(&chain, stages) else { continue };
            let message = |_, bytes: Bytes| Nanos(bytes.0);
            let apart = Apart::new(&chain, stages, Speeds::Alike).unwrap();
            assert_eq!(apart.balanced, balanced);
            let apart = apart.best((&chain, Speeds::Alike), message).to_vec();
            let [one, other] = [&apart, &balanced]
                .map(|cuts| slowest((&chain, chain.stage_times(cuts)), cuts, message));
            assert!(one <= other, "{chain:?}");
            better += usize::from(one < other);
            assert!(round % 4 > 0 || apart == balanced, "{chain:?}");
        }
        assert!(better > 40, "{better} were better");
    }
}
