// Scaled dot-product attention in 16 bits on tensor cores, without the matrix of scores (Dao,
// arXiv 2307.08691): four warps with 16 rows each; what they meet comes tile by tile, the next one
// while this one is multiplied. The gradients of queries and of keys are two kernels, each of which
// sums its own rows, so nothing is added in an order that changes.

constexpr u32 ROWS = 64;
// Of a tile, the rows that gradients are made of at once, which leaves registers for the sums, and
// that are left out where no row of a warp sees them.
constexpr u32 CHUNK = 32;

// Rows of D numbers in shared memory, 16 bytes longer than they need be, so that eight of them lie
// in different banks.
template <class N, int D, int COUNT>
struct Tile {
    static constexpr u32 LENGTH = D + 8;
    static constexpr u32 SIZE = COUNT * LENGTH;
    N* at;

    // Rows of memory from `first` on; zeros from `end` on. One number at a time keeps few registers
    // where sums need them.
    __device__ void fetch(const N* from, u32 stride, u32 first, u32 end) const {
        constexpr u32 PACKS = COUNT * D / 8;
        static_assert(PACKS % 128 == 0, "every thread has as many");
        if (is_aligned(from)) {
#pragma unroll
            for (u32 i = 0; i < PACKS; i += 128) {
                u32 r = (threadIdx.x + i) / (D / 8), c = threadIdx.x % (D / 8) * 8;
                bool valid = first + r < end;
                copy_async(at + r * LENGTH + c, from + u64(valid ? first + r : 0) * stride + c, valid);
            }
        } else {
#pragma unroll 1
            for (u32 e = threadIdx.x; e < COUNT * D; e += 128) {
                u32 r = e / D, c = e % D;
                at[r * LENGTH + c] = first + r < end ? from[u64(first + r) * stride + c] : N{0};
            }
        }
    }
    // The rows from `row` on.
    template <int FEWER>
    __device__ Tile<N, D, FEWER> part(u32 row) const {
        return {at + row * LENGTH};
    }
    // Rows `row` on as the left factor of 16 × 16.
    __device__ void left(u32 (&to)[4], u32 row, u32 depth) const {
        u32 lane = threadIdx.x % 32;
        load_matrices(to, at + (row + lane % 16) * LENGTH + depth + lane / 16 * 8);
    }
    // The transposes of rows `row` on as two right factors of 16 × 8.
    __device__ void turned(u32 (&to)[4], u32 row, u32 depth) const {
        u32 lane = threadIdx.x % 32;
        load_matrices(to, at + (row + lane / 16 * 8 + lane % 8) * LENGTH + depth + lane / 8 % 2 * 8);
    }
    // Rows `row` on as two right factors of 16 × 8.
    __device__ void right(u32 (&to)[4], u32 row, u32 column) const {
        u32 lane = threadIdx.x % 32;
        load_matrices_transposed(to, at + (row + lane % 16) * LENGTH + column + lane / 16 * 8);
    }
};

// A warp's 16 rows of a tile as left factors: in registers, or loaded wherever they are needed.
template <int D>
struct Held {
    u32 at[D / 16][4];

    template <class N, int COUNT>
    __device__ Held(const Tile<N, D, COUNT>& tile, u32 row) {
#pragma unroll
        for (int d = 0; d < D; d += 16) tile.left(at[d / 16], row, d);
    }
    __device__ void left(u32 (&to)[4], u32 depth) const {
#pragma unroll
        for (int i = 0; i < 4; i++) to[i] = at[depth / 16][i];
    }
};
template <class N, int D, int COUNT>
struct Loaded {
    Tile<N, D, COUNT> tile;
    u32 row;

    __device__ Loaded(const Tile<N, D, COUNT>& tile, u32 row) : tile(tile), row(row) {}
    __device__ void left(u32 (&to)[4], u32 depth) const { tile.left(to, row, depth); }
};

