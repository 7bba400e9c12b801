//! Arrays on a grid of parts, on which terms are worked out by plain loops: moves, and what terms
//! stand for. What operations make of them is in `array_operations.rs`.

use super::term::{Along, Term};
use egg::{ENodeOrVar, Id, Language, PatternAst};
use roundelay_kernels::random::Stream;
use roundelay_schedule::{Direction, Line, Tensor};
use std::collections::BTreeMap;

pub(super) const BATCH: usize = 2;
pub(super) const LENGTH: usize = 12;
pub(super) const WIDTH: usize = 24;
pub(super) const HEADS: usize = 12;

/// The operation that adds.
pub(super) const SUM: usize = 5;

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

/// Leaves by the variables that stand for them.
pub(super) type Names = BTreeMap<&'static str, Term>;

/// A grid on which terms are worked out, with what variables stand for.
pub(super) struct Machine<'a> {
    pub(super) tensor: Tensor,
    pub(super) names: &'a Names,
    pub(super) arrays: BTreeMap<String, Held>,
}

/// The parts that divide something.
pub(super) fn line(tensor: Tensor, along: Along) -> Line {
    match along {
        Along::Columns => tensor.line(Direction::Columns),
        Along::Rows => tensor.line(Direction::Rows),
        Along::Both => tensor.line(Direction::Both),
        Along::Nobody => Line::ALONE,
    }
}

