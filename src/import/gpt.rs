//! GPT-2, OPT and GPT-NeoX (Pythia): decoders with layer norms, biases and plain feed-forward
//! blocks. Defaults are those of transformers' configuration classes.

use super::{
    activation::activation,
    call::Call,
    decoder::{Decoder, Embedding, Head, Positions, Sizes, Table, sequence},
    family::{attention_dropout, causal_head},
    fields::Fields,
    layer::{Branches, Feed, Layer, Norm},
    model::Model,
    names,
    options::ImportOptions,
    pattern::Kind,
    rotary::{self, Angles},
};
use roundelay_dsl::Code;
use serde_json::json;

/// Layers that all see everything, without rotary positions.
fn open(layers: u64) -> Vec<Kind> {
    vec![Kind::OPEN; layers as usize]
}

/// An affine map to a width, with this deviation.
fn map(width: &str, deviation: &str) -> Call {
    Call::new("linear").then(width).with("deviation", deviation)
}

/// arXiv 1901.02155 is its predecessor's; sizes and norms as in the released code of GPT-2.
pub(super) fn gpt2(fields: &mut Fields<'_>, options: &ImportOptions) -> Model {
    causal_head(fields, &["GPT2LMHeadModel"], &["GPT2Model"]);
    let width = fields.size_or("n_embd", 768);
    let heads = fields.size_or("n_head", 12);
    let sizes = Sizes {
        layers: fields.layers("n_layer", 12),
        width,
        heads,
        key_heads: heads,
        head_width: Sizes::even(width, heads),
        hidden: fields.open_size("n_inner", None).unwrap_or(4 * width),
    };
    let vocabulary = fields.size_or("vocab_size", 50257);
    sizes.check(fields, "n_head");
    for summary in SUMMARIES {
        fields.value(summary);
    }
    for numerics in ["n_ctx", "reorder_and_upcast_attn"] {
        fields.value(numerics);
    }
    let why = "every layer has the same factor of its scores";
    fields.only("scale_attn_by_inverse_layer_idx", &json!(false), why);
    let unscaled = !fields.truth_or("scale_attn_weights", true);
    let rows = fields.size_or("n_positions", 1024);
    let most = ("n_positions", rows);
    let length = sequence(fields, options, most, Positions::Trained);
    let epsilon = fields.epsilon("layer_norm_epsilon", 1e-5);
    let deviation = fields.above_zero("initializer_range", 0.02);
    attention_dropout(fields, "attn_pdrop", 0.1);
    let attention = sizes.attention().with("output_deviation", "output_deviation");
    let feed = Feed::Plain {
        up: map("hidden", "deviation"),
        activation: activation(fields, "activation_function", "gelu_tanh"),
        down: map("width", "output_deviation"),
    };
    let norm = Norm::new("layer_norm", epsilon);
    let layer = Layer {
        attention: attention.maybe("scale", unscaled.then_some("1")),
        feed,
        norm: norm.clone(),
        branches: Branches::NormsBefore,
        dropout: fields.rate("resid_pdrop", 0.1),
    };
    let embedding = Embedding {
        positions: Some(positions(rows, length, 0)),
        dropout: fields.rate("embd_pdrop", 0.1),
        ..Embedding::plain(width)
    };
    let decoder = Decoder {
        name: "gpt2",
        sequence: length,
        sizes,
        vocabulary,
        deviation,
        output_deviation: Some(deviation / (2.0 * sizes.layers as f64).sqrt()),
        epsilon,
        base: None,
        embedding,
        layer,
        kinds: open(sizes.layers),
        last_norm: Some(norm),
        head: Head { table: Table::of(fields, true), cap: None },
        published: &names::GPT2,
        notes: vec![],
    };
    decoder.model()
}

/// Fields of a head that a language model does not have.
const SUMMARIES: [&str; 5] = [
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
];

/// Rows `first` .. of a table of positions, as many as a sequence has.
pub(super) fn positions(rows: u64, length: u64, first: u64) -> Call {
    let whole = rows == length && first == 0;
    let call = Call::new("positions").then("width");
    let call = call.maybe("rows", (!whole).then_some(rows));
    let call = call.maybe("first", (first > 0).then_some(first));
    call.with("deviation", "deviation")
}

