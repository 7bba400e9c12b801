//! The command as a user meets it.

use super::{
    fixture,
    support::{Scratch, document, ended, printed, roundelay, schema},
};
use serde_json::Value;
use std::fs;

#[test]
fn an_imported_model_is_planned_right_away() {
    let scratch = Scratch::new("import");
    let config = scratch.file("config.json", &fixture("llama-3-8b"));
    let program = scratch.path("llama.rdl");
    let mut command = roundelay("import --seq 512");
    let said = document(command.arg(&config).arg("-o").arg(&program), "import");
    assert_eq!(said["family"], "llama");
    assert_eq!(said["parameters"], 8_030_261_248_u64);
    assert_eq!(said["warnings"], Value::Array(vec![]));
    let text = fs::read_to_string(&program).expect("it is written");
    assert!(
        text.starts_with("# llama: 8,030,261,248 parameters, imported from config.json")
    );
    assert_eq!(ended(roundelay("fmt --check").arg(&program)).code, 0);
    let planned = printed(roundelay("plan --top 1").arg(&program));
    assert!(planned.contains("sync"), "{planned}");
}

#[test]
fn warnings_go_to_standard_error_and_into_the_document() {
    let scratch = Scratch::new("import-warnings");
    let config = scratch.file("config.json", &fixture("gpt2"));
    let program = scratch.path("gpt2.rdl");
    let mut command = roundelay("import");
    let done = ended(command.arg(&config).arg("-o").arg(&program));
    assert_eq!((done.code, done.out.lines().count()), (0, 1), "{done:?}");
    assert!(done.err.contains("warning") && done.err.contains("attn_pdrop"), "{done:?}");
    let said = document(&mut command, "import");
    assert_eq!(said["warnings"][0]["line"], 4);
}

#[test]
fn what_is_refused_ends_with_one_and_its_diagnostics() {
    let scratch = Scratch::new("import-refused");
    let program = scratch.path("never.rdl");
    for (text, line, column, expected) in [
        ("{\n  \"model_type\": \"llama\",\n}", 3, 1, "not JSON"),
        ("{\n  \"model_type\": \"mixtral\"\n}", 2, 17, "mixture of experts"),
        (
            "{\n  \"model_type\": \"llama\",\n  \"vocab_size\": \"x\"\n}",
            3,
            17,
            "vocab_size",
        ),
    ] {
        let config = scratch.file("config.json", text);
        let mut command = roundelay("import --json");
        let done = ended(command.arg(&config).arg("-o").arg(&program));
        assert_eq!(done.code, 1, "{done:?}");
        let said: Value = serde_json::from_str(&done.out).expect("a document");
        schema::hold("diagnostics", &said);
        let first = &said["diagnostics"][0];
        assert_eq!((&first["line"], &first["column"]), (&line.into(), &column.into()));
        assert!(
            first["message"].as_str().is_some_and(|m| m.contains(expected)),
            "{first}"
        );
        assert!(done.err.contains(expected), "{done:?}");
        assert!(!program.exists());
    }
    let absent = ended(roundelay("import absent.json -o").arg(&program));
    assert_eq!(absent.code, 1, "{absent:?}");
    assert_eq!(ended(roundelay("import --seq 0 a.json -o b.rdl").arg("")).code, 2);
}
