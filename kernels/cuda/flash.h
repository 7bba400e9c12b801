// What all kernels of flash attention know: which rows are a block's, which scores count, softmax as it
// goes, and slopes of scores.

// The block's rows, head and example. Of all heads of an example, the rows that take the longest come
// first, which under a causal mask are the last queries and the first keys.
template <int ROWS>
struct Own {
    u32 first, head, example;

    __device__ static Own queries(const Heads& heads) {
        u32 tiles = (heads.sequence + ROWS - 1) / ROWS, block = block_anew();
        u32 example = block / (tiles * heads.heads);
        block -= example * tiles * heads.heads;
        return {(tiles - 1 - block / heads.heads) * ROWS, block % heads.heads, example};
    }
    __device__ static Own keys(const Heads& heads) {
        u32 tiles = (heads.positions() + ROWS - 1) / ROWS, block = block_anew();
        u32 example = block / (tiles * heads.key_heads);
        block -= example * tiles * heads.key_heads;
        return {block / heads.key_heads * ROWS, block % heads.key_heads, example};
    }
};

// Which of a lane's sums count. Of its first row and column, the distance from the first column that
// counts, to behind the last one, and to behind the last one of all rows; what counts moves on by a
// column from row to row.
struct Mask {
    i32 since, left, all;

    __device__ bool operator()(i32 row, i32 column) const {
        i32 across = column - row * 8;
        return across + since >= 0 && across < left && column < all;
    }
};
// Where all count, which takes no comparison.
struct Everything {
    __device__ bool operator()(i32, i32) const { return true; }
};

// What rows that are multiplied together see, or are seen by: the first one from `low` to before `high`,
// others as far on as they are below it, none from `end` on. `Rows` says how many there are, and which
// is the lane's first.
template <class Rows>
struct Seen {
    static constexpr i32 BELOW = Rows::COUNT - 1;
    i32 low, high, end;

    // Of the queries from `first` on, and of the keys; where there are none, they see nothing.
    __device__ static Seen keys(const Heads& heads, i32 first) {
        i32 reach = least<u64>(heads.reach, heads.positions()), own = first + i32(heads.before);
        i32 end = first < i32(heads.sequence) ? heads.positions() : 0;
        return {own + 1 - reach, own + (heads.causal ? 1 : reach), end};
    }
    __device__ static Seen queries(const Heads& heads, i32 first) {
        i32 reach = least<u64>(heads.reach, heads.positions()), own = first - i32(heads.before);
        i32 end = first < i32(heads.positions()) ? heads.sequence : 0;
        return {own + 1 - (heads.causal ? 1 : reach), own + reach, end};
    }
    // Calls meet(counts, c) for every CHUNK positions that some row sees, the c-th on of a tile.
    template <int CHUNK, int TILE, class Meet>
    __device__ void each_chunk(i32 tile, Meet meet) const {
#pragma unroll 1
        for (i32 c = 0; c < TILE; c += CHUNK) {
            i32 at = tile + c, since = at - low, left = high - at, all = end - at;
            if (since <= -CHUNK || left <= -BELOW || all <= 0) continue;
            i32 row = Rows::of_lane(), column = column_of_lane();
            if (since >= BELOW && left >= CHUNK && all >= CHUNK) meet(Everything{}, c);
            else meet(Mask{since + column - row, left + row - column, all - column}, c);
        }
    }
};

// Scores in units of their own: products, or hyperbolic tangents where there is a cap, off by 2⁻²² at
// most. Exponents, which are of two, are `factor` times as large; that of a tangent is `inside` times its
// product.
template <bool CAPPED>
struct Scores {
    f32 inside, factor;

    __device__ Scores(const Heads& heads)
        : inside(2 * LOG2_E * f32(heads.scale / heads.cap)), factor(f32(CAPPED ? heads.cap : heads.scale) * LOG2_E) {}
    __device__ f32 of(f32 product) const {
        return CAPPED ? 1 - 2 * reciprocal(1 + power_of_two(product * inside)) : product;
    }
    __device__ f32 exponential(f32 score, f32 base) const { return power_of_two(fmaf(score, factor, -base)); }
    // The slope of a score by the scaled product.
    __device__ f32 steepness(f32 score) const { return CAPPED ? 1 - score * score : 1; }
};

// What a warp's rows have seen: the exponent that is taken off of others, and the lane's part of the
// sum of powers.
template <int ROWS>
struct Softmax {
    // An exponent may be as much above the base, so that bases, and sums with them, rarely change.
    static constexpr f32 SLACK = 8;
    f32 base[ROWS], total[ROWS];

    // No exponent is below the base of a row that has seen nothing.
    __device__ Softmax() {
#pragma unroll
        for (int row = 0; row < ROWS; row++) {
            base[row] = -3.4e38f;
            total[row] = 0;
        }
    }
    // Makes powers of products; the sums of earlier ones follow the base. No row's numbers depend on
    // other rows.
    template <class Products, class Out, bool CAPPED, class Counts>
    __device__ void meet(Products& products, Out& sums, const Scores<CAPPED>& scores, const Counts& counts) {
        f32 most[ROWS];
        bool rises = false;
#pragma unroll
        for (f32& high : most) high = negative_infinity<f32>();
        products.each([&](i32 row, i32 column, f32& score) {
            score = counts(row, column) ? scores.of(score) : negative_infinity<f32>();
            most[row] = fmaxf(most[row], score);
        });
#pragma unroll
        for (int row = 0; row < ROWS; row++) {
            most[row] = most_of_row(most[row]) * scores.factor;
            rises |= most[row] > base[row] + SLACK;
        }
        if (__any_sync(WHOLE_WARP, rises)) {
            f32 shrink[ROWS];
#pragma unroll
            for (int row = 0; row < ROWS; row++) {
                f32 next = most[row] > base[row] + SLACK ? most[row] : base[row];
                shrink[row] = power_of_two(base[row] - next);
                total[row] *= shrink[row];
                base[row] = next;
            }
            sums.each([&](i32 row, i32, f32& sum) { sum *= shrink[row]; });
        }
        products.each([&](i32 row, i32, f32& score) {
            score = scores.exponential(score, base[row]);
            total[row] += score;
        });
    }
};

