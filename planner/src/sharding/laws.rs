//! Every law on random arrays: both sides are the same on every part of every grid; and laws that
//! are almost right are found out.

use super::{
    region::Grid,
    rules::{Fits, LAWS, Law, MOVES, On, all},
};
use egg::{ENodeOrVar, Id, PatternAst, SymbolLang};
use roundelay_kernels::random::Stream;
use roundelay_schedule::{Contraction, Direction, MapWay, Tensor};
use std::collections::BTreeMap;

const BATCH: usize = 2;
const LENGTH: usize = 12;
const WIDTH: usize = 24;
const HEADS: usize = 12;

/// What a part holds.
#[derive(Clone, Debug, PartialEq)]
struct Array {
    shape: Vec<usize>,
    data: Vec<f64>,
}

/// What all parts hold.
type Held = Vec<Array>;

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

    fn is_near(&self, other: &Self) -> bool {
        let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-9 * (1.0 + a.abs());
        self.shape == other.shape && self.data.iter().zip(&other.data).all(near)
    }
}

/// A grid on which terms are worked out, with what names stand for.
struct Machine<'a> {
    tensor: Tensor,
    names: BTreeMap<&'a str, &'a str>,
    arrays: BTreeMap<String, Held>,
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

    /// x · Wᵀ, where `from` divides the columns of W and `to` its rows.
    fn split(&self, from: &str, to: &str, x: &Held) -> Held {
        let weight = Array::random(&[WIDTH, WIDTH], 77);
        self.each(|part| {
            let (rows, columns) = (WIDTH / self.parts(to), WIDTH / self.parts(from));
            let first = [self.place(to, part) * rows, self.place(from, part) * columns];
            let shape = [x[part].shape[0], x[part].shape[1], rows];
            assert_eq!(x[part].shape[2], columns);
            Array::made(&shape, |index| {
                let own = |k: usize| {
                    let here = [first[0] + index[2], first[1] + k];
                    x[part].at(&[index[0], index[1], k]) * weight.at(&here)
                };
                (0..columns).map(own).sum()
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

    fn value(&self, ast: &PatternAst<SymbolLang>, id: Id) -> Held {
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
            "map" => self.split("w", "w", &last()),
            "split" => self.split(name(0), name(1), &last()),
            "each" => by(last(), &map),
            "pair" => {
                let (x, y) = (from_end(2), last());
                self.each(|part| {
                    assert_eq!(x[part].shape, y[part].shape);
                    let both = x[part].data.iter().zip(&y[part].data);
                    let data = both.map(|(x, y)| x * y + x).collect();
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
    fn fill(&mut self, ast: &PatternAst<SymbolLang>) {
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

/// Whether a law holds on a grid, with names for its directions and extents.
fn holds(law: &Law, tensor: Tensor, names: &[(&str, &str)]) -> bool {
    let [left, right] = law.sides(grid(tensor));
    let names = names.iter().copied().collect();
    let mut machine = Machine { tensor, names, arrays: BTreeMap::new() };
    machine.fill(&left);
    let root = |ast: &PatternAst<SymbolLang>| Id::from(ast.as_ref().len() - 1);
    let [one, other] = [&left, &right].map(|side| machine.value(side, root(side)));
    one.iter().zip(&other).all(|(one, other)| one.is_near(other))
}

fn grid(tensor: Tensor) -> Grid {
    let (rows, columns) = (tensor.rows.into(), tensor.columns.into());
    Grid { rows, columns, contraction: tensor.contraction }
}

/// The names under which a law is tried.
fn namings(law: &Law, tensor: Tensor) -> Vec<Vec<(&'static str, &'static str)>> {
    let directions = match tensor {
        Tensor { columns: 1, .. } => vec!["r"],
        Tensor { rows: 1, .. } => vec!["c"],
        _ => vec!["r", "c"],
    };
    let mut all = Vec::new();
    for direction in directions {
        let extents: &[(&str, &str)] = match law.fits {
            Fits::OtherExtent => &[("e2", "e1")],
            Fits::All if law.left.contains("?d") => &[("e1", "e1"), ("e2", "e2")],
            _ => &[("e2", "e2")],
        };
        for (e, f) in extents {
            all.push(vec![("?o", "o0"), ("?d", direction), ("?e", *e), ("?f", *f)]);
        }
    }
    all
}

fn grids() -> Vec<Tensor> {
    let each = |rows, columns| {
        let contraction =
            if columns == 1 { Contraction::Alternate } else { Contraction::Each };
        Tensor { contraction, ..Tensor::grid(rows, columns) }
    };
    let turns = [Tensor::grid(2, 2), Tensor::grid(1, 2)];
    let ways = [(2, 1), (3, 1), (1, 2), (1, 4), (2, 2), (3, 2), (2, 4)];
    turns.into_iter().chain(ways.map(|(rows, columns)| each(rows, columns))).collect()
}

#[test]
fn every_law_holds_on_every_grid() {
    for law in all() {
        let mut tried = 0;
        for tensor in grids().into_iter().filter(|own| law.on.is_on(grid(*own))) {
            for names in namings(law, tensor) {
                assert!(
                    holds(law, tensor, &names),
                    "{} on {tensor:?} {names:?}",
                    law.name
                );
                tried += 1;
            }
        }
        assert!(tried >= 2, "{} was tried {tried} times", law.name);
    }
}

#[test]
fn laws_that_are_almost_right_are_found_out() {
    let wrong = [
        ("(map ?o ?e ?x)", "(gather r ?e (sum r (split c r ?o (vary r (cut c ?e ?x)))))"),
        ("(map ?o ?e ?x)", "(gather c ?e (split w r ?o (vary r ?x)))"),
        ("(norm ?o ?e (gather ?d ?e ?x))", "(gather ?d ?e (norm ?o ?e ?x))"),
        ("(cut ?d ?e (gather ?d ?e ?x))", "(sum ?d ?x)"),
        ("(loss ?o ?e (gather r ?e ?x))", "(loss_own c ?o ?x)"),
    ];
    let tensor = Tensor { contraction: Contraction::Each, ..Tensor::grid(2, 2) };
    for (left, right) in wrong {
        let law = Law { name: "wrong", left, right, fits: Fits::All, on: On::All };
        let names = [("?o", "o0"), ("?d", "c"), ("?e", "e2")];
        let outcome = std::panic::catch_unwind(|| holds(&law, tensor, &names));
        assert!(!matches!(outcome, Ok(true)), "{left} is no {right}");
    }
}

/// Names are told apart, and every way has a law.
#[test]
fn laws_have_names_of_their_own() {
    let names: std::collections::BTreeSet<&str> = all().map(|law| law.name).collect();
    assert_eq!(names.len(), LAWS.len() + MOVES.len());
    for way in MapWay::ALL {
        assert!(all().any(|law| law.fits == Fits::Way(*way)), "{way}");
    }
}

/// The table in the documentation has every law, as it is.
#[test]
fn the_documentation_has_all_laws() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/tensor.md");
    let text = std::fs::read_to_string(path).expect("it is there");
    for law in all() {
        let row = format!("| `{}` | `{} = {}` |", law.name, law.left, law.right);
        assert!(text.contains(&row), "no row {row}");
    }
}
