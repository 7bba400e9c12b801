//! What a way to make arrays costs.
//!
//! Law: a way costs, in this order, the arrays that maps which take turns would have to gather, the
//! products with weights that one part makes, and the numbers that it sends in both passes; each
//! term once, however many read it. So nothing is done by all parts to send less, and time plays no
//! part. What is sent is what lowering sends for whole sequences in one stage ([`super::exchanges`],
//! docs/tensor.md).

use super::{
    region::{Given, Grid, Kind, Part, Region},
    sketch::{Mapped, mapped, way},
    term::{Along, Term, Terms, along, extent, operation},
};
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

    /// The operation that a term does.
    pub(super) fn operation(&self, term: &Term) -> Option<&'a Part> {
        term.operation().map(|id| self.part(id))
    }

    /// The operation that a leaf names.
    pub(super) fn part(&self, id: Id) -> &'a Part {
        &self.region.operations[operation(self.terms, id)]
    }

    /// Whether an extent is the last one of an array.
    pub(super) fn is_last(&self, own: Id, array: Id) -> bool {
        self.of(array).is_some_and(|array| extent(self.terms, own).0 == array.last)
    }

    pub(super) fn along(&self, id: Id) -> Along {
        along(self.terms, id)
    }

    /// How many parts there are along what a leaf says.
    pub(super) fn parts(&self, id: Id) -> u64 {
        self.region.grid.parts(self.along(id))
    }

    /// What is known of the array that a class is.
    pub(super) fn of(&self, id: Id) -> Option<Array> {
        self.arrays.get(&self.terms.find(id)).copied()
    }

    /// Elements of all parts of the whole, had each part all of it.
    pub(super) fn whole(&self, part: &Part) -> u64 {
        part.size.elements * self.region.grid.parts(Along::Both)
    }

    /// The array that a fixed value is.
    fn given(&self, number: usize) -> Array {
        let Given { lie, size, gradient } = self.region.given[number];
        let grid = self.region.grid;
        let along = match lie {
            Lie::Split { direction, .. } => direction.into(),
            Lie::Whole | Lie::Otherwise => Along::Nobody,
        };
        let own = size.elements * grid.parts(Along::Both) / grid.parts(along);
        Array { own, last: size.last, gradient }
    }

    /// What an operation makes, of which each part has its own among so many.
    fn made(&self, operation: Id, parts: u64) -> Array {
        let part = self.part(operation);
        let (own, last) = (self.whole(part) / parts, part.size.last);
        Array { own, last, gradient: part.gradient }
    }

    /// What a term makes; none where that is not known yet, or no array.
    fn array(&self, term: &Term) -> Option<Array> {
        use Term::*;
        match *term {
            Along(_) | Extent(_) | Operation(_) => None,
            Value(value) => Some(self.given(value.0)),
            Gather([along, _, read]) | GatherVary([along, _, read]) => {
                let array = self.of(read)?;
                Some(Array { own: array.own * self.parts(along), ..array })
            }
            Cut([along, _, read]) | Scatter([along, _, read]) => {
                let array = self.of(read)?;
                Some(Array { own: array.own / self.parts(along), ..array })
            }
            Sum([_, read]) | Vary([_, read]) => self.of(read),
            // As large as what it is made of, wherever that lies.
            Each([own, read])
            | Norm([own, _, read])
            | NormPart([_, own, read])
            | Pair([own, _, read]) => {
                Some(Array { gradient: self.part(own).gradient, ..self.of(read)? })
            }
            Split([_, to, own, _]) => Some(self.made(own, self.parts(to))),
            LossOwn([_, own, _]) => Some(self.made(own, 1)),
            Attend(_) | AttendOwn(_) | AttendPacked(_) | AttendPackedOwn(_)
            | Channels(_) | ChannelsOwn(_) | Loss(_) | Map(_) | Mix(_) | MixOwn(_)
            | Pool(_) | PoolOwn(_) | Rotary(_) | RotaryOwn(_) | Scores(_)
            | ScoresOwn(_) | Whole(_) => {
                Some(self.made(term.operation()?, self.divided(term)))
            }
        }
    }

    /// Among how many parts an operation is divided.
    fn divided(&self, term: &Term) -> u64 {
        term.sides().iter().map(|side| self.parts(*side)).product()
    }

    /// What a term costs by itself.
    pub(super) fn cost(&self, made: Id, term: &Term) -> Cost {
        Cost {
            gathered: self.gathered(term),
            work: self.work(term),
            sent: self.exchanges(made, term).map(|own| own.sent).sum(),
            strayed: self.strayed(term),
        }
    }

    /// Multiplications of a map, or of a convolution in groups.
    fn work(&self, term: &Term) -> u128 {
        let Some(own) = self.operation(term) else { return 0 };
        let (Kind::Map { read: products, .. } | Kind::Channels { products, .. }) =
            own.kind
        else {
            return 0;
        };
        let divided = u128::from(self.divided(term));
        u128::from(self.whole(own)) * u128::from(products) / divided
    }

    /// What it costs that the backward pass reads again what a term makes.
    pub(super) fn cost_again(&self, made: Id, term: &Term) -> Cost {
        let sent = self.again(made, term).map_or(0, |own| own.sent);
        Cost { sent, ..Cost::default() }
    }

    /// Whether maps in turn would have to lay something out anew.
    fn gathered(&self, term: &Term) -> u64 {
        use Term::*;
        let Grid { columns, contraction, .. } = self.region.grid;
        let takes_turns = contraction == Contraction::Alternate;
        let count = |gathers: bool| u64::from(takes_turns && gathers);
        match *term {
            Gather(_) => count(true),
            // With several columns classes alone are made of all that is read.
            GatherVary(_) => count(columns == 1),
            Cut([_, _, read]) => count(self.is_of_shares(read)),
            Map([own, ..]) if is_open_whole(&self.part(own).kind) => 0,
            Map(_) => NEVER,
            Attend(_) | AttendOwn(_) | AttendPacked(_) | AttendPackedOwn(_)
            | Channels(_) | ChannelsOwn(_) | Each(_) | Loss(_) | LossOwn(_) | Mix(_)
            | MixOwn(_) | Norm(_) | NormPart(_) | Pair(_) | Pool(_) | PoolOwn(_)
            | Rotary(_) | RotaryOwn(_) | Scatter(_) | Scores(_) | ScoresOwn(_)
            | Split(_) | Sum(_) | Vary(_) | Whole(_) | Along(_) | Extent(_)
            | Operation(_) | Value(_) => 0,
        }
    }

    /// Whether everybody adds a share to the gradient of an array, which was gathered.
    fn is_of_shares(&self, array: Id) -> bool {
        let mut terms = self.terms[array].nodes.iter();
        terms.any(|own| matches!(own, Term::GatherVary(_)))
    }

    /// Whether a map goes another way than by itself.
    fn strayed(&self, term: &Term) -> u64 {
        let Some(Mapped { number, sides }) = mapped(self.terms, term) else { return 0 };
        let Kind::Map { alone, .. } = self.region.operations[number].kind else {
            return 0;
        };
        let goes = |scatters| way(self.region.grid, alone, (sides, scatters));
        u64::from(![true, false].map(goes).contains(&alone))
    }
}

/// Whether every part may do all of a map.
fn is_open_whole(kind: &Kind) -> bool {
    matches!(kind, Kind::Map { open, .. } if open.contains(&None))
}
