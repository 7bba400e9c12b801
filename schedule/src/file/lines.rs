//! On which line of a file everything stands that the checker may find at fault.

use super::{
    error::Mistakes,
    parts::{self, Block},
};
use crate::{Culprit, Id};
use std::collections::BTreeMap;

/// The sections whose rows have handles.
const TABLES: [&str; 5] = ["axes", "rings", "groups", "routines", "buffers"];

/// Lines of a schedule file, counted from one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    actions: Vec<usize>,
    sections: BTreeMap<String, usize>,
    /// By handle.
    rows: BTreeMap<String, Row>,
}

/// A row of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    line: usize,
    /// Those of its calls, where it is a routine.
    calls: Vec<usize>,
    /// Where all of them stand on one line.
    all_calls: Option<usize>,
}

/// Where a walk down the rows of routines stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Walk {
    /// Above the calls of a row, or below them.
    Outside,
    /// In the list of calls: how far their key is indented, and their items.
    Calls(usize, Option<usize>),
}

impl Lines {
    /// Finds the lines of a text that [`super::read`] accepts; without any when it has not the
    /// outline of a schedule file.
    pub fn of(text: &str) -> Self {
        let Some(parts) = parts::split(text, &mut Mistakes::default()) else {
            return Self::default();
        };
        let actions = parts.actions.lines().filter(|line| !line.bare().is_empty());
        let actions = actions.map(|line| line.number).collect();
        let mut lines = Self { actions, ..Self::default() };
        lines.header(parts.header);
        lines.sections.insert("actions".to_owned(), parts.actions.first - 1);
        lines
    }

    /// The line of what is at fault, if it stands there: of a call the line with its kernel, of
    /// all else the first one.
    pub fn line(&self, culprit: Culprit) -> Option<usize> {
        let row = |handle: String| self.rows.get(&handle);
        match culprit {
            Culprit::Action(id) => self.actions.get(id.index()).copied(),
            Culprit::Header(key) => self.sections.get(key).copied(),
            Culprit::Axis(_)
            | Culprit::Ring(_)
            | Culprit::Group(_)
            | Culprit::Routine(_)
            | Culprit::Buffer(_) => row(culprit.to_string()).map(|row| row.line),
            Culprit::Call(id, number) => row(id.to_string()).map(|row| {
                let own = row.calls.get(number).copied();
                own.or(row.all_calls).unwrap_or(row.line)
            }),
        }
    }

    fn header(&mut self, block: Block<'_>) {
        let (mut in_table, mut row, mut walk) = (false, None, Walk::Outside);
        for line in block.lines() {
            let bare = line.bare();
            let text = bare.trim_start();
            let key = text.split(':').next().unwrap_or("").trim_end();
            let key = key.trim_matches(['"', '\'']);
            match bare.len() - text.len() {
                _ if text.is_empty() => {}
                0 => {
                    in_table = TABLES.contains(&key);
                    self.sections.entry(key.to_owned()).or_insert(line.number);
                    row = None;
                }
                2 if in_table => {
                    let new =
                        Row { line: line.number, calls: Vec::new(), all_calls: None };
                    row = Some(self.rows.entry(key.to_owned()).or_insert(new));
                    walk = Walk::Outside;
                }
                indent => {
                    let Some(row) = &mut row else { continue };
                    if text.starts_with("calls: ") {
                        row.all_calls = Some(line.number);
                    }
                    let found;
                    (walk, found) = walk.over(indent, text);
                    row.calls.extend(found.then_some(line.number));
                }
            }
        }
    }
}

impl Walk {
    /// Goes over a line, and whether a call begins on it.
    fn over(self, indent: usize, text: &str) -> (Self, bool) {
        let is_item = text.starts_with("- ");
        match self {
            Self::Outside if text == "calls:" => (Self::Calls(indent, None), false),
            Self::Outside => (self, false),
            Self::Calls(key, None) if is_item && indent >= key => {
                (Self::Calls(key, Some(indent)), true)
            }
            Self::Calls(_, Some(items)) if indent > items => (self, false),
            Self::Calls(_, Some(items)) if is_item && indent == items => (self, true),
            Self::Calls(..) => (Self::Outside, false),
        }
    }
}
