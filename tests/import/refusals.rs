//! What cannot be imported is refused by name, with its place; what is different is said.

use super::{accepted, edited, fixture, imported};
use roundelay::{Diagnostics, ImportOptions};
use serde_json::{Value, json};

fn refused(text: &str) -> Diagnostics {
    imported(text, &ImportOptions::default()).expect_err(text)
}

/// One mistake whose text, with its hints, has all of these.
fn hold(text: &str, expected: &[&str]) {
    let wrong = refused(text);
    assert_eq!(wrong.iter().count(), 1, "{wrong}");
    let said = wrong.to_string();
    assert!(expected.iter().all(|part| said.contains(part)), "{said}: {expected:?}");
}

#[test]
fn what_is_no_configuration_is_refused_with_its_place() {
    for (text, place, expected) in [
        ("{\n  \"n_layer\": 12,\n  oops\n}", (3, 3), "not JSON: key must be a string"),
        ("{\"n_layer\": NaN}", (1, 13), "not JSON: expected value"),
        ("{\"a\": [1, 2}", (1, 12), "not JSON"),
        ("", (1, 1), "not JSON: EOF"),
        ("[1, 2]", (1, 1), "not a configuration"),
        ("12", (1, 2), "not a configuration"),
        ("{} {}", (1, 4), "not JSON: trailing characters"),
        ("{\n\n  \"rope_theta\": 1e400\n}", (3, 17), "number out of range"),
        ("{\n  \"a\":\n\"\\ud800\"}", (3, 1), "not JSON"),
    ] {
        let wrong = refused(text);
        let first = wrong.first();
        assert!(first.message.contains(expected), "{text}: {wrong}");
        assert_eq!((first.place.line, first.place.column), place, "{text}: {wrong}");
    }
}

/// A configuration comes from anywhere, and what it holds goes to a terminal and into a program.
#[test]
fn no_name_of_a_configuration_moves_the_cursor() {
    let text = json!({ "model_type": "x\u{1b}[31mred\nq" }).to_string();
    let said = refused(&text).to_string();
    assert!(said.contains("`x\\u{1b}[31mred\\nq`"), "{said}");
    let more = edited("gpt2", &[("odd\u{1b}[2J\nfield", json!(1))]);
    let said = refused(&more).to_string();
    assert!(said.contains("`--ignore odd\\u{1b}[2J\\nfield`"), "{said}");
    assert!(!said.contains('\u{1b}'), "{said}");
}

#[test]
fn families_that_are_not_there_are_named_with_the_reason() {
    for (model_type, expected) in [
        ("mixtral", "mixture of experts"),
        ("qwen2_moe", "mixture of experts"),
        ("qwen3_moe", "mixture of experts"),
        ("deepseek_v3", "mixture of experts"),
        ("t5", "one sequence"),
        ("mamba", "recurrence"),
        ("gemma3", "text_config"),
        ("bloom", "ALiBi"),
        ("gptj", "neighbours"),
        ("lama", "unknown family `lama`; nearest is `llama`"),
        ("", "these are imported: bert, gemma"),
    ] {
        let text = json!({ "model_type": model_type, "hidden_size": 64 }).to_string();
        hold(&text, &[&format!("`{model_type}`"), expected, "gpt_neox"]);
    }
    hold("{\"hidden_size\": 8}", &["`model_type` is missing", "gpt2"]);
    hold("{\"model_type\": 3}", &["the field `model_type` must be a text"]);
}

