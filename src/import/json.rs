//! The fields of a JSON object with the places where their values stand.

use roundelay_dsl::{Code, Diagnostic, Severity, SourceFile, SourcePlace, Span, limit};
use roundelay_schedule::printable;
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::{Value, value::RawValue};
use std::fmt;

/// One field.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Field {
    /// Its name.
    pub(super) name: String,
    /// What it holds.
    pub(super) value: Value,
    /// Where that stands.
    pub(super) span: Span,
}

/// The fields of the object that a text is, in their order.
///
/// # Errors
/// Where the text is no JSON, no object, or too long.
pub(super) fn fields(source: &SourceFile) -> Result<Vec<Field>, Diagnostic> {
    if source.text.len() > limit::FILE_BYTES {
        let message = format!("a configuration has at most {} bytes", limit::FILE_BYTES);
        return Err(diagnostic(source, Code::Limit, Span::default(), message));
    }
    let raw: Raw<'_> =
        serde_json::from_str(&source.text).map_err(|error| malformed(source, &error))?;
    let field = |(name, raw): (String, &RawValue)| {
        let span = span(source, raw.get());
        let value = serde_json::from_str(raw.get());
        let value = value.map_err(|error| not_json(source, span, &error))?;
        Ok(Field { name, value, span })
    };
    raw.0.into_iter().map(field).collect()
}

/// The bytes that a part of the text takes.
fn span(source: &SourceFile, part: &str) -> Span {
    let start = part.as_ptr() as usize - source.text.as_ptr() as usize;
    let at = |place: usize| u32::try_from(place).unwrap_or(u32::MAX);
    Span { file: 0, start: at(start), end: at(start + part.len()) }
}

fn malformed(source: &SourceFile, error: &serde_json::Error) -> Diagnostic {
    let lines = source.text.split_inclusive('\n').take(error.line().saturating_sub(1));
    let before: usize = lines.map(str::len).sum();
    let start = u32::try_from(before + error.column().saturating_sub(1)).unwrap_or(0);
    let span = Span { file: 0, start, end: start };
    let mut wrong = not_json(source, span, error);
    if error.is_data() {
        wrong.message = format!("not a configuration: {}", told(error));
        wrong.hints.push("it is an object of fields: `{\"model_type\": …}`".to_owned());
    }
    wrong
}

fn not_json(source: &SourceFile, span: Span, error: &serde_json::Error) -> Diagnostic {
    diagnostic(source, Code::Syntax, span, format!("not JSON: {}", told(error)))
}

/// An error without its place.
fn told(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or(text.as_str(), |(text, _)| text).to_owned()
}

/// An error at a place of the configuration, whose names go into a program's comments too.
pub(super) fn diagnostic(
    source: &SourceFile,
    code: Code,
    span: Span,
    message: String,
) -> Diagnostic {
    let place = Box::new(SourcePlace::new(source, span));
    let message = printable(&message).into_owned();
    let (hints, labels) = (Vec::new(), Vec::new());
    Diagnostic { code, severity: Severity::Error, place, message, hints, labels }
}

/// An object whose values are texts still, with all fields of one name.
struct Raw<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Deserialize<'a> for Raw<'a> {
    fn deserialize<D: Deserializer<'a>>(from: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'a> Visitor<'a> for Fields {
            type Value = Raw<'a>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'a>>(
                self,
                mut map: A,
            ) -> Result<Raw<'a>, A::Error> {
                let mut all = Vec::new();
                while let Some(field) = map.next_entry()? {
                    all.push(field);
                }
                Ok(Raw(all))
            }
        }
        from.deserialize_map(Fields)
    }
}
