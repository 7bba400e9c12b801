//! Damage to texts, piece by piece; the tests of several crates share it.

use crate::random::Random;

/// What is written into a text.
pub(crate) struct Damage<'a> {
    /// Pieces of the language and of others.
    pub(crate) scraps: &'a [&'a str],
    /// What stands in for a number.
    pub(crate) numbers: &'a [&'a str],
}

impl Damage<'_> {
    /// A text that was damaged once or a few times; its pieces come from [`pieces`].
    pub(crate) fn to(&self, original: &[String], random: &mut Random) -> String {
        let mut pieces = original.to_vec();
        for _ in 0..=random.below(3) {
            self.once(&mut pieces, random);
        }
        pieces.concat()
    }

    fn once(&self, pieces: &mut Vec<String>, random: &mut Random) {
        let [at, other] = [0; 2].map(|_| random.below(pieces.len()));
        let any = |list: &[&str], random: &mut Random| {
            random.pick(list).map(str::to_owned).unwrap_or_default()
        };
        match random.below(8) {
            0 => drop(pieces.remove(at)),
            1 => pieces.insert(other, pieces[at].clone()),
            2 => pieces.swap(at, other),
            3 => pieces.insert(at, format!(" {} ", any(self.scraps, random))),
            4 => pieces[at] = any(self.scraps, random),
            5 => pieces.truncate(at + 1),
            _ => {
                let is_number = |p: &String| p.starts_with(|c: char| c.is_ascii_digit());
                let next = pieces[at..].iter().position(is_number).unwrap_or(0);
                pieces[at + next] = any(self.numbers, random);
            }
        }
    }
}

/// Words, numbers and signs of a text, which together are the text.
pub(crate) fn pieces(text: &str) -> Vec<String> {
    let kind = |c: char| (c.is_alphabetic() || c == '_', c.is_ascii_digit(), c == ' ');
    let mut pieces: Vec<String> = Vec::new();
    for c in text.chars() {
        let continues = |last: &&mut String| {
            let before = last.chars().next_back().map(kind);
            before == Some(kind(c)) && kind(c) != (false, false, false)
        };
        match pieces.last_mut().filter(continues) {
            Some(last) => last.push(c),
            None => pieces.push(c.to_string()),
        }
    }
    pieces
}
