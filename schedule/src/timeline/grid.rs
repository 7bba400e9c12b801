//! A simulated run as a text grid: a row per lane, a column per unit of time.
//!
//! ```text
//!       0   1   2   3   4   5
//! d0 i0 F0  F1  F2  B2  B1  B0
//! d1 i1 B1' B0' F0  F1  F2  B2
//! ```

use super::span::{pass_name, passes};
use crate::{
    DeviceId, Entry, Id, MicroBatch, Nanos, PhysicalQueue, Plan, Schedule, Simulation,
    Stage, Task,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    ops::Range,
};

/// Widest line, in characters.
const WIDTH: usize = 200;
/// Most training steps behind that are marked.
const MARKS_MAX: i64 = 3;

/// The launches between two points of time.
///
/// A row is a lane of a device, a column a unit of time: the greatest common divisor of all
/// durations when that fits in 200 columns, otherwise as little more as fits. A launch fills
/// the columns of which it takes at least half, and the one of which it takes most; where two
/// meet, the one that takes more of the column is shown. A cell `1F2` is the forward pass of
/// micro-batch 1 through stage 2, `Ut0` the update of what some stages share; what is the same in
/// every cell of each row stands in front of the row instead. Each `'` means one training step behind
/// the newest that has begun.
/// Step time and idle share are those of `steady`, a run of the same schedule that is long enough
/// for them.
pub fn grid(
    simulation: &Simulation<'_>,
    steady: &Simulation<'_>,
    from: Nanos,
    to: Nanos,
) -> String {
    let launches = launches(simulation, from..to);
    let notation = Notation::of(&simulation.schedule().plan, &launches);
    let rows = rows(&launches);
    let labels: Vec<String> = rows
        .iter()
        .map(|(lane, cells)| notation.label(simulation.schedule(), *lane, cells))
        .collect();
    let head = labels.iter().map(String::len).max().unwrap_or(0) + 1;
    let width = launches.iter().map(|launch| notation.cell(launch).len()).max();
    let scale = Scale::fit(&launches, from..to, head, width.unwrap_or(0) + 1);
    let mut out = " ".repeat(head) + &scale.ruler() + "\n";
    let mut hidden = 0;
    for (label, (_, cells)) in labels.iter().zip(&rows) {
        let owners = scale.owners(cells);
        let seen: BTreeSet<usize> = owners.iter().copied().flatten().collect();
        hidden += cells.len() - seen.len();
        let line = format!("{label:head$}{}", scale.line(cells, &owners, notation));
        out += line.trim_end();
        out.push('\n');
    }
    out += &legend([simulation, steady], &scale, notation);
    match hidden {
        0 => out,
        1 => format!("{out}1 pass stands behind longer ones in its column\n"),
        _ => format!("{out}{hidden} passes stand behind longer ones in their columns\n"),
    }
}

/// A launch that takes time.
#[derive(Clone, Copy, Debug)]
struct Launch {
    task: Task,
    lane: (DeviceId, u32),
    start: Nanos,
    end: Nanos,
    /// Training steps behind the newest that has begun.
    behind: i64,
}

/// What cells say of a task besides its pass.
#[derive(Clone, Copy, Debug)]
struct Notation<'a> {
    plan: &'a Plan,
    micro_batch: bool,
    stage: bool,
}

fn launches(simulation: &Simulation<'_>, span: Range<Nanos>) -> Vec<Launch> {
    let newest = newest(simulation);
    let launch = |entry: &Entry| {
        let PhysicalQueue::Lane(device, lane) = entry.queue else { return None };
        let task = simulation.task(entry)?;
        let &Entry { start, end, step, .. } = entry;
        let begun = newest.partition_point(|(time, _)| *time <= start);
        let behind = newest[..begun].last().map_or(0, |(_, newest)| newest - step);
        let seen = start < end && start < span.end && end > span.start;
        seen.then_some(Launch { task, lane: (device, lane), start, end, behind })
    };
    simulation.entries().iter().filter_map(launch).collect()
}

