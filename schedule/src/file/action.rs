//! One action as one line, both ways.

use super::cursor::{Cursor, Slip, slip};
use crate::{
    Action, ActionId, Collective, Content, Id, MicroBatch, Pass, Place, Routine,
    RoutineId, Row, Run, Spot, Stage, Sum, Table, Wait, Work,
};
use std::{
    fmt::{Display, Write as _},
    num::NonZeroU32,
};

const LINE: &str = "a line reads `a0 lag 0 feed r0.0 i0 b0.0 after a1-1`";
const LAUNCH: &str = "a launch reads `F s0 i0 launch r0.0 lane 0 k0 (b0.0 b1.0)`";
const BESIDE: &str =
    "a backward pass of a pair reads `B s1 i0 launch r0.0 lane 1 k0 (b0.0) beside a7`";
const TASK: &str =
    "a launch names its task, `F s0 i0`; `?` leaves pass and stage to the routine";
const TRANSFER: &str =
    "a transfer reads `transfer x0 r0.0 b0.0 -> r1.0 b1.0 parameter(s0)`";
const COLLECTIVE: &str =
    "a collective reads `all_reduce x0 g0 b0.0 -> b0.0 gradient(s0, [[i0, i1]])`";
const HOST: &str = "feed and report read `feed r0.0 i0 b0.0`";
const CONTENT: &str = "contents are parameter(s0), optimizer(s0), gradient(s0, [[i0, i1]]), gradient(s0, [i0 to i8 by 2]), \
                       squares(s0), squares(s0, s2), value(v0, i0), value_gradient(v0, i0)";
const WAITS: &str = "waits read `after a0, a7-1`; `-1` means one period earlier";

/// Writes the line of an action, with its end.
pub(super) fn write(
    out: &mut String,
    id: ActionId,
    action: &Action,
    routines: &Table<RoutineId, Routine>,
) {
    let Action { lag, reach, after, work } = action;
    let start = out.len();
    put(out, id);
    pad(out, start + 7);
    put(out, format_args!("lag {lag}"));
    pad(out, start + 14);
    if *reach > 0 {
        put(out, format_args!("reach {reach} "));
    }
    if let Some((routine, micro_batch)) = work.routine() {
        match routines.get(routine) {
            Some(Routine { pass, stage, .. }) => put(out, format_args!("{pass} {stage}")),
            None => put(out, "?"),
        }
        if let Some(micro_batch) = micro_batch {
            put(out, format_args!(" {micro_batch}"));
        }
    }
    pad(out, start + 25);
    write_work(out, work);
    for (k, Wait { action, distance }) in after.iter().enumerate() {
        put(out, if k == 0 { "  after " } else { ", " });
        put(out, action);
        if *distance > 0 {
            put(out, format_args!("-{distance}"));
        }
    }
    out.push('\n');
}

fn put(out: &mut String, piece: impl Display) {
    write!(out, "{piece}").expect("writing to a string cannot fail");
}

/// Fills up with blanks, at least one.
fn pad(out: &mut String, column: usize) {
    out.extend(std::iter::repeat_n(' ', column.saturating_sub(out.len()).max(1)));
}

fn write_work(out: &mut String, work: &Work) {
    match work {
        Work::Launch { at, lane, routine, micro_batch: _, rows, beside } => {
            put(out, format_args!("launch {at} lane {lane} {routine} ("));
            for (k, row) in rows.iter().enumerate() {
                put(out, if k > 0 { " " } else { "" });
                put(out, row);
            }
            out.push(')');
            if let Some(beside) = beside {
                put(out, format_args!(" beside {beside}"));
            }
        }
        Work::Transfer { link, from, to, content } => {
            let [Spot { at, row }, Spot { at: to, row: target }] = [from, to];
            let ends = format_args!("{at} {row} -> {to} {target}");
            put(out, format_args!("transfer {link} {ends} {content}"));
        }
        Work::Collective { link, kind, group, from, to, content } => {
            put(out, format_args!("{kind} {link} {group} {from} -> {to} {content}"));
        }
        Work::Feed { at, micro_batch, row } => {
            put(out, format_args!("feed {at} {micro_batch} {row}"));
        }
        Work::Report { at, micro_batch, row } => {
            put(out, format_args!("report {at} {micro_batch} {row}"));
        }
    }
}

/// What a line says.
pub(super) struct Read {
    pub(super) action: Action,
    /// The number of the action as it stands there.
    pub(super) number: usize,
    /// The mistake, when another number should stand there.
    pub(super) misnumbered: Option<Slip>,
}

