//! The YAML of all files: without anchors, merge keys and tags of one's own, limited in nesting and size.
//! What does not read is told in words for whoever wrote the file.

use crate::near::did_you_mean;
use serde::de::DeserializeOwned;
use serde_saphyr::{
    Error, MessageFormatter, Options, UserMessageFormatter, budget::BudgetBreach,
};
use std::fmt;

/// Deepest nesting of a value.
const NESTING_MAX: usize = 32;

/// A place where a text is not the value that is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct YamlError {
    /// Line, counted from one.
    pub line: usize,
    /// Column in characters, counted from one.
    pub column: usize,
    /// What is wrong there.
    pub fault: YamlFault,
}

/// What is wrong with a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum YamlFault {
    /// A field is not there.
    Missing(&'static str),
    /// A field or a variant has a name that is not known.
    Unknown {
        /// The name.
        name: String,
        /// What it is and which there are, as a sentence without full stop.
        message: String,
        /// What would help, where that can be told.
        hint: Option<String>,
    },
    /// A value is no number of its type.
    Number(String),
    /// Anything else, as a sentence without full stop.
    Other(String),
}

/// Reads a value; it may be as large as any that is written.
///
/// # Errors
/// The first place where the text is no such value.
pub fn read_yaml<T: DeserializeOwned>(text: &str) -> Result<T, YamlError> {
    serde_saphyr::from_str_with_options(text, options()).map_err(|error| {
        let [line, column] = error.location().map_or([1, 1], |place| {
            [place.line(), place.column()]
                .map(|number| usize::try_from(number).unwrap_or(1).max(1))
        });
        YamlError { line, column, fault: fault(error.without_snippet()) }
    })
}

fn options() -> Options {
    serde_saphyr::options! {
        with_snippet: false,
        emit_comments: false,
        merge_keys: serde_saphyr::MergeKeyPolicy::Error,
        reject_unsupported_tags: true,
        non_finite_float_policy: serde_saphyr::NonFiniteFloatPolicy::PassThrough,
        budget: serde_saphyr::budget! {
            max_aliases: 0,
            max_anchors: 0,
            max_merge_keys: 0,
            max_depth: NESTING_MAX,
            flow_nesting_limit: NESTING_MAX,
            max_nodes: 8 << 20,
            max_events: 32 << 20,
        },
    }
}

fn fault(error: &Error) -> YamlFault {
    match error {
        Error::SerdeMissingField { field, .. } => YamlFault::Missing(field),
        Error::SerdeUnknownField { field: name, expected, .. }
        | Error::SerdeUnknownVariant { variant: name, expected, .. } => {
            YamlFault::Unknown {
                name: name.clone(),
                message: told(error),
                hint: did_you_mean(name, expected),
            }
        }
        Error::InvalidScalar { ty, .. } if ty.starts_with(['i', 'u']) => {
            YamlFault::Number(format!("expected {}", called(ty)))
        }
        other => YamlFault::Other(told(other)),
    }
}

fn told(error: &Error) -> String {
    match error {
        Error::DuplicateMappingKey { key, .. } => {
            let key = key.as_deref().unwrap_or("?");
            format!("the key `{key}` stands here twice")
        }
        Error::InvalidScalar { ty: expected, .. }
        | Error::Unexpected { expected, .. } => format!("expected {}", called(expected)),
        Error::NullIntoString { .. } => "expected a text, found nothing".to_owned(),
        Error::Budget { breach, .. } => breached(breach).to_owned(),
        other => UserMessageFormatter.format_message(other).into_owned(),
    }
}

fn breached(breach: &BudgetBreach) -> &'static str {
    match breach {
        BudgetBreach::Anchors { .. } | BudgetBreach::Aliases { .. } => {
            "anchors and aliases may not stand here"
        }
        BudgetBreach::Depth { .. } => {
            "this is nested deeper than any value of such a file"
        }
        _ => "this holds more than any such file, or other things",
    }
}

/// What the library calls so, where no program is read.
fn called(expected: &str) -> &str {
    match expected {
        "u8" => "a whole number below 2^8",
        "u16" => "a whole number below 2^16",
        "u32" => "a whole number below 2^32",
        "u64" => "a whole number below 2^64",
        "i8" | "i16" | "i32" | "i64" => "a whole number",
        "f32" | "f64" | "floating point" => "a number",
        "bool" | "boolean" => "`true` or `false`",
        "mapping start" => "names with their values, like `name: value`",
        "sequence start" => "a list",
        "string scalar" => "a text",
        other => other,
    }
}

impl YamlFault {
    /// What would help, where that can be told.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Unknown { hint, .. } => hint.as_deref(),
            Self::Number(_) => Some("write digits alone"),
            Self::Missing(_) | Self::Other(_) => None,
        }
    }

    /// With the hint behind it, for whoever has no place of its own for one.
    pub fn hinted(&self) -> String {
        match self.hint() {
            Some(hint) => format!("{self}; {hint}"),
            None => self.to_string(),
        }
    }
}

impl fmt::Display for YamlFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(field) => write!(f, "missing field `{field}`"),
            Self::Unknown { message, .. }
            | Self::Number(message)
            | Self::Other(message) => f.write_str(message),
        }
    }
}