template <class N, int D, bool HELD>
struct KeptOf {
    typedef Loaded<N, D, ROWS> type;
};
template <class N, int D>
struct KeptOf<N, D, true> {
    typedef Held<D> type;
};
template <class N, int D, bool HELD>
using Kept = typename KeptOf<N, D, HELD>::type;

// Sums of a warp: 16 rows, COLUMNS columns; lane l has rows l / 4 and that + 8, columns 2 (l % 4)
// and the next of every 8.
template <int COLUMNS>
struct Sums {
    f32 at[COLUMNS / 8][4] = {};

    // += a · bᵀ for 16 rows of a and rows `first` to `end` of b, over D.
    template <class N, int D, class Rows>
    __device__ void multiply_turned(const Rows& a, const Tile<N, D, COLUMNS>& b, int first = 0, int end = COLUMNS) {
#pragma unroll
        for (int d = 0; d < D; d += 16) {
            u32 x[4];
            a.left(x, d);
#pragma unroll
            for (int c = first; c < end; c += 16) {
                u32 y[4];
                b.turned(y, c, d);
                const u32 low[2] = {y[0], y[1]}, high[2] = {y[2], y[3]};
                multiply_add_of(N{}, at[c / 8], x, low);
                multiply_add_of(N{}, at[c / 8 + 1], x, high);
            }
        }
    }
    // += factors · b for rows `first` to `end` of b; the factors are a warp's sums, rounded.
    template <class N, int COUNT>
    __device__ void multiply(const Sums<COUNT>& factors, const Tile<N, COLUMNS, COUNT>& b, int first = 0,
                             int end = COUNT) {
#pragma unroll
        for (int r = first; r < end; r += 16) {
            const f32(&low)[4] = factors.at[r / 8], (&high)[4] = factors.at[r / 8 + 1];
            const u32 x[4] = {narrow_two<N>(low[0], low[1]), narrow_two<N>(low[2], low[3]),
                              narrow_two<N>(high[0], high[1]), narrow_two<N>(high[2], high[3])};
#pragma unroll
            for (int c = 0; c < COLUMNS; c += 16) {
                u32 y[4];
                b.right(y, r, c);
                const u32 left[2] = {y[0], y[1]}, right[2] = {y[2], y[3]};
                multiply_add_of(N{}, at[c / 8], x, left);
                multiply_add_of(N{}, at[c / 8 + 1], x, right);
            }
        }
    }
    // Calls body(half, column, value): half 0 for row l / 4, 1 for the one 8 below.
    template <class Body>
    __device__ void each(Body body) {
        u32 lane = threadIdx.x % 32;
#pragma unroll
        for (int c = 0; c < COLUMNS / 8; c++)
#pragma unroll
            for (int e = 0; e < 4; e++) body(e / 2, c * 8 + lane % 4 * 2 + e % 2, at[c][e]);
    }
    // Stores them times a factor for each half, or adds that to what is there, where rows(half) is.
    template <class N, class Rows>
    __device__ void put(const f32 (&factor)[2], bool packed, bool add, Rows rows) const {
        u32 lane = threadIdx.x % 4;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            N* to = rows(half);
#pragma unroll
            for (int c = 0; c < COLUMNS / 8; c += 4) {
                f32 values[8];
                join_pairs(at + c, half, values);
#pragma unroll
                for (f32& value : values) value *= factor[half];
                if (to) put_some(to + (c + lane) * 8, values, 8, packed, add);
            }
        }
    }
    // The same with the numbers that other sums have there.
    template <class Body>
    __device__ void each_with(Sums& others, Body body) {
        u32 lane = threadIdx.x % 32;
#pragma unroll
        for (int c = 0; c < COLUMNS / 8; c++)
#pragma unroll
            for (int e = 0; e < 4; e++) body(e / 2, c * 8 + lane % 4 * 2 + e % 2, at[c][e], others.at[c][e]);
    }
};

// Over the four lanes that share a row.
template <class How>
__device__ f32 quad_reduce(f32 value) {
    value = How::join(value, __shfl_xor_sync(WHOLE_WARP, value, 1));
    return How::join(value, __shfl_xor_sync(WHOLE_WARP, value, 2));
}

