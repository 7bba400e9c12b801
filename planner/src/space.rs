//! The search space as data: the outline of every plan to try, and how many combinations are no
//! plan, with the reason.

pub(crate) mod counts;
pub(crate) mod cuts;
pub(crate) mod cutting;
pub(crate) mod decision;
pub(crate) mod endless;
pub(crate) mod equal;
pub(crate) mod excluded;
pub(crate) mod family;
pub(crate) mod grid;
pub(crate) mod laws;
pub(crate) mod outline;
pub(crate) mod pieces;
pub(crate) mod reason;
pub(crate) mod spread;
pub(crate) mod tied;
pub(crate) mod values;
pub(crate) mod windows;

use crate::{
    parallel::parallel,
    space::{
        counts::Counts,
        cuts::{Chain, Messages, Users},
        equal::{SameRules, Superior, equal},
        excluded::{Excluded, Exclusions, Sizes},
        family::{Clash, Family},
        grid::Grid,
        laws::{
            check_cuts, check_delay, check_devices, check_end, check_shards, check_sizes,
        },
        outline::Outline,
        pieces::Pieces,
        reason::Reason,
        tied::Tied,
        values::Values,
    },
};
use roundelay_dsl::{Choice, Program};
use roundelay_schedule::{Recompute, States};
use std::collections::{BTreeMap, BTreeSet};

/// What is searched.
#[derive(Clone, Debug, Default)]
pub struct Space {
    /// Name and values of every decision, in the order of the search.
    pub decisions: Vec<(&'static str, Vec<String>)>,
    /// Number of combinations of these values: this many plans, and what was dropped.
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
        let grid = Grid::new(&values);
        let ground = Ground::new(program, &values, &grid);
        let families = Family::all(
            &values.rules,
            &values.placements,
            &values.orders,
            &values.states,
        );
        let mut all = Filler::new(&ground, grid.clone());
        let lawful = |family: &Family| match family.check() {
            Ok(()) => true,
            Err(clash) => {
                all.clash(*family, clash);
                false
            }
        };
        let families: Vec<Family> = families.into_iter().filter(lawful).collect();
        let filled = parallel(&families, &|family| {
            let mut own = Filler::new(&ground, grid.clone());
            own.fill(*family);
            own.found
        });
        let Filler { mut found, .. } = all;
        filled.into_iter().for_each(|own| found.add(own));
        let Found { grid, depths, plans: pieces, exclusions, clashes, combinations } =
            found;
        let mut plans = Vec::with_capacity(pieces.len());
        pieces.into_iter().for_each(|piece| plans.extend(piece));
        let decisions = values.described(&grid, &depths);
        let mut dropped = exclusions.numbers();
        for (clash, number) in clashes {
            *dropped.entry(clash).or_default() += number;
        }
        let excluded = exclusions.into_all();
        let tied = Tied::new(&program.model, &ground.uncosted);
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

/// What all combinations share.
struct Ground<'a> {
    program: &'a Program,
    values: &'a Values,
    /// How many of the first stages are pinned.
    pinned: u32,
    /// Where the model can be cut.
    uncosted: Chain,
    /// Whether it can be cut as wanted, by the number of stages and where users may be.
    cuttable: BTreeMap<(u32, Users), Result<(), Reason>>,
}

impl<'a> Ground<'a> {
    fn new(program: &'a Program, values: &'a Values, grid: &Grid) -> Self {
        let uncosted = Chain::uncosted(&program.model);
        let check = |stages: u32, chain: &Chain| match &program.search.cuts {
            Some(cuts) => check_cuts(chain, cuts, stages),
            None => chain.check(stages).map_err(Reason::Uncuttable),
        };
        let stages: BTreeSet<u32> = grid.points.iter().map(|(_, s)| *s).collect();
        let mut cuttable = BTreeMap::new();
        for users in [Users::Together, Users::Apart] {
            let chain = uncosted.clone().with(users);
            cuttable.extend(stages.iter().map(|s| ((*s, users), check(*s, &chain))));
        }
        Self { program, values, pinned: pinned(program), cuttable, uncosted }
    }
}

/// What became of some combinations.
struct Found {
    grid: Grid,
    /// Depths of combinations that the program allows.
    depths: BTreeSet<u32>,
    plans: Pieces<Outline>,
    exclusions: Exclusions,
    /// Combinations of clashes that nobody asks for, by name.
    clashes: BTreeMap<&'static str, u64>,
    combinations: u64,
}

impl Found {
    /// Adds what became of later combinations, of other families.
    fn add(&mut self, later: Self) {
        self.grid.learn(later.grid);
        self.depths.extend(later.depths);
        self.plans.append(later.plans);
        self.exclusions.extend(later.exclusions);
        for (clash, number) in later.clashes {
            *self.clashes.entry(clash).or_default() += number;
        }
        self.combinations += later.combinations;
    }
}

/// Walks through combinations and sorts them into plans and exclusions.
struct Filler<'a> {
    ground: &'a Ground<'a>,
    rules: SameRules,
    found: Found,
}

