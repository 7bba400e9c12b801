//! A simulated run as a web page of one file, which asks for nothing else: a row per queue, a box per span that
//! says under the pointer what it is, and below each device its live memory on the clock.

use super::{
    memory::{Live, live},
    span::{Sort, Told, pass_name, passes, spans, told},
};
use crate::{
    Bytes, DeviceId, Entry, Id, Nanos, Pass, PhysicalQueue, Plan, Simulation, Task,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Write as _},
    iter,
};

/// Pixels of a launch of middle length, where the page has room.
const LAUNCH: f64 = 34.0;
/// Least and most pixels of a row.
const WIDTHS: [f64; 2] = [900.0, 40_000.0];
/// Pixels between two marks of the ruler, at least.
const TICK: f64 = 110.0;
/// Pixels of a row of spans, and of one of memory.
const ROW: f64 = 24.0;
const MEMORY: f64 = 40.0;
/// Pixels that a letter takes.
const LETTER: f64 = 7.0;

/// The page of a run. What takes no time is left out. Step time and idle share are those of
/// `steady`, a run of the same schedule that is long enough for them.
pub fn page(simulation: &Simulation<'_>, steady: &Simulation<'_>) -> String {
    let page = Page { simulation, scale: scale(simulation) };
    let title = title(simulation);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <title>{title}</title>\n<style>\n{}</style>\n</head>\n<body>\n<h1>{title}</h1>\n\
         <p>{}</p>\n<p>{}</p>\n<main>\n{}{}</main>\n</body>\n</html>\n",
        include_str!("page.css"),
        figures(simulation, steady),
        legend(simulation),
        page.ruler(),
        page.queues(),
    )
}

/// A run that is drawn.
struct Page<'a> {
    simulation: &'a Simulation<'a>,
    /// Pixels of a nanosecond.
    scale: f64,
}

/// Text that means no markup.
struct Plain<'a>(&'a str);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|letter| match letter {
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '&' => f.write_str("&amp;"),
            '"' => f.write_str("&quot;"),
            _ => f.write_char(letter),
        })
    }
}

fn title(simulation: &Simulation<'_>) -> String {
    let schedule = simulation.schedule();
    let (plan, model) = (&schedule.plan, Plain(&schedule.job.model));
    format!("{model}: {}, {}, {}", plan.rule, plan.placement, plan.order)
}

fn figures(simulation: &Simulation<'_>, steady: &Simulation<'_>) -> String {
    let plan = &simulation.schedule().plan;
    format!(
        "N = {}, S = {}, {} of {} devices; {} training steps end at {}, a step takes {}, idle {:.1} %",
        plan.micro_batches,
        plan.stages,
        plan.devices.len(),
        simulation.schedule().target.devices.len(),
        simulation.steps,
        simulation.makespan(),
        steady.step_time(),
        100.0 * steady.bubble()
    )
}

/// The colors that there are, and how boxes are read.
fn legend(simulation: &Simulation<'_>) -> String {
    let passes =
        passes(simulation).into_iter().map(|pass| (class(pass), pass_name(pass)));
    let others = [Sort::Message, Sort::Host].map(|sort| (sort.name(), sort.name()));
    let sorts: BTreeSet<&str> =
        spans(simulation).map(|entry| told(simulation, entry).sort.name()).collect();
    let others = others.into_iter().filter(|(class, _)| sorts.contains(class));
    let keys = passes
        .chain(others)
        .map(|(class, name)| format!("<span class=\"key {class}\"></span>{name}&ensp;"));
    let keys: String = keys.collect();
    let ties = simulation.schedule().plan.tie_legend();
    let ties: String = ties.map(|tie| format!("; {tie}")).collect();
    format!(
        "{keys}. 1F2 is the forward pass of micro-batch 1 through stage 2{ties}; every other step is \
         paler."
    )
}

/// The class of a pass in the style sheet: the first word of its name.
fn class(pass: Pass) -> &'static str {
    let name = pass_name(pass);
    name.split_once(' ').map_or(name, |(first, _)| first)
}

/// Pixels of a nanosecond: as many as a launch of middle length wants.
fn scale(simulation: &Simulation<'_>) -> f64 {
    let launches =
        spans(simulation).filter(|entry| matches!(entry.queue, PhysicalQueue::Lane(..)));
    let mut lengths: Vec<u64> =
        launches.map(|entry| (entry.end - entry.start).0).collect();
    lengths.sort_unstable();
    let middle = lengths.get(lengths.len() / 2).copied().unwrap_or(1);
    let whole = simulation.makespan().0.max(1) as f64;
    let [least, most] = WIDTHS;
    (whole * LAUNCH / middle as f64).clamp(least, most) / whole
}

