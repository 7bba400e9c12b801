//! Entries of a section: which keys there are, and what they are set to.

use super::constant::constant;
use crate::{
    Code, Dimension, Mistake, Quantity, Span, Value,
    near::{self, Asked},
    report::{Known, Report, duplicate},
    syntax::{Choice, Entry, Expression, ExpressionKind, Name, Setting},
};
use roundelay_schedule::Thousandths;
use std::collections::{BTreeMap, BTreeSet};

/// Entries with known keys, each at most once.
pub(super) struct Settings<'a> {
    owner: &'a str,
    entries: BTreeMap<&'a str, &'a Entry>,
    broken: BTreeSet<&'a str>,
}

impl<'a> Settings<'a> {
    /// Takes entries in; reports unknown keys and second entries. Broken entries count as absent,
    /// but nobody misses them.
    pub(super) fn new(
        owner: &'a str,
        entries: impl IntoIterator<Item = &'a Entry>,
        known: &[&str],
        report: &mut Report,
    ) -> Self {
        let mut all: BTreeMap<&str, &Entry> = BTreeMap::new();
        let mut broken = BTreeSet::new();
        for entry in entries {
            if report.is_full() {
                break;
            }
            let key = entry.key.text.as_str();
            if matches!(entry.value, Setting::Broken) {
                broken.insert(key);
            } else if !known.contains(&key) {
                report.error(entry.key.span, unknown_key(owner, key, known));
            } else if let Some(first) = all.get(key) {
                let labels = vec![(first.key.span, "first set here".to_owned())];
                report.error_with(entry.key.span, duplicate("key", key), labels);
            } else {
                all.insert(key, entry);
            }
        }
        Self { owner, entries: all, broken }
    }

    /// The entry of a key.
    pub(super) fn get(&self, key: &str) -> Option<&'a Entry> {
        self.entries.get(key).copied()
    }

    /// The quantity of a key that must be there.
    pub(super) fn required(
        &self,
        key: &str,
        dimension: Dimension,
        place: &Name,
        report: &mut Report,
    ) -> Known<u64> {
        if let Some(entry) = self.get(key) {
            no_entries(entry, report)?;
        }
        self.required_outer(key, dimension, place, report)
    }

    /// The quantity of a key that must be there, and may have entries in braces besides.
    pub(super) fn required_outer(
        &self,
        key: &str,
        dimension: Dimension,
        place: &Name,
        report: &mut Report,
    ) -> Known<u64> {
        match self.outer_quantity(key, dimension, report)? {
            Some(amount) => Ok(amount),
            None if self.broken.contains(key) => Err(report.earlier()),
            None => {
                let message = format!("{} `{}` needs `{key}`", self.owner, place.text);
                let hint = format!("write `{key}` with {}", dimension.example());
                let mistake = Mistake::new(Code::Missing, message).hint(hint);
                Err(report.error(place.span, mistake))
            }
        }
    }

    /// The quantity of a key.
    pub(super) fn quantity(
        &self,
        key: &str,
        dimension: Dimension,
        report: &mut Report,
    ) -> Known<Option<u64>> {
        if let Some(entry) = self.get(key) {
            no_entries(entry, report)?;
        }
        self.outer_quantity(key, dimension, report)
    }

    /// The quantity of a key, which may be 0 whatever it measures.
    pub(super) fn quantity_or_none(
        &self,
        key: &str,
        dimension: Dimension,
        report: &mut Report,
    ) -> Known<Option<u64>> {
        let Some(entry) = self.get(key) else { return Ok(None) };
        quantity(single(entry, report)?, dimension, report).map(Some)
    }

    fn outer_quantity(
        &self,
        key: &str,
        dimension: Dimension,
        report: &mut Report,
    ) -> Known<Option<u64>> {
        let Some(entry) = self.get(key) else { return Ok(None) };
        let expression = only_value(entry, report)?;
        let amount = quantity(expression, dimension, report)?;
        if dimension != Dimension::Time {
            refuse_nothing(key, (amount, dimension), expression, report)?;
        }
        Ok(Some(amount))
    }

    /// The share of a key, above 0 and at most 1.
    pub(super) fn share(
        &self,
        key: &str,
        report: &mut Report,
    ) -> Known<Option<Thousandths>> {
        let least = Thousandths(1);
        self.thousandths(key, (least, "above 0 and at most 1, such as `0.8`"), report)
    }

    /// The share of a key, from 0 to 1.
    pub(super) fn share_or_none(
        &self,
        key: &str,
        report: &mut Report,
    ) -> Known<Option<Thousandths>> {
        self.thousandths(key, (Thousandths::NONE, "from 0 to 1, such as `0.3`"), report)
    }

    fn thousandths(
        &self,
        key: &str,
        (least, range): (Thousandths, &str),
        report: &mut Report,
    ) -> Known<Option<Thousandths>> {
        let Some(entry) = self.get(key) else { return Ok(None) };
        let expression = single(entry, report)?;
        let share =
            constant(expression, report)?.real().and_then(Thousandths::from_share);
        if share.is_some_and(|share| (least..=Thousandths::ALL).contains(&share)) {
            return Ok(share);
        }
        let message = format!("`{key}` is a share {range}");
        Err(report.error(expression.span, Mistake::new(Code::Value, message)))
    }

    /// The whole number of a key, in a range.
    pub(super) fn whole(
        &self,
        key: &str,
        least: u64,
        most: u64,
        report: &mut Report,
    ) -> Known<Option<u64>> {
        let Some(entry) = self.get(key) else { return Ok(None) };
        let expression = single(entry, report)?;
        whole(expression, least, most, report).map(Some)
    }
}

