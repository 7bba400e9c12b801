// Scaled dot-product attention in 16 bits on tensor cores, without the matrix of scores (Dao,
// arXiv 2307.08691): four warps with bands of 16 rows; what they meet comes tile by tile, the next one
// while this one is multiplied. The gradients of queries and of keys are two kernels, each of which
// sums its own rows, so nothing is added in an order that changes. `README.md` says why shapes are
// what they are.

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

// What rows of a warp see, or are seen by: the first one from `low` to before `high`, others as far on
// as they are below it, none from `end` on.
template <int BANDS>
struct Seen {
    static constexpr i32 BELOW = 16 * BANDS - 1;
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
            i32 row = row_of_lane(), column = column_of_lane();
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
template <class N, int D, int KEYS>
struct Stream {
    typedef Tile<N, D, KEYS> Met;
    static constexpr int SIZE = 4 * Met::SIZE;
    N* memory;
    const N *k, *v;
    u32 stride, positions, first;
    // Where the next tile is in k and v.
    u64 place;

    __device__ Stream(N* memory, const N* k, const N* v, const Heads& heads, u32 example, u32 head, u32 position)
        : memory(memory), k(k), v(v), stride(heads.key_heads * D), positions(heads.positions()),
          first(position / KEYS * KEYS), place(heads.key(example, head / heads.group(), first)) {}
    __device__ Met keys(u32 at) const { return {memory + i32(at / KEYS % 2) * (2 * Met::SIZE)}; }
    __device__ Met values(u32 at) const { return {keys(at).at + Met::SIZE}; }
    // Tiles begin in order.
    __device__ void begin(u32 at) {
        u64 own = place + Met::place_of_thread(stride);
        keys(at).fetch(k + own, stride, positions - at);
        values(at).fetch(v + own, stride, positions - at);
        commit_copies();
        place += u64(KEYS) * stride;
    }
    // Calls meet(first position) for every tile while the next one is on its way; the first has begun.
    template <class Meet>
    __device__ void each_tile(u32 end, Meet meet) {
        for (u32 at = first; at < end; at += KEYS) {
            wait_for_copies<0>();
            __syncthreads();
            if (at + KEYS < end) begin(at + KEYS);
            meet(at);
        }
    }
};

template <class N, int D, bool CAPPED>
__device__ void flash(const N* q, const N* k, const N* v, N* o, f32* lse, Heads heads) {
    constexpr int BANDS = 2, ROWS = ROWS_OF<BANDS>, KEYS = D == 64 ? 64 : 32, CHUNK = 32;
    constexpr int HELD = D == 64 ? 64 : 112;
    N* memory = reinterpret_cast<N*>(dynamic_shared());
    auto own = Own<ROWS>::queries(heads);
    u32 end = heads.last_key(least(own.first + ROWS, heads.sequence) - 1), stride = heads.heads * D;
    Stream<N, D, KEYS> stream(memory, k, v, heads, own.example, own.head, heads.first_key(own.first));
    // Queries that registers hold wholly are where the second tile will be.
    Tile<N, D, ROWS> queries{HELD == D ? stream.keys(stream.first + KEYS).at : memory + stream.SIZE};
    u64 place = heads.query(own.example, own.head, own.first) + queries.place_of_thread(stride);
    queries.fetch(q + place, stride, heads.sequence - own.first);
    commit_copies();
    stream.begin(stream.first);
    wait_for_copies<1>();
    __syncthreads();
    Kept<N, D, BANDS, HELD> own_queries(queries, row_of_warp<BANDS>());
    Scores<CAPPED> scores(heads);
    Sums<D, BANDS> sums;
    Softmax<2 * BANDS> softmax;
    auto seen = Seen<BANDS>::keys(heads, own.first + row_of_warp<BANDS>());
    stream.each_tile(end, [&](u32 tile) {
        seen.template each_chunk<CHUNK, KEYS>(tile, [&](auto counts, i32 c) {
            Sums<CHUNK, BANDS> products;
            products.multiply_turned(own_queries, stream.keys(tile).template part<CHUNK>(c));
            softmax.meet(products, sums, scores, counts);
            sums.multiply(products, stream.values(tile).template part<CHUNK>(c));
        });
    });
    own = Own<ROWS>::queries(heads);
    u32 row = own.first + row_of_warp<BANDS>() + row_of_lane();
    f32 share[2 * BANDS];
#pragma unroll
    for (int r = 0; r < 2 * BANDS; r++) {
        f32 total = sum_of_row(softmax.total[r]);
        share[r] = reciprocal(total);
        if (threadIdx.x % 4 == 0 && row + r * 8 < heads.sequence)
            lse[heads.statistic(own.example, own.head, row + r * 8)] = softmax.base[r] * (1 / LOG2_E) + logf(total);
    }
    sums.template put<N>(share, is_aligned(o), false, [&](u32 r) {
        u32 i = row + r * 8;
        return i < heads.sequence ? o + heads.query(own.example, own.head, i) : nullptr;
    });
}

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
    constexpr int BANDS = CAPPED && D == 128 ? 1 : 2, ROWS = ROWS_OF<BANDS>;
    constexpr int KEYS = D == 64 ? 64 : 32, CHUNK = D == 64 ? 32 : 16;
    typedef Tile<N, D, ROWS> Rows;
    N* memory = reinterpret_cast<N*>(dynamic_shared());
    auto own = Own<ROWS>::queries(heads);
    u32 end = heads.last_key(least(own.first + ROWS, heads.sequence) - 1), stride = heads.heads * D;
    // Of 128 numbers, registers hold queries alone, which are where tiles will be.
    constexpr bool IN_PLACE = D == 128;
    Rows slopes{memory}, queries{memory + Rows::SIZE};
    Stream<N, D, KEYS> stream(queries.at + (IN_PLACE ? 0 : Rows::SIZE), k, v, heads, own.example, own.head,
                              heads.first_key(own.first));
    static_assert(Rows::SIZE <= Stream<N, D, KEYS>::SIZE, "tiles take no less");
    u64 place = heads.query(own.example, own.head, own.first) + queries.place_of_thread(stride);
    queries.fetch(q + place, stride, heads.sequence - own.first);
    slopes.fetch(slope + place, stride, heads.sequence - own.first);
    commit_copies();
    if (!IN_PLACE) stream.begin(stream.first);
    __shared__ Statistics statistics[ROWS];
#pragma unroll
    for (int r = 0; r < 2 * BANDS; r++) {
        u32 of_block = row_of_warp<BANDS>() + row_of_lane() + r * 8, row = own.first + of_block;
        u32 i = least(row, heads.sequence - 1);
        u64 statistic = heads.statistic(own.example, own.head, i), query = heads.query(own.example, own.head, i);
        f32 taken = sum_of_row(quarter_dot<D>(o + query, slope + query));
        if (threadIdx.x % 4 > 0) continue;
        statistics[of_block] = {lse[statistic] * LOG2_E, taken};
        if (row < heads.sequence) inner[statistic] = taken;
    }
    wait_for_copies<IN_PLACE ? 0 : 1>();
    __syncthreads();
    Kept<N, D, BANDS, D> own_queries(queries, row_of_warp<BANDS>());
    Kept<N, D, BANDS, IN_PLACE || CAPPED ? 0 : D> own_slopes(slopes, row_of_warp<BANDS>());
    if (IN_PLACE) {
        __syncthreads();
        stream.begin(stream.first);
    }
    Scores<CAPPED> scores(heads);
    Sums<D, BANDS> sums;
    auto seen = Seen<BANDS>::keys(heads, own.first + row_of_warp<BANDS>());
    stream.each_tile(end, [&](u32 tile) {
        seen.template each_chunk<CHUNK, KEYS>(tile, [&](auto counts, i32 c) {
            auto some_keys = stream.keys(tile).template part<CHUNK>(c);
            Sums<CHUNK, BANDS> weights, changes;
            weights.multiply_turned(own_queries, some_keys);
            changes.multiply_turned(own_slopes, stream.values(tile).template part<CHUNK>(c));
            const Statistics* of_lane = statistics + threadIdx.x / 32 * (16 * BANDS) + lane_anew() / 4;
            Statistics of_rows[2 * BANDS];
#pragma unroll
            for (int r = 0; r < 2 * BANDS; r++) of_rows[r] = of_lane[r * 8];
            weights.each_with(changes, [&](i32 row, i32 column, f32& weight, f32& change) {
                weigh(scores, counts(row, column), weight, change, of_rows[row]);
            });
            sums.multiply(changes, some_keys);
        });
    });
    own = Own<ROWS>::queries(heads);
    u32 row = own.first + row_of_warp<BANDS>() + row_of_lane();
    sums.template put<N>(heads.scale, is_aligned(dq), add, [&](u32 r) {
        u32 i = row + r * 8;
        return i < heads.sequence ? dq + heads.query(own.example, own.head, i) : nullptr;
    });
}

