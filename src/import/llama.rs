//! Llama, Mistral, Qwen2, Qwen3 and Phi-3: decoders with root-mean-square norms, rotary
//! positions and gated blocks. Defaults are those of transformers' configuration classes.

use super::{
    activation::gate,
    call::Call,
    decoder::{Decoder, Embedding, Head, Positions, Sizes, Table, sequence},
    family::{attention_dropout, causal_head},
    fields::Fields,
    gpt::turned,
    layer::{Branches, Feed, Layer, Norm},
    model::Model,
    names::{self, Names},
    options::ImportOptions,
    rotary::{Angles, THETA, Turns, angles, kinds, pairs, whole},
};
use serde_json::json;

/// What a family has where its configuration says nothing.
struct Defaults {
    name: &'static str,
    layers: u64,
    width: u64,
    heads: u64,
    /// Heads of keys and values; none for as many as heads.
    key_heads: Option<u64>,
    /// Elements of a head; none for width / heads.
    head_width: Option<u64>,
    hidden: u64,
    vocabulary: u64,
    positions: u64,
    epsilon: f64,
    /// What weights are called where they are published.
    published: &'static Names,
}

const LLAMA: Defaults = Defaults {
    name: "llama",
    layers: 32,
    width: 4096,
    heads: 32,
    key_heads: None,
    head_width: None,
    hidden: 11008,
    vocabulary: 32000,
    positions: 2048,
    epsilon: 1e-6,
    published: &names::LLAMA,
};

const MISTRAL: Defaults = Defaults {
    name: "mistral",
    key_heads: Some(8),
    hidden: 14336,
    positions: 131_072,
    ..LLAMA
};

const QWEN2: Defaults = Defaults {
    name: "qwen2",
    key_heads: Some(32),
    hidden: 22016,
    vocabulary: 151_936,
    positions: 32768,
    ..LLAMA
};

const QWEN3: Defaults = Defaults { name: "qwen3", head_width: Some(128), ..QWEN2 };

const PHI3: Defaults = Defaults {
    name: "phi3",
    width: 3072,
    hidden: 8192,
    vocabulary: 32064,
    positions: 4096,
    epsilon: 1e-5,
    published: &names::PHI3,
    ..LLAMA
};

/// What the families of this file have in common, and how their attention differs.
struct Reading {
    sizes: Sizes,
    vocabulary: u64,
    sequence: u64,
    epsilon: f64,
    deviation: f64,
    angles: Angles,
}

impl Reading {
    fn new(
        fields: &mut Fields<'_>,
        options: &ImportOptions,
        defaults: &Defaults,
    ) -> Self {
        let width = fields.size_or("hidden_size", defaults.width);
        let heads = fields.size_or("num_attention_heads", defaults.heads);
        let key_heads = fields.open_size("num_key_value_heads", defaults.key_heads);
        let head_width = fields.open_size("head_dim", defaults.head_width);
        let sizes = Sizes {
            layers: fields.layers("num_hidden_layers", defaults.layers),
            width,
            heads,
            key_heads: key_heads.unwrap_or(heads),
            head_width: head_width.unwrap_or(Sizes::even(width, heads)),
            hidden: fields.size_or("intermediate_size", defaults.hidden),
        };
        let vocabulary = fields.size_or("vocab_size", defaults.vocabulary);
        sizes.check(fields, "num_attention_heads");
        pairs(fields, "head_dim", sizes.head_width);
        let most = fields.size_or("max_position_embeddings", defaults.positions);
        let most = ("max_position_embeddings", most);
        attention_dropout(fields, "attention_dropout", 0.0);
        Self {
            sizes,
            vocabulary,
            sequence: sequence(fields, options, most, Positions::Angles),
            epsilon: fields.epsilon("rms_norm_eps", defaults.epsilon),
            deviation: fields.above_zero("initializer_range", 0.02),
            angles: angles(fields, THETA, 10_000.0),
        }
    }

    fn model(
        self,
        fields: &mut Fields<'_>,
        defaults: &Defaults,
        layers: Layers<'_>,
    ) -> Model {
        let Layers { attention, feed_bias, dropout, window, windowed } = layers;
        let Self { sizes, vocabulary, sequence, epsilon, deviation, angles } = self;
        let norm = Norm::new("rms_norm", epsilon);
        let activation = gate(fields, "hidden_act", "silu");
        let other = (activation != "silu").then(|| format!("\"{activation}\""));
        let gated = Call::new("gated").then("hidden").maybe("activation", other);
        let gated = gated.maybe("bias", feed_bias.then_some("true"));
        let layer = Layer {
            attention,
            feed: Feed::Gated(gated.with("deviation", "deviation")),
            norm: norm.clone(),
            branches: Branches::NormsBefore,
            dropout,
        };
        let turns = Turns::alike(angles);
        let mut kinds = kinds(fields, sizes.layers, window, turns, windowed);
        kinds.iter_mut().for_each(|kind| kind.rotary = Some("base".to_owned()));
        let decoder = Decoder {
            name: defaults.name,
            sequence,
            sizes,
            vocabulary,
            deviation,
            output_deviation: None,
            epsilon,
            base: Some(angles.base),
            embedding: Embedding::plain(sizes.width),
            layer,
            kinds,
            last_norm: Some(norm),
            head: Head { table: Table::of(fields, false), cap: None },
            published: defaults.published,
            notes: vec![],
        };
        decoder.model()
    }
}

