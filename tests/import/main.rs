//! Models of published configurations: their parameters, their text, their gradients, and what is
//! refused.

mod clusters;
mod commands;
mod counts;
mod encoders;
mod mutations;
mod options;
mod published;
mod refusals;
mod small;
#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod support;
mod training;

use roundelay::{Diagnostics, ImportOptions, Imported, SourceFile};
use serde_json::Value;
use std::fs;

/// The text of a checked-in configuration.
fn fixture(name: &str) -> String {
    let folder = support::root().join("tests/fixtures/huggingface");
    fs::read_to_string(folder.join(format!("{name}.json"))).expect("the fixture is text")
}

/// A configuration with fields that are set, or removed where they are null.
fn edited(name: &str, edits: &[(&str, Value)]) -> String {
    let mut value: Value =
        serde_json::from_str(&fixture(name)).expect("fixtures are JSON");
    let fields = value.as_object_mut().expect("fixtures are objects");
    for (name, value) in edits {
        match value {
            Value::Null => drop(fields.remove(*name)),
            value => drop(fields.insert((*name).to_owned(), value.clone())),
        }
    }
    serde_json::to_string_pretty(&value).expect("JSON is text")
}

/// Imports a text as it stands.
fn imported(text: &str, options: &ImportOptions) -> Result<Imported, Diagnostics> {
    roundelay::import(&SourceFile::new("config.json", text), options)
}

/// Imports what must be right.
fn accepted(text: &str) -> Imported {
    imported(text, &ImportOptions::default()).unwrap_or_else(|wrong| panic!("{wrong}"))
}
