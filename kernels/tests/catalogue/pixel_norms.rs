//! Norms of images whose pixels several parts have: together they are the norm of whole images, and
//! its gradients.

use crate::{
    common::{
        Array, Body, Build, CONTEXT, call, run,
        sample::{Draw, contents, results},
    },
    parted::{self, Case, assert_near, total},
};
use roundelay_kernels::{Context, Mode};
use roundelay_schedule::Call;

/// Extents of the whole: examples, positions, columns; parts divide the positions.
const EXAMPLES: usize = 3;
const POSITIONS: usize = 12;
const COLUMNS: usize = 6;
const PARTS: usize = 4;

/// A norm over these groups of columns, of each example or of all of them together.
#[derive(Clone, Copy)]
enum Norm {
    Batch,
    Group(usize),
}

fn drawn(seed: u64) -> Case {
    Case::new(seed, EXAMPLES * POSITIONS * COLUMNS, COLUMNS)
}

/// The positions of a part, of every example.
fn part_of(whole: &[f64], part: usize) -> Vec<f64> {
    let each = POSITIONS / PARTS * COLUMNS;
    let examples = whole.chunks(POSITIONS * COLUMNS);
    examples.flat_map(|one| one[part * each..(part + 1) * each].to_vec()).collect()
}

fn every_part(of: impl Fn(usize) -> Vec<f64>) -> Vec<Vec<f64>> {
    (0..PARTS).map(of).collect()
}

impl Norm {
    /// Extents of this many positions of each example, as the kernels see them.
    fn shape(self, positions: usize) -> [u64; 3] {
        match self {
            Norm::Batch => [1, EXAMPLES * positions, COLUMNS],
            Norm::Group(_) => [EXAMPLES, positions, COLUMNS],
        }
        .map(|extent| extent as u64)
    }
    fn groups(self) -> usize {
        match self {
            Norm::Batch => COLUMNS,
            Norm::Group(groups) => groups,
        }
    }
    fn statistics(self) -> usize {
        self.shape(1)[0] as usize * self.groups()
    }
    /// Elements of one statistic of this many positions.
    fn count(self, positions: usize) -> i64 {
        let [_, rows, columns] = self.shape(positions).map(|extent| extent as i64);
        rows * columns / self.groups() as i64
    }
    /// The arrays that a call makes of these; those of images have `positions`.
    fn made(
        self,
        call: Call,
        positions: usize,
        (given, sizes): (&[&[f64]], &[usize]),
        body: Body,
    ) -> Vec<Vec<f64>> {
        let shape = |length| match length == EXAMPLES * positions * COLUMNS {
            true => self.shape(positions).to_vec(),
            false => vec![length as u64],
        };
        parted::made((call, body), shape, given, sizes)
    }
    fn own(
        self,
        name: &str,
        given: &[&[f64]],
        sizes: &[usize],
        body: Body,
    ) -> Vec<Vec<f64>> {
        let call = call(name).integer("groups", self.groups() as i64);
        self.made(call, POSITIONS / PARTS, (given, sizes), body)
    }
    fn joined(self, moments: &[Vec<f64>], body: Body) -> [Vec<f64>; 2] {
        let all = moments.concat();
        let mut arrays =
            [all, vec![f64::NAN; self.statistics()], vec![f64::NAN; self.statistics()]]
                .map(Array::Real);
        let count = self.count(POSITIONS / PARTS);
        let one = [self.statistics() as u64];
        let both = [PARTS as u64, 2 * one[0]];
        let join = call("pixel_norm_statistics").integer("count", count);
        run(&join.reals(&[&both, &one, &one]), &mut arrays, body, &CONTEXT);
        let [_, mean, variance] = arrays.map(|array| array.values().to_vec());
        [mean, variance]
    }
    /// y, then dx, dgain and dbias, by the kernels of whole images.
    fn whole(self, case: &Case) -> Vec<Vec<f64>> {
        let Case { x, gain, bias, dy } = case;
        let (images, statistics) = (x.len(), self.statistics());
        let made = [images, statistics, statistics];
        let mut back = vec![images, COLUMNS, COLUMNS];
        let running = vec![0.5; COLUMNS];
        let (forward, backward, given): (Call, Call, Vec<&[f64]>) = match self {
            Norm::Batch => {
                back.extend([COLUMNS; 2]);
                let norms = [call("batch_norm"), call("batch_norm_backward")];
                let [forward, backward] = norms;
                (forward, backward, vec![x, gain, bias, &running, &running])
            }
            Norm::Group(groups) => {
                let of = |name| call(name).integer("groups", groups as i64);
                (of("group_norm"), of("group_norm_backward"), vec![x, gain, bias])
            }
        };
        let mut all = self.made(forward, POSITIONS, (&given, &made), Body::Plain);
        let kept: [&[f64]; 5] = [x, gain, &all[1], &all[2], dy];
        let gradients = self.made(backward, POSITIONS, (&kept, &back), Body::Plain);
        all.truncate(1);
        all.into_iter().chain(gradients.into_iter().take(3)).collect()
    }
    /// The same by those of parts; of y and dx the parts one after another.
    fn parts(self, case: &Case, body: Body) -> Vec<Vec<f64>> {
        let Case { gain, bias, .. } = case;
        let [x, dy] =
            [&case.x, &case.dy].map(|whole| every_part(|part| part_of(whole, part)));
        let (images, both) = (x[0].len(), 2 * self.statistics());
        let moments = every_part(|part| {
            self.own("pixel_norm_moments", &[&x[part]], &[both], body).remove(0)
        });
        let [mean, variance] = self.joined(&moments, body);
        let y = every_part(|part| {
            let given: [&[f64]; 5] = [&x[part], gain, bias, &mean, &variance];
            self.own("pixel_norm", &given, &[images], body).remove(0)
        });
        let kept = |part: usize| -> [&[f64]; 5] {
            [&x[part], gain, &mean, &variance, &dy[part]]
        };
        let slopes = every_part(|part| {
            self.own("pixel_norm_slopes", &kept(part), &[both], body).remove(0)
        });
        let slopes = total(&slopes);
        let dx = every_part(|part| {
            let back =
                call("pixel_norm_backward").integer("count", self.count(POSITIONS));
            let back = back.integer("groups", self.groups() as i64);
            let given = [kept(part).as_slice(), &[&slopes]].concat();
            let sizes: &[usize] = &[images];
            self.made(back, POSITIONS / PARTS, (&given, sizes), body).remove(0)
        });
        let shares: Vec<Vec<f64>> = every_part(|part| {
            let given: [&[f64]; 4] = [&x[part], &mean, &variance, &dy[part]];
            self.own("pixel_norm_parameters", &given, &[COLUMNS; 2], body).concat()
        });
        let (dgain, dbias) = (0..COLUMNS, COLUMNS..2 * COLUMNS);
        let shares = total(&shares);
        vec![y.concat(), dx.concat(), shares[dgain].to_vec(), shares[dbias].to_vec()]
    }
}

