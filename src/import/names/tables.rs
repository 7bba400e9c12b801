//! Names of modules as the classes of transformers have them, family by family.

use super::{Names, Row, row};
use roundelay_runtime::TwinLayout;

/// Matrices of GPT-2 have a row for each of what they read.
const fn turned(own: &'static str, theirs: &'static str) -> Row {
    Row { layout: TwinLayout::Transposed, ..row(own, theirs) }
}

/// Gains of Gemma are less by one.
const fn gain(own: &'static str, theirs: &'static str) -> Row {
    Row { layout: TwinLayout::LessOne, ..row(own, theirs) }
}

/// Tables of positions that every example has the same of, each for itself.
const fn within(own: &'static str, theirs: &'static str, ones: usize) -> Row {
    Row { layout: TwinLayout::Within(ones), ..row(own, theirs) }
}

pub(in crate::import) const GPT2: Names = Names {
    base: "transformer.",
    layer: "h.{}.",
    layers: &[
        row("layer_norm", "ln_1"),
        turned("attention.query", "attn.c_attn"),
        turned("attention.key", "attn.c_attn"),
        turned("attention.value", "attn.c_attn"),
        turned("attention.output", "attn.c_proj"),
        row("layer_norm_1", "ln_2"),
        turned("linear", "mlp.c_fc"),
        turned("linear_1", "mlp.c_proj"),
    ],
    others: &[
        row("table", "wte.weight"),
        row("embedding", "wte"),
        row("positions", "wpe"),
        row("layer_norm", "ln_f"),
    ],
    heads: &[row("entropy", "lm_head")],
    idle: &[".attn.bias", ".attn.masked_bias"],
};

pub(in crate::import) const OPT: Names = Names {
    base: "model.",
    layer: "decoder.layers.{}.",
    layers: &[
        row("attention.query", "self_attn.q_proj"),
        row("attention.key", "self_attn.k_proj"),
        row("attention.value", "self_attn.v_proj"),
        row("attention.output", "self_attn.out_proj"),
        row("layer_norm", "self_attn_layer_norm"),
        row("linear", "fc1"),
        row("linear_1", "fc2"),
        row("layer_norm_1", "final_layer_norm"),
    ],
    others: &[
        row("table", "decoder.embed_tokens.weight"),
        row("embedding", "decoder.embed_tokens"),
        row("linear", "decoder.project_in"),
        row("positions", "decoder.embed_positions"),
        row("layer_norm", "decoder.final_layer_norm"),
        row("linear_1", "decoder.project_out"),
    ],
    heads: &[row("entropy", "lm_head")],
    idle: &[],
};

pub(in crate::import) const GPT_NEOX: Names = Names {
    base: "gpt_neox.",
    layer: "layers.{}.",
    layers: &[
        row("layer_norm", "input_layernorm"),
        row("attention.query_key_value", "attention.query_key_value"),
        row("attention.output", "attention.dense"),
        row("layer_norm_1", "post_attention_layernorm"),
        row("linear", "mlp.dense_h_to_4h"),
        row("linear_1", "mlp.dense_4h_to_h"),
    ],
    others: &[
        row("table", "embed_in.weight"),
        row("embedded", "embed_in"),
        row("layer_norm", "final_layer_norm"),
    ],
    heads: &[row("entropy", "embed_out")],
    idle: &[".attention.bias", ".attention.masked_bias", ".inv_freq"],
};

/// Llama, Mistral, Qwen2 and Qwen3.
pub(in crate::import) const LLAMA: Names = Names {
    base: "model.",
    layer: "layers.{}.",
    layers: &[
        row("rms_norm", "input_layernorm"),
        row("attention.query", "self_attn.q_proj"),
        row("attention.query.norm", "self_attn.q_norm"),
        row("attention.key", "self_attn.k_proj"),
        row("attention.key.norm", "self_attn.k_norm"),
        row("attention.value", "self_attn.v_proj"),
        row("attention.output", "self_attn.o_proj"),
        row("rms_norm_1", "post_attention_layernorm"),
        row("gated.gate", "mlp.gate_proj"),
        row("gated.up", "mlp.up_proj"),
        row("gated.output", "mlp.down_proj"),
    ],
    others: &[
        row("table", "embed_tokens.weight"),
        row("embedded", "embed_tokens"),
        row("rms_norm", "norm"),
    ],
    heads: &[row("entropy", "lm_head"), row("linear", "lm_head")],
    idle: &[".inv_freq"],
};

pub(in crate::import) const PHI3: Names = Names {
    layers: &[
        row("rms_norm", "input_layernorm"),
        row("attention.query", "self_attn.qkv_proj"),
        row("attention.key", "self_attn.qkv_proj"),
        row("attention.value", "self_attn.qkv_proj"),
        row("attention.output", "self_attn.o_proj"),
        row("rms_norm_1", "post_attention_layernorm"),
        row("gated.gate", "mlp.gate_up_proj"),
        row("gated.up", "mlp.gate_up_proj"),
        row("gated.output", "mlp.down_proj"),
    ],
    ..LLAMA
};

pub(in crate::import) const GEMMA: Names = Names {
    layers: &[
        gain("rms_norm", "input_layernorm"),
        row("attention.query", "self_attn.q_proj"),
        row("attention.key", "self_attn.k_proj"),
        row("attention.value", "self_attn.v_proj"),
        row("attention.output", "self_attn.o_proj"),
        gain("rms_norm_1", "post_attention_layernorm"),
        row("gated.gate", "mlp.gate_proj"),
        row("gated.up", "mlp.up_proj"),
        row("gated.output", "mlp.down_proj"),
    ],
    others: GEMMA_OTHERS,
    ..LLAMA
};

