//! The canonical form of a program: the same tokens and comments but for commas at line ends,
//! with spaces and line ends as they should be.
//!
//! Line breaks stay where they are. Bodies are indented by four spaces; at most one empty line
//! separates lines. In neighbouring lines of one kind the values of entries, the types of
//! inputs, and the parts of one-line devices and links stand in columns, and so do comments.

mod line;
mod spacing;

use crate::{
    Diagnostics, SourceFile, Span, import, limit, parse,
    report::Report,
    token::{Kind, Token, tokens},
};
use line::{Home, Line, Setting, align, line};

/// The canonical form of a program's text.
///
/// # Errors
/// All mistakes against the grammar; names are not looked at.
///
/// ```
/// let text = "train{batch 32\n steps   200   # short\n}";
/// let expected = "train {\n    batch 32\n    steps 200    # short\n}\n";
/// assert_eq!(roundelay_dsl::format(text)?, expected);
/// # Ok::<(), roundelay_dsl::Diagnostics>(())
/// ```
pub fn format(text: &str) -> Result<String, Diagnostics> {
    SourceFile::new("program", text).format()
}

impl SourceFile {
    /// As [`format()`], with mistakes told under the file's name.
    ///
    /// # Errors
    /// Those of [`format()`].
    pub fn format(&self) -> Result<String, Diagnostics> {
        check(self)?;
        Ok(formatted(&self.text))
    }
}

fn formatted(text: &str) -> String {
    let tokens = tokens(text);
    let mut lines = lines(&tokens);
    align(&mut lines);
    let mut out = String::new();
    for line in &lines {
        line.write(&mut out);
    }
    out
}

fn check(source: &SourceFile) -> Result<(), Diagnostics> {
    let text = source.text.as_str();
    let mut report = Report::default();
    report.add_file(source.clone());
    if text.len() > limit::FILE_BYTES {
        report.error(Span::default(), import::too_large());
        return report.finish(Ok(())).map(|_| ());
    }
    for mistake in parse::file(text, 0).1 {
        report.syntax_error(mistake);
    }
    report.finish(Ok(())).map(|_| ())
}

/// Splits tokens into lines. Inside brackets line ends are hidden from the grammar, but comments
/// there still end their line.
fn lines(tokens: &[Token<'_>]) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut homes: Vec<Home> = Vec::new();
    let mut gap = false;
    let mut extra = 0;
    let mut behind = None;
    for row in rows(tokens) {
        let Some(first) = row.first() else {
            gap = true;
            continue;
        };
        let closing = usize::from(first.text == "}" && first.kind == Kind::Symbol);
        let setting = Setting {
            home: homes.last().copied(),
            depth: homes.len() - closing.min(homes.len()) + extra,
            brackets: extra,
            behind,
            gap_before: gap && !lines.is_empty(),
        };
        extra = open_after(&row, extra);
        enter(&row, &mut homes);
        behind =
            row.iter().copied().rfind(|token| token.kind != Kind::Comment).or(behind);
        if let Some(line) = line(&row, setting) {
            lines.push(line);
            gap = false;
        }
    }
    lines
}

/// Tokens line by line; an empty list for an empty line. A body over several lines has its
/// braces at the end of the first line and at the begin of the last.
fn rows<'a>(tokens: &[Token<'a>]) -> Vec<Vec<Token<'a>>> {
    let tall = tall_braces(tokens);
    let mut rows: Vec<Vec<Token<'_>>> = vec![Vec::new()];
    let mut broken = false;
    for (index, token) in tokens.iter().enumerate() {
        let last = rows.last_mut().expect("there is a first row");
        let closes = tall[index] && token.text == "}";
        let begins = token.leads || closes || (broken && token.kind != Kind::Comment);
        match token.kind {
            Kind::End => {}
            Kind::Newline => rows.push(Vec::new()),
            _ if begins && !last.is_empty() => rows.push(vec![*token]),
            _ => last.push(*token),
        }
        broken = tall[index] && token.text == "{";
    }
    if rows.last().is_some_and(Vec::is_empty) {
        rows.pop();
    }
    rows
}

/// For every token, whether it is a brace whose body goes over several lines.
fn tall_braces(tokens: &[Token<'_>]) -> Vec<bool> {
    let mut tall = vec![false; tokens.len()];
    let mut open: Vec<(usize, usize)> = Vec::new();
    let mut line = 0;
    for (index, token) in tokens.iter().enumerate() {
        line += usize::from(token.leads);
        match (token.kind, token.text) {
            (Kind::Symbol, "{") => open.push((index, line)),
            (Kind::Symbol, "}") => {
                if let Some((begin, _)) = open.pop().filter(|(_, first)| *first < line) {
                    [tall[begin], tall[index]] = [true, true];
                }
            }
            _ => {}
        }
    }
    tall
}

/// Brackets open behind a row, when `open` of them are before it.
fn open_after(row: &[Token<'_>], open: usize) -> usize {
    row.iter().filter(|token| token.kind == Kind::Symbol).fold(open, |open, token| {
        match token.text {
            "(" | "[" => open + 1,
            ")" | "]" => open.saturating_sub(1),
            "{" | "}" => 0,
            _ => open,
        }
    })
}

/// Follows the braces of a row.
fn enter(row: &[Token<'_>], homes: &mut Vec<Home>) {
    for (index, token) in row.iter().enumerate() {
        match (token.kind, token.text) {
            (Kind::Symbol, "{") => {
                let words = ["train", "plan", "device", "link"];
                let near = &row[index.saturating_sub(2)..index];
                let opens = near.iter().any(|before| words.contains(&before.text));
                let inside = homes.last() == Some(&Home::Entries);
                homes.push(if inside || opens { Home::Entries } else { Home::Other });
            }
            (Kind::Symbol, "}") => _ = homes.pop(),
            _ => {}
        }
    }
}
