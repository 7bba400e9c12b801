//! The cheapest way to make what others read of a region.
//!
//! Law: a way costs, in this order, the arrays that maps which take turns would have to gather, the
//! products with weights that one part makes, and the numbers that it sends in both passes; each
//! term once, however many read it. So nothing is done by all parts to send less, and time plays no
//! part. In a line of p parts a sum sends 2 (p − 1) / p of the array, a gather or a scatter
//! (p − 1) / p of the larger one; gradients take the adjoint of every move, and what is gathered
//! is gathered again for the backward pass (docs/tensor.md).

use super::{
    region::{Grid, Kind, Operand, Region},
    rules::{leaf, operation},
    sketch::{name, way},
};
use crate::rewrite::{Terms, is_grounded};
use egg::{Id, SymbolLang};
use roundelay_codegen::Lie;
use roundelay_schedule::{Contraction, MapWay};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Add,
};

/// Terms that are looked at, at most.
pub(super) const STEPS_MAX: usize = 1 << 18;

/// What a way costs, the first number first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cost {
    /// Gathers where maps take turns.
    pub(super) gathered: u64,
    /// Multiplications with weights of one part, for one example, times the parts of the grid.
    pub(super) work: u128,
    /// Numbers that one part sends for one example, times the parts of the grid.
    pub(super) sent: u64,
}

impl Add for Cost {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            gathered: self.gathered + other.gathered,
            work: self.work + other.work,
            sent: self.sent + other.sent,
        }
    }
}

/// Which term is taken for each array.
#[derive(Clone, Debug, Default)]
pub(super) struct Cheapest {
    pub(super) cost: Cost,
    taken: BTreeMap<Id, SymbolLang>,
    /// Whether all ways were looked at.
    pub(super) is_proven: bool,
}

impl Cheapest {
    pub(super) fn terms(&self) -> impl Iterator<Item = &SymbolLang> {
        self.taken.values()
    }

    /// Whether the sums of a map are scattered.
    pub(super) fn scatters(&self, terms: &Terms, map: &SymbolLang) -> bool {
        let own = self.taken.iter().find(|(_, term)| *term == map).map(|(id, _)| *id);
        self.terms().any(|term| {
            term.op.as_str() == "scatter"
                && term.children.last().map(|id| terms.find(*id)) == own
        })
    }
}

/// More gathers than a region could have.
const NEVER: u64 = 1 << 32;

/// What is known of the arrays of a region.
struct Facts<'a> {
    region: &'a Region,
    terms: &'a Terms,
    /// Elements of one part, times the parts of the grid, and whether there is a gradient.
    arrays: BTreeMap<Id, Array>,
    /// Terms of each array with their costs, and the least that it costs by itself.
    choices: BTreeMap<Id, (Vec<(Cost, SymbolLang)>, Cost)>,
    /// What each array costs at least with all that it is made of.
    deep: BTreeMap<Id, Cost>,
    /// The least work of each map that is needed.
    maps: BTreeMap<usize, u128>,
}

#[derive(Clone, Copy)]
struct Array {
    own: u64,
    gradient: bool,
}

/// The cheapest way; of equal ones that in which maps go as they go by themselves.
pub(super) fn cheapest(region: &Region, terms: &Terms, needed: &[Id]) -> Cheapest {
    let facts = Facts::new(region, terms);
    let needed: BTreeSet<Id> = needed.iter().map(|id| terms.find(*id)).collect();
    let search = |is_free: bool, best: Option<Cheapest>| {
        let mut search = Search { facts: &facts, is_free, best, steps: 0 };
        search.go(needed.clone(), Cheapest::default());
        (search.best, search.steps < STEPS_MAX)
    };
    let (alone, _) = search(false, None);
    let (best, is_proven) = search(true, alone);
    Cheapest { is_proven, ..best.unwrap_or_default() }
}

struct Search<'a> {
    facts: &'a Facts<'a>,
    /// Whether maps may go other ways than by themselves.
    is_free: bool,
    best: Option<Cheapest>,
    steps: usize,
}

impl Search<'_> {
    /// What a way costs at least that makes these arrays besides: each its cheapest term, or the
    /// costliest of them all that it is made of, or every map that is missing yet.
    fn bound(&self, open: &BTreeSet<Id>, way: &Cheapest) -> Cost {
        let least = open.iter().map(|id| self.facts.choices[id].1);
        let terms = least.fold(way.cost, Cost::add);
        let deep = open.iter().filter_map(|id| self.facts.deep.get(id)).max();
        let deep = way.cost + deep.copied().unwrap_or_default();
        let done: BTreeSet<usize> =
            way.terms().filter_map(|term| self.facts.map(term)).collect();
        let missing = self.facts.maps.iter().filter(|(map, _)| !done.contains(map));
        let work = missing.map(|(_, work)| *work).sum();
        terms.max(deep).max(way.cost + Cost { work, ..Cost::default() })
    }

    /// Takes every term for one of the open arrays in turn.
    fn go(&mut self, mut open: BTreeSet<Id>, way: Cheapest) {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return;
        }
        if self.best.as_ref().is_some_and(|best| best.cost <= self.bound(&open, &way)) {
            return;
        }
        let Some(id) = open.pop_last() else {
            if is_grounded(self.facts.terms, &way.taken) {
                self.best = Some(way);
            }
            return;
        };
        let facts = self.facts;
        for (cost, term) in &facts.choices[&id].0 {
            if !self.is_free && !facts.goes_alone(term) {
                continue;
            }
            let mut way = way.clone();
            let mut open = open.clone();
            way.cost = way.cost + *cost;
            way.taken.insert(id, term.clone());
            let operands = term.children.iter().map(|child| facts.terms.find(*child));
            open.extend(operands.filter(|child| !way.taken.contains_key(child)));
            self.go(open, way);
        }
    }
}

