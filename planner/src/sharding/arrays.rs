//! Arrays on a grid of parts, on which terms are worked out by plain loops.

use egg::{ENodeOrVar, Id, PatternAst, SymbolLang};
use roundelay_kernels::random::Stream;
use roundelay_schedule::{Direction, Tensor};
use std::collections::BTreeMap;

const BATCH: usize = 2;
const LENGTH: usize = 12;
const WIDTH: usize = 24;
const HEADS: usize = 12;

/// The operation that adds.
pub(super) const SUM: &str = "o5";

/// What a part holds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Array {
    shape: Vec<usize>,
    data: Vec<f64>,
}

/// What all parts hold.
pub(super) type Held = Vec<Array>;

impl Array {
    fn random(shape: &[usize], seed: u64) -> Self {
        let stream = Stream::new(seed, &[]);
        let count = shape.iter().product::<usize>() as u64;
        Self {
            shape: shape.to_vec(),
            data: (0..count).map(|k| stream.normal(k)).collect(),
        }
    }

    fn made(shape: &[usize], of: impl Fn(&[usize]) -> f64) -> Self {
        let count: usize = shape.iter().product();
        let at = |mut k: usize| {
            let mut index = vec![0; shape.len()];
            for place in (0..shape.len()).rev() {
                index[place] = k % shape[place];
                k /= shape[place];
            }
            of(&index)
        };
        Self { shape: shape.to_vec(), data: (0..count).map(at).collect() }
    }

    fn at(&self, index: &[usize]) -> f64 {
        let place = index.iter().zip(&self.shape).fold(0, |k, (i, size)| k * size + i);
        self.data[place]
    }

    pub(super) fn is_near(&self, other: &Self) -> bool {
        let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-9 * (1.0 + a.abs());
        self.shape == other.shape && self.data.iter().zip(&other.data).all(near)
    }
}

/// A grid on which terms are worked out, with what names stand for.
pub(super) struct Machine<'a> {
    pub(super) tensor: Tensor,
    pub(super) names: BTreeMap<&'a str, &'a str>,
    pub(super) arrays: BTreeMap<String, Held>,
}

/// The number of an operation.
fn number(name: &str) -> u64 {
    name[1..].parse().expect("operations have numbers")
}

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

/// A convolution in groups of two channels, of which the own ones begin at one.
fn in_groups(x: &Array, first: usize) -> Array {
    let weight = Array::random(&[WIDTH, 3, 2], 99);
    Array::made(&x.shape, |index| {
        let group = index[2] / 2 * 2;
        let each = seen(3, index[1]).flat_map(|(tap, place)| {
            [0, 1].map(|k| {
                let here = [first + index[2], tap, k];
                x.at(&[index[0], place, group + k]) * weight.at(&here)
            })
        });
        each.sum()
    })
}

fn direction(name: &str) -> Direction {
    match name {
        "r" => Direction::Rows,
        "c" => Direction::Columns,
        "rc" => Direction::Both,
        other => panic!("{other} is no direction"),
    }
}

