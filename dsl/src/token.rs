//! Text to tokens: names, numbers, units right after numbers, texts, symbols, line ends.

use nom::{
    IResult, Parser,
    branch::alt,
    bytes::complete::{tag, take, take_while, take_while1},
    character::complete::{char, digit1, one_of},
    combinator::{opt, recognize},
    sequence::{pair, preceded},
};
use roundelay_schedule::unmarked;

/// Items that begin a file's line; after a mistake, reading goes on at the next of them.
pub(crate) const ITEMS: [&str; 8] =
    ["import", "model", "block", "device", "link", "cluster", "train", "plan"];

/// Whether a text begins as programs do: with an item, behind comments.
pub fn begins_program(text: &str) -> bool {
    let mut lines = unmarked(text).lines().map(str::trim_start);
    let first = lines.find(|line| !line.is_empty() && !line.starts_with('#'));
    let word = first.and_then(|line| line.split([' ', '\t', '{', '"']).next());
    word.is_some_and(|word| ITEMS.contains(&word))
}

/// Units, from a closed list; a unit is one only right after a number.
pub(crate) const UNITS: [&str; 41] = [
    "B", "kB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "TiB", "b", "kb", "Mb", "Gb", "Tb",
    "B/s", "kB/s", "MB/s", "GB/s", "TB/s", "KiB/s", "MiB/s", "GiB/s", "TiB/s", "b/s",
    "kb/s", "Mb/s", "Gb/s", "Tb/s", "FLOP/s", "kFLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s",
    "PFLOP/s", "ns", "us", "ms", "s", "min", "h", "USD/h",
];

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `layer_norm`.
    Name,
    /// `4`, `0.1`, `1e-3`.
    Number,
    /// `GB/s`, right after a number.
    Unit,
    /// Digits that run into letters, `1f1b`; a name of a value, never of a binding.
    Word,
    /// `"a.rdl"`.
    Text,
    /// `{`, `<=`.
    Symbol,
    /// The end of a line, outside of ( ) and [ ].
    Newline,
    /// `# …` up to the end of the line.
    Comment,
    /// A character that begins nothing.
    Stray,
    /// The end of the file.
    End,
}

/// A piece of text with its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    /// What it is.
    pub(crate) kind: Kind,
    /// How it is written.
    pub(crate) text: &'a str,
    /// First byte.
    pub(crate) start: u32,
    /// Whether it is the first of its line.
    pub(crate) leads: bool,
}

/// All tokens of a text, comments and visible line ends included, with an end behind the last.
pub(crate) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens: Vec<Token<'_>> = Vec::new();
    let mut rest = unmarked(text);
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\r']);
        let last = tokens.last().map(|token| token.kind);
        let leads = matches!(last, None | Some(Kind::Newline));
        let start = crate::source::count(text.len() - rest.len());
        let Ok((after, (kind, text))) = token(rest, last) else {
            tokens.push(Token { kind: Kind::End, text: "", start, leads });
            return visible(tokens);
        };
        tokens.push(Token { kind, text, start, leads });
        rest = after;
    }
}

