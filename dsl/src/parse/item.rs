//! Items of a file: imports, models, blocks, devices, links, clusters, training and plan.

use super::{
    body::{attempt, body},
    entry::entries,
    error::{Parsed, SyntaxError, refuse},
    expression::{expression, list, quoted, separated},
    statement::statements,
    stream::{Tokens, keyword, name, spelled, symbol},
};
use crate::{
    syntax::{
        Block, Cluster, Component, Expression, Group, Item, Model, Name, Section, Whole,
    },
    token::Kind,
};
use nom::{
    Err, Parser,
    branch::alt,
    combinator::{cut, map, opt},
    sequence::{pair, preceded, terminated},
};
use roundelay_schedule::nearest;

/// One item.
pub(crate) fn item(input: Tokens<'_>) -> Parsed<'_, Item> {
    let next = input.peek();
    match (next.kind, next.text) {
        (Kind::Name, "import") => import(input),
        (Kind::Name, "model") => model(input),
        (Kind::Name, "block") => block(input),
        (Kind::Name, "device") => map(component("device"), Item::Device).parse(input),
        (Kind::Name, "link") => map(component("link"), Item::Link).parse(input),
        (Kind::Name, "cluster") => cluster(input),
        (Kind::Name, "train") => map(section("train"), Item::Train).parse(input),
        (Kind::Name, "plan") => map(section("plan"), Item::Plan).parse(input),
        _ => Err(Err::Error(unknown_item(input))),
    }
}

/// What items begin with.
const ITEMS: [&str; 8] =
    ["import", "model", "block", "device", "link", "cluster", "train", "plan"];

fn unknown_item(input: Tokens<'_>) -> SyntaxError<'_> {
    let what = "import, model, block, device, link, cluster, train or plan";
    let unknown = SyntaxError::expected(input, what);
    match nearest(input.peek().text, ITEMS) {
        Some(word) => unknown.hint(format!("did you mean `{word}`?")),
        None => unknown,
    }
}

/// `import "devices.rdl"`.
fn import(input: Tokens<'_>) -> Parsed<'_, Item> {
    map(preceded(keyword("import"), cut(quoted)), Item::Import).parse(input)
}

/// `model NAME { … }`.
fn model(input: Tokens<'_>) -> Parsed<'_, Item> {
    map(preceded(keyword("model"), cut(pair(name, statements))), |(name, body)| {
        Item::Model(Model { name, body })
    })
    .parse(input)
}

/// `block NAME(a, b) { … }`.
fn block(input: Tokens<'_>) -> Parsed<'_, Item> {
    let parts = (name, formals, statements);
    map(preceded(keyword("block"), cut(parts)), |(name, formals, body)| {
        Item::Block(Block { name, formals, body })
    })
    .parse(input)
}

/// `(a, b)`.
fn formals(input: Tokens<'_>) -> Parsed<'_, Vec<Name>> {
    let (rest, names) = preceded(symbol("("), list(name)).parse(input)?;
    if rest.at("=") {
        let hint = "arguments of blocks have no default: every call gives all of them";
        return Err(Err::Failure(SyntaxError::expected(rest, "`)`").hint(hint)));
    }
    let (rest, _) = symbol(")")(rest)?;
    Ok((rest, names))
}

/// `device NAME { … }`, `link NAME { … }`.
fn component<'a>(word: &'static str) -> impl FnMut(Tokens<'a>) -> Parsed<'a, Component> {
    move |input| {
        map(preceded(keyword(word), cut(pair(name, entries))), |(name, entries)| {
            Component { name, entries }
        })
        .parse(input)
    }
}

/// `train { … }`, `plan { … }`.
fn section<'a>(word: &'static str) -> impl FnMut(Tokens<'a>) -> Parsed<'a, Section> {
    move |input| {
        map(pair(keyword(word), cut(entries)), |(span, entries)| Section {
            span,
            entries,
        })
        .parse(input)
    }
}

/// A line of a cluster.
enum ClusterLine {
    Tier(Name, Group),
    Whole(Group),
    Broken,
}

/// `cluster NAME { node = 8 x a100 joined by nvlink, 64 x node joined by infiniband }`.
fn cluster(input: Tokens<'_>) -> Parsed<'_, Item> {
    let (rest, (name, lines)) = preceded(
        keyword("cluster"),
        cut(pair(name, body(cluster_line, |_| Some(ClusterLine::Broken)))),
    )
    .parse(input)?;
    let mut cluster = Cluster { name, tiers: Vec::new(), whole: Whole::Missing };
    for line in lines {
        match line {
            ClusterLine::Tier(name, group) => cluster.tiers.push((name, group)),
            ClusterLine::Whole(group) => cluster.whole = Whole::Group(group),
            ClusterLine::Broken => cluster.whole = Whole::Broken,
        }
    }
    Ok((rest, Item::Cluster(cluster)))
}

/// `NAME = group`, or the last line, `group`.
fn cluster_line(input: Tokens<'_>) -> Parsed<'_, ClusterLine> {
    let tier = map(pair(terminated(name, symbol("=")), cut(group)), |(name, group)| {
        ClusterLine::Tier(name, group)
    });
    let mut whole = map(group, ClusterLine::Whole);
    let (rest, line) = match counts_nothing(input) {
        true => whole.parse(input)?,
        false => alt((tier, whole)).parse(input)?,
    };
    let more = !super::stream::separators(rest).at("}");
    match (&line, more) {
        (ClusterLine::Whole(_), true) if super::statement::ended(rest).is_ok() => {
            refuse(super::stream::separators(rest), "`}` after the whole cluster")
        }
        _ => Ok((rest, line)),
    }
}

/// Whether a line is a member without its count, `core` or `core joined by bus`, and no tier.
fn counts_nothing(input: Tokens<'_>) -> bool {
    let behind = input.advance();
    let goes_on = behind.at("+") || ["joined", "sharing"].contains(&behind.peek().text);
    input.peek().kind == Kind::Name
        && (goes_on || super::statement::ended(behind).is_ok())
}

/// `4 x core + 2 x big joined by bus sharing 8 GB`.
fn group(input: Tokens<'_>) -> Parsed<'_, Group> {
    let joined = opt(preceded(keyword("joined"), cut(preceded(keyword("by"), name))));
    let sharing = opt(preceded(keyword("sharing"), cut(expression)));
    let parts = (separated("+", member), joined, sharing);
    let (rest, (members, link, sharing)) = { parts }.parse(input)?;
    if sharing.is_some() && keyword("joined")(rest).is_ok() {
        let hint = "write `joined by …` before `sharing …`";
        let late = SyntaxError::expected(rest, "a new line or `,`").hint(hint);
        return Err(Err::Failure(late));
    }
    Ok((rest, Group { members, link, sharing }))
}

/// `4 x core`.
fn member(input: Tokens<'_>) -> Parsed<'_, (Expression, Name)> {
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let next = input.peek();
    if next.kind != Kind::Number || !digits(next.text) {
        let expected = SyntaxError::expected(input, "a whole number of members");
        let joined = next.text.split_once('x').filter(|(count, _)| digits(count));
        return Err(Err::Error(match (next.kind, joined) {
            (Kind::Word, Some((count, _))) => {
                expected.hint(format!("write `{count} x …`, with spaces"))
            }
            (Kind::Name, _) if stands_alone(input) => {
                expected.hint(format!("write `1 x {}`", next.text))
            }
            _ => expected,
        }));
    }
    let count = map(spelled(Kind::Number, "a number"), |Name { text, span }| {
        Expression { kind: crate::syntax::ExpressionKind::Number(text, None), span }
    });
    pair(count, preceded(cut(keyword("x")), cut(name))).parse(input)
}

/// Whether a name may be a member whose number is left out.
fn stands_alone(input: Tokens<'_>) -> bool {
    let counts = |rest| keyword("x")(rest).is_ok();
    let joins = ["joined", "sharing"].contains(&input.peek().text);
    !joins && name(input).is_ok_and(|(rest, _)| !counts(rest))
}

/// One item and the end of its line.
pub(crate) fn whole_item(
    input: Tokens<'_>,
) -> Result<(Tokens<'_>, Item), SyntaxError<'_>> {
    attempt(input, item)
}
