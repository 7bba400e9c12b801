//! Options of an import: what they change, and what is said where they do not go with a configuration.

use super::{edited, fixture, imported};
use roundelay::{Diagnostic, ImportDtype, ImportOptions};
use serde_json::json;

#[test]
fn an_unknown_field_can_be_ignored_and_is_said_to_be() {
    let text = edited("gpt2", &[("house_style", json!("x"))]);
    let ignored = vec!["house_style".to_owned()];
    let options = ImportOptions { ignored, ..ImportOptions::default() };
    let done = imported(&text, &options).expect("it is asked for");
    assert!(done.warnings.iter().any(|said| said.message.contains("house_style")));
    assert!(done.text.contains("`house_style` is left out"));
}

/// The configuration is as it should be, so no place in it is shown.
#[test]
fn an_option_that_does_not_go_with_it_is_to_blame() {
    let blamed = |options: ImportOptions, words: &[&str]| {
        let wrong = imported(&fixture("gpt2-xl"), &options).expect_err("it is refused");
        assert_eq!(wrong.iter().len(), 1, "{wrong}");
        let said = wrong.to_string();
        assert!(words.iter().all(|word| said.contains(word)), "{said}: {words:?}");
        assert!(!said.contains("config.json"), "{said}");
    };
    for (name, words) in [
        ("house_style", &["--ignore:1:1", "no field `house_style` to ignore"][..]),
        ("n_embed", &["--ignore:1:1", "no field `n_embed`", "nearest is `n_embd`"]),
    ] {
        let ignored = vec![name.to_owned()];
        blamed(ImportOptions { ignored, ..ImportOptions::default() }, words);
    }
    for (batch, word) in [((1 << 24) + 1, "found 16777217"), (1 << 24, "a smaller batch")]
    {
        let batch = Some(batch);
        let options = ImportOptions { batch, ..ImportOptions::default() };
        blamed(options, &["--batch:1:1", word]);
    }
}

/// A field that was used all the same would be another model than was asked for.
#[test]
fn a_field_that_is_known_cannot_be_ignored() {
    let ignoring = |name: &str| {
        let ignored = vec![name.to_owned()];
        let options = ImportOptions { ignored, ..ImportOptions::default() };
        imported(&fixture("gpt2"), &options)
    };
    let wrong = ignoring("n_embd").expect_err("it is the width of the model").to_string();
    assert!(wrong.contains("`n_embd` is read, so it cannot be ignored"), "{wrong}");
    let done = ignoring("bos_token_id").expect("it changes nothing anyway");
    let is_told = |said: &Diagnostic| said.message.contains("nothing to ignore");
    assert!(done.warnings.iter().any(is_told), "{:?}", done.warnings);
}

#[test]
fn an_unknown_type_of_weights_is_refused_unless_it_is_said_what_to_train_in() {
    let text = |field, value| edited("llama-2-7b", &[(field, value)]);
    let refused = |text: &str| {
        let wrong = imported(text, &ImportOptions::default()).expect_err(text);
        assert_eq!(wrong.iter().len(), 1, "{wrong}");
        wrong.to_string()
    };
    for (field, name) in
        [("torch_dtype", "float8_e4m3fn"), ("dtype", "torch.float64"), ("dtype", "auto")]
    {
        let text = text(field, json!(name));
        let said = refused(&text);
        let known = "but known are float32, bfloat16 and float16";
        assert!(said.contains(&format!("`{field}` is `{name}`, {known}")), "{said}");
        assert!(said.contains("--dtype bf16"), "{said}");
        let dtype = Some(ImportDtype::Bf16);
        let options = ImportOptions { dtype, ..ImportOptions::default() };
        assert!(imported(&text, &options).is_ok(), "{name}");
    }
    let said = refused(&text("torch_dtype", json!(16)));
    assert!(said.contains("`torch_dtype` must be a text, found 16"), "{said}");
}
