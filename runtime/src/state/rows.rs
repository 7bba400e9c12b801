//! Where a schedule keeps the training state at rest, and the way there.

use super::{ArrayNumbers, State, StateError, names, part};
use crate::native::wide_type;
use roundelay_schedule::{
    Buffer, DeviceId, Float, Id, Job, Parameter, Rest, Schedule, Slice, Stage, Subject,
};
use std::{borrow::Cow, ops::Range};

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
pub(super) struct Piece {
    device: DeviceId,
    /// First byte in the device's arena.
    start: u64,
    pub(super) key: Array,
    /// Which part of split parameters it is of.
    pub(super) row: u32,
    /// The bytes of the stage's flat array that it holds.
    pub(super) part: Range<usize>,
}

/// What a piece has of a span of a stage's flat array.
pub(super) struct Stretch {
    pub(super) device: DeviceId,
    /// First byte in the device's arena.
    pub(super) start: u64,
    pub(super) row: u32,
    /// The bytes of the span that it has.
    pub(super) part: Range<usize>,
}

impl Piece {
    /// What it has of a span of the flat array, if it has some of it.
    pub(super) fn within(&self, span: &Range<usize>) -> Option<Stretch> {
        let own = self.part.start.max(span.start)..self.part.end.min(span.end);
        let start = || self.start + (own.start - self.part.start) as u64;
        (!own.is_empty()).then(|| Stretch {
            device: self.device,
            start: start(),
            row: self.row,
            part: own.start - span.start..own.end - span.start,
        })
    }
}

/// All arrays of carried rows as they lie at rest before step `step`.
pub(super) fn pieces(schedule: &Schedule, step: u64) -> Vec<Piece> {
    let of = |row: CarriedRow| {
        let keys = arrays(&schedule.job, &row).into_iter().enumerate();
        let pieces = keys.map(|(index, key)| {
            let part = key.bytes(&schedule.job, row.elements.clone());
            let start = row.bytes.start + (index * part.len()) as u64;
            Piece { device: row.device, start, key, row: row.part, part }
        });
        pieces.collect::<Vec<_>>()
    };
    carried(schedule, step).into_iter().flat_map(of).collect()
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
            let held = pieces.iter().filter_map(|piece| piece.within(&span.bytes));
            let held: Vec<Stretch> = held.collect();
            if held.is_empty() {
                continue;
            }
            let array = span.array(job, key, state)?;
            for held in held.chunk_by(|one, next| one.row == next.row) {
                let bytes = span.part(held[0].row, &array, key.size(job));
                for Stretch { device, start, part, .. } in held {
                    write(*device, *start, &bytes[part.clone()])?;
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
    let span = |elements, filling| Span { bytes: key.bytes(job, elements), filling };
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

/// One flat array of the state.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Array {
    /// θ_{T − age} of a stage.
    Parameter(Stage, u32),
    /// One array of a stage's optimizer state; the age is zero in every state.
    Optimizer(Stage, usize, u32),
}

impl Array {
    /// Type of an element.
    pub(super) fn dtype(self, job: &Job) -> Float {
        match self {
            Array::Parameter(..) => job.dtype,
            Array::Optimizer(..) => wide_type(job.dtype),
        }
    }

    /// Bytes of an element.
    pub(super) fn size(self, job: &Job) -> u64 {
        self.dtype(job).size()
    }

    /// The bytes of elements of the flat array.
    pub(super) fn bytes(self, job: &Job, elements: Range<u64>) -> Range<usize> {
        let place = |element: u64| (element * self.size(job)) as usize;
        place(elements.start)..place(elements.end)
    }

    pub(super) fn stage(self) -> Stage {
        match self {
            Array::Parameter(stage, _) | Array::Optimizer(stage, ..) => stage,
        }
    }

    /// A parameter's own name for it.
    pub(super) fn name(self, job: &Job, parameter: &Parameter) -> String {
        match self {
            Array::Parameter(_, age) => names::version(&parameter.name, age),
            Array::Optimizer(_, array, _) => {
                let array = job.optimizer.array_names(job.dtype).nth(array);
                let array = array.expect("an optimizer names all its arrays");
                names::optimizer(&parameter.name, array)
            }
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
