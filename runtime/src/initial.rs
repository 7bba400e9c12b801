//! θ_0: what a run starts from.

use crate::{
    ParameterState, State, StateError,
    digest::Digest,
    helpers::share_out,
    native::{put, rounded, wide_type},
    state::{ArrayNumbers, ArraySource, Made},
};
use roundelay_kernels::random::Stream;
use roundelay_schedule::{Float, Initial, Job, Parameter};
use std::{borrow::Cow, thread};

/// Labels the streams of initial parameters; the letters of the name follow.
const INITIAL: u64 = u64::from_le_bytes(*b"initial\0");

/// Numbers that a thread draws at once.
const BLOCK: usize = 1 << 16;

impl State {
    /// [`State::drawn`] with all its arrays.
    pub fn initial(job: &Job) -> Self {
        State::drawn(job).held().expect("what is drawn is not read from a file")
    }
}

impl State<ArraySource> {
    /// θ_0 of a job, with optimizer state zero. Every number depends on the seed, the global name
    /// of its parameter and its place in the whole alone, so all plans start equal; it is drawn in
    /// 64 bits and rounded to the job's type.
    pub fn drawn(job: &Job) -> Self {
        let tensor = |own: &Parameter| {
            ParameterState::first(job, own.whole_shape(), |dtype| {
                ArraySource::new(Drawing::new(job.seed, own, dtype))
            })
        };
        let tensors = job.parameters.iter().map(|p| (p.name.clone(), tensor(p)));
        State {
            dtype: job.dtype,
            step: 0,
            origin: 0,
            optimizer_origin: 0,
            tensors: tensors.collect(),
        }
    }
}

/// The first numbers of a parameter.
#[derive(Debug)]
struct Drawing {
    stream: Stream,
    initial: Initial,
    count: u64,
    dtype: Float,
}

impl Drawing {
    fn new(seed: u64, parameter: &Parameter, dtype: Float) -> Self {
        let letters = parameter.name.bytes().map(u64::from);
        let labels: Vec<u64> = std::iter::once(INITIAL).chain(letters).collect();
        let stream = Stream::new(seed, &labels);
        let count = parameter.whole_elements();
        Self { stream, initial: parameter.initial, count, dtype }
    }

    fn number(&self, index: u64) -> f64 {
        match self.initial {
            Initial::Constant(value) => value,
            Initial::Normal(deviation) => deviation * self.stream.normal(index),
            Initial::Uniform(bound) => bound * (2.0 * self.stream.uniform(index) - 1.0),
        }
    }

    /// Draws the numbers of the wide type from `first` on.
    fn fill(&self, first: usize, numbers: &mut [u8]) {
        let wide = wide_type(self.dtype);
        let places = numbers.chunks_exact_mut(wide.size() as usize);
        (first as u64..)
            .zip(places)
            .for_each(|(index, place)| put(wide, self.number(index), place));
    }
}

impl ArrayNumbers for Drawing {
    fn length(&self) -> usize {
        (self.count * self.dtype.size()) as usize
    }

    fn bytes(&self) -> Result<Cow<'_, [u8]>, StateError> {
        let size = self.dtype.wide_size() as usize;
        let mut numbers = vec![0; self.count as usize * size];
        let blocks = numbers.len().div_ceil(BLOCK * size);
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let parts = numbers.chunks_mut(BLOCK * size).enumerate();
        share_out(threads.min(blocks), parts, |(number, block)| {
            self.fill(number * BLOCK, block);
        });
        Ok(Cow::Owned(rounded(numbers, self.dtype)))
    }
}

impl Made for Drawing {
    fn tell(&self, digest: &mut Digest) -> Result<(), StateError> {
        digest.add(b"drawn");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::tests::job;
    use roundelay_schedule::{
        Belonging, Data, Division, Id, Method, ParameterKind, Stage, Treatment,
    };

    fn parameter(name: &str, stage: usize, initial: Initial) -> Parameter {
        let stage = Stage::new(stage);
        let (name, shape) = (name.to_string(), vec![100, 50]);
        Parameter {
            belonging: Belonging::Model,
            name,
            stage,
            offset: 0,
            shape,
            kind: ParameterKind::Plain,
            split: Division::Whole,
            initial,
            treatment: Treatment::Decayed,
        }
    }

    fn numbers(state: &State, name: &str) -> Vec<f64> {
        let (words, _) = state.tensors[name].versions[0].as_chunks::<8>();
        words.iter().map(|word| f64::from_ne_bytes(*word)).collect()
    }

    fn wide(parameters: Vec<Parameter>) -> Job {
        Job { parameters, dtype: Float::F64, ..job(Data::Synthetic, &[]) }
    }

    #[test]
    fn numbers_have_the_spread_that_is_asked_for() {
        let state = State::initial(&wide(vec![
            parameter("normal", 0, Initial::Normal(0.02)),
            parameter("uniform", 0, Initial::Uniform(0.5)),
            parameter("gain", 0, Initial::Constant(1.0)),
        ]));
        let square = |name| {
            let numbers = numbers(&state, name);
            numbers.iter().map(|x| x * x).sum::<f64>() / numbers.len() as f64
        };
        assert!((square("normal") / 4e-4 - 1.0).abs() < 0.1);
        assert!((square("uniform") * 12.0 - 1.0).abs() < 0.1);
        assert!(numbers(&state, "uniform").iter().all(|x| (-0.5..0.5).contains(x)));
        assert_eq!(numbers(&state, "gain"), [1.0; 5000]);
    }

    #[test]
    fn blocks_of_several_threads_are_the_sequence() {
        let shape = vec![2, BLOCK as u64 + 7];
        let long = Parameter { shape, ..parameter("a", 0, Initial::Normal(1.0)) };
        let drawing = Drawing::new(7, &long, Float::F64);
        let expected: Vec<f64> = (0..drawing.count).map(|k| drawing.number(k)).collect();
        assert_eq!(numbers(&State::initial(&wide(vec![long])), "a"), expected);
    }

    #[test]
    fn cutting_the_model_otherwise_changes_nothing() {
        let normal = Initial::Normal(1.0);
        let one = wide(vec![parameter("a", 0, normal), parameter("b", 1, normal)]);
        let mut other = one.clone();
        other.parameters = vec![parameter("b", 0, normal), parameter("a", 3, normal)];
        assert_eq!(State::initial(&one), State::initial(&other));
        let state = State::initial(&one);
        assert_ne!(numbers(&state, "a"), numbers(&state, "b"));
        let seeded = State::initial(&Job { seed: 8, ..one.clone() });
        assert_ne!(numbers(&state, "a"), numbers(&seeded, "a"));
        let narrow = State::initial(&Job { dtype: Float::F32, ..one });
        let (words, _) = narrow.tensors["a"].versions[0].as_chunks::<4>();
        let rounded = numbers(&state, "a").into_iter().map(|x| x as f32);
        assert!(words.iter().map(|word| f32::from_ne_bytes(*word)).eq(rounded));
    }

    #[test]
    fn optimizer_state_is_zero_and_the_state_fits() {
        let mut job = wide(vec![parameter("a", 0, Initial::Normal(1.0))]);
        job.optimizer.method = Method::Adamw { beta1: 0.9, beta2: 0.99, epsilon: 1e-8 };
        let state = State::initial(&job);
        assert_eq!(state.fits(&job), Ok(()));
        assert_eq!(state.tensors["a"].optimizer, vec![vec![0; 40_000]; 2]);
    }
}