/// Gemma 2 and 3, which have norms on both sides of each branch.
pub(in crate::import) const GEMMA_AROUND: Names = Names {
    layers: &[
        gain("rms_norm", "input_layernorm"),
        row("attention.query", "self_attn.q_proj"),
        gain("attention.query.norm", "self_attn.q_norm"),
        row("attention.key", "self_attn.k_proj"),
        gain("attention.key.norm", "self_attn.k_norm"),
        row("attention.value", "self_attn.v_proj"),
        row("attention.output", "self_attn.o_proj"),
        gain("rms_norm_1", "post_attention_layernorm"),
        gain("rms_norm_2", "pre_feedforward_layernorm"),
        row("gated.gate", "mlp.gate_proj"),
        row("gated.up", "mlp.up_proj"),
        row("gated.output", "mlp.down_proj"),
        gain("rms_norm_3", "post_feedforward_layernorm"),
    ],
    others: GEMMA_OTHERS,
    ..LLAMA
};

const GEMMA_OTHERS: &[Row] = &[
    row("table", "embed_tokens.weight"),
    row("embedding", "embed_tokens"),
    gain("rms_norm", "norm"),
];

/// With the head for masked tokens, and one table.
pub(in crate::import) const BERT: Names = Names {
    base: "bert.",
    layer: "encoder.layer.{}.",
    layers: &[
        row("attention.query", "attention.self.query"),
        row("attention.key", "attention.self.key"),
        row("attention.value", "attention.self.value"),
        row("attention.output", "attention.output.dense"),
        row("layer_norm", "attention.output.LayerNorm"),
        row("linear", "intermediate.dense"),
        row("linear_1", "output.dense"),
        row("layer_norm_1", "output.LayerNorm"),
    ],
    others: &[
        row("table", "embeddings.word_embeddings.weight"),
        row("embedding", "embeddings.word_embeddings"),
        row("embedding_1", "embeddings.token_type_embeddings"),
        row("positions", "embeddings.position_embeddings"),
        row("embedded", "embeddings.LayerNorm"),
    ],
    heads: &[
        row("linear", "cls.predictions.transform.dense"),
        row("layer_norm", "cls.predictions.transform.LayerNorm"),
        row("logits.bias", "cls.predictions.bias"),
    ],
    idle: &[".position_ids"],
};

/// With a head for masked tokens that has a table of its own; the class then reads no other bias.
pub(in crate::import) const BERT_APART: Names = Names {
    heads: &[
        row("linear", "cls.predictions.transform.dense"),
        row("layer_norm", "cls.predictions.transform.LayerNorm"),
        row("logits", "cls.predictions.decoder"),
    ],
    ..BERT
};

/// With a head for classes of sequences, which has the pooler, or of tokens.
pub(in crate::import) const BERT_CLASSES: Names = Names {
    others: &[
        row("embedding", "embeddings.word_embeddings"),
        row("embedding_1", "embeddings.token_type_embeddings"),
        row("positions", "embeddings.position_embeddings"),
        row("embedded", "embeddings.LayerNorm"),
        row("linear", "pooler.dense"),
    ],
    heads: &[row("logits", "classifier")],
    ..BERT
};

/// RoBERTa and XLM-RoBERTa with the head for masked tokens, and one table.
pub(in crate::import) const ROBERTA: Names = Names {
    base: "roberta.",
    heads: &[
        row("linear", "lm_head.dense"),
        row("layer_norm", "lm_head.layer_norm"),
        row("logits.bias", "lm_head.bias"),
    ],
    ..BERT
};

/// With a head for masked tokens that has a table of its own; the class then reads no other bias.
pub(in crate::import) const ROBERTA_APART: Names = Names {
    heads: &[
        row("linear", "lm_head.dense"),
        row("layer_norm", "lm_head.layer_norm"),
        row("logits", "lm_head.decoder"),
    ],
    ..ROBERTA
};

/// With a head for classes of sequences.
pub(in crate::import) const ROBERTA_CLASSES: Names = Names {
    others: BERT_CLASSES.others,
    heads: &[row("linear", "classifier.dense"), row("logits", "classifier.out_proj")],
    ..ROBERTA
};

/// With a head for classes of tokens.
pub(in crate::import) const ROBERTA_TOKENS: Names =
    Names { heads: &[row("logits", "classifier")], ..ROBERTA_CLASSES };

pub(in crate::import) const VIT: Names = Names {
    base: "vit.",
    layer: "encoder.layer.{}.",
    layers: &[
        row("layer_norm", "layernorm_before"),
        row("attention.query", "attention.attention.query"),
        row("attention.key", "attention.attention.key"),
        row("attention.value", "attention.attention.value"),
        row("attention.output", "attention.output.dense"),
        row("layer_norm_1", "layernorm_after"),
        row("linear", "intermediate.dense"),
        row("linear_1", "output.dense"),
    ],
    others: &[
        row("patches", "embeddings.patch_embeddings.projection"),
        within("class_token.token", "embeddings.cls_token", 2),
        within("positions.table", "embeddings.position_embeddings", 1),
        row("layer_norm", "layernorm"),
    ],
    heads: &[row("logits", "classifier")],
    idle: &[],
};