// The block's rows, head and example. The rows that take the longest come first, which under a
// causal mask are the last queries and the first keys.
struct Own {
    u32 first, head, example;

    __device__ static Own queries(const Heads& heads) {
        u32 tiles = (heads.sequence + ROWS - 1) / ROWS;
        return of_tile(tiles - 1 - blockIdx.x % tiles, tiles, heads.heads);
    }
    __device__ static Own keys(const Heads& heads) {
        u32 tiles = (heads.positions() + ROWS - 1) / ROWS;
        return of_tile(blockIdx.x % tiles, tiles, heads.key_heads);
    }
    __device__ static Own of_tile(u32 tile, u32 tiles, u32 of) {
        return {tile * ROWS, blockIdx.x / tiles % of, blockIdx.x / tiles / of};
    }
};

// Positions from `low` to before `high`.
struct Span {
    u32 low, high;

    __device__ bool has(u32 at) const { return at >= low && at < high; }
    __device__ bool has_all(u32 from, u32 end) const { return from >= low && end <= high; }
    __device__ bool has_some(u32 from, u32 end) const { return from < high && end > low; }
};

// What rows of a warp see, or are seen by: the lane's two, any, all of them. The first and the last
// position that a row sees grow with the row.
struct Seen {
    static constexpr u32 PART = CHUNK;
    Span rows[2], any, all;

    // Of 16 rows from `first` on, of which those before `end` exist.
    template <class Of>
    __device__ Seen(u32 first, u32 end, Of of) {
        u32 row = first + threadIdx.x % 32 / 4;
        Span top = of(first), bottom = of(least(first + 16, end) - 1);
        rows[0] = of(row);
        rows[1] = of(row + 8);
        any = {top.low, first < end ? bottom.high : 0};
        all = {bottom.low, first < end ? top.high : 0};
    }
    __device__ static Seen keys(const Heads& heads, u32 first) {
        return {first, heads.sequence, [&](u32 i) { return Span{heads.first_key(i), heads.last_key(i)}; }};
    }
    __device__ static Seen queries(const Heads& heads, u32 first) {
        return {first, heads.positions(), [&](u32 j) { return Span{heads.first_query(j), heads.last_query(j)}; }};
    }
    __device__ bool operator()(u32 half, u32 at) const { return rows[half].has(at); }
    // Whether any row sees one of the PART positions from `at` on.
    __device__ bool some(u32 at) const { return any.has_some(at, at + PART); }
};

// The same where every row sees all: that takes no comparison.
struct Everything {
    static constexpr u32 PART = ROWS;

    __device__ bool some(u32) const { return true; }
    __device__ bool operator()(u32, u32) const { return true; }
};

// The warp's first row among the block's, and the lane's row among the warp's.
__device__ inline u32 row_of_warp() { return threadIdx.x / 32 * 16; }
__device__ inline u32 row_of_lane() { return threadIdx.x % 32 / 4; }

// Scores as multiples of `unit`, which is taken in where the exponent is made: of a product, or of
// its hyperbolic tangent where there is a cap. Exponents are of two.
template <bool CAPPED>
struct Scores {
    f32 inside, unit, factor;

    __device__ Scores(const Heads& heads)
        : inside(f32(heads.scale) / f32(heads.cap)), unit(f32(CAPPED ? heads.cap : heads.scale)),
          factor(unit * LOG2_E) {}
    __device__ f32 of(f32 product) const { return CAPPED ? tangent(product * inside) : product; }
    __device__ f32 exponential(f32 score, f32 base) const { return power_of_two(fmaf(score, factor, -base)); }
    // The slope of a score by the scaled product.
    __device__ f32 steepness(f32 score) const { return CAPPED ? 1 - score * score : 1; }
};

