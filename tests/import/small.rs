//! Every family at a size that trains in a test.

use super::fixture;
use serde_json::{Map, Value, json};

/// Fields with their new values.
type Edits = Vec<(&'static str, Value)>;

/// What every family's configuration is made smaller by.
fn common() -> Edits {
    vec![
        ("n_layer", json!(2)),
        ("n_embd", json!(16)),
        ("n_head", json!(4)),
        ("n_positions", json!(10)),
        ("n_ctx", json!(10)),
        ("vocab_size", json!(19)),
        ("num_hidden_layers", json!(2)),
        ("hidden_size", json!(16)),
        ("num_attention_heads", json!(4)),
        ("num_key_value_heads", json!(2)),
        ("head_dim", json!(6)),
        ("intermediate_size", json!(24)),
        ("ffn_dim", json!(24)),
        ("max_position_embeddings", json!(10)),
        ("sliding_window", json!(4)),
        ("max_window_layers", json!(1)),
        ("word_embed_proj_dim", json!(16)),
        ("query_pre_attn_scalar", json!(9)),
        ("image_size", json!(12)),
        ("patch_size", json!(4)),
        ("initializer_range", json!(0.3)),
        ("init_std", json!(0.3)),
        ("rms_norm_eps", json!(1e-4)),
    ]
}

/// A head with a table of its own.
fn own() -> (&'static str, Value) {
    ("tie_word_embeddings", json!(false))
}

/// Name of a case, the configuration that it starts from, and what it has besides.
type Case = (&'static str, &'static str, Edits);

/// Decoders with layer norms.
fn gpts() -> Vec<Case> {
    vec![
        ("gpt2", "gpt2", vec![("scale_attn_weights", json!(false))]),
        ("gpt2, a table of the head", "gpt2", vec![own()]),
        ("opt", "opt-125m", vec![]),
        ("opt, norms after", "opt-350m", vec![("word_embed_proj_dim", json!(8))]),
        (
            "opt, a table of the head",
            "opt-350m",
            vec![("word_embed_proj_dim", json!(8)), own()],
        ),
        ("opt, no biases", "opt-125m", vec![("enable_bias", json!(false))]),
        ("gpt_neox", "pythia-160m", vec![("rotary_pct", json!(0.5))]),
        (
            "gpt_neox, one table",
            "pythia-160m",
            vec![("rotary_pct", json!(0.5)), ("tie_word_embeddings", json!(true))],
        ),
        (
            "gpt_neox, dropout, one branch after another",
            "pythia-160m",
            vec![
                ("rotary_pct", json!(1.0)),
                ("hidden_dropout", json!(0.2)),
                ("use_parallel_residual", json!(false)),
            ],
        ),
    ]
}

/// Decoders with root-mean-square norms.
fn llamas() -> Vec<Case> {
    vec![
        ("llama", "llama-2-7b", vec![]),
        (
            "llama, tied, biases",
            "llama-3.2-1b",
            vec![
                ("attention_bias", json!(true)),
                ("mlp_bias", json!(true)),
                ("hidden_act", json!("gelu")),
            ],
        ),
        ("mistral", "mistral-7b-v0.1", vec![]),
        ("qwen2", "qwen2-0.5b", vec![]),
        ("qwen2, late windows", "qwen2-0.5b", vec![("use_sliding_window", json!(true))]),
        (
            "qwen2, late windows, a table of the head",
            "qwen2-0.5b",
            vec![("use_sliding_window", json!(true)), own()],
        ),
        ("qwen3", "qwen3-0.6b", vec![]),
        ("gemma", "gemma-2b", vec![]),
        ("gemma, a table of the head", "gemma-2b", vec![own()]),
        (
            "gemma2",
            "gemma-2-2b",
            vec![
                ("num_hidden_layers", json!(5)),
                ("attn_logit_softcapping", json!(0.7)),
                ("final_logit_softcapping", json!(1.5)),
            ],
        ),
        (
            "gemma2, a table of the head",
            "gemma-2-2b",
            vec![("final_logit_softcapping", json!(1.5)), own()],
        ),
        (
            "gemma3",
            "gemma-3-1b",
            vec![("num_hidden_layers", json!(8)), ("sliding_window_pattern", json!(3))],
        ),
        (
            "phi3",
            "phi-3-mini-4k",
            vec![
                ("resid_pdrop", json!(0.1)),
                ("head_dim", json!(8)),
                ("partial_rotary_factor", json!(0.5)),
            ],
        ),
    ]
}

fn encoders() -> Vec<Case> {
    let head = |name: &str| ("architectures", json!([name]));
    let labels = ("id2label", json!({"0": "a", "1": "b", "2": "c"}));
    vec![
        ("bert", "bert-base-uncased", vec![]),
        ("bert, a table of the head", "bert-base-uncased", vec![own()]),
        (
            "bert, sequences",
            "bert-base-uncased",
            vec![head("BertForSequenceClassification"), labels.clone()],
        ),
        (
            "bert, tokens",
            "bert-base-uncased",
            vec![head("BertForTokenClassification"), labels.clone()],
        ),
        ("roberta", "roberta-base", vec![("hidden_act", json!("relu"))]),
        ("roberta, a table of the head", "roberta-base", vec![own()]),
        (
            "roberta, sequences",
            "roberta-base",
            vec![head("RobertaForSequenceClassification"), labels.clone()],
        ),
        (
            "xlm-roberta, tokens",
            "xlm-roberta-base",
            vec![head("XLMRobertaForTokenClassification"), labels.clone()],
        ),
        ("vit", "vit-base-patch16-224", vec![labels, ("qkv_bias", json!(false))]),
    ]
}

/// The same with scaled positions; the release of Llama 3.2 has those of `llama3`.
fn scaled() -> Vec<Case> {
    vec![
        (
            "llama, scaled positions",
            "llama-2-7b",
            vec![("rope_scaling", json!({"type": "linear", "factor": 3}))],
        ),
        (
            "gemma3, scaled positions of some layers",
            "gemma-3-1b",
            vec![
                ("num_hidden_layers", json!(4)),
                ("sliding_window_pattern", json!(2)),
                ("rope_scaling", json!({"rope_type": "linear", "factor": 8.0})),
            ],
        ),
    ]
}

/// Names and texts of small configurations; only what a release says is made smaller.
pub(crate) fn small() -> Vec<(&'static str, String)> {
    let made = |(name, release, more): (_, &str, Edits)| {
        let value: Value = serde_json::from_str(&fixture(release)).expect("JSON");
        let mut fields: Map<String, Value> =
            value.as_object().expect("an object").clone();
        for (field, value) in common() {
            if fields.get(field).is_some_and(|old| !old.is_null()) {
                fields.insert(field.to_owned(), value);
            }
        }
        for (field, value) in more {
            fields.insert(field.to_owned(), value);
        }
        (name, Value::Object(fields).to_string())
    };
    [gpts(), llamas(), encoders(), scaled()].concat().into_iter().map(made).collect()
}
