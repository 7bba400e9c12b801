//! Attention: on tensor cores where heads have as many numbers of 16 bits as `TILED` says, else one block
//! for each row.

use super::{
    Argument, Array, Attended, CallPlace, Mask, Number, Operand, Source, Strides,
    Unattended,
    columns::further,
    draft::{Draft, Shape, adding, extent},
    form::{Form, Role},
    source::{
        ATTENTION, FLASH_BF16_32, FLASH_BF16_64, FLASH_BF16_80, FLASH_BF16_96,
        FLASH_BF16_128, FLASH_F16_32, FLASH_F16_64, FLASH_F16_80, FLASH_F16_96,
        FLASH_F16_128, FLASH_SM90_BF16_64, FLASH_SM90_BF16_128, FLASH_SM90_F16_64,
        FLASH_SM90_F16_128,
    },
};
use crate::attention::{Attention, AttentionBackward, Heads, Lie};
use Role::{Narrow, Wide};
use roundelay_schedule::{Access, Bytes};

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
    /// By tiles on tensor cores, warp by warp: `flash.cu`.
    Warps(Source),
    /// By tiles on tensor cores, by four warps together: `flash_sm90.cu`.
    WarpGroups(Source),
    /// Row by row: `attention.cu`.
    Rows,
}

/// The sources for heads of one size.
struct Tiled {
    /// Numbers of a head.
    depth: usize,
    /// Of bf16, and of f16.
    warps: [Source; 2],
    /// The same by warp groups, whose panels have 64 numbers.
    groups: Option<[Source; 2]>,
}

/// The sizes of heads that tensor cores take. Each is known to the compiler, or it spills registers.
const TILED: [Tiled; 5] = [
    Tiled { depth: 32, warps: [FLASH_BF16_32, FLASH_F16_32], groups: None },
    Tiled {
        depth: 64,
        warps: [FLASH_BF16_64, FLASH_F16_64],
        groups: Some([FLASH_SM90_BF16_64, FLASH_SM90_F16_64]),
    },
    Tiled { depth: 80, warps: [FLASH_BF16_80, FLASH_F16_80], groups: None },
    Tiled { depth: 96, warps: [FLASH_BF16_96, FLASH_F16_96], groups: None },
    Tiled {
        depth: 128,
        warps: [FLASH_BF16_128, FLASH_F16_128],
        groups: Some([FLASH_SM90_BF16_128, FLASH_SM90_F16_128]),
    },
];

/// Ways by tiles on tensor cores.
struct ByTiles {
    /// On every device.
    usual: Way,
    /// On devices of compute capability 9.0, if there is one.
    sm90: Option<Way>,
}

impl ByTiles {
    /// Where tensor cores take heads of this type and size.
    fn of(draft: &Draft, heads: &Heads) -> Option<Self> {
        let own = match draft.types.narrow {
            Number::Bf16 => 0,
            Number::F16 => 1,
            Number::F32 | Number::F64 => return None,
        };
        let tiled = TILED.iter().find(|tiled| tiled.depth == heads.depth)?;
        let sm90 = tiled.groups.map(|groups| Way::WarpGroups(groups[own]));
        Some(Self { usual: Way::Warps(tiled.warps[own]), sm90 })
    }
}

/// How many numbers the heads have whose attention is made by tiles on tensor cores where a model is trained
/// in 16 bits. That of others is made row by row.
pub fn tiled_depths() -> impl Iterator<Item = u64> {
    TILED.iter().map(|tiled| tiled.depth as u64)
}

