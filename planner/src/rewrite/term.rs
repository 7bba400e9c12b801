//! Terms of e-graphs: what makes an array, of which arrays.
//!
//! Law: terms are ordered by their names and what they are made of, and by nothing else. So e-graphs that
//! are made of equal terms are equal, whatever the process has met before, and of ways that cost the
//! same the same one is taken. (Symbols of [egg] are ordered by when they were first met.)

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

    /// Symbols would be the other way round.
    #[test]
    fn terms_are_ordered_by_their_names_whenever_they_were_met() {
        let later = Term::new("a name that is met for the first time: z", vec![]);
        let sooner = Term::new("a name that is met for the first time: a", vec![]);
        assert!(sooner < later);
        let of = |own: usize| Term::new("a name", vec![Id::from(own)]);
        assert!(of(1) < of(2) && of(1) == of(1));
    }
}
