//! Figures are a task for models of images: pixels alone say little about the class, held-out
//! figures are new, and nothing depends on the plan.

use super::*;
use crate::data::tests::{input, job};
use roundelay_schedule::{Data, Element, Id};
use std::collections::BTreeSet;

const SIZE: usize = 32;
const PIXELS: usize = SIZE * SIZE * 3;
const DATA: Data = Data::Shapes { classes: 10, size: SIZE as u64, seed: 1 };

fn shapes(classes: u64, seed: u64, order: u64) -> Shapes {
    let inputs = [
        input("images", Element::Real, &[4, SIZE as u64, SIZE as u64, 3], 0),
        input("targets", Element::I32, &[4], classes),
    ];
    let job = Job { seed: order, ..job(DATA, &inputs) };
    Shapes::new(classes, SIZE as u64, seed, &job).unwrap()
}

fn image(shapes: &Shapes, example: Example) -> Vec<f32> {
    let mut row = vec![0; 4 * PIXELS];
    shapes.fill(InputId::new(0), example, &mut row);
    let (numbers, _) = row.as_chunks::<4>();
    numbers.iter().map(|number| f32::from_ne_bytes(*number)).collect()
}

fn class(shapes: &Shapes, example: Example) -> usize {
    let mut row = [0; 4];
    shapes.fill(InputId::new(1), example, &mut row);
    i32::from_ne_bytes(row) as usize
}

fn training(index: u64) -> Example {
    Example::Training { step: index / 64, index: index % 64 }
}

fn held_out(index: u64) -> Example {
    Example::HeldOut { index }
}

/// Figures that the linear model sees.
const SEEN: u64 = 1000;

/// A linear model of the pixels with a softmax, trained by plain gradient descent.
struct Linear {
    weights: Vec<[f32; 10]>,
    bias: [f32; 10],
}

impl Linear {
    fn logits(&self, image: &[f32]) -> [f32; 10] {
        let mut sum = self.bias;
        for (value, weights) in image.iter().zip(&self.weights) {
            sum.iter_mut().zip(weights).for_each(|(sum, weight)| *sum += value * weight);
        }
        sum
    }

    fn learn(&mut self, image: &[f32], class: usize, rate: f32) {
        let logits = self.logits(image);
        let largest = logits.iter().copied().fold(f32::MIN, f32::max);
        let mut slope = logits.map(|logit| (logit - largest).exp());
        let sum: f32 = slope.iter().sum();
        slope.iter_mut().for_each(|slope| *slope *= -rate / sum);
        slope[class] += rate;
        for (value, weights) in image.iter().zip(&mut self.weights) {
            weights.iter_mut().zip(slope).for_each(|(weight, s)| *weight += value * s);
        }
        self.bias.iter_mut().zip(slope).for_each(|(bias, s)| *bias += s);
    }

    fn is_right(&self, image: &[f32], class: usize) -> bool {
        let logits = self.logits(image);
        logits.iter().all(|logit| *logit <= logits[class])
    }
}

#[test]
fn a_linear_model_of_the_pixels_stays_below_sixty_percent() {
    let shapes = shapes(10, 1, 7);
    let mut model = Linear { weights: vec![[0.0; 10]; PIXELS], bias: [0.0; 10] };
    for index in 0..16 * SEEN {
        let rate = 1e-3 * (1.0 - index as f32 / (16 * SEEN) as f32);
        let example = training(index % SEEN);
        model.learn(&image(&shapes, example), class(&shapes, example), rate);
    }
    let share = |example: fn(u64) -> Example| {
        let is_right = |index: &u64| {
            let example = example(*index);
            model.is_right(&image(&shapes, example), class(&shapes, example))
        };
        (0..SEEN).filter(is_right).count() as f64 / SEEN as f64
    };
    let (seen, new) = (share(training), share(held_out));
    assert!(seen > 0.6, "it learns its own examples by heart: {seen}");
    assert!(new < 0.6, "but not what makes the classes: {new}");
}

#[test]
fn held_out_figures_do_not_occur_in_training() {
    let shapes = shapes(10, 1, 7);
    let bits = |example| image(&shapes, example).iter().map(|x| x.to_bits()).collect();
    let seen: BTreeSet<Vec<u32>> = (0..500).map(|k| bits(training(k))).collect();
    let apart: BTreeSet<Vec<u32>> = (0..500).map(|k| bits(held_out(k))).collect();
    assert_eq!((seen.len(), apart.len()), (500, 500));
    assert!(seen.is_disjoint(&apart));
    let keys: BTreeSet<String> = (0..500)
        .flat_map(|k| [training(k), held_out(k)])
        .map(|example| format!("{:?}", shapes.stream(example)))
        .collect();
    assert_eq!(keys.len(), 1000, "every figure has a key of its own");
}

#[test]
fn held_out_figures_depend_on_their_own_seed_alone() {
    let [one, other, third] = [(1, 7), (1, 8), (2, 7)].map(|(s, o)| shapes(10, s, o));
    assert_eq!(image(&one, held_out(3)), image(&other, held_out(3)));
    assert_ne!(image(&one, training(3)), image(&other, training(3)));
    assert_ne!(image(&one, held_out(3)), image(&third, held_out(3)));
    assert_ne!(one.key(), third.key());
}

#[test]
fn classes_occur_equally_and_numbers_are_of_a_good_size() {
    let shapes = shapes(12, 1, 7);
    let mut counts = [0; 12];
    (0..6000).for_each(|k| counts[class(&shapes, training(k))] += 1);
    assert!(counts.iter().all(|count| (400..600).contains(count)), "{counts:?}");
    let values: Vec<f32> = (0..200).flat_map(|k| image(&shapes, training(k))).collect();
    let mean = values.iter().sum::<f32>() / values.len() as f32;
    let square = values.iter().map(|x| x * x).sum::<f32>() / values.len() as f32;
    assert!(mean.abs() < 0.3 && (0.1..1.0).contains(&square), "{mean} {square}");
    assert!(values.iter().all(|x| x.abs() < 3.0));
}

#[test]
fn what_is_not_drawn_is_refused() {
    let inputs = |size: u64, bound: u64| {
        [
            input("images", Element::Real, &[4, size, size, 3], 0),
            input("targets", Element::I32, &[4], bound),
        ]
    };
    let cases = [
        (1, 32, 32, 10, "from 2 to 12 classes"),
        (13, 32, 32, 13, "from 2 to 12 classes"),
        (10, 8, 8, 10, "sizes from 16 to 256"),
        (10, 32, 28, 10, "[32, 32] pixels, the model takes [28, 28]"),
        (10, 32, 32, 9, "the data have 10 classes"),
    ];
    for (classes, size, extent, bound, expected) in cases {
        let job = job(DATA, &inputs(extent, bound));
        let error = Shapes::new(classes, size, 1, &job).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
