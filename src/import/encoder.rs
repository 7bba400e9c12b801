//! Encoders, whose positions see all others, and ViT. Defaults are those of transformers' configuration
//! classes.

use super::{
    activation::activation,
    call::{Call, number},
    decoder::Sizes,
    family::{attention_dropout, head},
    fields::Fields,
    layer::{Branches, Feed, Layer, Norm, USUAL, bound},
    model::Model,
    names::{self, Names},
    options::ImportOptions,
    pattern::Kind,
};
use roundelay_dsl::Code;
use serde_json::{Value, json};

/// What encoders say about their layers.
pub(super) struct Encoder {
    sizes: Sizes,
    epsilon: f64,
    pub(super) deviation: f64,
    pub(super) activation: &'static str,
    pub(super) layer: Layer,
    pub(super) dropout: f64,
}

/// What families of encoders differ in.
pub(super) struct Layers {
    /// Whether queries, keys and values have biases.
    pub(super) bias: bool,
    pub(super) branches: Branches,
    /// Dropout where the configuration says nothing.
    pub(super) dropout: f64,
}

impl Encoder {
    pub(super) fn new(fields: &mut Fields<'_>, layers: Layers) -> Self {
        let Layers { bias, branches, dropout } = layers;
        let width = fields.size_or("hidden_size", 768);
        let heads = fields.size_or("num_attention_heads", 12);
        let sizes = Sizes {
            layers: fields.layers("num_hidden_layers", 12),
            width,
            heads,
            key_heads: heads,
            head_width: Sizes::even(width, heads),
            hidden: fields.size_or("intermediate_size", 3072),
        };
        sizes.check(fields, "num_attention_heads");
        let epsilon = fields.epsilon("layer_norm_eps", 1e-12);
        let deviation = fields.above_zero("initializer_range", 0.02);
        attention_dropout(fields, "attention_probs_dropout_prob", dropout);
        let dropout = fields.rate("hidden_dropout_prob", dropout);
        let attention = Call::new("attention").then("heads");
        let attention = match bias {
            true => attention,
            false => attention.with("bias", "false").with("output_bias", "true"),
        };
        let activation = activation(fields, "hidden_act", "gelu");
        let layer = Layer {
            attention: attention.with("deviation", "deviation"),
            feed: Feed::Plain { up: map("hidden"), activation, down: map("width") },
            norm: Norm::new("layer_norm", epsilon),
            branches,
            dropout,
        };
        Self { sizes, epsilon, deviation, activation, layer, dropout }
    }

    pub(super) fn model(
        self,
        name: &'static str,
        first: Vec<(&'static str, String)>,
        published: &'static Names,
        [before, after, notes]: [Vec<String>; 3],
    ) -> Model {
        let Sizes { width, heads, hidden, layers, .. } = self.sizes;
        let sizes = [("width", width), ("heads", heads), ("hidden", hidden)];
        let sizes = sizes.into_iter().map(|(name, value)| (name, value.to_string()));
        let epsilon = (self.epsilon != USUAL).then(|| ("epsilon", number(self.epsilon)));
        let deviation = ("deviation", number(self.deviation));
        let names = first.into_iter().chain(sizes).chain(epsilon).chain([deviation]);
        let kinds = vec![Kind::OPEN; layers as usize];
        let (names, layer) = (names.collect(), self.layer);
        Model { name, names, before, layer, kinds, after, published, notes }
    }
}

/// An affine map to a width.
pub(super) fn map(width: &str) -> Call {
    Call::new("linear").then(width).with("deviation", "deviation")
}

/// The number of classes: as many as `id2label` names, or `num_labels`, or two.
pub(super) fn classes(fields: &mut Fields<'_>) -> u64 {
    let named = match fields.value("id2label") {
        None => None,
        Some(Value::Object(names)) if !names.is_empty() => Some(names.len() as u64),
        Some(_) => {
            let message = "`id2label` must be an object with a name for every class";
            fields.refuse("id2label", Code::Type, message.to_owned(), "");
            None
        }
    };
    let counted = fields.open_size("num_labels", None);
    if let (Some(named), Some(counted)) = (named, counted)
        && named != counted
    {
        let message = format!("`num_labels` is {counted}, but `id2label` names {named}");
        let hint = "keep the one that was trained with";
        fields.refuse("num_labels", Code::Value, message, hint);
    }
    named.or(counted).unwrap_or(2)
}

/// The number of classes of which every example has one: transformers takes other losses by
/// `problem_type`, and where there is but one class.
pub(super) fn classes_of_examples(fields: &mut Fields<'_>) -> u64 {
    let why = "the loss is the cross-entropy of one class among several";
    fields.only("problem_type", &json!("single_label_classification"), why);
    let classes = classes(fields);
    if fields.is_clean() && classes == 1 {
        let name = if fields.has("id2label") { "id2label" } else { "num_labels" };
        let message = "one class alone stands for a regression, which cannot be imported";
        fields.refuse(name, Code::NotYet, message.to_owned(), why);
    }
    classes
}

/// arXiv 2010.11929.
pub(super) fn vit(fields: &mut Fields<'_>, options: &ImportOptions) -> Model {
    head(fields, &[("ViTForImageClassification", ())], &["ViTModel"]);
    let bias = fields.truth_or("qkv_bias", true);
    let layers = Layers { bias, branches: Branches::NormsBefore, dropout: 0.0 };
    let encoder = Encoder::new(fields, layers);
    let image = fields.size_or("image_size", 224);
    let patch = fields.size_or("patch_size", 16);
    let channels = fields.size_or("num_channels", 3);
    for other_heads in ["encoder_stride", "pooler_act", "pooler_output_size"] {
        fields.value(other_heads);
    }
    if fields.is_clean() && !image.is_multiple_of(patch) {
        let message = format!("patches of {patch} pixels do not cover images of {image}");
        fields.refuse("patch_size", Code::Value, message, "");
    }
    if options.sequence.is_some() {
        let message = "`--seq` is for tokens; images have as many patches as fit";
        fields.refuse("image_size", Code::Value, message.to_owned(), "");
    }
    let side = image / patch;
    let sizes = vec![
        ("image", image.to_string()),
        ("patch", patch.to_string()),
        ("positions", format!("1 + {side} * {side}")),
        ("classes", classes_of_examples(fields).to_string()),
    ];
    let patches = Call::new("patches").then("patch").then("width");
    let patches = patches.with("deviation", "deviation").of("images");
    let x = format!(
        "class_token({patches}, deviation = deviation) + positions(positions, width, deviation = deviation)"
    );
    let inputs = [
        format!("input images: real[batch, image, image, {channels}]"),
        "input targets: i32[batch]".to_owned(),
    ];
    let before = [&inputs[..], &bound(&x, encoder.dropout)].concat();
    let last = encoder.layer.norm.of("x");
    let logits = map("classes").of(&format!("select({last}, 0)"));
    let after = vec![
        format!("logits = {logits}"),
        "loss cross_entropy(logits, targets)".to_owned(),
        "metric accuracy(logits, targets)".to_owned(),
    ];
    encoder.model("vit", sizes, &names::VIT, [before, after, Vec::new()])
}
