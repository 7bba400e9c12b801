//! The lines that say what may be planned: those of the `plan` block and those behind `--set`, each
//! with its place, so that whoever finds one broken points at it.

use crate::{
    Files, SourceFile, SourcePlace, Span, import,
    report::Report,
    resolve::{Definitions, Set},
    syntax::{Choice, Entry, Setting},
};
use roundelay_schedule::unmarked;

/// One line: what it is about, how it is written, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanLine {
    /// The key, behind the one around it and a dot: `stages`, `tensor.rows`.
    pub key: String,
    /// The line as it is written.
    pub text: String,
    /// Where.
    pub place: SourcePlace,
}

/// The lines that count, in their order: what is set stands in place of what the block says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanLines {
    /// Where the `plan` block begins; the begin of a file that has none.
    pub block: SourcePlace,
    lines: Vec<PlanLine>,
}

impl PlanLines {
    /// The lines of a program, that is of a main file and what it imports, and of settings; all were
    /// read without a mistake.
    pub fn of(
        main: &SourceFile,
        files: &dyn Files,
        settings: &[impl AsRef<str>],
    ) -> Self {
        let main = SourceFile::new(main.path.as_str(), unmarked(&main.text));
        let mut report = Report::default();
        let trees = import::load(&main, files, &mut report);
        let block = Definitions::collect(&trees, &mut report).plan().ok().flatten();
        let span = block.map_or(Span::default(), |section| section.span);
        let entries = block.map_or(&[][..], |section| &section.entries);
        let source = report.file(span.file);
        let mut all = Self { block: SourcePlace::new(source, span), lines: Vec::new() };
        entries.iter().for_each(|entry| all.lines.extend(lines(source, entry)));
        for setting in settings {
            let Set { written, entry, .. } = Set::new(setting.as_ref());
            let set = entry.map(|entry| lines(&written, &entry));
            set.into_iter().flatten().for_each(|line| all.set(line));
        }
        all
    }

    /// Puts a line in place of those that say the same; each of `stage` says something of its own.
    fn set(&mut self, line: PlanLine) {
        self.lines.retain(|known| known.key != line.key || line.key == "stage");
        self.lines.push(line);
    }

    /// The lines of a key; `stage` alone may have several.
    pub fn of_key<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a PlanLine> {
        self.lines.iter().filter(move |line| line.key == key)
    }
}

/// The lines of an entry: those in its braces, where it has no value of its own.
fn lines(source: &SourceFile, entry: &Entry) -> Vec<PlanLine> {
    let outer = &entry.key.text;
    match entry.value {
        Setting::Nothing if !entry.entries.is_empty() => {
            let named = |inner: &Entry| format!("{outer}.{}", inner.key.text);
            entry.entries.iter().map(|inner| line(source, named(inner), inner)).collect()
        }
        _ => vec![line(source, outer.clone(), entry)],
    }
}

fn line(source: &SourceFile, key: String, entry: &Entry) -> PlanLine {
    let span = Span { end: end(entry), ..entry.key.span };
    let written = source.text.get(span.start as usize..span.end as usize);
    let mut text = in_one_row(written.unwrap_or_default());
    if !entry.entries.is_empty() {
        text.push_str(" }");
    }
    PlanLine { key, text, place: SourcePlace::new(source, span) }
}

/// What stands in several rows, as one would write it in one, without comments.
fn in_one_row(written: &str) -> String {
    let rows = written.lines().map(|row| without_comment(row).trim());
    rows.filter(|row| !row.is_empty()).fold(String::new(), |all, row| {
        match all.ends_with(['{', '(', '[', ',', '|']) || row.starts_with([')', ']']) {
            _ if all.is_empty() => row.to_owned(),
            true => format!("{all} {row}"),
            false => format!("{all}, {row}"),
        }
    })
}

fn without_comment(row: &str) -> &str {
    let mut is_text = false;
    let begins = |sign: char| {
        is_text ^= sign == '"';
        sign == '#' && !is_text
    };
    row.find(begins).map_or(row, |end| &row[..end])
}

