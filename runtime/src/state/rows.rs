//! Where a schedule keeps the training state at rest, and the way there and back.

use super::{ArrayNumbers, Extent, Moment, ParameterState, State, StateError, part};
use roundelay_schedule::{
    Buffer, DeviceId, Id, Job, Parameter, Rest, Schedule, Slice, Stage, Subject,
};
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

/// One row that holds state at rest, at one coordinate of the axes.
pub(crate) struct CarriedRow {
    /// The device of the target.
    pub(crate) device: DeviceId,
    /// Bytes of the device's arena.
    pub(crate) bytes: Range<u64>,
    subject: Subject,
    /// Which part of split parameters it holds.
    part: u32,
    age: u32,
    elements: Range<u64>,
}

impl CarriedRow {
    /// The bytes of a stage's flat array that it holds, whose elements are `size` bytes wide.
    fn part(&self, size: u64) -> Range<usize> {
        (self.elements.start * size) as usize..(self.elements.end * size) as usize
    }
}

/// All carried rows as they lie at rest before step `step`.
pub(crate) fn carried(schedule: &Schedule, step: u64) -> Vec<CarriedRow> {
    let mut rows = Vec::new();
    let coordinates = schedule.coordinates();
    for buffer in schedule.buffers.values() {
        let Rest::Carried(ages) = &buffer.rest else { continue };
        for coordinate in &coordinates {
            let Some(elements) = elements(schedule, buffer.subject, coordinate) else {
                continue;
            };
            rows.extend(rows_of(schedule, buffer, ages, step).map(
                |(device, start, age)| CarriedRow {
                    device: schedule.device_at(device, coordinate),
                    bytes: start..start + buffer.size.0,
                    subject: buffer.subject,
                    part: schedule.part_at(coordinate),
                    age,
                    elements: elements.clone(),
                },
            ));
        }
    }
    rows
}

fn rows_of<'a>(
    schedule: &'a Schedule,
    buffer: &'a Buffer,
    ages: &'a [Vec<Option<u32>>],
    step: u64,
) -> impl Iterator<Item = (DeviceId, u64, u32)> + 'a {
    let period = i64::try_from(step).unwrap_or(i64::MAX);
    let ring = &schedule.rings[buffer.home];
    let one = move |place: usize, slot: usize, age: u32| {
        let device = ring.device(place as u32, period);
        let slot = buffer.slot(slot as u32, period);
        (device, buffer.offset.0 + u64::from(slot) * buffer.size.0, age)
    };
    ages.iter().enumerate().flat_map(move |(place, slots)| {
        let slots = slots.iter().enumerate();
        slots.filter_map(move |(slot, age)| Some(one(place, slot, (*age)?)))
    })
}

/// The elements of a stage's flat array that a buffer holds at a coordinate; none for what is no
/// training state.
pub(crate) fn elements(
    schedule: &Schedule,
    subject: Subject,
    coordinate: &[u32],
) -> Option<Range<u64>> {
    let (stage, slice) = subject.state()?;
    let all = schedule.job.elements[stage];
    Some(match slice {
        Slice::Whole => 0..all,
        Slice::Shard(axis) => {
            let index = axis.index();
            let part = all / u64::from(schedule.axes[axis].extent);
            let start = part * u64::from(coordinate[index]);
            start..start + part
        }
    })
}

/// One array of a carried row.
struct Piece {
    device: DeviceId,
    /// First byte in the device's arena.
    start: u64,
    key: Array,
    /// Which part of split parameters it is of.
    row: u32,
    /// The bytes of the stage's flat array that it holds.
    part: Range<usize>,
}

impl Piece {
    /// What it has of a span of the flat array, if it has some of it.
    fn of(&self, Span { bytes, .. }: &Span<'_>) -> Option<Range<usize>> {
        let own = self.part.start.max(bytes.start)..self.part.end.min(bytes.end);
        (!own.is_empty()).then_some(own)
    }
}

