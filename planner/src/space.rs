//! The search space as data: the outline of every plan to try, and how many combinations are no
//! plan, with the reason.

use crate::{
    counts::Counts,
    cuts::Chain,
    equal::{SameRules, equal},
    excluded::{Excluded, Exclusions, Sizes},
    family::{Clash, Family},
    grid::Grid,
    laws::{check_cuts, check_delay, check_devices, check_shards, check_sizes},
    outline::Outline,
    reason::Reason,
    tied::Tied,
    values::Values,
};
use roundelay_dsl::{Choice, Program};
use roundelay_schedule::Recompute;
use std::collections::BTreeMap;

/// What is searched.
#[derive(Clone, Debug, Default)]
pub struct Space {
    /// Name and values of every decision, in the order of the search.
    pub decisions: Vec<(&'static str, Vec<String>)>,
    /// Number of combinations of these values: so many plans, and what was dropped.
    pub combinations: u64,
    /// Plans to try, in the order of the search.
    pub plans: Vec<Outline>,
    /// Combinations that are no plan to try, by the name of the reason.
    pub dropped: BTreeMap<&'static str, u64>,
    /// The same by family, with the one that came furthest; and plans that do not fit.
    pub excluded: Vec<Excluded>,
    /// What parameters with several users leave of the cut points.
    pub tied: Option<Tied>,
}

impl Space {
    /// Enumerates rule × placement × order × states, then N, S, v, R and shards, then what all
    /// stages compute again that the program does not pin; the cuts follow. What a law of the
    /// cheaper decisions rules out is counted, not listed.
    pub(crate) fn new(program: &Program) -> Self {
        let values = Values::new(program);
        let mut filler = Filler {
            program,
            grid: Grid::new(&values),
            pinned: pinned(program),
            uncosted: Chain::uncosted(&program.model),
            values: &values,
            rules: SameRules::default(),
            plans: Vec::new(),
            exclusions: Exclusions::default(),
            dropped: BTreeMap::new(),
            combinations: 0,
        };
        let families = Family::all(
            &values.rules,
            &values.placements,
            &values.orders,
            &values.states,
        );
        for family in families {
            filler.fill(family);
        }
        let Filler {
            plans, exclusions, dropped, combinations, uncosted, mut grid, ..
        } = filler;
        let decisions = values.described(&mut grid);
        let excluded = exclusions.into_all();
        let tied = Tied::new(&program.model, &uncosted);
        Self { decisions, combinations, plans, dropped, excluded, tied }
    }
}

/// How many of the first stages are pinned without a gap.
fn pinned(program: &Program) -> u32 {
    let mut pins: Vec<(u32, u32)> =
        program.search.pinned.iter().map(|pin| (pin.first, pin.last)).collect();
    pins.sort_unstable();
    pins.iter().fold(0, |end, (first, last)| match *first <= end {
        true => end.max(last.saturating_add(1)),
        false => end,
    })
}

/// Walks through the combinations and sorts them into plans and exclusions.
struct Filler<'a> {
    program: &'a Program,
    values: &'a Values,
    grid: Grid,
    /// How many of the first stages are pinned.
    pinned: u32,
    /// Where the model can be cut.
    uncosted: Chain,
    rules: SameRules,
    plans: Vec<Outline>,
    exclusions: Exclusions,
    dropped: BTreeMap<&'static str, u64>,
    combinations: u64,
}

impl Filler<'_> {
    fn fill(&mut self, family: Family) {
        if let Err(clash) = family.check(&self.program.train.optimizer) {
            let number = self.grid.number(self.values, family)
                * self.values.recompute.len() as u64;
            self.combinations += number;
            let reason = Reason::Clash(clash);
            *self.dropped.entry(reason.name()).or_default() += number;
            if self.is_asked_for(clash) {
                self.exclusions.add((family, Sizes::All), &reason, number);
            }
            return;
        }
        let mut all = Vec::new();
        self.grid.each(self.values, family, |_, counts| all.push(counts));
        for counts in all {
            self.add(family, counts);
        }
    }

    /// Adds the combinations with these numbers, for each number of shards.
    fn add(&mut self, family: Family, counts: Counts) {
        let shards = self.grid.shards(self.values, family, counts);
        let each = self.values.recompute.len() as u64;
        self.combinations += shards.len() as u64 * each;
        let devices = match self.check(family, counts) {
            Ok(devices) => devices,
            Err(reason) => {
                return self.drop(family, counts, &reason, shards.len() as u64 * each);
            }
        };
        for shards in shards.iter().copied() {
            let counts = Counts { shards, ..counts };
            match self.check_last(family, counts) {
                Err(reason) => self.drop(family, counts, &reason, each),
                Ok(()) => self.recompute(family, counts, devices),
            }
        }
    }

    /// Adds the plans with each way to compute again; one where all stages are pinned.
    fn recompute(&mut self, family: Family, counts: Counts, devices: u32) {
        let all = &self.values.recompute;
        let kept = if self.pinned >= counts.stages { 1 } else { all.len() };
        let outline = |recompute: &Recompute| {
            let recompute = *recompute;
            Outline { family, counts, recompute, devices }
        };
        self.plans.extend(all[..kept].iter().map(outline));
        if kept < all.len() {
            let pinned = Reason::Equal("every stage is pinned".into());
            self.drop(family, counts, &pinned, (all.len() - kept) as u64);
        }
    }

    fn drop(&mut self, family: Family, counts: Counts, reason: &Reason, number: u64) {
        *self.dropped.entry(reason.name()).or_default() += number;
        self.exclusions.add((family, Sizes::One(counts)), reason, number);
    }

    /// What does not depend on shards; gives the number of devices. Cheap checks first, so that no
    /// number is too large for the later ones.
    fn check(&self, family: Family, counts: Counts) -> Result<u32, Reason> {
        let Counts { micro_batches: n, stages: s, .. } = counts;
        let program = self.program;
        check_sizes(program, family, counts, &program.search.lists)?;
        let pins = program.search.pinned.iter().map(|pin| pin.last);
        if let Some(stage) = pins.filter(|last| *last >= s).max() {
            return Err(Reason::NoStage { stage });
        }
        match &program.search.cuts {
            Some(cuts) => check_cuts(&self.uncosted, cuts, s)?,
            None => self.uncosted.check(s).map_err(Reason::Uncuttable)?,
        }
        check_delay(family, n, s)?;
        let devices = counts.devices(family, self.values.lists);
        check_devices(program, devices).map(|()| devices)
    }

    fn check_last(&mut self, family: Family, counts: Counts) -> Result<(), Reason> {
        check_shards(family, counts)?;
        match equal(self.values, family, counts, &mut self.rules) {
            Some(equal) => Err(Reason::Equal(equal)),
            None => Ok(()),
        }
    }

    /// Whether somebody may wonder about a clash: orders and states that are left open follow
    /// rule and placement without a word.
    fn is_asked_for(&self, clash: Clash) -> bool {
        let search = &self.program.search;
        match clash {
            Clash::WrongOrder { .. } => search.order != Choice::Open,
            Clash::UnitsNeedDevices { .. } => search.placement != Choice::Open,
            Clash::StatesNeedMembers(_)
            | Clash::StatesNeedOneHolder(_)
            | Clash::HandoffNeedsWorkers
            | Clash::ShardsNeedSync(_)
            | Clash::HandoffNeedsCyclic => search.states != Choice::Open,
            Clash::ClipNeedsWholeGradient(_) => true,
        }
    }
}

#[cfg(test)]
mod tests;
