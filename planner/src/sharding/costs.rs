//! What a way to make arrays costs.
//!
//! Law: a way costs, in this order, the arrays that maps which take turns would have to gather, the
//! products with weights that one part makes, and the numbers that it sends in both passes; each
//! term once, however many read it. So nothing is done by all parts to send less, and time plays no
//! part. What is sent is what lowering sends for whole sequences in one stage ([`super::exchanges`],
//! docs/tensor.md).

use super::{
    fits::{leaf, operation},
    region::{Given, Grid, Kind, Part, Region},
    sketch::{name, way},
};
use crate::rewrite::{Term, Terms};
use egg::Id;
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
    arrays: BTreeMap<Id, Array>,
}

/// What is known of an array.
#[derive(Clone, Copy)]
pub(super) struct Array {
    /// Elements of one part, times the parts of the grid.
    pub(super) own: u64,
    /// The number of its last extent.
    pub(super) last: u32,
    /// Whether there is a gradient.
    pub(super) gradient: bool,
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
    pub(super) fn map(&self, term: &Term) -> Option<usize> {
        match term.op {
            "map" => operation(self.name(term, 0)),
            "split" => operation(self.name(term, 2)),
            _ => None,
        }
    }

    /// The operation that a term does.
    pub(super) fn operation(&self, term: &Term) -> Option<&'a Part> {
        let named = term.children.iter().map(|id| leaf(self.terms, *id));
        let number = named.take(3).find_map(operation)?;
        self.region.operations.get(number)
    }

    /// Whether a term gathers parts of the last extent.
    pub(super) fn gathers_last(&self, term: &Term) -> bool {
        let last = term.children.last().and_then(|id| self.of(*id));
        let extent = self.name(term, 1).strip_prefix('e');
        last.is_some_and(|array| extent == Some(array.last.to_string().as_str()))
    }

    pub(super) fn name(&self, term: &Term, place: usize) -> &'static str {
        leaf(self.terms, term.children[place])
    }

    pub(super) fn parts(&self, direction: &str) -> u64 {
        self.region.grid.parts(direction)
    }

    /// What is known of the array that a class is.
    pub(super) fn of(&self, id: Id) -> Option<Array> {
        self.arrays.get(&self.terms.find(id)).copied()
    }

    /// Elements of all parts of the whole, had each part all of it.
    pub(super) fn whole(&self, number: usize) -> u64 {
        self.region.operations[number].size.elements * self.parts("rc")
    }

    /// The fixed value that a leaf names.
    fn given(&self, operator: &str) -> Option<&'a Given> {
        let number: usize = operator.strip_prefix('v')?.parse().ok()?;
        self.region.given.get(number)
    }

    /// What a term makes; none where that is not known yet, or no array.
    fn array(&self, term: &Term) -> Option<Array> {
        let operator = term.op;
        if let Some(given) = self.given(operator) {
            let whole = given.size.elements * self.parts("rc");
            let own = match given.lie {
                Lie::Split { direction, .. } => whole / self.parts(name(direction)),
                Lie::Whole | Lie::Otherwise => whole,
            };
            return Some(Array { own, last: given.size.last, gradient: given.gradient });
        }
        let last = *term.children.last()?;
        let operand = || self.of(last);
        let of = |place: usize| operation(self.name(term, place));
        let made = |number: usize, parts: u64| {
            let Part { gradient, size, .. } = &self.region.operations[number];
            let (own, last) = (self.whole(number) / parts, size.last);
            Some(Array { own, last, gradient: *gradient })
        };
        match operator {
            "gather" | "gather_vary" => {
                let array = operand()?;
                Some(Array { own: array.own * self.parts(self.name(term, 0)), ..array })
            }
            "cut" | "scatter" => {
                let array = operand()?;
                Some(Array { own: array.own / self.parts(self.name(term, 0)), ..array })
            }
            // As large as what it is made of, wherever that lies.
            "each" | "pair" | "norm" => {
                let gradient = self.region.operations[of(0)?].gradient;
                Some(Array { gradient, ..operand()? })
            }
            "norm_part" => {
                let gradient = self.region.operations[of(1)?].gradient;
                Some(Array { gradient, ..operand()? })
            }
            "split" => made(of(2)?, self.parts(self.name(term, 1))),
            "loss_own" => made(of(1)?, 1),
            "scores_own" | "mix_own" | "attend_own" | "attend_packed_own"
            | "rotary_own" | "channels_own" | "pool_own" => {
                made(of(1)?, self.parts(self.name(term, 0)))
            }
            "map" | "loss" | "scores" | "mix" | "attend" | "attend_packed" | "rotary"
            | "channels" | "pool" | "whole" => made(of(0)?, 1),
            "vary" | "sum" => operand(),
            _ => None,
        }
    }

    /// What a term costs by itself.
    pub(super) fn cost(&self, made: Id, term: &Term) -> Cost {
        match term.op {
            "map" | "split" | "channels" | "channels_own" => {
                let (gathered, work) = (self.gathered(term), self.work(term));
                Cost { gathered, work, sent: 0, strayed: self.strayed(term) }
            }
            _ => Cost {
                gathered: self.gathered(term),
                sent: self.exchanges(made, term).map(|own| own.sent).sum(),
                ..Cost::default()
            },
        }
    }

    /// Multiplications of a map, or of a convolution in groups.
    fn work(&self, term: &Term) -> u128 {
        let parts = |place: usize| self.parts(self.name(term, place));
        let (place, divided) = match term.op {
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

    /// What it costs that the backward pass reads again what a term makes.
    pub(super) fn cost_again(&self, made: Id, term: &Term) -> Cost {
        let sent = self.again(made, term).map_or(0, |own| own.sent);
        Cost { sent, ..Cost::default() }
    }

    /// Whether maps in turn would have to lay something out anew.
    fn gathered(&self, term: &Term) -> u64 {
        let Grid { columns, contraction, .. } = self.region.grid;
        let takes_turns = contraction == Contraction::Alternate;
        match term.op {
            "gather" => u64::from(takes_turns),
            // With several columns classes alone are made of all that is read.
            "gather_vary" => u64::from(takes_turns && columns == 1),
            "cut" => u64::from(takes_turns && self.is_of_shares(term)),
            "map" if !self.is_open_whole(term) => NEVER,
            _ => 0,
        }
    }

    /// Whether everybody adds a share to the gradient of what a term reads, which it has gathered.
    fn is_of_shares(&self, term: &Term) -> bool {
        let read = term.children.last().map(|last| &self.terms[*last].nodes);
        let mut terms = read.into_iter().flatten();
        terms.any(|own| own.op == "gather_vary")
    }

    /// Whether every part may do all of a map.
    fn is_open_whole(&self, term: &Term) -> bool {
        let number = self.map(term);
        match number.map(|number| &self.region.operations[number].kind) {
            Some(Kind::Map { open, .. }) => open.contains(&None),
            _ => true,
        }
    }

    /// Whether a map goes another way than by itself.
    fn strayed(&self, term: &Term) -> u64 {
        let Some(number) = self.map(term) else { return 0 };
        let Kind::Map { alone, .. } = self.region.operations[number].kind else {
            return 0;
        };
        let goes_alone = match term.op {
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
