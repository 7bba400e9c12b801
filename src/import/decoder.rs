//! Causal language models: what all decoders have in common.

use super::{
    call::{Call, number},
    fields::Fields,
    layer::{Layer, Norm, USUAL, bound},
    model::Model,
    names::Names,
    options::ImportOptions,
    pattern::Kind,
};
use roundelay_dsl::Code;

/// Sizes that a configuration says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) layers: u64,
    pub(super) width: u64,
    pub(super) heads: u64,
    pub(super) key_heads: u64,
    /// Elements of a head.
    pub(super) head_width: u64,
    /// Width inside of the feed-forward block.
    pub(super) hidden: u64,
}

/// A decoder between tokens and logits.
#[derive(Clone, Debug)]
pub(super) struct Decoder {
    pub(super) name: &'static str,
    pub(super) sequence: u64,
    pub(super) sizes: Sizes,
    pub(super) vocabulary: u64,
    /// Deviation of new matrices.
    pub(super) deviation: f64,
    /// That of the last matrix of every branch, where it is another one.
    pub(super) output_deviation: Option<f64>,
    pub(super) epsilon: f64,
    /// Base of the rotary angles where all layers have the same.
    pub(super) base: Option<f64>,
    pub(super) embedding: Embedding,
    pub(super) layer: Layer,
    pub(super) kinds: Vec<Kind>,
    /// The norm before the head.
    pub(super) last_norm: Option<Norm>,
    pub(super) head: Head,
    /// What its weights are called where they are published.
    pub(super) published: &'static Names,
    pub(super) notes: Vec<String>,
}

/// What tokens become.
#[derive(Clone, Debug)]
pub(super) struct Embedding {
    /// Factor of the rows.
    pub(super) factor: f64,
    /// Width of the rows; another than that of the model goes through an affine map.
    pub(super) width: u64,
    /// Trained positions, added.
    pub(super) positions: Option<Call>,
    pub(super) dropout: f64,
}

/// What becomes of the last x.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) table: Table,
    /// What bounds the logits.
    pub(super) cap: Option<f64>,
}

/// The matrix of the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    /// The embedding's.
    Shared,
    /// One of its own.
    Own,
}

impl Embedding {
    /// Rows of the model's own width.
    pub(super) fn plain(width: u64) -> Self {
        Self { factor: 1.0, width, positions: None, dropout: 0.0 }
    }
}

impl Table {
    /// `tie_word_embeddings`.
    pub(super) fn of(fields: &mut Fields<'_>, default: bool) -> Self {
        match fields.truth_or("tie_word_embeddings", default) {
            true => Table::Shared,
            false => Table::Own,
        }
    }
}

impl Sizes {
    /// Notes what does not fit; `heads` is the field with their number. No family but those with
    /// `num_key_value_heads` has fewer key heads.
    pub(super) fn check(&self, fields: &mut Fields<'_>, heads: &str) {
        if !fields.is_clean() {
            return;
        }
        if !self.heads.is_multiple_of(self.key_heads) {
            let message = format!(
                "{} key heads do not divide {} heads",
                self.key_heads, self.heads
            );
            let hint = "every key head serves the same number of heads";
            fields.refuse("num_key_value_heads", Code::Value, message, hint);
        }
        if self.head_width == 0 {
            let message =
                format!("{} heads do not divide the width {}", self.heads, self.width);
            let hint = "the width must be a multiple of the number of heads";
            fields.refuse(heads, Code::Value, message, hint);
        }
    }

    /// The width of a head where no field says it; zero where heads do not divide the width.
    pub(super) fn even(width: u64, heads: u64) -> u64 {
        if width.is_multiple_of(heads) { width / heads } else { 0 }
    }

    /// The argument `head_width`, where it is not what follows.
    pub(super) fn head_argument(&self) -> Option<&'static str> {
        let follows = Self::even(self.width, self.heads) == self.head_width;
        (!follows).then_some("head_width")
    }

    /// The argument `key_heads`, where there are fewer.
    pub(super) fn key_argument(&self) -> Option<&'static str> {
        (self.key_heads != self.heads).then_some("key_heads")
    }

    /// Attention with what every decoder says.
    pub(super) fn attention(&self) -> Call {
        let call = Call::new("attention").then("heads").with("causal", "true");
        let call = call.maybe("key_heads", self.key_argument());
        call.maybe("head_width", self.head_argument()).with("deviation", "deviation")
    }
}

/// Where positions come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Positions {
    /// A table of this many rows.
    Trained,
    /// A table whose first rows, so many, are for padding.
    Behind(u64),
    /// Angles, which have no end.
    Angles,
}

/// What a table with two users leaves to cuts.
pub(super) const TIED: &str = "The head shares the table of tokens with the embedding: cuts part \
                               the first layer from the last in synchronous pipelines of \
                               replicated states alone.";

/// Positions of a sequence by default at most.
const LONGEST: u64 = 2048;

