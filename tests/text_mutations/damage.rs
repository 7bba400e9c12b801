//! Damage to texts, piece by piece.

use crate::random::Random;

/// What stands in for a number.
const NUMBERS: [&str; 14] = [
    "0",
    "1",
    "2",
    "3",
    "7",
    "4095",
    "65536",
    "4294967295",
    "4294967296",
    "-1",
    "1e308",
    "1e999",
    "999999999999",
    "18446744073709551616",
];

/// Signs of both languages, and what neither knows.
const SIGNS: [&str; 19] = [
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    ",",
    ":",
    "=",
    "|",
    "..",
    "\"",
    "\n",
    " ",
    "- ",
    "&a ",
    "\u{0}",
    "\u{1F3B6}",
    "hash x\n",
];

/// What is written into a text besides signs: pieces of its language.
pub(crate) struct Damage<'a>(pub(crate) &'a [&'a str]);

impl Damage<'_> {
    /// A text that was damaged once or a few times.
    pub(crate) fn to(&self, original: &[String], random: &mut Random) -> String {
        let mut pieces = original.to_vec();
        for _ in 0..=random.below(3) {
            if !pieces.is_empty() {
                self.once(&mut pieces, random);
            }
        }
        pieces.concat()
    }

    fn once(&self, pieces: &mut Vec<String>, random: &mut Random) {
        let [at, other] = [0; 2].map(|_| random.below(pieces.len()));
        match random.below(10) {
            0 => drop(pieces.remove(at)),
            1 => pieces.insert(other, pieces[at].clone()),
            2 => pieces.swap(at, other),
            3 => pieces.insert(at, format!(" {} ", self.scrap(random))),
            4 => pieces[at] = self.scrap(random).to_owned(),
            5 => pieces.truncate(at + 1),
            6 => pieces[at] = with_another_bit(&pieces[at], random),
            7 => {
                pieces.truncate(at + 1);
                pieces[at] = cut(&pieces[at], random);
            }
            _ => {
                let is_number = |p: &String| p.starts_with(|c: char| c.is_ascii_digit());
                let next = pieces[at..].iter().position(is_number).unwrap_or(0);
                pieces[at + next] = NUMBERS[random.below(NUMBERS.len())].to_owned();
            }
        }
    }

    fn scrap(&self, random: &mut Random) -> &str {
        let at = random.below(SIGNS.len() + self.0.len());
        SIGNS.get(at).unwrap_or_else(|| &self.0[at - SIGNS.len()])
    }
}

/// A text of which one bit is another one.
fn with_another_bit(text: &str, random: &mut Random) -> String {
    let mut bytes = text.as_bytes().to_vec();
    if !bytes.is_empty() {
        let at = random.below(bytes.len());
        bytes[at] ^= 1 << random.below(8);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The begin of a text.
fn cut(text: &str, random: &mut Random) -> String {
    let kept = random.below(text.chars().count() + 1);
    text.chars().take(kept).collect()
}

/// A text in its pieces: small ones, and whole lines.
pub(crate) fn both_pieces(text: &str) -> [Vec<String>; 2] {
    [pieces(text), text.split_inclusive('\n').map(str::to_owned).collect()]
}

/// Words, numbers and signs of a text, which together are the text.
fn pieces(text: &str) -> Vec<String> {
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
