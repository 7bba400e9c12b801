//! What operations make of arrays on a grid, by plain loops.

use super::{
    arrays::{Array, BATCH, HEADS, Held, LENGTH, Machine, WIDTH},
    term::Along,
};

/// The places that a window around one sees, each with its number in the window.
fn seen(window: usize, place: usize) -> impl Iterator<Item = (usize, usize)> {
    let places = (0..window).map(move |tap| (tap, place + tap));
    let places = places.map(move |(tap, end)| (tap, end.checked_sub(window / 2)));
    places.filter_map(|(tap, place)| Some((tap, place.filter(|own| *own < LENGTH)?)))
}

/// An array less its mean and over its deviation, each element over the places that it says.
fn normal(x: &Array, over: impl Fn([usize; 3]) -> Vec<[usize; 3]>) -> Array {
    Array::made(&x.shape, |index| {
        let places = over([index[0], index[1], index[2]]);
        let all: Vec<f64> = places.iter().map(|place| x.at(place)).collect();
        let count = all.len() as f64;
        let mean = all.iter().sum::<f64>() / count;
        let square = all.iter().map(|own| (own - mean).powi(2)).sum::<f64>();
        (x.at(index) - mean) / (square / count + 1e-5).sqrt()
    })
}

/// The channels of a group of two that a part has, where one of them is.
fn group(x: &Array, channel: usize) -> impl Iterator<Item = usize> + Clone + use<> {
    let first = channel / 2 * 2;
    first..(first + 2).min(x.shape[2])
}

/// A convolution in groups that each make four channels of two, of which the own ones begin at one.
fn in_groups(x: &Array, first: usize) -> Array {
    let weight = Array::random(&[2 * WIDTH, 3, 2], 99);
    let made = [x.shape[0], x.shape[1], 2 * x.shape[2]];
    Array::made(&made, |index| {
        let each = seen(3, index[1]).flat_map(|(tap, place)| {
            group(x, index[2] / 2)
                .enumerate()
                .map(move |(k, channel)| (tap, place, k, channel))
        });
        let product = |(tap, place, k, channel): (usize, usize, usize, usize)| {
            let here = [2 * first + index[2], tap, k];
            x.at(&[index[0], place, channel]) * weight.at(&here)
        };
        each.map(product).sum()
    })
}

