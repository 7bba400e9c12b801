//! The canonical form of a program: the same tokens and comments, with spaces and line ends as
//! they should be.
//!
//! Line breaks stay where they are. Bodies are indented by four spaces; at most one empty line
//! separates lines. In neighbouring lines of one kind the values of entries, the types of
//! inputs, and the parts of one-line devices and links stand in columns, and so do comments.

use crate::{
    Diagnostics, SourceFile, Span, import, limit, parse,
    report::Report,
    token::{Kind, Token, tokens},
};

/// Spaces of one indentation, and least number of spaces before a comment that ends a line.
const STEP: usize = 4;

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
    check(text)?;
    let tokens = tokens(text);
    let mut lines = lines(&tokens);
    align(&mut lines);
    let mut out = String::new();
    for line in &lines {
        line.write(&mut out);
    }
    Ok(out)
}

fn check(text: &str) -> Result<(), Diagnostics> {
    let mut report = Report::default();
    report.add_file(SourceFile::new("program", text));
    if text.len() > limit::FILE_BYTES {
        report.error(Span::default(), import::too_large());
        return report.finish(Ok(())).map(|_| ());
    }
    for mistake in parse::file(text, 0).1 {
        report.syntax_error(&mistake);
    }
    report.finish(Ok(())).map(|_| ())
}

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
struct Line {
    indent: usize,
    class: Class,
    cells: Vec<String>,
    comment: Option<String>,
    gap_before: bool,
}

/// What an open brace surrounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Home {
    Entries,
    Other,
}

/// Splits tokens into lines. Inside brackets line ends are hidden from the grammar, but comments
/// there still end their line.
fn lines(tokens: &[Token<'_>]) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut homes: Vec<Home> = Vec::new();
    let mut gap = false;
    let mut extra = 0;
    for row in rows(tokens) {
        let Some(first) = row.first() else {
            gap = true;
            continue;
        };
        let closing = usize::from(first.text == "}" && first.kind == Kind::Symbol);
        let indent = (homes.len() - closing.min(homes.len()) + extra) * STEP;
        let home = homes.last().copied();
        let gap_before = gap && !lines.is_empty();
        lines.push(line(&row, indent, home, gap_before));
        extra = brackets(&row, extra);
        enter(&row, &mut homes);
        gap = false;
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

/// Brackets open at the end of a row: such rows are indented once more.
fn brackets(row: &[Token<'_>], open: usize) -> usize {
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
                let opens =
                    row[..index].iter().any(|before| words.contains(&before.text));
                let inside = homes.last() == Some(&Home::Entries);
                homes.push(if inside || opens { Home::Entries } else { Home::Other });
            }
            (Kind::Symbol, "}") => _ = homes.pop(),
            _ => {}
        }
    }
}

fn line(row: &[Token<'_>], indent: usize, home: Option<Home>, gap_before: bool) -> Line {
    let (row, comment) = match row.split_last() {
        Some((last, before)) if last.kind == Kind::Comment => {
            (before, Some(spaced(last.text)))
        }
        _ => (row, None),
    };
    let class = class(row, home);
    let breaks: &[usize] = match class {
        Class::Plain => &[],
        Class::Entry => &[1],
        Class::Input => &[3],
        Class::Component => &[1, 2],
    };
    let mut cells = Vec::new();
    let mut from = 0;
    for to in breaks.iter().copied().chain([row.len()]) {
        cells.push(joined(&row[from..to]));
        from = to;
    }
    Line { indent, class, cells, comment, gap_before }
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

/// `#text` as `# text`; nothing behind the last letter.
fn spaced(comment: &str) -> String {
    let text = comment.trim_end().trim_start_matches('#');
    let marks = &comment[..comment.len() - comment.trim_start_matches('#').len()];
    match text.starts_with([' ', '\t', '!']) || text.is_empty() {
        true => format!("{marks}{text}"),
        false => format!("{marks} {text}"),
    }
}

/// Tokens with the spaces that belong between them.
fn joined(tokens: &[Token<'_>]) -> String {
    let mut out = String::new();
    for (index, token) in tokens.iter().enumerate() {
        if index > 0 && separated(&tokens[..index], *token) {
            out.push(' ');
        }
        out.push_str(token.text);
    }
    out
}

/// Whether a space stands before a token.
fn separated(before: &[Token<'_>], token: Token<'_>) -> bool {
    let [.., last] = before else { return false };
    let symbol = |token: &Token<'_>| match token.kind {
        Kind::Symbol => token.text.to_owned(),
        _ => String::new(),
    };
    let callable = |token: &Token<'_>| matches!(token.kind, Kind::Name | Kind::Word);
    match (symbol(last).as_str(), symbol(&token).as_str()) {
        ("(" | "[", _) | (_, ")" | "]" | "," | ":") => false,
        (_, "(") if callable(last) => false,
        (_, "[") if callable(last) || last.text == ")" => !indexed(before),
        ("-", _) => !is_sign(before),
        ("{", "}") => false,
        _ => true,
    }
}

/// Whether `[` after these tokens belongs to the last of them: `i32[batch]`, `x[0]`, but not
/// `cuts [3]`.
fn indexed(before: &[Token<'_>]) -> bool {
    match before {
        [.., mark, _] => {
            let separates =
                ["{", "}", ","].contains(&mark.text) && !within_brackets(before);
            !separates
        }
        _ => true,
    }
}

fn within_brackets(tokens: &[Token<'_>]) -> bool {
    brackets(tokens, 0) > 0
}

/// Whether a final `-` is a sign and not a difference.
fn is_sign(before: &[Token<'_>]) -> bool {
    let Some(previous) = before.len().checked_sub(2).map(|index| before[index]) else {
        return true;
    };
    let value =
        !matches!(previous.kind, Kind::Symbol) || [")", "]"].contains(&previous.text);
    let keyword = ["loss", "metric", "return", "repeat", "after", "sharing"];
    !value || keyword.contains(&previous.text)
}

/// Fills cells and comments of neighbouring lines of one kind up to columns.
fn align(lines: &mut [Line]) {
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

    fn write(&self, out: &mut String) {
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
