//! Patterns of names, in which `*` stands for any text: what weight decay spares.

use crate::ModelParameter;
use roundelay_schedule::Treatment;
use std::fmt;

/// A pattern of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// The pattern of a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Whether a name fits.
    pub fn matches(&self, name: &str) -> bool {
        let mut parts = self.0.split('*');
        let first = parts.next().unwrap_or_default();
        let Some(mut rest) = name.strip_prefix(first) else { return false };
        let Some(last) = parts.next_back() else { return rest.is_empty() };
        for part in parts {
            match rest.find(part) {
                Some(at) => rest = &rest[at + part.len()..],
                None => return false,
            }
        }
        rest.ends_with(last)
    }
}

impl ModelParameter {
    /// Spares it from weight decay if one of the patterns is its name's; what is no gradient stays
    /// what it is.
    pub(crate) fn spare(&mut self, patterns: &[Pattern]) {
        let named = patterns.iter().any(|pattern| pattern.matches(&self.name));
        if named && self.treatment == Treatment::Decayed {
            self.treatment = Treatment::Spared;
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        let cases = [
            ("positions.table", "positions.table", true),
            ("*.table", "positions.table", true),
            ("layer.*.weight", "layer.3.linear.weight", true),
            ("layer.*.weight", "layer.3.linear.bias", false),
            ("a*a", "a", false),
            ("*", "", true),
        ];
        for (pattern, name, expected) in cases {
            assert_eq!(Pattern::new(pattern).matches(name), expected, "{pattern} {name}");
        }
    }
}
