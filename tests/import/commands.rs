//! The command as a user meets it.

use super::{
    fixture,
    published::{cases, references, stored, write_file},
    support::{Scratch, document, ended, printed, refused, roundelay, schema},
};
use serde_json::Value;
use std::{fs, path::PathBuf};

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

/// A small GPT-2 and weights of it, with one array that it has no parameter for.
fn published(scratch: &Scratch) -> [PathBuf; 2] {
    let (name, config) = cases().swap_remove(0);
    let mut arrays = references().remove(name).expect("it has one").arrays;
    arrays.insert("score.weight".to_owned(), vec![3]);
    let weights = scratch.path("model.safetensors");
    write_file(&weights, &arrays, false);
    [scratch.file("config.json", &config), weights]
}

#[test]
fn published_weights_are_trained_and_go_back() {
    let scratch = Scratch::new("import-weights");
    let [config, theirs] = published(&scratch);
    let [program, ours, trained, back] =
        ["gpt2.rdl", "ours", "trained", "back"].map(|name| scratch.path(name));
    let mut import = roundelay("import --batch 4 --dtype f32");
    import.arg(&config).arg("-o").arg(&program).arg("--weights").arg(&theirs);
    let told = ended(import.arg("--save").arg(&ours));
    assert_eq!(told.code, 0, "{told:?}");
    let words = ["are left out, because the model has no parameter", "\n  score.weight"];
    assert!(words.iter().all(|word| told.err.contains(word)), "{told:?}");
    let said = document(&mut import, "import");
    assert_eq!(said["weights"]["left_out"], serde_json::json!(["score.weight"]));
    let mut export = roundelay("export");
    export.arg(&config).arg("--weights").arg(&ours).arg("-o").arg(&back);
    assert_eq!(document(&mut export, "export")["arrays"], 28);
    let mut expected = stored(&theirs);
    expected.remove("score.weight");
    assert_eq!(stored(&back), expected);
    let rule = "run --device cpu --steps 2 --set placement=accumulate --set replicas=1 --set \
                micro_batches=1 --set stages=1";
    let mut run = roundelay(rule);
    run.arg(&program).arg("--weights").arg(&ours).arg("--save").arg(&trained);
    printed(&mut run);
    let mut export = roundelay("export");
    printed(export.arg(&config).arg("--weights").arg(&trained).arg("-o").arg(&back));
    let found = stored(&back);
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    assert_ne!(found, expected);
}

/// A head for other classes begins as it is drawn, where that is asked for.
#[test]
fn a_head_of_its_own_is_drawn() {
    let scratch = Scratch::new("import-head");
    let (name, config) =
        cases().into_iter().find(|(name, _)| *name == "vit").expect("it is one");
    let arrays = references().remove(name).expect("it has one").arrays;
    let theirs = scratch.path("model.safetensors");
    write_file(&theirs, &arrays, false);
    let mut config: Value = serde_json::from_str(&config).expect("JSON");
    config["id2label"] = serde_json::json!({"0": "cat", "1": "dog"});
    let config = scratch.file("config.json", &config.to_string());
    let [program, ours] = ["vit.rdl", "ours"].map(|name| scratch.path(name));
    let import = |fresh: &str| {
        let mut command = roundelay(&format!("import --batch 4 --dtype f32{fresh}"));
        command.arg(&config).arg("-o").arg(&program).arg("--weights").arg(&theirs);
        command.arg("--save").arg(&ours);
        command
    };
    let words =
        ["`classifier.weight` has shape [3, 16]", "wants [2, 16]", "--fresh logits"];
    refused(&mut import(""), 1, &words);
    assert!(!program.exists());
    let words = ["no parameter lies in `logit`", "nearest is `logits`"];
    refused(&mut import(" --fresh logit"), 2, &words);
    printed(&mut import(" --fresh logits"));
    let rule = "--device cpu --steps 1 --set placement=accumulate --set replicas=1 --set \
                micro_batches=1 --set stages=1";
    let run = |fresh: &str| {
        let mut command = roundelay(&format!("run {rule}{fresh}"));
        command.arg(&program).arg("--weights").arg(&ours);
        command
    };
    refused(&mut run(""), 1, &["`logits.weight` is missing"]);
    refused(&mut run(" --fresh logits --fresh x"), 1, &["no parameter lies in `x`"]);
    printed(&mut run(" --fresh logits"));
}

/// What a model trains in changes no name, and an export has no option to say it.
#[test]
fn configurations_that_say_no_type_are_exported() {
    let scratch = Scratch::new("import-typeless");
    let [config, theirs] = published(&scratch);
    let text = fs::read_to_string(&config).expect("it is text");
    let mut fields: Value = serde_json::from_str(&text).expect("JSON");
    fields["torch_dtype"] = "auto".into();
    let config = scratch.file("config.json", &fields.to_string());
    let [program, ours, back] =
        ["gpt2.rdl", "ours", "back"].map(|name| scratch.path(name));
    let mut import = roundelay("import --dtype f32");
    import.arg(&config).arg("-o").arg(&program).arg("--weights").arg(&theirs);
    printed(import.arg("--save").arg(&ours));
    let mut export = roundelay("export");
    printed(export.arg(&config).arg("--weights").arg(&ours).arg("-o").arg(&back));
    assert_eq!(stored(&back).len(), 28);
}

#[test]
fn outputs_of_an_import_are_none_of_its_files() {
    let scratch = Scratch::new("import-outputs");
    let [config, theirs] = published(&scratch);
    let program = scratch.path("gpt2.rdl");
    let import = |program: &PathBuf, save: &PathBuf| {
        let mut command = roundelay("import");
        command.arg(&config).arg("-o").arg(program).arg("--weights").arg(&theirs);
        command.arg("--save").arg(save);
        command
    };
    let before = fs::read(&theirs).expect("it is there");
    let link = scratch.path("link");
    std::os::unix::fs::symlink(&program, &link).expect("a link is made");
    for (program, save, words) in [
        (&program, &theirs, "is an input, and would be written over"),
        (&theirs, &program, "is an input, and would be written over"),
        (&program, &config, "is an input, and would be written over"),
        (&program, &program, "are two files"),
        (&program, &scratch.path("./").join("./gpt2.rdl"), "are two files"),
        (&program, &link, "are two files"),
    ] {
        refused(&mut import(program, save), 2, &[words]);
    }
    assert_eq!(fs::read(&theirs).expect("it is there"), before);
    assert!(!program.exists());
    let mut export = roundelay("export");
    export.arg(&config).arg("--weights").arg(&theirs).arg("-o").arg(&theirs);
    refused(&mut export, 2, &["is an input, and would be written over"]);
}