impl<'a> Filler<'a> {
    fn new(ground: &'a Ground<'a>, grid: Grid) -> Self {
        let found = Found {
            grid,
            depths: BTreeSet::new(),
            plans: Pieces::default(),
            exclusions: Exclusions::default(),
            clashes: BTreeMap::new(),
            combinations: 0,
        };
        Self { ground, rules: SameRules::default(), found }
    }

    /// Counts a family that is none.
    fn clash(&mut self, family: Family, clash: Clash) {
        let values = self.ground.values;
        let number =
            self.found.grid.number(values, family) * values.recompute.len() as u64;
        self.found.combinations += number;
        let reason = Reason::Clash(clash);
        match self.is_asked_for(clash) {
            true => self.found.exclusions.add((family, Sizes::All), &reason, number),
            false => *self.found.clashes.entry(reason.name()).or_default() += number,
        }
    }

    fn fill(&mut self, family: Family) {
        let mut grid = std::mem::take(&mut self.found.grid);
        grid.each(self.ground.values, family, |grid, counts| {
            self.add(family, counts, grid);
        });
        self.found.grid = grid;
    }

    /// Adds the combinations with these numbers, for each first device and number of shards.
    fn add(&mut self, family: Family, counts: Counts, grid: &mut Grid) {
        let values = self.ground.values;
        let shards = grid.shards(values, family, counts);
        let needed = counts.devices(family, values.lists);
        let windows = grid.windows(values, needed);
        let each = values.recompute.len() as u64;
        let own = shards.len() as u64 * each;
        self.found.combinations += own * windows.len() as u64;
        if let Err(reason) = self.check(family, counts) {
            return self.drop(family, counts, &reason, own * windows.len() as u64);
        }
        for first_device in windows.iter().copied() {
            let counts = Counts { first_device, ..counts };
            let end = first_device.saturating_add(needed);
            match check_end(self.ground.program, end) {
                Err(reason) => self.drop(family, counts, &reason, own),
                Ok(()) => self.add_shards(family, (counts, needed), &shards),
            }
        }
    }

    /// Adds the combinations with each number of shards.
    fn add_shards(
        &mut self,
        family: Family,
        (counts, devices): (Counts, u32),
        shards: &[u32],
    ) {
        let each = self.ground.values.recompute.len() as u64;
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
        let all = &self.ground.values.recompute;
        let kept = if self.ground.pinned >= counts.stages { 1 } else { all.len() };
        let outline = |recompute: &Recompute| {
            let recompute = *recompute;
            let messages = Messages::default();
            Outline { family, counts, messages, recompute, devices }
        };
        self.found.plans.extend(all[..kept].iter().map(outline));
        if kept < all.len() {
            let pinned = Reason::Equal(Superior::Pinned);
            self.drop(family, counts, &pinned, (all.len() - kept) as u64);
        }
    }

    fn drop(&mut self, family: Family, counts: Counts, reason: &Reason, number: u64) {
        self.found.exclusions.add((family, Sizes::One(counts)), reason, number);
    }

    /// What depends neither on shards nor on the first device. Cheap checks first, so that no number
    /// is too large for the later ones.
    fn check(&self, family: Family, counts: Counts) -> Result<(), Reason> {
        let Counts { micro_batches: n, stages: s, .. } = counts;
        let program = self.ground.program;
        self.ground.values.check_stages(n, s)?;
        check_sizes(program, family, counts, &program.search.lists)?;
        let pins = program.search.pinned.iter().map(|pin| pin.last);
        if let Some(stage) = pins.filter(|last| *last >= s).max() {
            return Err(Reason::NoStage { stage });
        }
        let users = family.users(program, counts.slices);
        self.ground.cuttable[&(s, users)].clone()?;
        check_delay(family, n, s)?;
        if family.states != States::Hsdp {
            self.check_depth(family, counts)?;
        }
        let devices = counts.devices(family, self.ground.values.lists);
        check_devices(program, devices)
    }

    /// Whether parameters are divided among as many members as the program allows.
    fn check_depth(&self, family: Family, counts: Counts) -> Result<(), Reason> {
        let depth = counts.depth(family);
        match self.ground.program.search.depth.allows(depth.into()) {
            true => Ok(()),
            false => Err(Reason::OtherDepth { depth }),
        }
    }

    fn check_last(&mut self, family: Family, counts: Counts) -> Result<(), Reason> {
        check_shards(family, counts)?;
        self.check_depth(family, counts)?;
        self.found.depths.insert(counts.depth(family));
        match equal(self.ground.values, family, counts, &mut self.rules) {
            Some(equal) => Err(Reason::Equal(equal)),
            None => Ok(()),
        }
    }

    /// Whether somebody may wonder about a clash: orders and states that are left open follow
    /// rule and placement without a word.
    fn is_asked_for(&self, clash: Clash) -> bool {
        let search = &self.ground.program.search;
        match clash {
            Clash::WrongOrder { .. } => search.order != Choice::Open,
            Clash::UnitsNeedDevices { .. } => search.placement != Choice::Open,
            Clash::States(_) => search.states != Choice::Open || !search.depth.allows(1),
        }
    }
}

#[cfg(test)]
mod tests;
