//! The `plan` section: objective, exactness, and the values that each decision may take.

use super::{
    cuts,
    definitions::{Definitions, beginning},
    objective,
    optimizer::{called, no_arguments},
    order,
    recompute::recompute,
    set::Set,
    settings::{Settings, no_entries, quantity, single, unknown_word, whole},
};
use crate::{
    Code, Diagnostic, Dimension, Files, Mistake, NoFiles, Numbers, Program, Search, Span,
    report::{Known, Report},
    syntax::{Argument, Choice, Entry, Expression, Section, Setting},
};
use roundelay_schedule::{
    Bytes, Contraction, Exactness, Hop, Images, Placement, Rule, SLACK_MAX, Sequence,
    States,
};

/// Writes what an entry says into a search.
type Apply = fn(&mut Search, &Entry, &dyn Files, &mut Report) -> Known<()>;

/// The entries that are read.
const ENTRIES: [(&str, Apply); 22] = [
    ("minimize", |search, entry, _, report| {
        set(&mut search.objective, objective::objective(entry, report))
    }),
    ("result", |search, entry, _, report| {
        objective::learning(&mut search.learning, entry, report)
    }),
    ("exactness", |search, entry, _, report| {
        set(&mut search.exactness, exactness(entry, report).map(Some))
    }),
    ("memory", |search, entry, _, report| {
        set(&mut search.memory, memory(entry, report).map(Some))
    }),
    ("devices", |search, entry, _, report| {
        set(&mut search.devices, numbers(entry, report))
    }),
    ("first_device", |search, entry, _, report| {
        set(&mut search.first_device, numbers_from(0, entry, report))
    }),
    ("rule", |search, entry, _, report| {
        set(&mut search.rule, choice(entry, report, rule))
    }),
    ("placement", |search, entry, _, report| {
        set(&mut search.placement, words(Placement::ALL, entry, report))
    }),
    ("order", order::apply),
    ("states", |search, entry, _, report| {
        set(&mut search.states, words(States::ALL, entry, report))
    }),
    ("sequence", |search, entry, _, report| {
        set(&mut search.sequence, words(Sequence::ALL, entry, report))
    }),
    ("images", |search, entry, _, report| {
        set(&mut search.images, words(Images::ALL, entry, report))
    }),
    ("recompute", |search, entry, _, report| {
        set(&mut search.recompute, choice(entry, report, recompute))
    }),
    ("replicas", |search, entry, _, report| {
        set(&mut search.replicas, numbers(entry, report))
    }),
    ("shards", |search, entry, _, report| {
        set(&mut search.shards, numbers(entry, report))
    }),
    ("stages", |search, entry, _, report| {
        set(&mut search.stages, numbers(entry, report))
    }),
    ("chunks", |search, entry, _, report| {
        set(&mut search.chunks, numbers(entry, report))
    }),
    ("slices", |search, entry, _, report| {
        set(&mut search.slices, numbers(entry, report))
    }),
    ("micro_batches", |search, entry, _, report| {
        set(&mut search.micro_batches, numbers(entry, report))
    }),
    ("cuts", |search, entry, _, report| {
        set(&mut search.cuts, cuts::cuts(entry, report).map(Some))
    }),
    ("tensor", tensor),
    ("stage", |search, entry, _, report| {
        search.pinned.push(super::stage::pinned(entry, report)?);
        Ok(())
    }),
];

/// Entries of `tensor { … }`.
const TENSOR_ENTRIES: [(&str, Apply); 5] = [
    ("rows", |search, entry, _, report| set(&mut search.rows, numbers(entry, report))),
    ("columns", |search, entry, _, report| {
        set(&mut search.columns, numbers(entry, report))
    }),
    ("depth", |search, entry, _, report| set(&mut search.depth, numbers(entry, report))),
    ("contraction", |search, entry, _, report| {
        set(&mut search.contraction, words(Contraction::ALL, entry, report))
    }),
    ("overdecompose", |search, entry, _, report| {
        set(&mut search.overdecompose, halves(entry, report))
    }),
];

/// Keys that are read.
pub(super) const KEYS: [&str; ENTRIES.len()] = keys(&ENTRIES);

/// Keys of `tensor { … }`.
pub(super) const TENSOR: [&str; TENSOR_ENTRIES.len()] = keys(&TENSOR_ENTRIES);

