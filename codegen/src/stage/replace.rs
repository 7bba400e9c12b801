//! Where a pass makes what is scratch: first of all in memory that is kept between passes, while it holds
//! nothing.
//!
//! Two laws. What a call makes takes the place of what no call touches behind it, if both are as large
//! and the catalogue says that they may be one memory: so arrays follow each other in one place. And
//! what a pass makes of examples lies among what is kept from forward to backward: in forward, where
//! only later calls make what lies there; in backward, where earlier calls were the last ones to touch
//! what lay there. Nobody reads that before, nor after, so nobody misses it: the gradient of the
//! logits lies where the logits lay, and scratch memory is what a pass takes while all that is kept
//! holds something.
//!
//! Arrays of other things than examples, such as statistics of channels, neither take places among
//! what is kept nor make room there. So what is found is the same for micro-batches of all sizes.

use super::{
    call::{Step, Tensor, Term},
    graph::Graph,
    layout::Layout,
    lives::{Home, Lives},
    memory::{Life, Packing},
};
use roundelay_dsl::Source;
use roundelay_kernels::Kernel;
use roundelay_schedule::{Bytes, Pass, Role};

/// When arrays that are kept between passes are used in one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    /// From the call that makes them on.
    Later,
    /// Until the last call that touches them.
    Before,
}

/// The arguments among whose arrays a pass makes what is scratch.
pub(crate) fn shared(pass: Pass) -> &'static [Role] {
    match pass {
        Pass::Forward => &[Role::Activation, Role::Retained],
        Pass::Backward | Pass::InputGradient => &[Role::Activation],
        Pass::WeightGradient | Pass::Combine | Pass::Norm | Pass::Update => &[],
    }
}

fn held(pass: Pass) -> Held {
    match pass {
        Pass::Forward => Held::Later,
        Pass::Backward
        | Pass::InputGradient
        | Pass::WeightGradient
        | Pass::Combine
        | Pass::Norm
        | Pass::Update => Held::Before,
    }
}

/// Whether there is something of an array for each example, so that it is as much larger as a
/// micro-batch is.
pub(crate) fn is_of_examples(graph: &Graph<'_>, tensor: Tensor) -> bool {
    match tensor {
        Tensor::Source(source) | Tensor::Gradient(source) => graph.is_of_examples(source),
        Tensor::Again(node, 0) | Tensor::Detour(node, _) => {
            graph.is_of_examples(Source::Node(node))
        }
        Tensor::Auxiliary(node, number) => graph.has_auxiliary_of_examples(node, number),
        Tensor::Unwanted(node, operand) => {
            let operands = &graph.model.nodes[node].operands;
            operands.get(operand as usize).is_some_and(|own| graph.is_of_examples(*own))
        }
        Tensor::Scratch(..)
        | Tensor::Aside(..)
        | Tensor::Adjoint(_)
        | Tensor::Again(..)
        | Tensor::ParameterDetour(..)
        | Tensor::Gradients(..)
        | Tensor::Metric(_)
        | Tensor::Contribution(_) => false,
    }
}

/// The places of what is scratch in a pass.
pub(crate) struct Places<'a> {
    lives: &'a Lives,
    /// Of each life.
    homes: Vec<Home>,
    /// Bytes of what lies nowhere else.
    pub(crate) workspace: Bytes,
}

impl<'a> Places<'a> {
    /// By the calls of a pass, and their lives.
    pub(crate) fn new(
        layout: &Layout<'_>,
        steps: &[Step],
        lives: &'a Lives,
        pass: Pass,
    ) -> Self {
        let alone = Chains::alone(lives, pass, steps.len());
        let pairs = alone.pairs(layout, steps, lives);
        let packed = |follow| alone.joined(&pairs, follow).packed(layout.graph, pass);
        let [all, some] = [Follow::Everywhere, Follow::Kept].map(packed);
        // What follows scratch stays there, though it might find a place elsewhere by itself.
        let Packed { homes, workspace } =
            if some.workspace < all.workspace { some } else { all };
        Self { lives, homes, workspace }
    }

    /// Where a tensor lies that is scratch or shares its argument with what is.
    pub(crate) fn home(&self, tensor: Tensor) -> Option<Home> {
        self.lives.number_of(tensor).map(|number| self.homes[number])
    }

    /// Whether something that is scratch lies in an argument.
    pub(crate) fn has_scratch_in(&self, role: Role) -> bool {
        let mut all = self.homes.iter().zip(self.lives.all());
        all.any(|((own, _), (_, home))| *own == role && home.is_none())
    }
}

/// Where arrays follow each other in one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Follow {
    /// Wherever they may.
    Everywhere,
    /// Where one of them is kept.
    Kept,
}

/// Where each life's array lies.
struct Packed {
    homes: Vec<Home>,
    workspace: Bytes,
}

/// When arrays that follow each other in one place are in use, and where that is if one of them is kept
/// there; by the first of them.
type Chain = (Life, Option<Home>);

/// The arrays that are scratch, and those that are kept beside them.
#[derive(Clone)]
struct Chains {
    /// Of each life, the first one of its chain.
    first: Vec<usize>,
    /// Of the first one of each chain, the chain.
    all: Vec<Chain>,
}

impl Chains {
    /// Each in a place of its own, in a pass of so many calls.
    fn alone(lives: &Lives, pass: Pass, calls: usize) -> Self {
        let chain = |(life, home): &Chain| match (home, held(pass)) {
            (None, _) => (*life, *home),
            (Some(_), Held::Later) => (Life { last: calls, ..*life }, *home),
            (Some(_), Held::Before) => (Life { first: 0, ..*life }, *home),
        };
        let all: Vec<Chain> = lives.all().iter().map(chain).collect();
        Self { first: (0..all.len()).collect(), all }
    }

