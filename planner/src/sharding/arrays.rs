//! Arrays on a grid of parts, on which terms are worked out by plain loops: moves, and what terms
//! stand for. What operations make of them is in `array_operations.rs`.

use crate::rewrite::Term;
use egg::{ENodeOrVar, Id, PatternAst};
use roundelay_kernels::random::Stream;
use roundelay_schedule::{Direction, Tensor};
use std::collections::BTreeMap;

pub(super) const BATCH: usize = 2;
pub(super) const LENGTH: usize = 12;
pub(super) const WIDTH: usize = 24;
pub(super) const HEADS: usize = 12;

/// The operation that adds.
pub(super) const SUM: &str = "o5";

/// What a part holds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Array {
    pub(super) shape: Vec<usize>,
    pub(super) data: Vec<f64>,
}

/// What all parts hold.
pub(super) type Held = Vec<Array>;

impl Array {
    pub(super) fn random(shape: &[usize], seed: u64) -> Self {
        let stream = Stream::new(seed, &[]);
        let count = shape.iter().product::<usize>() as u64;
        Self {
            shape: shape.to_vec(),
            data: (0..count).map(|k| stream.normal(k)).collect(),
        }
    }

    pub(super) fn made(shape: &[usize], of: impl Fn(&[usize]) -> f64) -> Self {
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

    pub(super) fn at(&self, index: &[usize]) -> f64 {
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

fn direction(name: &str) -> Direction {
    match name {
        "r" => Direction::Rows,
        "c" => Direction::Columns,
        "rc" => Direction::Both,
        other => panic!("{other} is no direction"),
    }
}

impl Machine<'_> {
    pub(super) fn each(&self, of: impl Fn(usize) -> Array) -> Held {
        (0..self.tensor.parts() as usize).map(of).collect()
    }

    pub(super) fn place(&self, name: &str, part: usize) -> usize {
        match name {
            "w" => 0,
            name => self.tensor.line(direction(name)).place(part as u32) as usize,
        }
    }

    pub(super) fn parts(&self, name: &str) -> usize {
        if name == "w" { 1 } else { self.tensor.line(direction(name)).parts as usize }
    }

    pub(super) fn members(&self, name: &str, part: usize) -> Vec<usize> {
        let line = self.tensor.line(direction(name));
        line.members(part as u32).map(|own| own as usize).collect()
    }

    pub(super) fn gather(&self, along: &str, extent: usize, x: &Held) -> Held {
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

    pub(super) fn cut(&self, along: &str, extent: usize, x: &Held) -> Held {
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

    pub(super) fn sum(&self, along: &str, x: &Held) -> Held {
        self.each(|part| {
            let members = self.members(along, part);
            let shape = x[part].shape.clone();
            Array::made(&shape, |index| members.iter().map(|own| x[*own].at(index)).sum())
        })
    }

    pub(super) fn value(&self, ast: &PatternAst<Term>, id: Id) -> Held {
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
        match term.op {
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
            "attend_packed" | "attend_packed_own" => self.attend_packed(&last()),
            "scores" | "scores_own" => self.scores(&from_end(2), &last()),
            "mix" | "mix_own" => self.mix(&from_end(2), &last()),
            "rotary" | "rotary_own" => self.rotary(&last()),
            "loss" => self.loss(None, &last()),
            "loss_own" => self.loss(Some(name(0)), &last()),
            other => panic!("nothing is known of {other}"),
        }
    }

    pub(super) fn name<'b>(&'b self, ast: &'b PatternAst<Term>, id: Id) -> &'b str {
        match &ast[id] {
            ENodeOrVar::Var(name) => self.names[name.to_string().as_str()],
            ENodeOrVar::ENode(term) => term.op,
        }
    }

    /// Gives every variable of a side an array: parts of a whole where they are gathered or read
    /// in parts, and what all have alike elsewhere.
    pub(super) fn fill(&mut self, ast: &PatternAst<Term>) {
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
            let own = match term.op {
                "gather" | "gather_vary" => {
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
