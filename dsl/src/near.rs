//! What is meant by an unknown name: what a word of another system says here, or the known name
//! that is nearest.

mod borrowed;

use crate::{Code, Mistake};
use roundelay_schedule::nearest;

pub(crate) use borrowed::{Asked, borrowed};

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
    mistake.meant(Asked::Word(what), found, known)
}

impl Mistake {
    /// With a hint that names what a word of another system says here, else what is nearest.
    pub(crate) fn meant<'a>(
        self,
        asked: Asked<'_>,
        found: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        match borrowed(asked, found) {
            Some(hint) => self.hint(hint),
            None => self.near(found, known),
        }
    }

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