/// Reads the line of the action that should have number `expected`.
pub(super) fn read(
    text: &str,
    expected: usize,
    routines: &Table<RoutineId, Routine>,
) -> Result<Read, Slip> {
    let mut cursor = Cursor::new(text);
    let at = cursor.at();
    let number = cursor.handle::<ActionId>(LINE)?.index();
    let misnumbered = (number != expected).then(|| {
        let message = format!("expected a{expected}, found a{number}");
        slip(at, message, "actions are numbered without gaps, from a0")
    });
    cursor.keyword("lag", LINE)?;
    let lag = cursor.number(LINE)?;
    let reach = match cursor.peek() {
        "reach" => {
            cursor.word();
            cursor.number(LINE)?
        }
        _ => 0,
    };
    let work = read_work(&mut cursor, routines)?;
    let after = read_waits(&mut cursor)?.as_slice().into();
    cursor.end(WAITS)?;
    Ok(Read { action: Action { lag, reach, after, work }, number, misnumbered })
}

fn read_work(
    cursor: &mut Cursor<'_>,
    routines: &Table<RoutineId, Routine>,
) -> Result<Work, Slip> {
    let at = cursor.at();
    if cursor.takes("?") {
        return read_launch(cursor, None, routines);
    }
    let word = cursor.word();
    match word {
        "F" => read_launch(cursor, Some(Pass::Forward), routines),
        "B" => read_launch(cursor, Some(Pass::Backward), routines),
        "I" => read_launch(cursor, Some(Pass::InputGradient), routines),
        "W" => read_launch(cursor, Some(Pass::WeightGradient), routines),
        "C" => read_launch(cursor, Some(Pass::Combine), routines),
        "N" => read_launch(cursor, Some(Pass::Norm), routines),
        "U" => read_launch(cursor, Some(Pass::Update), routines),
        "transfer" => read_transfer(cursor),
        "all_reduce" => read_collective(cursor, Collective::AllReduce),
        "reduce_scatter" => read_collective(cursor, Collective::ReduceScatter),
        "all_gather" => read_collective(cursor, Collective::AllGather),
        "feed" => read_host(cursor).map(|(at, micro_batch, row)| Work::Feed {
            at,
            micro_batch,
            row,
        }),
        "report" => read_host(cursor).map(|(at, micro_batch, row)| Work::Report {
            at,
            micro_batch,
            row,
        }),
        "launch" => Err(slip(at, "expected a task before `launch`", TASK)),
        _ => {
            let known = "known are launch (after its task), transfer, all_reduce, \
                         reduce_scatter, all_gather, feed, report";
            Err(slip(at, format!("unknown action `{word}`"), known))
        }
    }
}

fn read_launch(
    cursor: &mut Cursor<'_>,
    pass: Option<Pass>,
    routines: &Table<RoutineId, Routine>,
) -> Result<Work, Slip> {
    let task_at = cursor.at();
    let task = match pass {
        Some(pass) => Some((pass, cursor.handle::<Stage>(TASK)?)),
        None => None,
    };
    let micro_batch = match cursor.peek() {
        "launch" => None,
        _ => Some(cursor.handle::<MicroBatch>(TASK)?),
    };
    cursor.keyword("launch", LAUNCH)?;
    let at = cursor.handle::<Place>(LAUNCH)?;
    cursor.keyword("lane", LAUNCH)?;
    let lane = cursor.number(LAUNCH)?;
    let routine = cursor.handle::<RoutineId>(LAUNCH)?;
    let rows = read_rows(cursor)?.into();
    let beside = match cursor.takes("beside") {
        true => Some(cursor.handle(BESIDE)?),
        false => None,
    };
    if let (Some((pass, stage)), Some(known)) = (task, routines.get(routine))
        && (pass, stage) != (known.pass, known.stage)
    {
        let own = format!("{} {}", known.pass, known.stage);
        let message = format!("{routine} is {own}, not {pass} {stage}");
        return Err(slip(task_at, message, format!("write `{own}`, or `?`")));
    }
    Ok(Work::Launch { at, lane, routine, micro_batch, rows, beside })
}

fn read_rows(cursor: &mut Cursor<'_>) -> Result<Vec<Row>, Slip> {
    cursor.mark("(", LAUNCH)?;
    let mut rows = Vec::new();
    while !cursor.takes(")") {
        rows.push(cursor.handle(LAUNCH)?);
    }
    Ok(rows)
}

fn read_transfer(cursor: &mut Cursor<'_>) -> Result<Work, Slip> {
    let link = cursor.handle(TRANSFER)?;
    let from = Spot { at: cursor.handle(TRANSFER)?, row: cursor.handle(TRANSFER)? };
    cursor.mark("->", TRANSFER)?;
    let to = Spot { at: cursor.handle(TRANSFER)?, row: cursor.handle(TRANSFER)? };
    Ok(Work::Transfer { link, from, to, content: read_content(cursor)? })
}

