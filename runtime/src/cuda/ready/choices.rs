//! Which kept way everything is made in that was asked for: the one that the user's folder has, or the
//! one that ranks agreed on.

use super::cache::{keep, read, unkept, write};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

/// What says which ways were chosen, by the names of the files that keep them.
pub(super) type Words = BTreeMap<String, Vec<u8>>;

/// Of one process, on one GPU.
#[derive(Default)]
pub(super) struct Choices {
    folder: Option<PathBuf>,
    /// What ranks agreed on; where they have, nothing else counts.
    agreed: Option<Words>,
    /// In which way all is made that was asked for; none where the first way stands, which nobody kept.
    made: BTreeMap<String, Option<Vec<u8>>>,
    /// What was found and kept by this process.
    found: BTreeSet<String>,
}

/// What was kept by all ranks, where ranks disagree: that of the lowest one.
pub(super) fn merged(all: impl IntoIterator<Item = Words>) -> Words {
    let mut merged = Words::new();
    for (name, way) in all.into_iter().flatten() {
        merged.entry(name).or_insert(way);
    }
    merged
}

impl Choices {
    /// With a folder that may keep them.
    pub(super) fn new(folder: Option<PathBuf>) -> Self {
        Self { folder, ..Self::default() }
    }

    /// The way that stands for something.
    pub(super) fn known(&self, name: &str) -> Option<Vec<u8>> {
        match &self.agreed {
            Some(agreed) => agreed.get(name).cloned(),
            None => read(&self.file(name)?),
        }
    }

    /// The file that says which way stands for something; none where ranks agreed on one.
    pub(super) fn file(&self, name: &str) -> Option<PathBuf> {
        let folder = self.folder.as_ref().filter(|_| self.agreed.is_none());
        folder.map(|folder| folder.join(name))
    }

    /// Something is made in a way that stands, or in the first one, which nobody kept.
    pub(super) fn note(&mut self, name: String, way: Option<Vec<u8>>) {
        self.made.insert(name, way);
    }

    /// Keeps the best way of something, and returns the one that is kept: somebody may have been earlier.
    /// None where nothing can be kept.
    pub(super) fn keep(&mut self, name: &str, best: &[u8]) -> Option<Vec<u8>> {
        let kept = keep(&self.folder.as_ref()?.join(name), best).ok()?;
        if kept == best {
            self.found.insert(name.to_owned());
        }
        Some(kept)
    }

    /// In words that nothing can be kept, and what would help.
    pub(super) fn unkept(&self) -> String {
        unkept("what a trial finds", self.folder.as_deref())
    }

    /// The ways in which all is made that stands.
    pub(super) fn words(&self) -> Words {
        let made = self.made.iter();
        made.filter_map(|(name, way)| Some((name.clone(), way.clone()?))).collect()
    }

    /// The first thing that is made in another way than ranks agreed on, by the name of its file.
    pub(super) fn stray(&self, agreed: &Words) -> Option<&str> {
        let mut made = self.made.iter();
        let stray = made.find(|(name, way)| {
            let agreed = agreed.get(*name);
            agreed.is_some() && agreed != way.as_ref()
        });
        stray.map(|(name, _)| name.as_str())
    }

    /// Takes what ranks agreed on.
    pub(super) fn agree(&mut self, agreed: Words) {
        self.agreed = Some(agreed);
        self.made.clear();
    }

    /// Keeps what ranks agreed on of all that was asked for, as far as it can be kept. What was kept
    /// before this process stays, for whoever keeps first decides; what it found itself does not.
    pub(super) fn keep_agreed(&self, agreed: &Words) {
        let Some(folder) = &self.folder else { return };
        let asked = self.made.keys().filter_map(|name| agreed.get_key_value(name));
        for (name, way) in asked {
            let file = folder.join(name);
            // The next run agrees again where this fails.
            let _ = match read(&file) {
                None => keep(&file, way).map(drop),
                Some(own) if own != *way && self.found.contains(name) => {
                    write(&file, way)
                }
                Some(_) => Ok(()),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    fn words(of: &[(&str, &str)]) -> Words {
        let own = of.iter().map(|(name, way)| (name.to_string(), way.as_bytes().into()));
        own.collect()
    }

    #[test]
    fn the_lowest_rank_that_has_a_word_decides() {
        let ranks = [
            words(&[("b", "of 0")]),
            words(&[("a", "of 1"), ("b", "of 1")]),
            words(&[("a", "of 2"), ("c", "of 2")]),
        ];
        let expected = words(&[("a", "of 1"), ("b", "of 0"), ("c", "of 2")]);
        assert_eq!(merged(ranks), expected);
        assert_eq!(merged([]), Words::new());
    }

    /// Everything is asked for, tried where it is not known, and made so.
    fn make(choices: &mut Choices, all: &[(&str, &str)]) {
        for (name, best) in all {
            let known = choices.known(name);
            let way = known.or_else(|| choices.keep(name, best.as_bytes()));
            choices.note(name.to_string(), way);
        }
    }

    #[test]
    fn what_is_agreed_on_is_made_and_kept_but_for_what_was_kept_before() {
        let scratch = Scratch::new("agreed-choices");
        let folder = || Some(scratch.path().join("own"));
        let mut before = Choices::new(folder());
        make(&mut before, &[("old", "first")]);
        let mut own = Choices::new(folder());
        let all = [("old", "second"), ("new", "own"), ("alone", "own")];
        make(&mut own, &all);
        own.note("unkept".to_owned(), None);
        let kept = words(&[("alone", "own"), ("new", "own"), ("old", "first")]);
        assert_eq!(own.words(), kept, "what was kept before is not found again");
        assert_eq!(own.stray(&kept), None);
        assert_eq!(own.stray(&words(&[("unasked", "theirs")])), None);

        let agreed = [("new", "theirs"), ("old", "theirs"), ("unkept", "theirs")];
        let agreed = words(&agreed);
        assert_eq!(own.stray(&agreed), Some("new"));
        own.agree(agreed.clone());
        make(&mut own, &[("old", "third"), ("new", "third"), ("unkept", "third")]);
        assert_eq!((own.words(), own.stray(&agreed)), (agreed.clone(), None));
        own.note("new".to_owned(), None);
        assert_eq!(own.stray(&agreed), Some("new"), "it cannot be made so");
        own.keep_agreed(&agreed);
        let next = Choices::new(folder());
        for (name, way) in [("old", "first"), ("new", "theirs"), ("unkept", "theirs")] {
            assert_eq!(next.known(name).as_deref(), Some(way.as_bytes()), "{name}");
        }
    }

    /// Such a process is told by the others what they keep.
    #[test]
    fn who_can_keep_nothing_has_no_word() {
        for folder in [None, Some(PathBuf::from("/dev/null/choices"))] {
            let mut own = Choices::new(folder);
            make(&mut own, &[("one", "own")]);
            assert_eq!(own.words(), Words::new());
            let agreed = words(&[("one", "theirs")]);
            assert_eq!(own.stray(&agreed), Some("one"));
            own.agree(agreed.clone());
            make(&mut own, &[("one", "own")]);
            assert_eq!((own.words(), own.stray(&agreed)), (agreed.clone(), None));
            own.keep_agreed(&agreed);
        }
    }
}
