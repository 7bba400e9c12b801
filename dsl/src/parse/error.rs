//! The parser's errors: where reading stopped, and what could have stood there.

use super::stream::Tokens;
use crate::{
    Code, Mistake, Span, limit, near,
    token::{Kind, Token, UNITS},
};
use nom::{
    Err, IResult,
    error::{ErrorKind, ParseError},
};

/// What a production returns.
pub(crate) type Parsed<'a, T> = IResult<Tokens<'a>, T, SyntaxError>;

/// A place where the text leaves the grammar.
#[derive(Clone, Debug)]
pub(crate) struct SyntaxError {
    /// The token that does not fit.
    pub(crate) span: Span,
    /// How it is described.
    found: String,
    /// What could have stood there instead.
    expected: Vec<String>,
    /// Set when more is to be said than found and expected.
    special: Option<Box<Mistake>>,
    /// What to write instead, where that is known.
    hint: Option<String>,
    /// An earlier place that explains it.
    pub(crate) label: Option<Box<(Span, String)>>,
}

/// The next token does not fit: `what` was expected.
pub(crate) fn refuse<T>(input: Tokens<'_>, what: impl Into<String>) -> Parsed<'_, T> {
    Err(Err::Error(SyntaxError::expected(input, what)))
}

impl SyntaxError {
    /// The next token does not fit: `what` was expected.
    pub(crate) fn expected(input: Tokens<'_>, what: impl Into<String>) -> Self {
        Self {
            span: input.span(),
            found: describe(input.peek()),
            expected: vec![what.into()],
            special: stray_unit(input).map(Box::new),
            hint: None,
            label: None,
        }
    }

    /// The declared depth is reached.
    pub(crate) fn too_deep(input: Tokens<'_>) -> Self {
        let message = format!("nested more than {} levels deep", limit::DEPTH);
        let mistake =
            Mistake::new(Code::Limit, message).hint("give the inner part a name");
        Self { special: Some(Box::new(mistake)), ..Self::expected(input, "") }
    }

    /// The declared length of a name or text is exceeded.
    pub(crate) fn too_long(input: Tokens<'_>, most: usize) -> Self {
        let mistake = Mistake::new(Code::Limit, format!("longer than {most} bytes"));
        Self { special: Some(Box::new(mistake)), ..Self::expected(input, "") }
    }

    /// With an earlier place that explains it.
    pub(crate) fn label(mut self, span: Span, text: &str) -> Self {
        self.label = Some(Box::new((span, text.to_owned())));
        self
    }

    /// With what to write instead.
    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// What is reported.
    pub(crate) fn mistake(&self) -> Mistake {
        if let Some(special) = &self.special {
            return (**special).clone();
        }
        let Self { found, hint, .. } = self;
        let message = format!("expected {}, found {found}", listed(&self.expected));
        hint.iter().cloned().fold(Mistake::new(Code::Syntax, message), Mistake::hint)
    }
}

impl<'a> ParseError<Tokens<'a>> for SyntaxError {
    fn from_error_kind(input: Tokens<'a>, _: ErrorKind) -> Self {
        Self::expected(input, "something else")
    }
    fn append(_: Tokens<'a>, _: ErrorKind, other: Self) -> Self {
        other
    }
    fn or(mut self, other: Self) -> Self {
        if self.span.start != other.span.start {
            return if self.span.start > other.span.start { self } else { other };
        }
        self.hint = self.hint.or(other.hint);
        for what in other.expected {
            if !self.expected.contains(&what) {
                self.expected.push(what);
            }
        }
        self
    }
}

/// Words and signs that others write for a unit of the list.
const SPELLINGS: [(&str, &str); 22] = [
    ("\u{b5}", "us"),
    ("\u{3bc}", "us"),
    ("nsec", "ns"),
    ("nanoseconds", "ns"),
    ("usec", "us"),
    ("microseconds", "us"),
    ("msec", "ms"),
    ("milliseconds", "ms"),
    ("sec", "s"),
    ("second", "s"),
    ("seconds", "s"),
    ("minutes", "min"),
    ("hour", "h"),
    ("hours", "h"),
    ("byte", "B"),
    ("bytes", "B"),
    ("USD", "USD/h"),
    ("EUR", "USD/h"),
    ("\u{20ac}", "USD/h"),
    ("GBP", "USD/h"),
    ("JPY", "USD/h"),
    ("CNY", "USD/h"),
];

/// A word after a number that looks like a unit, but is none; or a unit after a word.
fn stray_unit(input: Tokens<'_>) -> Option<Mistake> {
    let Token { kind, text, .. } = input.peek();
    if !matches!(kind, Kind::Name | Kind::Stray) {
        return None;
    }
    if !input.after_number() {
        return lone_unit(input.before()?, text);
    }
    let alike = UNITS.into_iter().filter(|unit| unit.eq_ignore_ascii_case(text));
    let known: Vec<&str> = alike.collect();
    let spelled = SPELLINGS.iter().find(|(other, _)| *other == text);
    let hint = match (&known[..], spelled) {
        ([one, ..], _) => format!("did you mean `{one}`?"),
        ([], Some((_, unit @ "USD/h"))) => {
            format!("prices are in `{unit}`, US dollars an hour")
        }
        ([], Some((_, unit))) => format!("did you mean `{unit}`?"),
        ([], None) if kind == Kind::Stray || text.len() == 1 => return None,
        ([], None) => near::hint(text, UNITS)?,
    };
    Some(Mistake::new(Code::Unit, format!("unknown unit `{text}`")).hint(hint))
}

/// A unit of several letters behind a word that should be a number.
fn lone_unit(before: Token<'_>, text: &str) -> Option<Mistake> {
    let is_unit = text.len() > 1 && UNITS.iter().any(|unit| unit.starts_with(text));
    if before.kind != Kind::Name || !is_unit || !text.ends_with(['B', 'b', 'P', 's']) {
        return None;
    }
    let message =
        format!("`{text}` stands behind a number, and `{}` is none", before.text);
    Some(Mistake::new(Code::Unit, message).hint(format!("write `2 {text}`")))
}

fn describe(token: Token<'_>) -> String {
    let short: String = token.text.chars().take(40).collect();
    match token.kind {
        Kind::Name | Kind::Word | Kind::Symbol => format!("`{short}`"),
        Kind::Number => format!("number `{short}`"),
        Kind::Unit => format!("unit `{short}`"),
        Kind::Text => format!("text {short}"),
        Kind::Newline | Kind::Comment => "end of line".to_owned(),
        Kind::Stray if short == "\"" => "a text without closing quote".to_owned(),
        Kind::Stray => format!("stray character `{}`", short.escape_debug()),
        Kind::End => "end of file".to_owned(),
    }
}

fn listed(expected: &[String]) -> String {
    match expected {
        [] => "something else".to_owned(),
        [one] => one.clone(),
        [head @ .., last] => format!("{} or {last}", head.join(", ")),
    }
}
