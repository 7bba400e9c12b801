//! Measured rows: comma-separated text with a head.

use std::{collections::BTreeMap, error::Error, fs, path::PathBuf};

/// A row by column; what is blank is absent.
#[derive(Clone, Debug)]
pub(crate) struct Row(BTreeMap<String, String>);

/// The rows of a file of this folder.
pub(crate) fn rows(file: &str) -> Result<Vec<Row>, Box<dyn Error>> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("benches/calibrate/data");
    let text = fs::read_to_string(path.join(file))?;
    let mut lines = text.lines().map(fields);
    let head = lines.next().ok_or("the file is empty")?;
    let row = |line: Vec<String>| {
        let cells = head.iter().cloned().zip(line);
        Row(cells.filter(|(_, cell)| !cell.is_empty()).collect())
    };
    Ok(lines.map(row).collect())
}

/// The cells of a line; quotes hide commas.
fn fields(line: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut quoted = false;
    for letter in line.chars() {
        match (letter, quoted, cells.last_mut()) {
            ('"', _, _) => quoted = !quoted,
            (',', false, _) => cells.push(String::new()),
            (letter, _, Some(cell)) => cell.push(letter),
            (_, _, None) => {}
        }
    }
    cells
}

impl Row {
    /// A cell; empty where it is blank.
    pub(crate) fn text(&self, column: &str) -> &str {
        self.0.get(column).map_or("", String::as_str)
    }
    /// A number, or what holds where it is blank or none.
    pub(crate) fn number_or(&self, column: &str, usual: f64) -> f64 {
        self.text(column).parse().unwrap_or(usual)
    }
    /// A whole number; one where it is blank.
    pub(crate) fn whole(&self, column: &str) -> u64 {
        self.number_or(column, 1.0) as u64
    }
    /// Whether forward passes were made twice. The configurations of vTrain's runs say so, their
    /// times do not: no stage takes longer than the last one, and products would reach more than
    /// any shape search (docs/accuracy.md).
    pub(crate) fn recomputes(&self) -> bool {
        self.text("recompute") == "full" && self.set() != "vtrain_single"
    }
    /// The set that the notes name.
    pub(crate) fn set(&self) -> &str {
        let notes = self.text("notes");
        let from = notes.find("set=").map_or("", |at| &notes[at + 4..]);
        from.split(';').next().unwrap_or("")
    }
}
