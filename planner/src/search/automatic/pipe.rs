//! What the search for an order knows of a pipeline: times of its passes and messages, what they
//! keep, and how much room each device has.

use roundelay_schedule::{Bytes, DeviceList, Item, Nanos, Pass};
use std::cell::LazyCell;

/// One stage, which is alone on its device, for one micro-batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StageHalves {
    /// F.
    pub forward: Nanos,
    /// I.
    pub input: Nanos,
    /// W.
    pub weight: Nanos,
    /// The message of its values to the stage behind.
    pub down: Nanos,
    /// The message of its gradients to the stage before.
    pub up: Nanos,
    /// What it keeps.
    pub kept: Kept,
    /// The values of a micro-batch that come from the stage before.
    pub values: Received,
    /// The gradients that come from the stage behind.
    pub gradients: Received,
}

/// What the messages of one micro-batch from a neighbour take, by the last pass that reads them.
pub(crate) type Received = [Bytes; 3];

/// What a stage keeps of one micro-batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    /// From F to I.
    pub activation: Bytes,
    /// From F to W.
    pub retained: Bytes,
    /// From I to W.
    pub adjoint: Bytes,
}

/// A pipeline with a stage on each device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pipe {
    /// The stages, one per device.
    pub stages: Vec<StageHalves>,
    /// N.
    pub micro_batches: usize,
}

/// A pipeline whose devices have so much room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Limited {
    pub pipe: Pipe,
    pub rooms: Rooms,
}

/// The most that each device may keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rooms {
    /// At any one time, as arXiv 2401.10241 counts memory: what one kind gives back another takes.
    Live(Vec<Bytes>),
    /// In slots: each kind of values has its own, as many as it ever holds at one time, and so
    /// have messages that wait for their passes. That is how a lowered schedule lays them out.
    Slots(Vec<Bytes>),
}

/// The passes of each device, in order; each stage takes its micro-batches in ascending order, so
/// the kinds say it all.
pub(crate) type Passes = Vec<Vec<Half>>;

/// A pass of a pipeline whose backward passes are in halves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Half {
    /// F.
    Forward,
    /// I.
    Input,
    /// W.
    Weight,
}

impl Half {
    /// All, in the order of a micro-batch.
    pub(crate) const ALL: [Self; 3] = [Half::Forward, Half::Input, Half::Weight];

    /// The half of a micro-batch's work that a pass is.
    pub(crate) fn of(pass: Pass) -> Option<Self> {
        match pass {
            Pass::Forward => Some(Half::Forward),
            Pass::InputGradient => Some(Half::Input),
            Pass::WeightGradient => Some(Half::Weight),
            Pass::Backward | Pass::Combine | Pass::Norm | Pass::Update => None,
        }
    }
}

/// How many passes of each kind a device has started, and the most that it held at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    /// F, I and W started.
    pub done: [usize; 3],
    /// The most micro-batches between F and I, F and W, and I and W.
    pub(super) most: [usize; 3],
    /// The most bytes at one time.
    live: Bytes,
}

/// How good an order is; less is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Merit {
    /// The longest time from the first to the last pass of one device: what a step takes when the
    /// devices pass from step to step each in its own time.
    pub stage_span: Nanos,
    /// From the first pass of all to the last.
    pub span: Nanos,
    /// What all devices keep.
    pub kept: Bytes,
}

impl Rooms {
    /// How much each is.
    pub(crate) fn each(&self) -> &[Bytes] {
        match self {
            Rooms::Live(each) | Rooms::Slots(each) => each,
        }
    }

    /// The same, to be changed.
    pub(crate) fn each_mut(&mut self) -> &mut [Bytes] {
        match self {
            Rooms::Live(each) | Rooms::Slots(each) => each,
        }
    }
}

impl StageHalves {
    /// How long a pass takes.
    pub(crate) fn time(&self, half: Half) -> Nanos {
        match half {
            Half::Forward => self.forward,
            Half::Input => self.input,
            Half::Weight => self.weight,
        }
    }
}

impl Kept {
    /// What is kept from one pass to a later one of the same micro-batch.
    pub(crate) fn between(&mut self, from: Half, until: Half) -> Option<&mut Bytes> {
        let sizes = [&mut self.activation, &mut self.retained, &mut self.adjoint];
        sizes.into_iter().nth(kind(from, until)?)
    }
}

/// Which of the three that a stage keeps lasts from one pass to another.
pub(super) fn kind(from: Half, until: Half) -> Option<usize> {
    match (from, until) {
        (Half::Forward, Half::Input) => Some(0),
        (Half::Forward, Half::Weight) => Some(1),
        (Half::Input, Half::Weight) => Some(2),
        (_, Half::Forward)
        | (Half::Input | Half::Weight, Half::Input)
        | (Half::Weight, Half::Weight) => None,
    }
}