/// All arrays of carried rows as they lie at rest before step `step`.
fn pieces(schedule: &Schedule, step: u64) -> Vec<Piece> {
    let of = |row: CarriedRow| {
        let keys = arrays(&schedule.job, &row).into_iter().enumerate();
        let pieces = keys.map(|(index, key)| {
            let part = row.part(key.size(&schedule.job));
            let start = row.bytes.start + (index * part.len()) as u64;
            Piece { device: row.device, start, key, row: row.part, part }
        });
        pieces.collect::<Vec<_>>()
    };
    carried(schedule, step).into_iter().flat_map(of).collect()
}

/// What a state has of one array of a stage: each part once, for copies of it hold the same.
pub(crate) struct Round {
    key: Array,
    pieces: Vec<Piece>,
}

impl Round {
    /// What is read of devices, in this order: device, first byte, number of bytes.
    pub(crate) fn reads(&self) -> impl Iterator<Item = (DeviceId, u64, usize)> {
        self.pieces.iter().map(|piece| (piece.device, piece.start, piece.part.len()))
    }
}

/// All arrays of so much of the state as they lie at rest before step `step`, in ascending order.
pub(crate) fn rounds(schedule: &Schedule, step: u64, extent: Extent) -> Vec<Round> {
    let mut known = BTreeSet::new();
    let mut rounds = BTreeMap::<Array, Vec<Piece>>::new();
    let pieces = pieces(schedule, step).into_iter();
    for piece in pieces.filter(|piece| piece.key.is_of(extent)) {
        if known.insert((piece.key, piece.row, piece.part.start)) {
            rounds.entry(piece.key).or_default().push(piece);
        }
    }
    rounds.into_iter().map(|(key, pieces)| Round { key, pieces }).collect()
}

/// Fills the carried rows of the devices that a process has through `write(device, first byte, bytes)`,
/// from a state that fits. One array of one parameter is made at a time, and only those that a row has
/// something of.
pub(crate) fn load<A: ArrayNumbers, E: From<StateError>>(
    schedule: &Schedule,
    state: &State<A>,
    has: impl Fn(DeviceId) -> bool,
    mut write: impl FnMut(DeviceId, u64, &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let job = &schedule.job;
    let mut own = pieces(schedule, state.step);
    own.retain(|piece| has(piece.device));
    own.sort_by_key(|piece| (piece.key, piece.row));
    for pieces in own.chunk_by(|one, next| one.key == next.key) {
        let key = pieces[0].key;
        for span in spans(job, key) {
            let held = pieces.iter().filter_map(|piece| Some((piece, piece.of(&span)?)));
            let held: Vec<_> = held.collect();
            if held.is_empty() {
                continue;
            }
            let array = span.array(job, key, state)?;
            for held in held.chunk_by(|(one, _), (next, _)| one.row == next.row) {
                let bytes = span.part(held[0].0.row, &array, key.size(job));
                for (piece, own) in held {
                    let start = piece.start + (own.start - piece.part.start) as u64;
                    let first = own.start - span.bytes.start;
                    write(piece.device, start, &bytes[first..first + own.len()])?;
                }
            }
        }
    }
    Ok(())
}

/// Bytes of a stage's flat array, and what is there.
struct Span<'a> {
    bytes: Range<usize>,
    filling: Filling<'a>,
}

enum Filling<'a> {
    Parameter(&'a Parameter),
    /// Zero in every state.
    Padding,
}

impl Span<'_> {
    /// What fills it on all rows together.
    fn array<'a, A: ArrayNumbers>(
        &self,
        job: &Job,
        key: Array,
        state: &'a State<A>,
    ) -> Result<Cow<'a, [u8]>, StateError> {
        match self.filling {
            Filling::Parameter(own) => key.of(job, own, state)?.bytes(),
            Filling::Padding => Ok(Cow::Owned(vec![0; self.bytes.len()])),
        }
    }

    /// What a row has of it.
    fn part<'a>(&self, row: u32, array: &'a [u8], size: u64) -> Cow<'a, [u8]> {
        match self.filling {
            Filling::Parameter(own) => part(own, row, array, size),
            Filling::Padding => Cow::Borrowed(array),
        }
    }
}

