//! Neighbouring calls as terms, and back from terms to rules that were applied.

use super::Term;
use super::{
    Chosen, Terms,
    extract::Cheapest,
    rules::{MOVES, Rule, is_in_place, operator, operator_of, result, results},
};
use crate::timeless::timeless;
use egg::Id;
use roundelay_codegen::{ArrayUse, Neighbour};
use roundelay_schedule::{Attribute, Name};
use std::collections::BTreeMap;

/// Neighbouring calls as terms.
#[derive(Debug)]
pub(super) struct Sketch {
    pub(super) terms: Terms,
    /// What somebody else reads.
    pub(super) needed: Vec<Id>,
    calls: Vec<Call>,
}

/// A call as it was written.
#[derive(Debug)]
struct Call {
    operator: String,
    /// The arrays that it makes, before they are added to others.
    made: Vec<Id>,
}

/// Whether all operands of a call have as many elements.
pub(super) fn is_uniform(one: &Neighbour<'_>) -> bool {
    let size = |place: &ArrayUse<'_>| place.shape.iter().product::<u64>();
    one.operands.windows(2).all(|pair| size(&pair[0]) == size(&pair[1]))
}

/// Along which extents a call moves an array: how many rows and columns the whole has.
pub(super) fn along(one: &Neighbour<'_>) -> [u64; 2] {
    let shape = |place: &ArrayUse<'_>| {
        let columns = place.shape.last().copied().unwrap_or(1);
        [place.shape.iter().product::<u64>() / columns.max(1), columns]
    };
    one.operands.iter().map(shape).max().unwrap_or_default()
}

impl Sketch {
    pub(super) fn new(neighbours: &[Neighbour<'_>]) -> Self {
        let mut sketch =
            Self { terms: Terms::default(), needed: Vec::new(), calls: Vec::new() };
        let mut arrays: BTreeMap<u32, Id> = BTreeMap::new();
        let mut needed: BTreeMap<u32, Id> = BTreeMap::new();
        for one in neighbours {
            let made = sketch.call(one, &mut arrays);
            for (place, id) in made {
                arrays.insert(place.array, id);
                if place.is_shared {
                    needed.insert(place.array, id);
                }
            }
        }
        timeless(|| sketch.terms.rebuild());
        sketch.needed = needed.into_values().collect();
        sketch
    }

    fn term(&mut self, operator: String, operands: Vec<Id>) -> Id {
        self.terms.add(Term::new(&operator, operands))
    }

    /// Adds a call; the places that it writes, with what lies there then.
    fn call<'a>(
        &mut self,
        one: &'a Neighbour<'a>,
        arrays: &mut BTreeMap<u32, Id>,
    ) -> Vec<(&'a ArrayUse<'a>, Id)> {
        let operator = spelled(one);
        let results = results(&operator);
        let first = one.operands.len().saturating_sub(results);
        let read = if is_in_place(&operator) { one.operands.len() } else { first };
        let mut operands = Vec::new();
        if MOVES.contains(&one.kernel) {
            let cut = ["parts", "stride", "inner"].map(|name| one.attributes.get(name));
            operands.push(self.term(format!("{cut:?} of {:?}", along(one)), vec![]));
        }
        for place in &one.operands[..read] {
            operands.push(self.content(place, arrays));
        }
        let call = self.term(operator.clone(), operands);
        let made: Vec<Id> = match results {
            1 => vec![call],
            _ => (0..results).map(|place| self.term(result(place), vec![call])).collect(),
        };
        self.calls.push(Call { operator, made: made.clone() });
        let adds = ADDING.iter().any(|flag| one.attributes.contains_key(*flag));
        let written = one.operands[first..].iter().zip(made);
        let content = |(place, made)| match adds {
            true => {
                let before = self.content(place, arrays);
                (place, self.term("accumulated".to_owned(), vec![before, made]))
            }
            false => (place, made),
        };
        written.map(content).collect()
    }

    /// What lies at a place.
    fn content(&mut self, place: &ArrayUse<'_>, arrays: &mut BTreeMap<u32, Id>) -> Id {
        let known = arrays.get(&place.array).copied();
        known.unwrap_or_else(|| {
            let fresh = self.term(format!("array{}", place.array), vec![]);
            arrays.insert(place.array, fresh);
            fresh
        })
    }

    /// The rules whose right sides were taken.
    pub(super) fn chosen(
        &self,
        terms: &Terms,
        cheapest: &Cheapest,
        rules: &[Rule],
    ) -> Chosen {
        let mut chosen = Chosen::new();
        for (place, call) in self.calls.iter().enumerate() {
            let mut made = call.made.iter();
            let operator = made.find_map(|made| cheapest.maker(terms, *made));
            let applied =
                operator.and_then(|operator| self.applied(place, operator, rules));
            chosen.extend(applied.unwrap_or_default());
        }
        chosen
    }

    /// The rules by which a call and those right before it are one with this operator.
    fn applied(&self, place: usize, operator: &str, rules: &[Rule]) -> Option<Chosen> {
        let own = &self.calls[place].operator;
        if own == operator {
            return Some(Chosen::new());
        }
        let before = place.checked_sub(1)?;
        rules.iter().map(|rule| rule.form).find_map(|form| {
            let [first, second] = form.before.each_ref().map(operator_of);
            let fits = second == *own && operator_of(&form.after) == operator;
            let mut chosen =
                fits.then(|| self.applied(before, &first, rules)).flatten()?;
            chosen.insert((place, form.rewrite));
            Some(chosen)
        })
    }
}

/// What says that a call adds to something that it makes. Then nothing that it makes is taken for what
/// a rule makes of the same.
const ADDING: [&str; 2] = ["accumulate", "accumulate_sums"];

/// The operator of a call. Where `add` repeats an operand it is no sum of equals, of which rules
/// speak.
fn spelled(one: &Neighbour<'_>) -> String {
    let flag = |(name, value): (&Name, &Attribute)| {
        let set = *value == Attribute::Flag(true) && !ADDING.contains(&&**name);
        set.then(|| name.to_string())
    };
    let flags: Vec<String> = one.attributes.iter().filter_map(flag).collect();
    let repeats = one.kernel == "add" && !is_uniform(one);
    let repeats = repeats.then_some("repeating");
    operator(one.kernel, flags.iter().map(String::as_str).chain(repeats))
}