/// Without the line ends inside ( ) and [ ]. A bracket that a brace, the begin of an item or the
/// end leaves open hides nothing, so that a forgotten bracket spoils its own line only.
fn visible(tokens: Vec<Token<'_>>) -> Vec<Token<'_>> {
    let closed = closed_brackets(&tokens);
    let mut depth = 0u32;
    let mut kept = Vec::with_capacity(tokens.len());
    for (token, closed) in tokens.into_iter().zip(closed) {
        match token.text {
            "(" | "[" if closed => depth += 1,
            ")" | "]" if closed => depth -= 1,
            _ => {}
        }
        if token.kind != Kind::Newline || depth == 0 {
            kept.push(token);
        }
    }
    kept
}

/// For every token, whether it is a bracket that has its counterpart.
fn closed_brackets(tokens: &[Token<'_>]) -> Vec<bool> {
    let mut closed = vec![false; tokens.len()];
    let mut open = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        match (token.kind, token.text) {
            (Kind::Symbol, "(" | "[") => open.push(index),
            (Kind::Symbol, ")" | "]") => {
                if let Some(begin) = open.pop() {
                    [closed[begin], closed[index]] = [true, true];
                }
            }
            (Kind::Symbol, "{" | "}") => open.clear(),
            (Kind::Name, _)
                if tokens.get(index + 1).is_some_and(|n| begins_item(token, n)) =>
            {
                open.clear();
            }
            _ => {}
        }
    }
    closed
}

/// Whether an item such as `model NAME` or `train {` begins at a token, at the begin of a line.
pub(crate) fn begins_item(token: &Token<'_>, next: &Token<'_>) -> bool {
    let opens = matches!(next.kind, Kind::Name | Kind::Text) || next.text == "{";
    token.leads && token.kind == Kind::Name && ITEMS.contains(&token.text) && opens
}

type Lexed<'a> = IResult<&'a str, (Kind, &'a str)>;

/// The token that the input begins with; units stand behind numbers alone.
fn token(input: &str, last: Option<Kind>) -> Lexed<'_> {
    if let (Some(Kind::Number), Ok(found)) = (last, unit(input)) {
        return Ok(found);
    }
    alt((
        of(Kind::Comment, recognize(preceded(char('#'), take_while(|c| c != '\n')))),
        of(Kind::Newline, recognize(char('\n'))),
        number,
        of(Kind::Name, name),
        of(Kind::Text, recognize((char('"'), take_while(in_text), char('"')))),
        of(Kind::Symbol, alt((tag("<="), tag(">="), tag("..")))),
        of(Kind::Symbol, recognize(one_of("{}()[],:=+-*/|"))),
        of(Kind::Stray, take(1usize)),
    ))
    .parse(input)
}

fn of<'a>(
    kind: Kind,
    mut parser: impl Parser<&'a str, Output = &'a str, Error = nom::error::Error<&'a str>>,
) -> impl FnMut(&'a str) -> Lexed<'a> {
    move |input| parser.parse(input).map(|(rest, text)| (rest, (kind, text)))
}

/// `layer_norm`.
fn name(input: &str) -> IResult<&str, &str> {
    let begins = take_while1(|c: char| c.is_ascii_alphabetic() || c == '_');
    recognize(pair(begins, take_while(in_word))).parse(input)
}

/// `4`, `0.1`, `1e-3`, `2` of `2GB`; digits that run into other letters are a word.
fn number(input: &str) -> Lexed<'_> {
    let fraction = preceded(char('.'), digit1);
    let exponent = (one_of("eE"), opt(one_of("+-")), digit1);
    let mut literal = recognize((digit1, opt(fraction), opt(exponent)));
    let (rest, text): (&str, &str) = literal.parse(input)?;
    if !rest.starts_with(in_word) || unit(rest).is_ok() {
        return Ok((rest, (Kind::Number, text)));
    }
    of(Kind::Word, recognize((literal, take_while1(in_word)))).parse(input)
}

/// `GB/s`: the longest unit of the list that ends where the word ends.
fn unit(input: &str) -> Lexed<'_> {
    let (rest, word) = take_while1(in_word).parse(input)?;
    let per_time = (rest.starts_with("/s") || rest.starts_with("/h"))
        && !rest[2..].starts_with(in_word);
    let long = &input[..word.len() + if per_time { 2 } else { 0 }];
    let found = [long, word].into_iter().find(|text| UNITS.contains(text));
    match found {
        Some(text) => Ok((&input[text.len()..], (Kind::Unit, text))),
        None => Err(nom::Err::Error(nom::error::Error::new(
            input,
            nom::error::ErrorKind::Tag,
        ))),
    }
}

pub(crate) fn in_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn in_text(c: char) -> bool {
    c != '"' && c != '\n'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<(Kind, &str)> {
        tokens(text).into_iter().map(|token| (token.kind, token.text)).collect()
    }

    #[test]
    fn a_unit_is_one_only_after_a_number() {
        use Kind::{End, Name, Number, Symbol, Unit};
        assert_eq!(
            kinds("s 2 GB/s 3s 4 b2"),
            [
                (Name, "s"),
                (Number, "2"),
                (Unit, "GB/s"),
                (Number, "3"),
                (Unit, "s"),
                (Number, "4"),
                (Name, "b2"),
                (End, "")
            ]
        );
        assert_eq!(
            kinds("2 s/s")[..4],
            [(Number, "2"), (Unit, "s"), (Symbol, "/"), (Name, "s")]
        );
    }

    #[test]
    fn numbers_end_before_ranges_and_words_keep_their_digits() {
        use Kind::{End, Number, Symbol, Word};
        let range = [(Number, "0"), (Symbol, ".."), (Number, "1"), (End, "")];
        assert_eq!(kinds("0..1"), range);
        assert_eq!(kinds("1f1b"), [(Word, "1f1b"), (End, "")]);
        assert_eq!(kinds("1e-3"), [(Number, "1e-3"), (End, "")]);
    }

    #[test]
    fn line_ends_inside_brackets_are_left_out() {
        let newlines =
            |text| kinds(text).iter().filter(|(kind, _)| *kind == Kind::Newline).count();
        assert_eq!(newlines("f(a,\n b)\n[1,\n2]\n"), 2);
        assert_eq!(newlines("f(a,\n\nmodel x {\n"), 3);
        assert_eq!(newlines("{ y = f(a\n z = g(\nb)\n}"), 2);
    }

    #[test]
    fn every_byte_is_in_a_token_or_is_space() {
        let text = "a = \"x\ny§ 1.2.3 ..= {";
        let spelled: String = tokens(text).iter().map(|token| token.text).collect();
        assert_eq!(spelled, text.replace(' ', ""));
    }
}