// Keys and values of a head, tile by tile from the one of a position on, in two stages of shared
// memory.
template <class N, int D, int KEYS, class Met>
struct Stream {
    static constexpr int SIZE = 4 * Met::SIZE;
    N* memory;
    const N *k, *v;
    u32 stride, positions, first;
    // The thread's own place in the next tile of k and v.
    u64 place;

    __device__ Stream(N* memory, const N* k, const N* v, const Heads& heads, u32 example, u32 head, u32 position)
        : memory(memory), k(k), v(v), stride(heads.key_row * D), positions(heads.positions()),
          first(position / KEYS * KEYS), place((u64(example) * positions + first) * stride +
                                               head / heads.group() * heads.key_step + Met::place_of_thread(stride)) {}
    __device__ Met keys(u32 at) const { return {memory + i32(at / KEYS % 2) * (2 * Met::SIZE)}; }
    __device__ Met values(u32 at) const { return {keys(at).at + Met::SIZE}; }
    // Tiles begin in order.
    __device__ void begin(u32 at) {
        keys(at).fetch(k + place, stride, positions - at);
        values(at).fetch(v + place, stride, positions - at);
        commit_copies();
        place += u64(KEYS) * stride;
    }
    // Calls meet(first position) for every tile while the next one is on its way; the first has begun.
    template <class Meet>
    __device__ void each_tile(u32 end, Meet meet) {
        for (u32 at = first; at < end; at += KEYS) {
            wait_for_copies<0>();
            Met::show_copies();
            __syncthreads();
            if (at + KEYS < end) begin(at + KEYS);
            meet(at);
        }
    }
};

// Of a query: its statistic as an exponent of two, and do · o.
struct alignas(8) Statistics {
    f32 base, inner;
};

// The weight and the slope of a scaled product, from its product and that of the output's slope and
// the value.
template <bool CAPPED>
__device__ void weigh(const Scores<CAPPED>& scores, bool counts, f32& product, f32& along, Statistics of_query) {
    f32 score = scores.of(product);
    product = counts ? scores.exponential(score, of_query.base) : 0;
    along = product * (along - of_query.inner) * scores.steepness(score);
}

// The lane's part of Σ left · right, of a row that four lanes share.
template <int D, class N>
__device__ f32 quarter_dot(const N* left, const N* right) {
    bool packed = is_aligned(left) && is_aligned(right);
    f32 total = 0;
#pragma unroll
    for (u32 c = 0; c < D; c += 32) {
        u32 own = c + threadIdx.x % 4 * 8;
        if (D % 32 > 0 && own >= D) continue;
        auto a = load_some<8>(left + own, 8, packed), b = load_some<8>(right + own, 8, packed);
#pragma unroll
        for (int i = 0; i < 8; i++) total += widen(a.at[i]) * widen(b.at[i]);
    }
    return total;
}

// Makes the statistics of a warp's rows of a block, from the lane's first on, and inner of those that exist.
template <int D, int ROWS, class N>
__device__ void make_statistics(const N* o, const N* slope, const f32* lse, f32* inner, Statistics* of_block,
                                const Heads& heads, u32 example, u32 head, u32 first, u32 own) {
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        u32 row = first + own + r * 8, i = least(row, heads.sequence - 1);
        u64 statistic = heads.statistic(example, head, i), result = heads.result(example, head, i);
        f32 taken = sum_of_row(quarter_dot<D>(o + result, slope + result));
        if (threadIdx.x % 4 > 0) continue;
        of_block[own + r * 8] = {lse[statistic] * LOG2_E, taken};
        if (row < heads.sequence) inner[statistic] = taken;
    }
}

// Stores a warp's sums of values, from the lane's row on, and lse.
template <class N, class Out, int ROWS>
__device__ void put_outputs(N* o, f32* lse, const Heads& heads, u32 example, u32 head, u32 row, const Out& sums,
                            const Softmax<ROWS>& softmax) {
    f32 share[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        f32 total = sum_of_row(softmax.total[r]);
        share[r] = reciprocal(total);
        if (threadIdx.x % 4 == 0 && row + r * 8 < heads.sequence)
            lse[heads.statistic(example, head, row + r * 8)] = softmax.base[r] * (1 / LOG2_E) + logf(total);
    }
    sums.template put<N>(share, is_aligned(o), false, [&](u32 r) {
        u32 i = row + r * 8;
        return i < heads.sequence ? o + heads.result(example, head, i) : nullptr;
    });
}

// Stores the gradients of a warp's queries, or of its keys, from the lane's row on.
template <class N, class Out>
__device__ void put_queries(N* dq, const Heads& heads, u32 example, u32 head, u32 row, const Out& sums, bool add) {
    sums.template put<N>(heads.scale, is_aligned(dq), add, [&](u32 r) {
        u32 i = row + r * 8;
        return i < heads.sequence ? dq + heads.query(example, head, i) : nullptr;
    });
}
template <class N, class Out>
__device__ void put_keys(N* to, f32 factor, const Heads& heads, u32 example, u32 head, u32 row, const Out& sums,
                         bool add) {
    sums.template put<N>(factor, is_aligned(to), add, [&](u32 r) {
        u32 j = row + r * 8;
        return j < heads.positions() ? to + heads.key(example, head, j) : nullptr;
    });
}