/// Where the last word of an entry ends.
fn end(entry: &Entry) -> u32 {
    let own = match &entry.value {
        Setting::AtMost(value) | Setting::AtLeast(value) => value.span.end,
        Setting::OneOf(choices) => choices.last().map_or(entry.key.span.end, last),
        Setting::Nothing | Setting::Broken => entry.key.span.end,
    };
    entry.entries.iter().map(end).fold(own, u32::max)
}

fn last(choice: &Choice) -> u32 {
    choice.last.as_ref().unwrap_or(&choice.first).span.end
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NoFiles;

    const TEXT: &str = "\u{feff}plan {
    exactness delayed, stages 2 .. 4 | 8
    tensor { rows <= 8, contraction gather }
    rule cyclic(slack = 1)   # why
    stage 0 .. 1 { recompute full }
    memory <= 1 GB
}";

    #[test]
    fn lines_stand_where_they_are_written() {
        let lines = PlanLines::of(&SourceFile::new("a.rdl", TEXT), &NoFiles, &[""; 0]);
        assert_eq!((lines.block.line, lines.block.column), (1, 1));
        for (key, text, line, column) in [
            ("exactness", "exactness delayed", 2, 5),
            ("stages", "stages 2 .. 4 | 8", 2, 24),
            ("tensor.rows", "rows <= 8", 3, 14),
            ("tensor.contraction", "contraction gather", 3, 25),
            ("rule", "rule cyclic(slack = 1)", 4, 5),
            ("stage", "stage 0 .. 1 { recompute full }", 5, 5),
            ("memory", "memory <= 1 GB", 6, 5),
        ] {
            let found: Vec<&PlanLine> = lines.of_key(key).collect();
            let [found] = found[..] else { panic!("{key}: {found:?}") };
            assert_eq!(found.text, text);
            let SourcePlace { file, .. } = &found.place;
            assert_eq!((file.as_str(), found.place.line), ("a.rdl", line), "{key}");
            assert_eq!(found.place.column, column, "{key}");
        }
    }

    #[test]
    fn lines_of_several_rows_are_told_in_one() {
        let text = "plan {
            order listed( # of a
                \"a#1.csv\"
            )
            stage 0 {
                # so
                recompute full  # why
            }
        }";
        let lines = PlanLines::of(&SourceFile::new("a.rdl", text), &NoFiles, &[""; 0]);
        for (key, text) in [
            ("order", "order listed( \"a#1.csv\" )"),
            ("stage", "stage 0 { recompute full }"),
        ] {
            let found: Vec<&str> = lines.of_key(key).map(|line| &*line.text).collect();
            assert_eq!(found, [text]);
        }
    }

    #[test]
    fn what_is_set_takes_the_place_of_a_line() {
        let set = ["memory<=2 GB", "tensor.rows=1", "stage 2 { recompute none }"];
        let lines = PlanLines::of(&SourceFile::new("a.rdl", TEXT), &NoFiles, &set);
        let said = |key| -> Vec<(&str, &str)> {
            let all = lines.of_key(key);
            all.map(|line| (line.place.file.as_str(), line.text.as_str())).collect()
        };
        assert_eq!(said("memory"), [("--set", "memory<=2 GB")]);
        assert_eq!(said("tensor.rows"), [("--set", "rows 1")]);
        assert_eq!(said("tensor.contraction"), [("a.rdl", "contraction gather")]);
        let stages = [
            ("a.rdl", "stage 0 .. 1 { recompute full }"),
            ("--set", "stage 2 { recompute none }"),
        ];
        assert_eq!(said("stage"), stages);
        let none =
            PlanLines::of(&SourceFile::new("b.rdl", "# nothing"), &NoFiles, &[""; 0]);
        assert_eq!((none.block.line, none.block.column), (1, 1));
        assert_eq!(none.of_key("memory").count(), 0);
    }
}
