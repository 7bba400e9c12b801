//! Cut points of stages on devices of their own: what crosses a cut takes time as well, for which stages
//! wait or not.

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
    /// The best cuts among some positions, where those among more of them may be known.
    fn cut_at(
        &self,
        chain: &Chain,
        (positions, stages): (&[usize], u32),
        wider: Option<&Roomy>,
    ) -> Roomy {
        match self {
            // How units share stages depends on the places.
            Speeds::Alike => match wider.filter(|_| chain.boundaries.is_empty()) {
                Some(wider) if wider.is_at(positions) => wider.clone(),
                _ => Roomy::anywhere(cut_at(chain, positions, stages)),
            },
            Speeds::Uneven(uneven) => uneven.cut_at(chain, positions, wider),
        }
    }
}

/// What messages cost the stages that send them. It depends on the order, and on how many micro-batches
/// are under way when they go, so plans are made for either.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Messages {
    /// Each stage waits for what it gets and gives, once in every micro-batch.
    #[default]
    Waited,
    /// Stages have other micro-batches to go on with while messages travel: then the slowest stage or
    /// message is what a step takes.
    Hidden,
}

impl Messages {
    /// Both, in the order of the search.
    pub const ALL: [Self; 2] = [Self::Waited, Self::Hidden];

    /// What a stage takes with the messages before and behind it.
    fn with(self, own: Nanos, [before, behind]: [Nanos; 2]) -> Nanos {
        match self {
            Self::Waited => own + before + behind,
            Self::Hidden => own.max(before).max(behind),
        }
    }
}

/// The cuts among which stages on devices of their own choose: the balanced ones among all places, as
/// [`super::cut`] makes them, then those among places where ever less crosses.
pub(crate) struct Apart(Vec<Timed>);

/// Cuts, and what the stages between them take.
struct Timed {
    cuts: Vec<u32>,
    times: Vec<Nanos>,
}

/// So many sizes of what crosses are tried at most.
const SIZES: usize = 16;

impl Apart {
    /// Those of a chain, for stages that take so much.
    ///
    /// # Errors
    /// As [`super::cut`].
    pub(crate) fn new(
        chain: &Chain,
        stages: u32,
        speeds: Speeds<'_>,
    ) -> Result<Self, Uncuttable> {
        chain.check(stages)?;
        let balanced = speeds.cut_at(chain, (&chain.positions(), stages), None);
        Ok(Self::beside(balanced, (chain, stages, speeds)))
    }

    /// Those of stages that are alike, whose balanced cuts are known.
    pub(crate) fn of_alike(chain: &Chain, stages: u32, balanced: Vec<u32>) -> Self {
        Self::beside(Roomy::anywhere(balanced), (chain, stages, Speeds::Alike))
    }

