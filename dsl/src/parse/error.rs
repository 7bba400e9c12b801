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
use std::fmt;

/// What a production returns.
pub(crate) type Parsed<'a, T> = IResult<Tokens<'a>, T, SyntaxError<'a>>;

/// A place where one reading of the text leaves the grammar. Most such readings have another one beside
/// them, and nobody is told; so it has no words before it is told.
#[derive(Debug)]
pub(crate) struct SyntaxError<'a> {
    /// The first of them does not fit.
    at: Tokens<'a>,
    said: Said,
    aside: Option<Box<Aside>>,
}

/// What is wrong.
#[derive(Debug)]
enum Said {
    /// This could have stood there instead, or one of these.
    Expected(What, Vec<What>),
    /// Something else than that.
    Other(Box<Mistake>),
}

/// What could have stood somewhere.
#[derive(Debug)]
pub(crate) enum What {
    /// A sign or a word of the language.
    Sign(&'static str),
    /// What these words describe.
    Words(&'static str),
    /// The same, put together.
    Composed(String),
}

/// What is said besides.
#[derive(Debug, Default)]
struct Aside {
    /// What to write instead, where that is known.
    hint: Option<String>,
    /// An earlier place that explains it.
    label: Option<(Span, String)>,
}

/// A mistake against the grammar in words, and where it is.
#[derive(Clone, Debug)]
pub(crate) struct Misread {
    /// The token that does not fit.
    pub(crate) span: Span,
    pub(crate) mistake: Mistake,
    /// Earlier places that explain it.
    pub(crate) labels: Vec<(Span, String)>,
}

/// The next token does not fit: `what` was expected.
pub(crate) fn refuse<T>(input: Tokens<'_>, what: impl Into<What>) -> Parsed<'_, T> {
    Err(Err::Error(SyntaxError::expected(input, what)))
}

impl<'a> SyntaxError<'a> {
    /// The next token does not fit: `what` was expected.
    pub(crate) fn expected(at: Tokens<'a>, what: impl Into<What>) -> Self {
        Self { at, said: Said::Expected(what.into(), Vec::new()), aside: None }
    }

    fn other(at: Tokens<'a>, mistake: Mistake) -> Self {
        Self { at, said: Said::Other(Box::new(mistake)), aside: None }
    }

    /// The declared depth is reached.
    pub(crate) fn too_deep(input: Tokens<'a>) -> Self {
        let message = format!("nested more than {} levels deep", limit::DEPTH);
        let mistake = Mistake::new(Code::Limit, message);
        Self::other(input, mistake.hint("give the inner part a name"))
    }

    /// The declared length of a name or text is exceeded.
    pub(crate) fn too_long(input: Tokens<'a>, most: usize) -> Self {
        let message = format!("longer than {most} bytes");
        Self::other(input, Mistake::new(Code::Limit, message))
    }

    /// With an earlier place that explains it.
    pub(crate) fn label(mut self, span: Span, text: &str) -> Self {
        self.aside.get_or_insert_default().label = Some((span, text.to_owned()));
        self
    }

    /// With what to write instead.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.aside.get_or_insert_default().hint = Some(hint.into());
        self
    }

    /// What is reported. A unit that is none says more than what was expected there.
    pub(crate) fn told(self) -> Misread {
        let Self { at, said, aside } = self;
        let Aside { hint, label } = aside.map_or_else(Aside::default, |aside| *aside);
        let mistake = match said {
            Said::Other(mistake) => *mistake,
            Said::Expected(first, others) => stray_unit(at).unwrap_or_else(|| {
                let expected = listed([first].into_iter().chain(others));
                let found = describe(at.peek());
                let message = format!("expected {expected}, found {found}");
                hint.into_iter().fold(Mistake::new(Code::Syntax, message), Mistake::hint)
            }),
        };
        Misread { span: at.span(), mistake, labels: label.into_iter().collect() }
    }
}

impl<'a> ParseError<Tokens<'a>> for SyntaxError<'a> {
    fn from_error_kind(input: Tokens<'a>, _: ErrorKind) -> Self {
        Self::expected(input, "something else")
    }
    fn append(_: Tokens<'a>, _: ErrorKind, other: Self) -> Self {
        other
    }
    fn or(mut self, other: Self) -> Self {
        let [own, others] = [&self, &other].map(|error| error.at.span().start);
        if own != others {
            return if own > others { self } else { other };
        }
        if let Some(Aside { hint: Some(hint), .. }) = other.aside.map(|aside| *aside) {
            self.aside.get_or_insert_default().hint.get_or_insert(hint);
        }
        if let (Said::Expected(_, all), Said::Expected(first, others)) =
            (&mut self.said, other.said)
        {
            all.push(first);
            all.extend(others);
        }
        self
    }
}

impl From<&'static str> for What {
    fn from(words: &'static str) -> Self {
        Self::Words(words)
    }
}

