//! Attention whose scores are stored: products of queries and keys, and sums of values by weights,
//! head by head. What stands between them, softmax and dropout, are kernels of their own.
//!
//! The three products are each other's derivatives: the slope of a score is a score of slopes.

use crate::{
    Context, Real,
    attention::{Counts, Heads, Sight},
    fast::attention as fast,
    kernel::Define,
    operand::{Operands, Shared},
    plain::stored as plain,
    signature::{Signature, product},
    store::Store,
    team::for_each_item,
};
use roundelay_schedule::Access;

fn scale(call: &mut Signature<'_>) -> Result<f64, String> {
    let scale = call.optional_real("scale", "above 0", |scale| scale > 0.0)?;
    Ok(scale.unwrap_or(1.0))
}

/// Elements of all scores, within what can be addressed.
fn count(heads: &Heads) -> usize {
    heads.statistics().saturating_mul(heads.sequence)
}

/// Every pair is multiplied, seen or not.
fn flops(heads: &Heads) -> u64 {
    product([2, heads.batch, heads.heads, heads.sequence])
        .saturating_mul(product([heads.sequence, heads.depth]))
}

/// The weights, then rows of which each has `parts` heads; the other kind of rows is written.
fn mixing(
    call: &mut Signature<'_>,
    parts: fn(Counts) -> usize,
) -> Result<(Heads, Store), String> {
    let (store, scale) = (call.store()?, scale(call)?);
    let counts = Counts::parse(call)?;
    let weights = call.any("weights", Access::Read)?;
    let extents = Heads::extents(call, "x", parts(counts))?;
    let heads = Heads::new(counts, extents, Sight::OPEN, scale);
    if count(&heads) == weights {
        return Ok((heads, store));
    }
    Err(format!(
        "operand `weights` has {weights} elements, but must have {}",
        count(&heads)
    ))
}

/// Makes one item of an output.
type Body<R> = fn(&Heads, usize, [&[R]; 2], &Shared<'_, R>, Store);

/// Makes an output whose rows have `parts` heads, item by item.
fn run<R: Real>(
    (heads, parts, store): (&Heads, usize, Store),
    mut operands: Operands<'_, R>,
    context: &Context,
    body: Body<R>,
) {
    let inputs = operands.reads::<2>();
    let out = Shared::new(operands.write());
    let items = fast::stored_items(heads, parts);
    for_each_item(context.threads, items, flops(heads), |item| {
        body(heads, item, inputs, &out, store);
    });
}

/// Defines a kernel that works head by head: `$read` parses its calls, `$function` computes one item of
/// its output, and the field `$heads` counts the heads of a row of the output.
macro_rules! head_by_head {
    ($(#[$doc:meta])* $kernel:ident, $read:ident, $heads:ident, $function:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub(crate) struct $kernel {
            pub(crate) heads: Heads,
            pub(crate) store: Store,
        }

        impl Define for $kernel {
            fn parse(call: &mut Signature<'_>) -> Result<Self, String> {
                $read(call).map(|(heads, store)| Self { heads, store })
            }
            fn flops(&self) -> u64 {
                flops(&self.heads)
            }
            fn scratch(&self) -> usize {
                fast::stored_scratch(&self.heads)
            }
            fn fast<R: Real>(&self, operands: Operands<'_, R>, context: &Context) {
                let output = (&self.heads, self.heads.$heads, self.store);
                run(output, operands, context, fast::$function);
            }
            fn plain<R: Real>(&self, mut operands: Operands<'_, R>, _: &Context) {
                let inputs = operands.reads();
                plain::$function(&self.heads, inputs, operands.write(), self.store);
            }
        }
    };
}

head_by_head!(
    /// out_ij = scale · a_i · b_j, −∞ where i does not see j.
    Scores, scores, heads, scores
);
head_by_head!(
    /// out_i = scale · Σ_j weight_ij b_j.
    Mix, mix, heads, mix
);
head_by_head!(
    /// out_j = scale · Σ_i weight_ij a_i, over all heads that read one key head.
    MixBackward, mix_backward, key_heads, mix_backward
);

fn scores(call: &mut Signature<'_>) -> Result<(Heads, Store), String> {
    let (store, scale) = (call.store()?, scale(call)?);
    let (counts, sight) = (Counts::parse(call)?, Sight::parse(call)?);
    let extents = Heads::extents(call, "a", counts.heads)?;
    let heads = Heads::new(counts, extents, sight, scale);
    call.shaped("b", Access::Read, heads.key_shape())?;
    call.vector("out", store.access(), count(&heads))?;
    Ok((heads, store))
}

fn mix(call: &mut Signature<'_>) -> Result<(Heads, Store), String> {
    let (heads, store) = mixing(call, |counts| counts.key_heads)?;
    call.shaped("out", store.access(), heads.shape())?;
    Ok((heads, store))
}

fn mix_backward(call: &mut Signature<'_>) -> Result<(Heads, Store), String> {
    let (heads, store) = mixing(call, |counts| counts.heads)?;
    call.shaped("out", store.access(), heads.key_shape())?;
    Ok((heads, store))
}
