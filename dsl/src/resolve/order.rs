//! `order 1f1b | listed("mine.csv")`: names of orders, and lists of passes that a file gives.

use super::{
    optimizer::called,
    plan::{alternatives, word},
    settings,
};
use crate::{
    Choice, Code, Files, ListMistake, Mistake, Search, SourceFile, Span, import,
    read_lists,
    report::{Known, Report},
    source,
    syntax::{Argument, Entry, Expression},
};
use roundelay_schedule::{DeviceList, Order, unmarked};

/// Sets the orders to try, and the lists of the one that has some.
pub(super) fn apply(
    search: &mut Search,
    entry: &Entry,
    files: &dyn Files,
    report: &mut Report,
) -> Known<()> {
    let mut lists = Vec::new();
    let orders = alternatives(entry, report, |value, report| {
        let (order, read) = order(value, files, report)?;
        if order == Order::Listed && !lists.is_empty() {
            return Err(report.error(value.span, second_file()));
        }
        lists.extend(read);
        Ok(order)
    })?;
    search.order = Choice::OneOf(orders);
    search.lists = lists;
    Ok(())
}

fn second_file() -> Mistake {
    let message = "a plan takes the lists of one file";
    let hint = "keep one `listed(…)`, and plan the other with \
                `--set 'order = listed(\"other.csv\")'`";
    Mistake::new(Code::Duplicate, message).hint(hint)
}

/// An order, with the lists of one that has some.
fn order(
    value: &Expression,
    files: &dyn Files,
    report: &mut Report,
) -> Known<(Order, Vec<DeviceList>)> {
    let (name, given) = called(value, "a name of order such as `1f1b`", report)?;
    match (name.text.as_str(), given) {
        ("listed", [file]) => Ok((Order::Listed, read(file, files, report)?)),
        ("listed", _) => {
            let mistake = Mistake::new(Code::Missing, "`listed` needs a file of lists");
            Err(report.error(value.span, mistake.hint("write `listed(\"mine.csv\")`")))
        }
        _ => Ok((word(value, "order", Order::ALL, report)?, Vec::new())),
    }
}

fn read(
    argument: &Argument,
    files: &dyn Files,
    report: &mut Report,
) -> Known<Vec<DeviceList>> {
    let span = argument.value.span;
    let path = settings::text(&argument.value).map_err(|mistake| {
        report.error(span, mistake.hint("write `listed(\"mine.csv\")`"))
    })?;
    let path = import::join(report.file(span.file).folder(), path);
    let text = files.read(&path).map_err(|why| {
        let message = format!("cannot read the lists `{path}`: {why}");
        let hint = "paths are relative to the file that names them, those of `--set` to the \
                    working folder; one line per device, cells such as `0F3`";
        report.error(span, Mistake::new(Code::Import, message).hint(hint))
    })?;
    let text = unmarked(&text);
    let file = report.add_file(SourceFile::new(path, text));
    read_lists(text).map(|read| read.lists).map_err(|mistakes| {
        for mistake in mistakes {
            let place = cell(report.file(file), file, &mistake);
            let ListMistake { message, hint, .. } = mistake;
            let mistake = Mistake::new(Code::Value, message).hint(hint);
            report.error_with(place, mistake, vec![(span, "named here".to_owned())]);
        }
        report.earlier()
    })
}

/// Where a cell stands in its file.
fn cell(source: &SourceFile, file: u32, mistake: &ListMistake) -> Span {
    let line = source.line_start(mistake.line);
    let text = source.line(source::count(mistake.line));
    let bytes = |characters: usize| -> u32 {
        source::count(text.chars().take(characters).map(char::len_utf8).sum())
    };
    let start = bytes(mistake.column - 1);
    let end = bytes(mistake.column - 1 + mistake.length);
    Span { file, start: line + start, end: line + end }
}
