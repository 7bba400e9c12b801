//! Statements of models and blocks, one function per production.

use super::{
    body::body,
    error::{Parsed, SyntaxError, refuse},
    expression::{call_or_name, counter, expression, shape},
    stream::{Tokens, keyword, name, symbol},
};
use crate::{
    syntax::{Statement, StatementKind},
    token::Kind,
};
use nom::{
    Err, Parser,
    combinator::{cut, map, opt},
    sequence::{pair, preceded, terminated},
};

/// `{ statement … }`.
pub(crate) fn statements(input: Tokens<'_>) -> Parsed<'_, Vec<Statement>> {
    body(statement, broken)(input)
}

/// One statement. A keyword that `=` follows is a binding like any other.
fn statement(input: Tokens<'_>) -> Parsed<'_, Statement> {
    let [next, second] = [input.peek(), input.peek_second()];
    let binds = second.kind == Kind::Symbol && second.text == "=";
    let production = match (next.kind, next.text) {
        (Kind::Name, _) if binds => binding,
        (Kind::Name, "input") => input_statement,
        (Kind::Name, "param") => parameter,
        (Kind::Name, "repeat") => repeat,
        (Kind::Name, "loss") => loss,
        (Kind::Name, "metric") => metric,
        (Kind::Name, "return") => return_statement,
        (Kind::Name, "head") => head,
        (Kind::Name, _) => unfinished,
        _ => return refuse(input, "a statement"),
    };
    let (rest, kind) = production(input)?;
    Ok((rest, Statement { kind, span: input.span() }))
}

/// The name that a statement with a mistake would have bound: `x = …`, `input x…`.
fn broken(input: Tokens<'_>) -> Option<Statement> {
    let bound = match (input.peek().text, input.peek_second().text) {
        (_, "=") => input,
        ("input" | "param", _) => input.advance(),
        _ => return None,
    };
    let (_, name) = name(bound).ok()?;
    Some(Statement { kind: StatementKind::Broken(name), span: input.span() })
}

/// Words that begin statements of other languages, and what says the same here.
const ELSEWHERE: [(&[&str], &str); 4] = [
    (&["for", "while", "loop"], "write `repeat 4 as i { … }`"),
    (
        &["if", "else", "elif", "match"],
        "a model has no conditions; give layers that differ a `repeat` of their own",
    ),
    (&["let", "const", "var", "mut"], "write `x = …` alone"),
    (
        &["def", "fn", "func", "function", "class"],
        "write `block name(x) { … return x }` outside of the model",
    ),
];

/// A name that begins no statement.
fn unfinished(input: Tokens<'_>) -> Parsed<'_, StatementKind> {
    let word = input.peek().text;
    let expected = SyntaxError::expected(input.advance(), format!("`=` after `{word}`"));
    let known = ELSEWHERE.iter().find(|(words, _)| words.contains(&word));
    Err(Err::Error(match known {
        Some((_, hint)) => expected.hint(*hint),
        None => expected,
    }))
}

/// `x = linear(x, 4)`.
fn binding(input: Tokens<'_>) -> Parsed<'_, StatementKind> {
    map(pair(terminated(name, symbol("=")), cut(expression)), |(name, value)| {
        StatementKind::Bind(name, value)
    })
    .parse(input)
}

/// `input tokens: i32[batch, seq]`.
fn input_statement(input: Tokens<'_>) -> Parsed<'_, StatementKind> {
    let typed = (terminated(name, symbol(":")), name, shape);
    map(preceded(keyword("input"), cut(typed)), |(name, element, (shape, _))| {
        StatementKind::Input(name, element, shape)
    })
    .parse(input)
}

/// `param scale: [width] = ones()`.
fn parameter(input: Tokens<'_>) -> Parsed<'_, StatementKind> {
    let initial = opt(preceded(symbol("="), cut(call_or_name)));
    let typed = (terminated(name, symbol(":")), shape, initial);
    map(preceded(keyword("param"), cut(typed)), |(name, (shape, _), initial)| {
        StatementKind::Parameter(name, shape, initial)
    })
    .parse(input)
}

/// `repeat 4 as layer { … }`.
fn repeat(input: Tokens<'_>) -> Parsed<'_, StatementKind> {
    let parts = (expression, counter, statements);
    map(preceded(keyword("repeat"), cut(parts)), |(times, counter, body)| {
        StatementKind::Repeat(times, counter, body)
    })
    .parse(input)
}

/// `loss cross_entropy(x, targets)`.
fn loss(input: Tokens<'_>) -> Parsed<'_, StatementKind> {
    map(preceded(keyword("loss"), cut(expression)), StatementKind::Loss).parse(input)
}

/// `metric accuracy(x, targets)`.
fn metric(input: Tokens<'_>) -> Parsed<'_, StatementKind> {
    map(preceded(keyword("metric"), cut(expression)), StatementKind::Metric).parse(input)
}

/// `return x`.
fn return_statement(input: Tokens<'_>) -> Parsed<'_, StatementKind> {
    map(preceded(keyword("return"), cut(expression)), StatementKind::Return).parse(input)
}

/// `head after x { … }`.
fn head(input: Tokens<'_>) -> Parsed<'_, StatementKind> {
    let parts = (keyword("after"), expression, statements);
    map(preceded(keyword("head"), cut(parts)), |(_, after, body)| {
        StatementKind::Head(after, body)
    })
    .parse(input)
}

/// What must follow a statement or entry.
pub(crate) fn ended(input: Tokens<'_>) -> Result<(), SyntaxError<'_>> {
    let next = input.peek();
    let ends = matches!(next.kind, Kind::Newline | Kind::End);
    match ends || input.at(",") || input.at("}") || input.at_item() {
        true => Ok(()),
        false => Err(SyntaxError::expected(input, "a new line or `,`")),
    }
}
