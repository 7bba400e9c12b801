//! No value of any field ends in a panic, or in a program that says something else.

use super::{edited, fixture, imported};
use roundelay::ImportOptions;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// One release of every family.
const RELEASES: [&str; 15] = [
    "bert-base-uncased",
    "gemma-2-2b",
    "gemma-2b",
    "gemma-3-1b",
    "gpt2",
    "llama-3.2-1b",
    "mistral-7b-v0.1",
    "opt-125m",
    "phi-3-mini-4k",
    "pythia-160m",
    "qwen2-0.5b",
    "qwen3-0.6b",
    "roberta-base",
    "vit-base-patch16-224",
    "xlm-roberta-base",
];

fn values() -> Vec<Value> {
    vec![
        json!(0),
        json!(1),
        json!(3),
        json!(-7),
        json!(0.5),
        json!(1e300),
        json!(u64::MAX),
        json!(1 << 24),
        json!(true),
        json!("x"),
        json!([]),
        json!(["full_attention"]),
        json!({}),
        json!({"rope_type": "yarn"}),
    ]
}

/// What is refused has a place in the configuration; what is accepted is a program, whose text
/// the importer has parsed itself.
#[test]
fn any_value_of_any_field_is_accepted_or_refused() {
    let mut refused = BTreeSet::new();
    for release in RELEASES {
        let fields: Value = serde_json::from_str(&fixture(release)).expect("JSON");
        let names: Vec<&String> = fields.as_object().expect("an object").keys().collect();
        for name in names {
            for value in values() {
                let text = edited(release, &[(name, value.clone())]);
                let Err(wrong) = imported(&text, &ImportOptions::default()) else {
                    continue;
                };
                for said in wrong.iter() {
                    let which = format!("{release}: {name} = {value}: {said}");
                    assert_eq!(said.place.file, "config.json", "{which}");
                }
                refused.insert(name.clone());
            }
        }
    }
    for name in ["model_type", "hidden_size", "n_layer", "rope_scaling", "architectures"]
    {
        assert!(refused.contains(name), "{name} takes anything");
    }
}
