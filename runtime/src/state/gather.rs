//! The way of the state at rest from devices to whoever wants it: one array of one parameter at a time, in
//! the order of names, so that nobody needs room for more.

use super::{
    Extent, Moment, ParameterState, State,
    rows::{Array, Piece, Stretch, pieces},
};
use roundelay_schedule::{DeviceId, Float, Job, Parameter, Schedule};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::{ControlFlow, Range},
};

/// The most bytes that ranks send at once, unless one array has more: small ones share a round.
pub(crate) const ROUND: usize = 4 << 20;

/// One array of one parameter, and where devices have it.
pub(crate) struct Wanted<'a> {
    /// Its own, among all of the state.
    pub(crate) name: String,
    /// Of all parts of a split parameter together.
    pub(crate) shape: Vec<u64>,
    /// Element type.
    pub(crate) dtype: Float,
    parameter: &'a Parameter,
    key: Array,
    /// In the order of parts.
    stretches: Vec<Stretch>,
}

/// What takes the arrays of a state one by one, dense in native byte order, until it wants no more.
pub(crate) type Taker<'a> = dyn FnMut(&Wanted<'_>, Vec<u8>) -> ControlFlow<()> + 'a;

/// The arrays of so much of the state at a moment, in the order of their names. Of versions those are
/// wanted that the rule still reads, as far back as they follow one another.
///
/// # Panics
/// When the carried rows do not have the newest version of every parameter, which the checker excludes.
pub(crate) fn wanted(
    schedule: &Schedule,
    moment: Moment,
    extent: Extent,
) -> Vec<Wanted<'_>> {
    let mut known = BTreeSet::new();
    let mut held = BTreeMap::<Array, Vec<Piece>>::new();
    for piece in pieces(schedule, moment.step) {
        // Copies hold the same.
        if known.insert((piece.key, piece.row, piece.part.start)) {
            held.entry(piece.key).or_default().push(piece);
        }
    }
    let is_wanted = |key: &Array| match *key {
        Array::Parameter(_, 0) => true,
        Array::Parameter(stage, age) => {
            let follows = |before| held.contains_key(&Array::Parameter(stage, before));
            extent == Extent::Whole
                && age <= moment.reach(&schedule.plan, stage)
                && (0..age).all(follows)
        }
        Array::Optimizer(_, _, age) => extent == Extent::Whole && age == 0,
    };
    let mut wanted = Vec::<Wanted<'_>>::new();
    for (key, pieces) in held.iter().filter(|(key, _)| is_wanted(key)) {
        let parameters = schedule.job.parameters_of(key.stage());
        wanted.extend(parameters.map(|own| Wanted::of(&schedule.job, own, *key, pieces)));
    }
    let newest = wanted.iter().filter(|own| matches!(own.key, Array::Parameter(_, 0)));
    let all = newest.count() == schedule.job.parameters.len();
    assert!(all, "every stage keeps its newest parameters at rest");
    wanted.sort_by(|one, next| one.name.cmp(&next.name));
    wanted
}

/// Arrays that ranks send at once.
pub(crate) fn rounds<'w, 'a>(
    arrays: &'w [Wanted<'a>],
) -> impl Iterator<Item = &'w [Wanted<'a>]> {
    let mut bytes = 0;
    arrays.chunk_by(move |own, next| {
        bytes += own.length();
        let together = bytes + next.length() <= ROUND;
        if !together {
            bytes = 0;
        }
        together
    })
}