impl From<String> for What {
    fn from(words: String) -> Self {
        Self::Composed(words)
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Sign(sign) => write!(f, "`{sign}`"),
            What::Words(words) => f.write_str(words),
            What::Composed(words) => f.write_str(words),
        }
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
    let hint = match meant_unit(text) {
        None if kind == Kind::Stray || text.len() == 1 => return None,
        None => near::hint(text, UNITS)?,
        Some(hint) => hint,
    };
    Some(unknown_unit(text, hint))
}

/// Digits that run into what looks like a unit, as in `80G`.
pub(crate) fn joined_unit(word: &str) -> Option<Mistake> {
    let unit = word.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    match unit == word {
        true => None,
        false => meant_unit(unit).map(|hint| unknown_unit(unit, hint)),
    }
}

fn unknown_unit(text: &str, hint: String) -> Mistake {
    Mistake::new(Code::Unit, format!("unknown unit `{text}`")).hint(hint)
}

/// What to write for a word behind a number that others write for a unit.
fn meant_unit(text: &str) -> Option<String> {
    let spelled = SPELLINGS.iter().find(|(other, _)| *other == text);
    match (known_unit(text), spelled) {
        (Some(unit), _) => Some(format!("did you mean `{unit}`?")),
        (None, Some((_, unit @ "USD/h"))) => {
            Some(format!("prices are in `{unit}`, US dollars an hour"))
        }
        (None, Some((_, unit))) => Some(format!("did you mean `{unit}`?")),
        (None, None) if ["M", "G", "T"].contains(&text) => {
            Some(format!("did you mean `{text}B`, `{text}B/s` or `{text}FLOP/s`?"))
        }
        (None, None) if ["Ki", "Mi", "Gi", "Ti"].contains(&text) => {
            Some(format!("did you mean `{text}B` or `{text}B/s`?"))
        }
        (None, None) => {
            let begin = text.get(..5).filter(|begin| begin.eq_ignore_ascii_case("EFLOP"));
            begin.map(|_| "1 EFLOP/s is `1000 PFLOP/s`".to_owned())
        }
    }
}

/// The unit of the list that differs from a word in its case alone, or in a `/s` that is left out; of
/// operations also in an `s` in its place.
fn known_unit(text: &str) -> Option<&'static str> {
    let alike =
        |wanted: &str| UNITS.into_iter().find(|unit| unit.eq_ignore_ascii_case(wanted));
    let per_second = |text: &str| alike(&format!("{text}/s"));
    let plural = || {
        let unit = per_second(text.strip_suffix(['s', 'S'])?)?;
        unit.ends_with("FLOP/s").then_some(unit)
    };
    alike(text).or_else(|| per_second(text)).or_else(plural)
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

/// Everything once, in order.
fn listed(expected: impl Iterator<Item = What>) -> String {
    let mut all: Vec<String> = Vec::new();
    for what in expected.map(|what| what.to_string()) {
        if !all.contains(&what) {
            all.push(what);
        }
    }
    match &all[..] {
        [head @ .., last] if !head.is_empty() => format!("{} or {last}", head.join(", ")),
        _ => all.concat(),
    }
}
