//! The parser's input: tokens left to read, and mistakes found on the way.

use super::error::{Misread, Parsed, SyntaxError, What, refuse};
use crate::{
    Span, limit,
    syntax::Name,
    token::{Kind, Token, begins_item},
};
use nom::{Err, Input, Needed};
use std::{cell::RefCell, iter, slice};

/// Tokens left to read; the last is always the end of the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tokens<'a> {
    rest: &'a [Token<'a>],
    depth: u8,
    last: Option<Token<'a>>,
    shared: &'a Shared,
}

/// What all positions of one file share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Number of the file.
    pub(crate) file: u32,
    /// Mistakes after which reading went on.
    pub(crate) mistakes: RefCell<Vec<Misread>>,
}

impl<'a> Tokens<'a> {
    /// All of a file's tokens; the last is the end.
    pub(crate) fn new(rest: &'a [Token<'a>], shared: &'a Shared) -> Self {
        assert!(!rest.is_empty(), "a file has at least its end");
        Self { rest, depth: 0, last: None, shared }
    }

    /// The next token; the end stays.
    pub(crate) fn peek(&self) -> Token<'a> {
        self.rest[0]
    }

    /// The token after the next.
    pub(crate) fn peek_second(&self) -> Token<'a> {
        *self.rest.get(1).unwrap_or(&self.rest[0])
    }

    /// Without the next token.
    pub(crate) fn advance(self) -> Self {
        let rest = if self.rest.len() > 1 { &self.rest[1..] } else { self.rest };
        Self { rest, last: Some(self.peek()), ..self }
    }

    /// Whether the token before was a number.
    pub(crate) fn after_number(&self) -> bool {
        self.last.is_some_and(|last| last.kind == Kind::Number)
    }

    /// The token before.
    pub(crate) fn before(&self) -> Option<Token<'a>> {
        self.last
    }

    /// Where the next token is.
    pub(crate) fn span(&self) -> Span {
        let Token { start, text, .. } = self.peek();
        let end = start + crate::source::count(text.len());
        Span { file: self.shared.file, start, end }
    }

    /// Keeps a mistake and goes on. One more than is told is kept, so that it is seen that there are more.
    pub(crate) fn report(&self, mistake: SyntaxError<'_>) {
        let mut mistakes = self.shared.mistakes.borrow_mut();
        if mistakes.len() <= limit::DIAGNOSTICS {
            mistakes.push(mistake.told());
        }
    }

    /// Whether the next token is this symbol.
    pub(crate) fn at(&self, symbol: &str) -> bool {
        let next = self.peek();
        next.kind == Kind::Symbol && next.text == symbol
    }

    /// Whether an item such as `model NAME` or `train {` begins here, at the begin of a line.
    pub(crate) fn at_item(&self) -> bool {
        begins_item(&self.peek(), &self.peek_second())
    }
}

/// `symbol`.
pub(crate) fn symbol<'a>(
    text: &'static str,
) -> impl FnMut(Tokens<'a>) -> Parsed<'a, Span> {
    move |input| match input.at(text) {
        true => Ok((input.advance(), input.span())),
        false => refuse(input, What::Sign(text)),
    }
}

/// `keyword`.
pub(crate) fn keyword<'a>(
    text: &'static str,
) -> impl FnMut(Tokens<'a>) -> Parsed<'a, Span> {
    move |input| match input.peek() {
        Token { kind: Kind::Name, text: found, .. } if found == text => {
            Ok((input.advance(), input.span()))
        }
        _ => refuse(input, What::Sign(text)),
    }
}

/// `layer_norm`.
pub(crate) fn name(input: Tokens<'_>) -> Parsed<'_, Name> {
    spelled(Kind::Name, "a name")(input)
}

/// A token of one kind, as it is written.
pub(crate) fn spelled<'a>(
    kind: Kind,
    what: &'static str,
) -> impl FnMut(Tokens<'a>) -> Parsed<'a, Name> {
    move |input| match input.peek() {
        token if token.kind == kind && token.text.len() > longest(kind) => {
            Err(Err::Failure(SyntaxError::too_long(input, longest(kind))))
        }
        token if token.kind == kind => {
            let name = Name { text: token.text.to_owned(), span: input.span() };
            Ok((input.advance(), name))
        }
        _ => refuse(input, what),
    }
}

fn longest(kind: Kind) -> usize {
    if kind == Kind::Text { limit::TEXT_BYTES } else { limit::NAME_BYTES }
}

/// One level deeper, up to the declared depth.
pub(crate) fn nested<'a, T>(
    mut parser: impl FnMut(Tokens<'a>) -> Parsed<'a, T>,
) -> impl FnMut(Tokens<'a>) -> Parsed<'a, T> {
    move |input| {
        if input.depth >= limit::DEPTH {
            return Err(Err::Failure(SyntaxError::too_deep(input)));
        }
        let (rest, value) = parser(Tokens { depth: input.depth + 1, ..input })?;
        Ok((Tokens { depth: input.depth, ..rest }, value))
    }
}

/// Line ends and commas between items.
pub(crate) fn separators(mut input: Tokens<'_>) -> Tokens<'_> {
    while input.peek().kind == Kind::Newline || input.at(",") {
        input = input.advance();
    }
    input
}

impl<'a> Input for Tokens<'a> {
    type Item = Token<'a>;
    type Iter = iter::Copied<slice::Iter<'a, Token<'a>>>;
    type IterIndices = iter::Enumerate<Self::Iter>;

    fn input_len(&self) -> usize {
        self.rest.len()
    }
    fn take(&self, index: usize) -> Self {
        Self { rest: &self.rest[..index], ..*self }
    }
    fn take_from(&self, index: usize) -> Self {
        Self { rest: &self.rest[index..], ..*self }
    }
    fn take_split(&self, index: usize) -> (Self, Self) {
        (self.take_from(index), self.take(index))
    }
    fn position<P: Fn(Self::Item) -> bool>(&self, predicate: P) -> Option<usize> {
        self.rest.iter().position(|token| predicate(*token))
    }
    fn iter_elements(&self) -> Self::Iter {
        self.rest.iter().copied()
    }
    fn iter_indices(&self) -> Self::IterIndices {
        self.iter_elements().enumerate()
    }
    fn slice_index(&self, count: usize) -> Result<usize, Needed> {
        match self.rest.len() {
            length if length >= count => Ok(count),
            length => Err(Needed::new(count - length)),
        }
    }
}
