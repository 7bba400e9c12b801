//! Published numbers of parameters.

use super::{accepted, edited, fixture};
use roundelay::SourceFile;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Configurations with the numbers of parameters that are published for them; tied tables count
/// once.
const PUBLISHED: [(&str, u64); 19] = [
    ("bert-base-uncased", 109_514_298),
    ("gemma-2-2b", 2_614_341_888),
    ("gemma-2b", 2_506_172_416),
    ("gemma-3-1b", 999_885_952),
    ("gpt2", 124_439_808),
    ("gpt2-xl", 1_557_611_200),
    ("llama-2-7b", 6_738_415_616),
    ("llama-3-8b", 8_030_261_248),
    ("llama-3.2-1b", 1_235_814_400),
    ("mistral-7b-v0.1", 7_241_732_096),
    ("opt-125m", 125_239_296),
    ("opt-350m", 331_196_416),
    ("phi-3-mini-4k", 3_821_079_552),
    ("pythia-160m", 162_322_944),
    ("qwen2-0.5b", 494_032_768),
    ("qwen3-0.6b", 596_049_920),
    ("roberta-base", 124_697_433),
    ("vit-base-patch16-224", 86_567_656),
    ("xlm-roberta-base", 278_295_186),
];

#[test]
fn parameters_are_those_that_are_published() {
    for (name, expected) in PUBLISHED {
        assert_eq!(accepted(&fixture(name)).parameters, expected, "{name}");
    }
}

#[test]
fn every_family_has_a_published_configuration() {
    let held: BTreeSet<&str> =
        PUBLISHED.iter().map(|(name, _)| accepted(&fixture(name)).family).collect();
    assert_eq!(held, roundelay::families().collect());
}

/// BERT without a head, with its pooler, has 109,482,240 parameters. A classifier of two classes
/// adds an affine map to it; masked tokens take a map, a norm and a bias per token instead of the
/// pooler.
#[test]
fn heads_of_bert_add_what_they_have() {
    const BASE: u64 = 109_482_240;
    let count = |head: &str, more: &[(&str, Value)]| {
        let edits = [&[("architectures", json!([head]))], more].concat();
        accepted(&edited("bert-base-uncased", &edits)).parameters
    };
    let (width, vocab, map) = (768, 30522, 768 * 768 + 768);
    assert_eq!(count("BertForMaskedLM", &[]), BASE - map + map + 2 * width + vocab);
    let two = width * 2 + 2;
    assert_eq!(count("BertForSequenceClassification", &[]), BASE + two);
    let labels = ("id2label", json!({"0": "a", "1": "b", "2": "c"}));
    let three = width * 3 + 3;
    assert_eq!(count("BertForTokenClassification", &[labels]), BASE - map + three);
}

/// Tied tables count once; taken apart they count twice.
#[test]
fn ties_are_what_the_configuration_says() {
    let untied = edited("llama-3.2-1b", &[("tie_word_embeddings", json!(false))]);
    let tied = accepted(&fixture("llama-3.2-1b"));
    assert_eq!(accepted(&untied).parameters, tied.parameters + 128_256 * 2048);
    let says = |text: &str| text.contains("The head shares the table of tokens");
    assert!(says(&tied.text), "{}", tied.text);
    assert!(!says(&accepted(&untied).text));
}

#[test]
fn texts_are_in_their_canonical_form_and_parse_without_a_warning() {
    for (name, _) in PUBLISHED {
        let text = accepted(&fixture(name)).text;
        assert_eq!(roundelay::format(&text).as_ref(), Ok(&text), "{name}");
        let long = text.lines().find(|line| line.chars().count() > 92);
        assert_eq!(long, None, "{name}");
        let source = SourceFile::new("imported.rdl", text);
        let (_, warnings) =
            roundelay::parts::dsl::parse(&source, &roundelay::parts::dsl::NoFiles)
                .unwrap_or_else(|wrong| panic!("{name}: {wrong}"));
        assert!(warnings.is_empty(), "{name}: {warnings:?}");
    }
}

/// Fields that are left out have the values of the configuration class, which these releases
/// happen to have.
#[test]
fn what_is_left_out_has_the_defaults_of_the_family() {
    let absent: [(&str, &[&str]); 6] = [
        (
            "gpt2",
            &["n_embd", "n_head", "n_layer", "n_positions", "vocab_size", "resid_pdrop"],
        ),
        ("opt-125m", &["hidden_size", "ffn_dim", "vocab_size", "word_embed_proj_dim"]),
        ("mistral-7b-v0.1", &["num_key_value_heads", "sliding_window", "vocab_size"]),
        ("gemma-2-2b", &["head_dim", "query_pre_attn_scalar", "attn_logit_softcapping"]),
        ("bert-base-uncased", &["hidden_size", "type_vocab_size", "layer_norm_eps"]),
        ("pythia-160m", &["rotary_pct", "use_parallel_residual", "layer_norm_eps"]),
    ];
    for (name, fields) in absent {
        let edits: Vec<(&str, Value)> =
            fields.iter().map(|field| (*field, Value::Null)).collect();
        let short = accepted(&edited(name, &edits)).text;
        assert_eq!(short, accepted(&fixture(name)).text.clone(), "{name}");
    }
}
