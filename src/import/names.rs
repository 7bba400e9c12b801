//! What families call the arrays of their weights, and which parameters of the program these hold.

mod tables;

pub(super) use tables::{
    BERT, BERT_APART, BERT_CLASSES, GEMMA, GEMMA_AROUND, GPT_NEOX, GPT2, LLAMA, OPT,
    PHI3, ROBERTA, ROBERTA_APART, ROBERTA_CLASSES, ROBERTA_TOKENS, VIT,
};

use roundelay_dsl::{Model, ModelParameter};
use roundelay_runtime::{Translation, Twin, TwinLayout, TwinParameter};
use std::collections::BTreeSet;

/// What a family calls the arrays of its weights.
///
/// Rows of ours and theirs name modules, whose arrays have a last word of their own (`weight`), or
/// whole parameters. Several rows of ours with one of theirs are rows of one array, in their order.
#[derive(Debug)]
pub(super) struct Names {
    /// What stands before all names but those of heads; some releases leave it out.
    base: &'static str,
    /// Behind it, what stands before names of a layer, with `{}` for its number.
    layer: &'static str,
    /// Modules of every layer.
    layers: &'static [Row],
    /// Modules before and behind the layers.
    others: &'static [Row],
    /// Modules without the base.
    heads: &'static [Row],
    /// What names of arrays end with that hold constants.
    idle: &'static [&'static str],
}

/// A module or a whole parameter, here and there.
#[derive(Debug)]
struct Row {
    own: &'static str,
    theirs: &'static str,
    layout: TwinLayout,
}

/// What a parameter is called where it is published.
struct Called {
    name: String,
    /// By older releases.
    older: Vec<String>,
    layout: TwinLayout,
}

/// The same numbers.
const fn row(own: &'static str, theirs: &'static str) -> Row {
    Row { own, theirs, layout: TwinLayout::Same }
}

impl Names {
    /// How the arrays hold the parameters of a model of the family. One that no row has is called as
    /// here.
    pub(super) fn translation(&self, model: &Model) -> Translation {
        let mut twins = Vec::new();
        let mut layers = BTreeSet::new();
        for parameter in model.parameters.values() {
            let (layer, own) = in_layer(&parameter.name);
            let known = match layer.is_empty() {
                true => self.outside(own),
                false => {
                    layers.insert(layer);
                    self.inside(own, layers.len() - 1)
                }
            };
            let here = || Called::newest(parameter.name.clone(), TwinLayout::Same);
            add(&mut twins, known.unwrap_or_else(here), parameter);
        }
        let idle = self.idle.iter().map(|end| (*end).to_owned()).collect();
        Translation { twins, idle, ..Translation::default() }
    }

    /// What a parameter of a layer is called.
    fn inside(&self, own: &str, number: usize) -> Option<Called> {
        let layer = self.layer.replace("{}", &number.to_string());
        Some(called(self.layers, own)?.within(&layer).based(self.base))
    }

    /// What a parameter outside of the layers is called.
    fn outside(&self, own: &str) -> Option<Called> {
        let other = || Some(called(self.others, own)?.based(self.base));
        called(self.heads, own).or_else(other)
    }
}

impl Called {
    fn newest(name: String, layout: TwinLayout) -> Self {
        Self { name, older: Vec::new(), layout }
    }

    /// The same behind a prefix.
    fn within(mut self, prefix: &str) -> Self {
        let names = std::iter::once(&mut self.name).chain(&mut self.older);
        names.for_each(|name| name.insert_str(0, prefix));
        self
    }

    /// The same behind a prefix that some releases leave out.
    fn based(self, base: &str) -> Self {
        let without = [vec![self.name.clone()], self.older.clone()].concat();
        let Self { name, older, layout } = self.within(base);
        Self { name, older: [older, without].concat(), layout }
    }
}

/// Adds a parameter to the array that has this name.
fn add(
    twins: &mut Vec<Twin>,
    Called { name, older, layout }: Called,
    parameter: &ModelParameter,
) {
    let own = TwinParameter {
        name: parameter.name.clone(),
        shape: parameter.shape.clone(),
        kind: parameter.kind,
    };
    match twins.iter_mut().rev().find(|twin| twin.name == name) {
        Some(twin) => twin.parameters.push(own),
        None => twins.push(Twin { name, older, parameters: vec![own], layout }),
    }
}

/// The blocks and repeats that the layers of an imported program lie in. Several of one name in one place
/// have numbers.
const LAYERS: [&str; 4] = ["group", "sliding", "full", "layer"];

/// A name in two: the layer's part, which no other layer has, and the rest.
fn in_layer(name: &str) -> (&str, &str) {
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let mut rest = name;
    while let Some((word, inner)) = rest.split_once('.') {
        let name = match word.split_once('_') {
            Some((name, number)) if is_number(number) => name,
            Some(_) | None => word,
        };
        if !is_number(word) && !LAYERS.contains(&name) {
            break;
        }
        rest = inner;
    }
    name.split_at(name.len() - rest.len())
}

/// What a parameter is called by these rows.
fn called(rows: &[Row], own: &str) -> Option<Called> {
    rows.iter().find_map(|Row { own: module, theirs, layout }| {
        if *module == own {
            return Some(Called::newest((*theirs).to_owned(), *layout));
        }
        let leaf = own.strip_prefix(module)?.strip_prefix('.')?;
        let is_norm = theirs.to_lowercase().contains("norm");
        let (word, older) = match leaf {
            "weight" | "table" => ("weight", None),
            "gain" => ("weight", Some("gamma")),
            "bias" => ("bias", is_norm.then_some("beta")),
            _ => return None,
        };
        let name = |word: &str| format!("{theirs}.{word}");
        let older = older.into_iter().map(name).collect();
        Some(Called { name: name(word), older, layout: *layout })
    })
}
