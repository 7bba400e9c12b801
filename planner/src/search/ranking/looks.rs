//! Looks at more plans where the limit was met. Bounds may be far from the truth, and then what was
//! clocked first is not what is best.

use super::{Options, Ranking, aim};
use crate::search::{
    Found, Open, candidate::Candidate, clerk::Clerk, progress::Progress, search,
};
use roundelay_schedule::Placement;
use std::collections::{BTreeMap, BTreeSet};

/// Plans that differ little from the first that are clocked at most.
const NEAR: usize = 64;

/// In this many decisions they differ at most: one often needs another, as an order its chunks.
const LITTLE: usize = 2;

impl Ranking {
    /// Looks again where something was found.
    pub(super) fn look_again(
        &mut self,
        found: &mut Found,
        clerk: &mut Clerk<'_>,
        options: &Options,
        progress: &mut Progress<'_>,
    ) {
        let likeliest = self.likeliest(found);
        let mut seen: BTreeSet<usize> = likeliest.iter().map(|own| own.number).collect();
        let all = Options { clocked_max: likeliest.len(), ..*options };
        self.add(found, likeliest, clerk, &all, progress);
        let mut room = NEAR;
        while room > 0 && !progress.stopped {
            let Some(first) = found.best.first() else { return };
            let number = first.number;
            let near = self.near(found, first, clerk, &seen);
            seen.extend(near.iter().map(|own| own.number));
            let some = Options { clocked_max: room, ..*options };
            room -= self.add(found, near, clerk, &some, progress);
            if found.best[0].number == number {
                return;
            }
        }
    }

    /// The likeliest plan of each placement and number of devices: bounds may be far from the truth for
    /// one and close to it for another, as where devices differ.
    fn likeliest(&self, found: &Found) -> Vec<Open> {
        let mut likeliest = BTreeMap::<(Placement, u32), Open>::new();
        for open in &found.left {
            let key = (open.outline.family.placement, open.outline.devices);
            let known = likeliest.entry(key).or_insert(*open);
            if open.score(&self.goal) < known.score(&self.goal) {
                *known = *open;
            }
        }
        likeliest.into_values().collect()
    }

    /// The plans that differ little from the first and may be better, of those that were not yet seen.
    fn near(
        &self,
        found: &Found,
        first: &Candidate,
        clerk: &Clerk<'_>,
        seen: &BTreeSet<usize>,
    ) -> Vec<Open> {
        let (outline, score) = (clerk.plans()[first.number], first.score(&self.goal));
        let is_near = |open: &&Open| {
            open.outline.differs(&outline) <= LITTLE
                && open.score(&self.goal) < score
                && !seen.contains(&open.number)
        };
        found.left.iter().filter(is_near).copied().collect()
    }

    /// Clocks the best of some plans, and keeps them among what was found; how many were clocked.
    fn add(
        &mut self,
        found: &mut Found,
        plans: Vec<Open>,
        clerk: &mut Clerk<'_>,
        options: &Options,
        progress: &mut Progress<'_>,
    ) -> usize {
        let aim = aim(&self.goal, options, options.top);
        let more = search(vec![plans], aim, clerk, progress);
        self.clocked += more.clocked;
        found.best.extend(more.best);
        self.goal.keep_best(&mut found.best, options.top);
        more.clocked
    }

    /// Looks again where nothing fitted: what is likeliest to fit is clocked first, as many plans again,
    /// however many are asked for.
    pub(super) fn smallest(
        &mut self,
        plans: Vec<Open>,
        clerk: &mut Clerk<'_>,
        options: &Options,
        progress: &mut Progress<'_>,
    ) -> Vec<Candidate> {
        let goal = self.goal.by_memory();
        let found = search(vec![plans], aim(&goal, options, usize::MAX), clerk, progress);
        self.clocked += found.clocked;
        let mut best = found.best;
        self.goal.keep_best(&mut best, options.top);
        best
    }
}