/// arXiv 2205.01068: the first two rows of the table of positions are for padding.
pub(super) fn opt(fields: &mut Fields<'_>, options: &ImportOptions) -> Model {
    causal_head(fields, &["OPTForCausalLM"], &["OPTModel"]);
    let width = fields.size_or("hidden_size", 768);
    let heads = fields.size_or("num_attention_heads", 12);
    let sizes = Sizes {
        layers: fields.layers("num_hidden_layers", 12),
        width,
        heads,
        key_heads: heads,
        head_width: Sizes::even(width, heads),
        hidden: fields.size_or("ffn_dim", 3072),
    };
    let vocabulary = fields.size_or("vocab_size", 50272);
    sizes.check(fields, "num_attention_heads");
    let most = fields.size_or("max_position_embeddings", 2048);
    let most_named = ("max_position_embeddings", most);
    let length = sequence(fields, options, most_named, Positions::Trained);
    attention_dropout(fields, "attention_dropout", 0.0);
    let whole = "every layer is run in every training step";
    fields.only("layerdrop", &json!(0), whole);
    let why = "norms have a gain and a bias";
    fields.only("layer_norm_elementwise_affine", &json!(true), why);
    // Releases of the class before transformers 4.20 had it, and applied it nowhere.
    fields.value("activation_dropout");
    let before = fields.truth_or("do_layer_norm_before", true);
    let removed = fields.truth_or("_remove_final_layer_norm", false);
    let bias = (!fields.truth_or("enable_bias", true)).then_some("false");
    let deviation = fields.above_zero("init_std", 0.02);
    let norm = Norm::new("layer_norm", 1e-5);
    let affine = |width| map(width, "deviation").maybe("bias", bias);
    let layer = Layer {
        attention: sizes.attention().maybe("bias", bias),
        feed: Feed::Plain {
            up: affine("hidden"),
            activation: activation(fields, "activation_function", "relu"),
            down: affine("width"),
        },
        norm: norm.clone(),
        branches: if before { Branches::NormsBefore } else { Branches::NormsAfter },
        dropout: fields.rate("dropout", 0.1),
    };
    let rows = most + PADDING;
    let embedding = Embedding {
        width: fields.open_size("word_embed_proj_dim", None).unwrap_or(width),
        positions: Some(positions(rows, length, PADDING)),
        ..Embedding::plain(width)
    };
    let decoder = Decoder {
        name: "opt",
        sequence: length,
        sizes,
        vocabulary,
        deviation,
        output_deviation: None,
        epsilon: 1e-5,
        base: None,
        embedding,
        layer,
        kinds: open(sizes.layers),
        last_norm: (before && !removed).then_some(norm),
        head: Head { table: Table::of(fields, true), cap: None },
        published: &names::OPT,
        notes: vec![],
    };
    decoder.model()
}

/// Rows in front of OPT's table of positions.
const PADDING: u64 = 2;

/// arXiv 2204.06745: one map makes queries, keys and values, a share of every head turns, and both
/// branches start from one x.
pub(super) fn gpt_neox(fields: &mut Fields<'_>, options: &ImportOptions) -> Model {
    causal_head(fields, &["GPTNeoXForCausalLM"], &["GPTNeoXModel"]);
    let width = fields.size_or("hidden_size", 6144);
    let heads = fields.size_or("num_attention_heads", 64);
    let sizes = Sizes {
        layers: fields.layers("num_hidden_layers", 44),
        width,
        heads,
        key_heads: heads,
        head_width: Sizes::even(width, heads),
        hidden: fields.size_or("intermediate_size", 24576),
    };
    let vocabulary = fields.size_or("vocab_size", 50432);
    sizes.check(fields, "num_attention_heads");
    let most = fields.size_or("max_position_embeddings", 2048);
    let most = ("max_position_embeddings", most);
    let length = sequence(fields, options, most, Positions::Angles);
    let bases = &["rope_theta", "rotary_emb_base"];
    let Angles { base, stretch } = rotary::angles(fields, bases, 10_000.0);
    attention_dropout(fields, "attention_dropout", 0.0);
    fields.value("classifier_dropout");
    let epsilon = fields.epsilon("layer_norm_eps", 1e-5);
    let deviation = fields.above_zero("initializer_range", 0.02);
    let parallel = fields.truth_or("use_parallel_residual", true);
    let bias = (!fields.truth_or("attention_bias", true)).then_some("false");
    let norm = Norm::new("layer_norm", epsilon);
    let turned = turned(fields, "rotary_pct", 0.25, sizes.head_width);
    let dropout = fields.rate("hidden_dropout", 0.0);
    let attention = sizes.attention().maybe("turned", turned).maybe("bias", bias);
    let layer = Layer {
        attention: attention.with("packed", true),
        feed: Feed::Plain {
            up: map("hidden", "deviation"),
            activation: activation(fields, "hidden_act", "gelu"),
            down: map("width", "deviation"),
        },
        norm: norm.clone(),
        branches: if parallel { Branches::Parallel } else { Branches::NormsBefore },
        dropout,
    };
    let kind = Kind { window: None, rotary: Some("base".to_owned()), stretch };
    let decoder = Decoder {
        name: "gpt_neox",
        sequence: length,
        sizes,
        vocabulary,
        deviation,
        output_deviation: None,
        epsilon,
        base: Some(base),
        embedding: Embedding { dropout, ..Embedding::plain(width) },
        layer,
        kinds: vec![kind; sizes.layers as usize],
        last_norm: Some(norm),
        head: Head { table: Table::of(fields, false), cap: None },
        published: &names::GPT_NEOX,
        notes: vec![],
    };
    decoder.model()
}

/// The leading elements of a head that turn; none to say where all do.
pub(super) fn turned(
    fields: &mut Fields<'_>,
    name: &str,
    default: f64,
    head_width: u64,
) -> Option<u64> {
    let share = rotary::share(fields, name, default);
    let elements = (head_width as f64 * share) as u64;
    if share == 1.0 {
        rotary::pairs(fields, name, head_width);
    }
    if share == 1.0 || !fields.is_clean() {
        return None;
    }
    if share > 0.0 && share < 1.0 && elements >= 2 && elements.is_multiple_of(2) {
        return Some(elements);
    }
    let message =
        format!("`{name}` is {share}, which turns {elements} of {head_width} elements");
    let hint = "positions turn pairs: an even number of elements, at least 2";
    fields.refuse(name, Code::Value, message, hint);
    None
}
