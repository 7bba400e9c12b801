//! The cheapest way to make some arrays.
//!
//! Law: a way costs the sum of its calls, each counted once however many read what it makes, so
//! an array that is needed anyway is not made twice. Products, norms and other passes that do
//! more than move or map elements cost more than all passes together that rules could save.

use super::{Term, Terms, rules::is_result};
use egg::Id;
use std::collections::{BTreeMap, BTreeSet};

/// Which term is taken for each array.
#[derive(Clone, Debug, Default)]
pub(super) struct Cheapest {
    cost: u64,
    taken: BTreeMap<Id, Term>,
}

/// What a call costs, whatever its size.
fn cost(term: &Term) -> u64 {
    let operator = term.op;
    let is_free =
        term.children.is_empty() || operator == "accumulated" || is_result(operator);
    match operator {
        _ if is_free => 0,
        "add"
        | "add_rows"
        | "copy"
        | "gelu"
        | "gelu_tanh"
        | "gelu_tanh_backward"
        | "part"
        | "relu"
        | "relu_backward"
        | "relu_backward_again"
        | "sum_rows" => 1,
        "all_gather" | "reduce_scatter" => 101,
        // Both of them, one behind the other.
        "all_reduce" => 201,
        _ => 1001,
    }
}

/// The cheapest way to make all of some arrays, the first of equal ones.
pub(super) fn cheapest(terms: &Terms, needed: &[Id]) -> Cheapest {
    let mut best = None;
    let open = needed.iter().map(|id| terms.find(*id)).collect();
    search(terms, open, Cheapest::default(), &mut best);
    best.unwrap_or_default()
}

/// Takes every term for one of the open arrays in turn.
fn search(
    terms: &Terms,
    mut open: BTreeSet<Id>,
    way: Cheapest,
    best: &mut Option<Cheapest>,
) {
    if best.as_ref().is_some_and(|best| best.cost <= way.cost) {
        return;
    }
    let Some(id) = open.pop_last() else {
        if is_grounded(terms, &way.taken) {
            *best = Some(way);
        }
        return;
    };
    for term in &terms[id].nodes {
        let mut way = way.clone();
        let mut open = open.clone();
        way.cost += cost(term);
        way.taken.insert(id, term.clone());
        let operands = term.children.iter().map(|child| terms.find(*child));
        open.extend(operands.filter(|child| !way.taken.contains_key(child)));
        search(terms, open, way, best);
    }
}

/// Whether no array is made from itself, where one term is taken for each.
fn is_grounded(terms: &Terms, taken: &BTreeMap<Id, Term>) -> bool {
    let mut made: BTreeSet<Id> = BTreeSet::new();
    loop {
        let before = made.len();
        for (id, term) in taken {
            if term.children.iter().all(|child| made.contains(&terms.find(*child))) {
                made.insert(*id);
            }
        }
        if made.len() == before {
            return before == taken.len();
        }
    }
}

impl Cheapest {
    /// The operator of the call that makes an array, if it is made.
    pub(super) fn maker<'a>(&'a self, terms: &Terms, array: Id) -> Option<&'a str> {
        let term = self.taken.get(&terms.find(array))?;
        let operator = term.op;
        match is_result(operator) {
            true => self.maker(terms, term.children[0]),
            false => Some(operator),
        }
    }
}