/// The length of a sequence: what is asked for, or what the model has.
pub(super) fn sequence(
    fields: &mut Fields<'_>,
    options: &ImportOptions,
    (name, most): (&str, u64),
    positions: Positions,
) -> u64 {
    let Some(asked) = options.sequence else { return most.min(LONGEST) };
    if asked > most && fields.is_clean() {
        let message = format!(
            "a sequence of {asked} is longer than the {most} positions of `{name}`"
        );
        let hint = "the table of positions has no more rows; take a shorter `--seq`";
        match positions {
            Positions::Trained => fields.refuse(name, Code::Value, message, hint),
            Positions::Behind(rows) => {
                let message = format!("{message}, whose first {rows} are for padding");
                fields.refuse(name, Code::Value, message, hint);
            }
            Positions::Angles => fields.warn(name, message),
        }
    }
    asked
}

impl Decoder {
    /// The model.
    pub(super) fn model(self) -> Model {
        let before = self.before();
        let after = self.after();
        let names = self.names();
        let mut notes = self.notes;
        if self.head.table == Table::Shared {
            notes.push(TIED.to_owned());
        }
        let Self { name, layer, kinds, published, .. } = self;
        Model { name, names, before, layer, kinds, after, published, notes }
    }

    fn names(&self) -> Vec<(&'static str, String)> {
        let Sizes { width, heads, key_heads, head_width, hidden, .. } = self.sizes;
        let mut names = vec![("seq", self.sequence), ("width", width), ("heads", heads)];
        if self.sizes.key_argument().is_some() {
            names.push(("key_heads", key_heads));
        }
        if self.sizes.head_argument().is_some() {
            names.push(("head_width", head_width));
        }
        names.extend([("hidden", hidden), ("vocab", self.vocabulary)]);
        let whole = names.into_iter().map(|(name, value)| (name, value.to_string()));
        let base = self.base.map(|base| ("base", number(base)));
        let epsilon = (self.epsilon != USUAL).then(|| ("epsilon", number(self.epsilon)));
        let deviation = ("deviation", number(self.deviation));
        let output = self.output_deviation.map(|d| ("output_deviation", number(d)));
        whole.chain(base).chain(epsilon).chain([deviation]).chain(output).collect()
    }

    /// The table's width as text.
    fn table_width(&self) -> String {
        match self.embedding.width == self.sizes.width {
            true => "width".to_owned(),
            false => self.embedding.width.to_string(),
        }
    }

    fn before(&self) -> Vec<String> {
        let Embedding { factor, width, positions, dropout } = &self.embedding;
        let mut lines = vec![
            "input tokens: i32[batch, seq]".to_owned(),
            "input targets: i32[batch, seq]".to_owned(),
        ];
        let inner = self.table_width();
        let mut x = match self.head.table {
            Table::Shared => {
                let drawn = number(self.deviation);
                lines.push(format!("param table: [vocab, {inner}] = normal({drawn})"));
                "embedding(tokens, table)".to_owned()
            }
            Table::Own => {
                format!("embedding(tokens, vocab, {inner}, deviation = deviation)")
            }
        };
        if *width != self.sizes.width {
            let map = Call::new("linear").then("width").with("bias", "false");
            x = map.with("deviation", "deviation").of(&x);
        }
        if *factor != 1.0 {
            x = format!("{} * {x}", number(*factor));
        }
        if let Some(positions) = positions {
            x = format!("{x} + {}", positions.of("seq"));
        }
        lines.extend(bound(&x, *dropout));
        lines
    }

    fn after(&self) -> Vec<String> {
        let mut x = self.last_norm.as_ref().map_or("x".to_owned(), |norm| norm.of("x"));
        if self.embedding.width != self.sizes.width {
            let map = Call::new("linear").then(self.table_width()).with("bias", "false");
            x = map.with("deviation", "deviation").of(&x);
        }
        match self.head.cap {
            None => self.entropy(&x),
            Some(cap) => self.capped(&x, cap),
        }
    }

    /// A loss that makes its own logits, some rows at a time or among parts of tensors some classes.
    fn entropy(&self, x: &str) -> Vec<String> {
        let entropy = Call::new("linear_cross_entropy").then("targets");
        vec![
            format!("entropy = {}", self.classifier(entropy).of(x)),
            "loss entropy".to_owned(),
            "metric perplexity(entropy)".to_owned(),
        ]
    }

    /// The loss of logits that are bounded.
    fn capped(&self, x: &str, cap: f64) -> Vec<String> {
        let logits = self.classifier(Call::new("linear")).with("bias", "false");
        let capped = Call::new("soft_cap").then(number(cap)).of(&logits.of(x));
        vec![
            format!("logits = {capped}"),
            "loss cross_entropy(logits, targets)".to_owned(),
            "metric perplexity(logits, targets)".to_owned(),
        ]
    }

    /// A call with the matrix of the head.
    fn classifier(&self, call: Call) -> Call {
        match self.head.table {
            Table::Shared => call.with("weight", "table"),
            Table::Own => call.then("vocab").with("deviation", "deviation"),
        }
    }
}