/// How a sweep is cut into blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Blocks {
    /// Rows of a block.
    rows: usize,
    threads: usize,
    /// Dynamic shared memory.
    shared: Bytes,
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
    /// Its symbol, without what it is made for.
    fn name(self, way: Way) -> &'static str {
        match (way, self) {
            (Way::Warps(_), Sweep::Forward) => "flash",
            (Way::Warps(_), Sweep::Queries) => "flash_queries",
            (Way::Warps(_), Sweep::Keys) => "flash_keys",
            (Way::WarpGroups(_), Sweep::Forward) => "flash_sm90",
            (Way::WarpGroups(_), Sweep::Queries) => "flash_sm90_queries",
            (Way::WarpGroups(_), Sweep::Keys) => "flash_sm90_keys",
            (Way::Rows, Sweep::Forward) => "attention",
            (Way::Rows, Sweep::Queries) => "query_slopes",
            (Way::Rows, Sweep::Keys) => "key_slopes",
        }
    }
    /// Blocks of `flash.cu`: 64 rows for every band of its warps.
    fn by_warps(self, heads: &Heads) -> Blocks {
        let depth = heads.depth;
        let long = depth > 64;
        let rows = match (self, heads.cap) {
            (Sweep::Keys, _) | (Sweep::Queries, Some(_)) if long => 64,
            (Sweep::Forward | Sweep::Queries | Sweep::Keys, _) => 128,
        };
        // Tiles of own rows that are there beside those that a block meets.
        let own = match self {
            Sweep::Forward if !long => 0,
            Sweep::Forward | Sweep::Queries if long => 1,
            Sweep::Forward | Sweep::Queries | Sweep::Keys => 2,
        };
        let stage = 2 * if long { 32 } else { 64 };
        let statistics = match self {
            Sweep::Forward | Sweep::Queries => 0,
            Sweep::Keys => 2 * stage,
        };
        // Rows are 16 bytes longer than a head.
        let shared = (own * rows + 2 * stage) * (depth + 8) * 2 + statistics * 4;
        Blocks { rows, threads: 128, shared: Bytes(shared as u64) }
    }
    /// Blocks of `flash_sm90.cu`: 64 rows for every warp group.
    fn by_warp_groups(self, heads: &Heads) -> Blocks {
        let depth = heads.depth;
        let groups = match (self, depth) {
            (Sweep::Forward, _) | (Sweep::Queries, 128) => 2,
            (Sweep::Queries | Sweep::Keys, _) => 1,
        };
        let rows = 64 * groups;
        // Tiles of own rows, the rows of a tile that a block meets, and numbers of 32 bits besides.
        let (own, met, statistics) = match self {
            Sweep::Forward => (1, 128, 0),
            Sweep::Queries => (2, 64, 2 * rows),
            Sweep::Keys => (2, 64, 4 * 64),
        };
        // Two stages of two such tiles.
        let shared = (own * rows + 4 * met) * depth * 2 + statistics * 4;
        Blocks { rows, threads: 128 * groups, shared: Bytes(shared as u64) }
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
        (draft, way): (&mut Draft, Way),
        heads: &Heads,
        operands: &[Argument],
        last: Option<Argument>,
    ) -> Result<(), String> {
        let (all, depth, name) =
            (heads.batch * self.heads(heads), heads.depth, self.name(way));
        let capped = if heads.cap.is_some() { "_capped" } else { "" };
        let tiled = format!("{name}{capped}_{depth}");
        let (source, symbol, blocks) = match way {
            Way::Warps(source) => (source, tiled, self.by_warps(heads)),
            Way::WarpGroups(source) => (source, tiled, self.by_warp_groups(heads)),
            Way::Rows => {
                let shared = self.sums() * depth * draft.types.narrow.wide().size();
                if shared > MOST_SHARED {
                    return Err(format!("a head of {depth} numbers has no kernel"));
                }
                let shared = Bytes(shared as u64);
                (ATTENTION, name.to_owned(), Blocks { rows: 1, threads: 128, shared })
            }
        };
        let Blocks { rows, threads, shared } = blocks;
        let grid = [extent(self.rows(heads).div_ceil(rows) * all), 1, 1];
        let shape = Shape { grid, block: [extent(threads), 1, 1], shared };
        let operands = operands.iter().copied();
        let arguments = operands.chain(extents(heads)).chain(last).collect();
        draft.narrow((source, &symbol), shape, arguments);
        Ok(())
    }
}

/// What every kernel of attention knows: `HEADS` of `heads.h`.
pub(super) fn extents(heads: &Heads) -> [Argument; 14] {
    let whole = |number: usize| Argument::Unsigned(extent(number));
    let [query_row, key_row, query_gap, key_step] = rows(heads).map(whole);
    [
        whole(heads.batch),
        whole(heads.sequence),
        whole(heads.before),
        whole(heads.heads),
        whole(heads.key_heads),
        whole(heads.depth),
        Argument::Unsigned(heads.sight.causal.into()),
        query_row,
        key_row,
        query_gap,
        key_step,
        Argument::Unsigned64(heads.sight.reach as u64),
        Argument::Double(heads.scale),
        Argument::Double(heads.cap.unwrap_or(0.0)),
    ]
}

/// Heads of a row in which queries lie, and of one in which keys do; numbers between the queries of a key
/// head and those of the next, and from a key head to the next.
fn rows(heads: &Heads) -> [usize; 4] {
    let (depth, all) = (heads.depth, heads.packed_heads());
    match heads.lie {
        Lie::Apart => [heads.heads, heads.key_heads, 0, depth],
        Lie::Packed => [all, all, 2 * depth, (heads.group() + 2) * depth],
    }
}

/// How far an array of attention reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// q, k and v in one.
    Packed,
    Queries,
    Keys,
    Statistics,
}

