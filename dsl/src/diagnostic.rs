//! What is said about a program: mistakes and warnings, each with its place and a hint.

use crate::{SourceFile, Span, source::count};
use roundelay_schedule::printable;
use std::fmt;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The program is refused.
    Error,
    /// The program is accepted; something in it has no effect.
    Warning,
}

/// What kind of mistake it is; stable, for programs that read diagnostics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Code {
    /// The text does not follow the grammar.
    Syntax,
    /// A declared limit is exceeded.
    Limit,
    /// A name that nothing defines.
    UnknownName,
    /// A key that the block does not know.
    UnknownKey,
    /// A second definition.
    Duplicate,
    /// A value of the wrong type.
    Type,
    /// Shapes that do not fit.
    Shape,
    /// A unit that is missing or does not fit.
    Unit,
    /// A value outside of its range.
    Value,
    /// Something that must be there is not.
    Missing,
    /// A file that cannot be imported.
    Import,
    /// A table of measured times that cannot be used.
    Table,
    /// Part of the language, but not delivered yet.
    NotYet,
    /// Something that has no effect.
    Unused,
    /// A plan that is written down and that the program does not allow.
    Plan,
}

/// One thing said about a program, ready to print.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// What kind of mistake it is.
    pub code: Code,
    /// How bad it is.
    pub severity: Severity,
    /// Where and how far.
    pub place: Box<SourcePlace>,
    /// What was found and what was expected; lower case, no full stop.
    pub message: String,
    /// What to do.
    pub hints: Vec<String>,
    /// Other places that matter.
    pub labels: Vec<(SourcePlace, String)>,
}

/// A marked range of one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourcePlace {
    /// Path of the file.
    pub file: String,
    /// Line, from one.
    pub line: u32,
    /// Column in characters, from one.
    pub column: u32,
    /// Marked characters, at least one.
    pub length: u32,
    /// The line itself, or the begin of a very long one.
    pub text: String,
}

/// All diagnostics of a refused program, in source order; there is at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostics(Vec<Diagnostic>);

/// What is wrong, before it is known where; operators and values say it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// What kind of mistake it is.
    pub code: Code,
    /// What was found and what was expected; lower case, no full stop.
    pub message: String,
    /// What to do.
    pub hints: Vec<String>,
    /// The argument at fault, when one is.
    pub argument: Option<&'static str>,
}

/// Characters of a line that are shown.
const LONGEST: usize = 200;

impl SourcePlace {
    /// The range in its file; a range over several lines is cut at the end of the first.
    pub fn new(file: &SourceFile, span: Span) -> Self {
        let (line, column) = file.position(span.start);
        let (last_line, last_column) = file.position(span.end);
        let text: String = file.line(line).chars().take(LONGEST).collect();
        let rest = (count(text.chars().count()) + 1).saturating_sub(column);
        let wide = if last_line == line { last_column - column } else { rest };
        let length = wide.min(rest).max(1);
        Self { file: file.path.clone(), line, column, length, text }
    }
}

impl Diagnostics {
    /// All of them, unless there are none.
    pub fn new(all: Vec<Diagnostic>) -> Self {
        assert!(!all.is_empty(), "a refusal names at least one mistake");
        Self(all)
    }
    /// The diagnostics, in source order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Diagnostic> {
        self.0.iter()
    }
    /// The first one.
    pub fn first(&self) -> &Diagnostic {
        &self.0[0]
    }
}

impl Mistake {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hints: Vec::new(), argument: None }
    }
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }
    pub(crate) fn argument(mut self, name: &'static str) -> Self {
        self.argument = Some(name);
        self
    }
}

impl std::error::Error for Diagnostic {}
impl std::error::Error for Diagnostics {}
impl std::error::Error for Mistake {}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.message)?;
        self.hints.iter().try_for_each(|hint| write!(f, " ({hint})"))
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, diagnostic) in self.iter().enumerate() {
            let gap = if index == 0 { "" } else { "\n" };
            write!(f, "{gap}{diagnostic}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Diagnostic {
    /// Names may come from files of others, so none of them moves the cursor or begins a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, severity, place, message, hints, labels } = self;
        writeln!(f, "{severity}[{code}]: {}", printable(message))?;
        write!(f, "{place}")?;
        for (place, label) in labels {
            write!(f, "  note: {}\n{place}", printable(label))?;
        }
        hints.iter().try_for_each(|hint| writeln!(f, "  hint: {}", printable(hint)))
    }
}

impl fmt::Display for SourcePlace {
    /// The path with line and column, then the line with an arrow under the marked range. Control
    /// characters but tabs take the place of one character each.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column, length, text } = self;
        let number = line.to_string();
        let margin = " ".repeat(number.len());
        let under = |c: char| if c == '\t' { '\t' } else { ' ' };
        let lead: String = text.chars().take(*column as usize - 1).map(under).collect();
        let arrow = "^".repeat(*length as usize);
        writeln!(f, "{margin}--> {}:{line}:{column}", printable(file))?;
        if *column as usize > LONGEST {
            return Ok(());
        }
        let seen = |c: char| if c.is_control() && c != '\t' { '\u{fffd}' } else { c };
        writeln!(f, "{number} | {}", text.chars().map(seen).collect::<String>())?;
        writeln!(f, "{margin} | {lead}{arrow}")
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        })
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Code::Syntax => "syntax",
            Code::Limit => "limit",
            Code::UnknownName => "unknown-name",
            Code::UnknownKey => "unknown-key",
            Code::Duplicate => "duplicate",
            Code::Type => "type",
            Code::Shape => "shape",
            Code::Unit => "unit",
            Code::Value => "value",
            Code::Missing => "missing",
            Code::Import => "import",
            Code::Table => "table",
            Code::NotYet => "not-yet",
            Code::Unused => "unused",
            Code::Plan => "plan",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diagnostic_shows_its_line_with_an_arrow() {
        let file = SourceFile::new("m.rdl", "train {\n\tstepz 3\n}\n");
        let diagnostic = Diagnostic {
            code: Code::UnknownKey,
            severity: Severity::Error,
            place: Box::new(SourcePlace::new(&file, Span { file: 0, start: 9, end: 14 })),
            message: "unknown key `stepz`".into(),
            hints: vec!["did you mean `steps`?".into()],
            labels: Vec::new(),
        };
        let expected = "error[unknown-key]: unknown key `stepz`\n --> m.rdl:2:2\n\
                        2 | \tstepz 3\n  | \t^^^^^\n  hint: did you mean `steps`?\n";
        assert_eq!(diagnostic.to_string(), expected);
    }

    #[test]
    fn no_name_moves_the_cursor_or_begins_a_line() {
        let file = SourceFile::new("m\n.rdl", "import \"\u{1b}[2J.rdl\"\n");
        let diagnostic = Diagnostic {
            code: Code::Import,
            severity: Severity::Error,
            place: Box::new(SourcePlace::new(&file, Span { file: 0, start: 7, end: 17 })),
            message: "cannot read `\u{1b}[2J.rdl`".into(),
            hints: vec!["say `--ignore x\ny`".into()],
            labels: Vec::new(),
        };
        let expected = "error[import]: cannot read `\\u{1b}[2J.rdl`\n --> m\\n.rdl:1:8\n\
                        1 | import \"\u{fffd}[2J.rdl\"\n  |        ^^^^^^^^^^\n  \
                        hint: say `--ignore x\\ny`\n";
        assert_eq!(diagnostic.to_string(), expected);
    }
}