template <class N, int D, bool CAPPED>
__device__ void flash(const N* q, const N* k, const N* v, N* o, f32* lse, Heads heads) {
    typedef Tile<N, D, ROWS> Met;
    N* memory = reinterpret_cast<N*>(dynamic_shared());
    Own own = Own::queries(heads);
    u32 key_head = own.head / heads.group(), stride = heads.heads * D, key_stride = heads.key_heads * D;
    Met queries{memory};
    auto keys = [&](u32 stage) { return Met{memory + (1 + 2 * stage) * Met::SIZE}; };
    auto values = [&](u32 stage) { return Met{memory + (2 + 2 * stage) * Met::SIZE}; };
    const N *key = k + heads.key(own.example, key_head, 0), *value = v + heads.key(own.example, key_head, 0);
    auto begin = [&](u32 first, u32 stage) {
        keys(stage).fetch(key, key_stride, first, heads.positions());
        values(stage).fetch(value, key_stride, first, heads.positions());
        commit_copies();
    };
    queries.fetch(q + heads.query(own.example, own.head, 0), stride, own.first, heads.sequence);
    commit_copies();
    u32 last = least(own.first + ROWS, heads.sequence) - 1;
    u32 first = heads.first_key(own.first) / ROWS * ROWS, end = heads.last_key(last), stage = 0;
    begin(first, 0);
    wait_for_copies<1>();
    __syncthreads();
    Kept<N, D, D == 128> own_queries(queries, row_of_warp());
    Scores<CAPPED> scores(heads);
    Sums<D> out;
    f32 most[2] = {negative_infinity<f32>(), negative_infinity<f32>()}, total[2] = {};
    u32 row = own.first + row_of_warp() + row_of_lane();
    Seen seen = Seen::keys(heads, own.first + row_of_warp());
    for (; first < end; first += ROWS, stage ^= 1) {
        wait_for_copies<0>();
        __syncthreads();
        if (first + ROWS < end) begin(first + ROWS, stage ^ 1);
        auto meet = [&](auto sees) {
            Sums<ROWS> sums;
#pragma unroll
            for (u32 c = 0; c < ROWS; c += sees.PART)
                if (sees.some(first + c)) sums.multiply_turned(own_queries, keys(stage), c, c + sees.PART);
            f32 high[2] = {most[0], most[1]}, base[2], shrink[2];
            sums.each([&](u32 half, u32 j, f32& score) {
                score = sees(half, first + j) ? scores.of(score) : negative_infinity<f32>();
                high[half] = fmaxf(high[half], score);
            });
#pragma unroll
            for (int half = 0; half < 2; half++) {
                high[half] = quad_reduce<Most>(high[half]);
                // A row that has seen nothing yet has no maximum to take off.
                base[half] = high[half] == negative_infinity<f32>() ? 0 : high[half] * scores.factor;
                // A maximum that stays leaves the sums as they are: `base` is rounded, so what is left
                // of a difference from it would grow with the tiles.
                bool stays = most[half] == high[half];
                shrink[half] = stays ? 1 : power_of_two((most[half] - high[half]) * scores.factor);
                total[half] *= shrink[half];
                most[half] = high[half];
            }
            out.each([&](u32 half, u32, f32& sum) { sum *= shrink[half]; });
            sums.each([&](u32 half, u32, f32& score) {
                score = scores.exponential(score, base[half]);
                total[half] += score;
            });
#pragma unroll
            for (u32 c = 0; c < ROWS; c += sees.PART)
                if (sees.some(first + c)) out.multiply(sums, values(stage), c, c + sees.PART);
        };
        if (seen.all.has_all(first, first + ROWS)) meet(Everything{});
        else if (seen.any.has_some(first, first + ROWS)) meet(seen);
    }
#pragma unroll
    for (int half = 0; half < 2; half++) total[half] = quad_reduce<Sum>(total[half]);
    const f32 share[2] = {1 / total[0], 1 / total[1]};
    out.template put<N>(share, is_aligned(o), false, [&](u32 half) {
        u32 i = row + half * 8;
        return i < heads.sequence ? o + heads.query(own.example, own.head, i) : nullptr;
    });
    if (threadIdx.x % 4 == 0)
        for (int half = 0; half < 2; half++)
            if (row + half * 8 < heads.sequence)
                lse[heads.statistic(own.example, own.head, row + half * 8)] =
                    most[half] * scores.unit + logf(total[half]);
}

