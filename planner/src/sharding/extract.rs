//! The cheapest way to make what others read of a region ([`super::costs`]), as lowering would
//! make it ([`super::moves`]).
//!
//! Arrays that are made of one another, which are one value in several layouts, are taken together,
//! values before what they are made of. What the rest costs depends on the arrays that are still
//! wanted alone, so it is asked once for each set of them.

#[cfg(test)]
use super::exchanges::Exchange;
use super::{
    costs::{Cost, Facts},
    moves::{Asked, asked_by, asked_of_needed, is_refused},
    region::Region,
    sketch::mapped,
    term::{Term, Terms},
};
use egg::{Id, Language};
use std::{collections::BTreeMap, ops::Add};

/// Terms that are looked at, at most.
pub(super) const STEPS_MAX: usize = 1 << 18;

/// Which term is taken for each array, and what is asked of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Cheapest {
    taken: BTreeMap<Id, (Term, Asked)>,
    /// What it costs; none where nothing was found, or too many would have to be looked at.
    pub(super) cost: Option<Cost>,
    /// Whether not all terms were looked at.
    pub(super) is_limited: bool,
}

impl Cheapest {
    pub(super) fn terms(&self) -> impl Iterator<Item = &Term> {
        self.taken.values().map(|(term, _)| term)
    }

    /// The term that makes an array.
    #[cfg(test)]
    pub(super) fn term(&self, id: Id) -> Option<&Term> {
        self.taken.get(&id).map(|(term, _)| term)
    }

    /// What the terms exchange.
    #[cfg(test)]
    pub(super) fn exchanges(&self, region: &Region, terms: &Terms) -> Vec<Exchange> {
        let facts = Facts::new(region, terms);
        let own = |(id, (term, asked)): (&Id, &(Term, Asked))| {
            let again = asked.is_read_again().then(|| facts.again(*id, term));
            let all: Vec<Exchange> = facts.exchanges(*id, term).collect();
            all.into_iter().chain(again.flatten())
        };
        self.taken.iter().flat_map(own).collect()
    }

    /// Whether the sums of a map are scattered, those of another one added or not.
    pub(super) fn scatters(&self, terms: &Terms, map: &Term) -> bool {
        let mut taken = self.taken.iter();
        let own = taken.find(|(_, (term, _))| term == map).map(|(id, _)| *id);
        let is_own = |id: &Id| Some(terms.find(*id)) == own;
        let adds = |id: Id| match self.taken.get(&terms.find(id)) {
            Some((Term::Pair([_, terms @ ..]), _)) => terms.iter().any(is_own),
            _ => false,
        };
        self.terms().any(|term| match term {
            Term::Scatter([_, _, shares]) => is_own(shares) || adds(*shares),
            _ => false,
        })
    }
}

/// The cheapest way, where no more terms are looked at than this many; of equal ones that in which most
/// maps go as by themselves.
pub(super) fn cheapest(
    region: &Region,
    (terms, needed): (&Terms, &[Id]),
    steps_max: usize,
) -> Cheapest {
    let facts = Facts::new(region, terms);
    let mut search = Search::new(&facts, steps_max);
    let mut open = Wanted::new();
    for (id, (_, lie)) in needed.iter().zip(&region.needed) {
        let id = terms.find(*id);
        if !search.is_there(id) {
            *open.entry(id).or_default() |= asked_of_needed(region.grid, *lie);
        }
    }
    let cost = search.least(&open).filter(|cost| cost.is_allowed());
    let is_limited = search.steps > steps_max;
    match cost.filter(|_| !is_limited) {
        Some(_) => Cheapest { taken: search.taken(open), cost, is_limited },
        None => Cheapest { is_limited, ..Cheapest::default() },
    }
}

/// Arrays that are wanted, and what is asked of each.
type Wanted = BTreeMap<Id, Asked>;

/// The best that is made of some arrays that are wanted: what is taken, and what that wants.
type Best = Option<(Cost, Vec<Taken>, Wanted)>;

/// A term that is taken for an array, by its number, and what is asked of it.
#[derive(Clone, Copy)]
struct Taken {
    id: Id,
    number: usize,
    asked: Asked,
}

/// A term that could be taken for an array.
struct Choice<'a> {
    term: &'a Term,
    cost: Cost,
    /// The arrays that it reads.
    reads: Vec<(Id, Asked)>,
}

pub(super) struct Search<'a> {
    facts: &'a Facts<'a>,
    choices: BTreeMap<Id, Vec<Choice<'a>>>,
    /// Arrays that are made of one another have one number; what they are made of, smaller ones.
    depths: BTreeMap<Id, usize>,
    known: BTreeMap<Wanted, Best>,
    steps: usize,
    steps_max: usize,
}

/// One value while terms are taken for it.
#[derive(Clone, Default)]
struct Filling {
    left: Wanted,
    taken: Vec<Taken>,
    next: Wanted,
    /// The array in which each map is done.
    maps: BTreeMap<usize, Id>,
    /// The array in which shares of a sum meet.
    sums: BTreeMap<Id, Id>,
    cost: Cost,
}

