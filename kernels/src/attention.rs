//! Scaled dot-product attention, head by head.

use crate::{
    Context, Real,
    fast::attention as fast,
    kernel::Define,
    operand::Operands,
    plain::attention as plain,
    product::Buffers,
    signature::{Signature, product},
    store::Store,
    team::{for_each_part, rows_per_part},
};
use roundelay_schedule::Access;
use std::ops::Range;

/// The extents of q, k, v (batch, sequence, heads · depth), and which keys a query sees.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Heads {
    pub(crate) batch: usize,
    pub(crate) sequence: usize,
    pub(crate) width: usize,
    pub(crate) heads: usize,
    pub(crate) causal: bool,
}

/// One head of one example: where its rows stand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    first: usize,
    pub(crate) width: usize,
    depth: usize,
    statistics: usize,
}

impl Heads {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let heads = call.integer("heads", "at least 1", |heads| heads >= 1)? as usize;
        let causal = call.flag("causal")?;
        let [batch, sequence, width] = call.sequence("q")?;
        if width % heads != 0 {
            return Err(format!("a width of {width} is no multiple of {heads} heads"));
        }
        let shape = (batch * sequence, width);
        call.shaped("k", Access::Read, shape)?;
        call.shaped("v", Access::Read, shape)?;
        Ok(Self { batch, sequence, width, heads, causal })
    }
    fn shape(&self) -> (usize, usize) {
        (self.batch * self.sequence, self.width)
    }
    fn statistics(&self) -> usize {
        self.batch * self.heads * self.sequence
    }
    fn scratch(&self, grids: usize) -> Result<usize, String> {
        let grid = self.sequence.checked_mul(self.sequence);
        grid.and_then(|grid| grid.checked_mul(grids))
            .ok_or_else(|| "a grid of scores is larger than any memory".to_owned())
    }
    /// Elements of that many grids of scores.
    fn grid(&self, grids: usize) -> usize {
        grids * self.sequence * self.sequence
    }
    /// The extents with their examples cut into parts, and the examples of one part.
    fn part(&self, threads: usize, flops: u64) -> (Self, usize) {
        let cost = flops / self.batch as u64;
        let cost = usize::try_from(cost).unwrap_or(usize::MAX);
        (self.clone(), rows_per_part(threads, self.batch, cost))
    }
    /// Pairs of query and key, over all heads.
    fn pairs(&self) -> u64 {
        product([self.batch, self.heads, self.sequence, self.sequence])
    }
    /// The width of one head.
    pub(crate) fn depth(&self) -> usize {
        self.width / self.heads
    }
    /// 1/√depth.
    pub(crate) fn scale(&self) -> f64 {
        1.0 / (self.depth() as f64).sqrt()
    }
    /// How many keys, from the first on, query `i` sees.
    pub(crate) fn visible(&self, i: usize) -> usize {
        if self.causal { i + 1 } else { self.sequence }
    }
    /// All heads of all examples.
    pub(crate) fn each(&self) -> impl Iterator<Item = Head> + '_ {
        (0..self.batch * self.heads).map(|index| Head {
            first: index / self.heads * self.sequence * self.width
                + index % self.heads * self.depth(),
            width: self.width,
            depth: self.depth(),
            statistics: index * self.sequence,
        })
    }
}

impl Head {
    /// The elements of position `i`.
    pub(crate) fn row(&self, i: usize) -> Range<usize> {
        let start = self.first + i * self.width;
        start..start + self.depth
    }
    /// Where lse of position `i` stands.
    pub(crate) fn statistic(&self, i: usize) -> usize {
        self.statistics + i
    }
}

/// o = softmax(q kᵀ / √d) v.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Attention {
    heads: Heads,
}

/// The gradients of q, k and v.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AttentionBackward {
    heads: Heads,
    store: Store,
}