    /// What may take the place of what, in the order of calls.
    fn pairs(
        &self,
        layout: &Layout<'_>,
        steps: &[Step],
        lives: &Lives,
    ) -> Vec<[usize; 2]> {
        let own = |term: &Term| {
            let number = lives.number_of(term.tensor)?;
            Some((number, self.all[number]))
        };
        let calls = steps.iter().enumerate();
        calls.flat_map(|call| handed_over(layout, call, own)).collect()
    }

    /// The same where the second of each pair follows the first.
    fn joined(&self, pairs: &[[usize; 2]], follow: Follow) -> Self {
        let mut joined = self.clone();
        for [before, behind] in pairs {
            let (life, home) = self.all[*behind];
            let first = joined.first[*before];
            let (begun, there) = joined.all[first];
            let is_kept = there.is_some() || home.is_some();
            if is_kept || follow == Follow::Everywhere {
                joined.first[*behind] = first;
                joined.all[first] = (Life { last: life.last, ..begun }, there.or(home));
            }
        }
        joined
    }

    /// A place for each: what is scratch lies among what is kept if there is room.
    fn packed(&self, graph: &Graph<'_>, pass: Pass) -> Packed {
        let is_scratch = |(_, home): &Chain| home.is_none();
        let mut scratch: Vec<Life> =
            self.each().filter(is_scratch).map(|(life, _)| life).collect();
        let mut packings: Vec<(Role, Packing)> = Vec::new();
        for role in shared(pass) {
            let (packing, left) = self.among(graph, *role, scratch);
            packings.push((*role, packing));
            scratch = left;
        }
        let packing = Packing::by_liveness(scratch);
        let workspace = packing.size;
        packings.push((Role::Workspace, packing));
        let place = |life: &Life| {
            let offset = |(role, packing): &(Role, Packing)| {
                packing.offsets.get(&life.tensor).map(|offset| (*role, *offset))
            };
            packings.iter().find_map(offset).expect("workspace has room for all")
        };
        let chain = self.first.iter().map(|first| &self.all[*first]);
        let home = |(life, home): &Chain| home.unwrap_or_else(|| place(life));
        Packed { homes: chain.map(home).collect(), workspace }
    }

    fn each(&self) -> impl Iterator<Item = Chain> {
        let begins = self.first.iter().enumerate().filter(|(own, first)| own == *first);
        begins.map(|(own, _)| self.all[own])
    }

    /// Places for scratch among what lies in an argument; and what finds none.
    fn among(
        &self,
        graph: &Graph<'_>,
        role: Role,
        scratch: Vec<Life>,
    ) -> (Packing, Vec<Life>) {
        let of_examples = |life: &Life| is_of_examples(graph, life.tensor);
        let kept = |(life, home): Chain| match home? {
            (own, offset) if own == role => Some((life, offset)),
            _ => None,
        };
        let mut there: Vec<(Life, Bytes)> = self.each().filter_map(kept).collect();
        there.sort_unstable_by_key(|(_, offset)| *offset);
        let mut grown = there.iter().filter(|(life, _)| of_examples(life));
        let (first, last) = (grown.next(), grown.next_back());
        let start = first.map_or(Bytes(0), |(_, offset)| *offset);
        let end = last.or(first).map_or(Bytes(0), |(life, offset)| *offset + life.size);
        let (own, others): (Vec<Life>, Vec<Life>) =
            scratch.into_iter().partition(of_examples);
        let (packing, left) = Packing::among(&there, start..end, own);
        (packing, [left, others].concat())
    }
}

/// All that a call touches last, each with what it makes in the place of that, by the numbers of their
/// lives.
fn handed_over(
    layout: &Layout<'_>,
    (index, step): (usize, &Step),
    own: impl Fn(&Term) -> Option<(usize, Chain)>,
) -> Vec<[usize; 2]> {
    let left = |term: &Term| {
        let (number, (life, home)) = own(term)?;
        let was_there = life.first < index || home.is_some();
        (was_there && life.last == index).then_some((number, life.size))
    };
    let begun = |term: &Term| {
        let (number, (life, _)) = own(term)?;
        (life.first == index).then_some((number, life.size))
    };
    let made = || step.terms.iter().filter_map(begun);
    let fits = |term: &Term| {
        left(term).is_some_and(|(_, size)| made().any(|(_, other)| other == size))
    };
    if !step.terms.iter().any(fits) {
        return Vec::new();
    }
    let alone = |term: &Term| {
        step.terms.iter().filter(|other| other.tensor == term.tensor).count() == 1
    };
    let pair = |[read, written]: [&Term; 2]| {
        let ((from, size), (to, fresh)) = (left(read)?, begun(written)?);
        let alike = size == fresh && layout.element(read) == layout.element(written);
        (alike && alone(read) && alone(written)).then_some([from, to])
    };
    one_memory(layout, step).into_iter().filter_map(pair).collect()
}

/// What a call reads and what it makes, where each two may be one memory.
fn one_memory<'a>(layout: &Layout<'_>, step: &'a Step) -> Vec<[&'a Term; 2]> {
    let call = step.unplaced(|term| layout.element(term));
    let pairs = Kernel::parse(&call).map_or_else(|_| Vec::new(), |call| call.replaces());
    let terms = |pair: [usize; 2]| pair.map(|operand| &step.terms[operand]);
    pairs.into_iter().map(terms).collect()
}