impl<'a> Search<'a> {
    pub(super) fn new(facts: &'a Facts<'a>, steps_max: usize) -> Self {
        let (choices, depths) = (BTreeMap::new(), BTreeMap::new());
        let known = BTreeMap::new();
        let mut search = Self { facts, choices, depths, known, steps: 0, steps_max };
        for class in facts.terms.classes() {
            let of = |term: &'a Term| {
                let cost = facts.cost(class.id, term);
                let reads = search.reads(term).into_iter();
                reads.map(move |reads| Choice { term, cost, reads })
            };
            let choices = class.nodes.iter().flat_map(of).collect();
            search.choices.insert(class.id, choices);
        }
        search.depths = depths_of(facts.terms);
        search
    }

    /// Whether an array is given.
    pub(super) fn is_there(&self, id: Id) -> bool {
        self.facts.terms[id].nodes.iter().any(|term| matches!(term, Term::Value(_)))
    }

    /// What a term reads, in each of the ways in which it may.
    pub(super) fn reads(&self, term: &Term) -> Vec<Vec<(Id, Asked)>> {
        let ways = asked_by(self.facts, term).into_iter();
        let of = |asked: Vec<Asked>| {
            let arrays = term.arrays().iter().map(|id| self.facts.terms.find(*id));
            arrays.zip(asked).filter(|(id, _)| !self.is_there(*id)).collect()
        };
        without_narrower(ways.map(of).collect())
    }

    /// What it costs at least to make these arrays; none where nothing makes them.
    fn least(&mut self, open: &Wanted) -> Option<Cost> {
        if open.is_empty() {
            return Some(Cost::default());
        }
        if let Some(best) = self.known.get(open) {
            return best.as_ref().map(|(cost, ..)| *cost);
        }
        let depth = open.keys().map(|id| self.depths[id]).max()?;
        let mut filling = Filling::default();
        for (id, asked) in open {
            match self.depths[id] == depth {
                true => filling.left.insert(*id, *asked),
                false => filling.next.insert(*id, *asked),
            };
            let done = self.done_in(*id);
            filling.maps.extend(done.map(|map| (map, *id)));
        }
        let mut best = None;
        self.fill(filling, depth, &mut best);
        let cost = best.as_ref().map(|(cost, ..)| *cost);
        self.known.insert(open.clone(), best);
        cost
    }

    /// The map that makes an array, if nothing else does.
    fn done_in(&self, id: Id) -> Option<usize> {
        let terms = &self.facts.terms[id].nodes;
        let is_map = |term: &Term| matches!(term, Term::Split(_));
        terms.iter().all(is_map).then(|| self.map(terms.first()?))?
    }

    /// The map that a term does.
    fn map(&self, term: &Term) -> Option<usize> {
        mapped(self.facts.terms, term).map(|own| own.number)
    }

    /// Takes every term for one of the arrays of a value in turn.
    fn fill(&mut self, mut filling: Filling, depth: usize, best: &mut Best) {
        self.steps += 1;
        if self.steps > self.steps_max {
            return;
        }
        let Some((id, asked)) = filling.left.pop_last() else {
            if self.is_grounded(&filling.taken)
                && let Some(rest) = self.least(&filling.next)
            {
                let cost = filling.cost + self.again(&filling) + rest;
                if best.as_ref().is_none_or(|(least, ..)| cost < *least) {
                    *best = Some((cost, filling.taken, filling.next));
                }
            }
            return;
        };
        for number in 0..self.choices[&id].len() {
            if is_refused(self.facts, asked, self.choices[&id][number].term) {
                continue;
            }
            let mut filling = filling.clone();
            if self.take(&mut filling, (id, asked, number), depth).is_some() {
                self.fill(filling, depth, best);
            }
        }
    }

    /// What it costs to have again what backward reads.
    fn again(&self, filling: &Filling) -> Cost {
        let read = filling.taken.iter().filter(|own| own.asked.is_read_again());
        let costs = read.map(|own| self.facts.cost_again(own.id, self.term(own)));
        costs.fold(Cost::default(), Cost::add)
    }

    /// Takes a term for an array; none where lowering would not make it like this.
    fn take(
        &self,
        filling: &mut Filling,
        (id, asked, number): (Id, Asked, usize),
        depth: usize,
    ) -> Option<()> {
        let choice = &self.choices[&id][number];
        filling.cost = filling.cost + choice.cost;
        filling.taken.push(Taken { id, number, asked });
        do_map(filling, self.map(choice.term), id)?;
        self.do_sum(filling, choice.term, id)?;
        for (read, more) in &choice.reads {
            let more = *more | asked.passed_by(self.facts, choice.term);
            if self.depths[read] != depth {
                do_map(filling, self.done_in(*read), *read)?;
            }
            self.ask(filling, (*read, more), depth)?;
        }
        Some(())
    }

    /// Has shares meet in an array; none where they meet in another one already.
    fn do_sum(&self, filling: &mut Filling, term: &Term, id: Id) -> Option<()> {
        let (Term::Sum([_, shares]) | Term::Scatter([_, _, shares])) = term else {
            return Some(());
        };
        let shares = self.facts.terms.find(*shares);
        (*filling.sums.entry(shares).or_insert(id) == id).then_some(())
    }

    /// Asks something of an array, and of what it is made of; none where it is made otherwise.
    fn ask(
        &self,
        filling: &mut Filling,
        (id, more): (Id, Asked),
        depth: usize,
    ) -> Option<()> {
        if self.depths[&id] != depth {
            *filling.next.entry(id).or_default() |= more;
            return Some(());
        }
        let Some(own) = filling.taken.iter_mut().find(|own| own.id == id) else {
            *filling.left.entry(id).or_default() |= more;
            return Some(());
        };
        let choice = &self.choices[&id][own.number];
        if is_refused(self.facts, more, choice.term) {
            return None;
        }
        let known = own.asked.passed_by(self.facts, choice.term);
        own.asked |= more;
        let passed = own.asked.passed_by(self.facts, choice.term);
        if passed == known {
            return Some(());
        }
        let mut reads = choice.reads.iter();
        reads.try_for_each(|(read, _)| self.ask(filling, (*read, passed), depth))
    }

    fn term(&self, taken: &Taken) -> &'a Term {
        self.choices[&taken.id][taken.number].term
    }

    /// Whether no array of a value is made from itself.
    fn is_grounded(&self, taken: &[Taken]) -> bool {
        let mut open: Vec<&Taken> = taken.iter().collect();
        loop {
            let before = open.len();
            let still: Vec<Id> = open.iter().map(|own| own.id).collect();
            open.retain(|own| {
                let reads = &self.choices[&own.id][own.number].reads;
                reads.iter().any(|(read, _)| still.contains(read))
            });
            if open.len() == before {
                return open.is_empty();
            }
        }
    }

    /// The terms of the best.
    fn taken(&self, mut open: Wanted) -> BTreeMap<Id, (Term, Asked)> {
        let mut all = BTreeMap::new();
        while let Some(Some((_, taken, next))) = self.known.get(&open) {
            let terms =
                taken.iter().map(|own| (own.id, (self.term(own).clone(), own.asked)));
            all.extend(terms);
            open.clone_from(next);
        }
        all
    }
}