impl Machine<'_> {
    fn each(&self, of: impl Fn(usize) -> Array) -> Held {
        (0..self.tensor.parts() as usize).map(of).collect()
    }

    fn place(&self, name: &str, part: usize) -> usize {
        match name {
            "w" => 0,
            name => self.tensor.line(direction(name)).place(part as u32) as usize,
        }
    }

    fn parts(&self, name: &str) -> usize {
        if name == "w" { 1 } else { self.tensor.line(direction(name)).parts as usize }
    }

    fn members(&self, name: &str, part: usize) -> Vec<usize> {
        let line = self.tensor.line(direction(name));
        line.members(part as u32).map(|own| own as usize).collect()
    }

    fn gather(&self, along: &str, extent: usize, x: &Held) -> Held {
        self.each(|part| {
            let members = self.members(along, part);
            let own = x[part].shape[extent];
            let mut shape = x[part].shape.clone();
            shape[extent] *= members.len();
            Array::made(&shape, |index| {
                let mut inner = index.to_vec();
                inner[extent] %= own;
                x[members[index[extent] / own]].at(&inner)
            })
        })
    }

    fn cut(&self, along: &str, extent: usize, x: &Held) -> Held {
        self.each(|part| {
            let mut shape = x[part].shape.clone();
            shape[extent] /= self.parts(along);
            let first = self.place(along, part) * shape[extent];
            Array::made(&shape, |index| {
                let mut outer = index.to_vec();
                outer[extent] += first;
                x[part].at(&outer)
            })
        })
    }

    fn sum(&self, along: &str, x: &Held) -> Held {
        self.each(|part| {
            let members = self.members(along, part);
            let shape = x[part].shape.clone();
            Array::made(&shape, |index| members.iter().map(|own| x[*own].at(index)).sum())
        })
    }

    /// The sum over windows of x · Wᵀ, where `from` divides the columns of each W and `to` its rows:
    /// windows of one place for the first operation, a linear map, of three for others.
    fn split(&self, operation: &str, [from, to]: [&str; 2], x: &Held) -> Held {
        let number = number(operation);
        let window = if number == 0 { 1 } else { 3 };
        let weight = Array::random(&[WIDTH, window, WIDTH], 77 + number);
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
    fn channels(&self, operation: &str, along: &str, x: &Held) -> Held {
        self.each(|part| {
            let own = &x[part];
            let [batch, length, width] = [own.shape[0], own.shape[1], own.shape[2]];
            match number(operation) {
                0 => normal(own, |[batch, _, channel]| {
                    let group = channel / 2 * 2;
                    let of = |t| [[batch, t, group], [batch, t, group + 1]];
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
    fn pool(&self, x: &Held) -> Held {
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
    fn norm(&self, along: Option<&str>, x: &Held) -> Held {
        self.each(|part| {
            let members = along.map_or(vec![part], |along| self.members(along, part));
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

    fn scores(&self, q: &Held, k: &Held) -> Held {
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

    fn mix(&self, w: &Held, v: &Held) -> Held {
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

    fn attend(&self, q: &Held, k: &Held, v: &Held) -> Held {
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

    fn rotary(&self, x: &Held) -> Held {
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
    fn loss(&self, along: Option<&str>, x: &Held) -> Held {
        self.each(|part| {
            let members = along.map_or(vec![part], |along| self.members(along, part));
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

    pub(super) fn value(&self, ast: &PatternAst<SymbolLang>, id: Id) -> Held {
        let term = match &ast[id] {
            ENodeOrVar::Var(name) => return self.arrays[&name.to_string()].clone(),
            ENodeOrVar::ENode(term) => term,
        };
        let name = |place: usize| self.name(ast, term.children[place]);
        let extent = |place: usize| name(place)[1..].parse::<usize>().expect("an extent");
        let from_end = |k: usize| self.value(ast, term.children[term.children.len() - k]);
        let last = || from_end(1);
        let map = |x: &f64| x * x.tanh() + x / 2.0;
        let by = |x: Held, of: &dyn Fn(&f64) -> f64| -> Held {
            let one =
                |own: Array| Array { data: own.data.iter().map(of).collect(), ..own };
            x.into_iter().map(one).collect()
        };
        match term.op.as_str() {
            "gather" | "gather_vary" => self.gather(name(0), extent(1), &last()),
            "cut" => self.cut(name(0), extent(1), &last()),
            "sum" => self.sum(name(0), &last()),
            "scatter" => self.cut(name(0), extent(1), &self.sum(name(0), &last())),
            "vary" => last(),
            "map" => self.split(name(0), ["w", "w"], &last()),
            "split" => self.split(name(2), [name(0), name(1)], &last()),
            "channels" => self.channels(name(0), "w", &last()),
            "channels_own" => self.channels(name(1), name(0), &last()),
            "pool" | "pool_own" => self.pool(&last()),
            "each" => by(last(), &map),
            "pair" => {
                let (x, y) = (from_end(2), last());
                let adds = name(0) == SUM;
                let pair = |(x, y): (&f64, &f64)| if adds { x + y } else { x * y + x };
                self.each(|part| {
                    assert_eq!(x[part].shape, y[part].shape);
                    let both = x[part].data.iter().zip(&y[part].data);
                    let data = both.map(pair).collect();
                    Array { shape: x[part].shape.clone(), data }
                })
            }
            "norm" => self.norm(None, &last()),
            "norm_part" => self.norm(Some(name(0)), &last()),
            "attend" | "attend_own" => self.attend(&from_end(3), &from_end(2), &last()),
            "scores" | "scores_own" => self.scores(&from_end(2), &last()),
            "mix" | "mix_own" => self.mix(&from_end(2), &last()),
            "rotary" | "rotary_own" => self.rotary(&last()),
            "loss" => self.loss(None, &last()),
            "loss_own" => self.loss(Some(name(0)), &last()),
            other => panic!("nothing is known of {other}"),
        }
    }

    fn name<'b>(&'b self, ast: &'b PatternAst<SymbolLang>, id: Id) -> &'b str {
        match &ast[id] {
            ENodeOrVar::Var(name) => self.names[name.to_string().as_str()],
            ENodeOrVar::ENode(term) => term.op.as_str(),
        }
    }

    /// Gives every variable of a side an array: parts of a whole where they are gathered or read
    /// in parts, and what all have alike elsewhere.
    pub(super) fn fill(&mut self, ast: &PatternAst<SymbolLang>) {
        let mut found = Vec::new();
        for node in ast.as_ref() {
            let ENodeOrVar::ENode(term) = node else { continue };
            for (place, child) in term.children.iter().enumerate() {
                if let ENodeOrVar::Var(name) = &ast[*child] {
                    let name = name.to_string();
                    if !self.names.contains_key(name.as_str()) {
                        found.push((name, term.clone(), place));
                    }
                }
            }
        }
        for (seed, (name, term, _)) in found.into_iter().enumerate() {
            let shape: &[usize] = match name.as_str() {
                "?w" => &[BATCH, HEADS, LENGTH, LENGTH],
                _ => &[BATCH, LENGTH, WIDTH],
            };
            let whole = Array::random(shape, seed as u64 + 1);
            let whole = self.each(|_| whole.clone());
            let own = match term.op.as_str() {
                "gather" => {
                    let along = self.name(ast, term.children[0]).to_owned();
                    let extent = self.name(ast, term.children[1])[1..].parse();
                    self.cut(&along, extent.expect("an extent"), &whole)
                }
                "split" => {
                    let along = self.name(ast, term.children[0]).to_owned();
                    self.cut(&along, 2, &whole)
                }
                _ => whole,
            };
            self.arrays.insert(name, own);
        }
    }
}