impl<'a> Facts<'a> {
    fn new(region: &'a Region, terms: &'a Terms) -> Self {
        let arrays = BTreeMap::new();
        let (choices, deep) = (BTreeMap::new(), BTreeMap::new());
        let maps = BTreeMap::new();
        let mut facts = Self { region, terms, arrays, choices, deep, maps };
        loop {
            let before = facts.arrays.len();
            for class in terms.classes() {
                if facts.arrays.contains_key(&class.id) {
                    continue;
                }
                let known = class.nodes.iter().find_map(|term| facts.array(term));
                if let Some(array) = known {
                    facts.arrays.insert(class.id, array);
                }
            }
            if facts.arrays.len() == before {
                break;
            }
        }
        for class in terms.classes() {
            let mut choices: Vec<(Cost, SymbolLang)> = class
                .nodes
                .iter()
                .map(|term| (facts.cost(class.id, term), term.clone()))
                .collect();
            choices.sort();
            let least = choices.first().map_or(Cost::default(), |(cost, _)| *cost);
            facts.choices.insert(class.id, (choices, least));
        }
        facts.deepen();
        facts.count_maps();
        facts
    }

    /// A term costs what it does by itself and the costliest array that it reads; an array, what
    /// its cheapest term does.
    fn deepen(&mut self) {
        loop {
            let mut changed = false;
            for (id, (choices, _)) in &self.choices {
                let of = |(cost, term): &(Cost, SymbolLang)| {
                    let read = term.children.iter();
                    let read = read.map(|child| self.deep.get(&self.terms.find(*child)));
                    let read: Option<Vec<&Cost>> = read.collect();
                    Some(*cost + read?.into_iter().max().copied().unwrap_or_default())
                };
                let least = choices.iter().filter_map(of).min();
                if let Some(least) = least
                    && self.deep.get(id).is_none_or(|known| least < *known)
                {
                    self.deep.insert(*id, least);
                    changed = true;
                }
            }
            if !changed {
                return;
            }
        }
    }

    /// The maps that what others read is made of: no law does without one.
    fn count_maps(&mut self) {
        let mut needed: BTreeSet<usize> =
            self.region.needed.iter().map(|(place, _)| *place).collect();
        for place in (0..self.region.operations.len()).rev() {
            if needed.contains(&place) {
                let operands = self.region.operations[place].operands.iter();
                needed.extend(operands.filter_map(|operand| match operand {
                    Operand::Made(own) => Some(*own),
                    Operand::Given(_) => None,
                }));
            }
        }
        for (cost, term) in self.choices.values().flat_map(|(choices, _)| choices) {
            if let Some(map) = self.map(term).filter(|map| needed.contains(map)) {
                let least = self.maps.entry(map).or_insert(cost.work);
                *least = cost.work.min(*least);
            }
        }
    }

    /// The map that a term does.
    fn map(&self, term: &SymbolLang) -> Option<usize> {
        match term.op.as_str() {
            "map" => operation(self.name(term, 0)),
            "split" => operation(self.name(term, 2)),
            _ => None,
        }
    }

