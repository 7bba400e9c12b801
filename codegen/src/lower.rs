//! From a program and a plan to a schedule; no decision is made here.
//!
//! The passes: stage code, order and sites; per stage its state; the passes with their values;
//! slots; what is carried; offsets; waits.

mod arena;
mod arrivals;
mod calendar;
mod code;
mod common;
mod compute;
mod dense;
mod draft;
mod error;
mod job;
mod lowerer;
mod order;
mod pairs;
mod rest;
mod rows;
mod site;
mod state;
mod waits;

pub use error::LowerError;
pub use job::whole_job;
pub use lowerer::Lowerer;
pub use order::device_lists;

use crate::{
    Stages,
    fit::ALIGNMENT,
    rewrite::{Everywhere, Listed, LoweringChoice},
};
use code::CodeKey;
use draft::{Draft, DraftAction, DraftWork, End, Hold, list_order};
use job::job;
use order::descending;
use roundelay_dsl::Program;
use roundelay_schedule::{
    Action, Buffer, BufferId, Bytes, Cells, Plan, Queues, Row, Schedule, Spot, Stage,
    Table, Waits, Work, Writes,
};
use rows::Rows;
use state::StageRows;
use std::borrow::Cow;

/// Lowers a plan: launches, transfers, collectives, buffers and waits. Its routines have no times yet:
/// those are for whoever prices them.
///
/// # Errors
/// When the plan does not fit the program, or asks for what no schedule can do; the message says
/// which decision.
pub fn lower(program: &Program, plan: &Plan) -> Result<Schedule, LowerError> {
    lower_with(program, plan, &Listed(&plan.rewrites))
}

/// Lowers a plan; where it lists no rewrites, or no ways of maps, with those that `choice` chooses.
/// They stand in the plan of the schedule.
///
/// # Errors
/// As [`lower`].
pub fn lower_with(
    program: &Program,
    plan: &Plan,
    choice: &dyn LoweringChoice,
) -> Result<Schedule, LowerError> {
    let program = &*fitting(program, plan)?;
    let order = order::Slots::new(plan, plan.cell_micro_batches())?;
    lower_in(program, plan, order, choice)
}

/// Lowers a plan with each backward pass in two halves, one right after the other, whatever its
/// order says: what tests compare with whole passes.
///
/// # Errors
/// As [`lower`].
#[doc(hidden)]
pub fn lower_halved(program: &Program, plan: &Plan) -> Result<Schedule, LowerError> {
    let program = &*fitting(program, plan)?;
    let order = order::Slots::new(plan, plan.cell_micro_batches())?.halved();
    lower_in(program, plan, order, &Everywhere)
}

fn lower_in(
    program: &Program,
    plan: &Plan,
    order: order::Slots,
    choice: &dyn LoweringChoice,
) -> Result<Schedule, LowerError> {
    let code = CodeKey::new(program, plan, &order).derive(program, choice)?;
    let finish = |draft: Draft<'_>| Ok(arranged(draft)?.with_waits());
    let schedule = drafted(program, plan, (order, &code), finish)?;
    Ok(schedule.compiled_from(&roundelay_dsl::fingerprint(program)))
}

/// What `finish` makes of the draft of a plan whose stages have this code.
fn drafted<T>(
    program: &Program,
    plan: &Plan,
    (order, code): (order::Slots, &Stages),
    finish: impl FnOnce(Draft<'_>) -> Result<T, LowerError>,
) -> Result<T, LowerError> {
    tied(plan, code)?;
    let (rewrites, maps) = (code.rewrites.clone(), code.maps.clone());
    let plan = &Plan { rewrites, maps, ..plan.clone() };
    let job = job(program, code);
    let mut draft = Draft::new(plan, &program.target, &job, code, order);
    let mut states = Table::<Stage, StageRows>::new();
    for stage in draft.keepers() {
        states.push(state::lay_out(&mut draft, stage)?);
    }
    state::tie(&mut draft, &mut states)?;
    state::close(&mut draft)?;
    compute::add(&mut draft, &states)?;
    finish(draft)
}

/// The ties of a plan are those of its stages, and it can have them.
fn tied(plan: &Plan, code: &Stages) -> Result<(), LowerError> {
    if plan.ties == code.ties {
        return Ok(());
    }
    let expected = code.ties.clone();
    plan.clone().with_ties(expected.clone()).check_ties()?;
    Err(LowerError::Ties { found: plan.ties.clone(), expected })
}

/// The program with the model that the plan's rule trains, which the plan fits.
fn fitting<'a>(
    program: &'a Program,
    plan: &Plan,
) -> Result<Cow<'a, Program>, LowerError> {
    let program = program.under(plan.rule).map_err(|m| LowerError::Units(m.message))?;
    fits(&program, plan)?;
    Ok(program)
}