impl Define for Attention {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let heads = Heads::parse(call)?;
        call.shaped("o", Access::Write, heads.shape())?;
        call.vector("lse", Access::Write, heads.statistics())?;
        call.vector("scratch", Access::Write, heads.scratch(1)?)?;
        Ok(Self { heads })
    }
    fn flops(&self) -> u64 {
        let pair = 4 * self.heads.depth() as u64 + 12;
        self.heads.pairs().saturating_mul(pair)
    }
    fn scratch(&self) -> usize {
        self.heads.grid(1)
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let [q, k, v] = [(); 3].map(|()| operands.read());
        let [o, lse, scratch] = [(); 3].map(|()| operands.write());
        let (heads, examples) = self.heads.part(context.threads, self.flops());
        let share = examples * heads.sequence * heads.width;
        let inputs = q.chunks(share).zip(k.chunks(share)).zip(v.chunks(share));
        let statistics = lse.chunks_mut(examples * heads.heads * heads.sequence);
        let outputs = o.chunks_mut(share).zip(statistics);
        let parts = inputs.zip(outputs).zip(scratches(scratch));
        for_each_part(parts, |((((q, k), v), (o, lse)), scratch)| {
            let heads = Heads { batch: q.len() / heads.sequence / heads.width, ..heads };
            with_scratch(scratch, heads.grid(1), |scratch, buffers| {
                fast::attention(&heads, [q, k, v], [o, lse, scratch], buffers);
            });
        });
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let inputs = [(); 3].map(|()| operands.read());
        let [o, lse, scratch] = [(); 3].map(|()| operands.write());
        plain::attention(&self.heads, inputs, o, lse, scratch);
    }
}

impl Define for AttentionBackward {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let store = call.store()?;
        let heads = Heads::parse(call)?;
        call.shaped("o", Access::Read, heads.shape())?;
        call.vector("lse", Access::Read, heads.statistics())?;
        call.shaped("do", Access::Read, heads.shape())?;
        for name in ["dq", "dk", "dv"] {
            call.shaped(name, store.access(), heads.shape())?;
        }
        call.vector("scratch", Access::Write, heads.scratch(2)?)?;
        Ok(Self { heads, store })
    }
    fn flops(&self) -> u64 {
        let pair = 10 * self.heads.depth() as u64 + 12;
        self.heads.pairs().saturating_mul(pair)
    }
    fn scratch(&self) -> usize {
        self.heads.grid(2)
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let [q, k, v, o, lse, dout] = [(); 6].map(|()| operands.read());
        let [dq, dk, dv, scratch] = [(); 4].map(|()| operands.write());
        let (heads, examples) = self.heads.part(context.threads, self.flops());
        let share = examples * heads.sequence * heads.width;
        let statistics = lse.chunks(examples * heads.heads * heads.sequence);
        let kept = q.chunks(share).zip(k.chunks(share)).zip(v.chunks(share));
        let outer = o.chunks(share).zip(statistics).zip(dout.chunks(share));
        let outputs =
            dq.chunks_mut(share).zip(dk.chunks_mut(share)).zip(dv.chunks_mut(share));
        let parts = kept.zip(outer).zip(outputs).zip(scratches(scratch));
        for_each_part(
            parts,
            |(((((q, k), v), ((o, lse), dout)), ((dq, dk), dv)), scratch)| {
                let heads =
                    Heads { batch: q.len() / heads.sequence / heads.width, ..heads };
                let (inputs, outputs) = ([q, k, v, o, lse, dout], [dq, dk, dv]);
                with_scratch(scratch, heads.grid(2), |scratch, buffers| {
                    let store = self.store;
                    fast::attention_backward(
                        &heads, inputs, outputs, scratch, store, buffers,
                    );
                });
            },
        );
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let inputs = [(); 6].map(|()| operands.read());
        let outputs = [(); 3].map(|()| operands.write());
        let scratch = operands.write();
        plain::attention_backward(&self.heads, inputs, outputs, scratch, self.store);
    }
}

/// The launch's scratch memory for the first part; the others use their threads'.
fn scratches<R>(scratch: &mut [R]) -> impl ExactSizeIterator<Item = Option<&mut [R]>> {
    let mut first = Some(scratch);
    (0..usize::MAX).map(move |_| first.take())
}

fn with_scratch<R: Real>(
    given: Option<&mut [R]>,
    length: usize,
    work: impl FnOnce(&mut [R], &mut Buffers<R>),
) {
    R::with_buffers(|buffers| match given {
        Some(scratch) => work(scratch, buffers),
        None => {
            buffers.reserve(length);
            let mut own = std::mem::take(&mut buffers.scratch);
            work(&mut own[..length], buffers);
            buffers.scratch = own;
        }
    });
}
