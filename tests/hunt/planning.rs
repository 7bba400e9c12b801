//! Random `plan` blocks: a rule, a placement that goes with it, and decisions beside them.

use crate::random::Random;

/// What a `plan` block says.
pub(crate) struct Planning {
    pub(crate) lines: Vec<String>,
    /// Whether every gradient is taken at the newest parameters, over the whole model.
    pub(crate) synchronous: bool,
    /// Whether it asks for units.
    pub(crate) units: Units,
}

/// Whether a program asks for units that train on losses of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Units {
    Some,
    None,
}

const CYCLIC: [&str; 4] =
    ["cyclic_v1", "cyclic_v2", "cyclic(slack = 1)", "cyclic(slack = 2)"];
const LOCAL: [&str; 4] = [
    "local(units = 2)",
    "local(units = 3)",
    "local(units = 2, overlap = 1)",
    "pairwise(units = 2)",
];

/// Orders of synchronous pipelines, with stages, chunks and micro-batches that each may have.
const ORDERS: [(&str, [&[usize]; 3]); 17] = [
    ("gpipe", [&[2, 3, 4], &[1], &[1, 2, 3, 4]]),
    ("1f1b", [&[2, 3, 4], &[1], &[1, 2, 3, 4]]),
    ("eager_1f1b", [&[2, 3, 4], &[1], &[2, 4]]),
    ("interleaved", [&[4], &[2], &[2, 4]]),
    ("breadth_first", [&[4, 6], &[2], &[2, 3]]),
    ("zb_h1", [&[2, 3], &[1], &[2, 3, 4]]),
    ("zb_h2", [&[2, 3], &[1], &[3, 4]]),
    ("zb_1p", [&[2, 3], &[1], &[2, 3, 4]]),
    ("zb_2p", [&[2], &[1], &[2, 4]]),
    ("zb_auto", [&[2], &[1], &[2, 4]]),
    ("zb_v", [&[4], &[2], &[2, 4]]),
    ("v_half", [&[4], &[2], &[2, 4]]),
    ("v_min", [&[4], &[2], &[4]]),
    ("wave", [&[4, 8], &[2, 4], &[2, 4]]),
    ("chimera", [&[2, 4], &[1], &[2, 4]]),
    ("dualpipe", [&[2, 4], &[1], &[4]]),
    ("dualpipe_paired", [&[2], &[1], &[4]]),
];

impl Planning {
    /// For this many examples.
    pub(crate) fn drawn(random: &mut Random, batch: usize) -> Self {
        let mut plan = Draft { random, batch, lines: Vec::new() };
        let (synchronous, units) = match plan.random.below(9) {
            0..=4 => {
                plan.synchronous();
                (true, Units::None)
            }
            5 | 6 => {
                plan.cyclic();
                (false, Units::None)
            }
            7 => {
                plan.local();
                (false, Units::Some)
            }
            _ => {
                plan.open();
                (false, Units::None)
            }
        };
        plan.memory_for_time();
        plan.cuts();
        Self { lines: plan.lines, synchronous, units }
    }

    pub(crate) fn text(&self) -> String {
        format!("plan {{\n    {}\n}}\n", self.lines.join("\n    "))
    }
}

struct Draft<'a> {
    random: &'a mut Random,
    batch: usize,
    lines: Vec<String>,
}