impl Page<'_> {
    fn x(&self, time: Nanos) -> f64 {
        time.0 as f64 * self.scale
    }

    /// A row with a name before it.
    fn row(&self, name: &str, height: f64, drawn: &str) -> String {
        let width = self.x(self.simulation.makespan()).ceil();
        let steps: String = (self.simulation.ends.iter())
            .map(|end| {
                let x = self.x(*end);
                format!("<line class=\"step\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"0\" y2=\"{height}\"/>")
            })
            .collect();
        format!(
            "<div class=\"row\"><span>{}</span><svg width=\"{width}\" height=\"{height}\">\
             {steps}{drawn}</svg></div>\n",
            Plain(name)
        )
    }

    fn ruler(&self) -> String {
        let every = round_up((TICK / self.scale).ceil() as u64);
        let ticks =
            iter::successors(Some(0_u64), |tick| tick.checked_add(every)).map(Nanos);
        let ticks = ticks.take_while(|time| *time <= self.simulation.makespan());
        let drawn: String = ticks
            .map(|time| {
                let x = self.x(time);
                format!(
                    "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"4\" y2=\"{ROW}\"/>\
                     <text class=\"tick\" x=\"{:.1}\" y=\"15\">{time}</text>",
                    x + 4.0
                )
            })
            .collect();
        self.row("", ROW, &drawn)
    }

    /// All queues, those of each device together and its memory below them, then those of groups.
    fn queues(&self) -> String {
        let mut queues: BTreeMap<PhysicalQueue, String> = BTreeMap::new();
        for entry in spans(self.simulation) {
            *queues.entry(entry.queue).or_default() += &self.span(entry);
        }
        let mut owners: BTreeMap<Option<DeviceId>, String> = BTreeMap::new();
        for (queue, drawn) in queues {
            let (owner, name) = match queue {
                PhysicalQueue::Lane(device, lane) => {
                    (Some(device), format!("lane {lane}"))
                }
                PhysicalQueue::Arrival(device) => (Some(device), "arrivals".to_owned()),
                PhysicalQueue::Host(device) => (Some(device), "host".to_owned()),
                PhysicalQueue::Group(group) => (None, group.to_string()),
            };
            *owners.entry(owner).or_default() += &self.row(&name, ROW, &drawn);
        }
        let groups = owners.remove(&None);
        let mut live = live(self.simulation);
        let devices = owners.into_iter().filter_map(|(owner, rows)| {
            let device = owner?;
            let name = &self.simulation.schedule().target.devices[device].name;
            let memory = live.remove(&device).map(|live| self.memory(&live));
            let memory = memory.unwrap_or_default();
            Some(format!("<h2>{}</h2>\n{rows}{memory}", Plain(name)))
        });
        let groups = groups.map(|rows| format!("<h2>groups</h2>\n{rows}"));
        devices.chain(groups).collect()
    }

    fn span(&self, entry: &Entry) -> String {
        let (x, width) = (self.x(entry.start), self.x(entry.end - entry.start));
        let told = told(self.simulation, entry);
        let task = self.simulation.task(entry);
        let color = task.map_or(told.sort.name(), |task| class(task.pass));
        let odd = if entry.step % 2 == 0 { "" } else { " odd" };
        let plan = &self.simulation.schedule().plan;
        let letters = task.map(|task| letters(plan, task)).unwrap_or_default();
        let text = if letters.len() as f64 * LETTER <= width {
            format!("<text x=\"{:.1}\" y=\"16\">{letters}</text>", x + width / 2.0)
        } else {
            String::new()
        };
        format!(
            "<g><title>{}</title><rect class=\"{color}{odd}\" x=\"{x:.1}\" y=\"1\" \
             width=\"{:.1}\" height=\"22\" rx=\"2\"/>{text}</g>",
            Plain(&words(entry, &told)),
            width.max(0.5)
        )
    }

    /// Live memory of a device as steps.
    fn memory(&self, rows: &[(Nanos, Live)]) -> String {
        let total = |live: &Live| live.values().copied().sum::<Bytes>();
        let most = rows.iter().map(|(_, live)| total(live)).max().unwrap_or_default();
        let height = |bytes: Bytes| {
            MEMORY - 1.0 - (MEMORY - 2.0) * bytes.0 as f64 / most.0.max(1) as f64
        };
        let mut path = format!("M0 {MEMORY}");
        for (time, live) in rows {
            let y = height(total(live));
            write!(path, "H{:.1}V{y:.1}", self.x(*time))
                .expect("writing to a string cannot fail");
        }
        let end = self.x(self.simulation.makespan());
        let drawn = format!(
            "<g><title>live memory on the clock, at most {most}</title>\
             <path class=\"memory\" d=\"{path}H{end:.1}V{MEMORY}Z\"/></g>"
        );
        self.row(&format!("up to {most}"), MEMORY, &drawn)
    }
}

/// A task as the text grid writes it.
fn letters(plan: &Plan, Task { pass, stage, micro_batch }: Task) -> String {
    let micro_batch = micro_batch.map(|i| i.index().to_string()).unwrap_or_default();
    format!("{micro_batch}{pass}{}", plan.state_label(stage))
}

/// What a span says under the pointer.
fn words(entry: &Entry, told: &Told) -> String {
    let &Entry { action, step, start, end, .. } = entry;
    let mut words = format!("{} ({action}), step {step}", told.name);
    if let Some(micro_batch) = told.micro_batch {
        words += &format!(", micro-batch {micro_batch}");
    }
    if let Some(bytes) = told.bytes {
        words += &format!(", {bytes}");
    }
    words + &format!("\n{start} to {end}: {}", end - start)
}

/// The least of 1, 2, 5, 10, 20, … that is not below a number.
fn round_up(number: u64) -> u64 {
    let powers = (0..19).map(|power| 10u64.pow(power));
    let round = powers.flat_map(|power| [1, 2, 5].map(|digit| digit * power));
    let mut round = round.filter(|round| *round >= number);
    round.next().unwrap_or(number)
}
