//! Expressions, one function per production.

use super::{
    error::{Parsed, SyntaxError, refuse},
    statement::ended,
    stream::{Tokens, keyword, name, nested, separators, spelled, symbol},
};
use crate::{
    Span,
    syntax::{Argument, Expression, ExpressionKind, Name, Operator},
    token::{Kind, Token},
};
use nom::{
    Parser,
    branch::alt,
    combinator::{cut, map, opt, value},
    multi::{many0, separated_list1},
    sequence::{pair, preceded, terminated},
};
use std::iter;

/// `a * b + c - 2`.
pub(crate) fn expression(input: Tokens<'_>) -> Parsed<'_, Expression> {
    let signs =
        alt((value(Operator::Add, symbol("+")), value(Operator::Subtract, symbol("-"))));
    nested(chain(term, signs))(input)
}

/// `a * b / c`.
fn term(input: Tokens<'_>) -> Parsed<'_, Expression> {
    let signs = alt((
        value(Operator::Multiply, symbol("*")),
        value(Operator::Divide, symbol("/")),
    ));
    chain(unary, signs)(input)
}

/// `a SIGN b SIGN c`, as one list.
fn chain<'a>(
    part: fn(Tokens<'a>) -> Parsed<'a, Expression>,
    sign: impl Parser<Tokens<'a>, Output = Operator, Error = SyntaxError<'a>>,
) -> impl FnMut(Tokens<'a>) -> Parsed<'a, Expression> {
    let behind = move |input| operand(part, input);
    let mut parts = pair(part, many0(pair(sign, cut(behind))));
    move |input| {
        let (rest, (first, others)) = parts.parse(input)?;
        let Some((_, last)) = others.last() else { return Ok((rest, first)) };
        let span = first.span.to(last.span);
        let kind = ExpressionKind::Chain(Box::new(first), others);
        Ok((rest, Expression { kind, span }))
    }
}

/// What stands behind a sign. Where the line ends there, the mistake is told, and what the next line
/// begins with is taken for it if it makes up the whole line: it would be no line of its own.
fn operand<'a>(
    part: fn(Tokens<'a>) -> Parsed<'a, Expression>,
    input: Tokens<'a>,
) -> Parsed<'a, Expression> {
    if input.peek().kind != Kind::Newline {
        return part(input);
    }
    let hint = "lines go on inside of ( ) only: write `(a +` and `b)`";
    let early = SyntaxError::expected(input, "a value").hint(hint);
    match part(separators(input)) {
        Ok((rest, value)) if ends_operand(rest) => {
            input.report(early);
            Ok((rest, value))
        }
        _ => Err(nom::Err::Failure(early)),
    }
}

fn ends_operand(input: Tokens<'_>) -> bool {
    ended(input).is_ok() || ["+", "-", "*", "/"].iter().any(|sign| input.at(sign))
}

/// `-a` or `a`.
fn unary(input: Tokens<'_>) -> Parsed<'_, Expression> {
    if !input.at("-") {
        return atom(input);
    }
    map(pair(symbol("-"), cut(atom)), |(sign, inner)| {
        let span = sign.to(inner.span);
        Expression { kind: ExpressionKind::Negative(Box::new(inner)), span }
    })
    .parse(input)
}

/// `2 GB`, `"text"`, `[a, b]`, `(a + b)`, `name`, `name(a, b = c)`, `name[0]`.
fn atom(input: Tokens<'_>) -> Parsed<'_, Expression> {
    let next = input.peek();
    match (next.kind, next.text) {
        (Kind::Number, _) => number(input),
        (Kind::Text, _) => text(input),
        (Kind::Symbol, "[") => bracketed(input),
        (Kind::Symbol, "(") => parenthesised(input),
        (Kind::Name | Kind::Word, _) => named(input),
        _ => refuse(input, "a value"),
    }
}

/// `4`, `1e-3`, `2 GB`.
fn number(input: Tokens<'_>) -> Parsed<'_, Expression> {
    let unit = spelled(Kind::Unit, "a unit");
    map(pair(spelled(Kind::Number, "a number"), opt(unit)), |(digits, unit)| {
        let span = unit.as_ref().map_or(digits.span, |unit| digits.span.to(unit.span));
        let unit = unit.map(|unit| unit.text);
        Expression { kind: ExpressionKind::Number(digits.text, unit), span }
    })
    .parse(input)
}

/// `"text"`, without its quotes.
pub(crate) fn quoted(input: Tokens<'_>) -> Parsed<'_, Name> {
    map(spelled(Kind::Text, "a text in quotes"), |literal| Name {
        text: literal.text.trim_matches('"').to_owned(),
        span: literal.span,
    })
    .parse(input)
}

fn text(input: Tokens<'_>) -> Parsed<'_, Expression> {
    map(quoted, |Name { text, span }| Expression {
        kind: ExpressionKind::Text(text),
        span,
    })
    .parse(input)
}

/// `[a, b]` as an expression.
fn bracketed(input: Tokens<'_>) -> Parsed<'_, Expression> {
    map(shape, |(extents, span)| Expression {
        kind: ExpressionKind::Shape(extents),
        span,
    })
    .parse(input)
}

/// `[batch, 4 * width]`.
pub(crate) fn shape(input: Tokens<'_>) -> Parsed<'_, (Vec<Expression>, Span)> {
    enclosed("[", list(expression), "]")(input)
}

/// `(a + b)`.
fn parenthesised(input: Tokens<'_>) -> Parsed<'_, Expression> {
    map(enclosed("(", expression, ")"), |(inner, span)| Expression { span, ..inner })
        .parse(input)
}

/// `name`, `name(a, b = c)`, `name[0]`, `name(a)[0]`.
fn named(input: Tokens<'_>) -> Parsed<'_, Expression> {
    let (rest, base) = call_or_name(input)?;
    if !rest.at("[") {
        return Ok((rest, base));
    }
    map(enclosed("[", expression, "]"), |(index, span)| Expression {
        span: base.span.to(span),
        kind: ExpressionKind::Index(Box::new(base.clone()), Box::new(index)),
    })
    .parse(rest)
}

/// `name` or `name(a, b = c)`.
pub(crate) fn call_or_name(input: Tokens<'_>) -> Parsed<'_, Expression> {
    let word = alt((name, spelled(Kind::Word, "a word")));
    let (rest, name) = { word }.parse(input)?;
    if !rest.at("(") {
        let Name { text, span } = name;
        return Ok((rest, Expression { kind: ExpressionKind::Name(text), span }));
    }
    map(arguments, |(arguments, span)| Expression {
        span: name.span.to(span),
        kind: ExpressionKind::Call(name.clone(), arguments),
    })
    .parse(rest)
}

/// `(a, b = c)`.
fn arguments(input: Tokens<'_>) -> Parsed<'_, (Vec<Argument>, Span)> {
    enclosed("(", list(argument), ")")(input)
}

/// `a` or `name = a`.
fn argument(input: Tokens<'_>) -> Parsed<'_, Argument> {
    let named =
        map(pair(terminated(name, symbol("=")), cut(expression)), |(name, value)| {
            Argument { name: Some(name), value }
        });
    let plain = map(expression, |value| Argument { name: None, value });
    alt((named, plain)).parse(input)
}

/// `a, b` with or without a last comma, or nothing.
pub(crate) fn list<'a, T>(
    part: impl Parser<Tokens<'a>, Output = T, Error = SyntaxError<'a>>,
) -> impl Parser<Tokens<'a>, Output = Vec<T>, Error = SyntaxError<'a>> {
    let parts = separated_list1(symbol(","), part);
    map(opt(terminated(parts, opt(symbol(",")))), Option::unwrap_or_default)
}

/// `a SIGN b SIGN c`, at least one; behind a sign there is no other reading.
pub(crate) fn separated<'a, T>(
    sign: &'static str,
    part: fn(Tokens<'a>) -> Parsed<'a, T>,
) -> impl FnMut(Tokens<'a>) -> Parsed<'a, Vec<T>> {
    let mut parts = pair(part, many0(preceded(symbol(sign), cut(part))));
    move |input| {
        let (rest, (first, others)) = parts.parse(input)?;
        Ok((rest, iter::once(first).chain(others).collect()))
    }
}

/// `OPEN inner CLOSE`; from the open bracket on there is no other reading.
fn enclosed<'a, T>(
    open: &'static str,
    inner: impl Parser<Tokens<'a>, Output = T, Error = SyntaxError<'a>>,
    close: &'static str,
) -> impl FnMut(Tokens<'a>) -> Parsed<'a, (T, Span)> {
    let mut inner = cut(inner);
    move |input| {
        let (rest, opened) = symbol(open)(input)?;
        let (rest, value) = inner.parse(rest)?;
        match symbol(close)(rest) {
            Ok((rest, closed)) => Ok((rest, (value, opened.to(closed)))),
            Err(_) => {
                let begins = |before: Token<'_>| [open, ","].contains(&before.text);
                let next =
                    if rest.before().is_some_and(begins) { "a value" } else { "`,`" };
                let expected =
                    SyntaxError::expected(rest, format!("{next} or `{close}`"));
                let label = format!("`{open}` was opened here");
                Err(nom::Err::Failure(expected.label(opened, &label)))
            }
        }
    }
}

/// `as NAME`.
pub(crate) fn counter(input: Tokens<'_>) -> Parsed<'_, Option<Name>> {
    opt(preceded(keyword("as"), cut(name))).parse(input)
}