impl Draft<'_> {
    fn of<T: Clone>(&mut self, list: &[T]) -> T {
        self.random.pick(list).expect("a list has something to pick")
    }

    fn say(&mut self, line: impl Into<String>) {
        self.lines.push(line.into());
    }

    fn once_in(&mut self, times: usize) -> bool {
        self.random.below(times) == 0
    }

    /// Micro-batches of the list that divide the batch among this many replicas.
    fn micro_batches(&mut self, among: usize, list: &[usize]) {
        let fit = |n: &usize| self.batch.is_multiple_of(n * among);
        let list: Vec<usize> = list.iter().copied().filter(fit).collect();
        let one = if list.is_empty() { 1 } else { self.of(&list) };
        self.say(format!("micro_batches {one}"));
    }

    fn synchronous(&mut self) {
        self.say("exactness reordered");
        self.say("rule sync");
        match self.random.below(8) {
            0..2 => self.accumulated(),
            2 => self.placed("concurrent"),
            3 => self.placed("shared"),
            4 => self.workers(),
            5 => self.sliced(),
            _ => self.piped(),
        }
    }

    fn placed(&mut self, placement: &str) {
        self.say(format!("placement {placement}"));
        let stages = self.of(&[1, 2, 2, 3]);
        self.say(format!("stages {stages}"));
        self.micro_batches(1, &[2, 2, 3]);
        self.tensor(1);
    }

    fn workers(&mut self) {
        self.say("placement data");
        let stages = self.of(&[1, 2, 3]);
        self.say(format!("stages {stages}"));
        let states = self.of(&["replicated", "zero1", "zero2", "zero3"]);
        self.say(format!("states {states}"));
        self.micro_batches(1, &[2, 2, 3, 4]);
        self.tensor(2);
    }

    fn accumulated(&mut self) {
        self.say("placement accumulate");
        let replicas = self.of(&[1, 2, 2, 4]);
        let stages = self.of(&[1, 2, 3]);
        self.say(format!("replicas {replicas}"));
        self.say(format!("stages {stages}"));
        self.micro_batches(replicas, &[1, 2, 2, 3]);
        if replicas > 1 {
            self.split(replicas);
        }
        if replicas < 4 {
            self.tensor(replicas);
        }
    }

    /// Who holds states among this many replicas.
    fn split(&mut self, replicas: usize) {
        match self.of(&["replicated", "zero1", "zero2", "zero3", "hsdp"]) {
            "hsdp" => {
                self.say("states hsdp");
                let shards = if replicas == 4 { 2 } else { self.of(&[1, replicas]) };
                self.say(format!("shards {shards}"));
            }
            states => self.say(format!("states {states}")),
        }
    }

    fn piped(&mut self) {
        let (order, [stages, chunks, micro_batches]) = self.of(&ORDERS);
        let (stages, chunks) = (self.of(stages), self.of(chunks));
        self.say("placement pipeline");
        self.say(format!("order {order}"));
        self.say(format!("stages {stages}"));
        self.say(format!("chunks {chunks}"));
        let replicas = if self.once_in(3) { 2 } else { 1 };
        self.say(format!("replicas {replicas}"));
        self.micro_batches(replicas, micro_batches);
        match replicas {
            1 => self.tensor(stages / chunks),
            _ => self.split(replicas),
        }
    }

    fn sliced(&mut self) {
        let order = self.of(&["seq1f1b", "terapipe"]);
        let slices = self.of(&[2, 2, 3, 4]);
        let stages = self.of(&[1, 2, 2, 3]);
        self.say("placement pipeline");
        self.say(format!("order {order}"));
        self.say(format!("slices {slices}"));
        self.say(format!("stages {stages}"));
        self.say("replicas 1");
        self.micro_batches(1, &[1, 2, 3, 4]);
    }

    /// Much is left to the planner, among few devices.
    fn open(&mut self) {
        let exactness = self.of(&["reordered", "delayed", "delayed", "local"]);
        self.say(format!("exactness {exactness}"));
        let goal = self.of(&["step_time", "memory", "devices"]);
        self.say(format!("minimize {goal}"));
        let devices = self.of(&["<= 2", "3 | 4", "4"]);
        self.say(format!("devices {devices}"));
        self.say("micro_batches <= 4");
        self.say("stages <= 4");
        if self.once_in(2) {
            let placement =
                self.of(&["accumulate | data", "pipeline", "shared | concurrent"]);
            self.say(format!("placement {placement}"));
        }
        if self.once_in(3) {
            let memory = self.of(&["40 kB", "200 kB", "1 MB"]);
            self.say(format!("memory <= {memory}"));
        }
    }

    fn cyclic(&mut self) {
        self.say("exactness delayed");
        let rule = self.of(&CYCLIC);
        self.say(format!("rule {rule}"));
        let stages = self.of(&[1, 2, 2, 3, 4]);
        self.say(format!("stages {stages}"));
        match self.of(&[
            "accumulate",
            "concurrent",
            "data",
            "handoff",
            "shared",
            "pipeline",
        ]) {
            "handoff" => {
                self.say("placement data");
                self.say("states handoff");
            }
            placement => self.say(format!("placement {placement}")),
        }
        self.micro_batches(1, &[1, 2, 2, 3, 4]);
        self.tensor(2);
    }

    fn local(&mut self) {
        self.say("exactness local");
        let rule = self.of(&LOCAL);
        self.say(format!("rule {rule}"));
        let placement = self.of(&["accumulate", "pipeline", "pipeline", "data"]);
        self.say(format!("placement {placement}"));
        let stages = self.of(&[2, 2, 3, 4]);
        self.say(format!("stages {stages}"));
        self.micro_batches(1, &[1, 2, 2, 4]);
        self.tensor(stages);
    }

    /// Rows and columns where eight devices have room for them beside this many others.
    fn tensor(&mut self, beside: usize) {
        let grids: &[(usize, usize)] = match 8 / beside {
            0 | 1 => &[(1, 1)],
            2 | 3 => &[(1, 1), (2, 1), (2, 1), (1, 2)],
            _ => {
                &[(1, 1), (1, 1), (2, 1), (2, 1), (2, 1), (1, 2), (2, 2), (4, 1), (3, 1)]
            }
        };
        let (rows, columns) = self.of(grids);
        let mut inner = format!("rows {rows}, columns {columns}");
        if rows * columns > 1 && self.once_in(4) {
            inner += ", overdecompose 2";
        }
        if columns > 1 && self.once_in(2) {
            let how = self.of(&["gather", "each", "alternate"]);
            inner += &format!(", contraction {how}");
        }
        self.say(format!("tensor {{ {inner} }}"));
        if rows * columns > 1 {
            let sequence = self.of(&["whole", "split", "whole | split"]);
            self.say(format!("sequence {sequence}"));
        }
        if rows > 1 && columns == 1 && self.once_in(4) {
            self.say("images split");
        }
    }

    /// Where stages begin, at operations that a model may have.
    fn cuts(&mut self) {
        let stages = self.lines.iter().find_map(|line| line.strip_prefix("stages "));
        let Some(stages) = stages.and_then(|said| said.parse::<usize>().ok()) else {
            return;
        };
        if stages == 1 || !self.once_in(3) {
            return;
        }
        let mut last = 0;
        let cuts = (1..stages).map(|_| {
            last += 1 + self.random.below(16 / stages);
            last.to_string()
        });
        let cuts = cuts.collect::<Vec<_>>().join(", ");
        self.say(format!("cuts [{cuts}]"));
    }

    /// What is computed again.
    fn memory_for_time(&mut self) {
        match self.random.below(5) {
            0 => self.say("recompute full"),
            1 => self.say("recompute selective"),
            2 => self.say("stage 0 { recompute full }"),
            _ => {}
        }
    }
}