const fn keys<const N: usize>(entries: &[(&'static str, Apply); N]) -> [&'static str; N] {
    let mut keys = [""; N];
    let mut number = 0;
    while number < N {
        keys[number] = entries[number].0;
        number += 1;
    }
    keys
}

/// What the planner may choose.
pub(super) fn resolve(
    definitions: &Definitions<'_>,
    files: &dyn Files,
    report: &mut Report,
) -> Known<Search> {
    for other in definitions.other_plans() {
        let _: Known<Search> = resolve_section(other, files, report);
    }
    match definitions.plan().map_err(|m| report.error(beginning(), m))? {
        None => Ok(Search::default()),
        Some(section) => resolve_section(section, files, report),
    }
}

fn resolve_section(
    section: &Section,
    files: &dyn Files,
    report: &mut Report,
) -> Known<Search> {
    let mut search = Search::default();
    let (stages, others): (Vec<Entry>, Vec<Entry>) =
        section.entries.iter().cloned().partition(|entry| entry.key.text == "stage");
    let settings = Settings::new("plan", &others, &KEYS, report);
    let entries = KEYS.into_iter().filter_map(|key| settings.get(key));
    let entries = entries.chain(&stages);
    let results: Vec<Known<()>> =
        entries.map(|entry| apply(&mut search, entry, files, report)).collect();
    results.into_iter().collect::<Known<()>>().map(|()| search)
}

impl Search {
    /// Sets one decision as `key value`, `key=value` or `key<=value` says it, in the syntax of a
    /// `plan` section; `tensor.rows=1` names an inner key.
    ///
    /// # Errors
    /// What is wrong with the text; the search is unchanged then.
    ///
    /// ```
    /// let mut search = roundelay_dsl::Search::default();
    /// search.set("stages=2 | 4")?;
    /// search.set("memory<=1 GB")?;
    /// assert!(search.stages.allows(4) && !search.stages.allows(3));
    /// # Ok::<(), roundelay_dsl::Diagnostic>(())
    /// ```
    pub fn set(&mut self, text: &str) -> Result<(), Diagnostic> {
        self.set_from(text, &NoFiles)
    }

    /// Sets one decision like [`Search::set`]; lists that it names are one of the files.
    ///
    /// # Errors
    /// What is wrong with the text or the lists; the search is unchanged then.
    pub fn set_from(&mut self, text: &str, files: &dyn Files) -> Result<(), Diagnostic> {
        let mut changed = self.clone();
        Set::new(text)
            .said(|entry, report| set_entry(&mut changed, entry, files, report))?;
        *self = changed;
        Ok(())
    }
}

/// Sets the decision that an entry says.
pub(super) fn set_entry(
    search: &mut Search,
    entry: &Entry,
    files: &dyn Files,
    report: &mut Report,
) -> Known<()> {
    let entries = std::slice::from_ref(entry);
    let settings = Settings::new("plan", entries, &KEYS, report);
    match settings.get(&entry.key.text) {
        Some(entry) => apply(search, entry, files, report),
        None => Err(report.earlier()),
    }
}

fn apply(
    search: &mut Search,
    entry: &Entry,
    files: &dyn Files,
    report: &mut Report,
) -> Known<()> {
    let known = ENTRIES.iter().find(|(key, _)| *key == entry.key.text);
    let (_, apply) = known.expect("settings hold known keys alone");
    apply(search, entry, files, report)
}

fn set<T>(place: &mut T, value: Known<T>) -> Known<()> {
    *place = value?;
    Ok(())
}

/// `exactness delayed`.
fn exactness(entry: &Entry, report: &mut Report) -> Known<Exactness> {
    word(single(entry, report)?, "exactness", Exactness::ALL, report)
}

/// `memory <= 1 GB`.
fn memory(entry: &Entry, report: &mut Report) -> Known<Bytes> {
    no_entries(entry, report)?;
    let value = match &entry.value {
        Setting::AtMost(value) => value,
        Setting::Nothing | Setting::OneOf(_) | Setting::AtLeast(_) | Setting::Broken => {
            let mistake = Mistake::new(Code::Type, "`memory` takes an upper bound");
            return Err(
                report.error(entry.key.span, mistake.hint("write `memory <= 1 GB`"))
            );
        }
    };
    quantity(value, Dimension::Memory, report).map(Bytes)
}

pub(super) const MOST: u64 = 1 << 20;

/// `stages 1 .. 4 | 8`, `stages <= 8`, `stages >= 2`.
fn numbers(entry: &Entry, report: &mut Report) -> Known<Numbers> {
    numbers_from(1, entry, report)
}

/// Numbers of which none is below the least.
fn numbers_from(least: u64, entry: &Entry, report: &mut Report) -> Known<Numbers> {
    no_entries(entry, report)?;
    let number = |value, report: &mut Report| whole(value, least, MOST, report);
    let ranges = match &entry.value {
        Setting::Nothing | Setting::Broken => {
            return Err(report.error(entry.key.span, no_value(entry)));
        }
        Setting::AtMost(value) => vec![(least, number(value, report)?)],
        Setting::AtLeast(value) => vec![(number(value, report)?, u64::MAX)],
        Setting::OneOf(choices) => choices
            .iter()
            .map(|choice| range(choice, least, report))
            .collect::<Known<_>>()?,
    };
    Ok(Numbers::Ranges(ranges))
}

pub(super) fn range(
    choice: &Choice,
    least: u64,
    report: &mut Report,
) -> Known<(u64, u64)> {
    let first = whole(&choice.first, least, MOST, report)?;
    let Some(last) = &choice.last else { return Ok((first, first)) };
    let most = whole(last, least, MOST, report)?;
    if first > most {
        let message = format!("the range {first} .. {most} is empty");
        let span = choice.first.span.to(last.span);
        return Err(report.error(span, Mistake::new(Code::Value, message)));
    }
    Ok((first, most))
}

fn no_value(entry: &Entry) -> Mistake {
    Mistake::new(Code::Missing, format!("`{}` needs a value", entry.key.text))
}

/// `a | b`, each read by `value`.
fn choice<T: PartialEq>(
    entry: &Entry,
    report: &mut Report,
    value: impl Fn(&Expression, &mut Report) -> Known<T>,
) -> Known<crate::Choice<T>> {
    alternatives(entry, report, value).map(crate::Choice::OneOf)
}

/// The values of `a | b`, each once.
pub(super) fn alternatives<T: PartialEq>(
    entry: &Entry,
    report: &mut Report,
    mut value: impl FnMut(&Expression, &mut Report) -> Known<T>,
) -> Known<Vec<T>> {
    no_entries(entry, report)?;
    let choices = match &entry.value {
        Setting::OneOf(choices) => choices,
        Setting::Nothing | Setting::AtMost(_) | Setting::AtLeast(_) | Setting::Broken => {
            let mistake = no_value(entry).hint("alternatives are separated by `|`");
            return Err(report.error(entry.key.span, mistake));
        }
    };
    let mut values = Vec::new();
    for choice in choices {
        if let Some(last) = &choice.last {
            let message = format!("`{}` takes no range", entry.key.text);
            return Err(report.error(last.span, Mistake::new(Code::Type, message)));
        }
        let value = value(&choice.first, report)?;
        if !values.contains(&value) {
            values.push(value);
        }
    }
    Ok(values)
}

/// `a | b`, each one of some words of the entry's key.
fn words<T: Copy + PartialEq + std::fmt::Display>(
    all: &[T],
    entry: &Entry,
    report: &mut Report,
) -> Known<crate::Choice<T>> {
    choice(entry, report, |value, report| word(value, &entry.key.text, all, report))
}

/// One of some words.
pub(super) fn word<T: Copy + std::fmt::Display>(
    value: &Expression,
    what: &str,
    all: &[T],
    report: &mut Report,
) -> Known<T> {
    let names: Vec<String> = all.iter().map(T::to_string).collect();
    let expected = format!("a name of {what}, one of {}", names.join(", "));
    let (name, given) = called(value, &expected, report)?;
    let Some(index) = names.iter().position(|known| *known == name.text) else {
        let known: Vec<&str> = names.iter().map(String::as_str).collect();
        return Err(unknown_word(what, &name.text, &known, name.span, report));
    };
    no_arguments(&name, given, report)?;
    Ok(all[index])
}

/// `sync`, `cyclic_v1`, `cyclic_v2`, `cyclic(slack = 1)`, `local(units = 4)`, `pairwise(units = 4)`.
fn rule(value: &Expression, report: &mut Report) -> Known<Rule> {
    let (name, given) = called(value, "a rule such as `sync`", report)?;
    match (name.text.as_str(), given) {
        ("local", given) => local(value, given, report),
        ("pairwise", given) => pairwise(value, given, report),
        ("cyclic", [slack])
            if super::constant::name_of(slack).is_none_or(|n| n == "slack") =>
        {
            let slack = whole(&slack.value, 0, SLACK_MAX.into(), report)?;
            Ok(Rule::CyclicSlack(u32::try_from(slack).unwrap_or(SLACK_MAX)))
        }
        ("cyclic", _) => {
            let mistake = Mistake::new(Code::Missing, "`cyclic` needs a slack");
            Err(report.error(value.span, mistake.hint("write `cyclic(slack = 1)`")))
        }
        (word, given) if let Ok(rule) = word.parse() => {
            no_arguments(&name, given, report)?;
            Ok(rule)
        }
        (found, _) => Err(unknown_word("rule", found, &Rule::FORMS, name.span, report)),
    }
}

/// `local(units = 4)`, `local(units = 4, overlap = 1)`.
fn local(value: &Expression, given: &[Argument], report: &mut Report) -> Known<Rule> {
    let [units, overlap] = numbers_of("local", ["units", "overlap"], given, report)?;
    let units = units_of("local", units, value, report)?;
    let hop = match overlap {
        None | Some((0, _)) => Hop::None,
        Some((1, _)) => Hop::Added,
        Some((_, span)) => {
            let message = "neighbouring units overlap by one unit, or not at all";
            let hint = "write `overlap = 1`, or leave `overlap` out";
            return Err(report.error(span, Mistake::new(Code::Value, message).hint(hint)));
        }
    };
    Ok(Rule::Local { units, hop })
}

/// `pairwise(units = 4)`.
fn pairwise(value: &Expression, given: &[Argument], report: &mut Report) -> Known<Rule> {
    let [units] = numbers_of("pairwise", ["units"], given, report)?;
    let units = units_of("pairwise", units, value, report)?;
    Ok(Rule::Local { units, hop: Hop::Alone })
}

/// The whole numbers that are given by these names, each at most once, with their places; the
/// first needs no name.
fn numbers_of<const N: usize>(
    rule: &str,
    names: [&str; N],
    given: &[Argument],
    report: &mut Report,
) -> Known<[Option<(u64, Span)>; N]> {
    let mut found = [None; N];
    for argument in given {
        let name = super::constant::name_of(argument).unwrap_or(names[0]);
        let place = names.iter().position(|known| *known == name);
        match place.filter(|place| found[*place].is_none()) {
            Some(place) => {
                let number = whole(&argument.value, 0, MOST, report)?;
                found[place] = Some((number, argument.value.span));
            }
            None => {
                let mistake = unlike(rule, &names, name);
                return Err(report.error(argument.value.span, mistake));
            }
        }
    }
    Ok(found)
}

/// What is given by another name than a rule takes, or twice.
fn unlike(rule: &str, names: &[&str], name: &str) -> Mistake {
    let all: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    let all = all.join(" and ");
    if names.contains(&name) {
        let message = format!("`{rule}` takes {all}, each once");
        let hint = format!("leave one `{name}` out");
        return Mistake::new(Code::Duplicate, message).hint(hint);
    }
    let message = format!("`{rule}` takes {all}, not `{name}`");
    Mistake::new(Code::UnknownName, message).near(name, names.iter().copied())
}

fn units_of(
    rule: &str,
    units: Option<(u64, Span)>,
    value: &Expression,
    report: &mut Report,
) -> Known<u32> {
    let hint = format!("write `{rule}(units = 2)`");
    let (code, message, span) = match units {
        Some((units @ 1.., _)) => return Ok(u32::try_from(units).unwrap_or(u32::MAX)),
        Some((_, span)) => (Code::Value, format!("`{rule}` has at least 1 unit"), span),
        None => (Code::Missing, format!("`{rule}` needs a number of units"), value.span),
    };
    Err(report.error(span, Mistake::new(code, message).hint(hint)))
}

/// `tensor { rows <= 8, columns 1, depth 2 | 4 }`.
fn tensor(
    search: &mut Search,
    entry: &Entry,
    files: &dyn Files,
    report: &mut Report,
) -> Known<()> {
    if !matches!(entry.value, Setting::Nothing) {
        let mistake = Mistake::new(
            Code::Type,
            "`tensor` takes rows, columns, depth, contraction and overdecompose",
        );
        let hint = "write `tensor { rows <= 8 }`";
        return Err(report.error(entry.key.span, mistake.hint(hint)));
    }
    let inner = Settings::new("tensor", &entry.entries, &TENSOR, report);
    for (key, apply) in TENSOR_ENTRIES {
        if let Some(entry) = inner.get(key) {
            apply(search, entry, files, report)?;
        }
    }
    Ok(())
}

/// `overdecompose 2`: one part of a micro-batch, or two.
fn halves(entry: &Entry, report: &mut Report) -> Known<Numbers> {
    let numbers = numbers(entry, report)?;
    if numbers.allows(1) || numbers.allows(2) {
        return Ok(numbers);
    }
    let message = "the examples of a micro-batch are taken together, or in two halves";
    let mistake = Mistake::new(Code::Value, message)
        .hint("write `tensor { overdecompose 2 }`, or 1 for together");
    Err(report.error(entry.key.span, mistake))
}

/// Every rule has a model, and pinned cuts lie inside of one and make stages that are allowed.
pub(super) fn fit(definitions: &Definitions<'_>, program: &Program, report: &mut Report) {
    let Ok(Some(section)) = definitions.plan() else { return };
    let span = |key: &str| {
        let entry = section.entries.iter().find(|entry| entry.key.text == key);
        entry.map_or(section.span, |entry| entry.key.span)
    };
    for mistake in objective::unmade(program) {
        report.error(span("rule"), mistake);
    }
    if let Some(mistake) = cuts::behind(program) {
        report.error(span("cuts"), mistake);
    }
    if let Some((key, mistake)) = cuts::other_stages(&program.search) {
        let labels = vec![(span("cuts"), "the cuts are here".to_owned())];
        report.error_with(span(key), mistake, labels);
    }
}
