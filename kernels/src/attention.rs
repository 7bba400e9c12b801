//! Scaled dot-product attention, head by head, without the matrix of scores.

use crate::{
    Context, Real,
    fast::attention as fast,
    kernel::Define,
    operand::{Operands, Shared},
    plain::attention as plain,
    signature::{Signature, product},
    store::Store,
    team::for_each_item,
};
use roundelay_schedule::Access;
use std::ops::Range;

/// The extents of q (batch, sequence, heads · depth) and of k and v (batch, keys, key heads ·
/// depth), how they lie, and which keys a query sees.
///
/// Where there are more keys than queries, the queries are the last positions of a longer
/// sequence: query i stands where key i + `before` does.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Heads {
    pub(crate) batch: usize,
    pub(crate) sequence: usize,
    /// Keys before the first query's own.
    pub(crate) before: usize,
    pub(crate) heads: usize,
    pub(crate) key_heads: usize,
    pub(crate) depth: usize,
    pub(crate) lie: Lie,
    pub(crate) sight: Sight,
    /// Factor of q kᵀ.
    pub(crate) scale: f64,
    /// Scores become cap · tanh(score / cap).
    pub(crate) cap: Option<f64>,
}

/// Numbers of heads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counts {
    pub(crate) heads: usize,
    pub(crate) key_heads: usize,
}

/// Which keys a query sees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sight {
    /// None behind its own.
    pub(crate) causal: bool,
    /// Those at positions less than this many away.
    pub(crate) reach: usize,
}

impl Sight {
    /// All of them.
    pub(crate) const OPEN: Self = Self { causal: false, reach: usize::MAX };
}

/// How queries, keys and values lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    /// In three arrays.
    Apart,
    /// In one (batch, sequence, (heads + 2 key heads) · depth): for every key head, in order, the
    /// queries of the heads that read it, the key and the value.
    Packed,
}

/// Where the rows of one head of one example stand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows {
    first: usize,
    pub(crate) stride: usize,
    depth: usize,
}

impl Counts {
    pub(crate) fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let (heads, key_heads) = (call.count("heads")?, call.count("key_heads")?);
        if heads.is_multiple_of(key_heads) {
            Ok(Self { heads, key_heads })
        } else {
            Err(format!("{heads} heads are not a multiple of {key_heads} key heads"))
        }
    }
}

impl Sight {
    pub(crate) fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let causal = call.flag("causal")?;
        let window =
            call.optional_integer("window", "at least 1", |window| window >= 1)?;
        let reach = window.map_or(Self::OPEN.reach, |window| window as usize);
        Ok(Self { causal, reach })
    }
}

