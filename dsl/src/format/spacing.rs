//! Spaces between the tokens of one line.

use crate::token::{Kind, Token};

/// Tokens with the spaces that belong between them; `brackets` are open before the first, and
/// `behind` stands before it on an earlier line of these.
pub(super) fn joined<'a>(
    tokens: &[Token<'a>],
    mut brackets: usize,
    behind: Option<Token<'a>>,
) -> String {
    let all: Vec<Token<'_>> = behind.into_iter().chain(tokens.iter().copied()).collect();
    let first = all.len() - tokens.len();
    let mut out = String::new();
    for (index, token) in all.iter().enumerate().skip(first) {
        if index > first && separated(&all[..index], *token, brackets) {
            out.push(' ');
        }
        out.push_str(token.text);
        match symbol(token) {
            "(" | "[" => brackets += 1,
            ")" | "]" => brackets = brackets.saturating_sub(1),
            _ => {}
        }
    }
    out
}

/// Whether a space stands before a token.
fn separated(before: &[Token<'_>], token: Token<'_>, brackets: usize) -> bool {
    let [.., last] = before else { return false };
    let callable = matches!(last.kind, Kind::Name | Kind::Word);
    match (symbol(last), symbol(&token)) {
        ("(" | "[", _) | (_, ")" | "]" | "," | ":") => false,
        (_, "(") if callable => false,
        (_, "[") if callable || last.text == ")" => is_key(before) && brackets == 0,
        ("-", _) => !is_sign(before),
        ("{", "}") => false,
        _ => true,
    }
}

fn symbol<'a>(token: &Token<'a>) -> &'a str {
    if token.kind == Kind::Symbol { token.text } else { "" }
}

/// Whether the last token is the key of an entry, as in `{ cuts [3] }`, and not what a bracket
/// belongs to, as in `i32[batch]` and `x[0]`.
fn is_key(before: &[Token<'_>]) -> bool {
    matches!(before, [.., mark, _] if ["{", "}", ","].contains(&symbol(mark)))
}

/// Whether a final `-` is a sign and not a difference.
fn is_sign(before: &[Token<'_>]) -> bool {
    let [.., previous, _] = before else { return true };
    let value = previous.kind != Kind::Symbol || [")", "]"].contains(&previous.text);
    let keywords = ["loss", "metric", "return", "repeat", "after", "sharing"];
    !value || keywords.contains(&previous.text)
}