// The weight and the slope of a scaled product, from its product and that of the output's slope and
// the value.
template <bool CAPPED>
__device__ void weigh(const Scores<CAPPED>& scores, bool seen, f32& product, f32& along, f32 base, f32 inner) {
    f32 score = scores.of(product);
    product = seen ? scores.exponential(score, base) : 0;
    along = product * (along - inner) * scores.steepness(score);
}

// The lane's part of Σ left · right, of a row that four lanes share.
template <int D, class N>
__device__ f32 quarter_dot(const N* left, const N* right) {
    bool packed = is_aligned(left) && is_aligned(right);
    f32 total = 0;
#pragma unroll
    for (u32 c = 0; c < D; c += 32) {
        u32 own = c + threadIdx.x % 4 * 8;
        auto a = load_some<8>(left + own, 8, packed), b = load_some<8>(right + own, 8, packed);
#pragma unroll
        for (int i = 0; i < 8; i++) total += widen(a.at[i]) * widen(b.at[i]);
    }
    return total;
}

// Also inner[b, h, i] = do_i · o_i, which the keys' gradients need as well.
template <class N, int D, bool CAPPED>
__device__ void flash_queries(const N* q, const N* k, const N* v, const N* o, const f32* lse, const N* slope,
                              f32* inner, N* dq, Heads heads, bool add) {
    constexpr int KEYS = D == 64 ? 64 : 32;
    typedef Tile<N, D, ROWS> Rows;
    typedef Tile<N, D, KEYS> Met;
    N* memory = reinterpret_cast<N*>(dynamic_shared());
    Own own = Own::queries(heads);
    u32 key_head = own.head / heads.group(), stride = heads.heads * D, key_stride = heads.key_heads * D;
    Rows queries{memory}, slopes{memory + Rows::SIZE};
    auto keys = [&](u32 stage) { return Met{memory + 2 * Rows::SIZE + 2 * stage * Met::SIZE}; };
    auto values = [&](u32 stage) { return Met{memory + 2 * Rows::SIZE + (2 * stage + 1) * Met::SIZE}; };
    const N *key = k + heads.key(own.example, key_head, 0), *value = v + heads.key(own.example, key_head, 0);
    auto begin = [&](u32 first, u32 stage) {
        keys(stage).fetch(key, key_stride, first, heads.positions());
        values(stage).fetch(value, key_stride, first, heads.positions());
        commit_copies();
    };
    u64 at = heads.query(own.example, own.head, 0);
    queries.fetch(q + at, stride, own.first, heads.sequence);
    slopes.fetch(slope + at, stride, own.first, heads.sequence);
    commit_copies();
    u32 last = least(own.first + ROWS, heads.sequence) - 1;
    u32 first = heads.first_key(own.first) / KEYS * KEYS, end = heads.last_key(last), stage = 0;
    begin(first, 0);
    u32 row = own.first + row_of_warp() + row_of_lane();
    Seen seen = Seen::keys(heads, own.first + row_of_warp());
    f32 base[2], taken[2];
    for (int half = 0; half < 2; half++) {
        u32 i = least(row + half * 8, heads.sequence - 1);
        u64 statistic = heads.statistic(own.example, own.head, i), query = heads.query(own.example, own.head, i);
        base[half] = lse[statistic] * LOG2_E;
        taken[half] = quad_reduce<Sum>(quarter_dot<D>(o + query, slope + query));
        if (threadIdx.x % 4 == 0 && row + half * 8 < heads.sequence) inner[statistic] = taken[half];
    }
    wait_for_copies<1>();
    __syncthreads();
    Kept<N, D, D == 64> own_queries(queries, row_of_warp()), own_slopes(slopes, row_of_warp());
    Scores<CAPPED> scores(heads);
    Sums<D> sums;
    for (; first < end; first += KEYS, stage ^= 1) {
        wait_for_copies<0>();
        __syncthreads();
        if (first + KEYS < end) begin(first + KEYS, stage ^ 1);
        u32 until = least(first + KEYS, seen.any.high);
        for (u32 at = greatest(first, seen.any.low / CHUNK * CHUNK); at < until; at += CHUNK) {
            u32 c = at - first;
            auto some_keys = keys(stage).template part<CHUNK>(c);
            Sums<CHUNK> weights, changes;
            weights.multiply_turned(own_queries, some_keys);
            changes.multiply_turned(own_slopes, values(stage).template part<CHUNK>(c));
            auto mask = [&](auto sees) {
                weights.each_with(changes, [&](u32 half, u32 j, f32& weight, f32& change) {
                    weigh(scores, sees(half, at + j), weight, change, base[half], taken[half]);
                });
            };
            if (seen.all.has_all(at, at + CHUNK)) mask(Everything{});
            else mask(seen);
            sums.multiply(changes, some_keys);
        }
    }
    const f32 factor[2] = {f32(heads.scale), f32(heads.scale)};
    sums.template put<N>(factor, is_aligned(dq), add, [&](u32 half) {
        u32 i = row + half * 8;
        return i < heads.sequence ? dq + heads.query(own.example, own.head, i) : nullptr;
    });
}

