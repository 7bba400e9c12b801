//! Text with a name, and places in it.

/// A program file: where it was found and what it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// Path in messages; imports and data paths are relative to its folder.
    pub path: String,
    /// The text.
    pub text: String,
}

/// A range of bytes in one file of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// Number of the file, in the order in which files were loaded; the main file is 0.
    pub file: u32,
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// The smallest span that holds both; both lie in one file.
    pub fn to(self, last: Span) -> Span {
        Span { file: self.file, start: self.start, end: last.end.max(self.end) }
    }
}

impl SourceFile {
    /// A file with a path and a text.
    pub fn new(path: impl Into<String>, text: impl Into<String>) -> Self {
        Self { path: path.into(), text: text.into() }
    }

    /// Line and column of a byte, both from one; columns count characters.
    pub fn position(&self, offset: u32) -> (u32, u32) {
        let before = &self.text[..self.boundary(offset)];
        let line = before.bytes().filter(|byte| *byte == b'\n').count();
        let column = before.chars().rev().take_while(|c| *c != '\n').count();
        (count(line) + 1, count(column) + 1)
    }

    /// The line, counted from one, without its end.
    pub fn line(&self, number: u32) -> &str {
        let line = self.text.split('\n').nth(number.saturating_sub(1) as usize);
        line.unwrap_or_default().trim_end_matches('\r')
    }

    /// The byte with which a line begins, counted from one; behind the last one the end.
    pub(crate) fn line_start(&self, number: usize) -> u32 {
        let before = self.text.split_inclusive('\n').take(number.saturating_sub(1));
        count(before.map(str::len).sum())
    }

    /// The folder of the file, empty when the path has none; embedded paths have one too.
    pub fn folder(&self) -> &str {
        match self.path.rfind('/') {
            Some(0) => "/",
            Some(slash) => &self.path[..slash],
            None => "",
        }
    }

    fn boundary(&self, offset: u32) -> usize {
        let mut place = (offset as usize).min(self.text.len());
        while !self.text.is_char_boundary(place) {
            place -= 1;
        }
        place
    }
}

/// A length as a number of lines or columns; files are far shorter than 2^32 bytes.
pub(crate) fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_lines_and_characters_from_one() {
        let file = SourceFile::new("a/b.rdl", "one\ntwö x\n");
        assert_eq!(file.position(0), (1, 1));
        assert_eq!(file.position(4), (2, 1));
        assert_eq!(file.position(9), (2, 5));
        assert_eq!(file.position(999), (3, 1));
        assert_eq!(file.line(2), "twö x");
        assert_eq!([0, 1, 2, 3, 4].map(|line| file.line_start(line)), [0, 0, 4, 11, 11]);
        assert_eq!(file.folder(), "a");
    }
}
