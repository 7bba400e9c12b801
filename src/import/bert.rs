//! BERT, RoBERTa and XLM-RoBERTa: encoders of text with a head for masked tokens or for classes. Defaults
//! are those of transformers' configuration classes.

use super::{
    call::{Call, number},
    decoder::{Positions, TIED, Table, sequence},
    encoder::{Encoder, Layers, classes, classes_of_examples, map},
    family::head,
    fields::Fields,
    gpt::positions,
    layer::{Branches, Norm, bound, dropped},
    model::Model,
    names::{self, Names},
    options::ImportOptions,
};
use roundelay_dsl::Code;
use serde_json::json;

/// What a family has where its configuration says nothing, and how its heads differ.
struct Release {
    name: &'static str,
    /// What the names of its classes begin with.
    class: &'static str,
    vocabulary: u64,
    kind: Head,
}

/// How heads are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Head {
    /// As BERT's: positions from the first row of their table on, the activation of the layers, and a pooler.
    Bert,
    /// As RoBERTa's: positions behind the row for padding, the exact GELU, and drops of what a pooler reads.
    Roberta,
}

const BERT: Release =
    Release { name: "bert", class: "Bert", vocabulary: 30522, kind: Head::Bert };

const ROBERTA: Release =
    Release { name: "roberta", class: "Roberta", vocabulary: 50265, kind: Head::Roberta };

const XLM_ROBERTA: Release = Release {
    name: "xlm_roberta",
    class: "XLMRoberta",
    vocabulary: 30522,
    kind: Head::Roberta,
};

/// arXiv 1810.04805.
pub(super) fn bert(fields: &mut Fields<'_>, options: &ImportOptions) -> Model {
    BERT.model(fields, options)
}

/// arXiv 1907.11692.
pub(super) fn roberta(fields: &mut Fields<'_>, options: &ImportOptions) -> Model {
    ROBERTA.model(fields, options)
}

/// arXiv 1911.02116.
pub(super) fn xlm_roberta(fields: &mut Fields<'_>, options: &ImportOptions) -> Model {
    XLM_ROBERTA.model(fields, options)
}

/// What is trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    MaskedTokens,
    SequenceClasses,
    TokenClasses,
}

impl Task {
    const ALL: [Self; 3] =
        [Self::MaskedTokens, Self::SequenceClasses, Self::TokenClasses];

    /// What the name of its class ends with.
    fn class(self) -> &'static str {
        match self {
            Self::MaskedTokens => "ForMaskedLM",
            Self::SequenceClasses => "ForSequenceClassification",
            Self::TokenClasses => "ForTokenClassification",
        }
    }

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
}

impl Head {
    /// What weights are called where they are published.
    fn published(self, task: Task, table: Table) -> &'static Names {
        match (self, task, table) {
            (Self::Bert, Task::MaskedTokens, Table::Shared) => &names::BERT,
            (Self::Bert, Task::MaskedTokens, Table::Own) => &names::BERT_APART,
            (Self::Bert, Task::SequenceClasses | Task::TokenClasses, _) => {
                &names::BERT_CLASSES
            }
            (Self::Roberta, Task::MaskedTokens, Table::Shared) => &names::ROBERTA,
            (Self::Roberta, Task::MaskedTokens, Table::Own) => &names::ROBERTA_APART,
            (Self::Roberta, Task::SequenceClasses, _) => &names::ROBERTA_CLASSES,
            (Self::Roberta, Task::TokenClasses, _) => &names::ROBERTA_TOKENS,
        }
    }

    /// The row of the table of positions that the first token has.
    fn first_position(self, fields: &mut Fields<'_>) -> u64 {
        match self {
            Self::Bert => 0,
            Self::Roberta => fields.whole_or("pad_token_id", 1) + 1,
        }
    }
}

impl Release {
    /// The name of a class of the family.
    fn class(&self, end: &str) -> String {
        format!("{}{end}", self.class)
    }

    /// What is trained by what the configuration says.
    fn task(&self, fields: &mut Fields<'_>) -> Task {
        let classes = Task::ALL.map(|task| (self.class(task.class()), task));
        let known = classes.each_ref().map(|(class, task)| (class.as_str(), *task));
        head(fields, &known, &[&self.class("Model")])
    }

