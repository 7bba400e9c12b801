//! The header: sections of YAML, each read on its own, and the rows of the big tables one by
//! one, so that one mistake does not hide the next.

use super::{ROWS_MAX, error::Mistakes, layout, node::node, parts::Block, parts::Line};
use crate::{Id, Schedule, Table, YamlError, near::did_you_mean, read_yaml};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;

/// Writes all sections.
pub(super) fn write(out: &mut String, schedule: &Schedule) {
    let Schedule {
        fingerprint,
        target,
        plan,
        job,
        axes,
        rings,
        groups,
        routines,
        buffers,
        actions: _,
    } = schedule;
    layout::section(out, "fingerprint", &node(fingerprint));
    layout::section(out, "target", &node(target));
    layout::section(out, "plan", &node(plan));
    layout::section(out, "job", &node(job));
    layout::section(out, "axes", &node(axes));
    layout::section(out, "rings", &node(rings));
    layout::section(out, "groups", &node(groups));
    layout::section(out, "routines", &node(routines));
    layout::section(out, "buffers", &node(buffers));
}

/// Reads all sections; the schedule has no actions yet. None when a section cannot be read.
pub(super) fn read(block: Block<'_>, mistakes: &mut Mistakes) -> Option<Schedule> {
    let mut sections = Sections::find(block, mistakes);
    let fingerprint = sections.record("fingerprint");
    let target = sections.record("target");
    let plan = sections.record("plan");
    let job = sections.record("job");
    let axes = sections.table("axes");
    let rings = sections.table("rings");
    let groups = sections.table("groups");
    let routines = sections.table("routines");
    let buffers = sections.table("buffers");
    sections.refuse_unknown();
    Some(Schedule {
        fingerprint: fingerprint?,
        target: target?,
        plan: plan?,
        job: job?,
        axes: axes?,
        rings: rings?,
        groups: groups?,
        routines: routines?,
        buffers: buffers?,
        actions: Table::new(),
    })
}

/// How the sections and rows look, for hints.
const EXAMPLES: [(&str, &str); 9] = [
    (
        "fingerprint",
        "fingerprint: \"0f3c5a7700aa11bb-93e0a2c4d1b75f68-5b1e90c27d3f4a86\"",
    ),
    ("target", "target: with name, pools, devices, links, domains below it"),
    ("plan", "plan: with rule, placement, order, … below it"),
    ("job", "job: with model, data, batch, … below it"),
    ("axes", "y0: {name: replicas, extent: 2, stride: 4}"),
    ("rings", "r0: {devices: [d0], turn: 0, lanes: 1}"),
    ("groups", "g0: {places: [r0.0, r1.0], axes: []}"),
    ("routines", "k0: with name, pass, stage, arguments, calls, predicted below it"),
    (
        "buffers",
        "b0: {home: r0, subject: {parameter: [s0, whole]}, offset: 0, size: 64, slots: 1, \
         turn: 0, rest: transient}",
    ),
];

fn example(section: &str) -> String {
    let found = EXAMPLES.iter().find(|(name, _)| *name == section);
    found.map_or_else(String::new, |(_, text)| format!("expected like `{text}`"))
}

/// Some lines of the header that are one YAML document.
#[derive(Clone, Copy, Debug)]
struct Chunk<'a> {
    /// Number of its first line in the file.
    line: usize,
    text: &'a str,
}

/// The sections that are still to be read, by name.
struct Sections<'a, 'm> {
    found: BTreeMap<&'a str, Chunk<'a>>,
    end: usize,
    mistakes: &'m mut Mistakes,
}

impl<'a, 'm> Sections<'a, 'm> {
    fn find(block: Block<'a>, mistakes: &'m mut Mistakes) -> Self {
        let mut found = BTreeMap::new();
        let chunks = chunks(block, |line| {
            !line.text.starts_with([' ', '\t']) && !line.bare().is_empty()
        });
        for chunk in chunks {
            let name = chunk.text.split([':', '\n']).next().unwrap_or("").trim_end();
            if name.trim().is_empty() || name.starts_with('#') {
                continue;
            }
            if found.insert(name, chunk).is_some() {
                let message = format!("a second section `{name}`");
                mistakes.add(chunk.line, 1, message, "delete one of the two");
            }
        }
        let end = block.first + block.text.lines().count();
        Self { found, end, mistakes }
    }

