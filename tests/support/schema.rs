//! A validator for the part of JSON Schema that the schemas in `docs/` use; a keyword that it does
//! not know is refused, so that no schema promises what nobody checks.

use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Keywords that say something about values.
const CHECKED: [&str; 12] = [
    "$ref",
    "additionalProperties",
    "const",
    "enum",
    "items",
    "maximum",
    "minimum",
    "oneOf",
    "properties",
    "propertyNames",
    "required",
    "type",
];
/// Keywords that do not.
const SILENT: [&str; 4] = ["$defs", "$schema", "description", "title"];

/// Asserts that a document keeps `docs/NAME.schema.json`.
pub(crate) fn hold(name: &str, document: &Value) {
    let mistakes = mistakes(name, document);
    assert!(mistakes.is_empty(), "{}\n{document:#}", mistakes.join("\n"));
}

/// Everything that a document breaks of `docs/NAME.schema.json`.
pub(crate) fn mistakes(name: &str, document: &Value) -> Vec<String> {
    let text = fs::read_to_string(path(name)).expect("every document has a schema");
    let schema: Value = serde_json::from_str(&text).expect("a schema is JSON");
    Validator { root: &schema }.mistakes(&schema, document, name)
}

/// The schemas stand beside the workspace's crates, or in the root package itself.
fn path(name: &str) -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = format!("docs/{name}.schema.json");
    let own = package.join(&file);
    if own.exists() { own } else { package.join("..").join(file) }
}

struct Validator<'a> {
    root: &'a Value,
}

impl Validator<'_> {
    /// Everything that a value breaks; `path` is where it stands.
    fn mistakes(&self, schema: &Value, value: &Value, path: &str) -> Vec<String> {
        let Some(keywords) = schema.as_object() else {
            let refused = *schema == Value::Bool(false);
            return refused.then(|| format!("{path}: unknown")).into_iter().collect();
        };
        let each = keywords.iter().flat_map(|(keyword, law)| {
            assert!(
                CHECKED.contains(&&**keyword) || SILENT.contains(&&**keyword),
                "no test checks `{keyword}`"
            );
            self.breaks(schema, (keyword, law), value, path)
        });
        each.collect()
    }

    fn breaks(
        &self,
        schema: &Value,
        (keyword, law): (&str, &Value),
        value: &Value,
        path: &str,
    ) -> Vec<String> {
        let holds = match keyword {
            "$ref" => return self.mistakes(self.target(law), value, path),
            "items" => return self.items(law, value, path),
            "properties" => return self.properties(law, value, path),
            "additionalProperties" => return self.others(schema, law, value, path),
            "propertyNames" => return self.names(law, value, path),
            "oneOf" => return self.one_of(law, value, path),
            "const" => law == value,
            "enum" => law.as_array().is_some_and(|all| all.contains(value)),
            "type" => law.as_str().is_some_and(|name| is(value, name)),
            "minimum" => value.as_f64().is_none_or(|n| law.as_f64() <= Some(n)),
            "maximum" => value.as_f64().is_none_or(|n| law.as_f64() >= Some(n)),
            "required" => strings(law).all(|name| value.get(name).is_some()),
            _ => true,
        };
        let broken = (!holds).then(|| format!("{path}: {keyword} {law}: {value}"));
        broken.into_iter().collect()
    }

    fn target(&self, reference: &Value) -> &Value {
        let pointer = reference.as_str().unwrap_or("").trim_start_matches('#');
        self.root.pointer(pointer).expect("every reference of a schema resolves")
    }

    fn items(&self, law: &Value, value: &Value, path: &str) -> Vec<String> {
        let items = value.as_array().into_iter().flatten().enumerate();
        items
            .flat_map(|(k, item)| self.mistakes(law, item, &format!("{path}/{k}")))
            .collect()
    }

    fn properties(&self, law: &Value, value: &Value, path: &str) -> Vec<String> {
        let own = law.as_object().into_iter().flatten();
        let present = own.filter_map(|(name, law)| Some((name, law, value.get(name)?)));
        present
            .flat_map(|(name, law, item)| {
                self.mistakes(law, item, &format!("{path}/{name}"))
            })
            .collect()
    }

    fn others(
        &self,
        schema: &Value,
        law: &Value,
        value: &Value,
        path: &str,
    ) -> Vec<String> {
        let own = &schema["properties"];
        let others = value.as_object().into_iter().flatten();
        others
            .filter(|(name, _)| own.get(name.as_str()).is_none())
            .flat_map(|(name, item)| self.mistakes(law, item, &format!("{path}/{name}")))
            .collect()
    }

    fn names(&self, law: &Value, value: &Value, path: &str) -> Vec<String> {
        let names = value.as_object().into_iter().flatten().map(|(name, _)| name);
        names.flat_map(|name| self.mistakes(law, &name.as_str().into(), path)).collect()
    }

    fn one_of(&self, law: &Value, value: &Value, path: &str) -> Vec<String> {
        let choices = law.as_array().into_iter().flatten();
        let found: Vec<Vec<String>> =
            choices.map(|choice| self.mistakes(choice, value, path)).collect();
        match found.iter().filter(|mistakes| mistakes.is_empty()).count() {
            1 => Vec::new(),
            0 => found.concat(),
            more => vec![format!("{path}: {more} of the choices fit: {value}")],
        }
    }
}

fn strings(value: &Value) -> impl Iterator<Item = &str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str)
}

fn is(value: &Value, name: &str) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64(),
        "number" => value.is_number(),
        "null" => value.is_null(),
        other => panic!("no test checks the type {other}"),
    }
}