/// What `hand_over` hands over of so much of the state at a moment.
pub(crate) fn gathered<E>(
    moment: Moment,
    extent: Extent,
    hand_over: impl FnOnce(&mut Taker<'_>) -> Result<(), E>,
) -> Result<Gathered, E> {
    let mut gathered = Gathered::new(moment, extent);
    hand_over(&mut |array, numbers| {
        gathered.put(array.parameter, array.key, numbers);
        ControlFlow::Continue(())
    })?;
    Ok(gathered)
}

/// Hands so much of the state at rest at a moment over, read through `read(device, first byte, bytes)`,
/// until the taker wants no more.
pub(crate) fn save<E>(
    schedule: &Schedule,
    (moment, extent): (Moment, Extent),
    mut read: impl FnMut(DeviceId, u64, &mut [u8]) -> Result<(), E>,
    take: &mut Taker<'_>,
) -> Result<(), E> {
    for array in wanted(schedule, moment, extent) {
        let numbers = array.read(&mut read)?;
        if take(&array, numbers).is_break() {
            break;
        }
    }
    Ok(())
}

impl<'a> Wanted<'a> {
    fn of(job: &Job, parameter: &'a Parameter, key: Array, pieces: &[Piece]) -> Self {
        let own = span(job, parameter, key);
        // Every row has the same of what is not split.
        let counts = |row: u32| row == 0 || !parameter.split.is_whole();
        let stretches = pieces.iter().filter(|piece| counts(piece.row));
        let mut stretches: Vec<Stretch> =
            stretches.filter_map(|piece| piece.within(&own)).collect();
        stretches.sort_by_key(|own| own.row);
        Self {
            name: key.name(job, parameter),
            shape: parameter.whole_shape(),
            dtype: key.dtype(job),
            parameter,
            key,
            stretches,
        }
    }

    /// How many bytes it has.
    fn length(&self) -> usize {
        (self.parameter.whole_elements() * self.dtype.size()) as usize
    }

    /// What is read of devices, in this order: device, first byte, number of bytes.
    pub(crate) fn reads(&self) -> impl Iterator<Item = (DeviceId, u64, usize)> + Clone {
        self.stretches.iter().map(|own| (own.device, own.start, own.part.len()))
    }

    /// Its numbers, read as [`Wanted::reads`] says; beside them there is one part at a time.
    pub(crate) fn read<E>(
        &self,
        mut read: impl FnMut(DeviceId, u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<Vec<u8>, E> {
        let size = self.dtype.size();
        let mut fill = |own: &mut [u8], stretches: &[Stretch]| {
            stretches.iter().try_for_each(|Stretch { device, start, part, .. }| {
                read(*device, *start, &mut own[part.clone()])
            })
        };
        let mut whole = vec![0; self.length()];
        if self.parameter.split.is_whole() {
            fill(&mut whole, &self.stretches)?;
            return Ok(whole);
        }
        let mut own = vec![0; (self.parameter.elements() * size) as usize];
        for stretches in self.stretches.chunk_by(|one, next| one.row == next.row) {
            fill(&mut own, stretches)?;
            let row = stretches[0].row;
            self.parameter.put_part(row, &own, &mut whole, size as usize);
        }
        Ok(whole)
    }
}

/// The bytes of a stage's flat array that a parameter has.
fn span(job: &Job, parameter: &Parameter, key: Array) -> Range<usize> {
    key.bytes(job, parameter.offset..parameter.offset + parameter.elements())
}

/// A state that is put together in memory.
pub(crate) struct Gathered {
    moment: Moment,
    extent: Extent,
    /// By names of parameters.
    arrays: BTreeMap<String, BTreeMap<Array, Vec<u8>>>,
}

impl Gathered {
    /// Nothing yet of so much of the state at a moment.
    pub(crate) fn new(moment: Moment, extent: Extent) -> Self {
        Self { moment, extent, arrays: BTreeMap::new() }
    }

    /// Cuts what the rule still reads of a stage's flat array, which there is on each part of split tensors,
    /// into its parameters.
    pub(crate) fn cut(&mut self, schedule: &Schedule, key: Array, flats: &[Vec<u8>]) {
        let Schedule { job, plan, .. } = schedule;
        if let Array::Parameter(stage, age) = key
            && age > self.moment.reach(plan, stage)
        {
            return;
        }
        let size = key.size(job) as usize;
        for parameter in job.parameters_of(key.stage()) {
            let own = span(job, parameter, key);
            let mut whole = vec![0; parameter.whole_elements() as usize * size];
            for (row, flat) in (0..).zip(flats) {
                parameter.put_part(row, &flat[own.clone()], &mut whole, size);
            }
            self.put(parameter, key, whole);
        }
    }

    fn put(&mut self, parameter: &Parameter, key: Array, numbers: Vec<u8>) {
        self.arrays.entry(parameter.name.clone()).or_default().insert(key, numbers);
    }

    /// The state of a job, once all arrays are in it.
    ///
    /// # Panics
    /// When a parameter's newest version or a part of its optimizer state is not.
    pub(crate) fn state(self, job: &Job) -> State {
        let Self { moment, extent, mut arrays } = self;
        let states = match extent {
            Extent::Whole => job.optimizer.arrays(job.dtype) as usize,
            Extent::Parameters => 0,
        };
        let tensor = |own: &Parameter| {
            let mut versions = arrays.remove(&own.name).unwrap_or_default();
            let optimizer = versions.split_off(&Array::Optimizer(own.stage, 0, 0));
            assert!(!versions.is_empty(), "every stage keeps its newest parameters");
            assert!(optimizer.len() == states, "every stage keeps its optimizer state");
            let [versions, optimizer] =
                [versions, optimizer].map(|arrays| arrays.into_values().collect());
            let shape = own.whole_shape();
            (own.name.clone(), ParameterState { shape, versions, optimizer })
        };
        let tensors = job.parameters.iter().map(tensor).collect();
        let Moment { step, origin, optimizer_origin } = moment;
        State { dtype: job.dtype, step, origin, optimizer_origin, tensors }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::tests::schedule;
    use roundelay_kernels::random::Stream;
    use roundelay_schedule::Rule;

    /// As many as fit together, and none too much where it is not one alone.
    #[test]
    fn rounds_are_filled_in_order() {
        let schedule = schedule(Rule::Sync);
        let (stream, most) = (Stream::new(7, &[]), ROUND as u64 / 4);
        let long = |i: u64| {
            1 + stream.below(i, if i.is_multiple_of(9) { 2 * most } else { most / 2 })
        };
        let parameters = (0..200).map(|i| Parameter {
            shape: vec![long(i)],
            ..schedule.job.parameters[0].clone()
        });
        let parameters: Vec<Parameter> = parameters.collect();
        let key = Array::Parameter(parameters[0].stage, 0);
        let of = |own| Wanted::of(&schedule.job, own, key, &[]);
        let arrays: Vec<Wanted<'_>> = parameters.iter().map(of).collect();
        let bytes =
            |round: &[Wanted<'_>]| round.iter().map(Wanted::length).sum::<usize>();
        let rounds: Vec<_> = rounds(&arrays).collect();
        assert_eq!(rounds.iter().map(|own| own.len()).sum::<usize>(), arrays.len());
        assert!(rounds.iter().all(|own| own.len() == 1 || bytes(own) <= ROUND));
        assert!(rounds.iter().any(|own| bytes(own) > ROUND), "some array is longer");
        for pair in rounds.windows(2) {
            assert!(bytes(pair[0]) + pair[1][0].length() > ROUND, "it has room for more");
        }
    }
}
