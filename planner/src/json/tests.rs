//! The document against its schema in `docs/`: a validator for the part of JSON Schema that the
//! schema uses.

use super::document;
use crate::{Options, plan, sample};
use serde_json::Value;

const SCHEMA: &str = include_str!("../../../docs/plan.schema.json");

/// Everything that a value breaks; `path` is where it stands.
fn mistakes(schema: &Value, root: &Value, value: &Value, path: &str) -> Vec<String> {
    if let Some(reference) = schema["$ref"].as_str() {
        let target = root.pointer(reference.trim_start_matches('#'));
        return mistakes(target.expect("the reference resolves"), root, value, path);
    }
    let mut found = Vec::new();
    let mut expect = |holds: bool, what: &str| {
        if !holds {
            found.push(format!("{path}: {what}: {value}"));
        }
    };
    expect(schema["const"].is_null() || schema["const"] == *value, "const");
    expect(schema["enum"].as_array().is_none_or(|all| all.contains(value)), "enum");
    expect(schema["type"].as_str().is_none_or(|name| is(value, name)), "type");
    let (least, most) = (schema["minimum"].as_f64(), schema["maximum"].as_f64());
    let number = value.as_f64();
    expect(number.is_none_or(|n| least.is_none_or(|least| least <= n)), "minimum");
    expect(number.is_none_or(|n| most.is_none_or(|most| n <= most)), "maximum");
    for name in schema["required"].as_array().into_iter().flatten() {
        expect(value.get(name.as_str().unwrap()).is_some(), "required");
    }
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        found.extend(mistakes(&schema["items"], root, item, &format!("{path}/{index}")));
    }
    for (name, item) in value.as_object().into_iter().flatten() {
        let path = format!("{path}/{name}");
        match (&schema["properties"][name], &schema["additionalProperties"]) {
            (Value::Null, Value::Bool(false)) => found.push(format!("{path}: unknown")),
            (Value::Null, others) => found.extend(mistakes(others, root, item, &path)),
            (own, _) => found.extend(mistakes(own, root, item, &path)),
        }
    }
    found
}

fn is(value: &Value, name: &str) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64(),
        "number" => value.is_number(),
        other => panic!("the schema uses no type {other}"),
    }
}

#[test]
fn the_document_keeps_its_schema() {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let Ok(ranking) = plan(&sample::program(2, 4), &Options::default()) else {
        panic!("the sample fits")
    };
    let value = serde_json::to_value(document(&ranking)).unwrap();
    assert_eq!(mistakes(&schema, &schema, &value, ""), Vec::<String>::new());
    assert!(!value["weaker"].as_array().unwrap().is_empty());
}

#[test]
fn the_validator_sees_what_is_wrong() {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let Ok(ranking) = plan(&sample::program(1, 2), &Options::default()) else {
        panic!("the sample fits")
    };
    let good = serde_json::to_value(document(&ranking)).unwrap();
    let wrong = |pointer: &str, value: Value| {
        let mut bad = good.clone();
        *bad.pointer_mut(pointer).unwrap() = value;
        mistakes(&schema, &schema, &bad, "").len()
    };
    assert_eq!(wrong("/format", Value::from(2)), 1);
    assert_eq!(wrong("/plans/0/rank", Value::from("one")), 1);
    assert_eq!(wrong("/plans/0/placement", Value::from("elsewhere")), 1);
    assert_eq!(wrong("/plans/0/tensor", serde_json::json!({"rows": 0})), 3);
}
