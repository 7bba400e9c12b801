//! What families call the arrays of their weights, and which parameters of the program these hold.

mod tables;

pub(super) use tables::{
    BERT, BERT_APART, BERT_CLASSES, GEMMA, GEMMA_AROUND, GPT_NEOX, GPT2, LLAMA, OPT,
    PHI3, VIT,
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
    /// What names of arrays end with that hold nothing of the model.
    idle: &'static [&'static str],
}

/// A module or a whole parameter, here and there.
#[derive(Debug)]
struct Row {
    own: &'static str,
    theirs: &'static str,
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
            let here = || (vec![parameter.name.clone()], TwinLayout::Same);
            add(&mut twins, known.unwrap_or_else(here), parameter);
        }
        let idle = self.idle.iter().map(|end| (*end).to_owned()).collect();
        Translation { twins, idle }
    }

    /// What a parameter of a layer is called.
    fn inside(&self, own: &str, number: usize) -> Option<(Vec<String>, TwinLayout)> {
        let (ends, layout) = theirs(self.layers, own)?;
        let layer = self.layer.replace("{}", &number.to_string());
        let whole = ends.into_iter().map(|end| format!("{layer}{end}")).collect();
        Some((self.based(whole), layout))
    }

    /// What a parameter outside of the layers is called.
    fn outside(&self, own: &str) -> Option<(Vec<String>, TwinLayout)> {
        let other = theirs(self.others, own);
        let other = other.map(|(names, layout)| (self.based(names), layout));
        other.or_else(|| theirs(self.heads, own))
    }

    /// Names with and without the base.
    fn based(&self, names: Vec<String>) -> Vec<String> {
        let with: Vec<String> =
            names.iter().map(|name| format!("{}{name}", self.base)).collect();
        [with, names].concat()
    }
}

/// Adds a parameter to the array of these names.
fn add(
    twins: &mut Vec<Twin>,
    (names, layout): (Vec<String>, TwinLayout),
    ModelParameter { name, shape, kind, .. }: &ModelParameter,
) {
    let own = TwinParameter { name: name.clone(), shape: shape.clone(), kind: *kind };
    match twins.iter_mut().rev().find(|twin| twin.names == names) {
        Some(twin) => twin.parameters.push(own),
        None => twins.push(Twin { names, parameters: vec![own], layout }),
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

/// The names of theirs that a parameter has by these rows, the newest first.
fn theirs(rows: &[Row], own: &str) -> Option<(Vec<String>, TwinLayout)> {
    rows.iter().find_map(|row| {
        if row.own == own {
            return Some((vec![row.theirs.to_owned()], row.layout));
        }
        let leaf = own.strip_prefix(row.own)?.strip_prefix('.')?;
        let words: &[&str] = match leaf {
            "weight" | "table" => &["weight"],
            "gain" => &["weight", "gamma"],
            "bias" if row.theirs.to_lowercase().contains("norm") => &["bias", "beta"],
            "bias" => &["bias"],
            _ => return None,
        };
        let names = words.iter().map(|word| format!("{}.{word}", row.theirs)).collect();
        Some((names, row.layout))
    })
}
