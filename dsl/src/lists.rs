//! Lists of passes for the devices of a pipeline, as comma-separated values: what PyTorch's
//! pipelining calls `compute_only`. One line per device, one pass per cell (`0F3`, `7B1`, `2I0`,
//! `2W0`), or a pair that a device does at once (`(0F3;7B1)OVERLAP_F_B`); empty cells where a
//! device rests.

use crate::{Choice, Numbers, Search};
use roundelay_schedule::{
    DeviceList, Id, Item, Listed, Order, list_faults, listed_in, printable, unmarked,
};
use std::collections::BTreeSet;

/// Lists that are one training step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lists {
    /// Per device, in the order of the lines.
    pub lists: Vec<DeviceList>,
    /// S.
    pub stages: u32,
    /// N.
    pub micro_batches: u32,
}

/// One mistake in a file of lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListMistake {
    /// Line, from one; the last one where nothing stands that could be named.
    pub line: usize,
    /// Column in characters, from one.
    pub column: usize,
    /// Characters of the cell, at least one.
    pub length: usize,
    /// What is wrong; lower case, no full stop.
    pub message: String,
    /// What to do.
    pub hint: String,
}

/// Passes of PyTorch's lowered schedules that say what Roundelay derives.
const DERIVED: [&str; 10] = [
    "SEND_F",
    "RECV_F",
    "SEND_B",
    "RECV_B",
    "WAIT_SEND_F",
    "WAIT_SEND_B",
    "UNSHARD",
    "RESHARD",
    "REDUCE_GRAD",
    "WAIT_REDUCE_GRAD",
];

/// Whether a text begins as lists do: with a pass.
pub fn begins_lists(text: &str) -> bool {
    let mut cells = unmarked(text).split([',', '\n']).map(str::trim);
    cells.find(|cell| !cell.is_empty()).is_some_and(|cell| item(cell).is_ok())
}

/// Reads lists, and checks that they are one training step: every pass once, every stage on one
/// device, and an order in which all devices come to their ends.
///
/// # Errors
/// Every mistake, in the order of the file.
///
/// ```
/// let lists = roundelay_dsl::read_lists("0F0,0F1,,0B0,0B1\n,1F0,1B0,1F1,1B1\n").unwrap();
/// assert_eq!((lists.stages, lists.micro_batches, lists.lists[0].len()), (2, 2, 4));
/// let mistakes = roundelay_dsl::read_lists("0F0,0B0\n1F0,1B0xyz").unwrap_err();
/// assert_eq!((mistakes[0].line, mistakes[0].column), (2, 5));
/// ```
pub fn read_lists(text: &str) -> Result<Lists, Vec<ListMistake>> {
    let mut mistakes = Vec::new();
    let rows: Vec<Row> = unmarked(text)
        .lines()
        .enumerate()
        .map(|(index, line)| Row::read(index + 1, line, &mut mistakes))
        .collect();
    if mistakes.is_empty() {
        mistakes.extend(gap(&rows, "stage", |pass| pass.stage.index()));
        mistakes.extend(gap(&rows, "micro-batch", |pass| pass.micro_batch.index()));
    }
    if !mistakes.is_empty() {
        return Err(mistakes);
    }
    let lists: Vec<DeviceList> = rows
        .iter()
        .map(|row| row.items.iter().map(|(_, item)| *item).collect())
        .collect();
    let Some((stages, micro_batches)) = counts(&lists) else {
        return Err(vec![Cell::at(1, 1, "").mistake(
            "the file lists no pass",
            "write one line per device, such as `0F0,0F1,0B0,0B1`",
        )]);
    };
    if u64::from(stages) * u64::from(micro_batches) > crate::limit::PASSES {
        return Err(vec![Cell::at(1, 1, "").mistake(
            &format!("{stages} stages and {micro_batches} micro-batches are too many"),
            "look for a cell with a very large number",
        )]);
    }
    let faults = list_faults(&lists, stages, micro_batches);
    if faults.is_empty() {
        return Ok(Lists { lists, stages, micro_batches });
    }
    let last = Cell::at(rows.len(), 1, "");
    let mistake = |fault: roundelay_schedule::ListFault| {
        let at = fault.place.map(|(device, place)| rows[device].items[place].0.clone());
        at.unwrap_or_else(|| last.clone()).mistake(&fault.message, &fault.hint)
    };
    let mut mistakes: Vec<ListMistake> = faults.into_iter().map(mistake).collect();
    mistakes.sort_by_key(|mistake| (mistake.line, mistake.column));
    Err(mistakes)
}