#[test]
fn parts_together_make_the_norm_of_whole_images_and_its_gradients() {
    let norms = [Norm::Batch, Norm::Group(1), Norm::Group(2), Norm::Group(COLUMNS)];
    for (seed, norm) in (0..).zip(norms) {
        let case = drawn(seed);
        let mut expected = norm.whole(&case);
        for images in &mut expected[..2] {
            *images = every_part(|part| part_of(images, part)).concat();
        }
        for body in [Body::Plain, Body::Fast] {
            for (found, expected) in norm.parts(&case, body).iter().zip(&expected) {
                assert_near(found, expected, &format!("{seed}, {body:?}"));
            }
        }
    }
}

#[test]
fn outside_of_training_statistics_are_the_running_ones() {
    let outside = Context { mode: Mode::Evaluation, ..CONTEXT };
    let call = call("pixel_norm_statistics").integer("count", 4).flag("running", true);
    let call = call.reals(&[&[2, 2], &[1], &[1], &[1], &[1]]);
    for (context, expected) in [(outside, [7.0, 8.0]), (CONTEXT, [2.0, 6.5])] {
        let given = [vec![1.0, 20.0, 3.0, 24.0], vec![7.0], vec![8.0]];
        let made = [vec![f64::NAN], vec![f64::NAN]];
        let mut arrays: Vec<Array<f64>> =
            given.into_iter().chain(made).map(Array::Real).collect();
        for body in [Body::Plain, Body::Fast] {
            arrays[3..].fill(Array::Real(vec![f64::NAN]));
            run(&call, &mut arrays, body, &context);
            assert_eq!([arrays[3].values()[0], arrays[4].values()[0]], expected);
        }
    }
}

/// The calls that go over images (b, s, n), which write or add.
fn over_images([examples, positions, columns]: [u64; 3], groups: u64) -> Vec<Call> {
    let (x, row, kept): (&[u64], &[u64], &[u64]) =
        (&[examples, positions, columns], &[columns], &[examples, groups]);
    let both: &[u64] = &[2, examples, groups];
    let of = |name: &str| call(name).integer("groups", groups as i64);
    let count = (3 * positions * columns / groups) as i64;
    let mut calls = vec![
        of("pixel_norm_moments").reals(&[x, both]),
        of("pixel_norm").reals(&[x, row, row, kept, kept, x]),
        of("pixel_norm_slopes").reals(&[x, row, kept, kept, x, both]),
    ];
    for accumulate in [false, true] {
        let of = |name: &str| of(name).flag("accumulate", accumulate);
        let backward = of("pixel_norm_backward").integer("count", count);
        calls.push(backward.reals(&[x, row, kept, kept, x, both, x]));
        calls.push(of("pixel_norm_parameters").reals(&[x, kept, kept, x, row, row]));
    }
    calls
}

/// Images that are summed in several segments, the last of which is shorter; more examples than are
/// summed at a time; a batch norm, whose one example is divided among all threads.
#[test]
fn fast_is_plain_for_large_images_and_many_of_them() {
    let shapes =
        [([1, 2051, 24], 24), ([2, 901, 40], 5), ([150, 9, 12], 3), ([66, 24, 64], 1)];
    for (shape, groups) in shapes {
        for call in over_images(shape, groups) {
            let start = contents::<f64>(&call, &mut Draw::new(3));
            let with = |body, threads| {
                let mut arrays = start.clone();
                run(&call, &mut arrays, body, &Context { threads, ..CONTEXT });
                arrays
            };
            let (fast, plain) = (with(Body::Fast, 1), with(Body::Plain, 1));
            for index in results(&call) {
                let (fast, plain) = (fast[index].values(), plain[index].values());
                let scale = plain.iter().fold(1.0, |most: f64, own| most.max(own.abs()));
                for (fast, plain) in fast.iter().zip(plain) {
                    let near = (fast - plain).abs() <= 1e-12 * scale;
                    assert!(near, "{} {shape:?}: {fast} for {plain}", call.kernel);
                }
            }
            for threads in [2, 3, 7] {
                assert_eq!(fast, with(Body::Fast, threads), "{} {shape:?}", call.kernel);
            }
        }
    }
}
