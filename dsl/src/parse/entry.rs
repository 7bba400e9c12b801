//! Entries of devices, links, training and plan: `key value { entries }`.

use super::{
    body::body,
    error::Parsed,
    expression::expression,
    stream::{Tokens, name, symbol},
};
use crate::{
    syntax::{Choice, Entry, Setting},
    token::Kind,
};
use nom::{
    Parser,
    branch::alt,
    combinator::{cut, map, opt},
    multi::separated_list1,
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
    let (rest, value) = cut(setting).parse(rest)?;
    if !rest.at("{") {
        return Ok((rest, Entry { key, value, entries: Vec::new() }));
    }
    let (rest, entries) = cut(entries).parse(rest)?;
    Ok((rest, Entry { key, value, entries }))
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
        map(separated_list1(symbol("|"), choice), Setting::OneOf),
    ))
    .parse(input)
}

/// `a` or `a .. b`.
fn choice(input: Tokens<'_>) -> Parsed<'_, Choice> {
    let (rest, first) = expression(input)?;
    let (rest, last) = opt(preceded(symbol(".."), cut(expression))).parse(rest)?;
    Ok((rest, Choice { first, last }))
}