/// The operands of a call, in order.
fn arrays(
    draft: &Draft,
    heads: &Heads,
    of: impl IntoIterator<Item = (Extent, Access)>,
) -> Vec<Operand> {
    let narrow = draft.types.narrow;
    let size = |(rows, columns): (usize, usize)| rows * columns;
    let each = of.into_iter().enumerate().map(|(operand, (extent, access))| {
        let extent = match extent {
            Extent::Packed => (narrow, size(heads.packed_shape())),
            Extent::Queries => (narrow, size(heads.shape())),
            Extent::Keys => (narrow, size(heads.key_shape())),
            Extent::Statistics => (narrow.wide(), heads.statistics()),
        };
        draft.array(operand, extent, access)
    });
    each.collect()
}

/// The arrays of queries, keys and values, or of their gradients.
fn tokens(heads: &Heads, access: Access) -> Vec<(Extent, Access)> {
    let extents = match heads.lie {
        Lie::Apart => vec![Extent::Queries, Extent::Keys, Extent::Keys],
        Lie::Packed => vec![Extent::Packed],
    };
    extents.into_iter().map(|extent| (extent, access)).collect()
}

/// Where q, k and v begin, or their gradients, in arrays of which this operand is the first.
fn beginnings(draft: &Draft, heads: &Heads, first: usize) -> [CallPlace; 3] {
    let rows = [heads.queries(0, 0), heads.keys(0, 0), heads.values(0, 0)];
    let (arrays, size) = (heads.places(), draft.types.narrow.size());
    [0, 1, 2].map(|own| {
        let begins = rows[own].row(0).start;
        further(draft.place(first + arrays[own]), begins * size)
    })
}

/// How queries lie, and keys and values; none where heads of queries are not equally far apart.
fn strides(heads: &Heads) -> Option<[Strides; 2]> {
    let (one, all) = (heads.depth, (heads.group() + 2) * heads.depth);
    let [query, key] = match heads.lie {
        Lie::Apart => [one, one],
        Lie::Packed if heads.group() == 1 => [all, all],
        Lie::Packed if heads.key_heads == 1 => [one, all],
        Lie::Packed => return None,
    };
    let queries = Strides { position: heads.queries(0, 0).stride, head: query };
    let keys = Strides { position: heads.keys(0, 0).stride, head: key };
    Some([queries, keys])
}

/// What a library may make of q, k, v, o and lse, which begin here.
fn attended(
    heads: &Heads,
    number: Number,
    [q, k, v, o, lse]: [CallPlace; 5],
) -> Result<Attended, Unattended> {
    let &Heads { batch, sequence, before, key_heads, depth, sight, .. } = heads;
    if heads.cap.is_some() {
        return Err(Unattended::Cap);
    }
    if before > 0 {
        return Err(Unattended::MoreKeys);
    }
    if sight.reach < sequence {
        return Err(Unattended::Window);
    }
    let [queries, keys] = strides(heads).ok_or(Unattended::Uneven)?;
    let array = |place| Array { place, number };
    Ok(Attended {
        batch,
        sequence,
        heads: heads.heads,
        key_heads,
        depth,
        mask: if sight.causal { Mask::Causal } else { Mask::None },
        scale: heads.scale as f32,
        queries,
        keys,
        tokens: [q, k, v, o].map(array),
        logarithms: Array { place: lse, number: number.wide() },
    })
}

/// Attention in words.
fn words(heads: &Heads) -> String {
    let Heads { batch, sequence, heads: count, depth, .. } = heads;
    let positions = heads.positions();
    format!(
        "{positions} positions by {batch} x {sequence} queries of {count} heads of {depth}"
    )
}

impl Form for Attention {
    fn roles(&self) -> Vec<Role> {
        let tokens = vec![Narrow; self.heads.array_count()];
        [tokens, vec![Narrow, Wide]].concat()
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let heads = &self.heads;
        let [q, k, v] = beginnings(draft, heads, 0);
        let behind = heads.array_count();
        let places = [q, k, v, draft.place(behind), draft.place(behind + 1)];
        let operands = places.map(Argument::Address);
        let sweep = |draft: &mut Draft, way| {
            Sweep::Forward.launch((draft, way), heads, &operands, None)
        };
        let Some(ways) = ByTiles::of(draft, heads) else {
            return sweep(draft, Way::Rows);
        };
        let made = [Extent::Queries, Extent::Statistics];
        let made = made.map(|extent| (extent, Access::Write));
        let arrays =
            arrays(draft, heads, tokens(heads, Access::Read).into_iter().chain(made));
        let words = format!("attention to {}", words(heads));
        let attended = attended(heads, draft.types.narrow, places);
        let sweep = |way| move |draft: &mut Draft| sweep(draft, way);
        draft.either(words, arrays, attended, (sweep(ways.usual), ways.sm90.map(sweep)))
    }
}