template <class N, int D, bool CAPPED>
__device__ void flash_keys(const N* q, const N* k, const N* v, const f32* lse, const N* slope, const f32* inner, N* dk,
                           N* dv, Heads heads, bool add) {
    constexpr int QUERIES = D == 64 ? 64 : 32;
    typedef Tile<N, D, ROWS> Rows;
    typedef Tile<N, D, QUERIES> Met;
    N* memory = reinterpret_cast<N*>(dynamic_shared());
    Own own = Own::keys(heads);
    u32 stride = heads.heads * D, key_stride = heads.key_heads * D;
    Rows keys{memory}, values{memory + Rows::SIZE};
    auto queries = [&](u32 stage) { return Met{memory + 2 * Rows::SIZE + 2 * stage * Met::SIZE}; };
    auto slopes = [&](u32 stage) { return Met{memory + 2 * Rows::SIZE + (2 * stage + 1) * Met::SIZE}; };
    // Of the queries of a stage: lse, then inner.
    f32* statistics = reinterpret_cast<f32*>(memory + 2 * Rows::SIZE + 4 * Met::SIZE);
    u64 at = heads.key(own.example, own.head, 0);
    keys.fetch(k + at, key_stride, own.first, heads.positions());
    values.fetch(v + at, key_stride, own.first, heads.positions());
    commit_copies();
    u32 last = least(own.first + ROWS, heads.positions()) - 1;
    u32 first = heads.first_query(own.first) / QUERIES * QUERIES, end = heads.last_query(last);
    // Under a window no query may see these keys.
    u32 tiles = first < end ? (end - first + QUERIES - 1) / QUERIES : 0, steps = tiles * heads.group();
    u32 next_head = own.head * heads.group(), next = first;
    auto begin = [&](u32 stage) {
        u64 query = heads.query(own.example, next_head, 0);
        queries(stage).fetch(q + query, stride, next, heads.sequence);
        slopes(stage).fetch(slope + query, stride, next, heads.sequence);
        if (threadIdx.x < 2 * QUERIES) {
            u32 row = least(next + threadIdx.x % QUERIES, heads.sequence - 1);
            const f32* of = threadIdx.x < QUERIES ? lse : inner;
            f32* to = statistics + stage * 2 * QUERIES + threadIdx.x;
            copy_async(to, of + heads.statistic(own.example, next_head, row));
        }
        commit_copies();
        next += QUERIES;
        if (next < end) return;
        next = first;
        next_head++;
    };
    if (steps > 0) begin(0);
    u32 row = own.first + row_of_warp() + row_of_lane();
    Seen seen = Seen::queries(heads, own.first + row_of_warp());
    wait_for_copies<1>();
    __syncthreads();
    Loaded<N, D, ROWS> own_keys(keys, row_of_warp()), own_values(values, row_of_warp());
    Scores<CAPPED> scores(heads);
    Sums<D> of_keys, of_values;
    for (u32 from = first, stage = 0; steps > 0; steps--, stage ^= 1) {
        wait_for_copies<0>();
        __syncthreads();
        if (steps > 1) begin(stage ^ 1);
        const f32* of_stage = statistics + stage * 2 * QUERIES;
        u32 until = least(from + QUERIES, seen.any.high);
        for (u32 at = greatest(from, seen.any.low / CHUNK * CHUNK); at < until; at += CHUNK) {
            u32 c = at - from;
            auto some_queries = queries(stage).template part<CHUNK>(c);
            auto some_slopes = slopes(stage).template part<CHUNK>(c);
            Sums<CHUNK> weights, changes;
            weights.multiply_turned(own_keys, some_queries);
            changes.multiply_turned(own_values, some_slopes);
            auto mask = [&](auto sees) {
                weights.each_with(changes, [&](u32 half, u32 j, f32& weight, f32& change) {
                    f32 base = of_stage[c + j] * LOG2_E, inner = of_stage[QUERIES + c + j];
                    weigh(scores, sees(half, at + j), weight, change, base, inner);
                });
            };
            if (seen.all.has_all(at, at + CHUNK)) mask(Everything{});
            else mask(seen);
            of_values.multiply(weights, some_slopes);
            of_keys.multiply(changes, some_queries);
        }
        from = from + QUERIES < end ? from + QUERIES : first;
    }
    auto write = [&](const Sums<D>& sums, N* to, f32 factor) {
        const f32 factors[2] = {factor, factor};
        sums.template put<N>(factors, is_aligned(to), add, [&](u32 half) {
            u32 j = row + half * 8;
            return j < heads.positions() ? to + heads.key(own.example, own.head, j) : nullptr;
        });
    };
    write(of_keys, dk, heads.scale);
    write(of_values, dv, 1);
}

