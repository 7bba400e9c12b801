//! The outline of a schedule file: first line, header, hash, actions.

use super::{FILE_BYTES_MAX, LINE_BYTES_MAX, error::Mistakes};
use crate::{FORMAT, Fnv, text::unmarked};

/// Consecutive lines of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block<'a> {
    /// Number of the first line, counted from one.
    pub(super) first: usize,
    /// All lines, with their ends.
    pub(super) text: &'a str,
}

/// One line of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line<'a> {
    /// Counted from one.
    pub(super) number: usize,
    /// Without its end.
    pub(super) text: &'a str,
}

/// A file, taken apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts<'a> {
    head: &'a str,
    hash: Option<Line<'a>>,
    hash_length: usize,
    tail: &'a str,
    /// The YAML.
    pub(super) header: Block<'a>,
    /// One line per action.
    pub(super) actions: Block<'a>,
}

impl<'a> Block<'a> {
    pub(super) fn lines(self) -> impl Iterator<Item = Line<'a>> {
        let numbered = self.text.lines().enumerate();
        numbered.map(move |(k, text)| Line { number: self.first + k, text })
    }
}

impl<'a> Line<'a> {
    /// The line without comment and without space at its end.
    pub(super) fn bare(self) -> &'a str {
        let end = self.text.find('#').unwrap_or(self.text.len());
        self.text[..end].trim_end()
    }
    /// Whether it keeps the limit; a mistake if not.
    pub(super) fn fits(self, mistakes: &mut Mistakes) -> bool {
        if self.text.len() > LINE_BYTES_MAX {
            let message = format!("this line is longer than {LINE_BYTES_MAX} bytes");
            mistakes.add(self.number, 1, message, "no schedule needs such a line");
        }
        self.text.len() <= LINE_BYTES_MAX
    }
}

/// Whether a text begins as schedule files do, in whatever format they are.
pub fn begins_schedule(text: &str) -> bool {
    let first = unmarked(text).lines().next().unwrap_or("");
    first.split_whitespace().take(2).eq(["roundelay", "schedule"])
}

/// Takes a file apart; none when it has not the outline of a schedule file.
pub(super) fn split<'a>(text: &'a str, mistakes: &mut Mistakes) -> Option<Parts<'a>> {
    if text.len() > FILE_BYTES_MAX {
        let message = format!("the file is larger than {FILE_BYTES_MAX} bytes");
        mistakes.add(1, 1, message, "fold symmetric devices into an axis");
        return None;
    }
    let text = unmarked(text);
    if !starts_well(text, mistakes) {
        return None;
    }
    let mut hash = None;
    let mut start = 0;
    for (k, whole) in text.split_inclusive('\n').enumerate() {
        let line = Line { number: k + 1, text: whole.trim_end_matches(['\n', '\r']) };
        line.fits(mistakes);
        match line.bare() {
            "actions" => {
                let parts = assemble(text, line, start, whole.len(), hash);
                return parts.ends_with_hash(start, mistakes).then_some(parts);
            }
            bare if k > 0 && is_hash(bare) && hash.is_none() => {
                hash = Some((start, whole.len(), line));
            }
            _ => {}
        }
        start += whole.len();
    }
    let last = text.lines().count().max(1);
    let hint = "the header ends with the lines `hash …` and `actions`";
    mistakes.add(last, 1, "the line `actions` is missing", hint);
    None
}

type Found<'a> = (usize, usize, Line<'a>);

fn assemble<'a>(
    text: &'a str,
    line: Line<'a>,
    start: usize,
    length: usize,
    hash: Option<Found<'a>>,
) -> Parts<'a> {
    let (cut, resume) = hash.map_or((start, start), |(at, size, _)| (at, at + size));
    let yaml = text.find('\n').map_or(cut, |end| end + 1).min(cut);
    Parts {
        head: &text[..cut],
        hash: hash.map(|(_, _, line)| line),
        hash_length: resume - cut,
        tail: &text[resume..],
        header: Block { first: 2, text: &text[yaml..cut] },
        actions: Block { first: line.number + 1, text: &text[start + length..] },
    }
}

fn starts_well(text: &str, mistakes: &mut Mistakes) -> bool {
    let first = Line { number: 1, text: text.lines().next().unwrap_or("") }.bare();
    let words: Vec<&str> = first.split_whitespace().take(4).collect();
    match words[..] {
        ["roundelay", "schedule", version] if version == FORMAT.to_string() => true,
        ["roundelay", "schedule", version] => {
            let message =
                format!("format `{version}` is unknown; this is format {FORMAT}");
            mistakes.add(1, 20, message, "compile the program again");
            false
        }
        _ => {
            let hint = format!("the first line is `roundelay schedule {FORMAT}`");
            mistakes.add(1, 1, "this is not a schedule file", hint);
            false
        }
    }
}

fn is_hash(bare: &str) -> bool {
    bare.strip_prefix("hash").is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}

impl Parts<'_> {
    /// Whether nothing stands between the hash and the actions; a mistake if something does.
    fn ends_with_hash(&self, actions: usize, mistakes: &mut Mistakes) -> bool {
        let Some(hash) = self.hash else { return true };
        let gap = actions - (self.head.len() + self.hash_length);
        let between = Block { first: hash.number + 1, text: &self.tail[..gap] };
        let stray = between.lines().find(|line| !line.bare().is_empty());
        if let Some(line) = stray {
            let hint = "one hash line stands right above the line `actions`";
            mistakes.add(line.number, 1, "the header ends with the hash line", hint);
        }
        stray.is_none()
    }

    /// Compares the hash line with the content.
    pub(super) fn check_hash(&self, mistakes: &mut Mistakes) {
        let actual = hash_line(content_hash(self.head, self.tail));
        let hint = "after an edit by hand run `roundelay check --seal`";
        match self.hash {
            None => {
                let before = self.actions.first - 1;
                mistakes.add(before, 1, "the hash line is missing", hint);
            }
            Some(line) if line.bare() != actual.trim_end() => {
                let message = "the content does not match this hash";
                mistakes.add(line.number, 1, message, hint);
            }
            Some(_) => {}
        }
    }

    /// The whole text with the hash of its content.
    pub(super) fn sealed(&self) -> String {
        let line = hash_line(content_hash(self.head, self.tail));
        [self.head, &line, self.tail].concat()
    }
}

/// The hash line with its end.
pub(super) fn hash_line(hash: u64) -> String {
    format!("hash {hash:016x}\n")
}

/// The hash of what stands before and after the hash line. Lines count without the `\r` that some
/// programs write before their ends.
pub(super) fn content_hash(head: &str, tail: &str) -> u64 {
    let add = |hash: Fnv, whole: &str| match whole.strip_suffix("\r\n") {
        None => hash.with(whole.as_bytes()),
        Some(line) => hash.with(line.as_bytes()).with(b"\n"),
    };
    let lines = [head, tail].into_iter().flat_map(|part| part.split_inclusive('\n'));
    lines.fold(Fnv::default(), add).value()
}