impl Form for AttentionBackward {
    fn roles(&self) -> Vec<Role> {
        let tokens = vec![Narrow; self.heads.array_count()];
        [&tokens[..], &[Narrow, Wide, Narrow], &tokens].concat()
    }
    fn write(&self, draft: &mut Draft) -> Result<(), String> {
        let heads = &self.heads;
        let count = heads.array_count();
        let [q, k, v] = beginnings(draft, heads, 0).map(Argument::Address);
        let [o, lse, slope] = draft.operands(count);
        let [dq, dk, dv] = beginnings(draft, heads, count + 3).map(Argument::Address);
        // Σ do · o of every row.
        let inner = draft.wide_scratch(heads.statistics());
        let add = Some(adding(self.store));
        let sweep = |draft: &mut Draft, way, queries: &[Argument]| {
            Sweep::Queries.launch((&mut *draft, way), heads, queries, add)?;
            let keys = [q, k, v, lse, slope, inner, dk, dv];
            Sweep::Keys.launch((draft, way), heads, &keys, add)
        };
        let Some(ways) = ByTiles::of(draft, heads) else {
            inner_products(draft, heads, [o, slope, inner]);
            return sweep(draft, Way::Rows, &[q, k, v, lse, slope, inner, dq]);
        };
        let made = self.store.access();
        let read = [Extent::Queries, Extent::Statistics, Extent::Queries];
        let read = read.map(|extent| (extent, Access::Read));
        let all = tokens(heads, Access::Read).into_iter().chain(read);
        let arrays = arrays(draft, heads, all.chain(tokens(heads, made)));
        let words = format!("the gradients of attention to {}", words(heads));
        let queries = [q, k, v, o, lse, slope, inner, dq];
        let sweep = |way| move |draft: &mut Draft| sweep(draft, way, &queries);
        let ways = (sweep(ways.usual), ways.sm90.map(sweep));
        draft.either(words, arrays, Err(Unattended::Gradients), ways)
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
    use super::{super::draft::Types, *};
    use crate::attention::{Counts, Sight};

    /// One query that sees itself alone.
    fn one(heads: usize, key_heads: usize, depth: usize) -> Heads {
        let sight = Sight { causal: true, reach: 1 };
        Heads::new(Counts { heads, key_heads }, [1, 1, depth], sight, 1.0)
    }

    #[test]
    fn two_blocks_fit_on_a_device_that_has_164_kib() {
        // What every block reserves, and the statistics of its own queries.
        let others = (1 << 10) + (1 << 10);
        for depth in TILED.map(|tiled| tiled.depth) {
            for cap in [None, Some(1.0)] {
                let heads = Heads { cap, ..one(1, 1, depth) };
                for sweep in [Sweep::Forward, Sweep::Queries, Sweep::Keys] {
                    let block = sweep.by_warps(&heads).shared.0 + others;
                    assert!(2 * block <= 164 << 10, "{sweep:?} {depth} {cap:?}");
                }
            }
        }
    }
    #[test]
    fn tiles_are_for_the_depths_of_their_table_in_16_bits() {
        for (narrow, in_tiles) in [
            (Number::F32, false),
            (Number::F64, false),
            (Number::Bf16, true),
            (Number::F16, true),
        ] {
            let draft = Draft::new(Types { narrow, either: narrow }, Vec::new());
            let is_tiled =
                |depth: &u64| ByTiles::of(&draft, &one(4, 4, *depth as usize)).is_some();
            let tiled: Vec<u64> = (1..=256).filter(is_tiled).collect();
            let expected: Vec<u64> = tiled_depths().filter(|_| in_tiles).collect();
            assert_eq!(tiled, expected, "{narrow:?}");
        }
    }

    #[test]
    fn libraries_take_heads_that_are_equally_far_apart() {
        let strides_of = |key_heads, lie| {
            let both = strides(&Heads { lie, ..one(4, key_heads, 64) });
            both.map(|both| both.map(|lie| [lie.position / 64, lie.head / 64]))
        };
        assert_eq!(strides_of(2, Lie::Apart), Some([[4, 1], [2, 1]]));
        assert_eq!(strides_of(4, Lie::Packed), Some([[12, 3], [12, 3]]));
        assert_eq!(strides_of(1, Lie::Packed), Some([[6, 1], [6, 6]]));
        assert_eq!(strides_of(2, Lie::Packed), None);
    }
    /// As many blocks of warp groups as `flash_sm90.cu` bounds the registers for.
    #[test]
    fn blocks_of_warp_groups_fit_on_a_device_that_has_228_kib() {
        for (sweep, depth, together) in [
            (Sweep::Forward, 64, 2),
            (Sweep::Forward, 128, 1),
            (Sweep::Queries, 64, 3),
            (Sweep::Queries, 128, 1),
            (Sweep::Keys, 64, 3),
            (Sweep::Keys, 128, 2),
        ] {
            let block = sweep.by_warp_groups(&one(1, 1, depth)).shared.0 + (1 << 10);
            assert!(together * block <= 228 << 10, "{sweep:?} {depth}");
        }
    }
}