/// When each training step began: by time, the newest step until then.
fn newest(simulation: &Simulation<'_>) -> Vec<(Nanos, i64)> {
    let lanes = simulation.entries().iter().filter(|entry| {
        matches!(entry.queue, PhysicalQueue::Lane(..)) && entry.start < entry.end
    });
    let mut starts: Vec<(Nanos, i64)> =
        lanes.map(|entry| (entry.start, entry.step)).collect();
    starts.sort_unstable();
    let mut newest = i64::MIN;
    for (_, step) in &mut starts {
        newest = newest.max(*step);
        *step = newest;
    }
    starts
}

fn rows(launches: &[Launch]) -> BTreeMap<(DeviceId, u32), Vec<Launch>> {
    let mut rows: BTreeMap<_, Vec<Launch>> = BTreeMap::new();
    for launch in launches {
        rows.entry(launch.lane).or_default().push(*launch);
    }
    rows
}

fn stages(cells: &[Launch]) -> BTreeSet<Stage> {
    cells.iter().map(|launch| launch.task.stage).collect()
}

fn micro_batches(cells: &[Launch]) -> BTreeSet<MicroBatch> {
    cells.iter().filter_map(|launch| launch.task.micro_batch).collect()
}

impl<'a> Notation<'a> {
    fn of(plan: &'a Plan, launches: &[Launch]) -> Self {
        let rows = rows(launches);
        Self {
            plan,
            micro_batch: rows.values().any(|cells| micro_batches(cells).len() > 1),
            stage: rows.values().any(|cells| stages(cells).len() > 1),
        }
    }

    fn cell(self, launch: &Launch) -> String {
        let Task { pass, stage, micro_batch } = launch.task;
        let before = micro_batch.filter(|_| self.micro_batch);
        let before = before.map(|own| own.index().to_string()).unwrap_or_default();
        let after = if self.stage { self.plan.state_label(stage) } else { String::new() };
        let behind = usize::try_from(launch.behind.clamp(0, MARKS_MAX)).unwrap_or(0);
        format!("{before}{pass}{after}{}", "'".repeat(behind))
    }

    fn label(
        self,
        schedule: &Schedule,
        (device, lane): (DeviceId, u32),
        cells: &[Launch],
    ) -> String {
        let rings = schedule.rings.values();
        let lanes = rings
            .filter(|ring| ring.devices.contains(&device))
            .map(|ring| ring.lanes)
            .max();
        let mut label = device.to_string();
        if lanes.is_some_and(|lanes| lanes > 1) {
            label += &format!(".{lane}");
        }
        if !self.stage
            && let Some(stage) = stages(cells).first()
        {
            label += &match self.plan.tie(*stage) {
                None => format!(" {stage}"),
                Some(_) => format!(" {}", self.plan.state_label(*stage)),
            };
        }
        if !self.micro_batch {
            label.extend(micro_batches(cells).first().map(|i| format!(" {i}")));
        }
        label
    }
}

/// How time becomes columns.
#[derive(Clone, Debug)]
struct Scale {
    from: Nanos,
    unit: Nanos,
    columns: usize,
    width: usize,
}

impl Scale {
    fn fit(launches: &[Launch], span: Range<Nanos>, head: usize, width: usize) -> Self {
        let durations = launches.iter().map(|launch| (launch.end - launch.start).0);
        let exact = durations.fold(0, crate::gcd);
        let length = (span.end - span.start).0;
        let most = (WIDTH.saturating_sub(head) / width).max(1) as u64;
        let unit = exact.max(length.div_ceil(most)).max(1);
        let columns = usize::try_from(length.div_ceil(unit)).unwrap_or(0);
        Self { from: span.start, unit: Nanos(unit), columns, width }
    }