fn fits(program: &Program, plan: &Plan) -> Result<(), LowerError> {
    let micro_batches = plan.all_micro_batches();
    if micro_batches == 0 || !program.train.batch.is_multiple_of(micro_batches) {
        return Err(LowerError::Batch { batch: program.train.batch, micro_batches });
    }
    if let Some(fault) = plan.faults(&program.target).next() {
        return Err(fault.into());
    }
    let last = program.model.cuttable().saturating_sub(1);
    let outside = |cut: &&u32| !(1..=last as u64).contains(&u64::from(**cut));
    if let Some(&cut) = plan.cuts.iter().find(outside) {
        return Err(LowerError::Cut { cut, last });
    }
    let boundaries = program.model.boundaries();
    if plan.boundaries != boundaries {
        let message = format!("those of the model begin at {boundaries:?}");
        return Err(LowerError::Units(message));
    }
    if plan.takes_lists()
        && let Some(listed) = descending(&plan.lists)
    {
        return Err(LowerError::Descending(listed));
    }
    Ok(())
}

/// A schedule without waits.
struct Arranged {
    schedule: Schedule,
    cells: Cells,
    writes: Writes,
}

impl Arranged {
    /// The finished schedule.
    fn with_waits(self) -> Schedule {
        let Self { mut schedule, cells, writes } = self;
        waits::derive(&mut schedule, (&cells, &writes));
        pairs::start_together(&mut schedule);
        schedule
    }
}

/// Slots and offsets. Queues are counted before any work that grows with their number.
fn arranged(draft: Draft<'_>) -> Result<Arranged, LowerError> {
    let order = list_order(&draft.actions);
    let rows = Rows::new(&draft, &order);
    let action = |number: &u32| numbered(&draft, *number as usize, &rows);
    let actions = order.iter().map(action).collect();
    let buffers = buffers(&draft, &rows);
    // The largest lists go before others are made.
    drop((draft.actions, draft.holds, order));
    let mut schedule = Schedule {
        fingerprint: String::new(),
        target: draft.target.clone(),
        plan: draft.plan.clone(),
        job: draft.job.clone(),
        buffers,
        axes: draft.sites.axes,
        rings: draft.sites.rings,
        groups: draft.groups,
        routines: draft.routines,
        actions,
    };
    let queues = Queues::new(&schedule).len();
    if queues > Queues::MOST {
        return Err(LowerError::Queues(queues));
    }
    let cells = Cells::new(&schedule);
    let writes = Writes::new(&schedule, &cells);
    rest::fill(&mut schedule, &cells, writes.recurrence);
    arena::lay_out(&mut schedule, &draft.buffers, &rows);
    drop(rows);
    pairs::join(&mut schedule, &draft.order);
    Ok(Arranged { schedule, cells, writes })
}

fn buffers(draft: &Draft<'_>, rows: &Rows) -> Table<BufferId, Buffer> {
    let of = |(id, row): (BufferId, &draft::DraftBuffer)| Buffer {
        home: row.home,
        subject: row.subject,
        offset: Bytes(0),
        size: rows
            .common(id)
            .map_or_else(|| row.size.align_up(ALIGNMENT), |common| common.size),
        slots: rows.turns(id).slots,
        turn: rows.turns(id).turn,
        rest: row.rest.clone(),
    };
    draft.buffers.iter().map(of).collect()
}

/// What becomes of an action of the draft.
fn numbered(draft: &Draft<'_>, number: usize, rows: &Rows) -> Action {
    let DraftAction { key: _, lag, reach, work } = &draft.actions[number];
    let (lag, reach) = (*lag, *reach);
    let row = |hold: Hold| -> Row { rows.row(hold, lag) };
    let spot = |end: End| Spot { at: end.at, row: row(end.hold) };
    let work = match work {
        DraftWork::Launch { at, lane, routine, micro_batch, rows } => Work::Launch {
            at: *at,
            lane: *lane,
            routine: *routine,
            micro_batch: *micro_batch,
            rows: draft.rows(rows).iter().copied().map(row).collect(),
            beside: None,
        },
        DraftWork::Transfer { link, from, to, content } => Work::Transfer {
            link: *link,
            from: spot(*from),
            to: spot(*to),
            content: content.clone(),
        },
        DraftWork::Collective { link, kind, group, from, to, content } => {
            let (from, to, content) = (row(*from), row(*to), content.clone());
            Work::Collective {
                link: *link,
                kind: *kind,
                group: *group,
                from,
                to,
                content,
            }
        }
        DraftWork::Feed { at, micro_batch, row: hold } => {
            Work::Feed { at: *at, micro_batch: *micro_batch, row: row(*hold) }
        }
        DraftWork::Report { at, micro_batch, row: hold } => {
            Work::Report { at: *at, micro_batch: *micro_batch, row: row(*hold) }
        }
    };
    Action { lag, reach, after: Waits::default(), work }
}
