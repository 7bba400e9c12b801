// Scaled dot-product attention in 16 bits on tensor cores, without the matrix of scores (Dao,
// arXiv 2307.08691): four warps with 16 rows each; what they meet comes tile by tile, the next one
// while this one is multiplied. The gradients of queries and of keys are two kernels, each of which
// sums its own rows, so nothing is added in an order that changes.

constexpr u32 ROWS = 64;

// Rows of D numbers in shared memory, 16 bytes longer than they need be, so that eight of them lie
// in different banks.
template <class N, int D, int COUNT>
struct Tile {
    static constexpr u32 LENGTH = D + 8;
    static constexpr u32 SIZE = COUNT * LENGTH;
    N* at;

    // Rows of memory from `first` on; zeros from `end` on.
    __device__ void fetch(const N* from, u64 stride, u32 first, u32 end) const {
        bool packed = is_aligned(from);
        for (u32 e = threadIdx.x; e < COUNT * D / 8; e += 128) {
            u32 r = e / (D / 8), c = e % (D / 8) * 8;
            bool valid = first + r < end;
            const N* source = from + (valid ? first + r : 0) * stride + c;
            N* to = at + r * LENGTH + c;
            if (packed) copy_async(to, source, valid);
            else
                for (u32 x = 0; x < 8; x++) to[x] = valid ? source[x] : N{0};
        }
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

// Sums of a warp: 16 rows, COLUMNS columns; lane l has rows l / 4 and that + 8, columns 2 (l % 4)
// and the next of every 8.
template <int COLUMNS>
struct Sums {
    f32 at[COLUMNS / 8][4] = {};

    // += a · bᵀ for 16 rows of a and COLUMNS rows of b, over D.
    template <class N, int D, int A, int B>
    __device__ void multiply_turned(const Tile<N, D, A>& a, u32 row, const Tile<N, D, B>& b) {
#pragma unroll
        for (int d = 0; d < D; d += 16) {
            u32 x[4];
            a.left(x, row, d);
#pragma unroll
            for (int c = 0; c < COLUMNS; c += 16) {
                u32 y[4];
                b.turned(y, c, d);
                const u32 low[2] = {y[0], y[1]}, high[2] = {y[2], y[3]};
                multiply_add_of(N{}, at[c / 8], x, low);
                multiply_add_of(N{}, at[c / 8 + 1], x, high);
            }
        }
    }
    // += factors · b for COUNT rows of b; the factors are a warp's sums, rounded.
    template <class N, int COUNT>
    __device__ void multiply(const Sums<COUNT>& factors, const Tile<N, COLUMNS, COUNT>& b) {
#pragma unroll
        for (int r = 0; r < COUNT; r += 16) {
            const f32(&low)[4] = factors.at[r / 8], (&high)[4] = factors.at[r / 8 + 1];
            const u32 x[4] = {two<N>(low[0], low[1]), two<N>(low[2], low[3]), two<N>(high[0], high[1]),
                              two<N>(high[2], high[3])};
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
    template <class N>
    __device__ static u32 two(f32 first, f32 second) {
        return narrow<N>(first).bits | u32(narrow<N>(second).bits) << 16;
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

// The block's rows, head and example. The last rows come first: under a causal mask they take the
// longest.
struct Own {
    u32 first, head, example;

    __device__ Own(u32 sequence, u32 of) {
        u32 tiles = (sequence + ROWS - 1) / ROWS;
        first = (tiles - 1 - blockIdx.x % tiles) * ROWS;
        head = blockIdx.x / tiles % of;
        example = blockIdx.x / tiles / of;
    }
};

// What the lane's two rows see, or are seen by: positions from `low` to before `high`.
struct Seen {
    u32 low[2], high[2];

    __device__ bool operator()(u32 half, u32 at) const { return at >= low[half] && at < high[half]; }
    // Whether all rows of a block, from `first` to `last`, see the positions from `at` to before
    // `end`: the first and the last position that a row sees grow with the row.
    __device__ static bool all_keys(const Heads& heads, u32 first, u32 last, u32 at, u32 end) {
        return at >= heads.first_key(last) && end <= heads.last_key(first);
    }
    __device__ static bool all_queries(const Heads& heads, u32 first, u32 last, u32 at, u32 end) {
        return at >= heads.first_query(last) && end <= heads.last_query(first);
    }
    __device__ static Seen keys(const Heads& heads, u32 row) {
        return {{heads.first_key(row), heads.first_key(row + 8)}, {heads.last_key(row), heads.last_key(row + 8)}};
    }
    __device__ static Seen queries(const Heads& heads, u32 row) {
        return {{heads.first_query(row), heads.first_query(row + 8)},
                {heads.last_query(row), heads.last_query(row + 8)}};
    }
};

// The same for tiles of which every row sees all: they take no comparison.
struct Everything {
    __device__ bool operator()(u32, u32) const { return true; }
};

// The warp's first row among the block's, and the lane's row among the warp's.
__device__ inline u32 row_of_warp() { return threadIdx.x / 32 * 16; }
__device__ inline u32 row_of_lane() { return threadIdx.x % 32 / 4; }

// Scores as multiples of `unit`, which is taken in where the exponent is made: of a product, or of
// its hyperbolic tangent where there is a cap. Exponents are of two.
constexpr f32 LOG2_E = 1.4426950408889634f;

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
    Own own(heads.sequence, heads.heads);
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
    u32 last = least(own.first + ROWS, heads.sequence) - 1;
    u32 first = heads.first_key(own.first) / ROWS * ROWS, end = heads.last_key(last), stage = 0;
    begin(first, 0);
    Scores<CAPPED> scores(heads);
    Sums<D> out;
    f32 most[2] = {negative_infinity<f32>(), negative_infinity<f32>()}, total[2] = {};
    u32 row = own.first + row_of_warp() + row_of_lane();
    Seen seen = Seen::keys(heads, row);
    for (; first < end; first += ROWS, stage ^= 1) {
        wait_for_copies<0>();
        __syncthreads();
        if (first + ROWS < end) begin(first + ROWS, stage ^ 1);
        Sums<ROWS> sums;
        sums.multiply_turned(queries, row_of_warp(), keys(stage));
        f32 high[2] = {most[0], most[1]}, base[2], shrink[2];
        auto mask = [&](auto sees) {
            sums.each([&](u32 half, u32 j, f32& score) {
                score = sees(half, first + j) ? scores.of(score) : negative_infinity<f32>();
                high[half] = fmaxf(high[half], score);
            });
        };
        if (Seen::all_keys(heads, own.first, last, first, first + ROWS)) mask(Everything{});
        else mask(seen);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            high[half] = quad_reduce<Most>(high[half]);
            // A row that has seen nothing yet has no maximum to take off.
            base[half] = high[half] == negative_infinity<f32>() ? 0 : high[half] * scores.factor;
            shrink[half] = scores.exponential(most[half], base[half]);
            total[half] *= shrink[half];
            most[half] = high[half];
        }
        out.each([&](u32 half, u32, f32& sum) { sum *= shrink[half]; });
        sums.each([&](u32 half, u32, f32& score) {
            score = scores.exponential(score, base[half]);
            total[half] += score;
        });
        out.multiply(sums, values(stage));
    }
#pragma unroll
    for (int half = 0; half < 2; half++) total[half] = quad_reduce<Sum>(total[half]);
    const f32 share[2] = {1 / total[0], 1 / total[1]};
    out.each([&](u32 half, u32 c, f32& sum) {
        if (row + half * 8 < heads.sequence)
            o[heads.query(own.example, own.head, row + half * 8) + c] = narrow<N>(sum * share[half]);
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

template <class N, int D, bool CAPPED>
__device__ void flash_queries(const N* q, const N* k, const N* v, const f32* lse, const N* slope, const f32* inner,
                              N* dq, Heads heads, bool add) {
    constexpr int KEYS = D == 64 ? 64 : 32;
    typedef Tile<N, D, ROWS> Rows;
    typedef Tile<N, D, KEYS> Met;
    N* memory = reinterpret_cast<N*>(dynamic_shared());
    Own own(heads.sequence, heads.heads);
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
    u32 last = least(own.first + ROWS, heads.sequence) - 1;
    u32 first = heads.first_key(own.first) / KEYS * KEYS, end = heads.last_key(last), stage = 0;
    begin(first, 0);
    u32 row = own.first + row_of_warp() + row_of_lane();
    Seen seen = Seen::keys(heads, row);
    f32 base[2], taken[2];
    for (int half = 0; half < 2; half++) {
        u64 statistic = heads.statistic(own.example, own.head, least(row + half * 8, heads.sequence - 1));
        base[half] = lse[statistic] * LOG2_E;
        taken[half] = inner[statistic];
    }
    Scores<CAPPED> scores(heads);
    Sums<D> sums;
    for (; first < end; first += KEYS, stage ^= 1) {
        wait_for_copies<0>();
        __syncthreads();
        if (first + KEYS < end) begin(first + KEYS, stage ^ 1);
        Sums<KEYS> weights, changes;
        weights.multiply_turned(queries, row_of_warp(), keys(stage));
        changes.multiply_turned(slopes, row_of_warp(), values(stage));
        auto mask = [&](auto sees) {
            weights.each_with(changes, [&](u32 half, u32 j, f32& weight, f32& change) {
                weigh(scores, sees(half, first + j), weight, change, base[half], taken[half]);
            });
        };
        if (Seen::all_keys(heads, own.first, last, first, first + KEYS)) mask(Everything{});
        else mask(seen);
        sums.multiply(changes, keys(stage));
    }
    f32 scale = heads.scale;
    sums.each([&](u32 half, u32 c, f32& sum) {
        if (row + half * 8 < heads.sequence)
            put(dq + heads.query(own.example, own.head, row + half * 8) + c, sum * scale, add);
    });
}

template <class N, int D, bool CAPPED>
__device__ void flash_keys(const N* q, const N* k, const N* v, const f32* lse, const N* slope, const f32* inner, N* dk,
                           N* dv, Heads heads, bool add) {
    constexpr int QUERIES = D == 64 ? 64 : 32;
    typedef Tile<N, D, ROWS> Rows;
    typedef Tile<N, D, QUERIES> Met;
    N* memory = reinterpret_cast<N*>(dynamic_shared());
    Own own(heads.positions(), heads.key_heads);
    u32 stride = heads.heads * D, key_stride = heads.key_heads * D;
    Rows keys{memory}, values{memory + Rows::SIZE};
    auto queries = [&](u32 stage) { return Met{memory + 2 * Rows::SIZE + 2 * stage * Met::SIZE}; };
    auto slopes = [&](u32 stage) { return Met{memory + 2 * Rows::SIZE + (2 * stage + 1) * Met::SIZE}; };
    // Of the queries of a stage: lse, then inner.
    f32* statistics = reinterpret_cast<f32*>(memory + 2 * Rows::SIZE + 4 * Met::SIZE);
    u64 at = heads.key(own.example, own.head, 0);
    keys.fetch(k + at, key_stride, own.first, heads.positions());
    values.fetch(v + at, key_stride, own.first, heads.positions());
    u32 last = least(own.first + ROWS, heads.positions()) - 1;
    u32 first = heads.first_query(own.first) / QUERIES * QUERIES, end = heads.last_query(last);
    u32 tiles = (end - first + QUERIES - 1) / QUERIES, steps = tiles * heads.group();
    auto begin = [&](u32 step) {
        u32 head = own.head * heads.group() + step / tiles, from = first + step % tiles * QUERIES;
        u64 query = heads.query(own.example, head, 0);
        queries(step % 2).fetch(q + query, stride, from, heads.sequence);
        slopes(step % 2).fetch(slope + query, stride, from, heads.sequence);
        if (threadIdx.x < 2 * QUERIES) {
            u32 row = least(from + threadIdx.x % QUERIES, heads.sequence - 1);
            const f32* of = threadIdx.x < QUERIES ? lse : inner;
            f32* to = statistics + step % 2 * 2 * QUERIES + threadIdx.x;
            copy_async(to, of + heads.statistic(own.example, head, row));
        }
        commit_copies();
    };
    // Under a window no query may see these keys.
    if (steps > 0) begin(0);
    u32 row = own.first + row_of_warp() + row_of_lane();
    Seen seen = Seen::queries(heads, row);
    Scores<CAPPED> scores(heads);
    Sums<D> of_keys, of_values;
    for (u32 step = 0; step < steps; step++) {
        wait_for_copies<0>();
        __syncthreads();
        if (step + 1 < steps) begin(step + 1);
        u32 from = first + step % tiles * QUERIES;
        Sums<QUERIES> weights, changes;
        weights.multiply_turned(keys, row_of_warp(), queries(step % 2));
        changes.multiply_turned(values, row_of_warp(), slopes(step % 2));
        const f32* of_stage = statistics + step % 2 * 2 * QUERIES;
        auto mask = [&](auto sees) {
            weights.each_with(changes, [&](u32 half, u32 j, f32& weight, f32& change) {
                f32 base = of_stage[j] * LOG2_E;
                weigh(scores, sees(half, from + j), weight, change, base, of_stage[QUERIES + j]);
            });
        };
        if (Seen::all_queries(heads, own.first, last, from, from + QUERIES)) mask(Everything{});
        else mask(seen);
        of_values.multiply(weights, slopes(step % 2));
        of_keys.multiply(changes, queries(step % 2));
    }
    auto write = [&](N* to, f32 factor) {
        return [=](u32 half, u32 c, f32& sum) {
            if (row + half * 8 < heads.positions())
                put(to + heads.key(own.example, own.head, row + half * 8) + c, sum * factor, add);
        };
    };
    of_keys.each(write(dk, heads.scale));
    of_values.each(write(dv, 1));
}

#define EXPORT(N, D, MARK, CAPPED)                                                                                  \
    KERNEL(128, flash##MARK##_##D##_##N, (const N* q, const N* k, const N* v, N* o, f32* lse, HEADS),               \
           flash<N, D, CAPPED>(q, k, v, o, lse, HEADS_OF))                                                          \
    KERNEL(128, flash_queries##MARK##_##D##_##N,                                                                    \
           (const N* q, const N* k, const N* v, const f32* lse, const N* slope, const f32* inner, N* dq, HEADS,     \
            u32 add),                                                                                               \
           flash_queries<N, D, CAPPED>(q, k, v, lse, slope, inner, dq, HEADS_OF, add))                              \
    KERNEL(128, flash_keys##MARK##_##D##_##N,                                                                       \
           (const N* q, const N* k, const N* v, const f32* lse, const N* slope, const f32* inner, N* dk, N* dv,     \
            HEADS, u32 add),                                                                                        \
           flash_keys<N, D, CAPPED>(q, k, v, lse, slope, inner, dk, dv, HEADS_OF, add))
#define EXPORT_BOTH(N, D) EXPORT(N, D, , false) EXPORT(N, D, _capped, true)
EXPORT_BOTH(bf16, 64)
EXPORT_BOTH(bf16, 128)
EXPORT_BOTH(f16, 64)
EXPORT_BOTH(f16, 128)
#undef EXPORT_BOTH
#undef EXPORT
