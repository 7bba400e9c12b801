//! Plans that compute a share again of what one of the best plans of the space does, which computes whole
//! kinds again or nothing. A share may take less memory than the whole, for the last layers of a stage free
//! nothing when they are computed again.

use super::{Clerk, Grouping};
use crate::{search::candidate::Candidate, space::outline::Outline};
use roundelay_schedule::{Recompute, Share};

/// Shares of what is computed again are found so finely.
const SIXTEENTHS: u32 = 16;

/// Of this many of the best plans such shares are found.
const LESSENED: usize = 4;

/// Shares of what a plan computes again, the largest first; `none` has none.
fn shares(whole: Recompute) -> impl Iterator<Item = Recompute> {
    (1..SIXTEENTHS).rev().filter_map(move |some| sixteenths(whole, some))
}

fn sixteenths(whole: Recompute, some: u32) -> Option<Recompute> {
    whole.of(Share::nearest(f64::from(some) / f64::from(SIXTEENTHS))?)
}

impl Clerk<'_> {
    /// How many of the best plans of the space are kept where this many are asked for: a plan behind the
    /// first may be better than that where it computes less again.
    pub(crate) fn kept(&self, top: usize) -> usize {
        if self.listed.may_lessen() { top.max(LESSENED) } else { top }
    }

    /// The best plans, of which the first compute as little again as fits if they must, or where memory
    /// counts the share that takes least. No plan of the space is like that: it is better than the one it
    /// comes from.
    pub(crate) fn lessened(&mut self, mut best: Vec<Candidate>) -> Vec<Candidate> {
        if !self.listed.may_lessen() {
            return best;
        }
        for known in best.iter_mut().take(LESSENED) {
            let less = match self.listed.grouping {
                Grouping::Recompute => self.least(known),
                Grouping::None => self.smallest(known),
            };
            if let Some(less) = less {
                *known = less;
            }
        }
        best
    }

    /// A plan that computes as little again as fits, in sixteenths; none where it need not, or where that
    /// is the plan itself.
    fn least(&mut self, known: &Candidate) -> Option<Candidate> {
        let outline = self.listed.plans[known.number];
        if self.listed.is_alone(&outline) && !outline.is_sliced() {
            return None;
        }
        let (mut none, mut all, mut found) = (0, SIXTEENTHS, None);
        while all - none > 1 {
            let some = none + (all - none) / 2;
            let recompute = sixteenths(outline.recompute, some)?;
            let outline = Outline { recompute, ..outline };
            match self.evaluated(&outline, known.number) {
                Ok(candidate) => (all, found) = (some, Some(candidate)),
                Err(_) => none = some,
            }
        }
        found.filter(|found| found.step_time < known.step_time)
    }

    /// The share that takes least memory, of those before the first that takes more than a larger one;
    /// none where that is the plan itself.
    fn smallest(&mut self, known: &Candidate) -> Option<Candidate> {
        let (outline, mut smallest) = (self.listed.plans[known.number], None);
        let taken = |own: &Candidate| (own.device_peak, own.step_time);
        let mut least = taken(known);
        for recompute in shares(outline.recompute) {
            let outline = Outline { recompute, ..outline };
            match self.evaluated(&outline, known.number) {
                Ok(share) if share.device_peak > least.0 => break,
                Ok(share) if taken(&share) < least => {
                    (least, smallest) = (taken(&share), Some(share));
                }
                _ => {}
            }
        }
        smallest
    }
}