/// A release, a field, its value, and what is said about it.
type Case = (&'static str, &'static str, Value, &'static str);

/// Values of a wrong type, out of range, or that do not fit others.
fn wrong_values() -> Vec<Case> {
    vec![
        ("llama-2-7b", "hidden_size", json!("4096"), "must be a whole number"),
        ("llama-2-7b", "hidden_size", json!(4096.5), "must be a whole number"),
        ("llama-2-7b", "hidden_size", json!(-1), "must be a whole number"),
        ("llama-2-7b", "hidden_size", json!(1u64 << 40), "at most"),
        ("llama-2-7b", "num_hidden_layers", json!(100_000), "at most 4096"),
        (
            "llama-2-7b",
            "num_attention_heads",
            json!(24),
            "24 heads do not divide the width",
        ),
        ("llama-3-8b", "num_key_value_heads", json!(5), "5 key heads do not divide 32"),
        (
            "llama-2-7b",
            "hidden_act",
            json!("quick_gelu"),
            "`quick_gelu` cannot be imported",
        ),
        ("llama-2-7b", "hidden_act", json!("tanh"), "a gate with the activation `tanh`"),
        ("llama-2-7b", "rms_norm_eps", json!(0), "must be above 0"),
        ("llama-2-7b", "rms_norm_eps", json!("x"), "must be a number"),
        (
            "llama-2-7b",
            "rms_norm_eps",
            json!(3),
            "`rms_norm_eps` must be below 1, found 3",
        ),
        ("gpt2", "layer_norm_epsilon", json!(1e308), "must be below 1"),
        ("llama-2-7b", "attention_bias", json!(1), "must be true or false"),
        ("llama-2-7b", "attention_dropout", json!(1.5), "below 1"),
        ("llama-2-7b", "rope_scaling", json!({"factor": 2}), "`rope_type`"),
        ("llama-2-7b", "num_local_experts", json!(8), "mixture of experts"),
    ]
}

/// What no family can say.
fn wrong_requests() -> Vec<Case> {
    vec![
        ("llama-2-7b", "n_routed_experts", json!(64), "mixture of experts"),
        ("llama-2-7b", "num_experts", json!(64), "mixture of experts"),
        ("llama-2-7b", "is_encoder_decoder", json!(true), "a second one"),
        ("llama-2-7b", "pruned_heads", json!({"0": [1]}), "alike"),
        ("llama-2-7b", "quantization_config", json!({"bits": 4}), "quantized weights"),
        ("llama-2-7b", "hiden_size", json!(8), "nearest is `hidden_size`"),
        ("llama-2-7b", "hiden_size", json!(8), "--ignore hiden_size"),
        (
            "llama-2-7b",
            "architectures",
            json!(["LlamaForTokenClassification"]),
            "LlamaForCausalLM",
        ),
        ("llama-2-7b", "architectures", json!(["A", "B"]), "several heads"),
    ]
}

/// What one family cannot say.
fn wrong_for_their_family() -> Vec<Case> {
    vec![
        ("gpt2", "scale_attn_by_inverse_layer_idx", json!(true), "same factor"),
        ("gpt2", "add_cross_attention", json!(true), "a second one"),
        ("opt-125m", "layerdrop", json!(0.1), "every layer is run"),
        ("opt-125m", "layer_norm_elementwise_affine", json!(false), "gain"),
        ("qwen2-0.5b", "layer_types", json!(["full_attention"]), "1 layers of 24"),
        ("qwen3-0.6b", "head_dim", json!(0), "must be a whole number"),
        ("gemma-3-1b", "use_bidirectional_attention", json!(true), "one direction"),
        ("gemma-3-1b", "layer_types", json!([]), "names 0 layers of 26"),
        ("phi-3-mini-4k", "attention_bias", json!(true), "no biases"),
        ("phi-3-mini-4k", "lm_head_bias", json!(true), "the map to the vocabulary"),
        (
            "bert-base-uncased",
            "position_embedding_type",
            json!("relative_key"),
            "trained table",
        ),
        ("bert-base-uncased", "is_decoder", json!(true), "mask"),
        (
            "bert-base-uncased",
            "architectures",
            json!(["BertForPreTraining"]),
            "BertForMaskedLM",
        ),
        ("vit-base-patch16-224", "patch_size", json!(15), "do not cover"),
        ("vit-base-patch16-224", "id2label", json!([]), "must be an object"),
        ("vit-base-patch16-224", "id2label", json!({"0": "a"}), "a regression"),
        ("vit-base-patch16-224", "num_labels", json!(7), "`id2label` names 1000"),
        (
            "vit-base-patch16-224",
            "problem_type",
            json!("multi_label_classification"),
            "one class among several",
        ),
    ]
}

#[test]
fn fields_that_cannot_be_expressed_are_refused() {
    let cases = [wrong_values(), wrong_requests(), wrong_for_their_family()].concat();
    for (release, field, value, expected) in cases {
        let text = edited(release, &[(field, value)]);
        let wrong = refused(&text);
        let said = wrong.to_string();
        assert!(said.contains(expected), "{field}: {said}");
        let line = wrong.first().place.line as usize;
        let named = text.lines().nth(line - 1).expect("the line is there");
        let shown = format!("`{field}`");
        assert!(said.contains(&shown) || named.contains(field), "{field}: {said}");
    }
}

#[test]
fn rotary_shares_turn_pairs() {
    for share in [0.02, 0.05, 1.5, -0.5] {
        let text = edited("pythia-160m", &[("rotary_pct", json!(share))]);
        hold(&text, &["`rotary_pct`", "turn pairs"]);
    }
}

/// Losses of transformers follow `problem_type`, and the number of classes.
#[test]
fn heads_of_classes_have_the_loss_that_transformers_takes() {
    let of = |head: &str, edits: &[(&str, Value)]| {
        let head = ("architectures", json!([head]));
        edited("bert-base-uncased", &[edits, &[head]].concat())
    };
    let (sequence, token) =
        ("BertForSequenceClassification", "BertForTokenClassification");
    let regression = ("problem_type", json!("regression"));
    hold(
        &of(sequence, std::slice::from_ref(&regression)),
        &["`problem_type` is \"regression\""],
    );
    hold(&of(sequence, &[("num_labels", json!(1))]), &["a regression"]);
    let three = ("id2label", json!({"0": "a", "1": "b", "2": "c"}));
    let differ = of(sequence, &[three.clone(), ("num_labels", json!(7))]);
    hold(&differ, &["`num_labels` is 7, but `id2label` names 3"]);
    let same = [
        three,
        ("num_labels", json!(3)),
        ("problem_type", json!("single_label_classification")),
    ];
    for (text, masked) in [
        (of(sequence, &same), ""),
        (of(token, &same), ", masked = true"),
        (of(token, &[regression]), ", masked = true"),
    ] {
        let done = accepted(&text);
        for part in [
            format!("loss cross_entropy(logits, targets{masked})"),
            format!("metric accuracy(logits, targets{masked})"),
            "There is no mask of padding".to_owned(),
        ] {
            assert!(done.text.contains(&part), "{part}: {}", done.text);
        }
        let told = done.text.contains("A target of `classes` stands for");
        assert_eq!(told, !masked.is_empty(), "{}", done.text);
    }
}

/// Two fields that say one thing must say the same.
#[test]
fn rotary_fields_that_differ_are_refused() {
    let within = |share: f64, theta: f64| {
        let rope = json!({"partial_rotary_factor": share, "rope_theta": theta});
        ("rope_parameters", rope)
    };
    let of = |edits: &[(&str, Value)]| edited("pythia-160m", edits);
    let theta = |base: f64| ("rope_theta", json!(base));
    hold(&of(&[theta(5e5)]), &["`rotary_emb_base` is 10000, but `rope_theta` is 500000"]);
    hold(
        &of(&[within(0.5, 1e4)]),
        &["`rotary_pct` is 0.25, but `partial_rotary_factor`"],
    );
    hold(
        &of(&[within(0.25, 5e5)]),
        &[
            "`rotary_emb_base` is 10000, but `rope_theta` within `rope_parameters` is 500000",
        ],
    );
    let agreed = accepted(&of(&[theta(1e4), within(0.25, 1e4)]));
    assert!(agreed.text.contains("turned = 16"), "{}", agreed.text);
    let llama = edited("llama-3-8b", &[within(1.0, 1e4)]);
    hold(&llama, &["`rope_theta` is 500000, but `rope_theta` within"]);
}

/// The published configuration says it.
#[test]
fn a_head_without_bias_is_what_there_is() {
    let _ = accepted(&edited("phi-3-mini-4k", &[("lm_head_bias", json!(false))]));
}

/// The newest releases of transformers put base, share and scaling into one object.
#[test]
fn rotary_parameters_are_read_from_their_object_too() {
    let rope = |name: &str, value: Value| {
        let own = ["rope_theta", "rope_local_base_freq"].map(|own| (own, Value::Null));
        edited(name, &[&own[..], &[("rope_parameters", value)]].concat())
    };
    let plain = json!({"rope_theta": 7.5, "rope_type": "default"});
    let done = accepted(&rope("llama-3-8b", plain));
    assert!(
        done.text.contains("base = 7.5") && done.warnings.is_empty(),
        "{}",
        done.text
    );
    let partial = json!({"rope_type": "default", "partial_rotary_factor": 0.75});
    let done = accepted(&rope("phi-3-mini-4k", partial.clone()));
    assert!(done.text.contains("turned = 72"), "{}", done.text);
    hold(&rope("llama-3-8b", partial), &["turn in part"]);
    for text in [json!("0.75"), Value::Null] {
        let wrong = json!({"rope_type": "default", "partial_rotary_factor": text});
        for release in ["llama-3-8b", "phi-3-mini-4k", "pythia-160m"] {
            hold(
                &rope(release, wrong.clone()),
                &["within `rope_parameters` must be a number"],
            );
        }
    }
    let two = json!({
        "full_attention": {"rope_theta": 9.0, "rope_type": "linear", "factor": 8.0},
        "sliding_attention": {"rope_theta": 3.0, "rope_type": "default"},
    });
    let done = accepted(&rope("gemma-3-1b", two.clone()));
    assert!(
        done.text.contains("512, 3, 1)") && done.text.contains("seq, 9, 8)"),
        "{}",
        done.text
    );
    assert_eq!(done.warnings, []);
    hold(&rope("llama-3-8b", two.clone()), &["`full_attention` within"]);
    for layers in ["full_attention", "sliding_attention"] {
        let mut partial = two.clone();
        partial[layers]["partial_rotary_factor"] = json!(0.5);
        hold(&rope("gemma-3-1b", partial), &["turn in part"]);
    }
    let mut misspelt = two;
    misspelt["sliding_atention"] = misspelt["sliding_attention"].take();
    misspelt.as_object_mut().expect("an object").remove("sliding_attention");
    hold(&rope("gemma-3-1b", misspelt), &["`sliding_atention`", "nearest is `sliding_"]);
    let done = accepted(&rope("llama-3-8b", json!({"rope_theta": 7.5})));
    assert!(done.text.contains("base = 7.5"), "no kind means no scaling: {}", done.text);
    hold(&rope("llama-3-8b", json!({"factor": 8.0})), &["object with `rope_type`"]);
    let both = edited(
        "llama-3-8b",
        &[
            ("rope_scaling", json!({"rope_type": "linear", "factor": 8.0})),
            ("rope_parameters", json!({"rope_type": "default", "rope_theta": 7.5})),
        ],
    );
    hold(&both, &["`rope_scaling` and `rope_parameters` both", "keep the one"]);
    let sections = json!({"rope_type": "default", "mrope_section": [16, 24, 24]});
    hold(&rope("qwen2-0.5b", sections), &["`mrope_section` within `rope_parameters`"]);
}

/// The scaling of a release of Llama 3.
fn llama3() -> Value {
    json!({
        "factor": 8.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    })
}

/// The same with one field that is another one, or none.
fn llama3_but(key: &str, value: Value) -> Value {
    let mut scaling = llama3();
    match value {
        Value::Null => drop(scaling.as_object_mut().expect("an object").remove(key)),
        value => scaling[key] = value,
    }
    scaling
}

/// A text without its line breaks.
fn on_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Scaling of the kinds that the language has; a factor of 1 changes nothing.
#[test]
fn scaled_positions_are_imported() {
    let of = |value: Value| accepted(&edited("llama-3-8b", &[("rope_scaling", value)]));
    let plain = accepted(&fixture("llama-3-8b"));
    for (scaling, expected) in [
        (json!({"type": "linear", "factor": 4}), "rotary = base, rotary_factor = 4)"),
        (
            llama3(),
            "rotary_factor = 8, rotary_original = 8192, rotary_low = 1, rotary_high = 4)",
        ),
    ] {
        let done = of(scaling);
        assert!(on_one_line(&done.text).contains(expected), "{}", done.text);
        assert_eq!(done.warnings, []);
        assert_eq!(done.parameters, plain.parameters);
    }
    for nothing in
        [json!({"rope_type": "default"}), json!({"type": "linear", "factor": 1})]
    {
        let done = of(nothing);
        assert_eq!((done.text, done.warnings), (plain.text.clone(), vec![]));
    }
    let top = ("original_max_position_embeddings", json!(8192));
    let inner = llama3_but("original_max_position_embeddings", Value::Null);
    let beside = edited("llama-3-8b", &[("rope_scaling", inner), top]);
    assert_eq!(accepted(&beside).text, of(llama3()).text);
}

/// Every number of a kind of scaling must be there, and be one.
#[test]
fn scaling_that_lacks_or_denies_itself_is_refused() {
    let of = |value: Value| edited("llama-3-8b", &[("rope_scaling", value)]);
    hold(&of(json!({"type": "linear"})), &["`factor` is missing within `rope_scaling`"]);
    for (key, value, expected) in [
        ("factor", json!(0.5), "must be a number of at least 1"),
        ("factor", json!("8"), "must be a number of at least 1"),
        ("low_freq_factor", Value::Null, "is missing within `rope_scaling`"),
        ("low_freq_factor", json!(0), "must be a number above 0"),
        ("low_freq_factor", json!(4), "the latter must be the greater one"),
        ("high_freq_factor", json!([4]), "must be a number above 0"),
        ("original_max_position_embeddings", Value::Null, "is missing within"),
        ("original_max_position_embeddings", json!(8192.5), "must be a whole number"),
        ("original_max_position_embeddings", json!(1u64 << 40), "must be from 1 to"),
    ] {
        let shown = format!("`{key}`");
        hold(&of(llama3_but(key, value)), &[&shown, expected]);
    }
    let top = ("original_max_position_embeddings", json!(4096));
    let both = edited("llama-3-8b", &[("rope_scaling", llama3()), top]);
    hold(&both, &["is not that within `rope_scaling`", "keep one of them"]);
}

/// Layers of Gemma 3 may differ in a factor, and not in which waves are long.
#[test]
fn layers_that_differ_in_scaling_take_a_factor() {
    let of = |value: Value| edited("gemma-3-1b", &[("rope_scaling", value)]);
    let done = accepted(&of(json!({"rope_type": "linear", "factor": 8.0})));
    for part in ["window, rotary, factor) {", "512, 10000, 1)", "seq, 1000000, 8)"] {
        assert!(on_one_line(&done.text).contains(part), "{part}: {}", done.text);
    }
    assert_eq!(done.warnings, []);
    hold(&of(llama3()), &["differ in how `llama3` scales"]);
    let full = vec!["full_attention"; 26];
    let edits = [("rope_scaling", llama3()), ("layer_types", json!(full))];
    let done = accepted(&edited("gemma-3-1b", &edits));
    assert!(done.text.contains("rotary_original = 8192"), "{}", done.text);
}

#[test]
fn fields_that_say_nothing_are_accepted() {
    let fields = [
        ("num_experts", json!(0)),
        ("is_encoder_decoder", json!(false)),
        ("pruned_heads", json!({})),
        ("temperature", json!(0.7)),
        ("torch_dtype", json!("float16")),
    ];
    let text = accepted(&edited("llama-2-7b", &fields)).text;
    assert_eq!(text, accepted(&fixture("llama-2-7b")).text);
}

#[test]
fn all_mistakes_are_said_at_once_in_the_order_of_the_file() {
    let text = "{\n\"model_type\": \"llama\",\n\"hidden_size\": 0,\n\"attention_bias\": 7,\n\
                \"no_such_field\": 1,\n\"attention_bias\": true\n}";
    let wrong = refused(text);
    let lines: Vec<u32> = wrong.iter().map(|said| said.place.line).collect();
    assert_eq!(lines, [3, 4, 5, 6], "{wrong}");
}

/// What changes numbers but no shape is a warning at its field and a comment of the file.
#[test]
fn what_is_left_out_is_said_in_both_places() {
    for (release, edits, expected) in [
        ("gpt2", vec![], "`attn_pdrop` = 0.1 is left out"),
        (
            "llama-3-8b",
            vec![("rope_scaling", json!({"rope_type": "yarn", "factor": 4.0}))],
            "rotary positions are not scaled (yarn)",
        ),
        ("gemma-2b", vec![], "`hidden_act` is \"gelu\""),
        (
            "gemma-2-2b",
            vec![("hidden_act", json!("silu"))],
            "`hidden_act` is \"silu\", but this family is trained with `gelu_tanh`",
        ),
        ("gemma-3-1b", vec![("hidden_act", json!("silu"))], "`hidden_act` is \"silu\""),
        ("gpt2", vec![("architectures", json!(["GPT2Model"]))], "has no head"),
    ] {
        let done = accepted(&edited(release, &edits));
        let said = done.warnings.iter().find(|said| said.message.contains(expected));
        assert!(said.is_some_and(|said| said.place.line > 1), "{:?}", done.warnings);
        let comments: String = done
            .text
            .lines()
            .filter_map(|line| line.strip_prefix('#'))
            .map(|line| format!("{} ", line.trim()))
            .collect();
        assert!(comments.contains(expected), "{comments}");
    }
    assert_eq!(accepted(&fixture("llama-2-7b")).warnings, []);
}

#[test]
fn sequences_are_as_long_as_asked_for_and_as_the_table_has_rows() {
    let of = |release: &str, sequence| {
        let options = ImportOptions { sequence: Some(sequence), ..Default::default() };
        imported(&fixture(release), &options)
    };
    let short = of("gpt2", 64).expect("it fits");
    assert!(short.text.contains("seq = 64,"), "{}", short.text);
    assert!(short.text.contains("rows = 1024"), "{}", short.text);
    assert_eq!(short.parameters, 124_439_808);
    let wrong = of("gpt2", 1025).expect_err("the table ends").to_string();
    assert!(wrong.contains("1024 positions of `n_positions`"), "{wrong}");
    assert!(of("roberta-base", 512).is_ok());
    let wrong = of("roberta-base", 513).expect_err("the table ends").to_string();
    assert!(wrong.contains("the 512 positions of"), "{wrong}");
    assert!(wrong.contains("whose first 2 are for padding"), "{wrong}");
    let long = of("llama-2-7b", 8192).expect("angles have no end");
    assert!(long.warnings.iter().any(|said| said.message.contains("longer than")));
    assert!(
        of("vit-base-patch16-224", 64)
            .expect_err("no tokens")
            .to_string()
            .contains("--seq")
    );
    let batch = ImportOptions { batch: Some(96), ..Default::default() };
    let text = imported(&fixture("gpt2"), &batch).expect("right").text;
    assert!(text.contains("batch     96"), "{text}");
}

/// Fields of published releases that say again, or deny, what others say.
#[test]
fn fields_that_repeat_others_are_taken_while_they_agree() {
    let zero =
        [("attention_probs_dropout_prob", json!(0.0)), ("hidden_dropout_prob", json!(0))];
    let _ = accepted(&edited("pythia-160m", &zero));
    hold(
        &edited("pythia-160m", &[("hidden_dropout_prob", json!(0.1))]),
        &["other names"],
    );
    let _ = accepted(&edited("gemma-2-2b", &[("sliding_window_size", json!(4096))]));
    let other = edited("gemma-2-2b", &[("sliding_window_size", json!(512))]);
    hold(&other, &["`sliding_window_size` is not `sliding_window`"]);
}

/// Windows and bases of layers that differ.
#[test]
fn layers_that_differ_take_what_they_differ_in() {
    let gemma = accepted(&fixture("gemma-3-1b")).text;
    for part in ["repeat 4 as group", "repeat 5 as sliding", "repeat 2 as sliding", "512"]
    {
        assert!(gemma.contains(part), "{part}: {gemma}");
    }
    let types: Vec<&str> = (0..24)
        .map(|layer| if layer < 20 { "full_attention" } else { "sliding_attention" })
        .collect();
    let edits = [("layer_types", json!(types)), ("use_sliding_window", json!(true))];
    let qwen = accepted(&edited("qwen2-0.5b", &edits)).text;
    assert!(qwen.contains("repeat 20 as full") && qwen.contains("repeat 4 as sliding"));
    let mistral = accepted(&fixture("mistral-7b-v0.1")).text;
    assert!(mistral.contains("window = 4096") && !mistral.contains("block layer"));
}

/// A field under another name than the one that is read is not offered to be ignored.
#[test]
fn a_field_that_is_meant_for_a_missing_one_is_to_be_renamed() {
    let text = fixture("llama-3-8b").replace("num_key_value_heads", "num_kv_heads");
    hold(&text, &["nearest is `num_key_value_heads`", "give the field its name"]);
    assert!(!refused(&text).to_string().contains("--ignore"));
    for (own, other) in [
        ("n_layer", "num_hidden_layers"),
        ("n_embd", "hidden_size"),
        ("n_head", "num_attention_heads"),
        ("n_positions", "max_position_embeddings"),
    ] {
        let quoted = |name: &str| format!("\"{name}\"");
        let text = fixture("gpt2").replace(&quoted(own), &quoted(other));
        let nearest = format!("unknown field `{other}`; nearest is `{own}`");
        hold(&text, &[&nearest, "give the field its name"]);
    }
}
