//! Rotary positions that are scaled for long texts: kinds that the language has, each with its
//! numbers, and others, which are warned of.

use super::fields::Fields;
use roundelay_dsl::{Code, Stretch};
use serde_json::{Map, Value};

/// An object of rotary positions, and where it stands.
struct Scaling<'a> {
    name: &'a str,
    entries: &'a Map<String, Value>,
    kind: &'a str,
}

/// What is made of scaling of a kind. Kinds that differ from `linear` and `llama3` are left out.
pub(super) fn of(
    fields: &mut Fields<'_>,
    name: &str,
    (entries, kind): (&Map<String, Value>, &str),
) -> Stretch {
    let scaling = Scaling { name, entries, kind };
    match kind {
        "linear" => match scaling.factor(fields) {
            1.0 => Stretch::None,
            factor => Stretch::Even { factor },
        },
        "llama3" => scaling.long(fields),
        _ => {
            let message = format!(
                "rotary positions are not scaled ({kind}): shapes, costs and parameters are \
                 the same, but results with published weights may differ"
            );
            fields.warn(name, message);
            Stretch::None
        }
    }
}

/// Positions of the first training.
const ORIGINAL: &str = "original_max_position_embeddings";

/// The most of them.
const MOST: u64 = 1 << 24;

/// What stands for a number that is wrong.
const HARMLESS: f64 = 1.0;

impl Scaling<'_> {
    /// Long waves alone, as Llama 3 has them.
    fn long(&self, fields: &mut Fields<'_>) -> Stretch {
        let factor = self.factor(fields);
        let above_zero = ("a number above 0", |turns: f64| turns > 0.0);
        let [low, high] = ["low_freq_factor", "high_freq_factor"]
            .map(|key| self.number(fields, key, above_zero));
        let original = self.original(fields);
        if fields.is_clean() && low >= high {
            let message = format!(
                "`low_freq_factor` within `{}` is {low}, but `high_freq_factor` is {high}",
                self.name
            );
            let hint = "the latter must be the greater one";
            fields.refuse(self.name, Code::Value, message, hint);
        }
        Stretch::Long { factor, original, low, high }
    }

    /// By what angles are divided.
    fn factor(&self, fields: &mut Fields<'_>) -> f64 {
        let at_least_one = ("a number of at least 1", |factor: f64| factor >= 1.0);
        self.number(fields, "factor", at_least_one)
    }

    fn number(
        &self,
        fields: &mut Fields<'_>,
        key: &str,
        (expected, fits): (&str, impl Fn(f64) -> bool),
    ) -> f64 {
        let Some(value) = self.entries.get(key) else { return self.missing(fields, key) };
        match value.as_f64() {
            Some(number) if fits(number) => number,
            Some(_) => self.wrong(fields, key, (Code::Value, expected)),
            None => self.wrong(fields, key, (Code::Type, expected)),
        }
    }

    /// Positions of the first training; a release may say them beside the object.
    fn original(&self, fields: &mut Fields<'_>) -> u64 {
        let (inner, outer) = (self.entries.get(ORIGINAL), fields.value(ORIGINAL));
        if let (Some(inner), Some(outer)) = (inner, &outer)
            && inner != outer
        {
            let message = format!("`{ORIGINAL}` is not that within `{}`", self.name);
            fields.refuse(ORIGINAL, Code::Value, message, "keep one of them");
        }
        let Some(value) = outer.as_ref().or(inner) else {
            return self.missing(fields, ORIGINAL) as u64;
        };
        match value.as_u64() {
            Some(original) if (1..=MOST).contains(&original) => original,
            Some(_) => {
                let expected = format!("from 1 to {MOST}");
                self.wrong(fields, ORIGINAL, (Code::Value, &expected)) as u64
            }
            None => {
                let expected = (Code::Type, "a whole number of at least 1");
                self.wrong(fields, ORIGINAL, expected) as u64
            }
        }
    }

    fn missing(&self, fields: &mut Fields<'_>, key: &str) -> f64 {
        let Self { name, kind, .. } = self;
        let message = format!("`{key}` is missing within `{name}`");
        let hint = format!("positions that are scaled as `{kind}` need it");
        fields.refuse(name, Code::Missing, message, &hint);
        HARMLESS
    }

    fn wrong(
        &self,
        fields: &mut Fields<'_>,
        key: &str,
        (code, expected): (Code, &str),
    ) -> f64 {
        let message = format!("`{key}` within `{}` must be {expected}", self.name);
        fields.refuse(self.name, code, message, "");
        HARMLESS
    }
}
