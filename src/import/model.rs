//! A model as text of the language: names, inputs, layers, loss.

use super::{
    call::number,
    layer::{FACTOR, Layer},
    names::Names,
    pattern::{Kind, Run, groups},
};
use roundelay_dsl::Stretch;
use std::fmt::Write;

/// A model with one kind of layer.
#[derive(Clone, Debug)]
pub(super) struct Model {
    /// The name that the model has in the program.
    pub(super) name: &'static str,
    /// Hyperparameters with their values.
    pub(super) names: Vec<(&'static str, String)>,
    /// Inputs and what makes the x of the first layer.
    pub(super) before: Vec<String>,
    pub(super) layer: Layer,
    /// What each layer sees.
    pub(super) kinds: Vec<Kind>,
    /// What the last x becomes; the loss.
    pub(super) after: Vec<String>,
    /// What its weights are called where they are published.
    pub(super) published: &'static Names,
    /// What a reader should know.
    pub(super) notes: Vec<String>,
}

/// Columns of a line.
const WIDTH: usize = 90;

/// The value that stands for a window in layers that see everything.
const EVERYTHING: &str = "seq";

impl Model {
    /// The model, and the block of its layers where they differ.
    pub(super) fn text(&self) -> String {
        let groups = groups(&self.kinds);
        let mut out = String::new();
        let layers: Vec<String> = match &groups[..] {
            [group] if group.runs.len() == 1 => {
                let Run { kind, count } = &group.runs[0];
                repeat(*count, "layer", &self.layer.lines(kind))
            }
            _ => {
                out.push_str(&self.block());
                let group = |group: &super::pattern::Group| {
                    let runs: Vec<String> =
                        group.runs.iter().flat_map(|run| self.run(run)).collect();
                    repeat(group.times, "group", &runs)
                };
                groups.iter().flat_map(group).collect()
            }
        };
        let _ = writeln!(out, "model {} {{", self.name);
        for line in bindings(&self.names) {
            let _ = writeln!(out, "    {line}");
        }
        for line in self.before.iter().chain(&layers).chain(&self.after) {
            out.push_str(&broken(line));
        }
        out.push_str("}\n");
        out
    }

    /// Whether layers differ in the base of their angles.
    fn bases_differ(&self) -> bool {
        self.kinds.iter().any(|kind| kind.rotary != self.kinds[0].rotary)
    }

    /// What stretches the angles of all layers; none where they differ in it.
    fn stretch(&self) -> Option<Stretch> {
        let first = self.kinds[0].stretch;
        self.kinds.iter().all(|kind| kind.stretch == first).then_some(first)
    }

    /// The statements of a layer that takes what layers differ in.
    fn open_lines(&self) -> Vec<String> {
        let rotary = match self.bases_differ() {
            true => Some("rotary"),
            false => self.kinds[0].rotary.as_deref(),
        };
        self.layer.open_lines(rotary, self.stretch())
    }

    /// The names of the model that a layer reads.
    fn read_names(&self) -> Vec<&'static str> {
        let lines = self.open_lines().join("\n");
        let names = self.names.iter().map(|(name, _)| *name);
        names.filter(|name| reads(&lines, name)).collect()
    }

    fn block(&self) -> String {
        let rotary = if self.bases_differ() { ", rotary" } else { "" };
        let factor = match self.stretch() {
            Some(_) => String::new(),
            None => format!(", {FACTOR}"),
        };
        let names: String =
            self.read_names().iter().map(|name| format!(", {name}")).collect();
        let head = format!("block layer(x{names}, window{rotary}{factor}) {{");
        let mut out = broken_at(&head, 0);
        for line in self.open_lines() {
            out.push_str(&broken(&line));
        }
        out.push_str("    return x\n}\n");
        out
    }

    /// Calls of the block.
    fn run(&self, Run { kind, count }: &Run) -> Vec<String> {
        let (window, name) = match kind.window {
            Some(window) => (window.to_string(), "sliding"),
            None => (EVERYTHING.to_owned(), "full"),
        };
        let names: String =
            self.read_names().iter().map(|name| format!(", {name}")).collect();
        let rotary = match (&kind.rotary, self.bases_differ()) {
            (Some(rotary), true) => format!(", {rotary}"),
            _ => String::new(),
        };
        let factor = match self.stretch() {
            Some(_) => String::new(),
            None => format!(", {}", divisor(kind.stretch)),
        };
        let call = format!("x = layer(x{names}, {window}{rotary}{factor})");
        if *count == 1 { vec![call] } else { repeat(*count, name, &[call]) }
    }
}

/// What divides all angles of a layer, among layers that differ in nothing else that stretches.
fn divisor(stretch: Stretch) -> String {
    match stretch {
        Stretch::None => number(1.0),
        Stretch::Even { factor } | Stretch::Long { factor, .. } => number(factor),
    }
}

/// Whether a text has a name as a value, not only as the name of an argument.
fn reads(text: &str, name: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices(name).any(|(start, _)| {
        let rest = &text[start + name.len()..];
        let alone = !text[..start].ends_with(is_word) && !rest.starts_with(is_word);
        alone && !rest.trim_start().starts_with('=')
    })
}

/// Statements several times.
fn repeat(times: usize, name: &str, lines: &[String]) -> Vec<String> {
    if times == 1 && name == "group" {
        return lines.to_vec();
    }
    let inner = lines.iter().map(|line| format!("    {line}"));
    let open = format!("repeat {times} as {name} {{");
    [open].into_iter().chain(inner).chain(["}".to_owned()]).collect()
}

/// Names with their values, several on a line.
fn bindings(names: &[(&'static str, String)]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for (name, value) in names {
        let binding = format!("{name} = {value}");
        match lines.last_mut() {
            Some(line) if line.len() + binding.len() + 2 <= WIDTH - 4 => {
                *line = format!("{line}, {binding}");
            }
            _ => lines.push(binding),
        }
    }
    lines
}

/// A statement in the model's body.
fn broken(line: &str) -> String {
    broken_at(line, 4)
}

/// A line as several where it is too long, broken behind commas in brackets.
fn broken_at(line: &str, indent: usize) -> String {
    let text = line.trim_start();
    let indent = indent + line.len() - text.len();
    let (mut out, mut rest, mut margin) = (String::new(), text, indent);
    while rest.chars().count() + margin > WIDTH {
        let Some(place) = break_in(text, rest, WIDTH - margin) else { break };
        let (head, tail) = rest.split_at(place);
        let _ = writeln!(out, "{:margin$}{}", "", head.trim_end());
        rest = tail.trim_start();
        margin = indent + 4;
    }
    let _ = writeln!(out, "{:margin$}{rest}", "");
    out
}

/// The last place of `rest`, the end of `text`, behind a comma in brackets before `room` is full.
fn break_in(text: &str, rest: &str, room: usize) -> Option<usize> {
    let before = &text[..text.len() - rest.len()];
    let opened = |text: &str| {
        let count = |c| text.matches(c).count();
        count('(') + count('[') > count(')') + count(']')
    };
    let places = rest.match_indices(", ").map(|(place, _)| place + 1);
    let fits = places.filter(|place| {
        *place <= room && opened(&format!("{before}{}", &rest[..*place]))
    });
    fits.last()
}
