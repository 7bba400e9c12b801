//! A cursor over one line of actions.

use std::str::FromStr;

/// A mistake at a byte of a line.
#[derive(Debug)]
pub(super) struct Slip {
    pub(super) at: usize,
    pub(super) message: String,
    pub(super) hint: String,
}

/// A position in a line; blanks before each piece are skipped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// The byte at which the next piece starts.
    pub(super) fn at(&mut self) -> usize {
        let blanks = self.text[self.at..].bytes().take_while(|b| b" \t".contains(b));
        self.at += blanks.count();
        self.at
    }

    /// The next run of letters, digits, `_` and `.`; empty when something else stands there.
    pub(super) fn word(&mut self) -> &'a str {
        let start = self.at();
        let inside = |b: &u8| b.is_ascii_alphanumeric() || b"_.".contains(b);
        self.at += self.text[start..].bytes().take_while(inside).count();
        &self.text[start..self.at]
    }

    /// The next word, without moving.
    pub(super) fn peek(mut self) -> &'a str {
        self.word()
    }

    /// Moves over `mark` if it stands here.
    pub(super) fn takes(&mut self, mark: &str) -> bool {
        let start = self.at();
        let found = self.text[start..].starts_with(mark);
        self.at += if found { mark.len() } else { 0 };
        found
    }

    /// Moves over `mark`, which must stand here.
    pub(super) fn mark(&mut self, mark: &str, hint: &str) -> Result<(), Slip> {
        let at = self.at();
        match self.takes(mark) {
            true => Ok(()),
            false => {
                Err(slip(at, format!("expected `{mark}`, found {}", self.found()), hint))
            }
        }
    }

    /// Moves over the word `word`, which must stand here.
    pub(super) fn keyword(&mut self, word: &str, hint: &str) -> Result<(), Slip> {
        let at = self.at();
        match self.peek() == word {
            true => {
                self.word();
                Ok(())
            }
            false => {
                Err(slip(at, format!("expected `{word}`, found {}", self.found()), hint))
            }
        }
    }

    /// A handle, or a handle with a place.
    pub(super) fn handle<T: FromStr<Err = String>>(
        &mut self,
        hint: &str,
    ) -> Result<T, Slip> {
        let at = self.at();
        let here = *self;
        self.word().parse().map_err(|message: String| {
            // Where no word stands, what does is told.
            let message = match message.strip_suffix("``") {
                Some(start) => format!("{start}{}", here.found()),
                None => message,
            };
            slip(at, message, hint)
        })
    }

    /// A count.
    pub(super) fn number(&mut self, hint: &str) -> Result<u32, Slip> {
        let at = self.at();
        let here = *self;
        let word = self.word();
        let digits = word.bytes().all(|b| b.is_ascii_digit());
        word.parse().ok().filter(|_| digits).ok_or_else(|| {
            let found = here.found();
            slip(at, format!("expected a number below 2^32, found {found}"), hint)
        })
    }

    /// Nothing may follow.
    pub(super) fn end(&mut self, hint: &str) -> Result<(), Slip> {
        let at = self.at();
        match at == self.text.len() {
            true => Ok(()),
            false => Err(slip(
                at,
                format!("expected the line to end, found {}", self.found()),
                hint,
            )),
        }
    }

    /// What stands here, for messages.
    pub(super) fn found(mut self) -> String {
        let start = self.at();
        let piece = self.text[start..].split_whitespace().next();
        piece.map_or("the end of the line".to_owned(), |piece| format!("`{piece}`"))
    }
}

pub(super) fn slip(
    at: usize,
    message: impl Into<String>,
    hint: impl Into<String>,
) -> Slip {
    Slip { at, message: message.into(), hint: hint.into() }
}