/// The whole of a flat array, in its order.
fn spans(job: &Job, key: Array) -> Vec<Span<'_>> {
    let mut parameters: Vec<&Parameter> = job.parameters_of(key.stage()).collect();
    parameters.sort_by_key(|own| own.offset);
    let span = |elements: Range<u64>, filling| {
        let [start, end] =
            [elements.start, elements.end].map(|place| (place * key.size(job)) as usize);
        Span { bytes: start..end, filling }
    };
    let mut end = 0;
    let mut spans = Vec::new();
    for own in parameters {
        spans.push(span(end..own.offset, Filling::Padding));
        end = own.offset + own.elements();
        spans.push(span(own.offset..end, Filling::Parameter(own)));
    }
    spans.push(span(end..job.elements[key.stage()], Filling::Padding));
    spans
}

/// Gathers so much of the state at rest at a moment through `read(device, first byte, bytes)`. Beside
/// the state there is one flat array at a time, of all rows of split tensors.
///
/// # Panics
/// When the carried rows do not cover the newest version, which the checker excludes.
pub(crate) fn save<E>(
    schedule: &Schedule,
    (moment, extent): (Moment, Extent),
    mut read: impl FnMut(DeviceId, u64, &mut [u8]) -> Result<(), E>,
) -> Result<State, E> {
    let mut gathered = Gathered::new(schedule, moment, extent);
    for round in rounds(schedule, moment.step, extent) {
        gathered.take(&round, &mut read)?;
    }
    Ok(gathered.state())
}

/// One flat array on each row of split tensors.
pub(crate) type Flats = BTreeMap<u32, Vec<u8>>;

/// One flat array of the state.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Array {
    /// θ_{T − age} of a stage.
    Parameter(Stage, u32),
    /// One array of a stage's optimizer state; the age is zero in every state.
    Optimizer(Stage, usize, u32),
}

impl Array {
    /// Bytes of an element.
    fn size(self, job: &Job) -> u64 {
        match self {
            Array::Parameter(..) => job.dtype.size(),
            Array::Optimizer(..) => job.dtype.wide_size(),
        }
    }

    fn is_of(self, extent: Extent) -> bool {
        match (extent, self) {
            (Extent::Whole, _) | (Extent::Parameters, Array::Parameter(_, 0)) => true,
            (Extent::Parameters, Array::Parameter(..) | Array::Optimizer(..)) => false,
        }
    }

    fn stage(self) -> Stage {
        match self {
            Array::Parameter(stage, _) | Array::Optimizer(stage, ..) => stage,
        }
    }

    /// A parameter's own, in a state.
    fn of<'a, A: ArrayNumbers>(
        self,
        job: &Job,
        parameter: &Parameter,
        state: &'a State<A>,
    ) -> Result<&'a A, StateError> {
        match self {
            Array::Parameter(_, age) => state.version(job, parameter, age),
            Array::Optimizer(_, array, 0) => {
                Ok(&state.optimizer_arrays(job, parameter)?[array])
            }
            Array::Optimizer(_, _, age) => Err(StateError::OldOptimizer { age }),
        }
    }
}

fn arrays(job: &Job, row: &CarriedRow) -> Vec<Array> {
    match row.subject {
        Subject::Parameter(stage, _) => vec![Array::Parameter(stage, row.age)],
        Subject::Optimizer(stage, _) => {
            let states = 0..job.optimizer.arrays(job.dtype) as usize;
            states.map(|array| Array::Optimizer(stage, array, row.age)).collect()
        }
        Subject::Gradient(..)
        | Subject::Squares(..)
        | Subject::Activation(_)
        | Subject::Retained(_)
        | Subject::Adjoint(_)
        | Subject::Value(_)
        | Subject::ValueGradient(_)
        | Subject::Input(_)
        | Subject::Metric
        | Subject::Workspace => Vec::new(),
    }
}