    fn model(&self, fields: &mut Fields<'_>, options: &ImportOptions) -> Model {
        let task = self.task(fields);
        let vocabulary = fields.size_or("vocab_size", self.vocabulary);
        let why = "positions are a trained table";
        fields.only("position_embedding_type", &json!("absolute"), why);
        let layers = Layers { bias: true, branches: Branches::NormsAfter, dropout: 0.1 };
        let encoder = Encoder::new(fields, layers);
        for pooler in POOLER {
            fields.value(pooler);
        }
        let table = match (Table::of(fields, true), task) {
            (Table::Shared, Task::MaskedTokens) => Table::Shared,
            (Table::Shared, Task::SequenceClasses | Task::TokenClasses)
            | (Table::Own, _) => Table::Own,
        };
        let (length, before) = self.before(fields, options, &encoder, (task, table));
        let mut sizes =
            vec![("seq", length.to_string()), ("vocab", vocabulary.to_string())];
        let (dropout, norm) = (encoder.dropout, &encoder.layer.norm);
        let rate = fields.open_real("classifier_dropout", None).unwrap_or(dropout);
        let (after, notes) = match task {
            Task::MaskedTokens => {
                let activation = match self.kind {
                    Head::Bert => encoder.activation,
                    Head::Roberta => "gelu",
                };
                (masked_head(norm, activation, table), self.masked_notes(table))
            }
            Task::SequenceClasses => {
                sizes.push(("classes", classes_of_examples(fields).to_string()));
                let head = class_head(&pooled(self.kind, rate), "", rate);
                (head, vec![NO_PADDING.to_owned()])
            }
            Task::TokenClasses => {
                sizes.push(("classes", classes(fields).to_string()));
                let head = class_head("x", ", masked = true", rate);
                (head, [UNCOUNTED, NO_PADDING].map(str::to_owned).into())
            }
        };
        let published = self.kind.published(task, table);
        encoder.model(self.name, sizes, published, [before, after, notes])
    }

    fn masked_notes(&self, table: Table) -> Vec<String> {
        let class = self.class(Task::MaskedTokens.class());
        let trained = format!(
            "Trained on masked tokens: the head is that of {class}, there is no pooler. A target of \
             `vocab` stands for a token that was not masked and does not count; the data must bring \
             tokens with masks in them, their types, and such targets."
        );
        let tied = (table == Table::Shared).then(|| TIED.to_owned());
        [trained, NO_PADDING.to_owned()].into_iter().chain(tied).collect()
    }

    /// The length of a sequence, and what comes before the layers.
    fn before(
        &self,
        fields: &mut Fields<'_>,
        options: &ImportOptions,
        encoder: &Encoder,
        (task, table): (Task, Table),
    ) -> (u64, Vec<String>) {
        let kinds = fields.size_or("type_vocab_size", 2);
        let rows = fields.size_or("max_position_embeddings", 512);
        let first = self.kind.first_position(fields);
        if fields.is_clean() && first >= rows {
            let message =
                format!("`pad_token_id` leaves none of {rows} positions to tokens");
            fields.refuse("pad_token_id", Code::Value, message, "");
        }
        let most = ("max_position_embeddings", rows.saturating_sub(first).max(1));
        let kind = match first {
            0 => Positions::Trained,
            rows => Positions::Behind(rows),
        };
        let length = sequence(fields, options, most, kind);
        let rows_of_tokens = match table {
            Table::Shared => "table",
            Table::Own => "vocab, width, deviation = deviation",
        };
        let tokens = format!("embedding(tokens, {rows_of_tokens})");
        let types = format!("embedding(types, {kinds}, width, deviation = deviation)");
        let positions = positions(rows, length, first).of("seq");
        let norm = &encoder.layer.norm;
        let x = norm.of(&format!("{tokens} + {types} + {positions}"));
        let mut before = task.inputs();
        if table == Table::Shared {
            let drawn = number(encoder.deviation);
            before.push(format!("param table: [vocab, width] = normal({drawn})"));
        }
        before.extend(bound(&x, encoder.dropout));
        (length, before)
    }
}

/// Which targets of tokens a loss leaves out.
const UNCOUNTED: &str = "A target of `classes` stands for a token that does not count, as −100 does \
                         in transformers.";

/// What sequences of different lengths would need.
const NO_PADDING: &str = "There is no mask of padding: every token of a sequence sees all others and \
                          has the next position, so sequences must be whole.";

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

/// What a pooler makes of the first token.
fn pooled(kind: Head, rate: f64) -> String {
    let first = match kind {
        Head::Bert => "select(x, 0)".to_owned(),
        Head::Roberta => dropped("select(x, 0)", rate),
    };
    format!("tanh({})", map("width").of(&first))
}

/// Classes of what x stands for.
fn class_head(x: &str, masked: &str, rate: f64) -> Vec<String> {
    let logits = map("classes").of(&dropped(x, rate));
    vec![
        format!("logits = {logits}"),
        format!("loss cross_entropy(logits, targets{masked})"),
        format!("metric accuracy(logits, targets{masked})"),
    ]
}
