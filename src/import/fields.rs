//! What a configuration says: fields by name and type, each marked as read, every mistake kept.

use super::{
    inert::{Standing, standing},
    json::{Field, diagnostic},
};
use roundelay_dsl::{Code, Diagnostic, Severity, SourceFile, Span};
use roundelay_schedule::nearest_hint;
use serde_json::Value;
use std::collections::BTreeSet;

/// The fields of one configuration. A mistake is noted and a harmless value given, so that all
/// mistakes are found at once; nothing is made of a configuration with mistakes.
pub(super) struct Fields<'a> {
    source: &'a SourceFile,
    fields: Vec<Field>,
    read: BTreeSet<String>,
    mistakes: Vec<Diagnostic>,
    warnings: Vec<Diagnostic>,
}

/// Whether there is a value.
enum Found {
    /// The field is not there.
    Absent,
    /// The field is `null`.
    Null,
    /// It is.
    Value(Value),
}

/// The largest whole number that a field may be; products of two fit into 64 bits.
const LARGEST: u64 = 1 << 24;

/// The most layers.
const LAYERS: u64 = 4096;

/// The value that stands for one that is wrong.
const HARMLESS: u64 = 1;

impl<'a> Fields<'a> {
    pub(super) fn new(source: &'a SourceFile, fields: Vec<Field>) -> Self {
        let mut this = Self {
            source,
            fields,
            read: BTreeSet::new(),
            mistakes: Vec::new(),
            warnings: Vec::new(),
        };
        this.refuse_twice();
        this
    }

    fn refuse_twice(&mut self) {
        let mut seen = BTreeSet::new();
        let fields = self.fields.iter();
        let twice: Vec<(String, Span)> = fields
            .filter(|field| !seen.insert(&field.name))
            .map(|field| (field.name.clone(), field.span))
            .collect();
        for (name, span) in twice {
            let message = format!("the field `{name}` appears twice");
            self.note(span, Code::Duplicate, message, "keep one of them");
        }
    }

    /// Where a field stands; the begin of the file where it does not.
    fn span(&self, name: &str) -> Span {
        let field = self.fields.iter().find(|field| field.name == name);
        field.map_or(Span::default(), |field| field.span)
    }

    /// Notes a mistake.
    pub(super) fn refuse(&mut self, name: &str, code: Code, message: String, hint: &str) {
        self.note(self.span(name), code, message, hint);
    }

    fn note(&mut self, span: Span, code: Code, message: String, hint: &str) {
        let mut wrong = diagnostic(self.source, code, span, message);
        if !hint.is_empty() {
            wrong.hints.push(hint.to_owned());
        }
        self.mistakes.push(wrong);
    }

    /// Notes what is different from what a field says, without changing the model.
    pub(super) fn warn(&mut self, name: &str, message: String) {
        let span = self.span(name);
        let said = diagnostic(self.source, Code::Unused, span, message);
        self.warnings.push(Diagnostic { severity: Severity::Warning, ..said });
    }

    /// Whether nothing is wrong so far; sizes that are compared are right then.
    pub(super) fn is_clean(&self) -> bool {
        self.mistakes.is_empty()
    }

    fn find(&mut self, name: &str) -> Found {
        self.read.insert(name.to_owned());
        match self.fields.iter().find(|field| field.name == name) {
            None => Found::Absent,
            Some(Field { value: Value::Null, .. }) => Found::Null,
            Some(field) => Found::Value(field.value.clone()),
        }
    }

    /// Whether a field is there and not null.
    pub(super) fn has(&mut self, name: &str) -> bool {
        matches!(self.find(name), Found::Value(_))
    }

    /// A value of any type; none where it is absent or null.
    pub(super) fn value(&mut self, name: &str) -> Option<Value> {
        match self.find(name) {
            Found::Absent | Found::Null => None,
            Found::Value(value) => Some(value),
        }
    }

    /// A size with a default.
    pub(super) fn size_or(&mut self, name: &str, default: u64) -> u64 {
        match self.find(name) {
            Found::Absent => default,
            Found::Null => self.wrong_size(name, &Value::Null),
            Found::Value(value) => self.as_size(name, &value),
        }
    }

    /// A number of layers with a default.
    pub(super) fn layers(&mut self, name: &str, default: u64) -> u64 {
        let layers = self.size_or(name, default);
        if layers <= LAYERS {
            return layers;
        }
        let message = format!("`{name}` is {layers}, but a model has at most {LAYERS}");
        self.refuse(name, Code::Limit, message, "");
        HARMLESS
    }

    /// A size that `null` leaves open; `default` where it is absent.
    pub(super) fn open_size(&mut self, name: &str, default: Option<u64>) -> Option<u64> {
        match self.find(name) {
            Found::Absent => default,
            Found::Null => None,
            Found::Value(value) => Some(self.as_size(name, &value)),
        }
    }