/// How many stages and micro-batches lists have, if they have any pass.
fn counts(lists: &[DeviceList]) -> Option<(u32, u32)> {
    let all = || lists.iter().flat_map(|list| listed_in(list));
    let count = |number: fn(&Listed) -> usize| {
        let last = all().map(|pass| number(&pass)).max()?;
        Some(u32::try_from(last + 1).unwrap_or(u32::MAX))
    };
    Some((count(|pass| pass.stage.index())?, count(|pass| pass.micro_batch.index())?))
}

impl Search {
    /// Numbers of stages to try: those that are named, else as many as lists have that are the
    /// only order.
    pub fn stages_to_try(&self) -> Numbers {
        self.named_or(&self.stages, |(stages, _)| stages)
    }

    /// Numbers of micro-batches to try: those that are named, else as many as lists have that are
    /// the only order.
    pub fn micro_batches_to_try(&self) -> Numbers {
        self.named_or(&self.micro_batches, |(_, micro_batches)| micro_batches)
    }

    fn named_or(&self, named: &Numbers, count: fn((u32, u32)) -> u32) -> Numbers {
        let alone = self.order == Choice::OneOf(vec![Order::Listed]);
        match counts(&self.lists).map(count).filter(|_| alone) {
            Some(count) if *named == Numbers::Open => {
                Numbers::Ranges(vec![(count.into(), count.into())])
            }
            _ => named.clone(),
        }
    }
}

/// The first cell whose number stands behind one that no cell names: numbers count from 0.
fn gap(rows: &[Row], what: &str, number: fn(&Listed) -> usize) -> Option<ListMistake> {
    let each = |(cell, item): &'_ (Cell, Item)| -> Vec<(Cell, Listed)> {
        item.passes().iter().map(|pass| (cell.clone(), *pass)).collect()
    };
    let all = || rows.iter().flat_map(|row| row.items.iter().flat_map(each));
    let named: BTreeSet<usize> = all().map(|(_, pass)| number(&pass)).collect();
    let free = (0..).zip(&named).find(|(count, named)| count != *named)?.0;
    let (cell, pass) = all().find(|(_, pass)| number(pass) > free)?;
    let found = number(&pass);
    let message = format!("{pass} names {what} {found}, and no pass names {what} {free}");
    Some(cell.mistake(&message, "count from 0, without gaps"))
}

/// Lists as comma-separated values, one line per device.
pub fn write_lists(lists: &[DeviceList]) -> String {
    let line = |list: &DeviceList| {
        let cells: Vec<String> = list.iter().map(Item::to_string).collect();
        format!("{}\n", cells.join(","))
    };
    lists.iter().map(line).collect()
}

/// A line of the file.
struct Row {
    items: Vec<(Cell, Item)>,
}

/// A cell and where it stands.
#[derive(Clone)]
struct Cell {
    line: usize,
    column: usize,
    length: usize,
}

impl Cell {
    fn at(line: usize, column: usize, text: &str) -> Self {
        Self { line: line.max(1), column, length: text.chars().count().max(1) }
    }

    fn mistake(&self, message: &str, hint: &str) -> ListMistake {
        let Self { line, column, length } = *self;
        let (message, hint) = (printable(message).into_owned(), hint.to_owned());
        ListMistake { line, column, length, message, hint }
    }
}

