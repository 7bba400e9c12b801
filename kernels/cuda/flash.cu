// Scaled dot-product attention in 16 bits on tensor cores, without the matrix of scores (Dao,
// arXiv 2307.08691): four warps with bands of 16 rows; what they meet comes tile by tile, the next one
// while this one is multiplied. The gradients of queries and of keys are two kernels, each of which
// sums its own rows, so nothing is added in an order that changes. `README.md` says why shapes are
// what they are.

template <class N, int D, bool CAPPED>
__device__ void flash(const N* q, const N* k, const N* v, N* o, f32* lse, Heads heads) {
    constexpr int BANDS = 2, ROWS = ROWS_OF<BANDS>, KEYS = D > 64 ? 32 : 64, CHUNK = 32;
    constexpr int HELD = D > 112 ? 112 : D;
    constexpr bool IN_PLACE = D <= 64;
    N* memory = reinterpret_cast<N*>(dynamic_shared());
    auto own = Own<ROWS>::queries(heads);
    u32 end = heads.last_key(least(own.first + ROWS, heads.sequence) - 1), stride = heads.query_row * D;
    Stream<N, D, KEYS, Tile<N, D, KEYS>> stream(memory, k, v, heads, own.example, own.head, heads.first_key(own.first));
    static_assert(!IN_PLACE || HELD == D, "a tile takes the place of queries that registers hold");
    Tile<N, D, ROWS> queries{IN_PLACE ? stream.keys(stream.first + KEYS).at : memory + stream.SIZE};
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
    auto seen = Seen<WarpRows<BANDS>>::keys(heads, own.first + row_of_warp<BANDS>());
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
    put_outputs(o, lse, heads, own.example, own.head, row, sums, softmax);
}

// Also inner[b, h, i] = do_i · o_i, which the keys' gradients need as well.
template <class N, int D, bool CAPPED>
__device__ void flash_queries(const N* q, const N* k, const N* v, const N* o, const f32* lse, const N* slope,
                              f32* inner, N* dq, Heads heads, bool add) {
    constexpr int BANDS = CAPPED && D > 64 ? 1 : 2, ROWS = ROWS_OF<BANDS>;
    constexpr int KEYS = D > 64 ? 32 : 64, CHUNK = D > 64 ? 16 : 32;
    typedef Tile<N, D, ROWS> Rows;
    N* memory = reinterpret_cast<N*>(dynamic_shared());
    auto own = Own<ROWS>::queries(heads);
    u32 end = heads.last_key(least(own.first + ROWS, heads.sequence) - 1), stride = heads.query_row * D;
    // Of more than 64 numbers, registers hold queries alone, which are where tiles will be.
    constexpr bool IN_PLACE = D > 64;
    Rows slopes{memory}, queries{memory + Rows::SIZE};
    Stream<N, D, KEYS, Tile<N, D, KEYS>> stream(queries.at + (IN_PLACE ? 0 : Rows::SIZE), k, v, heads, own.example, own.head,
                              heads.first_key(own.first));
    static_assert(Rows::SIZE <= Stream<N, D, KEYS, Tile<N, D, KEYS>>::SIZE, "tiles take no less");
    u64 place = heads.query(own.example, own.head, own.first) + queries.place_of_thread(stride);
    u32 slope_stride = heads.heads * D;
    queries.fetch(q + place, stride, heads.sequence - own.first);
    u64 result = heads.result(own.example, own.head, own.first) + slopes.place_of_thread(slope_stride);
    slopes.fetch(slope + result, slope_stride, heads.sequence - own.first);
    commit_copies();
    if (!IN_PLACE) stream.begin(stream.first);
    __shared__ Statistics statistics[ROWS];
    make_statistics<D, 2 * BANDS>(o, slope, lse, inner, statistics, heads, own.example, own.head, own.first,
                                  row_of_warp<BANDS>() + row_of_lane());
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
    auto seen = Seen<WarpRows<BANDS>>::keys(heads, own.first + row_of_warp<BANDS>());
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
    put_queries(dq, heads, own.example, own.head, row, sums, add);
}

