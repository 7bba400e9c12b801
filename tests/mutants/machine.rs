//! A sequential machine: arenas, and one instance after another in whatever order it is told.
#![expect(unsafe_code, reason = "kernels take the addresses of their operands")]

use crate::{examples::Examples, graph::Node};
use roundelay_kernels::{Context, Kernel, Mode};
use roundelay_runtime::Feed;
use roundelay_schedule::{
    Collective, Float, Group, Id, MicroBatch, Pass, Place, RoutineId, Row, Schedule,
    Slice, Subject, Work,
};
use std::collections::BTreeMap;
use std::ops::Range;

/// A pattern that is not a number.
const POISON: u64 = u64::MAX;

/// The memory of all devices, and what actions do with it.
pub(crate) struct Machine<'a> {
    schedule: &'a Schedule,
    coordinates: Vec<Vec<u32>>,
    code: Vec<Vec<Call>>,
    /// By device of the target; whole words, so that numbers are aligned.
    arenas: Vec<Vec<u64>>,
    feed: Examples,
    /// Bits of the loss by step and micro-batch.
    pub(crate) losses: BTreeMap<(i64, usize), u64>,
}

/// A kernel, and argument and first byte of each operand.
type Call = (Kernel, Vec<(usize, usize)>);

/// Bytes of one device.
#[derive(Clone)]
struct Span {
    device: usize,
    bytes: Range<usize>,
}

impl Span {
    fn part(&self, bytes: Range<usize>) -> Self {
        let start = self.bytes.start;
        Self { device: self.device, bytes: start + bytes.start..start + bytes.end }
    }
}

impl<'a> Machine<'a> {
    pub(crate) fn new(schedule: &'a Schedule) -> Self {
        assert_eq!(schedule.job.dtype, Float::F32, "the mutated programs compute in f32");
        let parse = |call: &roundelay_schedule::Call| {
            let kernel = Kernel::parse(call).expect("a checked call is well formed");
            let operands = call.operands.iter();
            let places = operands.map(|o| (o.argument as usize, o.offset.0 as usize));
            (kernel, places.collect())
        };
        let routines = schedule.routines.values();
        let code = routines.map(|routine| routine.calls.iter().map(parse).collect());
        Self {
            schedule,
            coordinates: schedule.coordinates(),
            code: code.collect(),
            arenas: vec![Vec::new(); schedule.target.devices.len()],
            feed: Examples,
            losses: BTreeMap::new(),
        }
    }

    /// Forgets everything.
    pub(crate) fn poison(&mut self) {
        for ring in self.schedule.rings.values() {
            for device in &ring.devices {
                let words = self.schedule.arena(*device).0.div_ceil(8) as usize;
                for coordinate in &self.coordinates {
                    let own = self.schedule.device_at(*device, coordinate).index();
                    self.arenas[own].clear();
                    self.arenas[own].resize(words, POISON);
                }
            }
        }
    }

    pub(crate) fn read(&self, device: usize, bytes: Range<usize>) -> &[u8] {
        let words = &self.arenas[device];
        assert!(bytes.start <= bytes.end && bytes.end <= 8 * words.len(), "inside");
        // SAFETY: the range lies inside the words, and bytes have no alignment.
        unsafe {
            let first = words.as_ptr().cast::<u8>().add(bytes.start);
            std::slice::from_raw_parts(first, bytes.len())
        }
    }

    pub(crate) fn write(&mut self, device: usize, bytes: Range<usize>) -> &mut [u8] {
        let words = &mut self.arenas[device];
        assert!(bytes.start <= bytes.end && bytes.end <= 8 * words.len(), "inside");
        // SAFETY: as in `read`; `&mut self` excludes everybody else.
        unsafe {
            let first = words.as_mut_ptr().cast::<u8>().add(bytes.start);
            std::slice::from_raw_parts_mut(first, bytes.len())
        }
    }

    /// Does what the action of a node says.
    pub(crate) fn execute(&mut self, node: &Node) {
        let Some(step) = node.step else { return };
        let (schedule, period) = (self.schedule, node.period);
        let all: Vec<usize> = match node.coordinate {
            Some(own) => vec![own],
            None => (0..self.coordinates.len()).collect(),
        };
        match &schedule.actions[node.action].work {
            Work::Launch { at, routine, micro_batch, rows, .. } => {
                for own in all {
                    self.launch((step, period, own), (*at, *routine), *micro_batch, rows);
                }
            }
            Work::Transfer { from, to, .. } => {
                for own in all {
                    let source = self.span(from.at, from.row, period, own);
                    let target = self.span(to.at, to.row, period, own);
                    self.copy(&source, &target);
                }
            }
            Work::Collective { kind, group, from, to, .. } => {
                let group = &schedule.groups[*group];
                for members in self.members(group) {
                    self.collective(*kind, &members, [*from, *to], period);
                }
            }
            Work::Feed { at, micro_batch, row } => {
                for own in all {
                    let Subject::Input(input) = schedule.buffers[row.buffer].subject
                    else {
                        unreachable!("a checked feed writes an input")
                    };
                    let elements: u64 = schedule.job.inputs[input].shape.iter().product();
                    let span = self.span(*at, *row, period, own);
                    let span = span.part(0..4 * elements as usize);
                    let i = self.global(own, *micro_batch) as u64;
                    let mut feed = self.feed;
                    feed.fill(input, step as u64, i, self.write(span.device, span.bytes));
                }
            }
            Work::Report { at, micro_batch, row } => {
                for own in all {
                    let span = self.span(*at, *row, period, own).part(0..4);
                    let loss = f64::from(number(self.read(span.device, span.bytes)));
                    let i = self.global(own, *micro_batch);
                    self.losses.insert((step, i), loss.to_bits());
                }
            }
        }
    }