fn unknown_key(owner: &str, key: &str, known: &[&str]) -> Mistake {
    let mistake =
        Mistake::new(Code::UnknownKey, format!("unknown key `{key}` in {owner}"));
    mistake.meant(Asked::Key(owner), key, known.iter().copied())
}

/// The one value of an entry that takes neither alternatives nor entries.
pub(super) fn single<'a>(entry: &'a Entry, report: &mut Report) -> Known<&'a Expression> {
    no_entries(entry, report)?;
    only_value(entry, report)
}

/// The one value of an entry that may take entries in braces besides.
pub(super) fn only_value<'a>(
    entry: &'a Entry,
    report: &mut Report,
) -> Known<&'a Expression> {
    if let Setting::OneOf(choices) = &entry.value
        && let [Choice { first, last: None }] = &choices[..]
    {
        return Ok(first);
    }
    let message = format!("`{}` takes exactly one value", entry.key.text);
    Err(report.error(entry.key.span, Mistake::new(Code::Type, message)))
}

/// Refuses entries in braces.
pub(super) fn no_entries(entry: &Entry, report: &mut Report) -> Known<()> {
    match entry.entries.first() {
        None => Ok(()),
        Some(inner) => {
            let message = format!("`{}` takes no entries in braces", entry.key.text);
            Err(report.error(inner.key.span, Mistake::new(Code::UnknownKey, message)))
        }
    }
}

/// A number with a unit of one dimension.
pub(super) fn quantity(
    expression: &Expression,
    dimension: Dimension,
    report: &mut Report,
) -> Known<u64> {
    let expected = dimension.example();
    match constant(expression, report)? {
        Value::Quantity(Quantity { dimension: found, amount }) if found == dimension => {
            Ok(amount)
        }
        other => {
            let message = format!("expected {expected}, found {}", other.kind());
            let mistake = Mistake::new(Code::Unit, message);
            let hint = with_unit(expression, dimension);
            Err(report
                .error(expression.span, hint.into_iter().fold(mistake, Mistake::hint)))
        }
    }
}

/// How to write a number that has no unit with the one that is usual.
fn with_unit(expression: &Expression, dimension: Dimension) -> Option<String> {
    let ExpressionKind::Number(digits, None) = &expression.kind else { return None };
    Some(format!("write the unit too, as in `{digits} {}`", dimension.usual()))
}

/// Refuses a quantity that counts nothing, be it zero or less than the least that is counted.
pub(super) fn refuse_nothing(
    key: &str,
    (amount, dimension): (u64, Dimension),
    expression: &Expression,
    report: &mut Report,
) -> Known<()> {
    if amount > 0 {
        return Ok(());
    }
    let message = match is_zero(expression) {
        true => format!("`{key}` must be more than zero"),
        false => format!("`{key}` is less than {}", dimension.least()),
    };
    Err(report.error(expression.span, Mistake::new(Code::Value, message)))
}

/// Whether a number is zero as it is written.
fn is_zero(expression: &Expression) -> bool {
    match &expression.kind {
        ExpressionKind::Number(digits, _) => digits.parse() == Ok(0.0),
        _ => true,
    }
}

/// A whole number in a range.
pub(super) fn whole(
    expression: &Expression,
    least: u64,
    most: u64,
    report: &mut Report,
) -> Known<u64> {
    let value = constant(expression, report)?;
    let number = match value {
        Value::Integer(number) => u64::try_from(number).ok(),
        _ => None,
    };
    let fits = number.filter(|number| (least..=most).contains(number));
    fits.ok_or_else(|| {
        let found = match value {
            Value::Integer(number) => number.to_string(),
            other => other.kind().to_owned(),
        };
        let message =
            format!("expected a whole number from {least} to {most}, found {found}");
        report.error(expression.span, Mistake::new(Code::Value, message))
    })
}

/// A text in quotes.
pub(super) fn text(expression: &Expression) -> Result<&str, Mistake> {
    match &expression.kind {
        ExpressionKind::Text(text) => Ok(text),
        ExpressionKind::Number(..)
        | ExpressionKind::Name(_)
        | ExpressionKind::Shape(_)
        | ExpressionKind::Call(..)
        | ExpressionKind::Index(..)
        | ExpressionKind::Negative(_)
        | ExpressionKind::Chain(..) => {
            Err(Mistake::new(Code::Type, "expected a text in quotes"))
        }
    }
}

/// A word that none of the known ones is.
pub(super) fn unknown_word(
    what: &str,
    found: &str,
    known: &[&str],
    span: Span,
    report: &mut Report,
) -> crate::report::Reported {
    report.error(span, near::unknown(what, found, known.iter().copied()))
}
