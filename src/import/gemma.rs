//! Gemma 1 to 3, text: decoders with scaled embeddings, heads of their own width, and gated
//! blocks. Defaults are those of transformers' configuration classes.

use super::{
    activation::gate_beside_hidden_act,
    call::{Call, number},
    decoder::{Decoder, Embedding, Head, Positions, Sizes, Table, sequence},
    family::{attention_dropout, causal_head},
    fields::Fields,
    layer::{Branches, Feed, Layer, Norm},
    model::Model,
    names::{self, Names},
    options::ImportOptions,
    pattern::Kind,
    rotary::{THETA, Turns, angles, factors, kinds, pairs, turns, whole},
};
use roundelay_dsl::Code;
use serde_json::json;

/// What a family has where its configuration says nothing.
struct Defaults {
    name: &'static str,
    layers: u64,
    width: u64,
    heads: u64,
    key_heads: u64,
    hidden: u64,
    vocabulary: u64,
    positions: u64,
    base: f64,
    /// What weights are called where they are published.
    published: &'static Names,
}

const GEMMA: Defaults = Defaults {
    name: "gemma",
    layers: 28,
    width: 3072,
    heads: 16,
    key_heads: 16,
    hidden: 24576,
    vocabulary: 256_000,
    positions: 8192,
    base: 10_000.0,
    published: &names::GEMMA,
};

const GEMMA2: Defaults = Defaults {
    name: "gemma2",
    layers: 26,
    width: 2304,
    heads: 8,
    key_heads: 4,
    hidden: 9216,
    published: &names::GEMMA_AROUND,
    ..GEMMA
};

const GEMMA3: Defaults = Defaults {
    name: "gemma3",
    vocabulary: 262_208,
    positions: 131_072,
    base: 1e6,
    ..GEMMA2
};

/// Elements of a head.
const HEAD_WIDTH: u64 = 256;

const GAINS: &str = "Norms multiply by a gain that starts at one. The published weights of this \
                     family hold gain − 1; `import --weights` adds the one.";

/// What the generations have in common.
struct Reading {
    sizes: Sizes,
    vocabulary: u64,
    sequence: u64,
    epsilon: f64,
    deviation: f64,
    attention: Call,
}

impl Reading {
    fn new(
        fields: &mut Fields<'_>,
        options: &ImportOptions,
        defaults: &Defaults,
    ) -> Self {
        let width = fields.size_or("hidden_size", defaults.width);
        let heads = fields.size_or("num_attention_heads", defaults.heads);
        let key_heads = fields.size_or("num_key_value_heads", defaults.key_heads);
        let sizes = Sizes {
            layers: fields.layers("num_hidden_layers", defaults.layers),
            width,
            heads,
            key_heads,
            head_width: fields.size_or("head_dim", HEAD_WIDTH),
            hidden: fields.size_or("intermediate_size", defaults.hidden),
        };
        let vocabulary = fields.size_or("vocab_size", defaults.vocabulary);
        sizes.check(fields, "num_attention_heads");
        pairs(fields, "head_dim", sizes.head_width);
        let most = fields.size_or("max_position_embeddings", defaults.positions);
        let most = ("max_position_embeddings", most);
        attention_dropout(fields, "attention_dropout", 0.0);
        fields.only(
            "use_bidirectional_attention",
            &json!(false),
            "text is read in one direction",
        );
        let bias = fields.truth_or("attention_bias", false);
        whole(fields);
        Self {
            sizes,
            vocabulary,
            sequence: sequence(fields, options, most, Positions::Angles),
            epsilon: fields.epsilon("rms_norm_eps", 1e-6),
            deviation: fields.above_zero("initializer_range", 0.02),
            attention: sizes.attention().maybe("bias", (!bias).then_some("false")),
        }
    }

    /// Attention with the factor and the cap of its scores.
    fn scored(&mut self, fields: &mut Fields<'_>, default_cap: Option<f64>) {
        let scalar = fields.above_zero("query_pre_attn_scalar", HEAD_WIDTH as f64);
        let usual = scalar == self.sizes.head_width as f64;
        let scale = (!usual).then(|| number(1.0 / scalar.sqrt()));
        let cap = fields.open_real("attn_logit_softcapping", default_cap);
        let attention = self.attention.clone().maybe("scale", scale);
        self.attention = attention.maybe("cap", cap.map(number));
    }

    fn model(
        self,
        fields: &mut Fields<'_>,
        defaults: &Defaults,
        layers: Layers,
    ) -> Model {
        let Layers { activation, branches, kinds, base, cap } = layers;
        let Self { sizes, vocabulary, sequence, epsilon, deviation, attention } = self;
        let norm = Norm::new("rms_norm", epsilon);
        let gated = Call::new("gated").then("hidden");
        let gated = gated.with("activation", format!("\"{activation}\""));
        let layer = Layer {
            attention,
            feed: Feed::Gated(gated.with("deviation", "deviation")),
            norm: norm.clone(),
            branches,
            dropout: 0.0,
        };
        let factor = (sizes.width as f64).sqrt();
        let one_base = kinds.iter().all(|kind| kind.rotary == kinds[0].rotary);
        let decoder = Decoder {
            name: defaults.name,
            sequence,
            sizes,
            vocabulary,
            deviation,
            output_deviation: None,
            epsilon,
            base: one_base.then_some(base),
            embedding: Embedding { factor, ..Embedding::plain(sizes.width) },
            layer,
            kinds,
            last_norm: Some(norm),
            head: Head { table: Table::of(fields, true), cap },
            published: defaults.published,
            notes: vec![GAINS.to_owned()],
        };
        decoder.model()
    }
}