    fn span(&self, at: Place, row: Row, period: i64, coordinate: usize) -> Span {
        let schedule = self.schedule;
        let device = schedule.rings[at.ring].device(at.place, period);
        let device = schedule.device_at(device, &self.coordinates[coordinate]).index();
        let buffer = &schedule.buffers[row.buffer];
        let slot = u64::from(buffer.slot(row.place, period));
        let start = (buffer.offset.0 + slot * buffer.size.0) as usize;
        Span { device, bytes: start..start + buffer.size.0 as usize }
    }

    fn global(&self, coordinate: usize, micro_batch: MicroBatch) -> usize {
        coordinate * self.schedule.cell_micro_batches() as usize + micro_batch.index()
    }

    fn launch(
        &mut self,
        (step, period, own): (i64, i64, usize),
        (at, routine): (Place, RoutineId),
        micro_batch: Option<MicroBatch>,
        rows: &[Row],
    ) {
        let schedule = self.schedule;
        let step = u64::try_from(step).expect("launches serve steps of the run");
        let rate = match schedule.routines[routine].pass {
            Pass::Update => schedule.job.optimizer.rate.at(step),
            Pass::Forward
            | Pass::Backward
            | Pass::InputGradient
            | Pass::WeightGradient
            | Pass::Combine
            | Pass::Norm => 0.0,
        };
        let context = Context {
            step,
            updates: step + 1,
            micro_batch: micro_batch.map_or(0, |i| self.global(own, i) as u64),
            seed: schedule.job.seed,
            mode: Mode::Training,
            rate,
            slice_offset: self.slice_offset(rows, own),
            part: 0,
            threads: 1,
        };
        let spans = rows.iter().map(|row| self.span(at, *row, period, own));
        let spans: Vec<Span> = spans.collect();
        let device = spans.first().map_or(0, |span| span.device);
        let base = self.arenas[device].as_mut_ptr().cast::<u8>();
        let length = 8 * self.arenas[device].len();
        let mut operands = Vec::new();
        for (kernel, places) in &self.code[routine.index()] {
            operands.clear();
            for ((argument, offset), size) in places.iter().zip(kernel.sizes(Float::F32))
            {
                let bytes = &spans[*argument].bytes;
                let start = bytes.start + offset;
                let end = start + size.0 as usize;
                assert!(end <= bytes.end && end <= length, "operands lie in arguments");
                operands.push(base.wrapping_add(start));
            }
            // SAFETY: operands lie inside the device's arena, aligned to numbers, and those that
            // are written share no memory, as the checker says; one thread runs.
            unsafe { kernel.run::<f32>(&operands, &context) }
        }
    }

    fn slice_offset(&self, rows: &[Row], own: usize) -> u64 {
        let schedule = self.schedule;
        let subjects = rows.iter().map(|row| schedule.buffers[row.buffer].subject);
        let shards = subjects.filter_map(|subject| match subject {
            Subject::Parameter(stage, Slice::Shard(axis))
            | Subject::Gradient(stage, Slice::Shard(axis))
            | Subject::Optimizer(stage, Slice::Shard(axis)) => {
                let extent = u64::from(schedule.axes[axis].extent);
                let part = schedule.job.elements[stage] / extent;
                Some(part * u64::from(self.coordinates[own][axis.index()]))
            }
            _ => None,
        });
        shards.max().unwrap_or(0)
    }

    fn copy(&mut self, from: &Span, to: &Span) {
        let bytes = self.read(from.device, from.bytes.clone()).to_vec();
        let start = to.bytes.start;
        self.write(to.device, start..start + bytes.len()).copy_from_slice(&bytes);
    }

    /// The members of every instance of a group: coordinate and place.
    fn members(&self, group: &Group) -> Vec<Vec<(usize, Place)>> {
        let mut instances: BTreeMap<Vec<u32>, Vec<(usize, Place)>> = BTreeMap::new();
        for (number, coordinate) in self.coordinates.iter().enumerate() {
            let mut across = coordinate.clone();
            group.axes.iter().for_each(|axis| across[axis.index()] = 0);
            let members = instances.entry(across).or_default();
            members.extend(group.places.iter().map(|place| (number, *place)));
        }
        instances.into_values().collect()
    }

    /// All members give, then all get.
    fn collective(
        &mut self,
        kind: Collective,
        members: &[(usize, Place)],
        [from, to]: [Row; 2],
        period: i64,
    ) {
        let spans = |row| members.iter().map(move |(own, at)| (*at, row, period, *own));
        let ends = [from, to].map(|row| {
            spans(row).map(|(at, row, p, own)| self.span(at, row, p, own)).collect()
        });
        let [sources, targets]: [Vec<Span>; 2] = ends;
        let given = sources.iter().map(|s| self.read(s.device, s.bytes.clone()).to_vec());
        let given: Vec<Vec<u8>> = given.collect();
        for (index, target) in targets.into_iter().enumerate() {
            let length = target.bytes.len();
            let bytes = match kind {
                Collective::AllReduce => sum(&given),
                Collective::ReduceScatter => {
                    sum(&given)[index * length..(index + 1) * length].to_vec()
                }
                Collective::AllGather => given.concat(),
            };
            self.write(target.device, target.bytes).copy_from_slice(&bytes);
        }
    }
}

/// The sum in group order.
fn sum(given: &[Vec<u8>]) -> Vec<u8> {
    let mut all: Vec<f32> = given[0].chunks_exact(4).map(number).collect();
    for other in &given[1..] {
        for (sum, bytes) in all.iter_mut().zip(other.chunks_exact(4)) {
            *sum += number(bytes);
        }
    }
    all.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

fn number(bytes: &[u8]) -> f32 {
    f32::from_ne_bytes(bytes.try_into().expect("four bytes"))
}
