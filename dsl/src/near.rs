//! The known name that is nearest to an unknown one.

use crate::{Code, Mistake};
use roundelay_schedule::nearest;

/// Known names that are compared.
const MOST: usize = 500;

/// A hint that names the nearest of the known names, or all of them when none is near.
pub(crate) fn hint<'a>(
    found: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    let known: Vec<&str> = known.into_iter().take(MOST).collect();
    match nearest(found, known.iter().copied()) {
        Some(name) => Some(format!("did you mean `{name}`?")),
        None if known.is_empty() || known.len() > 24 => None,
        None => Some(format!("known are {}", known.join(", "))),
    }
}

/// A name that nothing defines, with a hint.
pub(crate) fn unknown<'a>(
    what: &str,
    found: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Mistake {
    let mistake = Mistake::new(Code::UnknownName, format!("unknown {what} `{found}`"));
    mistake.near(found, known)
}

impl Mistake {
    /// With a hint that names what is nearest to what was found.
    pub(crate) fn near<'a>(
        self,
        found: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        hint(found, known).into_iter().fold(self, Mistake::hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_name_is_hinted_and_a_far_one_is_not() {
        let known = ["batch", "steps", "seed"];
        assert_eq!(hint("stepz", known).as_deref(), Some("did you mean `steps`?"));
        assert_eq!(
            hint("banana", known).as_deref(),
            Some("known are batch, steps, seed")
        );
    }
}