    fn beside(
        balanced: Roomy,
        (chain, stages, speeds): (&Chain, u32, Speeds<'_>),
    ) -> Self {
        let all = ever_narrower(balanced, (chain, stages, speeds));
        let timed = |cuts: Vec<u32>| {
            let times = match speeds {
                Speeds::Alike => chain.stage_times(&cuts),
                Speeds::Uneven(uneven) => uneven.stage_times(&cuts),
            };
            Timed { cuts, times }
        };
        Self(all.into_iter().map(timed).collect())
    }

    /// The cuts of stages that send each other what crosses; `message` is what that takes at the
    /// cut of a number, one way. Those are taken whose slowest stage with its messages takes least, where
    /// these are hidden then those whose stages would wait least; the first where they are equal.
    pub(crate) fn best(
        &self,
        chain: &Chain,
        messages: Messages,
        message: impl Fn(usize, Bytes) -> Nanos,
    ) -> &[u32] {
        let slowest = |own: &&Timed| {
            let with = |messages| slowest(chain, (own, messages), &message);
            (with(messages), with(Messages::Waited))
        };
        self.0.iter().min_by_key(slowest).map_or(&[], |own| &own.cuts)
    }
}

/// The balanced cuts, and those among places where ever less crosses that differ, as long as they have
/// room: among fewer places there is no more of it.
fn ever_narrower(
    balanced: Roomy,
    (chain, stages, speeds): (&Chain, u32, Speeds<'_>),
) -> Vec<Vec<u32>> {
    let positions = chain.positions();
    let mut all = vec![balanced.cuts.clone()];
    let mut last = balanced;
    for limit in limits(chain, &positions, stages) {
        let places = narrow(chain, &positions, limit);
        let own = speeds.cut_at(chain, (&places, stages), Some(&last));
        if last.has_room() && !own.has_room() {
            break;
        }
        if own.cuts != last.cuts {
            all.push(own.cuts.clone());
        }
        last = own;
    }
    all
}

/// What may cross where there is a cut, the most first: sizes of what does cross somewhere, of which
/// each leaves a place for every stage, and the largest leaves out some place.
fn limits(chain: &Chain, all: &[usize], stages: u32) -> Vec<Bytes> {
    let free = all.iter().copied().filter(|at| !is_fixed(chain, *at));
    let mut sizes: Vec<Bytes> = free.map(|at| crosses(chain, at)).collect();
    sizes.sort_unstable();
    let fixed = all.len() - sizes.len();
    // So many stages begin at places that are not fixed, and one position more ends the last.
    let wanted = (stages as usize + 1).saturating_sub(fixed);
    let mut sizes = sizes.split_off(wanted.saturating_sub(1).min(sizes.len()));
    sizes.dedup();
    sizes.pop_if(|most| {
        all.iter().all(|at| is_fixed(chain, *at) || crosses(chain, *at) <= *most)
    });
    let step = sizes.len().div_ceil(SIZES).max(1);
    sizes.into_iter().step_by(step).rev().collect()
}

/// The ends, all boundaries, and of the others those where no more crosses than a limit.
fn narrow(chain: &Chain, all: &[usize], limit: Bytes) -> Vec<usize> {
    let is_left = |at: &usize| is_fixed(chain, *at) || crosses(chain, *at) <= limit;
    all.iter().copied().filter(is_left).collect()
}

/// Whether a place is an end or a boundary, where stages begin and end whatever crosses.
fn is_fixed(chain: &Chain, at: usize) -> bool {
    at == 0 || at == chain.times.len() || chain.boundaries.binary_search(&at).is_ok()
}

fn crosses(chain: &Chain, at: usize) -> Bytes {
    chain.crossing.get(at).copied().unwrap_or_default()
}

/// What the slowest of the stages takes with the messages before and behind it.
fn slowest(
    chain: &Chain,
    (own, messages): (&Timed, Messages),
    message: impl Fn(usize, Bytes) -> Nanos,
) -> Option<Nanos> {
    let Timed { cuts, times } = own;
    let sent: Vec<Nanos> = cuts
        .iter()
        .enumerate()
        .map(|(number, cut)| message(number, crosses(chain, *cut as usize)))
        .collect();
    let before = [Nanos(0)].into_iter().chain(sent.iter().copied());
    let behind = sent.iter().copied().chain([Nanos(0)]);
    let own = times.iter().zip(before.zip(behind));
    own.map(|(own, (before, behind))| messages.with(*own, [before, behind])).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        costs::calls::Kinds,
        sample::Random,
        space::cuts::{InsideUnits, Users, cut},
    };

    fn chain(times: &[u64], crossing: &[u64]) -> Chain {
        Chain {
            reads: Vec::new(),
            times: times.iter().copied().map(Nanos).collect(),
            crossing: crossing.iter().copied().map(Bytes).collect(),
            ties: Vec::new(),
            users: Users::Together,
            boundaries: Vec::new(),
            inside: InsideUnits::Cut,
        }
    }

    /// Slow links move cuts to where little crosses, fast ones leave stages balanced: two layers
    /// of three nodes, inside of which four times as much crosses as between them.
    #[test]
    fn what_crosses_counts_as_much_as_it_takes() {
        let layers = chain(&[1, 1, 1, 1, 1, 9], &[0, 4, 4, 1, 4, 4]);
        let apart = Apart::new(&layers, 2, Speeds::Alike).unwrap();
        let at = |nanos: u64| {
            let message = |_, bytes: Bytes| Nanos(bytes.0 * nanos);
            Ok(apart.best(&layers, Messages::Waited, message).to_vec())
        };
        assert_eq!(at(0), cut(&layers, 2));
        assert_eq!(at(0), Ok(vec![5]));
        // 9 + 4 against 11 + 1.
        assert_eq!(at(1), Ok(vec![3]));
        assert_eq!(at(1_000), Ok(vec![3]));
    }

    /// Where least crosses of all there may be place for cuts that balance nothing: six layers of four
    /// nodes and a narrow head.
    #[test]
    fn less_may_cross_than_everywhere_and_more_than_where_least_does() {
        let times = [[1, 5, 1, 1].repeat(6), vec![1, 1]].concat();
        let crossing = [[2, 8, 8, 2].repeat(6), vec![2, 1]].concat();
        let layers = chain(&times, &[&[0], &crossing[1..]].concat());
        let apart = Apart::new(&layers, 2, Speeds::Alike).unwrap();
        let at = |nanos: u64| {
            let message = |_, bytes: Bytes| Nanos(bytes.0 * nanos);
            apart.best(&layers, Messages::Waited, message).to_vec()
        };
        assert_eq!(at(0), cut(&layers, 2).unwrap());
        // Between layers, where all stages but one are balanced.
        assert_eq!((at(5), at(100)), (vec![12], vec![25]));
    }

    /// What nobody waits for may cross until it takes longer than the stages do: two stages of 6 are one
    /// of 9 and one of 3 where less crosses.
    #[test]
    fn hidden_messages_move_cuts_when_they_are_slowest() {
        let layers = chain(&[3, 3, 3, 3], &[0, 9, 9, 2]);
        let apart = Apart::new(&layers, 2, Speeds::Alike).unwrap();
        let at = |messages, tenths: u64| {
            let message = |_, bytes: Bytes| Nanos(bytes.0 * tenths / 10);
            apart.best(&layers, messages, message).to_vec()
        };
        // 9 bytes take 5, 9 and 13.
        assert_eq!([6, 10, 15].map(|rate| at(Messages::Waited, rate)), [[3]; 3]);
        let hidden = [6, 10, 15].map(|rate| at(Messages::Hidden, rate));
        assert_eq!(hidden, [[2], [3], [3]]);
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
                .best(&layers, Messages::Waited, message)
                .to_vec())
        };
        assert_eq!(only(0), Ok(vec![3]));
        assert_eq!(only(1), cut(&layers, 2));
    }

    /// Cuts that stand are not looked for again, and are what would be found.
    #[test]
    fn every_limit_has_its_best_cuts() {
        let mut random = Random::new(8);
        let mut kept = 0;
        for round in 0..300 {
            let nodes = 4 + random.below(20);
            let mut draw =
                |bound| -> Vec<u64> { (0..nodes).map(|_| random.below(bound)).collect() };
            let (fast, slow, crossing) = (draw(6), draw(20), draw(9));
            let (elements, rooms) = (draw(5), draw(60));
            let chain = chain(&fast, &crossing);
            let times = [fast, slow].map(|own| own.into_iter().map(Nanos).collect());
            let stages = 1 + random.below(4);
            let mut kind = |_| Kinds::new([random.below(2) as usize].into_iter());
            let kinds: Vec<Kinds> = (0..stages).map(&mut kind).collect();
            let speeds = match round % 2 {
                0 => Speeds::Alike,
                _ => Speeds::Uneven(Uneven {
                    times: &times,
                    kinds: &kinds,
                    elements: &elements,
                    rooms: if round % 4 == 1 { &rooms[..kinds.len()] } else { &[] },
                }),
            };
            let stages = u32::try_from(stages).unwrap();
            let positions = chain.positions();
            let of = |places: &[usize]| speeds.cut_at(&chain, (places, stages), None);
            let first = of(&positions);
            let limits = limits(&chain, &positions, stages).into_iter();
            let narrow = limits.map(|most| of(&narrow(&chain, &positions, most)));
            let keeps = |own: &Roomy| own.has_room() || !first.has_room();
            let narrow = narrow.filter(keeps).map(|own| own.cuts);
            let mut all: Vec<Vec<u32>> =
                [first.cuts.clone()].into_iter().chain(narrow).collect();
            let before = all.len();
            all.dedup();
            kept += before - all.len();
            let apart = Apart::new(&chain, stages, speeds).unwrap();
            let found: Vec<Vec<u32>> = apart.0.into_iter().map(|own| own.cuts).collect();
            assert_eq!(found, all, "{chain:?}");
        }
        assert!(kept > 100, "{kept} were kept");
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
            assert_eq!(apart.0[0].cuts, balanced);
            for messages in Messages::ALL {
                let best = apart.best(&chain, messages, message).to_vec();
                let [one, other] = [&best, &balanced].map(|cuts| {
                    let (cuts, times) = (cuts.clone(), chain.stage_times(cuts));
                    slowest(&chain, (&Timed { cuts, times }, messages), message)
                });
                assert!(one <= other, "{chain:?}");
                better += usize::from(one < other);
                assert!(round % 4 > 0 || best == balanced, "{chain:?}");
            }
        }
        assert!(better > 40, "{better} were better");
    }
}
