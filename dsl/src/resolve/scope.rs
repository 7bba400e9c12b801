//! Names in sight while a body is worked through.

use crate::{Code, Mistake, Span, Value};
use std::collections::BTreeMap;

/// Frames of names; the innermost is the last.
pub(super) struct Scope {
    frames: Vec<BTreeMap<String, Binding>>,
}

/// A name's value; none when it has a mistake, which is reported already.
#[derive(Clone)]
pub(super) struct Binding {
    /// The value.
    pub(super) value: Option<Value>,
    /// Where it was bound.
    pub(super) span: Span,
}

/// Why nothing can be bound to a name that has its meaning everywhere.
pub(super) fn reserved(name: &str) -> Option<Mistake> {
    let message = format!("`{name}` is a word of the language");
    let mistake = Mistake::new(Code::Duplicate, message).hint("take another name");
    ["batch", "true", "false"].contains(&name).then_some(mistake)
}

impl Scope {
    /// One empty frame.
    pub(super) fn new() -> Self {
        Self { frames: vec![BTreeMap::new()] }
    }

    /// Opens a frame.
    pub(super) fn push(&mut self) {
        self.frames.push(BTreeMap::new());
    }

    /// Closes the innermost frame.
    pub(super) fn pop(&mut self) {
        self.frames.pop();
    }

    /// The innermost binding of a name.
    pub(super) fn get(&self, name: &str) -> Option<&Binding> {
        self.frames.iter().rev().find_map(|frame| frame.get(name))
    }

    /// The binding of a name outside of the innermost frame, unless the innermost hides it.
    pub(super) fn outer(&self, name: &str) -> Option<&Binding> {
        let (inner, outer) = self.frames.split_last()?;
        let hidden = inner.contains_key(name);
        outer.iter().rev().find_map(|frame| frame.get(name)).filter(|_| !hidden)
    }

    /// Binds a name where it is bound already, else in the innermost frame.
    pub(super) fn bind(&mut self, name: &str, binding: Binding) {
        let known = self.frames.iter().rposition(|frame| frame.contains_key(name));
        let frame = known.unwrap_or(self.frames.len() - 1);
        self.frames[frame].insert(name.to_owned(), binding);
    }

    /// Binds a name in the innermost frame, whatever is outside.
    pub(super) fn bind_here(&mut self, name: &str, binding: Binding) {
        let frame = self.frames.last_mut().expect("the outermost frame stays");
        frame.insert(name.to_owned(), binding);
    }

    /// All names in sight, and what they are; what is hidden is left out.
    pub(super) fn bindings(&self) -> BTreeMap<&str, &Binding> {
        let all = self.frames.iter().flatten();
        all.map(|(name, binding)| (name.as_str(), binding)).collect()
    }

    /// All names in sight.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.frames.iter().flatten().map(|(name, _)| name.as_str())
    }
}
