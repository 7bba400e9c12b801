//! What terms exchange in either pass: which parts, by which collective, how many numbers.
//!
//! Law: for whole sequences in one stage what is counted is what lowering sends, kind by kind
//! (`sent_tests.rs`; docs/tensor.md lists what is left). In a line of p parts a sum sends 2 (p − 1) / p of
//! the array, a gather or a scatter (p − 1) / p of the larger one. Gradients take the adjoint of every
//! move; what is gathered is gathered again where the backward pass reads it.

use super::{costs::Facts, fits::operation, region::Kind};
use crate::rewrite::Term;
use egg::Id;
use roundelay_schedule::Collective;

/// In which pass parts exchange something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Pass {
    Forward,
    Backward,
}

/// One exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exchange {
    pub(super) pass: Pass,
    pub(super) collective: Collective,
    /// Who takes part.
    pub(super) direction: &'static str,
    /// Numbers that one part sends for one example, times the parts of the grid.
    pub(super) sent: u64,
}

/// Numbers of each part that meet in the loss, for each token (`codegen/src/stage/derivative/part.rs`).
const SUMS_OF_LOSS: u64 = 2;

impl Facts<'_> {
    /// The exchanges of a term.
    pub(super) fn exchanges(
        &self,
        made: Id,
        term: &Term,
    ) -> impl Iterator<Item = Exchange> + use<> {
        use {Collective::*, Pass::*};
        let own = self.of(made).map_or(0, |array| array.own);
        let read = term.children.last().and_then(|last| self.of(*last));
        let read_own = read.map_or(0, |array| array.own);
        let back = |collective, elements| {
            let is_wanted = read.is_some_and(|array| array.gradient);
            is_wanted.then_some((Backward, collective, elements))
        };
        let forward = |collective, elements| Some((Forward, collective, elements));
        let both = match term.op {
            "gather" => [forward(AllGather, own), None],
            "gather_vary" => [forward(AllGather, own), back(ReduceScatter, own)],
            "cut" => [None, back(AllGather, read_own)],
            "vary" => [None, back(AllReduce, read_own)],
            "sum" => [forward(AllReduce, read_own), None],
            "scatter" => [forward(ReduceScatter, read_own), back(AllGather, read_own)],
            "norm_part" => {
                let met = self.met_in_norm(own, term);
                [forward(AllReduce, met), back(AllReduce, met)]
            }
            "loss_own" => [forward(AllGather, self.met_in_loss(term)), None],
            _ => [None; 2],
        };
        let direction = match both {
            [None, None] => "w",
            _ => self.name(term, 0),
        };
        let parts = self.parts(direction);
        both.into_iter().flatten().map(move |(pass, collective, elements)| {
            let sent = collective.rounds() * elements * (parts - 1) / parts;
            Exchange { pass, collective, direction, sent }
        })
    }

    /// What gathers an array again, where a term has gathered it.
    pub(super) fn again(&self, made: Id, term: &Term) -> Option<Exchange> {
        let gathers = matches!(term.op, "gather" | "gather_vary");
        let forward = self.exchanges(made, term).find(|own| own.pass == Pass::Forward);
        let forward = forward.filter(|_| gathers)?;
        Some(Exchange { pass: Pass::Backward, ..forward })
    }

    /// Sums of a norm of own features that meet in one pass, of all parts.
    fn met_in_norm(&self, own: u64, term: &Term) -> u64 {
        let Some(number) = operation(self.name(term, 1)) else { return 0 };
        let part = &self.region.operations[number];
        let Kind::Norm { sums } = part.kind else { return 0 };
        let tokens = own * self.parts(self.name(term, 0)) / part.size.width.max(1);
        tokens * sums.unwrap_or(0)
    }

    /// Sums of all classes, of all parts.
    fn met_in_loss(&self, term: &Term) -> u64 {
        let Some(number) = operation(self.name(term, 1)) else { return 0 };
        let Some(logits) = self.region.operations[number].operands.first() else {
            return 0;
        };
        let logits = self.region.size(*logits);
        let tokens = logits.elements / logits.width.max(1) * self.parts("rc");
        SUMS_OF_LOSS * tokens * self.parts(self.name(term, 0))
    }
}