/// What the layers of the families differ in.
struct Layers<'a> {
    attention: Call,
    /// Whether the maps of the gated block have biases.
    feed_bias: bool,
    /// At the end of each branch.
    dropout: f64,
    /// How many positions a layer with a window sees; none has one where there is no number.
    window: Option<u64>,
    /// Which layers have the window.
    windowed: &'a dyn Fn(u64) -> bool,
}

impl Layers<'_> {
    /// No bias, no dropout and no window.
    fn plain(attention: Call) -> Self {
        let windowed = &|_| true;
        Self { attention, feed_bias: false, dropout: 0.0, window: None, windowed }
    }
}

/// arXiv 2302.13971, 2307.09288, 2407.21783.
pub(super) fn llama(fields: &mut Fields<'_>, options: &ImportOptions) -> Model {
    causal_head(fields, &["LlamaForCausalLM", "LLaMAForCausalLM"], &["LlamaModel"]);
    let reading = Reading::new(fields, options, &LLAMA);
    whole(fields);
    let bias = fields.truth_or("attention_bias", false);
    let feed_bias = fields.truth_or("mlp_bias", false);
    let attention = reading.sizes.attention().maybe("bias", (!bias).then_some("false"));
    let layers = Layers { feed_bias, ..Layers::plain(attention) };
    reading.model(fields, &LLAMA, layers)
}

/// arXiv 2310.06825: every layer has the window.
pub(super) fn mistral(fields: &mut Fields<'_>, options: &ImportOptions) -> Model {
    causal_head(fields, &["MistralForCausalLM"], &["MistralModel"]);
    let reading = Reading::new(fields, options, &MISTRAL);
    whole(fields);
    let window = fields.open_size("sliding_window", Some(4096));
    let attention = reading.sizes.attention().with("bias", "false");
    reading.model(fields, &MISTRAL, Layers { window, ..Layers::plain(attention) })
}

/// The window of Qwen's later layers, and the first of them.
fn late_window(fields: &mut Fields<'_>) -> (Option<u64>, u64) {
    let used = fields.truth_or("use_sliding_window", false);
    let window = fields.open_size("sliding_window", Some(4096));
    let first = fields.whole_or("max_window_layers", 28);
    (window.filter(|_| used), first)
}

/// arXiv 2407.10671: queries, keys and values have biases, the last map has none.
pub(super) fn qwen2(fields: &mut Fields<'_>, options: &ImportOptions) -> Model {
    causal_head(fields, &["Qwen2ForCausalLM"], &["Qwen2Model"]);
    let reading = Reading::new(fields, options, &QWEN2);
    whole(fields);
    fields.only("use_mrope", &json!(false), "positions have one dimension");
    let (window, first) = late_window(fields);
    let attention = reading.sizes.attention().with("output_bias", "false");
    let windowed = &|layer| layer >= first;
    let layers = Layers { window, windowed, ..Layers::plain(attention) };
    reading.model(fields, &QWEN2, layers)
}

/// arXiv 2505.09388: every head's query and key has a norm.
pub(super) fn qwen3(fields: &mut Fields<'_>, options: &ImportOptions) -> Model {
    causal_head(fields, &["Qwen3ForCausalLM"], &["Qwen3Model"]);
    let reading = Reading::new(fields, options, &QWEN3);
    whole(fields);
    let bias = fields.truth_or("attention_bias", false);
    let (window, first) = late_window(fields);
    let attention = reading.sizes.attention().maybe("bias", (!bias).then_some("false"));
    let attention = attention.with("head_norm", super::call::number(reading.epsilon));
    let windowed = &|layer| layer >= first;
    let layers = Layers { window, windowed, ..Layers::plain(attention) };
    reading.model(fields, &QWEN3, layers)
}

/// arXiv 2404.14219: as Llama, with dropout behind each branch.
pub(super) fn phi3(fields: &mut Fields<'_>, options: &ImportOptions) -> Model {
    causal_head(fields, &["Phi3ForCausalLM"], &["Phi3Model"]);
    let reading = Reading::new(fields, options, &PHI3);
    fields.value("original_max_position_embeddings");
    // The class makes this dropout and applies it nowhere.
    fields.value("embd_pdrop");
    let why = "projections of Phi-3 have no biases";
    for bias in ["attention_bias", "mlp_bias"] {
        fields.only(bias, &json!(false), why);
    }
    let window = fields.open_size("sliding_window", None);
    let dropout = fields.rate("resid_pdrop", 0.0);
    let turned = turned(fields, "partial_rotary_factor", 1.0, reading.sizes.head_width);
    let attention = reading.sizes.attention().maybe("turned", turned);
    let attention = attention.with("bias", "false");
    let layers = Layers { dropout, window, ..Layers::plain(attention) };
    reading.model(fields, &PHI3, layers)
}