impl Heads {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let counts = Counts::parse(call)?;
        let sight = Sight::parse(call)?;
        let scale = call.optional_real("scale", "above 0", |scale| scale > 0.0)?;
        let cap = call.optional_real("cap", "above 0", |cap| cap > 0.0)?;
        let lie = if call.flag("packed")? { Lie::Packed } else { Lie::Apart };
        let extents = match lie {
            Lie::Apart => Self::extents(call, "q", counts.heads)?,
            Lie::Packed => Self::packed_extents(call, counts)?,
        };
        let scale = scale.unwrap_or(1.0 / (extents[2] as f64).sqrt());
        let heads = Self { cap, lie, ..Self::new(counts, extents, sight, scale) };
        match lie {
            Lie::Apart => heads.parse_keys(call),
            Lie::Packed => Ok(heads),
        }
    }
    /// Keys and values that lie apart, of which there may be more than queries.
    fn parse_keys(self, call: &mut Signature<'_>) -> Result<Self, String> {
        let heads = self;
        let (least, width) = heads.key_shape();
        let rows = call.at_least("k", Access::Read, (least, heads.batch, width))?;
        let heads = Self { before: (rows - least) / heads.batch, ..heads };
        call.shaped("v", Access::Read, heads.key_shape())?;
        if heads.sight.causal || heads.before == 0 {
            return Ok(heads);
        }
        Err(format!(
            "{} queries are the last of {} keys only under a causal mask",
            heads.sequence,
            heads.positions()
        ))
    }
    /// Examples, positions and elements of a head of queries, keys and values in one array.
    fn packed_extents(
        call: &mut Signature<'_>,
        Counts { heads, key_heads }: Counts,
    ) -> Result<[usize; 3], String> {
        let [batch, sequence, width] = call.sequence("qkv", Access::Read)?;
        let all = heads.saturating_add(key_heads.saturating_mul(2));
        if width.is_multiple_of(all) {
            return Ok([batch, sequence, width / all]);
        }
        Err(format!(
            "a width of {width} is not a multiple of {heads} queries, {key_heads} keys and \
             {key_heads} values"
        ))
    }
    /// Apart, without a cap, as many keys as queries.
    pub(crate) fn new(
        Counts { heads, key_heads }: Counts,
        [batch, sequence, depth]: [usize; 3],
        sight: Sight,
        scale: f64,
    ) -> Self {
        let (cap, before) = (None, 0);
        Self {
            batch,
            sequence,
            before,
            heads,
            key_heads,
            depth,
            lie: Lie::Apart,
            sight,
            scale,
            cap,
        }
    }
    /// Examples, positions and elements of a head of the next operand, which has this many heads.
    pub(crate) fn extents(
        call: &mut Signature<'_>,
        name: &'static str,
        heads: usize,
    ) -> Result<[usize; 3], String> {
        let [batch, sequence, width] = call.sequence(name, Access::Read)?;
        if width.is_multiple_of(heads) {
            Ok([batch, sequence, width / heads])
        } else {
            Err(format!("a width of {width} is not a multiple of {heads} heads"))
        }
    }
    pub(crate) fn shape(&self) -> (usize, usize) {
        (self.batch * self.sequence, self.heads * self.depth)
    }
    pub(crate) fn key_shape(&self) -> (usize, usize) {
        (self.batch * self.positions(), self.key_heads * self.depth)
    }
    /// Of queries, keys and values in one array.
    pub(crate) fn packed_shape(&self) -> (usize, usize) {
        (self.batch * self.sequence, self.packed_heads() * self.depth)
    }
    /// Queries, keys and values of a position in one array.
    pub(crate) fn packed_heads(&self) -> usize {
        self.heads + 2 * self.key_heads
    }
    /// Keys of an example.
    pub(crate) fn positions(&self) -> usize {
        self.before + self.sequence
    }
    pub(crate) fn statistics(&self) -> usize {
        self.batch * self.heads * self.sequence
    }
    /// Pairs of a query and a key that it sees, over all heads.
    fn pairs(&self) -> u64 {
        let Sight { causal, reach } = self.sight;
        // By the first positions, up to and with their own key.
        let seen_by = |size: usize| {
            let near = reach.min(size);
            product([near, near + 1]) / 2 + product([size - near, near])
        };
        let seen = if causal {
            seen_by(self.positions()) - seen_by(self.before)
        } else {
            2 * seen_by(self.sequence) - self.sequence as u64
        };
        seen.saturating_mul(product([self.batch, self.heads]))
    }
    /// Operations per score besides the products.
    fn bend(&self) -> u64 {
        if self.cap.is_some() { 12 + 13 } else { 12 }
    }
    /// The keys that query `i` sees; neither end ever falls from one query to the next.
    pub(crate) fn visible(&self, i: usize) -> Range<usize> {
        let Sight { causal, reach } = self.sight;
        let position = i + self.before;
        let end = if causal {
            position + 1
        } else {
            position.saturating_add(reach).min(self.positions())
        };
        (position + 1).saturating_sub(reach)..end
    }
    /// Heads that read one key head.
    pub(crate) fn group(&self) -> usize {
        self.heads / self.key_heads
    }
    /// The rows of a head in q and its gradient.
    pub(crate) fn queries(&self, example: usize, head: usize) -> Rows {
        let before = example * self.sequence;
        match self.lie {
            Lie::Apart => self.rows(before, head, self.heads),
            Lie::Packed => {
                let beside = 2 * (head / self.group());
                self.rows(before, head + beside, self.packed_heads())
            }
        }
    }
    /// The rows of a head in o and its gradient.
    pub(crate) fn results(&self, example: usize, head: usize) -> Rows {
        self.rows(example * self.sequence, head, self.heads)
    }
    /// The rows of a key head in k and its gradient.
    pub(crate) fn keys(&self, example: usize, key_head: usize) -> Rows {
        self.keys_and(example, key_head, 0)
    }
    /// The rows of a key head in v and its gradient.
    pub(crate) fn values(&self, example: usize, key_head: usize) -> Rows {
        self.keys_and(example, key_head, 1)
    }
    /// The rows of a key head, or of what lies this many heads behind it where all lie in one array.
    fn keys_and(&self, example: usize, key_head: usize, behind: usize) -> Rows {
        let before = example * self.positions();
        match self.lie {
            Lie::Apart => self.rows(before, key_head, self.key_heads),
            Lie::Packed => {
                let head = key_head * (self.group() + 2) + self.group() + behind;
                self.rows(before, head, self.packed_heads())
            }
        }
    }
    fn rows(&self, before: usize, head: usize, heads: usize) -> Rows {
        let stride = heads * self.depth;
        let first = before * stride + head * self.depth;
        Rows { first, stride, depth: self.depth }
    }
    /// Where lse of the first position stands.
    pub(crate) fn statistic(&self, example: usize, head: usize) -> usize {
        (example * self.heads + head) * self.sequence
    }
}

impl Heads {
    /// q, k and v among the next operands.
    fn read<'a, R: Real>(&self, operands: &mut Operands<'a, R>) -> [&'a [R]; 3] {
        match self.lie {
            Lie::Apart => operands.reads::<3>(),
            Lie::Packed => [operands.read(); 3],
        }
    }
    /// How many arrays queries, keys and values lie in.
    pub(crate) fn array_count(&self) -> usize {
        match self.lie {
            Lie::Apart => 3,
            Lie::Packed => 1,
        }
    }
    /// The numbers of these arrays.
    pub(crate) fn places(&self) -> [usize; 3] {
        match self.lie {
            Lie::Apart => [0, 1, 2],
            Lie::Packed => [0; 3],
        }
    }
}

