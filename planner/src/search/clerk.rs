//! Who knows the costs of the plans of a program: their bounds, what each takes on the clock, and
//! which turned out to be none.

mod shares;

use crate::{
    costs::calls::Costs,
    parallel::{parallel, parallel_until, threads},
    search::{
        Judge, Open,
        bound::{Bound, Network},
        candidate::Candidate,
        evaluate::Evaluator,
        progress::Wish,
        sharpen::{Bounds, Sharpness},
    },
    space::{
        endless::endless_by,
        excluded::{Excluded, Exclusions, Sizes},
        family::Family,
        outline::Outline,
        pieces::Pieces,
        reason::Reason,
    },
};
use roundelay_dsl::{Choice, Objective, Program};
use roundelay_schedule::{Exactness, Images, Sequence};
use std::{collections::BTreeMap, ops::Range};

/// Plans by class of exactness.
pub(crate) type Classes = BTreeMap<Exactness, Pieces<Open>>;

/// Knows the costs of the plans of a program, and keeps what turned out.
pub(crate) struct Clerk<'a> {
    evaluator: Evaluator<'a>,
    listed: Listed<'a>,
    network: Network<'a>,
    /// Plans that turned out to be none.
    unfit: Exclusions,
    /// What ends work on several plans before all is done.
    wish: Wish,
}

/// The plans of a program and what is known of all of them.
struct Listed<'a> {
    program: &'a Program,
    bounds: Bounds<'a>,
    /// All plans, those of a group side by side.
    plans: Vec<Outline>,
    grouping: Grouping,
}

/// Parts in which plans are looked at for the first time, this many for each thread: some parts
/// have more plans of few stages than others.
const PARTS: usize = 16;

/// Which plans stand for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grouping {
    /// Of those that differ in what they compute again, the first that fits; but each for itself
    /// where room decides the order.
    Recompute,
    /// Each stands for itself.
    None,
}

impl Grouping {
    /// Whoever computes more again may take less memory.
    pub(crate) fn of(objective: Objective) -> Self {
        match objective {
            Objective::Memory => Grouping::None,
            Objective::StepTime
            | Objective::Devices
            | Objective::Cost
            | Objective::TimeToResult => Grouping::Recompute,
        }
    }
}

impl<'a> Clerk<'a> {
    /// Some plans with their first bounds, by class of exactness; those that are cut elsewhere if messages
    /// are hidden join them.
    pub(crate) fn new(
        program: &'a Program,
        costs: &'a Costs,
        plans: Vec<Outline>,
        grouping: Grouping,
    ) -> (Self, Classes) {
        let bounds = Bounds::new(program, costs, &plans);
        let plans = bounds.cut_apart(plans);
        let listed = Listed { program, bounds, plans, grouping };
        let parts = listed.parts(PARTS * threads());
        let found = parallel(&parts, &|part| listed.first(part.clone()));
        let (mut classes, mut unfit) = (Classes::new(), Exclusions::default());
        for (part, own) in found {
            for (class, plans) in part {
                classes.entry(class).or_default().append(plans);
            }
            unfit.extend(own);
        }
        let network = Network::new(&program.target);
        let evaluator = Evaluator::new(program, costs);
        let wish = Wish::default();
        (Self { evaluator, listed, network, unfit, wish }, classes)
    }

    /// From now on it begins no plan when this is wished.
    pub(crate) fn heed(&mut self, wish: Wish) {
        self.wish = wish;
    }

    /// The first plan of a group from this one on that may fit.
    pub(crate) fn open(&mut self, number: usize) -> Option<Open> {
        let group = number..self.listed.after(number);
        self.listed.open(group, &mut self.network, &mut self.unfit)
    }

    /// Where the group of a plan ends.
    pub(crate) fn after(&self, number: usize) -> usize {
        self.listed.after(number)
    }

    /// A plan with its costs and its sharpest bound, at a place in the order of the search.
    fn evaluated(
        &mut self,
        outline: &Outline,
        number: usize,
    ) -> Result<Candidate, Reason> {
        let bounds = &mut self.listed.bounds;
        let (plan, bound) = (bounds.plan(outline)?, bounds.sharpest(outline)?);
        self.evaluator.evaluate(&plan, (bound, number))
    }

    /// All plans.
    pub(crate) fn plans(&self) -> &[Outline] {
        &self.listed.plans
    }

    /// All plans, and how many turned out to be none.
    pub(crate) fn into_all(self) -> (Vec<Outline>, Vec<Excluded>) {
        (self.listed.plans, self.unfit.into_all())
    }
}

