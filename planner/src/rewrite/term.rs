//! Terms of e-graphs: what makes an array, of which arrays.
//!
//! Law: terms are ordered by their names and what they are made of, and by nothing else. So e-graphs that
//! are made of equal terms are equal, whatever the process has met before, and of ways that cost the
//! same the same one is taken. (Symbols of [egg] are ordered by a hash and by when they were first met.)

use egg::{FromOp, Id, Language, Symbol};
use std::{convert::Infallible, fmt};

/// What makes an array.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Term {
    /// Its name.
    pub(crate) op: &'static str,
    /// What it is made of.
    pub(crate) children: Vec<Id>,
}

impl Term {
    /// A term with a name, which is kept as long as the process runs.
    pub(crate) fn new(op: &str, children: Vec<Id>) -> Self {
        Self { op: Symbol::from(op).as_str(), children }
    }
}

impl Language for Term {
    type Discriminant = &'static str;

    fn discriminant(&self) -> Self::Discriminant {
        self.op
    }

    fn matches(&self, other: &Self) -> bool {
        self.op == other.op && self.children.len() == other.children.len()
    }

    fn children(&self) -> &[Id] {
        &self.children
    }

    fn children_mut(&mut self) -> &mut [Id] {
        &mut self.children
    }
}

impl FromOp for Term {
    type Error = Infallible;

    fn from_op(op: &str, children: Vec<Id>) -> Result<Self, Self::Error> {
        Ok(Self::new(op, children))
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.op)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many names that some share their hash in symbols, where the one that was met later comes last.
    #[test]
    fn terms_are_ordered_by_their_names_whenever_they_were_met() {
        let name = |number: u32| {
            format!("a name that is met here for the first time {number:02}")
        };
        let backwards = || (0..64).rev().map(name);
        let mut symbols: Vec<Symbol> = backwards().map(Symbol::from).collect();
        let mut terms: Vec<Term> =
            backwards().map(|name| Term::new(&name, vec![])).collect();
        symbols.sort();
        terms.sort();
        let names: Vec<String> = (0..64).map(name).collect();
        assert!(terms.iter().map(|term| term.op).eq(names.iter().map(String::as_str)));
        assert!(
            symbols.iter().map(|own| own.as_str()).ne(names.iter().map(String::as_str))
        );
        let of = |own: usize| Term::new("a name", vec![Id::from(own)]);
        assert!(of(1) < of(2) && of(1) == of(1));
    }
}