template <class N, int D, bool CAPPED>
__device__ void flash_keys(const N* q, const N* k, const N* v, const f32* lse, const N* slope, const f32* inner, N* dk,
                           N* dv, Heads heads, bool add) {
    constexpr int BANDS = D == 64 ? 2 : 1, ROWS = ROWS_OF<BANDS>, QUERIES = D == 64 ? 64 : 32, CHUNK = 16;
    typedef Tile<N, D, ROWS> Rows;
    typedef Tile<N, D, QUERIES> Met;
    N* memory = reinterpret_cast<N*>(dynamic_shared());
    auto own = Own<ROWS>::keys(heads);
    u32 stride = heads.heads * D, key_stride = heads.key_heads * D;
    Rows keys{memory}, values{memory + Rows::SIZE};
    auto queries = [&](i32 stage) { return Met{memory + 2 * Rows::SIZE + stage * (2 * Met::SIZE)}; };
    auto slopes = [&](i32 stage) { return Met{queries(stage).at + Met::SIZE}; };
    // Of the queries of a stage: lse, then inner.
    f32* statistics = reinterpret_cast<f32*>(memory + 2 * Rows::SIZE + 4 * Met::SIZE);
    u64 place = heads.key(own.example, own.head, own.first) + keys.place_of_thread(key_stride);
    keys.fetch(k + place, key_stride, heads.positions() - own.first);
    values.fetch(v + place, key_stride, heads.positions() - own.first);
    commit_copies();
    u32 last = least(own.first + ROWS, heads.positions()) - 1;
    u32 first = heads.first_query(own.first) / QUERIES * QUERIES, end = heads.last_query(last);
    // Under a window no query may see these keys. Steps are counted down, and their stages with them.
    u32 tiles = first < end ? (end - first + QUERIES - 1) / QUERIES : 0, steps = tiles * heads.group();
    u32 head = own.head * heads.group();
    auto begin = [&](u32 at, i32 stage) {
        u64 query = heads.row(own.example * heads.sequence + at, head, heads.heads) + Met::place_of_thread(stride);
        queries(stage).fetch(q + query, stride, heads.sequence - at);
        slopes(stage).fetch(slope + query, stride, heads.sequence - at);
        if (threadIdx.x < 2 * QUERIES) {
            u32 row = least(at + threadIdx.x % QUERIES, heads.sequence - 1);
            const f32* of = threadIdx.x < QUERIES ? lse : inner;
            f32* to = statistics + stage * (2 * QUERIES) + threadIdx.x;
            copy_async(to, of + heads.statistic(own.example, head, row));
        }
        commit_copies();
    };
    if (steps > 0) begin(first, steps % 2);
    auto seen = Seen<BANDS>::queries(heads, own.first + row_of_warp<BANDS>());
    if (steps > 0) wait_for_copies<1>();
    else wait_for_copies<0>();
    __syncthreads();
    // Hyperbolic tangents need the registers.
    constexpr int HELD = CAPPED ? 0 : D;
    Kept<N, D, BANDS, HELD> own_keys(keys, row_of_warp<BANDS>()), own_values(values, row_of_warp<BANDS>());
    Scores<CAPPED> scores(heads);
    Sums<D, BANDS> of_keys, of_values;
    for (u32 tile = first; steps > 0; steps--) {
        i32 stage = steps % 2;
        u32 next = tile + QUERIES;
        wait_for_copies<0>();
        __syncthreads();
        if (next >= end) {
            next = first;
            head++;
        }
        if (steps > 1) begin(next, 1 - stage);
        seen.template each_chunk<CHUNK, QUERIES>(tile, [&](auto counts, i32 c) {
            auto some_queries = queries(stage).template part<CHUNK>(c);
            auto some_slopes = slopes(stage).template part<CHUNK>(c);
            const f32* of_lane = statistics + stage * (2 * QUERIES) + c + column_of_lane();
            Sums<CHUNK, BANDS> weights, changes;
            weights.multiply_turned(own_keys, some_queries);
            changes.multiply_turned(own_values, some_slopes);
            weights.each_with(changes, [&](i32 row, i32 column, f32& weight, f32& change) {
                Statistics of_query = {of_lane[column] * LOG2_E, of_lane[QUERIES + column]};
                weigh(scores, counts(row, column), weight, change, of_query);
            });
            of_values.multiply(weights, some_slopes);
            of_keys.multiply(changes, some_queries);
        });
        tile = next;
    }
    own = Own<ROWS>::keys(heads);
    u32 row = own.first + row_of_warp<BANDS>() + row_of_lane();
    auto rows_of = [&](N* to) {
        return [&, to](u32 r) {
            u32 j = row + r * 8;
            return j < heads.positions() ? to + heads.key(own.example, own.head, j) : nullptr;
        };
    };
    of_keys.template put<N>(heads.scale, is_aligned(dk), add, rows_of(dk));
    of_values.template put<N>(1, is_aligned(dv), add, rows_of(dv));
}

// Blocks of a multiprocessor, by the registers that they need.
template <int D, bool CAPPED>
constexpr int TOGETHER = D == 64 && !CAPPED ? 3 : 2;
constexpr int TOGETHER_BACKWARD = 2;

#define EXPORT(N, D, MARK, CAPPED)                                                                                  \
    KERNEL_TOGETHER((TOGETHER<D, CAPPED>), THREADS, flash##MARK##_##D##_##N,                                            \
                    (const N* q, const N* k, const N* v, N* o, f32* lse, HEADS),                                    \
                    flash<N, D, CAPPED>(q, k, v, o, lse, HEADS_OF))                                                 \
    KERNEL_TOGETHER(TOGETHER_BACKWARD, THREADS, flash_queries##MARK##_##D##_##N,                                      \
                    (const N* q, const N* k, const N* v, const N* o, const f32* lse, const N* slope, f32* inner,    \
                     N* dq, HEADS, u32 add),                                                                        \
                    flash_queries<N, D, CAPPED>(q, k, v, o, lse, slope, inner, dq, HEADS_OF, add))                  \
    KERNEL_TOGETHER(TOGETHER_BACKWARD, THREADS, flash_keys##MARK##_##D##_##N,                                         \
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