/// A state that is put together array by array.
pub(crate) struct Gathered<'a> {
    schedule: &'a Schedule,
    extent: Extent,
    state: State,
}

impl<'a> Gathered<'a> {
    /// Nothing yet of so much of the state at a moment.
    pub(crate) fn new(schedule: &'a Schedule, moment: Moment, extent: Extent) -> Self {
        let tensor = |parameter: &Parameter| {
            let (versions, optimizer) = (Vec::new(), Vec::new());
            ParameterState { shape: parameter.whole_shape(), versions, optimizer }
        };
        let parameters = schedule.job.parameters.iter();
        let tensors = parameters.map(|own| (own.name.clone(), tensor(own))).collect();
        let (dtype, Moment { step, origin, optimizer_origin }) =
            (schedule.job.dtype, moment);
        let state = State { dtype, step, origin, optimizer_origin, tensors };
        Self { schedule, extent, state }
    }

    /// Takes in an array of a stage, read as [`Round::reads`] says.
    pub(crate) fn take<E>(
        &mut self,
        Round { key, pieces }: &Round,
        mut read: impl FnMut(DeviceId, u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let job = &self.schedule.job;
        let length = (job.elements[key.stage()] * key.size(job)) as usize;
        let mut flats = Flats::new();
        for Piece { device, start, row, part, .. } in pieces {
            let flat = flats.entry(*row).or_insert_with(|| vec![0; length]);
            read(*device, *start, &mut flat[part.clone()])?;
        }
        self.add(*key, &flats);
        Ok(())
    }

    /// Cuts an array of a stage into its parameters; arrays come in ascending order. Of versions those are
    /// kept that the rule still reads, as far back as they follow one another.
    pub(crate) fn add(&mut self, key: Array, flats: &Flats) {
        let Schedule { job, plan, .. } = self.schedule;
        let oldest = self.state.moment().reach(plan, key.stage());
        for parameter in job.parameters_of(key.stage()) {
            let tensor = self.state.tensors.get_mut(&parameter.name);
            let tensor = tensor.expect("every parameter of the job is here");
            let arrays = match key {
                Array::Parameter(_, age) => {
                    if age > oldest || age as usize != tensor.versions.len() {
                        continue;
                    }
                    &mut tensor.versions
                }
                Array::Optimizer(..) => &mut tensor.optimizer,
            };
            arrays.push(whole(flats, parameter, key.size(job)));
        }
    }

    /// The state, once all arrays were added.
    ///
    /// # Panics
    /// When a parameter's newest version or a part of its optimizer state was not.
    pub(crate) fn state(self) -> State {
        let job = &self.schedule.job;
        let states = match self.extent {
            Extent::Whole => job.optimizer.arrays(job.dtype) as usize,
            Extent::Parameters => 0,
        };
        for tensor in self.state.tensors.values() {
            let newest = !tensor.versions.is_empty();
            assert!(newest, "every stage keeps its newest parameters at rest");
            let whole = tensor.optimizer.len() == states;
            assert!(whole, "every stage keeps its optimizer state at rest");
        }
        self.state
    }
}

/// A parameter's whole array from the flat ones of all rows: what is not split is the same on
/// each.
fn whole(flats: &Flats, parameter: &Parameter, size: u64) -> Vec<u8> {
    let start = (parameter.offset * size) as usize;
    let part = start..start + (parameter.elements() * size) as usize;
    if parameter.split.is_whole() {
        return flats[&0][part].to_vec();
    }
    let mut whole = vec![0; (parameter.whole_elements() * size) as usize];
    for (row, flat) in flats {
        parameter.put_part(*row, &flat[part.clone()], &mut whole, size as usize);
    }
    whole
}
