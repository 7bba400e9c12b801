//! Lines of a formatted program, and the columns that neighbouring lines share.

use super::spacing::joined;
use crate::token::{Kind, Token};

/// Spaces of one indentation, and least number of spaces before a comment that ends a line.
pub(super) const STEP: usize = 4;

/// What a line is, for columns: lines of one kind that follow each other are aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// In no columns.
    Plain,
    /// `key value`.
    Entry,
    /// `input name: type`.
    Input,
    /// `device name { … }` or `link name { … }`.
    Component,
}

/// A line: its cells are separated by at least one space.
#[derive(Debug)]
pub(super) struct Line {
    indent: usize,
    class: Class,
    cells: Vec<String>,
    comment: Option<String>,
    gap_before: bool,
}

/// What an open brace surrounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Home {
    Entries,
    Other,
}

/// Where a row stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting<'a> {
    /// What surrounds it; nothing at the outermost level.
    pub(super) home: Option<Home>,
    /// Open braces and brackets.
    pub(super) depth: usize,
    /// Brackets among them.
    pub(super) brackets: usize,
    /// What stands before it within these brackets.
    pub(super) behind: Option<Token<'a>>,
    /// Whether an empty line is before it.
    pub(super) gap_before: bool,
}

/// A row as a line; none where it has but commas that the end of a line stands for.
pub(super) fn line<'a>(row: &[Token<'a>], setting: Setting<'a>) -> Option<Line> {
    let (row, comment) = match row.split_last() {
        Some((last, before)) if last.kind == Kind::Comment => {
            (before, Some(spaced(last.text)))
        }
        _ => (row, None),
    };
    let Setting { home, depth, brackets, behind, gap_before } = setting;
    let row = without_last_commas(row, brackets);
    if row.is_empty() && comment.is_none() {
        return None;
    }
    let class = if brackets > 0 { Class::Plain } else { class(row, home) };
    let breaks: &[usize] = match class {
        Class::Plain => &[],
        Class::Entry => &[1],
        Class::Input => &[3],
        Class::Component => &[1, 2],
    };
    let mut cells = Vec::new();
    let mut from = 0;
    let mut behind = behind.filter(|_| brackets > 0);
    for to in breaks.iter().copied().chain([row.len()]) {
        cells.push(joined(&row[from..to], brackets, behind.take()));
        from = to;
    }
    Some(Line { indent: depth * STEP, class, cells, comment, gap_before })
}

fn class(row: &[Token<'_>], home: Option<Home>) -> Class {
    let text = |index: usize| row.get(index).map_or("", |token| token.text);
    let balanced = text(row.len().saturating_sub(1)) == "}";
    let several = {
        let comma = row.iter().position(|token| token.text == ",");
        comma.is_some_and(|comma| {
            !row[..comma].iter().any(|t| ["(", "[", "{"].contains(&t.text))
        })
    };
    match (home, text(0)) {
        (Some(Home::Entries), _) if several || row.len() < 2 => Class::Plain,
        (Some(Home::Entries), _) if row[0].kind == Kind::Name => Class::Entry,
        (Some(Home::Other), "input") if text(2) == ":" && row.len() > 3 => Class::Input,
        (None, "device" | "link") if text(2) == "{" && balanced => Class::Component,
        _ => Class::Plain,
    }
}

/// The end of a line separates as well as commas.
fn without_last_commas<'a, 'b>(
    mut row: &'b [Token<'a>],
    brackets: usize,
) -> &'b [Token<'a>] {
    while let Some((last, before)) = row.split_last()
        && last.text == ","
        && super::open_after(row, brackets) == 0
    {
        row = before;
    }
    row
}

/// `#text` as `# text`; nothing behind the last letter.
fn spaced(comment: &str) -> String {
    let text = comment.trim_end().trim_start_matches('#');
    let marks = &comment[..comment.len() - comment.trim_start_matches('#').len()];
    match text.starts_with([' ', '\t', '!']) || text.is_empty() {
        true => format!("{marks}{text}"),
        false => format!("{marks} {text}"),
    }
}

/// Fills cells and comments of neighbouring lines of one kind up to columns.
pub(super) fn align(lines: &mut [Line]) {
    for group in lines.chunk_by_mut(|one, next| {
        let alike = one.class == next.class && one.indent == next.indent;
        alike && one.class != Class::Plain && !next.gap_before
    }) {
        if group[0].class == Class::Plain {
            continue;
        }
        for column in 0..group[0].cells.len() - 1 {
            let wide = group.iter().map(|line| line.cells[column].chars().count()).max();
            for line in group.iter_mut() {
                fill(&mut line.cells[column], wide.unwrap_or_default());
            }
        }
    }
    for group in lines.chunk_by_mut(|one, next| {
        let both = one.comment.is_some() && next.comment.is_some();
        both && one.indent == next.indent
            && !next.gap_before
            && !one.is_comment()
            && !next.is_comment()
    }) {
        let wide =
            group.iter().map(|line| line.code().chars().count()).max().unwrap_or(0);
        for line in group.iter_mut().filter(|line| line.comment.is_some()) {
            let code = line.code().chars().count();
            if let Some(last) = line.cells.last_mut().filter(|_| code > 0) {
                let width = last.chars().count() + wide - code + STEP;
                fill(last, width);
            }
        }
    }
}

fn fill(cell: &mut String, width: usize) {
    let missing = width.saturating_sub(cell.chars().count());
    cell.extend(std::iter::repeat_n(' ', missing));
}

impl Line {
    fn code(&self) -> String {
        self.cells.join(" ")
    }

    fn is_comment(&self) -> bool {
        self.cells.iter().all(String::is_empty)
    }

    /// Writes the line with its end.
    pub(super) fn write(&self, out: &mut String) {
        if self.gap_before {
            out.push('\n');
        }
        let text =
            format!("{}{}", self.code(), self.comment.as_deref().unwrap_or_default());
        out.extend(std::iter::repeat_n(' ', self.indent));
        out.push_str(text.trim_end());
        out.push('\n');
    }
}
