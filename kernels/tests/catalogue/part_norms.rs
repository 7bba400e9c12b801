//! Norms of rows whose columns several parts have: together they are the norm of the whole row, and
//! its gradients.

use crate::{
    common::{Body, Build, call},
    parted::{self, Case, assert_near, total},
};
use roundelay_schedule::Call;

const ROWS: usize = 7;
const OWN: [usize; 3] = [5, 3, 8];
const WHOLE: usize = 16;

/// Rows with these columns each.
fn columns(x: &[f64], first: usize, count: usize) -> Vec<f64> {
    x.chunks(WHOLE).flat_map(|row| row[first..first + count].to_vec()).collect()
}

/// The last arrays that a call makes of these.
fn made(call: Call, given: &[&[f64]], sizes: &[usize], body: Body) -> Vec<Vec<f64>> {
    // Vectors are no longer than a whole row.
    let shape = |length: usize| match length > WHOLE {
        true => vec![ROWS as u64, (length / ROWS) as u64],
        false => vec![length as u64],
    };
    parted::made((call, body), shape, given, sizes)
}

fn drawn(seed: u64) -> Case {
    Case::new(seed, ROWS * WHOLE, WHOLE)
}

/// First column and number of columns of each part.
fn parts() -> impl Iterator<Item = (usize, usize)> {
    let firsts = [0, OWN[0], OWN[0] + OWN[1]];
    firsts.into_iter().zip(OWN)
}

fn part_call(name: &str, is_centered: bool) -> Call {
    let call = call(name).integer("whole", WHOLE as i64);
    if is_centered { call.flag("centered", true) } else { call }
}

/// The sums that parts bring, added up: totals, then squares around the mean.
fn statistics(case: &Case, is_centered: bool, body: Body) -> [Vec<f64>; 2] {
    let own = |(first, count)| columns(&case.x, first, count);
    let of = |part| made(call("norm_part_sums"), &[&own(part)], &[ROWS], body).remove(0);
    let totals = total(&parts().map(of).collect::<Vec<_>>());
    let of = |part| {
        let (x, call) = (own(part), part_call("norm_part_squares", is_centered));
        let given: &[&[f64]] = if is_centered { &[&x, &totals] } else { &[&x] };
        made(call, given, &[ROWS], body).remove(0)
    };
    let squares = total(&parts().map(of).collect::<Vec<_>>());
    [totals, squares]
}

#[test]
fn parts_of_a_norm_make_the_whole_norm() {
    for (seed, is_centered) in [(1, true), (2, false)] {
        let case = drawn(seed);
        for body in [Body::Fast, Body::Plain] {
            let (x, gain, bias) = (&case.x, &case.gain, &case.bias);
            let sizes = [ROWS * WHOLE, ROWS, ROWS];
            let whole = match is_centered {
                true => made(call("layer_norm"), &[x, gain, bias], &sizes, body),
                false => made(call("rms_norm"), &[x, gain], &sizes[..2], body),
            };
            let [totals, squares] = statistics(&case, is_centered, body);
            for (first, count) in parts() {
                let (x, gain) = (columns(x, first, count), &gain[first..first + count]);
                let bias = &bias[first..first + count];
                let sizes = [ROWS * count, ROWS, ROWS];
                let call = part_call("norm_part", is_centered);
                let own = match is_centered {
                    true => {
                        let given: &[&[f64]] = &[&x, gain, bias, &totals, &squares];
                        made(call, given, &sizes, body)
                    }
                    false => made(call, &[&x, gain, &squares], &sizes[..2], body),
                };
                assert_near(&own[0], &columns(&whole[0], first, count), "y");
                for (own, whole) in own[1..].iter().zip(&whole[1..]) {
                    assert_near(own, whole, "a statistic");
                }
            }
        }
    }
}

#[test]
fn parts_of_its_gradient_make_the_whole_gradient() {
    for (seed, is_centered) in [(3, true), (4, false)] {
        let case = drawn(seed);
        let Case { x, gain, dy, .. } = &case;
        let body = Body::Fast;
        let sizes = [ROWS * WHOLE, ROWS, ROWS];
        let (mean, rstd, mut back) = match is_centered {
            true => {
                let mut y =
                    made(call("layer_norm"), &[x, gain, &case.bias], &sizes, body);
                let (rstd, mean) = (y.remove(2), y.remove(1));
                let given: &[&[f64]] = &[x, gain, &mean, &rstd, dy];
                let sizes = [ROWS * WHOLE, WHOLE, WHOLE];
                let back = made(call("layer_norm_backward"), given, &sizes, body);
                (mean, rstd, back)
            }
            false => {
                let rstd =
                    made(call("rms_norm"), &[x, gain], &sizes[..2], body).remove(1);
                let given: &[&[f64]] = &[x, gain, &rstd, dy];
                let back =
                    made(call("rms_norm_backward"), given, &[ROWS * WHOLE, WHOLE], body);
                (Vec::new(), rstd, back)
            }
        };
        let dx = back.remove(0);
        for body in [Body::Fast, Body::Plain] {
            let slopes = parts().map(|(first, count)| {
                let [x, dy] = [x, dy].map(|array| columns(array, first, count));
                let gain = &gain[first..first + count];
                let name = call("norm_part_slopes");
                match is_centered {
                    true => {
                        let given: &[&[f64]] = &[&x, gain, &mean, &rstd, &dy];
                        made(name.flag("centered", true), given, &[2 * ROWS], body)
                    }
                    false => made(name, &[&x, gain, &rstd, &dy], &[ROWS], body),
                }
                .remove(0)
            });
            let slopes = total(&slopes.collect::<Vec<_>>());
            for (first, count) in parts() {
                let [x, dy] = [x, dy].map(|array| columns(array, first, count));
                let gain = &gain[first..first + count];
                let name = part_call("norm_part_backward", is_centered);
                let size = [ROWS * count];
                let own = match is_centered {
                    true => {
                        let given: &[&[f64]] = &[&x, gain, &mean, &rstd, &dy, &slopes];
                        made(name, given, &size, body)
                    }
                    false => made(name, &[&x, gain, &rstd, &dy, &slopes], &size, body),
                };
                assert_near(&own[0], &columns(&dx, first, count), "dx");
                let own = match is_centered {
                    true => {
                        let given: &[&[f64]] = &[&x, &mean, &rstd, &dy];
                        made(call("layer_norm_parameters"), given, &[count; 2], body)
                    }
                    false => {
                        made(call("norm_part_gain"), &[&x, &rstd, &dy], &[count], body)
                    }
                };
                for (own, whole) in own.iter().zip(&back) {
                    assert_near(own, &whole[first..first + count], "a parameter");
                }
            }
        }
    }
}