impl Row {
    fn read(line: usize, text: &str, mistakes: &mut Vec<ListMistake>) -> Self {
        let mut row = Self { items: Vec::new() };
        if text.trim().is_empty() {
            let mistake = Cell::at(line, 1, text).mistake(
                "an empty line is a device without passes",
                "delete the line; every line is one device",
            );
            mistakes.push(mistake);
            return row;
        }
        let mut column = 1;
        for raw in text.split(',') {
            let blank = raw.chars().take_while(|c| c.is_whitespace()).count();
            let trimmed = raw.trim();
            let cell = Cell::at(line, column + blank, trimmed);
            column += raw.chars().count() + 1;
            if trimmed.is_empty() {
                continue;
            }
            match item(trimmed) {
                Ok(item) => row.items.push((cell, item)),
                Err((message, hint)) => mistakes.push(cell.mistake(&message, hint)),
            }
        }
        row
    }
}

/// The pass or the pair of one cell.
fn item(cell: &str) -> Result<Item, (String, &'static str)> {
    let word = cell.trim_matches(|c: char| c.is_ascii_digit());
    if DERIVED.contains(&word) {
        let hint = "give the `compute_only` form: messages, gathers and sums are derived";
        return Err((format!("`{cell}` is communication"), hint));
    }
    cell.parse().map_err(|message| (message, "write whole cells only"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_stay_pairs_and_blanks_are_nothing() {
        let text = "0F0, ,(0B0;0F1)OVERLAP_F_B,0B1\r\n1F0,1B0,1F1,1B1";
        let lists = read_lists(text).unwrap();
        let written = "0F0,(0F1;0B0)OVERLAP_F_B,0B1\n1F0,1B0,1F1,1B1\n";
        assert_eq!(write_lists(&lists.lists), written);
        assert_eq!(read_lists(written).unwrap(), lists);
    }

    #[test]
    fn no_cell_moves_the_cursor() {
        let mistakes = read_lists("0F0,0B0\u{1b}[2J").unwrap_err();
        assert!(mistakes[0].message.contains("`0B0\\u{1b}[2J`"), "{mistakes:?}");
    }

    #[test]
    fn each_mistake_has_its_place() {
        for (text, line, column, told) in [
            ("0F0,0B0xyz", 1, 5, "0B0xyz"),
            ("0F0,0B0\n\n1F0,1B0", 2, 1, "empty line"),
            ("0F0,0SEND_F0,0B0", 1, 5, "communication"),
            ("0F0,0UNSHARD,0B0", 1, 5, "communication"),
            ("# comment", 1, 1, "# comment"),
            ("", 1, 1, "no pass"),
            ("0B0,0F0", 1, 1, "stands above"),
            ("0F0,0B0,0F1", 1, 1, "0B1 is missing"),
            ("0F0,0F1,0B0,0B1\n0F0,1F0,1B0,1F1,1B1", 2, 1, "stage 0 is on device 0 too"),
            ("0F4000000000,0B0", 1, 1, "0F4000000000 names micro-batch 4000000000"),
            ("0F4000000000,0B4000000000", 1, 1, "micro-batch 0"),
            ("0F9999999999,0B0", 1, 1, "0F9999999999"),
            ("0F0,0B0\n2F0,2B0", 2, 1, "2F0 names stage 2, and no pass names stage 1"),
            ("0F0,0B0,0F7,0B7", 1, 9, "0F7 names micro-batch 7, and no pass names"),
            ("1F0,1B0", 1, 1, "no pass names stage 0"),
            ("0F0,(0F1;0B1)OVERLAP_F_B,0B0", 1, 5, "0B1 needs 0F1"),
            ("0F0,(0F1,0B0)OVERLAP_F_B,0B1", 1, 5, "(0F1"),
            ("0F0,(0B0)OVERLAP_F_B", 1, 5, "pair of one pass"),
            ("0F0,0F1,(0B0;0B1)OVERLAP_F_B", 1, 9, "a forward pass and a backward pass"),
        ] {
            let mistakes = read_lists(text).unwrap_err();
            let found = mistakes.iter().any(|mistake| {
                (mistake.line, mistake.column) == (line, column)
                    && mistake.message.contains(told)
            });
            assert!(found, "{text:?}: {mistakes:?}");
        }
    }
}
