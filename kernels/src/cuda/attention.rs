//! Attention: on tensor cores where heads have 64 or 128 numbers of 16 bits, else one block for
//! each row.

use super::{
    Argument, Number, Source,
    draft::{Draft, Shape, adding, extent},
    form::{Form, Role},
    source::{ATTENTION, FLASH},
};
use crate::attention::{Attention, AttentionBackward, Heads};
use Role::{Narrow, Wide};
use roundelay_schedule::Bytes;

/// The kernels that make a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Tiles on tensor cores, for heads of so many numbers.
    Tiles(usize),
    /// A block for each row.
    Rows,
}

/// Rows of a block's tile: `ROWS` of `flash.cu`.
const TILE: usize = 64;
/// Most scratch memory of a block, in bytes, on every device that we run on.
const MOST_SHARED: usize = 48 << 10;

impl Way {
    fn of(draft: &Draft, heads: &Heads) -> Self {
        match (draft.types.narrow, heads.depth) {
            (Number::Bf16 | Number::F16, depth @ (64 | 128)) => Way::Tiles(depth),
            (Number::Bf16 | Number::F16 | Number::F32 | Number::F64, _) => Way::Rows,
        }
    }
}

/// What is launched, with which threads.
struct Plan<'a> {
    source: Source,
    symbol: String,
    shape: Shape,
    heads: &'a Heads,
}

impl Plan<'_> {
    fn launch(self, draft: &mut Draft, operands: &[Argument], last: Option<Argument>) {
        let operands = operands.iter().copied();
        let arguments = operands.chain(extents(self.heads)).chain(last).collect();
        draft.narrow((self.source, &self.symbol), self.shape, arguments);
    }
}

/// The kernel `name` over all rows of `of` heads; per row it needs `sums` sums of a head.
fn plan<'a>(
    draft: &Draft,
    heads: &'a Heads,
    (name, of, sums): (&str, usize, usize),
) -> Result<Plan<'a>, String> {
    let all = heads.batch * of;
    match Way::of(draft, heads) {
        Way::Tiles(depth) => {
            let grid = [extent(heads.sequence.div_ceil(TILE) * all), 1, 1];
            let shape = Shape { grid, block: [128, 1, 1], shared: tiles(name, depth) };
            let symbol = format!("{}_{depth}", name.replace("attention", "flash"));
            let symbol = symbol.replace("query_slopes", "flash_queries");
            let symbol = symbol.replace("key_slopes", "flash_keys");
            Ok(Plan { source: FLASH, symbol, shape, heads })
        }
        Way::Rows => {
            let shared = sums * heads.depth * draft.types.narrow.wide().size();
            if shared > MOST_SHARED {
                let depth = heads.depth;
                return Err(format!("a head of {depth} numbers has no kernel"));
            }
            let grid = [extent(heads.sequence * all), 1, 1];
            let shape = Shape { grid, block: [128, 1, 1], shared: Bytes(shared as u64) };
            Ok(Plan { source: ATTENTION, symbol: name.to_owned(), shape, heads })
        }
    }
}

/// Shared memory of the kernels of `flash.cu`: own tiles, and two stages of the tiles they meet.
fn tiles(name: &str, depth: usize) -> Bytes {
    let met = match (name, depth) {
        ("attention", _) | (_, 64) => 64,
        _ => 32,
    };
    let own = if name == "attention" { 1 } else { 2 };
    let rows = own * TILE + 4 * met;
    Bytes((rows * (depth + 8) * 2) as u64)
}

/// What every kernel of attention knows: `HEADS` of `heads.h`.
pub(super) fn extents(heads: &Heads) -> [Argument; 9] {
    let whole = |number: usize| Argument::Unsigned(extent(number));
    [
        whole(heads.batch),
        whole(heads.sequence),
        whole(heads.heads),
        whole(heads.key_heads),
        whole(heads.depth),
        Argument::Unsigned(heads.causal.into()),
        Argument::Unsigned64(heads.reach as u64),
        Argument::Double(heads.scale),
        Argument::Double(heads.cap.unwrap_or(0.0)),
    ]
}

impl Form for Attention {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow, Narrow, Narrow, Narrow, Wide]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let heads = &self.heads;
        let operands: [_; 5] = draft.operands(0);
        let forward = plan(draft, heads, ("attention", heads.heads, 1))?;
        forward.launch(draft, &operands, None);
        Ok(())
    }
}

impl Form for AttentionBackward {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow, Narrow, Narrow, Narrow, Wide, Narrow, Narrow, Narrow, Narrow]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let heads = &self.heads;
        let [q, k, v, o, lse, slope, dq, dk, dv] = draft.operands(0);
        let inner = inner_products(draft, heads, [o, slope]);
        let inputs = [q, k, v, lse, slope, inner];
        let with = |outputs: &[Argument]| [&inputs[..], outputs].concat();
        let add = Some(adding(self.store));
        let queries = plan(draft, heads, ("query_slopes", heads.heads, 1))?;
        queries.launch(draft, &with(&[dq]), add);
        let keys = plan(draft, heads, ("key_slopes", heads.key_heads, 2))?;
        keys.launch(draft, &with(&[dk, dv]), add);
        Ok(())
    }
}

/// Σ do · o of every row.
fn inner_products(draft: &mut Draft, heads: &Heads, operands: [Argument; 2]) -> Argument {
    let rows = heads.statistics();
    let inner = draft.wide_scratch(rows);
    let [o, slope] = operands;
    let (source, symbol) = (ATTENTION, "inner_products".to_owned());
    let plan = Plan { source, symbol, shape: Shape::rows(rows, 1), heads };
    plan.launch(draft, &[o, slope, inner], None);
    inner
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_blocks_fit_on_a_device_that_has_100_kib() {
        for depth in [64, 128] {
            for name in ["attention", "query_slopes", "key_slopes"] {
                assert!(tiles(name, depth).0 <= 100 << 10, "{name} {depth}");
            }
        }
    }
}
