//! Fields that every family may have and that change nothing in training, and fields that must
//! not ask for what cannot be said.

use serde_json::{Value, json};

/// What a field that no family reads means.
pub(super) enum Standing {
    /// It changes nothing in training.
    Inert,
    /// It changes nothing while it has this value; why another one cannot be imported.
    Only(Value, &'static str),
    /// It is not known.
    Unknown,
}

/// Fields about files, generation, outputs and numerics.
const INERT: &[&str] = &[
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_commit_hash",
    "_flash_attn_2_enabled",
    "_name_or_path",
    "_num_labels",
    "architectures",
    "attn_implementation",
    "auto_map",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "cache_implementation",
    "chunk_size_feed_forward",
    "cls_token_id",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "eos_token_id",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "gradient_checkpointing",
    "id2label",
    "is_composition",
    "keys_to_ignore_at_inference",
    "label2id",
    "length_penalty",
    "mask_token_id",
    "max_length",
    "min_length",
    "model_type",
    "name_or_path",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_labels",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_past",
    "output_scores",
    "pad_token_id",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "sep_token_id",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "typical_p",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
];

const EXPERTS: &str =
    "mixture of experts is not supported: every feed-forward block is dense";
const ONE_SEQUENCE: &str = "attention reads one sequence; a second one is not supported";

/// The meaning of a field that no family reads.
pub(super) fn standing(name: &str) -> Standing {
    if INERT.contains(&name) {
        return Standing::Inert;
    }
    let (value, why) = match name {
        "is_encoder_decoder" => (json!(false), ONE_SEQUENCE),
        "is_decoder" => (json!(false), "a family has the mask that it is published with"),
        "add_cross_attention" | "tie_encoder_decoder" => (json!(false), ONE_SEQUENCE),
        "cross_attention_hidden_size" => (Value::Null, ONE_SEQUENCE),
        "full_attn_mod" | "interpolate_factor" => (
            json!(1),
            "every layer reads all tokens, at positions that are not stretched",
        ),
        "attention_probs_dropout_prob" | "hidden_dropout_prob" => {
            (json!(0), "the dropouts of this family have other names")
        }
        "lm_head_bias" => (json!(false), "the map to the vocabulary has no bias"),
        "pruned_heads" => (json!({}), "all heads of a layer are alike"),
        "quantization_config" => {
            let why = "quantized weights are not trained; take the configuration of the \
                       model before it was quantized";
            (Value::Null, why)
        }
        "num_experts"
        | "num_local_experts"
        | "n_routed_experts"
        | "n_shared_experts"
        | "num_experts_per_tok"
        | "moe_num_experts"
        | "moe_intermediate_size" => (json!(0), EXPERTS),
        "text_config" | "vision_config" => {
            (Value::Null, "save the object under `text_config` as a file of its own")
        }
        _ => return Standing::Unknown,
    };
    Standing::Only(value, why)
}
