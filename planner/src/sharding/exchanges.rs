//! What terms exchange in either pass: which parts, by which collective, how many numbers.
//!
//! Law: for whole sequences in one stage what is counted is what lowering sends, kind by kind
//! (`sent_tests.rs`; docs/tensor.md lists what is left). In a line of p parts a sum sends 2 (p − 1) / p of
//! the array, a gather or a scatter (p − 1) / p of the larger one. Gradients take the adjoint of every
//! move; what is gathered is gathered again where the backward pass reads it.

use super::{
    costs::Facts,
    region::Kind,
    term::{Along, Term},
};
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
    pub(super) along: Along,
    /// Numbers that one part sends for one example, times the parts of the grid.
    pub(super) sent: u64,
}

/// Numbers of each part that meet in the loss, for each token (`codegen/src/stage/derivative/part.rs`).
const SUMS_OF_LOSS: u64 = 2;

/// Numbers that meet in either pass, before they are divided among those who send them.
type Sends = [Option<(Pass, Collective, u64)>; 2];

impl Facts<'_> {
    /// The exchanges of a term.
    pub(super) fn exchanges(
        &self,
        made: Id,
        term: &Term,
    ) -> impl Iterator<Item = Exchange> + use<> {
        let sends = self.sends(made, term).map(|(along, sends)| {
            let (along, parts) = (self.along(along), self.parts(along));
            sends.into_iter().flatten().map(move |(pass, collective, elements)| {
                let sent = collective.rounds() * elements * (parts - 1) / parts;
                Exchange { pass, collective, along, sent }
            })
        });
        sends.into_iter().flatten()
    }

    /// What a term sends, and along what.
    fn sends(&self, made: Id, term: &Term) -> Option<(Id, Sends)> {
        use {Collective::*, Pass::*, Term::*};
        let own = self.of(made).map_or(0, |array| array.own);
        let read = term.arrays().last().and_then(|last| self.of(*last));
        let read_own = read.map_or(0, |array| array.own);
        let back = |collective, elements| {
            let is_wanted = read.is_some_and(|array| array.gradient);
            is_wanted.then_some((Backward, collective, elements))
        };
        let forward = |collective, elements| Some((Forward, collective, elements));
        Some(match *term {
            Gather([along, ..]) => (along, [forward(AllGather, own), None]),
            GatherVary([along, ..]) => {
                (along, [forward(AllGather, own), back(ReduceScatter, own)])
            }
            Cut([along, ..]) => (along, [None, back(AllGather, read_own)]),
            Vary([along, _]) => (along, [None, back(AllReduce, read_own)]),
            Sum([along, _]) => (along, [forward(AllReduce, read_own), None]),
            Scatter([along, ..]) => {
                (along, [forward(ReduceScatter, read_own), back(AllGather, read_own)])
            }
            NormPart([along, norm, _]) => {
                let met = self.met_in_norm(own, along, norm);
                (along, [forward(AllReduce, met), back(AllReduce, met)])
            }
            LossOwn([along, loss, _]) => {
                (along, [forward(AllGather, self.met_in_loss(along, loss)), None])
            }
            Attend(_) | AttendOwn(_) | AttendPacked(_) | AttendPackedOwn(_)
            | Channels(_) | ChannelsOwn(_) | Each(_) | Loss(_) | Map(_) | Mix(_)
            | MixOwn(_) | Norm(_) | Pair(_) | Pool(_) | PoolOwn(_) | Rotary(_)
            | RotaryOwn(_) | Scores(_) | ScoresOwn(_) | Split(_) | Whole(_)
            | Along(_) | Extent(_) | Operation(_) | Value(_) => return None,
        })
    }

    /// What gathers an array again, where a term has gathered it.
    pub(super) fn again(&self, made: Id, term: &Term) -> Option<Exchange> {
        let gathers = matches!(term, Term::Gather(_) | Term::GatherVary(_));
        let forward = self.exchanges(made, term).find(|own| own.pass == Pass::Forward);
        let forward = forward.filter(|_| gathers)?;
        Some(Exchange { pass: Pass::Backward, ..forward })
    }

    /// Sums of a norm of own features that meet in one pass, of all parts.
    fn met_in_norm(&self, own: u64, along: Id, norm: Id) -> u64 {
        let part = self.part(norm);
        let Kind::Norm { sums } = part.kind else { return 0 };
        let tokens = own * self.parts(along) / part.size.width.max(1);
        tokens * sums.unwrap_or(0)
    }

    /// Sums of all classes, of all parts.
    fn met_in_loss(&self, along: Id, loss: Id) -> u64 {
        let Some(logits) = self.part(loss).operands.first() else { return 0 };
        let logits = self.region.size(*logits);
        let all = self.region.grid.parts(Along::Both);
        let tokens = logits.elements / logits.width.max(1) * all;
        SUMS_OF_LOSS * tokens * self.parts(along)
    }
}
