//! What a way to make arrays costs.
//!
//! Law: a way costs, in this order, the arrays that maps which take turns would have to gather, the
//! products with weights that one part makes, and the numbers that it sends in both passes; each
//! term once, however many read it. So nothing is done by all parts to send less, and time plays no
//! part. In a line of p parts a sum sends 2 (p − 1) / p of the array, a gather or a scatter
//! (p − 1) / p of the larger one; gradients take the adjoint of every move, and what is gathered
//! is gathered again for the backward pass (docs/tensor.md).

use super::{
    fits::{leaf, operation},
    region::{Given, Grid, Kind, Region},
    sketch::{name, way},
};
use crate::rewrite::Terms;
use egg::{Id, SymbolLang};
use roundelay_codegen::Lie;
use roundelay_schedule::Contraction;
use std::{collections::BTreeMap, ops::Add};

/// What a way costs, the first number first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cost {
    /// Gathers where maps take turns.
    pub(super) gathered: u64,
    /// Multiplications with weights of one part, for one example, times the parts of the grid.
    pub(super) work: u128,
    /// Numbers that one part sends for one example, times the parts of the grid.
    pub(super) sent: u64,
    /// Maps that go another way than by themselves, so that of equal ways theirs is taken.
    pub(super) strayed: u64,
}

impl Cost {
    /// Whether no map goes a way that it may not go.
    pub(super) fn is_allowed(self) -> bool {
        self.gathered < NEVER
    }
}

impl Add for Cost {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            gathered: self.gathered + other.gathered,
            work: self.work + other.work,
            sent: self.sent + other.sent,
            strayed: self.strayed + other.strayed,
        }
    }
}

/// More gathers than a region could have.
const NEVER: u64 = 1 << 32;

/// What is known of the arrays of a region.
pub(super) struct Facts<'a> {
    pub(super) region: &'a Region,
    pub(super) terms: &'a Terms,
    /// Elements of one part, times the parts of the grid, and whether there is a gradient.
    arrays: BTreeMap<Id, Array>,
}

#[derive(Clone, Copy)]
struct Array {
    own: u64,
    gradient: bool,
}

impl<'a> Facts<'a> {
    pub(super) fn new(region: &'a Region, terms: &'a Terms) -> Self {
        let mut facts = Self { region, terms, arrays: BTreeMap::new() };
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
                return facts;
            }
        }
    }

    /// The map that a term does.
    pub(super) fn map(&self, term: &SymbolLang) -> Option<usize> {
        match term.op.as_str() {
            "map" => operation(self.name(term, 0)),
            "split" => operation(self.name(term, 2)),
            _ => None,
        }
    }

    pub(super) fn name(&self, term: &SymbolLang, place: usize) -> &'static str {
        leaf(self.terms, term.children[place])
    }

    pub(super) fn parts(&self, direction: &str) -> u64 {
        self.region.grid.parts(direction)
    }

    /// Elements of all parts of the whole, had each part all of it.
    fn whole(&self, number: usize) -> u64 {
        self.region.operations[number].size.elements * self.parts("rc")
    }

    /// The fixed value that a leaf names.
    fn given(&self, operator: &str) -> Option<&'a Given> {
        let number: usize = operator.strip_prefix('v')?.parse().ok()?;
        self.region.given.get(number)
    }

    /// What a term makes; none where that is not known yet, or no array.
    fn array(&self, term: &SymbolLang) -> Option<Array> {
        let operator = term.op.as_str();
        if let Some(given) = self.given(operator) {
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
        let made = |number: usize, parts: u64| {
            let gradient = self.region.operations[number].gradient;
            Some(Array { own: self.whole(number) / parts, gradient })
        };
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
            "scores_own" | "mix_own" | "attend_own" | "channels_own" | "pool_own" => {
                made(of(1)?, self.parts(self.name(term, 0)))
            }
            "scores" | "mix" | "attend" | "channels" | "pool" | "whole" => {
                made(of(0)?, 1)
            }
            _ => operand(),
        }
    }

    /// What a term costs by itself.
    pub(super) fn cost(&self, made: Id, term: &SymbolLang) -> Cost {
        match term.op.as_str() {
            "map" | "split" | "channels" | "channels_own" => {
                let (gathered, work) = (self.gathered(term), self.work(term));
                Cost { gathered, work, sent: 0, strayed: self.strayed(term) }
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

    /// Multiplications of a map, or of a convolution in groups.
    fn work(&self, term: &SymbolLang) -> u128 {
        let parts = |place: usize| self.parts(self.name(term, place));
        let (place, divided) = match term.op.as_str() {
            "split" => (2, parts(0) * parts(1)),
            "channels_own" => (1, parts(0)),
            _ => (0, 1),
        };
        let number = operation(self.name(term, place)).unwrap_or(0);
        let products = match self.region.operations[number].kind {
            Kind::Map { read: products, .. } | Kind::Channels { products, .. } => {
                products
            }
            _ => 0,
        };
        u128::from(self.whole(number)) * u128::from(products) / u128::from(divided)
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
            "map" if !self.is_open_whole(term) => NEVER,
            _ => 0,
        }
    }

    /// Whether every part may do all of a map.
    fn is_open_whole(&self, term: &SymbolLang) -> bool {
        let number = self.map(term);
        match number.map(|number| &self.region.operations[number].kind) {
            Some(Kind::Map { open, .. }) => open.contains(&None),
            _ => true,
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

    /// Whether a map goes another way than by itself.
    fn strayed(&self, term: &SymbolLang) -> u64 {
        let Some(number) = self.map(term) else { return 0 };
        let Kind::Map { alone, .. } = self.region.operations[number].kind else {
            return 0;
        };
        let goes_alone = match term.op.as_str() {
            "map" => alone.is_none(),
            _ => {
                let sides = [self.name(term, 0), self.name(term, 1)];
                [true, false].iter().any(|scatters| {
                    way(self.region.grid, alone, (sides, *scatters)) == alone
                })
            }
        };
        u64::from(!goes_alone)
    }
}

/// What one part sends of so many elements that move once round a ring.
fn ring(parts: u64, elements: u64) -> u64 {
    elements * (parts - 1) / parts.max(1)
}