impl Machine<'_> {
    /// The sum over windows of x · Wᵀ, where `from` divides the columns of each W and `to` its rows:
    /// windows of one place for the first operation, a linear map, of three for others.
    pub(super) fn split(&self, number: usize, [from, to]: [Along; 2], x: &Held) -> Held {
        let window = if number == 0 { 1 } else { 3 };
        let weight = Array::random(&[WIDTH, window, WIDTH], 77 + number as u64);
        self.each(|part| {
            let (rows, columns) = (WIDTH / self.parts(to), WIDTH / self.parts(from));
            let first = [self.place(to, part) * rows, self.place(from, part) * columns];
            let shape = [x[part].shape[0], x[part].shape[1], rows];
            assert_eq!(x[part].shape[2], columns);
            Array::made(&shape, |index| {
                let places = seen(window, index[1]);
                let own = |(tap, place): (usize, usize)| {
                    let each = (0..columns).map(|k| {
                        let here = [first[0] + index[2], tap, first[1] + k];
                        x[part].at(&[index[0], place, k]) * weight.at(&here)
                    });
                    each.sum::<f64>()
                };
                places.map(own).sum()
            })
        })
    }

    /// An operation on channels in groups of two, of which `along` says which are the own ones: a
    /// norm of groups, a norm of channels over examples, means of windows, every place twice, and
    /// a convolution in groups.
    pub(super) fn channels(&self, number: usize, along: Along, x: &Held) -> Held {
        self.each(|part| {
            let own = &x[part];
            let [batch, length, width] = [own.shape[0], own.shape[1], own.shape[2]];
            match number {
                0 => normal(own, |[batch, _, channel]| {
                    let of = |t| group(own, channel).map(move |own| [batch, t, own]);
                    (0..length).flat_map(of).collect()
                }),
                1 => normal(own, |[_, _, channel]| {
                    let of = |b| (0..length).map(move |t| [b, t, channel]);
                    (0..batch).flat_map(of).collect()
                }),
                2 => Array::made(&[batch, length / 3, width], |index| {
                    let of = |t: usize| own.at(&[index[0], 3 * index[1] + t, index[2]]);
                    (0..3).map(of).sum::<f64>() / 3.0
                }),
                3 => Array::made(&[batch, 2 * length, width], |index| {
                    own.at(&[index[0], index[1] / 2, index[2]])
                }),
                _ => in_groups(own, self.place(along, part) * width),
            }
        })
    }

    /// The mean over all places.
    pub(super) fn pool(&self, x: &Held) -> Held {
        self.each(|part| {
            let [batch, length, width] =
                [x[part].shape[0], x[part].shape[1], x[part].shape[2]];
            Array::made(&[batch, width], |index| {
                let of = |t: usize| x[part].at(&[index[0], t, index[1]]);
                (0..length).map(of).sum::<f64>() / length as f64
            })
        })
    }

    /// Over the last extent, of all of whose parts the numbers count.
    pub(super) fn norm(&self, along: Along, x: &Held) -> Held {
        self.each(|part| {
            let members = self.members(along, part);
            let shape = x[part].shape.clone();
            Array::made(&shape, |index| {
                let rest = &index[..index.len() - 1];
                let all: Vec<f64> = members
                    .iter()
                    .flat_map(|own| {
                        (0..x[*own].shape[rest.len()])
                            .map(move |k| x[*own].at(&[rest, &[k]].concat()))
                    })
                    .collect();
                let count = all.len() as f64;
                let mean = all.iter().sum::<f64>() / count;
                let square = all.iter().map(|own| (own - mean).powi(2)).sum::<f64>();
                (x[part].at(index) - mean) / (square / count + 1e-5).sqrt()
            })
        })
    }

    pub(super) fn scores(&self, q: &Held, k: &Held) -> Held {
        let size = WIDTH / HEADS;
        self.each(|part| {
            let heads = q[part].shape[2] / size;
            Array::made(&[BATCH, heads, LENGTH, LENGTH], |index| {
                let [batch, head, one, other] = [index[0], index[1], index[2], index[3]];
                let each = (0..size).map(|i| {
                    q[part].at(&[batch, one, head * size + i])
                        * k[part].at(&[batch, other, head * size + i])
                });
                each.sum()
            })
        })
    }

    pub(super) fn mix(&self, w: &Held, v: &Held) -> Held {
        let size = WIDTH / HEADS;
        self.each(|part| {
            Array::made(&v[part].shape, |index| {
                let each = (0..LENGTH).map(|other| {
                    w[part].at(&[index[0], index[2] / size, index[1], other])
                        * v[part].at(&[index[0], other, index[2]])
                });
                each.sum()
            })
        })
    }

    pub(super) fn attend(&self, q: &Held, k: &Held, v: &Held) -> Held {
        let scores = self.scores(q, k);
        let weights = self.each(|part| {
            let own = &scores[part];
            Array::made(&own.shape, |index| {
                let all =
                    (0..LENGTH).map(|k| own.at(&[&index[..3], &[k]].concat()).exp());
                own.at(index).exp() / all.sum::<f64>()
            })
        });
        self.mix(&weights, v)
    }

    /// As many heads as `HEADS`, of which each has a query and a key side by side, of one element each;
    /// the key is its own value.
    pub(super) fn attend_packed(&self, x: &Held) -> Held {
        let attended = |own: &Array| {
            let shape = [BATCH, LENGTH, own.shape[2] / 2];
            Array::made(&shape, |index| {
                let at =
                    |place, beside| own.at(&[index[0], place, 2 * index[2] + beside]);
                let query = at(index[1], 0);
                let of = |place| ((query * at(place, 1)).exp(), at(place, 1));
                let total: f64 = (0..LENGTH).map(|place| of(place).0).sum();
                (0..LENGTH).map(of).map(|(weight, value)| weight / total * value).sum()
            })
        };
        x.iter().map(attended).collect()
    }

    pub(super) fn rotary(&self, x: &Held) -> Held {
        let size = WIDTH / HEADS;
        let turned = |own: &Array| {
            Array::made(&own.shape, |index| {
                let pair = [index[0], index[1], index[2] ^ 1];
                let angle = (index[1] * (index[2] % size / 2 + 1)) as f64;
                let sign = if index[2] % 2 == 0 { -1.0 } else { 1.0 };
                own.at(index) * angle.cos() + sign * own.at(&pair) * angle.sin()
            })
        };
        x.iter().map(turned).collect()
    }

    /// The mean of −log softmax at class 5, over the classes of all members.
    pub(super) fn loss(&self, along: Along, x: &Held) -> Held {
        self.each(|part| {
            let members = self.members(along, part);
            let of = |batch: usize, place: usize| {
                let all = members.iter().flat_map(|own| {
                    (0..x[*own].shape[2]).map(move |k| x[*own].at(&[batch, place, k]))
                });
                let all: Vec<f64> = all.collect();
                all.iter().map(|own| own.exp()).sum::<f64>().ln() - all[5]
            };
            let each = (0..BATCH).flat_map(|batch| (0..LENGTH).map(move |k| (batch, k)));
            let sum = each.map(|(batch, k)| of(batch, k)).sum::<f64>();
            Array { shape: vec![], data: vec![sum] }
        })
    }
}
