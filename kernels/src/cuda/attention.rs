//! Attention: on tensor cores where heads have 64 or 128 numbers of 16 bits, else one block for
//! each row.

use super::{
    Argument, Number,
    draft::{Draft, Shape, adding, extent},
    form::{Form, Role},
    source::{ATTENTION, FLASH},
};
use crate::attention::{Attention, AttentionBackward, Heads};
use Role::{Narrow, Wide};
use roundelay_schedule::Bytes;

/// A kernel that goes over all rows of queries, or of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sweep {
    /// o and lse.
    Forward,
    /// dq.
    Queries,
    /// dk and dv.
    Keys,
}

/// How rows are gone over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// By tiles on tensor cores, which take heads of these sizes: `flash.cu`.
    Tiles,
    /// Row by row: `attention.cu`.
    Rows,
}

impl Way {
    fn of(draft: &Draft, heads: &Heads) -> Self {
        match (draft.types.narrow, heads.depth) {
            (Number::Bf16 | Number::F16, 64 | 128) => Way::Tiles,
            (Number::Bf16 | Number::F16 | Number::F32 | Number::F64, _) => Way::Rows,
        }
    }
}

/// Most shared memory of a block, in bytes, on every device without asking.
const MOST_SHARED: usize = 48 << 10;

impl Sweep {
    /// Heads whose rows are gone over.
    fn heads(self, heads: &Heads) -> usize {
        match self {
            Sweep::Forward | Sweep::Queries => heads.heads,
            Sweep::Keys => heads.key_heads,
        }
    }
    /// Their rows of an example.
    fn rows(self, heads: &Heads) -> usize {
        match self {
            Sweep::Forward | Sweep::Queries => heads.sequence,
            Sweep::Keys => heads.positions(),
        }
    }
    /// Symbols in `flash.cu` and in `attention.cu`.
    fn names(self) -> [&'static str; 2] {
        match self {
            Sweep::Forward => ["flash", "attention"],
            Sweep::Queries => ["flash_queries", "query_slopes"],
            Sweep::Keys => ["flash_keys", "key_slopes"],
        }
    }
    /// Rows of a block of `flash.cu`: 64 for every band of its warps.
    fn block_rows(self, heads: &Heads) -> usize {
        match (self, heads.depth, heads.cap) {
            (Sweep::Keys, 128, _) | (Sweep::Queries, 128, Some(_)) => 64,
            (Sweep::Forward | Sweep::Queries | Sweep::Keys, _, _) => 128,
        }
    }
    /// Tiles of these rows that are there beside those that a block meets.
    fn own_tiles(self, depth: usize) -> usize {
        match (self, depth) {
            (Sweep::Forward, 64) => 0,
            (Sweep::Forward | Sweep::Queries, 128) => 1,
            (Sweep::Forward | Sweep::Queries | Sweep::Keys, _) => 2,
        }
    }
    /// Bytes of all tiles, whose rows are 16 bytes longer than a head, and of two numbers of 32 bits
    /// for every row of the two stages of queries that keys meet.
    fn tiles(self, heads: &Heads) -> Bytes {
        let stage = 2 * if heads.depth == 64 { 64 } else { 32 };
        let rows = self.own_tiles(heads.depth) * self.block_rows(heads) + 2 * stage;
        let statistics = match self {
            Sweep::Forward | Sweep::Queries => 0,
            Sweep::Keys => 2 * stage,
        };
        Bytes((rows * (heads.depth + 8) * 2 + statistics * 4) as u64)
    }
    /// Sums of a head that a row needs in `attention.cu`.
    fn sums(self) -> usize {
        match self {
            Sweep::Forward | Sweep::Queries => 1,
            Sweep::Keys => 2,
        }
    }
    fn launch(
        self,
        draft: &mut Draft,
        heads: &Heads,
        operands: &[Argument],
        last: Option<Argument>,
    ) -> Result<(), String> {
        let (all, depth) = (heads.batch * self.heads(heads), heads.depth);
        let [tiled, by_row] = self.names();
        let block = [128, 1, 1];
        let (source, symbol, grid, shared) = match Way::of(draft, heads) {
            Way::Tiles => {
                let tiles = self.rows(heads).div_ceil(self.block_rows(heads)) * all;
                let capped = if heads.cap.is_some() { "_capped" } else { "" };
                (FLASH, format!("{tiled}{capped}_{depth}"), tiles, self.tiles(heads))
            }
            Way::Rows => {
                let shared = self.sums() * depth * draft.types.narrow.wide().size();
                if shared > MOST_SHARED {
                    return Err(format!("a head of {depth} numbers has no kernel"));
                }
                let rows = self.rows(heads) * all;
                (ATTENTION, by_row.to_owned(), rows, Bytes(shared as u64))
            }
        };
        let shape = Shape { grid: [extent(grid), 1, 1], block, shared };
        let operands = operands.iter().copied();
        let arguments = operands.chain(extents(heads)).chain(last).collect();
        draft.narrow((source, &symbol), shape, arguments);
        Ok(())
    }
}

/// What every kernel of attention knows: `HEADS` of `heads.h`.
pub(super) fn extents(heads: &Heads) -> [Argument; 10] {
    let whole = |number: usize| Argument::Unsigned(extent(number));
    [
        whole(heads.batch),
        whole(heads.sequence),
        whole(heads.before),
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
        let operands: [_; 5] = draft.operands(0);
        Sweep::Forward.launch(draft, &self.heads, &operands, None)
    }
}

impl Form for AttentionBackward {
    fn roles(&self) -> Vec<Role> {
        vec![Narrow, Narrow, Narrow, Narrow, Wide, Narrow, Narrow, Narrow, Narrow]
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let heads = &self.heads;
        let [q, k, v, o, lse, slope, dq, dk, dv] = draft.operands(0);
        // Σ do · o of every row.
        let inner = draft.wide_scratch(heads.statistics());
        let queries = match Way::of(draft, heads) {
            Way::Tiles => vec![q, k, v, o, lse, slope, inner, dq],
            Way::Rows => {
                inner_products(draft, heads, [o, slope, inner]);
                vec![q, k, v, lse, slope, inner, dq]
            }
        };
        let add = Some(adding(self.store));
        Sweep::Queries.launch(draft, heads, &queries, add)?;
        let keys = [q, k, v, lse, slope, inner, dk, dv];
        Sweep::Keys.launch(draft, heads, &keys, add)
    }
}

/// The gradient of queries makes these on its way where it goes by tiles.
fn inner_products(draft: &mut Draft, heads: &Heads, operands: [Argument; 3]) {
    let arguments = operands.into_iter().chain(extents(heads)).collect();
    let shape = Shape::rows(heads.statistics(), 1);
    draft.narrow((ATTENTION, "inner_products"), shape, arguments);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_blocks_fit_on_a_device_that_has_164_kib() {
        // What every block reserves, and the statistics of its own queries.
        let others = (1 << 10) + (1 << 10);
        for (depth, cap) in [(64, None), (64, Some(1.0)), (128, None), (128, Some(1.0))] {
            let extents = Heads::new([1, 1], [1, 1, depth], (true, 1), 1.0);
            let heads = Heads { cap, ..extents };
            for sweep in [Sweep::Forward, Sweep::Queries, Sweep::Keys] {
                let block = sweep.tiles(&heads).0 + others;
                assert!(2 * block <= 164 << 10, "{sweep:?} {depth} {cap:?}");
            }
        }
    }
}