impl Kept {
    /// What this many micro-batches keep of each kind.
    fn times(&self, counts: [usize; 3]) -> Bytes {
        let sizes = [self.activation, self.retained, self.adjoint];
        let each = sizes.into_iter().zip(counts);
        each.map(|(size, count)| size * count as u64).sum()
    }

    /// What `count` micro-batches keep between F and I, and the adjoint of one: 1F1B keeps no more
    /// than this of p − r micro-batches.
    pub(crate) fn of(&self, count: usize) -> Bytes {
        self.times([count, count, 1])
    }
}

impl Account {
    /// The account after one more pass.
    pub(crate) fn after(mut self, half: Half, kept: &Kept) -> Self {
        let [before_forward, before_input, before_weight] = self.done;
        self.done[half as usize] += 1;
        let held = match half {
            Half::Forward => {
                let forward = before_forward + 1;
                // The I of each of them is sure to come, at the latest when all W before it are
                // done.
                let open = forward - before_input;
                self.live = self.live.max(kept.of(open));
                [open, forward - before_weight, before_input - before_weight]
            }
            // What I reads lies beside what it makes.
            Half::Input => [
                before_forward - before_input,
                before_forward - before_weight,
                before_input + 1 - before_weight,
            ],
            Half::Weight => return self,
        };
        for (most, held) in self.most.iter_mut().zip(held) {
            *most = held.max(*most);
        }
        self.live = self.live.max(kept.times(held));
        self
    }

    /// Whether what a device holds has room; the adjoint of one micro-batch counts from the start.
    pub(crate) fn fits(&self, kept: &Kept, rooms: &Rooms, device: usize) -> bool {
        match rooms {
            Rooms::Live(each) => self.live <= each[device],
            Rooms::Slots(each) => self.slots(kept) <= each[device],
        }
    }

    /// What its slots take.
    fn slots(&self, kept: &Kept) -> Bytes {
        let [activation, retained, adjoint] = self.most;
        kept.times([activation, retained, adjoint.max(1)])
    }

    /// Whether a pass can follow at all: I needs its F, W its I.
    pub(crate) fn allows(&self, half: Half, micro_batches: usize) -> bool {
        let [forward, input, weight] = self.done;
        match half {
            Half::Forward => forward < micro_batches,
            Half::Input => input < forward,
            Half::Weight => weight < input,
        }
    }
}

impl Pipe {
    /// p.
    pub(crate) fn devices(&self) -> usize {
        self.stages.len()
    }

    /// The same with room for the activations of this many times p micro-batches at a time.
    pub(crate) fn limited(&self, times: usize) -> Limited {
        let limit = |stage: &StageHalves| stage.kept.of(times * self.devices());
        let rooms = Rooms::Live(self.stages.iter().map(limit).collect());
        Limited { pipe: self.clone(), rooms }
    }

    /// The account of a device after some passes.
    pub(crate) fn account(&self, device: usize, passes: &[Half]) -> Account {
        let kept = &self.stages[device].kept;
        passes.iter().fold(Account::default(), |all, half| all.after(*half, kept))
    }

    /// Lets each device take its passes in turn as soon as what they need has come, and tells when
    /// each ends; nothing for an order in which devices wait for ever.
    pub(super) fn play(
        &self,
        passes: &Passes,
        mut ends: impl FnMut(usize, Half, Nanos),
    ) -> Option<Vec<Line>> {
        let mut run = Run::new(self);
        let mut open: Vec<usize> = (0..self.devices()).rev().collect();
        while let Some(device) = open.pop() {
            while let Some(half) = run.step(device, &passes[device]) {
                ends(device, half, run.lines[device].free);
                match half {
                    Half::Forward if device + 1 < self.devices() => open.push(device + 1),
                    Half::Input if device > 0 => open.push(device - 1),
                    Half::Forward | Half::Input | Half::Weight => {}
                }
            }
        }
        let whole = |(own, run): (&Vec<Half>, &Line)| run.taken == own.len();
        passes.iter().zip(&run.lines).all(whole).then_some(run.lines)
    }

    /// How good an order is when each device takes its passes in turn as soon as what they need
    /// has come; nothing for one in which devices wait for ever.
    pub(crate) fn merit(&self, passes: &Passes) -> Option<Merit> {
        let lines = self.play(passes, |_, _, _| {})?;
        let spans = lines.iter().map(|line| line.free - line.first);
        let last = lines.iter().map(|line| line.free).max().unwrap_or_default();
        let first = lines.iter().map(|line| line.first).min().unwrap_or_default();
        let kept = (0..).zip(passes).map(|(device, own)| {
            self.account(device, own).slots(&self.stages[device].kept)
        });
        Some(Merit {
            stage_span: spans.max().unwrap_or_default(),
            span: last - first,
            kept: kept.sum(),
        })
    }
}

