//! `measured "table.yaml"`: tables of measured times, each read once.

use super::settings::{single, text};
use crate::{
    Code, Files, Mistake, SourceFile, Span, Train, import,
    report::{Known, Report, Reported},
    source,
    syntax::{Entry, Name},
};
use roundelay_schedule::{Profile, ProfileMistake, read_profile};
use std::{collections::BTreeMap, sync::Arc};

/// What becomes of tables that a program names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tables {
    /// They are read, and a missing or wrong one is a mistake.
    Read,
    /// They are left alone: whoever writes them need not have them.
    Leave,
}

/// The tables of one program.
pub(super) struct Shelf<'a> {
    files: &'a dyn Files,
    tables: Tables,
    known: BTreeMap<String, Known<Table>>,
}

/// A table that was read.
#[derive(Clone)]
struct Table {
    profile: Arc<Profile>,
    /// Number of its file in the report.
    file: u32,
    /// Where the program names it first.
    named: Span,
}

impl<'a> Shelf<'a> {
    /// No table yet.
    pub(super) fn new(files: &'a dyn Files, tables: Tables) -> Self {
        Self { files, tables, known: BTreeMap::new() }
    }

    /// Where files are read.
    pub(super) fn files(&self) -> &'a dyn Files {
        self.files
    }

    /// The table of an entry `measured`; none when there is no entry or tables are left alone.
    pub(super) fn profile(
        &mut self,
        entry: Option<&Entry>,
        report: &mut Report,
    ) -> Known<Option<Arc<Profile>>> {
        let Some(entry) = entry else { return Ok(None) };
        let expression = single(entry, report)?;
        let path = text(expression).map_err(|mistake| {
            let mistake = mistake.hint("write `measured \"table.yaml\"`");
            report.error(expression.span, mistake)
        })?;
        if self.tables == Tables::Leave {
            return Ok(None);
        }
        let folder = report.file(expression.span.file).folder();
        let path = import::join(folder, path);
        if !self.known.contains_key(&path) {
            let table = self.read(&path, expression.span, report);
            self.known.insert(path.clone(), table);
        }
        self.known[&path].clone().map(|table| Some(table.profile))
    }

    fn read(&self, path: &str, named: Span, report: &mut Report) -> Known<Table> {
        let text = self.files.read(path).map_err(|why| {
            let message = format!("cannot read the table `{path}`: {why}");
            let mistake = Mistake::new(Code::Import, message);
            let hint = "`roundelay profile FILE.rdl -o table.yaml` writes one; paths are \
                        relative to the file that names them";
            report.error(named, mistake.hint(hint))
        })?;
        let read = read_profile(&text);
        let file = report.add_file(SourceFile::new(path, text));
        let profile = read.map_err(|errors| {
            let of = |ProfileMistake { line, message }| {
                let place = line_span(report.file(file), file, line);
                let mistake = Mistake::new(Code::Table, message);
                let mistake = mistake.hint("write the table anew with `profile`");
                (place, mistake)
            };
            let all: Vec<(Span, Mistake)> = errors.0.into_iter().map(of).collect();
            for (place, mistake) in all {
                report.error_with(place, mistake, vec![(named, "named here".to_owned())]);
            }
            report.earlier()
        })?;
        Ok(Table { profile: Arc::new(profile), file, named })
    }

    /// Reports a table that was measured with another number of threads than the device has.
    pub(super) fn check_threads(
        &self,
        profile: &Arc<Profile>,
        threads: u32,
        device: &Name,
        report: &mut Report,
    ) -> Known<()> {
        let table = self.table(profile);
        let measured = profile.threads;
        if measured == threads {
            return Ok(());
        }
        let message = format!(
            "the table was measured with {measured} threads, device `{}` has {threads}",
            device.text
        );
        Err(disagree(table, device.span, "threads:", message, report))
    }

    /// Reports tables of another element type than the training's.
    pub(super) fn check_dtype(&self, train: &Train, report: &mut Report) {
        for table in self.known.values().flatten() {
            if table.profile.dtype != train.dtype {
                let (measured, trained) = (table.profile.dtype, train.dtype);
                let message = format!(
                    "the table was measured in {measured}, the training is in {trained}"
                );
                disagree(table, table.named, "dtype:", message, report);
            }
        }
    }

    fn table(&self, profile: &Arc<Profile>) -> &Table {
        let mut tables = self.known.values().flatten();
        let table = tables.find(|table| Arc::ptr_eq(&table.profile, profile));
        table.expect("profiles come from the shelf")
    }
}

/// A mistake of a program that a table does not go with; shows the table's line too.
fn disagree(
    table: &Table,
    place: Span,
    key: &str,
    message: String,
    report: &mut Report,
) -> Reported {
    let source = report.file(table.file);
    let line = source.text.lines().position(|line| line.starts_with(key));
    let said = line_span(source, table.file, line.unwrap_or(0) + 1);
    let mistake = Mistake::new(Code::Table, message)
        .hint("measure again with `roundelay profile`, or name another table");
    report.error_with(place, mistake, vec![(said, "as the table says".to_owned())])
}

/// The range of a line, counted from one.
fn line_span(source: &SourceFile, file: u32, line: usize) -> Span {
    let start = source.line_start(line);
    let text = source.line(source::count(line));
    Span { file, start, end: start + source::count(text.len()) }
}