/// Leaves out what asks all that another way of the same term asks: it finds nothing better. Of equal
/// ways the first is left.
fn without_narrower(ways: Vec<Vec<(Id, Asked)>>) -> Vec<Vec<(Id, Asked)>> {
    let asks_all = |way: &[(Id, Asked)], other: &[(Id, Asked)]| {
        let mut both = way.iter().zip(other);
        both.all(|((_, asked), (_, less))| *asked | *less == *asked)
    };
    let mut left: Vec<Vec<(Id, Asked)>> = Vec::new();
    for way in ways {
        if !left.iter().any(|other| asks_all(&way, other)) {
            left.retain(|other| !asks_all(other, &way));
            left.push(way);
        }
    }
    left
}

/// Does a map in an array; none where it is done in another one already.
fn do_map(filling: &mut Filling, map: Option<usize>, id: Id) -> Option<()> {
    let Some(map) = map else { return Some(()) };
    (*filling.maps.entry(map).or_insert(id) == id).then_some(())
}

/// Numbers for all arrays: those that are made of one another have one, and so have all layouts of a
/// value; what they are made of, smaller ones.
fn depths_of(terms: &Terms) -> BTreeMap<Id, usize> {
    let mut reads: BTreeMap<Id, Vec<Id>> = BTreeMap::new();
    for class in terms.classes() {
        for term in &class.nodes {
            let children = term.children().iter().map(|id| terms.find(*id));
            reads.entry(class.id).or_default().extend(children);
            // Parts belong to what is gathered from them.
            if let Term::Gather([_, _, part]) = term {
                reads.entry(terms.find(*part)).or_default().push(class.id);
            }
        }
    }
    let (met, open, depths) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
    let mut walk = Walk { reads: &reads, met, open, depths, circles: 0 };
    for id in reads.keys() {
        walk.visit(*id);
    }
    walk.depths
}

/// Finds circles by one walk over all arrays (Tarjan 1972): a circle is complete when none of it leads
/// to an array that was met before it and is still open.
struct Walk<'a> {
    reads: &'a BTreeMap<Id, Vec<Id>>,
    met: BTreeMap<Id, usize>,
    open: Vec<Id>,
    depths: BTreeMap<Id, usize>,
    circles: usize,
}

impl Walk<'_> {
    /// The first array that is still open to which one leads.
    fn visit(&mut self, id: Id) -> usize {
        if let Some(met) = self.met.get(&id) {
            return if self.depths.contains_key(&id) { usize::MAX } else { *met };
        }
        let own = self.met.len();
        self.met.insert(id, own);
        self.open.push(id);
        let mut first = own;
        for read in self.reads.get(&id).into_iter().flatten() {
            first = first.min(self.visit(*read));
        }
        if first == own {
            while let Some(last) = self.open.pop() {
                self.depths.insert(last, self.circles);
                if last == id {
                    break;
                }
            }
            self.circles += 1;
            return usize::MAX;
        }
        first
    }
}
