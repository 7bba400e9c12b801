//! Text to the syntax tree. After a mistake reading goes on, so that one does not hide the next.

mod body;
mod entry;
mod error;
mod expression;
mod item;
mod statement;
mod stream;

use crate::{
    syntax::{Entry, File},
    token::{self, Kind},
};
use body::skip_item;
use error::SyntaxError;
pub(crate) use error::{Misread, joined_unit};
use std::cell::RefCell;
use stream::{Shared, Tokens, separators};

/// The items of a text, and all mistakes in it, in source order.
pub(crate) fn file(text: &str, number: u32) -> (File, Vec<Misread>) {
    let tokens = without_comments(text);
    let shared = Shared { file: number, mistakes: RefCell::default() };
    let mut input = separators(Tokens::new(&tokens, &shared));
    let mut file = File::default();
    while input.peek().kind != Kind::End {
        input = match item::whole_item(input) {
            Ok((rest, item)) => {
                file.items.push(item);
                separators(rest)
            }
            Err(mistake) => {
                input.report(mistake);
                file.broken += 1;
                skip_item(input)
            }
        };
    }
    (file, shared.mistakes.into_inner())
}

/// A single entry of a plan, as the command line gives it.
pub(crate) fn entry(text: &str) -> Result<Entry, Misread> {
    let tokens = without_comments(text);
    let shared = Shared { file: 0, mistakes: RefCell::default() };
    let read = body::attempt(Tokens::new(&tokens, &shared), entry::entry);
    let (rest, entry) = read.map_err(SyntaxError::told)?;
    match (rest.peek().kind, shared.mistakes.borrow().first()) {
        (_, Some(mistake)) => Err(mistake.clone()),
        (Kind::End, None) => Ok(entry),
        _ => Err(SyntaxError::expected(rest, "the end").told()),
    }
}

fn without_comments(text: &str) -> Vec<token::Token<'_>> {
    let mut tokens = token::tokens(text);
    tokens.retain(|token| token.kind != Kind::Comment);
    tokens
}
