//! Around the model: what a reader should know, a cluster that holds it, and how it is trained.

use super::{
    model::Model,
    options::{ImportCluster, ImportDtype},
};
use std::fmt::Write;

/// Devices of a node.
const NODE: u64 = 8;
/// Bytes that AdamW keeps per parameter: in f32 itself, its gradient, and two means; in mixed
/// precision 2 + 2 bytes for the first two, and a master and two means in f32.
const STATE_BYTES: u64 = 16;
/// Nodes of the largest cluster that is chosen.
const NODES: u32 = 1024;

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
    pub(super) dtype: ImportDtype,
    pub(super) cluster: ImportCluster,
    /// Bytes of memory that schedules may use of one of its devices.
    pub(super) device_bytes: u64,
    /// Nodes, where they are asked for.
    pub(super) nodes: Option<u32>,
}

/// Nodes on which parameters and their states take at most two fifths of the memory, so that
/// activations find room.
fn nodes(parameters: u64, device_bytes: u64) -> u32 {
    let states = u128::from(parameters) * u128::from(STATE_BYTES);
    let room = (u128::from(NODE) * u128::from(device_bytes) * 2 / 5).max(1);
    let nodes = states.div_ceil(room).max(1);
    u32::try_from(nodes).unwrap_or(NODES).min(NODES).next_power_of_two()
}

impl Program<'_> {
    fn nodes(&self) -> u32 {
        self.nodes.unwrap_or_else(|| nodes(self.parameters, self.device_bytes))
    }

    /// The whole text.
    pub(super) fn text(&self) -> String {
        let mut out = String::new();
        self.head(&mut out);
        let _ = writeln!(out, "import \"{}\"", path(self.cluster));
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
        let trained = match self.dtype {
            ImportDtype::F32 => "f32",
            ImportDtype::Bf16 => "bf16 with masters in f32, which takes a GPU",
        };
        let how = format!(
            "Matrices are drawn from normal(deviation), and training is in {trained}."
        );
        let notes = model.notes.iter().map(String::as_str);
        for note in [how.as_str()].into_iter().chain(notes) {
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
        let nodes = self.nodes();
        let batch = self.batch.map_or(u64::from(nodes) * NODE, u64::from);
        let node = format!("{NODE} x {} joined by nvlink", self.cluster.device());
        let _ = match nodes {
            1 => writeln!(out, "cluster node {{ {node} }}"),
            _ => writeln!(
                out,
                "cluster nodes {{ node = {node}, {nodes} x node joined by infiniband }}"
            ),
        };
        let _ = writeln!(
            out,
            "train {{\n    data synthetic\n    batch {batch}\n    optimizer adamw(lr = \
             warmup(100, cosine(3e-4, 10000)), weight_decay = 0.1)\n    steps 10000\n    \
             seed 7\n    dtype {}\n}}",
            self.dtype.name()
        );
        out.push_str("plan {\n    minimize step_time\n}\n");
    }
}

/// The shipped file with the devices and links of a cluster.
pub(super) fn path(cluster: ImportCluster) -> String {
    format!("roundelay:clusters/{}.rdl", cluster.name())
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
        let nodes = |parameters| nodes(parameters, 80_000_000_000);
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
