//! Normal features, and targets that a fixed random function makes of them, so that a loss can
//! fall: a linear map of a few features of length one, then tanh for reals, and for classes the
//! share of the normal distribution that lies below.

use super::{DataError, Example, LIMIT, refuse, stream};
use crate::data::{
    examples,
    inputs::{INTEGERS, declared},
};
use crate::native::put;
use roundelay_kernels::random::Stream;
use roundelay_schedule::{Element, Float, Id, Input, InputId, Job};

const VALUE: u64 = u64::from_le_bytes(*b"syn-valu");
const MEANING: u64 = u64::from_le_bytes(*b"syn-mean");
const WEIGHT: u64 = u64::from_le_bytes(*b"syn-weig");

/// The most features that one target element depends on.
const READS: u64 = 16;

/// Classes of an integer target without a bound.
const CLASSES: u64 = 2;

/// The target is the input called `targets`, else the last of several; all others are features.
#[derive(Clone, Debug)]
pub(in crate::data) struct Teacher {
    seed: u64,
    dtype: Float,
    inputs: Vec<Field>,
    target: Option<InputId>,
    /// Per target element: the features it depends on, and their weights.
    weights: Vec<Vec<(usize, f64)>>,
    /// The features of the example at hand.
    features: Vec<f64>,
}

/// What is drawn for an input.
#[derive(Clone, Debug)]
struct Field {
    id: InputId,
    element: Element,
    elements: u64,
    /// Below which its integers are declared to be.
    declared: Option<u64>,
}

impl Teacher {
    pub(super) fn new(job: &Job) -> Result<Self, DataError> {
        let examples = examples(job);
        let field = |(id, input): (InputId, &Input)| match elements(input, examples) {
            Some(elements) => {
                let (element, declared) = (input.element, declared(input));
                Ok(Field { id, element, elements, declared })
            }
            None => Err(refuse(input)),
        };
        let inputs = job.data_inputs().map(field).collect::<Result<Vec<_>, _>>()?;
        let named = job.data_inputs().find(|(_, input)| input.name == "targets");
        let last = job.data_inputs().next_back().filter(|_| inputs.len() > 1);
        let target = named.or(last).map(|(id, _)| id);
        let (seed, dtype) = (job.seed, job.dtype);
        let is_target = |field: &&Field| Some(field.id) == target;
        let rows = inputs.iter().find(is_target).map_or(0, |field| field.elements);
        let known = inputs.iter().filter(|field| !is_target(field));
        let columns = known.map(|field| field.elements).sum();
        let weights = (0..rows).map(|row| weights(seed, row, columns)).collect();
        let features = vec![0.0; columns as usize];
        Ok(Self { seed, dtype, inputs, target, weights, features })
    }

    pub(super) fn fill(&mut self, input: InputId, example: Example, row: &mut [u8]) {
        if self.target == Some(input) {
            self.look(example);
        }
        let field = &self.inputs[input.index()];
        let chance = stream(self.seed, VALUE ^ input.index() as u64, example);
        let size = field.element.size(self.dtype) as usize;
        for (k, number) in row.chunks_exact_mut(size).enumerate() {
            let value = match self.target == Some(input) {
                true => field.answer(self.response(k)),
                false => field.draw(&chance, k as u64),
            };
            match field.element {
                Element::I32 => number.copy_from_slice(&(value as i32).to_ne_bytes()),
                Element::Real | Element::Wide => put(self.dtype, value, number),
            }
        }
    }

    /// Draws the features of an example again, as numbers.
    fn look(&mut self, example: Example) {
        let known = self.inputs.iter().filter(|field| Some(field.id) != self.target);
        let mut places = self.features.iter_mut();
        for field in known {
            let chance = stream(self.seed, VALUE ^ field.id.index() as u64, example);
            for (k, place) in (0..field.elements).zip(&mut places) {
                *place = field.meaning(self.seed, k, field.draw(&chance, k));
            }
        }
    }

    /// The linear map of the features for one target element; standard normal over the examples.
    fn response(&self, element: usize) -> f64 {
        let weights = self.weights[element].iter();
        weights.map(|(feature, weight)| weight * self.features[*feature]).sum()
    }
}

impl Field {
    fn draw(&self, chance: &Stream, k: u64) -> f64 {
        match self.element {
            Element::Real | Element::Wide => chance.normal(k),
            Element::I32 => chance.below(k, self.declared.unwrap_or(INTEGERS)) as f64,
        }
    }

    /// A drawn value as a feature: integers stand for a normal number each.
    fn meaning(&self, seed: u64, k: u64, value: f64) -> f64 {
        let labels = [MEANING, self.id.index() as u64, k];
        match self.element {
            Element::Real | Element::Wide => value,
            Element::I32 => Stream::new(seed, &labels).normal(value as u64),
        }
    }

    /// The target for a response h: tanh(2h), or class ⌊K / (1 + exp(−1.702 h))⌋ of K, where the
    /// logistic function stands for the normal distribution and makes the classes about equal.
    fn answer(&self, response: f64) -> f64 {
        let classes = self.declared.unwrap_or(CLASSES);
        match self.element {
            Element::Real | Element::Wide => libm::tanh(2.0 * response),
            Element::I32 => {
                let below = 1.0 / (1.0 + libm::exp(-1.702 * response));
                (below * classes as f64).floor().min((classes - 1) as f64)
            }
        }
    }
}