template <class N, int D, bool CAPPED>
__device__ void flash_keys(const N* q, const N* k, const N* v, const f32* lse, const N* slope, const f32* inner, N* dk,
                           N* dv, Heads heads, bool add) {
    constexpr int BANDS = D > 64 ? 1 : 2, ROWS = ROWS_OF<BANDS>, QUERIES = D > 64 ? 32 : 64, CHUNK = 16;
    typedef Tile<N, D, ROWS> Rows;
    typedef Tile<N, D, QUERIES> Met;
    N* memory = reinterpret_cast<N*>(dynamic_shared());
    auto own = Own<ROWS>::keys(heads);
    u32 stride = heads.query_row * D, slope_stride = heads.heads * D, key_stride = heads.key_row * D;
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
        u64 query = heads.query(own.example, head, at) + Met::place_of_thread(stride);
        u64 result = heads.result(own.example, head, at) + Met::place_of_thread(slope_stride);
        queries(stage).fetch(q + query, stride, heads.sequence - at);
        slopes(stage).fetch(slope + result, slope_stride, heads.sequence - at);
        if (threadIdx.x < 2 * QUERIES) {
            u32 row = least(at + threadIdx.x % QUERIES, heads.sequence - 1);
            const f32* of = threadIdx.x < QUERIES ? lse : inner;
            f32* to = statistics + stage * (2 * QUERIES) + threadIdx.x;
            copy_async(to, of + heads.statistic(own.example, head, row));
        }
        commit_copies();
    };
    if (steps > 0) begin(first, steps % 2);
    auto seen = Seen<WarpRows<BANDS>>::queries(heads, own.first + row_of_warp<BANDS>());
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
    put_keys(dk, heads.scale, heads, own.example, own.head, row, of_keys, add);
    put_keys(dv, 1, heads, own.example, own.head, row, of_values, add);
}

// Blocks of a multiprocessor, by the registers that they need.
template <int D, bool CAPPED>
constexpr int TOGETHER = D <= 64 && !CAPPED ? 3 : 2;
template <int D, bool CAPPED>
constexpr int TOGETHER_QUERIES = D > 64 && CAPPED ? 3 : 2;
constexpr int TOGETHER_KEYS = 2;

#define EXPORT(N, D, MARK, CAPPED)                                                                                  \
    KERNEL_TOGETHER((TOGETHER<D, CAPPED>), THREADS, flash##MARK##_##D##_##N,                                            \
                    (const N* q, const N* k, const N* v, N* o, f32* lse, HEADS),                                    \
                    flash<N, D, CAPPED>(q, k, v, o, lse, HEADS_OF))                                                 \
    KERNEL_TOGETHER((TOGETHER_QUERIES<D, CAPPED>), THREADS, flash_queries##MARK##_##D##_##N,                          \
                    (const N* q, const N* k, const N* v, const N* o, const f32* lse, const N* slope, f32* inner,    \
                     N* dq, HEADS, u32 add),                                                                        \
                    flash_queries<N, D, CAPPED>(q, k, v, o, lse, slope, inner, dq, HEADS_OF, add))                  \
    KERNEL_TOGETHER(TOGETHER_KEYS, THREADS, flash_keys##MARK##_##D##_##N,                                             \
                    (const N* q, const N* k, const N* v, const f32* lse, const N* slope, const f32* inner, N* dk,   \
                     N* dv, HEADS, u32 add),                                                                        \
                    flash_keys<N, D, CAPPED>(q, k, v, lse, slope, inner, dk, dv, HEADS_OF, add))
// For heads of D numbers N, with capped scores and without.
#define EXPORT_HEADS(N, D) EXPORT(N, D, , false) EXPORT(N, D, _capped, true)