fn read_collective(cursor: &mut Cursor<'_>, kind: Collective) -> Result<Work, Slip> {
    let link = cursor.handle(COLLECTIVE)?;
    let group = cursor.handle(COLLECTIVE)?;
    let from = cursor.handle(COLLECTIVE)?;
    cursor.mark("->", COLLECTIVE)?;
    let to = cursor.handle(COLLECTIVE)?;
    Ok(Work::Collective { link, kind, group, from, to, content: read_content(cursor)? })
}

fn read_host(cursor: &mut Cursor<'_>) -> Result<(Place, MicroBatch, Row), Slip> {
    Ok((cursor.handle(HOST)?, cursor.handle(HOST)?, cursor.handle(HOST)?))
}

fn read_content(cursor: &mut Cursor<'_>) -> Result<Content, Slip> {
    let at = cursor.at();
    let word = cursor.word();
    cursor.mark("(", CONTENT)?;
    let content = match word {
        "parameter" => Content::Parameter(cursor.handle(CONTENT)?),
        "optimizer" => Content::Optimizer(cursor.handle(CONTENT)?),
        "squares" => {
            let first = cursor.handle(CONTENT)?;
            let last = if cursor.takes(",") { cursor.handle(CONTENT)? } else { first };
            Content::Squares(first, last)
        }
        "gradient" => {
            let stage = cursor.handle(CONTENT)?;
            cursor.mark(",", CONTENT)?;
            Content::Gradient(stage, Box::new(read_sum(cursor, Sum::DEPTH)?))
        }
        "value" => {
            let value = cursor.handle(CONTENT)?;
            cursor.mark(",", CONTENT)?;
            Content::Value(value, cursor.handle(CONTENT)?)
        }
        "value_gradient" => {
            let value = cursor.handle(CONTENT)?;
            cursor.mark(",", CONTENT)?;
            Content::ValueGradient(value, cursor.handle(CONTENT)?)
        }
        _ => return Err(slip(at, format!("unknown content `{word}`"), CONTENT)),
    };
    cursor.mark(")", CONTENT)?;
    Ok(content)
}

/// `[part, part]`, perhaps empty; a part is a micro-batch or a sum, at most `depth` deep. Evenly
/// spaced micro-batches may stand as `[i0 to i8 by 2]`.
fn read_sum(cursor: &mut Cursor<'_>, depth: usize) -> Result<Sum, Slip> {
    if depth < Sum::DEPTH && !cursor.peek().is_empty() {
        return Ok(Sum::One(cursor.handle(CONTENT)?));
    }
    let at = cursor.at();
    if depth == 0 {
        let problem = format!("more than {} sums within sums", Sum::DEPTH);
        return Err(slip(at, problem, CONTENT));
    }
    cursor.mark("[", CONTENT)?;
    let mut parts = Vec::new();
    while !cursor.takes("]") {
        if !parts.is_empty() {
            cursor.mark(",", CONTENT)?;
        }
        parts.push(read_sum(cursor, depth - 1)?);
        if let ([Sum::One(first)], "to") = (parts.as_slice(), cursor.peek()) {
            let run = read_run(cursor, *first)?;
            cursor.mark("]", CONTENT)?;
            return Ok(Sum::Run(run));
        }
    }
    Ok(Sum::all(parts))
}

/// `to last by step` behind the first one.
fn read_run(cursor: &mut Cursor<'_>, first: MicroBatch) -> Result<Run, Slip> {
    let at = cursor.at();
    cursor.word();
    let last = cursor.handle(CONTENT)?;
    let step = match cursor.peek() {
        "by" => {
            cursor.word();
            cursor.number(CONTENT)?
        }
        _ => 1,
    };
    let run = NonZeroU32::new(step).and_then(|step| Run::reaching(first, last, step));
    run.ok_or_else(|| {
        slip(at, format!("steps of {step} do not lead from {first} to {last}"), CONTENT)
    })
}

fn read_waits(cursor: &mut Cursor<'_>) -> Result<Vec<Wait>, Slip> {
    let mut waits = Vec::new();
    if cursor.peek() != "after" {
        return Ok(waits);
    }
    cursor.word();
    loop {
        let action = cursor.handle(WAITS)?;
        let distance = if cursor.takes("-") { cursor.number(WAITS)? } else { 0 };
        waits.push(Wait { action, distance });
        if !cursor.takes(",") {
            return Ok(waits);
        }
    }
}
