//! Layers that differ in what their attention sees, as few nested repeats.

use roundelay_dsl::Stretch;

/// What makes one layer unlike another.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Kind {
    /// How many positions one sees; none for all.
    pub(super) window: Option<u64>,
    /// Base of the rotary angles, as text.
    pub(super) rotary: Option<String>,
    /// What makes these smaller.
    pub(super) stretch: Stretch,
}

impl Kind {
    /// Everything is seen, and nothing turns.
    pub(super) const OPEN: Self =
        Self { window: None, rotary: None, stretch: Stretch::None };
}

/// Layers of one kind one after another.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Run {
    pub(super) kind: Kind,
    pub(super) count: usize,
}

/// A sequence of runs, and how often it comes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Group {
    pub(super) times: usize,
    pub(super) runs: Vec<Run>,
}

/// All layers as groups: the shortest period, then what is left of it.
pub(super) fn groups(kinds: &[Kind]) -> Vec<Group> {
    let whole = runs(kinds);
    let period = (1..kinds.len()).find(|period| repeats(kinds, *period));
    let Some(period) = period.filter(|_| whole.len() > 2) else {
        return vec![Group { times: 1, runs: whole }];
    };
    let times = kinds.len() / period;
    let first = Group { times, runs: runs(&kinds[..period]) };
    let rest = runs(&kinds[times * period..]);
    let rest = (!rest.is_empty()).then_some(Group { times: 1, runs: rest });
    [first].into_iter().chain(rest).collect()
}

/// Whether every layer is like the one `period` layers before.
fn repeats(kinds: &[Kind], period: usize) -> bool {
    kinds.iter().zip(&kinds[period..]).all(|(one, other)| one == other)
}

fn runs(kinds: &[Kind]) -> Vec<Run> {
    let parts = kinds.chunk_by(|one, other| one == other);
    parts.map(|part| Run { kind: part[0].clone(), count: part.len() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(windows: &[u64]) -> Vec<Kind> {
        let kind = |window: &u64| Kind {
            window: (*window > 0).then_some(*window),
            ..Kind::OPEN
        };
        windows.iter().map(kind).collect()
    }

    /// Times and counts of the groups, which together are all layers again.
    fn shape(windows: &[u64]) -> Vec<(usize, Vec<usize>)> {
        let kinds = kinds(windows);
        let groups = groups(&kinds);
        let mut all = Vec::new();
        for group in &groups {
            for _ in 0..group.times {
                for run in &group.runs {
                    all.extend(std::iter::repeat_n(run.kind.clone(), run.count));
                }
            }
        }
        assert_eq!(all, kinds);
        let counts = |group: &Group| group.runs.iter().map(|run| run.count).collect();
        groups.iter().map(|group| (group.times, counts(group))).collect()
    }

    #[test]
    fn layers_become_runs_and_periods() {
        assert_eq!(shape(&[0; 12]), [(1, vec![12])]);
        assert_eq!(shape(&[4, 0, 4, 0, 4, 0]), [(3, vec![1, 1])]);
        assert_eq!(shape(&[0, 0, 0, 4, 4]), [(1, vec![3, 2])]);
        let gemma: Vec<u64> =
            (1..=26).map(|layer| if layer % 6 == 0 { 0 } else { 512 }).collect();
        assert_eq!(shape(&gemma), [(4, vec![5, 1]), (1, vec![2])]);
        assert_eq!(shape(&[4, 0, 0, 4, 0]), [(1, vec![1, 2]), (1, vec![1, 1])]);
        assert_eq!(shape(&[4, 0, 5, 0]), [(1, vec![1, 1, 1, 1])]);
    }
}