    fn take(&mut self, name: &str) -> Option<Chunk<'a>> {
        let chunk = self.found.remove(name);
        if chunk.is_none() {
            let message = format!("the section `{name}` is missing");
            self.mistakes.add(self.end, 1, message, example(name));
        }
        chunk
    }

    fn record<T: DeserializeOwned>(&mut self, name: &str) -> Option<T> {
        let chunk = self.take(name)?;
        self.entry(name, chunk).map(|(_, value)| value)
    }

    fn table<I: Id, T: DeserializeOwned>(&mut self, name: &str) -> Option<Table<I, T>> {
        let chunk = self.take(name)?;
        let head =
            Line { number: chunk.line, text: chunk.text.lines().next().unwrap_or("") };
        let text = chunk.text.split_once('\n').map_or("", |(_, body)| body);
        let body = Block { first: chunk.line + 1, text };
        if head.bare().strip_prefix(name).is_some_and(|rest| rest.trim() == ": {}") {
            return self.rows(name, Block { text: "", ..body });
        }
        if !head.bare().ends_with(':') {
            let message = "rows of a table stand on lines of their own";
            self.mistakes.add(chunk.line, name.len() + 2, message, example(name));
            return None;
        }
        self.rows(name, body)
    }

    fn rows<I: Id, T: DeserializeOwned>(
        &mut self,
        name: &str,
        body: Block<'a>,
    ) -> Option<Table<I, T>> {
        let starts = |line: &Line<'_>| {
            let own = line.text.strip_prefix("  ");
            own.is_some_and(|rest| {
                !rest.starts_with([' ', '\t', '#']) && !rest.is_empty()
            })
        };
        let mut table = Table::new();
        let mut whole = true;
        let mut number = 0;
        for chunk in chunks(body, starts) {
            if chunk.text.lines().all(|text| Line { number: 0, text }.bare().is_empty()) {
                continue;
            }
            if table.len() == ROWS_MAX {
                let message = format!("`{name}` has more than {ROWS_MAX} rows");
                self.mistakes.add(chunk.line, 1, message, "fold devices into an axis");
                return None;
            }
            let entry = self.entry(name, chunk);
            whole &= entry.is_some();
            if let Some((key, row)) = entry {
                number = self.numbered::<I>(chunk.line, &key, number);
                table.push(row);
            } else {
                number += 1;
            }
        }
        whole.then_some(table)
    }

    /// The number that the next row should have.
    fn numbered<I: Id>(&mut self, line: usize, key: &str, expected: usize) -> usize {
        if key.strip_prefix(I::PREFIX) == Some(&expected.to_string()) {
            return expected + 1;
        }
        let message =
            format!("expected the handle {}{expected}, found `{key}`", I::PREFIX);
        self.mistakes.add(line, 3, message, "rows are numbered without gaps, from 0");
        let found = key.strip_prefix(I::PREFIX).and_then(|digits| digits.parse().ok());
        found.filter(|number| *number < ROWS_MAX).unwrap_or(expected) + 1
    }

    /// The one entry of a chunk.
    fn entry<T: DeserializeOwned>(
        &mut self,
        section: &str,
        chunk: Chunk<'_>,
    ) -> Option<(String, T)> {
        match read_yaml(chunk.text) {
            Ok(map) => {
                let entries: BTreeMap<String, T> = map;
                let single = entries.len() == 1;
                if !single {
                    let message = "expected one row on its own lines";
                    self.mistakes.add(chunk.line, 1, message, example(section));
                }
                entries.into_iter().next().filter(|_| single)
            }
            Err(YamlError { line, column, fault }) => {
                let last = chunk.text.lines().count().max(1);
                let line = chunk.line + line.min(last) - 1;
                let hint = fault.hint().map_or_else(|| example(section), str::to_owned);
                self.mistakes.add(line, column, fault.to_string(), hint);
                None
            }
        }
    }

    fn refuse_unknown(self) {
        for (name, chunk) in self.found {
            let message = format!("unknown section `{name}`");
            let known = EXAMPLES.map(|(name, _)| name);
            let hint = did_you_mean(name, &known)
                .unwrap_or_else(|| format!("known are {}", known.join(", ")));
            self.mistakes.add(chunk.line, 1, message, hint);
        }
    }
}

/// Cuts a block before every line that starts a chunk.
fn chunks<'a>(block: Block<'a>, starts: impl Fn(&Line<'_>) -> bool) -> Vec<Chunk<'a>> {
    let mut chunks = Vec::new();
    let mut open = Chunk { line: block.first, text: "" };
    let (mut from, mut at) = (0, 0);
    for (k, whole) in block.text.split_inclusive('\n').enumerate() {
        let line =
            Line { number: block.first + k, text: whole.trim_end_matches(['\n', '\r']) };
        if starts(&line) && at > from {
            chunks.push(Chunk { text: &block.text[from..at], ..open });
            from = at;
        }
        if from == at {
            open.line = line.number;
        }
        at += whole.len();
    }
    if at > from {
        chunks.push(Chunk { text: &block.text[from..at], ..open });
    }
    chunks
}