    /// A size of zero or more with a default.
    pub(super) fn whole_or(&mut self, name: &str, default: u64) -> u64 {
        match self.find(name) {
            Found::Value(Value::Number(number)) if number.as_u64() == Some(0) => 0,
            Found::Value(value) => self.as_size(name, &value),
            Found::Null => self.wrong_size(name, &Value::Null),
            Found::Absent => default,
        }
    }

    fn as_size(&mut self, name: &str, value: &Value) -> u64 {
        match value.as_u64() {
            Some(0) | None => self.wrong_size(name, value),
            Some(size) if size <= LARGEST => size,
            Some(size) => {
                let message =
                    format!("`{name}` is {size}, but at most {LARGEST} is read");
                self.refuse(name, Code::Limit, message, "");
                HARMLESS
            }
        }
    }

    fn wrong_size(&mut self, name: &str, value: &Value) -> u64 {
        self.wrong_type(name, "a whole number of at least 1", value);
        HARMLESS
    }

    fn wrong_type(&mut self, name: &str, expected: &str, found: &Value) {
        let message = format!("`{name}` must be {expected}, found {}", shown(found));
        self.refuse(name, Code::Type, message, "");
    }

    /// A real number with a default.
    pub(super) fn real_or(&mut self, name: &str, default: f64) -> f64 {
        self.open_real(name, Some(default)).unwrap_or(default)
    }

    /// A real number that `null` leaves open; `default` where it is absent.
    pub(super) fn open_real(&mut self, name: &str, default: Option<f64>) -> Option<f64> {
        match self.find(name) {
            Found::Absent => default,
            Found::Null => None,
            Found::Value(value) => match value.as_f64() {
                Some(number) => Some(number),
                None => {
                    self.wrong_type(name, "a number", &value);
                    default
                }
            },
        }
    }

    /// A number above zero with a default.
    pub(super) fn above_zero(&mut self, name: &str, default: f64) -> f64 {
        let number = self.real_or(name, default);
        if number > 0.0 {
            return number;
        }
        let message = format!("`{name}` must be above 0, found {number}");
        self.refuse(name, Code::Value, message, "");
        default
    }

    /// The ε of norms with a default; it is small against what they normalise.
    pub(super) fn epsilon(&mut self, name: &str, default: f64) -> f64 {
        let epsilon = self.above_zero(name, default);
        if epsilon < 1.0 {
            return epsilon;
        }
        let message = format!("`{name}` must be below 1, found {epsilon}");
        self.refuse(name, Code::Value, message, "");
        default
    }

    /// The probability of a dropout, with a default.
    pub(super) fn rate(&mut self, name: &str, default: f64) -> f64 {
        let rate = self.real_or(name, default);
        if (0.0..1.0).contains(&rate) {
            return rate;
        }
        let message = format!("`{name}` must be at least 0 and below 1, found {rate}");
        self.refuse(name, Code::Value, message, "");
        0.0
    }

    /// A truth value with a default.
    pub(super) fn truth_or(&mut self, name: &str, default: bool) -> bool {
        match self.find(name) {
            Found::Absent => default,
            Found::Value(Value::Bool(truth)) => truth,
            Found::Null => {
                self.wrong_type(name, "true or false", &Value::Null);
                default
            }
            Found::Value(value) => {
                self.wrong_type(name, "true or false", &value);
                default
            }
        }
    }

    /// A text; none where it is absent or null.
    pub(super) fn text(&mut self, name: &str) -> Option<String> {
        match self.value(name)? {
            Value::String(text) => Some(text),
            value => {
                self.wrong_type(name, "a text", &value);
                None
            }
        }
    }

    /// Texts; none where they are absent or null.
    pub(super) fn texts(&mut self, name: &str) -> Option<Vec<String>> {
        let value = self.value(name)?;
        let texts = value.as_array().and_then(|items| {
            let text = |item: &Value| item.as_str().map(str::to_owned);
            items.iter().map(text).collect::<Option<Vec<String>>>()
        });
        if texts.is_none() {
            self.wrong_type(name, "a list of texts", &value);
        }
        texts
    }

    /// A field that can only be what the importer can say.
    pub(super) fn only(&mut self, name: &str, expected: &Value, why: &str) {
        if let Found::Value(value) = self.find(name)
            && !same(&value, expected)
        {
            let message =
                format!("`{name}` is {}, which cannot be imported", shown(&value));
            self.refuse(name, Code::NotYet, message, why);
        }
    }

    /// Holds every field to have been read, or to be known to change nothing.
    fn account(&mut self, ignored: &[String]) {
        let unread = self.fields.iter().filter(|field| !self.read.contains(&field.name));
        let unread: Vec<Field> = unread.cloned().collect();
        for Field { name, value, .. } in unread {
            match standing(&name) {
                Standing::Inert => {}
                _ if value.is_null() => {}
                Standing::Only(expected, _) if same(&value, &expected) => {}
                Standing::Only(_, why) => {
                    let found = shown(&value);
                    let message =
                        format!("`{name}` is {found}, which cannot be imported");
                    self.refuse(&name, Code::NotYet, message, why);
                }
                Standing::Unknown if ignored.contains(&name) => {
                    self.warn(&name, format!("`{name}` is left out, as was asked for"));
                }
                Standing::Unknown => self.refuse_unknown(&name),
            }
        }
        ignored.iter().for_each(|name| self.hold_ignored(name));
    }