// Blocks for which a multiprocessor of 227 KiB has shared memory, where they can do with the
// registers.
template <int D, bool CAPPED>
constexpr int TOGETHER = D == 128 ? 2 : CAPPED ? 3 : 4;
constexpr int TOGETHER_BY_QUERIES = 3;
template <int D>
constexpr int TOGETHER_BY_KEYS = D == 128 ? 2 : 3;

#define EXPORT(N, D, MARK, CAPPED)                                                                                  \
    KERNEL_TOGETHER((TOGETHER<D, CAPPED>), 128, flash##MARK##_##D##_##N,                                            \
                    (const N* q, const N* k, const N* v, N* o, f32* lse, HEADS),                                    \
                    flash<N, D, CAPPED>(q, k, v, o, lse, HEADS_OF))                                                 \
    KERNEL_TOGETHER(TOGETHER_BY_QUERIES, 128, flash_queries##MARK##_##D##_##N,                                      \
                    (const N* q, const N* k, const N* v, const N* o, const f32* lse, const N* slope, f32* inner,    \
                     N* dq, HEADS, u32 add),                                                                        \
                    flash_queries<N, D, CAPPED>(q, k, v, o, lse, slope, inner, dq, HEADS_OF, add))                  \
    KERNEL_TOGETHER(TOGETHER_BY_KEYS<D>, 128, flash_keys##MARK##_##D##_##N,                                         \
                    (const N* q, const N* k, const N* v, const f32* lse, const N* slope, const f32* inner, N* dk,   \
                     N* dv, HEADS, u32 add),                                                                        \
                    flash_keys<N, D, CAPPED>(q, k, v, lse, slope, inner, dk, dv, HEADS_OF, add))
#define EXPORT_BOTH(N, D) EXPORT(N, D, , false) EXPORT(N, D, _capped, true)
EXPORT_BOTH(bf16, 64)
EXPORT_BOTH(bf16, 128)
EXPORT_BOTH(f16, 64)
EXPORT_BOTH(f16, 128)
#undef EXPORT_BOTH
#undef EXPORT