impl Listed<'_> {
    /// All plans in about this many parts of whole groups.
    fn parts(&self, number: usize) -> Vec<Range<usize>> {
        let size = self.plans.len().div_ceil(number.max(1)).max(1);
        let mut parts = Vec::new();
        let mut start = 0;
        while start < self.plans.len() {
            let last = (start + size).min(self.plans.len()) - 1;
            // A group ends where it does from any of its plans.
            let end = self.after(last);
            parts.push(start..end);
            start = end;
        }
        parts
    }

    /// The plans to look at of some whole groups, with their classes.
    fn first(&self, part: Range<usize>) -> (Classes, Exclusions) {
        let mut network = Network::new(&self.program.target);
        let mut found = Classes::new();
        let mut unfit = Exclusions::default();
        let mut number = part.start;
        while number < part.end {
            let alike = number..self.alike(number).min(part.end);
            number = alike.end;
            let own = alike.clone();
            let Some(open) = self.open(own, &mut network, &mut unfit) else { continue };
            let class = open.outline.exactness(self.program);
            let looked_at = if self.is_alone(&open.outline) { alike.len() } else { 1 };
            let plans = alike.take(looked_at);
            let each =
                plans.map(|number| Open { outline: self.plans[number], number, ..open });
            found.entry(class).or_default().extend(each);
        }
        (found, unfit)
    }

    /// The first of some plans that differ in what they compute again alone, if they may fit: their
    /// first bounds are equal.
    fn open(
        &self,
        alike: Range<usize>,
        network: &mut Network<'_>,
        unfit: &mut Exclusions,
    ) -> Option<Open> {
        let (number, outline) = (alike.start, self.plans[alike.start]);
        let found = self.bounds.first(&outline, network);
        match found.and_then(|bound| self.roomy(&outline, bound)) {
            Ok(bound) => {
                let sharpness = Sharpness::Nodes;
                Some(Open { outline, bound, sharpness, number })
            }
            Err(reason) => {
                unfit.add(which(&outline), &reason, alike.len() as u64);
                None
            }
        }
    }

    /// Whether a plan is looked at whatever others do that differ in what they compute again. They
    /// stand side by side, least first. Unless memory counts, the first that fits is the only one to
    /// look at: a rule, for one that does less of it is nearly always no slower, but no law
    /// (`tests/recompute.rs`), so it belongs to what the space is and not to what bounds prove.
    /// Plans whose order is found, whose rows share tokens or pixels, or whose sequences are cut in
    /// slices may well be faster with more of it: each of them stands alone.
    fn is_alone(&self, outline: &Outline) -> bool {
        let Outline { family, counts, .. } = outline;
        family.order.is_found()
            || outline.is_sliced()
            || counts.tensor.sequence == Sequence::Split
            || counts.tensor.images == Images::Split
            || counts.tensor.overdecompose > 1
            || self.grouping == Grouping::None
    }

    /// Whether a plan may compute less again than a plan of the space: where nobody says how much.
    fn may_lessen(&self) -> bool {
        self.program.search.recompute == Choice::Open
    }

    /// Where the group of a plan ends, of which the first that fits stands for all.
    fn after(&self, number: usize) -> usize {
        match self.is_alone(&self.plans[number]) {
            true => number + 1,
            false => self.alike(number),
        }
    }

    /// Where the plans end that differ from one in what they compute again alone.
    fn alike(&self, number: usize) -> usize {
        let own = &self.plans[number];
        let rest = self.plans[number + 1..].iter();
        number + 1 + rest.take_while(|other| own.is_alike(other)).count()
    }

    /// The bound of a plan that may fit, and ends.
    fn roomy(&self, outline: &Outline, bound: Bound) -> Result<Bound, Reason> {
        let first = outline.counts.first_device;
        let devices = first..first.saturating_add(outline.devices);
        let fits = self.bounds.room.for_bound(self.program, devices, &bound);
        fits.map_err(Reason::Memory)?;
        let endless = endless_by(&bound, self.program, outline);
        endless.map_or(Ok(bound), |endless| Err(Reason::Endless(endless)))
    }
}

fn which(outline: &Outline) -> (Family, Sizes) {
    (outline.family, Sizes::One(outline.counts))
}

impl Judge for Clerk<'_> {
    fn sharper(&mut self, open: &[Open]) -> Vec<Result<(Bound, Sharpness), Reason>> {
        let known: Vec<_> =
            open.iter().map(|open| (open.outline, open.bound, open.sharpness)).collect();
        let sharper = self.listed.bounds.sharper(&known).into_iter().zip(open);
        let roomy = |(found, open): (Result<(Bound, Sharpness), Reason>, &Open)| {
            let (bound, sharpness) = found?;
            Ok((self.listed.roomy(&open.outline, bound)?, sharpness))
        };
        sharper.map(roomy).collect()
    }

    fn clock(&mut self, round: &[Open]) -> Vec<Result<Candidate, Reason>> {
        let evaluated = |open: &Open| {
            let plan = self.listed.bounds.plan(&open.outline)?;
            self.evaluator.evaluate(&plan, (open.bound, open.number))
        };
        parallel_until(round, &evaluated, &|| self.wish.is_made())
    }

    fn refuse(&mut self, open: &Open, reason: &Reason) -> Option<Open> {
        self.unfit.add(which(&open.outline), reason, 1);
        let next = open.number + 1;
        if next < self.after(open.number) { self.open(next) } else { None }
    }
}
