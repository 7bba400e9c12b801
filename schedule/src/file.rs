//! The schedule file: a header as YAML, then one compact line per action.
//!
//! ```text
//! roundelay schedule 1
//! fingerprint: "0f3c5a7700aa11bb-93e0a2c4d1b75f68-5b1e90c27d3f4a86"
//! target:
//!   name: laptop
//!   …
//! rings:
//!   r0: {devices: [d0], turn: 0, lanes: 1}
//! buffers:
//!   b0: {home: r0, subject: {parameter: [s0, whole]}, offset: 0, size: 64, …}
//! hash 89abcdef01234567
//! actions
//! a0     lag 0             feed r0.0 i0 b3.0
//! a1     lag 0  F s0 i0    launch r0.0 lane 0 k0 (b0.0 b1.0 b3.0)  after a0
//! a2     lag 1  reach 1    transfer x0 r0.0 b0.0 -> r1.0 b4.0 parameter(s0)  after a1-1
//! a3     lag 0             all_reduce x0 g0 b2.0 -> b2.0 gradient(s0, [[i0, i1]])
//! a4     lag 0             report r0.0 i0 b5.0
//! ```
//!
//! `a1-1` is a1 one period earlier. `[i0 to i8 by 2]` is `[i0, i2, i4, i6, i8]`. Pass and stage of a
//! launch are the routine's; they stand there for the reader and must agree, or be `?`. `#` starts a
//! comment. Sections of the header may stand in any order; rows of a table start with two spaces and
//! their handle. The hash covers everything but its own line, whether lines end with `\n` or `\r\n`.
//! Reading is linear in the length of the text.

mod action;
mod code;
mod cursor;
mod error;
mod header;
mod layout;
mod lines;
mod node;
mod parts;

pub use error::{FileError, FileErrors};
pub use lines::Lines;
pub use parts::begins_schedule;

use crate::{Action, ActionId, FORMAT, Routine, RoutineId, Schedule, Table};
use error::Mistakes;
use parts::{Block, Parts};

/// Largest file that is read, in bytes.
const FILE_BYTES_MAX: usize = 256 << 20;
/// Longest line that is read, in bytes.
const LINE_BYTES_MAX: usize = 1 << 20;
/// Most rows of a table of the header.
const ROWS_MAX: usize = 1 << 20;
/// Most actions.
const ACTIONS_MAX: usize = 1 << 22;

/// Writes a schedule; [`read`] makes the same schedule of it, and writing that gives the same
/// text, byte for byte.
pub fn write(schedule: &Schedule) -> String {
    let mut head = format!("roundelay schedule {FORMAT}\n");
    header::write(&mut head, schedule);
    let mut tail = String::from("actions\n");
    for (id, action) in schedule.actions.iter() {
        action::write(&mut tail, id, action, &schedule.routines);
    }
    let hash = parts::content_hash(&head, &tail);
    head + &parts::hash_line(hash) + &tail
}

/// Reads a schedule. What it says may still be wrong: that is the checker's business.
///
/// # Errors
/// Every mistake of the text, in order of lines. A wrong hash is one.
pub fn read(text: &str) -> Result<Schedule, FileErrors> {
    let mut mistakes = Mistakes::default();
    let schedule = parts::split(text, &mut mistakes).and_then(|parts| {
        parts.check_hash(&mut mistakes);
        read_parts(&parts, &mut mistakes)
    });
    mistakes.finish(schedule)
}

/// Recomputes the hash after an edit by hand. Nothing else is changed, or looked at.
///
/// # Errors
/// When the text has not the outline of a schedule file.
pub fn seal(text: &str) -> Result<String, FileErrors> {
    let mut mistakes = Mistakes::default();
    let sealed = parts::split(text, &mut mistakes).map(|parts| parts.sealed());
    mistakes.finish(sealed)
}

fn read_parts(parts: &Parts<'_>, mistakes: &mut Mistakes) -> Option<Schedule> {
    let header = header::read(parts.header, mistakes);
    let none = Table::new();
    let routines = header.as_ref().map_or(&none, |schedule| &schedule.routines);
    let actions = read_actions(parts.actions, routines, mistakes);
    header.map(|schedule| Schedule { actions, ..schedule })
}

fn read_actions(
    block: Block<'_>,
    routines: &Table<RoutineId, Routine>,
    mistakes: &mut Mistakes,
) -> Table<ActionId, Action> {
    let mut actions = Table::new();
    let mut number = 0;
    for line in block.lines().filter(|line| !line.bare().is_empty()) {
        if actions.len() == ACTIONS_MAX {
            let message = format!("more than {ACTIONS_MAX} actions");
            mistakes.add(line.number, 1, message, "split the schedule over more axes");
            break;
        }
        if !line.fits(mistakes) {
            continue;
        }
        match action::read(line.bare(), number, routines) {
            Ok(read) => {
                number = read.number + 1;
                if let Some(slip) = read.misnumbered {
                    mistakes.add_slip(line, slip);
                }
                actions.push(read.action);
            }
            Err(slip) => {
                number += 1;
                mistakes.add_slip(line, slip);
            }
        }
    }
    actions
}
