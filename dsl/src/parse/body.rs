//! Bodies in braces, and how reading goes on after a mistake: with the next line of the body, or
//! with the next item of the file when a closing brace is missing.

use super::{
    error::{Parsed, SyntaxError},
    statement::ended,
    stream::{Tokens, nested, separators, symbol},
};
use crate::{Span, token::Kind};
use nom::Err;

/// `{ part SEP part … }`. Mistakes inside parts are kept, and the next part is read; `broken`
/// tells what a part with a mistake would have defined.
pub(crate) fn body<'a, T>(
    part: fn(Tokens<'a>) -> Parsed<'a, T>,
    broken: fn(Tokens<'a>) -> Option<T>,
) -> impl FnMut(Tokens<'a>) -> Parsed<'a, Vec<T>> {
    nested(move |input| {
        let (rest, opened) = symbol("{")(input)?;
        Ok(parts(rest, opened, part, broken))
    })
}

fn parts<'a, T>(
    mut input: Tokens<'a>,
    opened: Span,
    part: fn(Tokens<'a>) -> Parsed<'a, T>,
    broken: fn(Tokens<'a>) -> Option<T>,
) -> (Tokens<'a>, Vec<T>) {
    let mut found = Vec::new();
    loop {
        input = separators(input);
        if input.at("}") {
            return (input.advance(), found);
        }
        if input.peek().kind == Kind::End || input.at_item() {
            let missing = SyntaxError::expected(input, "`}`");
            input.report(missing.label(opened, "`{` was opened here"));
            return (input, found);
        }
        input = match attempt(input, part) {
            Ok((rest, value)) => {
                found.push(value);
                rest
            }
            Err(mistake) => {
                input.report(mistake);
                found.extend(broken(input));
                skip_part(input)
            }
        };
    }
}

/// A part and the end of it.
pub(crate) fn attempt<'a, T>(
    input: Tokens<'a>,
    part: fn(Tokens<'a>) -> Parsed<'a, T>,
) -> Result<(Tokens<'a>, T), SyntaxError<'a>> {
    match part(input) {
        Ok((rest, value)) => ended(rest).map(|()| (rest, value)),
        Err(Err::Error(mistake) | Err::Failure(mistake)) => Err(mistake),
        Err(Err::Incomplete(_)) => Err(SyntaxError::expected(input, "more text")),
    }
}

/// From a part with a mistake to the comma or line end behind it, or to the brace that closes the
/// body; brackets and bodies inside the part are passed over.
fn skip_part(mut input: Tokens<'_>) -> Tokens<'_> {
    let [mut braces, mut brackets] = [0u32; 2];
    loop {
        let next = input.peek();
        let outside = braces == 0;
        match (next.kind, next.text) {
            (Kind::End, _) => return input,
            (Kind::Newline, _) | (Kind::Symbol, "}") if outside => return input,
            (Kind::Symbol, ",") if outside && brackets == 0 => return input,
            _ if input.at_item() => return input,
            (Kind::Symbol, "{") => braces += 1,
            (Kind::Symbol, "}") => braces -= 1,
            (Kind::Symbol, "(" | "[") => brackets += 1,
            (Kind::Symbol, ")" | "]") => brackets = brackets.saturating_sub(1),
            _ => {}
        }
        input = input.advance();
    }
}

/// From an item with a mistake to the next item of the file.
pub(crate) fn skip_item(mut input: Tokens<'_>) -> Tokens<'_> {
    input = input.advance();
    while input.peek().kind != Kind::End && !input.at_item() {
        input = input.advance();
    }
    input
}