impl Rows {
    /// Elements of a row.
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }
    /// The elements of position `i`.
    #[inline(always)]
    pub(crate) fn row(&self, i: usize) -> Range<usize> {
        let start = self.first + i * self.stride;
        start..start + self.depth
    }
}

/// o = softmax(q kᵀ / √d) v.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Attention {
    pub(crate) heads: Heads,
}

/// The gradients of q, k and v.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AttentionBackward {
    pub(crate) heads: Heads,
    pub(crate) store: Store,
}

impl Define for Attention {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let heads = Heads::parse(call)?;
        call.shaped("o", Access::Write, heads.shape())?;
        call.vector("lse", Access::Write, heads.statistics())?;
        Ok(Self { heads })
    }
    fn flops(&self) -> u64 {
        let pair = 4 * self.heads.depth as u64 + self.heads.bend();
        self.heads.pairs().saturating_mul(pair)
    }
    fn scratch(&self) -> usize {
        fast::forward_scratch(&self.heads)
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let inputs = self.heads.read(&mut operands);
        let [o, lse] = [(); 2].map(|()| Shared::new(operands.write()));
        let (heads, items) = (&self.heads, fast::forward_items(&self.heads));
        for_each_item(context.threads, items, self.flops(), |item| {
            fast::attention(heads, item, inputs, [&o, &lse]);
        });
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let inputs = self.heads.read(&mut operands);
        let [o, lse] = operands.writes();
        plain::attention(&self.heads, inputs, o, lse);
    }
}

impl Define for AttentionBackward {
    fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
        let store = call.store()?;
        let heads = Heads::parse(call)?;
        call.shaped("o", Access::Read, heads.shape())?;
        call.vector("lse", Access::Read, heads.statistics())?;
        call.shaped("do", Access::Read, heads.shape())?;
        match heads.lie {
            Lie::Apart => {
                call.shaped("dq", store.access(), heads.shape())?;
                call.shaped("dk", store.access(), heads.key_shape())?;
                call.shaped("dv", store.access(), heads.key_shape())?;
            }
            Lie::Packed => call.shaped("dqkv", store.access(), heads.packed_shape())?,
        }
        Ok(Self { heads, store })
    }
    fn flops(&self) -> u64 {
        let pair = 10 * self.heads.depth as u64 + self.heads.bend();
        self.heads.pairs().saturating_mul(pair)
    }
    fn scratch(&self) -> usize {
        fast::backward_scratch(&self.heads)
    }
    fn fast<R: Real>(&self, mut operands: Operands<'_, R>, context: &Context) {
        let (heads, store) = (&self.heads, self.store);
        let [q, k, v] = heads.read(&mut operands);
        let [o, lse, dout] = operands.reads();
        let inputs = [q, k, v, o, lse, dout];
        let items = heads.batch * heads.key_heads;
        let run = |made: [&Shared<'_, R>; 3]| {
            for_each_item(context.threads, items, self.flops(), |item| {
                fast::attention_backward(heads, item, inputs, made, store);
            });
        };
        match heads.lie {
            Lie::Apart => run([(); 3].map(|()| Shared::new(operands.write())).each_ref()),
            Lie::Packed => run([&Shared::new(operands.write()); 3]),
        }
    }
    fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
        let heads = &self.heads;
        let [q, k, v] = heads.read(&mut operands);
        let [o, lse, dout] = operands.reads();
        let inputs = [q, k, v, o, lse, dout];
        let made: &mut [&mut [R]] = match heads.lie {
            Lie::Apart => &mut operands.writes::<3>(),
            Lie::Packed => &mut [operands.write()],
        };
        plain::attention_backward(heads, inputs, made, self.store);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_what_queries_see() {
        for (sequence, reach) in
            [(1, 1), (7, 1), (7, 3), (7, 7), (7, 90), (9, usize::MAX)]
        {
            for (causal, before) in [(false, 0), (true, 0), (true, 2), (true, 11)] {
                let (heads, key_heads, depth) = (4, 2, 8);
                let (batch, scale) = (3, 1.0);
                let heads = Heads::new(
                    Counts { heads, key_heads },
                    [batch, sequence, depth],
                    Sight { causal, reach },
                    scale,
                );
                let heads = Heads { before, ..heads };
                let seen: usize = (0..sequence).map(|i| heads.visible(i).len()).sum();
                assert_eq!(heads.pairs(), (3 * 4 * seen) as u64, "{heads:?}");
                for i in 0..sequence {
                    let at = i + before;
                    let sees =
                        |j: &usize| (!causal || *j <= at) && at.abs_diff(*j) < reach;
                    let expected: Vec<usize> =
                        (0..before + sequence).filter(sees).collect();
                    assert_eq!(heads.visible(i).collect::<Vec<_>>(), expected);
                }
            }
        }
    }
}
