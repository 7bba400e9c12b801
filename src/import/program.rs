//! Around the model: what a reader should know, a cluster that holds it, and how it is trained.

use super::model::Model;
use std::fmt::Write;

/// Bytes of memory of one device of the cluster.
const DEVICE_BYTES: u64 = 80_000_000_000;
/// Devices of a node.
const NODE: u64 = 8;
/// Bytes that AdamW in f32 keeps per parameter: itself, its gradient, and two means.
const STATE_BYTES: u64 = 16;
/// Nodes of the largest cluster.
const NODES: u64 = 1024;

/// A program without its model.
pub(super) struct Program<'a> {
    pub(super) model: &'a Model,
    /// The configuration's path.
    pub(super) source: &'a str,
    pub(super) parameters: u64,
    /// What is not as the configuration says.
    pub(super) warnings: Vec<&'a str>,
    /// Examples of a step, where they are asked for.
    pub(super) batch: Option<u32>,
}

/// Nodes on which parameters and their states take at most two fifths of the memory, so that
/// activations find room.
fn nodes(parameters: u64) -> u64 {
    let states = u128::from(parameters) * u128::from(STATE_BYTES);
    let room = u128::from(NODE) * u128::from(DEVICE_BYTES) * 2 / 5;
    let nodes = states.div_ceil(room).max(1);
    u64::try_from(nodes).unwrap_or(NODES).next_power_of_two().min(NODES)
}

impl Program<'_> {
    /// The whole text.
    pub(super) fn text(&self) -> String {
        let mut out = String::new();
        self.head(&mut out);
        out.push_str(&self.model.text());
        self.rest(&mut out);
        out
    }

    fn head(&self, out: &mut String) {
        let Self { model, source, parameters, warnings, .. } = self;
        let file = printable(source.rsplit(['/', '\\']).next().unwrap_or(source));
        let count = grouped(*parameters);
        let title = format!("{}: {count} parameters, imported from {file}", model.name);
        comment(out, "", &title);
        out.push_str("#\n");
        let how = "Matrices are drawn from normal(deviation), and training is in f32.";
        let notes = model.notes.iter().map(String::as_str);
        for note in [how].into_iter().chain(notes) {
            comment(out, "", note);
        }
        if !warnings.is_empty() {
            comment(out, "", "Not as the configuration says:");
            for warning in warnings {
                comment(out, "- ", &printable(warning));
            }
        }
    }

    fn rest(&self, out: &mut String) {
        let nodes = nodes(self.parameters);
        let batch = self.batch.map_or(nodes * NODE, u64::from);
        out.push_str(
            "device a100 { memory 80 GB, compute 19.5 TFLOP/s, bandwidth 2 TB/s }\n",
        );
        out.push_str("link nvlink { bandwidth 300 GB/s, latency 2.5 us }\n");
        if nodes == 1 {
            out.push_str("cluster node { 8 x a100 joined by nvlink }\n");
        } else {
            out.push_str("link infiniband { bandwidth 25 GB/s, latency 5 us }\n");
            let _ = writeln!(
                out,
                "cluster nodes {{ node = 8 x a100 joined by nvlink, {nodes} x node joined by \
                 infiniband }}"
            );
        }
        let _ = writeln!(
            out,
            "train {{\n    data synthetic\n    batch {batch}\n    optimizer adamw(lr = \
             warmup(100, cosine(3e-4, 10000)), weight_decay = 0.1)\n    steps 10000\n    \
             seed 7\n}}"
        );
        out.push_str("plan {\n    minimize step_time\n}\n");
    }
}

/// A sentence as comment lines.
fn comment(out: &mut String, mark: &str, text: &str) {
    const WIDTH: usize = 90;
    let mut line = format!("# {mark}");
    let margin = format!("# {:width$}", "", width = mark.len());
    let mut empty = true;
    for word in text.split_whitespace() {
        if !empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            let _ = writeln!(out, "{line}");
            (line, empty) = (margin.clone(), true);
        }
        line = if empty { format!("{line}{word}") } else { format!("{line} {word}") };
        empty = false;
    }
    let _ = writeln!(out, "{line}");
}

/// A text without characters that end a line or hide.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// A number with commas.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_take_two_fifths_at_most() {
        assert_eq!([1, 16_000_000_000, 16_000_000_001].map(nodes), [1, 1, 2]);
        assert_eq!([70_553_706_496, u64::MAX].map(nodes), [8, NODES]);
    }

    #[test]
    fn numbers_and_comments_are_written() {
        assert_eq!([7, 124_439_808].map(grouped), ["7", "124,439,808"]);
        let mut out = String::new();
        comment(&mut out, "- ", &"word ".repeat(30));
        assert!(out.lines().all(|line| line.len() <= 90), "{out}");
        assert_eq!(out.lines().nth(1).map(|line| &line[..5]), Some("#   w"));
    }
}