/// Elements of one example; none for a shape that is refused.
fn elements(input: &Input, examples: u64) -> Option<u64> {
    let (first, rest) = input.shape.split_first()?;
    let product = |all: u64, extent: &u64| all.checked_mul(*extent);
    let elements = rest.iter().try_fold(1, product)?;
    (*first == examples && examples > 0 && elements <= LIMIT).then_some(elements)
}

/// Weights of Euclidean norm one over at most `READS` of the features.
fn weights(seed: u64, row: u64, columns: u64) -> Vec<(usize, f64)> {
    let chance = Stream::new(seed, &[WEIGHT, row]);
    let feature = |k| if columns <= READS { k } else { chance.below(k, columns) };
    let drawn: Vec<_> = (0..columns.min(READS))
        .map(|k| (feature(k) as usize, chance.normal(READS + k)))
        .collect();
    let norm = drawn.iter().map(|(_, weight)| weight * weight).sum::<f64>().sqrt();
    drawn.into_iter().map(|(feature, weight)| (feature, weight / norm)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::tests::{input, job};
    use roundelay_schedule::Data;

    fn teacher(inputs: &[Input]) -> Result<Teacher, DataError> {
        Teacher::new(&job(Data::Synthetic, inputs))
    }

    fn reals(teacher: &mut Teacher, input: usize, index: u64, count: usize) -> Vec<f32> {
        let mut row = vec![0; 4 * count];
        let example = Example::Training { step: 0, index };
        teacher.fill(InputId::new(input), example, &mut row);
        row.chunks_exact(4).map(|b| f32::from_ne_bytes(b.try_into().unwrap())).collect()
    }

    #[test]
    fn real_targets_are_a_function_of_the_features() {
        let x = input("x", Element::Real, &[2, 3], 0);
        let y = input("y", Element::Real, &[2, 2], 0);
        let mut teacher = teacher(&[x, y]).unwrap();
        for index in 0..50 {
            let x = reals(&mut teacher, 0, index, 3);
            let y = reals(&mut teacher, 1, index, 2);
            for (k, y) in y.iter().enumerate() {
                let weights = teacher.weights[k].iter();
                let h: f64 = weights.map(|(j, w)| w * f64::from(x[*j])).sum();
                assert!((f64::from(*y) - (2.0 * h).tanh()).abs() < 1e-6);
            }
        }
    }

    #[test]
    fn features_are_normal() {
        let x = input("x", Element::Real, &[2, 1000], 0);
        let mut teacher = teacher(&[x]).unwrap();
        let x = reals(&mut teacher, 0, 0, 1000);
        let square = x.iter().map(|x| x * x).sum::<f32>() / 1000.0;
        assert!((square - 1.0).abs() < 0.15, "{square}");
    }

    #[test]
    fn all_classes_occur_about_equally() {
        let x = input("x", Element::Real, &[2, 40], 0);
        let label = input("label", Element::I32, &[2], 5);
        let mut teacher = teacher(&[x, label]).unwrap();
        let mut counts = [0; 5];
        for index in 0..5000 {
            let mut row = [0; 4];
            let example = Example::Training { step: 1, index };
            teacher.fill(InputId::new(1), example, &mut row);
            counts[i32::from_ne_bytes(row) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (700..1300).contains(count)), "{counts:?}");
    }

    #[test]
    fn as_many_classes_as_integers_are_classes() {
        let x = input("x", Element::Real, &[2, 40], 0);
        let label = input("label", Element::I32, &[2], 1 << 31);
        let mut teacher = teacher(&[x, label]).unwrap();
        let mut row = [0; 4];
        teacher.fill(InputId::new(1), Example::HeldOut { index: 0 }, &mut row);
        assert!(i32::from_ne_bytes(row) >= CLASSES as i32);
    }

    #[test]
    fn targets_of_tokens_depend_on_the_tokens() {
        let tokens = input("tokens", Element::I32, &[2, 1], 4);
        let targets = input("targets", Element::Real, &[2], 0);
        let mut teacher = teacher(&[targets, tokens]).unwrap();
        let mut seen = std::collections::BTreeMap::new();
        for index in 0..100 {
            let mut token = [0; 4];
            let example = Example::Training { step: 0, index };
            teacher.fill(InputId::new(1), example, &mut token);
            let y = reals(&mut teacher, 0, index, 1)[0];
            assert_eq!(*seen.entry(token).or_insert(y), y);
        }
        assert_eq!(seen.len(), 4);
    }

    #[test]
    fn shapes_that_are_not_made_are_refused() {
        let x = || input("x", Element::Real, &[2, 3], 0);
        for shape in [&[][..], &[3, 3], &[2, 1 << 40, 1 << 40], &[2, 1 << 21]] {
            let other = input("other", Element::Real, shape, 0);
            let error = teacher(&[x(), other]).unwrap_err().to_string();
            assert!(error.contains("`other`"), "{error}");
        }
        assert!(teacher(&[input("x", Element::Real, &[0, 3], 0)]).is_err());
        assert!(teacher(&[]).is_ok());
    }
}