    fn name(&self, term: &SymbolLang, place: usize) -> &'static str {
        leaf(self.terms, term.children[place])
    }

    fn parts(&self, direction: &str) -> u64 {
        self.region.grid.parts(direction)
    }

    /// Elements of all parts of the whole, had each part all of it.
    fn whole(&self, number: usize) -> u64 {
        self.region.operations[number].size.elements * self.parts("rc")
    }

    /// What a term makes; none where that is not known yet, or no array.
    fn array(&self, term: &SymbolLang) -> Option<Array> {
        let operator = term.op.as_str();
        if let Some(number) = operator.strip_prefix('v') {
            let given = &self.region.given[number.parse::<usize>().ok()?];
            let whole = given.size.elements * self.parts("rc");
            let own = match given.lie {
                Lie::Split { direction, .. } => whole / self.parts(name(direction)),
                Lie::Whole | Lie::Otherwise => whole,
            };
            return Some(Array { own, gradient: given.gradient });
        }
        let last = *term.children.last()?;
        let operand = || self.arrays.get(&self.terms.find(last)).copied();
        let of = |place: usize| operation(self.name(term, place));
        let learned = |own| Some(Array { own, gradient: true });
        match operator {
            "gather" | "gather_vary" => {
                let Array { own, gradient } = operand()?;
                Some(Array { own: own * self.parts(self.name(term, 0)), gradient })
            }
            "cut" | "scatter" => {
                let Array { own, gradient } = operand()?;
                Some(Array { own: own / self.parts(self.name(term, 0)), gradient })
            }
            "split" => learned(self.whole(of(2)?) / self.parts(self.name(term, 1))),
            "map" | "loss" => learned(self.whole(of(0)?)),
            "loss_own" => learned(self.whole(of(1)?)),
            "scores_own" | "mix_own" | "attend_own" => {
                let own = self.whole(of(1)?) / self.parts(self.name(term, 0));
                Some(Array { own, gradient: operand()?.gradient })
            }
            "scores" | "mix" | "attend" => {
                Some(Array { own: self.whole(of(0)?), gradient: operand()?.gradient })
            }
            _ => operand(),
        }
    }

    /// What a term costs by itself.
    fn cost(&self, made: Id, term: &SymbolLang) -> Cost {
        match term.op.as_str() {
            "map" | "split" => {
                let (gathered, work) = (self.gathered(term), self.work(term));
                Cost { gathered, work, sent: 0 }
            }
            "norm_part" => {
                let sent = self.sums(made, term);
                Cost { sent, ..Cost::default() }
            }
            _ => Cost {
                gathered: self.gathered(term),
                sent: self.sent(made, term),
                ..Cost::default()
            },
        }
    }

    /// Multiplications of a map.
    fn work(&self, term: &SymbolLang) -> u128 {
        let (place, divided) = match term.op.as_str() {
            "split" => {
                (2, self.parts(self.name(term, 0)) * self.parts(self.name(term, 1)))
            }
            _ => (0, 1),
        };
        let number = operation(self.name(term, place)).unwrap_or(0);
        let Kind::Map { read, .. } = self.region.operations[number].kind else {
            return 0;
        };
        u128::from(self.whole(number)) * u128::from(read) / u128::from(divided)
    }

    /// Numbers of the sums of a norm, in both passes.
    fn sums(&self, made: Id, term: &SymbolLang) -> u64 {
        let parts = self.parts(self.name(term, 0));
        let number = operation(self.name(term, 1)).unwrap_or(0);
        let part = &self.region.operations[number];
        let Kind::Norm { sums } = part.kind else { return 0 };
        let own = self.arrays.get(&made).map_or(0, |array| array.own);
        let tokens = own * parts / part.size.width.max(1);
        2 * ring(parts, 2 * tokens * sums.unwrap_or(0))
    }

    /// Whether maps in turn would have to lay something out anew.
    fn gathered(&self, term: &SymbolLang) -> u64 {
        let Grid { columns, contraction, .. } = self.region.grid;
        let takes_turns = contraction == Contraction::Alternate;
        match term.op.as_str() {
            "gather" => u64::from(takes_turns),
            // With several columns classes alone are made of all that is read.
            "gather_vary" => u64::from(takes_turns && columns == 1),
            // Several columns have no map that all parts do: it would be refused.
            "map" if takes_turns && columns > 1 => NEVER,
            _ => 0,
        }
    }

    /// Numbers that a move sends, in both passes.
    fn sent(&self, made: Id, term: &SymbolLang) -> u64 {
        let (Some(result), Some(last)) = (self.arrays.get(&made), term.children.last())
        else {
            return 0;
        };
        let Some(read) = self.arrays.get(&self.terms.find(*last)) else { return 0 };
        let line = |elements| ring(self.parts(self.name(term, 0)), elements);
        let back = |elements| if read.gradient { line(elements) } else { 0 };
        match term.op.as_str() {
            "gather" => 2 * line(result.own),
            "gather_vary" => 2 * line(result.own) + back(result.own),
            "cut" => back(read.own),
            "vary" => back(2 * read.own),
            "sum" => line(2 * read.own),
            "scatter" => line(read.own) + back(read.own),
            _ => 0,
        }
    }

    /// Whether a term is of a map that goes as by itself, or of none.
    fn goes_alone(&self, term: &SymbolLang) -> bool {
        let (number, sides) = match term.op.as_str() {
            "map" => (operation(self.name(term, 0)), None),
            "split" => {
                let sides = [self.name(term, 0), self.name(term, 1)];
                (operation(self.name(term, 2)), Some(sides))
            }
            _ => return true,
        };
        let Some(Kind::Map { alone, .. }) =
            number.map(|number| &self.region.operations[number].kind)
        else {
            return true;
        };
        match sides {
            None => alone.is_none(),
            Some(sides) => {
                let ways = [true, false].map(|scatters| way(sides, scatters));
                ways.contains(alone) || (self.is_one_row() && is_same(sides, *alone))
            }
        }
    }

    fn is_one_row(&self) -> bool {
        self.region.grid.rows == 1
    }
}

/// What rows divide in one row is whole.
fn is_same(sides: [&str; 2], alone: Option<MapWay>) -> bool {
    sides == ["w", "c"] && alone == Some(MapWay::RowsToColumns)
}

/// What one part sends of so many elements that move once round a ring.
fn ring(parts: u64, elements: u64) -> u64 {
    elements * (parts - 1) / parts.max(1)
}
