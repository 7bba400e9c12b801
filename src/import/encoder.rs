//! BERT and ViT: encoders, whose positions see all others. Defaults are those of transformers'
//! configuration classes.

use super::{
    activation::activation,
    call::{Call, number},
    decoder::{Positions, Sizes, Table, sequence},
    family::{attention_dropout, head},
    fields::Fields,
    layer::{Branches, Feed, Layer, Norm, USUAL, bound, dropped},
    model::Model,
    names::{self, Names},
    options::ImportOptions,
    pattern::Kind,
};
use roundelay_dsl::Code;
use serde_json::{Value, json};

/// What both encoders say about their layers.
struct Encoder {
    sizes: Sizes,
    epsilon: f64,
    deviation: f64,
    activation: &'static str,
    layer: Layer,
    dropout: f64,
}

impl Encoder {
    /// `bias` of queries, keys and values; `vocabulary` where there is one.
    fn new(
        fields: &mut Fields<'_>,
        (bias, vocabulary): (bool, u64),
        (branches, dropout): (Branches, f64),
    ) -> Self {
        let width = fields.size_or("hidden_size", 768);
        let heads = fields.size_or("num_attention_heads", 12);
        let sizes = Sizes {
            layers: fields.layers("num_hidden_layers", 12),
            width,
            heads,
            key_heads: heads,
            head_width: Sizes::even(width, heads),
            hidden: fields.size_or("intermediate_size", 3072),
            vocabulary,
        };
        sizes.check(fields, ["num_attention_heads", "num_attention_heads"]);
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

    fn model(
        self,
        name: &'static str,
        first: Vec<(&'static str, String)>,
        (table, published): (Table, &'static Names),
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
        Model { name, names, before, layer, kinds, after, table, published, notes }
    }
}

/// An affine map to a width.
fn map(width: &str) -> Call {
    Call::new("linear").then(width).with("deviation", "deviation")
}

/// What BERT is trained on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    MaskedTokens,
    SequenceClasses,
    TokenClasses,
}

impl Task {
    /// The inputs as a program declares them.
    fn inputs(self) -> Vec<String> {
        let targets = match self {
            Self::SequenceClasses => "input targets: i32[batch]",
            Self::MaskedTokens | Self::TokenClasses => "input targets: i32[batch, seq]",
        };
        ["input tokens: i32[batch, seq]", "input types: i32[batch, seq]", targets]
            .map(str::to_owned)
            .into()
    }

    /// What weights are called where they are published.
    fn published(self, table: Table) -> &'static Names {
        match (self, table) {
            (Self::MaskedTokens, Table::Shared) => &names::BERT,
            (Self::MaskedTokens, Table::Own) => &names::BERT_APART,
            (Self::SequenceClasses | Self::TokenClasses, _) => &names::BERT_CLASSES,
        }
    }
}

/// arXiv 1810.04805.
pub(super) fn bert(fields: &mut Fields<'_>, options: &ImportOptions) -> Model {
    let tasks = [
        ("BertForMaskedLM", Task::MaskedTokens),
        ("BertForSequenceClassification", Task::SequenceClasses),
        ("BertForTokenClassification", Task::TokenClasses),
    ];
    let task = head(fields, &tasks, &["BertModel"]);
    let vocabulary = fields.size_or("vocab_size", 30522);
    let kinds = fields.size_or("type_vocab_size", 2);
    let why = "positions are a trained table";
    fields.only("position_embedding_type", &json!("absolute"), why);
    let encoder = Encoder::new(fields, (true, vocabulary), (Branches::NormsAfter, 0.1));
    let most = fields.size_or("max_position_embeddings", 512);
    let most_named = ("max_position_embeddings", most);
    let length = sequence(fields, options, most_named, Positions::Trained);
    for pooler in POOLER {
        fields.value(pooler);
    }
    let norm = &encoder.layer.norm;
    let rows = (most != length).then_some(most);
    let positions = Call::new("positions").then("width").maybe("rows", rows);
    let positions = positions.with("deviation", "deviation").of("seq");
    let table = match (Table::of(fields, true), task) {
        (Table::Shared, Task::MaskedTokens) => Table::Shared,
        (Table::Shared, Task::SequenceClasses | Task::TokenClasses) | (Table::Own, _) => {
            Table::Own
        }
    };
    let rows_of_tokens = match table {
        Table::Shared => "table",
        Table::Own => "vocab, width, deviation = deviation",
    };
    let tokens = format!("embedding(tokens, {rows_of_tokens})");
    let types = format!("embedding(types, {kinds}, width, deviation = deviation)");
    let x = norm.of(&format!("{tokens} + {types} + {positions}"));
    let mut sizes = vec![("seq", length.to_string()), ("vocab", vocabulary.to_string())];
    let mut before = task.inputs();
    if table == Table::Shared {
        let drawn = number(encoder.deviation);
        before.push(format!("param table: [vocab, width] = normal({drawn})"));
    }
    before.extend(bound(&x, encoder.dropout));
    let rate = fields.open_real("classifier_dropout", None).unwrap_or(encoder.dropout);
    let (after, notes) = match task {
        Task::MaskedTokens => {
            let head = masked_head(norm, encoder.activation, table);
            (head, masked_notes(table))
        }
        Task::SequenceClasses => {
            sizes.push(("classes", classes_of_examples(fields).to_string()));
            (class_head(task, rate), vec![NO_PADDING.to_owned()])
        }
        Task::TokenClasses => {
            sizes.push(("classes", classes(fields).to_string()));
            (class_head(task, rate), [UNCOUNTED, NO_PADDING].map(str::to_owned).into())
        }
    };
    encoder.model("bert", sizes, (table, task.published(table)), [before, after, notes])
}

/// Which targets of tokens a loss leaves out.
const UNCOUNTED: &str = "A target of `classes` stands for a token that does not count, as −100 does \
                         in transformers.";

/// What sequences of different lengths would need.
const NO_PADDING: &str = "There is no mask of padding: every token of a sequence sees all others, \
                          so sequences must be whole.";

/// Fields of a pooler in multilingual releases, which the class does not read.
const POOLER: [&str; 6] = [
    "directionality",
    "pooler_fc_size",
    "pooler_num_attention_heads",
    "pooler_num_fc_layers",
    "pooler_size_per_head",
    "pooler_type",
];

/// A map, an activation and a norm before the table.
fn masked_head(norm: &Norm, activation: &str, table: Table) -> Vec<String> {
    let x = norm.of(&format!("{activation}({})", map("width").of("x")));
    let logits = Call::new("linear");
    let logits = match table {
        Table::Shared => logits.with("weight", "table"),
        Table::Own => logits.then("vocab"),
    };
    let logits = logits.with("deviation", "deviation").of(&x);
    vec![
        format!("logits = {logits}"),
        "loss cross_entropy(logits, targets, masked = true)".to_owned(),
    ]
}

fn masked_notes(table: Table) -> Vec<String> {
    let mut notes = vec![
        "Trained on masked tokens: the head is that of BertForMaskedLM, there is no pooler. A \
         target of `vocab` stands for a token that was not masked and does not count; the data \
         must bring tokens with masks in them, types of 0 and 1, and such targets."
            .to_owned(),
    ];
    if table == Table::Shared {
        notes.push(super::decoder::TIED.to_owned());
    }
    notes
}

/// Classes of what a first token's pooled row, or every row, stands for.
fn class_head(task: Task, rate: f64) -> Vec<String> {
    let x = match task {
        Task::SequenceClasses => format!("tanh({})", map("width").of("select(x, 0)")),
        Task::MaskedTokens | Task::TokenClasses => "x".to_owned(),
    };
    let logits = map("classes").of(&dropped(&x, rate));
    let masked = match task {
        Task::SequenceClasses => "",
        Task::MaskedTokens | Task::TokenClasses => ", masked = true",
    };
    vec![
        format!("logits = {logits}"),
        format!("loss cross_entropy(logits, targets{masked})"),
        format!("metric accuracy(logits, targets{masked})"),
    ]
}

/// The number of classes: as many as `id2label` names, or `num_labels`, or two.
fn classes(fields: &mut Fields<'_>) -> u64 {
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
fn classes_of_examples(fields: &mut Fields<'_>) -> u64 {
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
    let encoder = Encoder::new(fields, (bias, 1), (Branches::NormsBefore, 0.0));
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
    let before = inputs.into_iter().chain(bound(&x, encoder.dropout)).collect();
    let last = encoder.layer.norm.of("x");
    let logits = map("classes").of(&format!("select({last}, 0)"));
    let after = vec![
        format!("logits = {logits}"),
        "loss cross_entropy(logits, targets)".to_owned(),
        "metric accuracy(logits, targets)".to_owned(),
    ];
    encoder.model("vit", sizes, (Table::Own, &names::VIT), [before, after, Vec::new()])
}
