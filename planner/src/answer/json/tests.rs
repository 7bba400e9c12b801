//! The document against its schema in `docs/`, and the validator against wrong documents.

#[path = "../../../../tests/support/schema.rs"]
mod schema;

use super::document;
use crate::{Options, plan, sample};
use schema::mistakes;
use serde_json::{Value, json};

/// The document of a sample that fits.
fn sample_document(devices: usize, batch: u32) -> Value {
    let program = sample::program(devices, batch);
    match plan(&program, &Options::default()) {
        Ok(ranking) => serde_json::to_value(document(&ranking, &program)).unwrap(),
        Err(refusal) => panic!("{refusal}"),
    }
}

#[test]
fn the_document_keeps_its_schema() {
    let document = sample_document(2, 4);
    schema::hold("plan", &document);
    assert!(!document["weaker"].as_array().unwrap().is_empty());
}

/// Programs that read documents are told what a person reads below the table.
#[test]
fn notes_stand_in_the_document() {
    let program = sample::program(2, 4);
    let ranking = plan(&program, &Options::default()).expect("it fits");
    let notes = crate::remarks(&ranking, &program);
    assert!(!notes.is_empty());
    let document = document(&ranking, &program).with_notes(notes.clone());
    let document = serde_json::to_value(document).unwrap();
    schema::hold("plan", &document);
    assert_eq!(document["notes"], json!(notes));
}

#[test]
fn the_validator_sees_what_is_wrong() {
    let good = sample_document(1, 2);
    let wrong = |pointer: &str, value: Value| {
        let mut bad = good.clone();
        *bad.pointer_mut(pointer).unwrap() = value;
        mistakes("plan", &bad).len()
    };
    assert_eq!(wrong("/format", Value::from(2)), 1);
    assert_eq!(wrong("/plans/0/rank", Value::from("one")), 1);
    assert_eq!(wrong("/plans/0/placement", Value::from("elsewhere")), 1);
    assert_eq!(wrong("/plans/0/tensor", json!({"rows": 0})), 2);
    assert_eq!(wrong("/plans/0/tensor", json!({"rows": 1, "more": 1})), 2);
}