impl Machine<'_> {
    pub(super) fn each(&self, of: impl Fn(usize) -> Array) -> Held {
        (0..self.tensor.parts() as usize).map(of).collect()
    }

    pub(super) fn place(&self, along: Along, part: usize) -> usize {
        line(self.tensor, along).place(part as u32) as usize
    }

    pub(super) fn parts(&self, along: Along) -> usize {
        line(self.tensor, along).parts as usize
    }

    pub(super) fn members(&self, along: Along, part: usize) -> Vec<usize> {
        let members = line(self.tensor, along).members(part as u32);
        members.map(|own| own as usize).collect()
    }

    pub(super) fn gather(&self, along: Along, extent: usize, x: &Held) -> Held {
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

    pub(super) fn cut(&self, along: Along, extent: usize, x: &Held) -> Held {
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

    pub(super) fn sum(&self, along: Along, x: &Held) -> Held {
        self.each(|part| {
            let members = self.members(along, part);
            let shape = x[part].shape.clone();
            Array::made(&shape, |index| members.iter().map(|own| x[*own].at(index)).sum())
        })
    }

    /// Every element by itself.
    fn mapped(x: &Held) -> Held {
        let map = |x: &f64| x * x.tanh() + x / 2.0;
        let one = |own: &Array| Array {
            data: own.data.iter().map(map).collect(),
            shape: own.shape.clone(),
        };
        x.iter().map(one).collect()
    }

    fn pair(&self, operation: usize, x: &Held, y: &Held) -> Held {
        let pair = |(x, y): (&f64, &f64)| match operation {
            SUM => x + y,
            _ => x * y + x,
        };
        self.each(|part| {
            assert_eq!(x[part].shape, y[part].shape);
            let both = x[part].data.iter().zip(&y[part].data);
            Array { data: both.map(pair).collect(), shape: x[part].shape.clone() }
        })
    }

    pub(super) fn value(&self, ast: &PatternAst<Term>, id: Id) -> Held {
        use {super::term::Along::Nobody, Term::*};
        let term = match &ast[id] {
            ENodeOrVar::Var(name) => return self.arrays[&name.to_string()].clone(),
            ENodeOrVar::ENode(term) => term,
        };
        let value = |id: Id| self.value(ast, id);
        let along = |id: Id| self.along(ast, id);
        let extent = |id: Id| self.extent(ast, id);
        let operation = |id: Id| self.operation(ast, id);
        match *term {
            Along(_) | Extent(_) | Operation(_) | Value(_) | Whole(_) => {
                panic!("{term} is no array of a law")
            }
            Gather([d, e, x]) | GatherVary([d, e, x]) => {
                self.gather(along(d), extent(e), &value(x))
            }
            Cut([d, e, x]) => self.cut(along(d), extent(e), &value(x)),
            Sum([d, x]) => self.sum(along(d), &value(x)),
            Scatter([d, e, x]) => {
                self.cut(along(d), extent(e), &self.sum(along(d), &value(x)))
            }
            Vary([_, x]) => value(x),
            Map([o, _, x]) => self.split(operation(o), [Nobody; 2], &value(x)),
            Split([from, to, o, x]) => {
                self.split(operation(o), [from, to].map(along), &value(x))
            }
            Channels([o, _, x]) => self.channels(operation(o), Nobody, &value(x)),
            ChannelsOwn([d, o, x]) => self.channels(operation(o), along(d), &value(x)),
            Pool([.., x]) | PoolOwn([.., x]) => self.pool(&value(x)),
            Each([_, x]) => Self::mapped(&value(x)),
            Pair([o, x, y]) => self.pair(operation(o), &value(x), &value(y)),
            Norm([.., x]) => self.norm(Nobody, &value(x)),
            NormPart([d, _, x]) => self.norm(along(d), &value(x)),
            Attend([.., q, k, v]) | AttendOwn([.., q, k, v]) => {
                self.attend(&value(q), &value(k), &value(v))
            }
            AttendPacked([.., x]) | AttendPackedOwn([.., x]) => {
                self.attend_packed(&value(x))
            }
            Scores([.., q, k]) | ScoresOwn([.., q, k]) => {
                self.scores(&value(q), &value(k))
            }
            Mix([.., w, v]) | MixOwn([.., w, v]) => self.mix(&value(w), &value(v)),
            Rotary([.., x]) | RotaryOwn([.., x]) => self.rotary(&value(x)),
            Loss([.., x]) => self.loss(Nobody, &value(x)),
            LossOwn([d, _, x]) => self.loss(along(d), &value(x)),
        }
    }

    /// A leaf, or the one that a variable stands for.
    fn leaf<'b>(&'b self, ast: &'b PatternAst<Term>, id: Id) -> &'b Term {
        match &ast[id] {
            ENodeOrVar::Var(name) => &self.names[name.to_string().as_str()],
            ENodeOrVar::ENode(term) => term,
        }
    }

    pub(super) fn along(&self, ast: &PatternAst<Term>, id: Id) -> Along {
        let Term::Along(along) = *self.leaf(ast, id) else { panic!("no direction") };
        along
    }

    pub(super) fn extent(&self, ast: &PatternAst<Term>, id: Id) -> usize {
        let Term::Extent(own) = *self.leaf(ast, id) else { panic!("no extent") };
        own.0 as usize
    }

    fn operation(&self, ast: &PatternAst<Term>, id: Id) -> usize {
        let Term::Operation(own) = *self.leaf(ast, id) else { panic!("no operation") };
        own.0
    }

    /// Gives every variable of a side an array: parts of a whole where they are gathered or read
    /// in parts, and what all have alike elsewhere.
    pub(super) fn fill(&mut self, ast: &PatternAst<Term>) {
        let mut found = Vec::new();
        for node in ast.as_ref() {
            let ENodeOrVar::ENode(term) = node else { continue };
            for child in term.children() {
                if let ENodeOrVar::Var(name) = &ast[*child] {
                    let name = name.to_string();
                    if !self.names.contains_key(name.as_str()) {
                        found.push((name, term.clone()));
                    }
                }
            }
        }
        for (seed, (name, term)) in found.into_iter().enumerate() {
            let shape: &[usize] = match name.as_str() {
                "?w" => &[BATCH, HEADS, LENGTH, LENGTH],
                _ => &[BATCH, LENGTH, WIDTH],
            };
            let whole = Array::random(shape, seed as u64 + 1);
            let whole = self.each(|_| whole.clone());
            let own = match term {
                Term::Gather([d, e, _]) | Term::GatherVary([d, e, _]) => {
                    self.cut(self.along(ast, d), self.extent(ast, e), &whole)
                }
                Term::Split([from, ..]) => self.cut(self.along(ast, from), 2, &whole),
                _ => whole,
            };
            self.arrays.insert(name, own);
        }
    }
}