    /// Numbers of the columns, as many as have room.
    fn ruler(&self) -> String {
        let digits = self.columns.saturating_sub(1).to_string().len();
        let stride = (digits + 1).div_ceil(self.width);
        let mut ruler = String::new();
        for column in (0..self.columns).step_by(stride) {
            let room = self.width * stride.min(self.columns - column);
            let number = column.to_string();
            let number = if number.len() <= room { number } else { String::new() };
            write!(ruler, "{number:room$}").expect("writing to a string cannot fail");
        }
        ruler.trim_end().to_owned()
    }

    /// Which launch each column shows: the one that takes most of it.
    fn owners(&self, cells: &[Launch]) -> Vec<Option<usize>> {
        let mut filled: Vec<Option<(Nanos, usize)>> = vec![None; self.columns];
        for (index, launch) in cells.iter().enumerate() {
            for column in self.columns_of(launch) {
                let time = self.time_in(column, launch);
                if filled[column].is_none_or(|(most, _)| most < time) {
                    filled[column] = Some((time, index));
                }
            }
        }
        filled.into_iter().map(|filled| filled.map(|(_, index)| index)).collect()
    }

    fn line(
        &self,
        cells: &[Launch],
        owners: &[Option<usize>],
        notation: Notation<'_>,
    ) -> String {
        let mut line = String::new();
        let mut before = None;
        for &owner in owners {
            let cell = match owner {
                None => ".".to_owned(),
                Some(_) if owner == before => "-".repeat(self.width - 1),
                Some(index) => notation.cell(&cells[index]),
            };
            let width = self.width;
            write!(line, "{cell:width$}").expect("writing to a string cannot fail");
            before = owner;
        }
        line
    }

    fn columns_of(&self, launch: &Launch) -> impl Iterator<Item = usize> {
        let column = |time: Nanos| usize::try_from(time.0 / self.unit.0).unwrap_or(0);
        let first = column(launch.start - self.from);
        let last = column(launch.end - self.from - Nanos(1));
        let touched = first.min(self.columns)..(last + 1).min(self.columns);
        let time = |column: usize| self.time_in(column, launch);
        let main = touched.clone().rev().max_by_key(|column| time(*column));
        touched
            .filter(move |&column| main == Some(column) || time(column) * 2 >= self.unit)
    }

    fn time_in(&self, column: usize, launch: &Launch) -> Nanos {
        let start = self.from + self.unit * column as u64;
        launch.end.min(start + self.unit) - launch.start.max(start)
    }
}

/// What the letters of the passes mean that there are.
fn letters(simulation: &Simulation<'_>) -> String {
    let names = passes(simulation).into_iter();
    let names = names.map(|pass| format!("{pass} {}", pass_name(pass)));
    names.collect::<Vec<_>>().join(", ")
}

/// How many cells there are like the one that is shown, and among how many parts each is split.
fn cells(schedule: &Schedule) -> String {
    let parts = schedule.tensor_parts();
    let cells = schedule.cell_count() / u64::from(parts.max(1));
    let equal = (cells > 1).then(|| format!(", one of {cells} equal cells"));
    let split = (parts > 1).then(|| match schedule.plan.tensor.columns {
        1 => format!(", one of {parts} rows"),
        _ => format!(", one of {parts} parts ({})", schedule.plan.tensor.shown()),
    });
    [equal, split].into_iter().flatten().collect()
}

fn legend(
    [simulation, steady]: [&Simulation<'_>; 2],
    scale: &Scale,
    notation: Notation<'_>,
) -> String {
    let before = if notation.micro_batch { "micro-batch " } else { "" };
    let after = if notation.stage { " stage" } else { "" };
    let (unit, from) = (scale.unit, scale.from);
    let (makespan, step) = (simulation.makespan(), steady.step_time());
    let idle = 100.0 * steady.bubble();
    let cells = cells(simulation.schedule());
    let passes = letters(simulation);
    let ties: String = notation.plan.tie_legend().map(|tie| format!("; {tie}")).collect();
    format!(
        "column {unit} from {from}; cell {before}pass{after}: {passes}{ties}\n\
         ' a training step behind, - goes on, . idle\n\
         makespan {makespan}, step {step}, idle {idle:.1} %{cells}\n"
    )
}