/// What the releases differ in.
struct Layers {
    /// Of the gated block.
    activation: &'static str,
    branches: Branches,
    kinds: Vec<Kind>,
    /// Of the angles, if all layers have the same.
    base: f64,
    /// Of the logits.
    cap: Option<f64>,
}

/// Layers with one base of the angles, called by its name.
fn of_one_base(mut kinds: Vec<Kind>) -> Vec<Kind> {
    kinds.iter_mut().for_each(|kind| kind.rotary = Some("base".to_owned()));
    kinds
}

/// arXiv 2403.08295. Releases say `hidden_act: "gelu"` and mean its tangent form, which
/// `hidden_activation` alone overrides.
pub(super) fn gemma(fields: &mut Fields<'_>, options: &ImportOptions) -> Model {
    causal_head(fields, &["GemmaForCausalLM"], &["GemmaModel"]);
    let reading = Reading::new(fields, options, &GEMMA);
    let activation = gate_beside_hidden_act(fields, "gelu_tanh");
    let angles = angles(fields, THETA, GEMMA.base);
    let turns = Turns::alike(angles);
    let kinds = kinds(fields, reading.sizes.layers, None, turns, |_| false);
    let (branches, base) = (Branches::NormsBefore, angles.base);
    let layers =
        Layers { activation, branches, kinds: of_one_base(kinds), base, cap: None };
    reading.model(fields, &GEMMA, layers)
}

/// How many positions a layer with a window sees; releases may name it a second time.
fn window(fields: &mut Fields<'_>) -> Option<u64> {
    let window = fields.open_size("sliding_window", Some(4096));
    let again = fields.open_size("sliding_window_size", None);
    if again.is_some() && again != window {
        let message = "`sliding_window_size` is not `sliding_window`".to_owned();
        fields.refuse("sliding_window_size", Code::Value, message, "keep one of them");
    }
    window
}

/// arXiv 2408.00118: every second layer has a window, scores and logits are capped.
pub(super) fn gemma2(fields: &mut Fields<'_>, options: &ImportOptions) -> Model {
    causal_head(fields, &["Gemma2ForCausalLM"], &["Gemma2Model"]);
    let mut reading = Reading::new(fields, options, &GEMMA2);
    let activation = gate_beside_hidden_act(fields, "gelu_tanh");
    reading.scored(fields, Some(50.0));
    let window = window(fields);
    let cap = fields.open_real("final_logit_softcapping", Some(30.0));
    let angles = angles(fields, THETA, GEMMA2.base);
    let turns = Turns::alike(angles);
    let even = |layer: u64| layer.is_multiple_of(2);
    let kinds = kinds(fields, reading.sizes.layers, window, turns, even);
    let (branches, base) = (Branches::NormsAround, angles.base);
    let layers = Layers { activation, branches, kinds: of_one_base(kinds), base, cap };
    reading.model(fields, &GEMMA2, layers)
}

/// arXiv 2503.19786: of six layers the first five have a window and a base of their own, and
/// every head's query and key has a norm.
pub(super) fn gemma3(fields: &mut Fields<'_>, options: &ImportOptions) -> Model {
    causal_head(fields, &["Gemma3ForCausalLM"], &["Gemma3TextModel"]);
    let mut reading = Reading::new(fields, options, &GEMMA3);
    let activation = gate_beside_hidden_act(fields, "gelu_tanh");
    reading.scored(fields, None);
    reading.attention =
        reading.attention.clone().with("head_norm", number(reading.epsilon));
    let window = window(fields);
    let old = fields.open_size("sliding_window_pattern", None);
    let new = fields.open_size("_sliding_window_pattern", None);
    let pattern = new.or(old).unwrap_or(6);
    let cap = fields.open_real("final_logit_softcapping", None);
    let turns = turns(fields, [GEMMA3.base, 10_000.0]);
    let Turns { full, sliding } = turns;
    let rule = |layer: u64| !(layer + 1).is_multiple_of(pattern);
    let kinds = kinds(fields, reading.sizes.layers, window, turns, rule);
    factors(fields, &kinds);
    let kinds = if full.base == sliding.base { of_one_base(kinds) } else { kinds };
    let alike = kinds.iter().all(|kind| kind.rotary == kinds[0].rotary);
    let windows = kinds.iter().all(|kind| kind.window.is_some());
    let base = if alike && windows { sliding.base } else { full.base };
    let kinds = if alike { of_one_base(kinds) } else { kinds };
    let branches = Branches::NormsAround;
    reading.model(fields, &GEMMA3, Layers { activation, branches, kinds, base, cap })
}