    /// Holds a field that is to be ignored to be one that can be.
    fn hold_ignored(&mut self, name: &str) {
        if !self.fields.iter().any(|field| field.name == name) {
            return self.refuse_ignored(name);
        }
        if self.read.contains(name) {
            let message = format!("`{name}` is read, so it cannot be ignored");
            let hint = format!("drop `--ignore {name}`");
            return self.refuse(name, Code::Value, message, &hint);
        }
        match standing(name) {
            Standing::Inert | Standing::Only(..) => {
                let why = "changes nothing in training, so there is nothing to ignore";
                self.warn(name, format!("`{name}` {why}"));
            }
            Standing::Unknown => {}
        }
    }

    /// There is no such field: the option is to blame, and no place of the configuration.
    fn refuse_ignored(&mut self, name: &str) {
        let option = SourceFile::new("--ignore", name);
        let span = Span {
            end: u32::try_from(name.len()).unwrap_or(u32::MAX),
            ..Span::default()
        };
        let known = nearest_hint(name, self.fields.iter().map(|own| own.name.as_str()));
        let message = format!("there is no field `{name}` to ignore{known}");
        self.mistakes.push(diagnostic(&option, Code::UnknownKey, span, message));
    }

    fn refuse_unknown(&mut self, name: &str) {
        let alias = ALIASES.iter().find_map(|pair| other(pair, name));
        let alias = alias.filter(|alias| self.read.contains(*alias));
        let name_of = alias.map_or_else(|| spelled_out(name), str::to_owned);
        let is_there = |known: &&str| self.fields.iter().any(|own| own.name == **known);
        let read = || self.read.iter().map(String::as_str);
        let absent = nearest_hint(&name_of, read().filter(|known| !is_there(known)));
        let known = nearest_hint(&name_of, read());
        let message = format!("unknown field `{name}`{known}");
        // One that is meant for another is no field to ignore.
        let hint = match known == absent && !absent.is_empty() {
            true => {
                "this family reads that one, and it is missing; give the field its name"
                    .to_owned()
            }
            false => format!(
                "if it changes nothing in training, say `--ignore {name}` or take it out"
            ),
        };
        self.refuse(name, Code::UnknownKey, message, &hint);
    }

    /// All warnings, unless something is wrong.
    ///
    /// # Errors
    /// All mistakes, in the order of the file.
    pub(super) fn finish(
        mut self,
        ignored: &[String],
    ) -> Result<Vec<Diagnostic>, Vec<Diagnostic>> {
        self.account(ignored);
        let place = |said: &Diagnostic| (said.place.line, said.place.column);
        self.mistakes.sort_by_key(place);
        self.warnings.sort_by_key(place);
        if self.mistakes.is_empty() { Ok(self.warnings) } else { Err(self.mistakes) }
    }

    /// All mistakes so far with one more.
    pub(super) fn refused(
        mut self,
        name: &str,
        code: Code,
        message: String,
        hint: &str,
    ) -> Vec<Diagnostic> {
        self.refuse(name, code, message, hint);
        self.mistakes
    }
}

/// Names of one field in different families; transformers takes either where it reads one.
const ALIASES: [[&str; 2]; 5] = [
    ["n_layer", "num_hidden_layers"],
    ["n_embd", "hidden_size"],
    ["n_head", "num_attention_heads"],
    ["n_positions", "max_position_embeddings"],
    ["n_inner", "intermediate_size"],
];

/// The other name of a pair.
fn other(pair: &[&'static str; 2], name: &str) -> Option<&'static str> {
    match pair {
        [one, other] if *one == name => Some(other),
        [one, other] if *other == name => Some(one),
        _ => None,
    }
}

/// A name with the words that some write short as this family may write them.
fn spelled_out(name: &str) -> String {
    let word = |word| match word {
        "kv" => "key_value",
        "n" => "num",
        "eps" => "epsilon",
        "ffn" => "intermediate",
        "dim" => "size",
        other => other,
    };
    name.split('_').map(word).collect::<Vec<_>>().join("_")
}

/// Whether two values are the same; 0 and 0.0 are.
fn same(one: &Value, other: &Value) -> bool {
    match (one.as_f64(), other.as_f64()) {
        (Some(one), Some(other)) => one == other,
        _ => one == other,
    }
}

/// A value in a message.
fn shown(value: &Value) -> String {
    const LONGEST: usize = 40;
    let text = value.to_string();
    match text.chars().count() > LONGEST {
        true => format!("{}…", text.chars().take(LONGEST).collect::<String>()),
        false => text,
    }
}