impl Limited {
    /// Whether every device has room for what its passes keep, and for what waits for them.
    #[cfg(test)]
    pub(crate) fn fits(&self, passes: &Passes) -> bool {
        self.excess(passes) <= 0
    }

    /// How much more than its room the device takes, in bytes, that has least left; negative
    /// where all have something left.
    pub(crate) fn excess(&self, passes: &Passes) -> i128 {
        let Self { pipe, rooms } = self;
        let starts = LazyCell::new(|| pipe.starts(passes));
        let devices = (0..).zip(passes).zip(rooms.each());
        let each = devices.map(|((device, own), room)| {
            let account = pipe.account(device, own);
            let taken = match rooms {
                Rooms::Live(_) => account.live,
                Rooms::Slots(_) => {
                    let messages = pipe.received(&starts, device, &account);
                    account.slots(&pipe.stages[device].kept) + messages
                }
            };
            i128::from(taken.0) - i128::from(room.0)
        });
        each.max().unwrap_or_default()
    }
}

/// The lists that stand in a plan.
pub(crate) fn lists(passes: &Passes) -> Vec<DeviceList> {
    let list = |(stage, passes): (u32, &Vec<Half>)| {
        let mut next = [0; 3];
        let one = |half: &Half| {
            let number = next[*half as usize];
            next[*half as usize] += 1;
            Item::new(Pass::from(*half), stage, number)
        };
        passes.iter().map(one).collect()
    };
    (0..).zip(passes).map(list).collect()
}

impl From<Half> for Pass {
    fn from(half: Half) -> Self {
        match half {
            Half::Forward => Pass::Forward,
            Half::Input => Pass::InputGradient,
            Half::Weight => Pass::WeightGradient,
        }
    }
}

/// When values and gradients of each micro-batch have come to each device.
pub(crate) struct Arrivals {
    /// Values, of device r from r − 1; all there for the first.
    pub values: Vec<Vec<Option<Nanos>>>,
    /// Gradients, of device r from r + 1; all there for the last, when its own forward pass is.
    pub gradients: Vec<Vec<Option<Nanos>>>,
}

impl Arrivals {
    /// Before anything has run.
    pub(crate) fn new(pipe: &Pipe) -> Self {
        let rows = || vec![vec![None; pipe.micro_batches]; pipe.devices()];
        let mut arrivals = Self { values: rows(), gradients: rows() };
        let there = vec![Some(Nanos(0)); pipe.micro_batches];
        if let Some(first) = arrivals.values.first_mut() {
            first.clone_from(&there);
        }
        if let Some(last) = arrivals.gradients.last_mut() {
            *last = there;
        }
        arrivals
    }

    /// When what a pass of a micro-batch needs from other devices is there, if that is known.
    pub(crate) fn of(&self, half: Half, device: usize, number: usize) -> Option<Nanos> {
        match half {
            Half::Forward => self.values[device].get(number).copied().flatten(),
            Half::Input => self.gradients[device].get(number).copied().flatten(),
            Half::Weight => Some(Nanos(0)),
        }
    }

    /// A pass of a micro-batch ends: who gets what it makes, and when.
    pub(crate) fn send(
        &mut self,
        pipe: &Pipe,
        (half, device, number): (Half, usize, usize),
        end: Nanos,
    ) -> Option<(usize, Nanos)> {
        let stage = &pipe.stages[device];
        let (rows, to, time) = match half {
            Half::Forward => (&mut self.values, device + 1, end + stage.down),
            Half::Input => (&mut self.gradients, device.checked_sub(1)?, end + stage.up),
            Half::Weight => return None,
        };
        *rows.get_mut(to)?.get_mut(number)? = Some(time);
        Some((to, time))
    }
}

/// A device on its way through its passes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Line {
    taken: usize,
    done: [usize; 3],
    first: Nanos,
    free: Nanos,
}

/// The devices on their way.
struct Run<'a> {
    pipe: &'a Pipe,
    lines: Vec<Line>,
    arrivals: Arrivals,
}

impl<'a> Run<'a> {
    fn new(pipe: &'a Pipe) -> Self {
        let lines = vec![Line::default(); pipe.devices()];
        Self { pipe, lines, arrivals: Arrivals::new(pipe) }
    }

    fn step(&mut self, device: usize, passes: &[Half]) -> Option<Half> {
        let line = &mut self.lines[device];
        let half = *passes.get(line.taken)?;
        let number = line.done[half as usize];
        let start = self.arrivals.of(half, device, number)?.max(line.free);
        let end = start + self.pipe.stages[device].time(half);
        if line.taken == 0 {
            line.first = start;
        }
        line.taken += 1;
        line.done[half as usize] += 1;
        line.free = end;
        self.arrivals.send(self.pipe, (half, device, number), end);
        Some(half)
    }
}
