//! Mistakes in a schedule file, all of them at once, each with its place and a hint.

use super::{cursor::Slip, parts::Line};
use std::fmt;

/// Most mistakes that are listed one by one.
const LISTED_MAX: usize = 1000;
/// Longest message, in characters.
const MESSAGE_MAX: usize = 300;

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileError {
    /// Line, counted from one.
    pub line: usize,
    /// Column in characters, counted from one.
    pub column: usize,
    /// What is wrong, without full stop.
    pub message: String,
    /// What to do about it.
    pub hint: String,
}

/// All mistakes of a file, in order of lines; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileErrors(Vec<FileError>);

impl FileErrors {
    /// All mistakes, in order of lines.
    pub fn iter(&self) -> std::slice::Iter<'_, FileError> {
        self.0.iter()
    }
}

impl<'a> IntoIterator for &'a FileErrors {
    type Item = &'a FileError;
    type IntoIter = std::slice::Iter<'a, FileError>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, column, message, hint } = self;
        write!(f, "{line}:{column}: error: {message}\n  hint: {hint}")
    }
}

impl fmt::Display for FileErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, error) in self.0.iter().enumerate() {
            let separator = if number == 0 { "" } else { "\n" };
            write!(f, "{separator}{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for FileError {}
impl std::error::Error for FileErrors {}

/// Collects mistakes while a file is read.
#[derive(Debug, Default)]
pub(super) struct Mistakes {
    listed: Vec<FileError>,
    unlisted: usize,
}

impl Mistakes {
    pub(super) fn add(
        &mut self,
        line: usize,
        column: usize,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        if self.listed.len() == LISTED_MAX {
            self.unlisted += 1;
            return;
        }
        let [message, hint] = [message.into(), hint.into()].map(|text| printable(&text));
        self.listed.push(FileError { line, column, message, hint });
    }

    pub(super) fn add_slip(&mut self, line: Line<'_>, slip: Slip) {
        let column = line.text[..slip.at].chars().count() + 1;
        self.add(line.number, column, slip.message, slip.hint);
    }

    /// The value, when there was no mistake; one without the other is a bug of ours.
    pub(super) fn finish<T>(mut self, value: Option<T>) -> Result<T, FileErrors> {
        if self.listed.is_empty() {
            return Ok(value.expect("whoever refuses a file names a mistake"));
        }
        self.listed.sort();
        if let (Some(last), true) = (self.listed.last(), self.unlisted > 0) {
            let message = format!("{} further mistakes are not listed", self.unlisted);
            let hint = "repair those above first".to_owned();
            let (line, column) = (last.line, last.column);
            self.listed.push(FileError { line, column, message, hint });
        }
        Err(FileErrors(self.listed))
    }
}

fn printable(text: &str) -> String {
    let plain = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    let mut short: String = text.chars().take(MESSAGE_MAX).map(plain).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
