//! Entries of devices, links, training and plan: `key value { entries }`.

use super::{
    body::body,
    error::{Parsed, SyntaxError},
    expression::{expression, separated},
    stream::{Tokens, name, symbol},
};
use crate::{
    syntax::{Choice, Entry, Name, Setting},
    token::Kind,
};
use nom::{
    Err, Parser,
    branch::alt,
    combinator::{cut, map, opt},
    sequence::preceded,
};

/// `{ entry … }`.
pub(crate) fn entries(input: Tokens<'_>) -> Parsed<'_, Vec<Entry>> {
    body(entry, broken)(input)
}

/// The key that an entry with a mistake would have set.
fn broken(input: Tokens<'_>) -> Option<Entry> {
    let (_, key) = name(input).ok()?;
    Some(Entry { key, value: Setting::Broken, entries: Vec::new() })
}

/// `key`, `key value`, `key <= value`, `key value { entries }`.
pub(crate) fn entry(input: Tokens<'_>) -> Parsed<'_, Entry> {
    let (rest, key) = name(input)?;
    if let Some(slip) = slip(&key, rest) {
        return Err(Err::Failure(slip));
    }
    let (rest, value) = cut(setting).parse(rest)?;
    if !rest.at("{") {
        return Ok((rest, Entry { key, value, entries: Vec::new() }));
    }
    let (rest, entries) = cut(entries).parse(rest)?;
    Ok((rest, Entry { key, value, entries }))
}

/// What others write behind a key: `key = value`, `key: value`, `key < value`, `key.inner value`.
fn slip<'a>(key: &Name, behind: Tokens<'a>) -> Option<SyntaxError<'a>> {
    let key = &key.text;
    let (expected, hint) = match behind.peek().text {
        "=" => ("a value", format!("write `{key} …` without `=`")),
        ":" => ("a value", format!("write `{key} …` without `:`")),
        "<" => ("a value, `<=` or `>=`", format!("write `{key} <= …`")),
        ">" => ("a value, `<=` or `>=`", format!("write `{key} >= …`")),
        "." => ("a value or `{`", {
            let inner = behind.peek_second().text;
            format!("write `{key} {{ {inner} … }}`")
        }),
        _ => return None,
    };
    Some(SyntaxError::expected(behind, expected).hint(hint))
}

/// Nothing, `<= a`, `>= a`, or `a | b .. c`.
fn setting(input: Tokens<'_>) -> Parsed<'_, Setting> {
    let next = input.peek();
    let nothing = matches!(next.kind, Kind::Newline | Kind::End);
    if nothing || ["{", "}", ","].iter().any(|symbol| input.at(symbol)) {
        return Ok((input, Setting::Nothing));
    }
    alt((
        map(preceded(symbol("<="), cut(expression)), Setting::AtMost),
        map(preceded(symbol(">="), cut(expression)), Setting::AtLeast),
        map(separated("|", choice), Setting::OneOf),
    ))
    .parse(input)
}

/// `a` or `a .. b`.
fn choice(input: Tokens<'_>) -> Parsed<'_, Choice> {
    let (rest, first) = expression(input)?;
    let (rest, last) = opt(preceded(symbol(".."), cut(expression))).parse(rest)?;
    Ok((rest, Choice { first, last }))
}
