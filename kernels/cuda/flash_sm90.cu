// Flash attention as in `flash.cu`, by the products of warp groups that devices of `sm_90a` have: groups of
// 64 rows; right factors are multiplied where they are in shared memory. `README.md` says why shapes are
// what they are.

template <class N, int D, bool CAPPED>
__device__ void flash(const N* q, const N* k, const N* v, N* o, f32* lse, Heads heads) {
    constexpr int GROUPS = 2, WORKERS = 128 * GROUPS, ROWS = 64 * GROUPS, KEYS = 128;
    typedef Panels<N, D, KEYS, WORKERS> Met;
    N* memory = reinterpret_cast<N*>(panels_memory());
    auto own = Own<ROWS>::queries(heads);
    u32 end = heads.last_key(least(own.first + ROWS, heads.sequence) - 1), stride = heads.query_row * D;
    Panels<N, D, ROWS, WORKERS> queries{memory};
    Stream<N, D, KEYS, Met> stream(memory + queries.SIZE, k, v, heads, own.example, own.head,
                                   heads.first_key(own.first));
    u64 place = heads.query(own.example, own.head, own.first) + queries.place_of_thread(stride);
    queries.fetch(q + place, stride, heads.sequence - own.first);
    commit_copies();
    stream.begin(stream.first);
    wait_for_copies<1>();
    __syncthreads();
    GroupKept<N, D> own_queries(queries);
    Scores<CAPPED> scores(heads);
    GroupSums<D> sums;
    Softmax<2> softmax;
    auto seen = Seen<GroupRows>::keys(heads, own.first + GroupRows::of_group());
    stream.each_tile(end, [&](u32 tile) {
        seen.template each_chunk<64, KEYS>(tile, [&](auto counts, i32 c) {
            GroupSums<64> products;
            before_products();
            products.start_turned(own_queries, stream.keys(tile), c);
            commit_products();
            wait_for_products();
            products.keep_all();
            sums.keep_all();
            softmax.meet(products, sums, scores, counts);
            u32 weights[4][4];
            products.template round<N>(weights);
            keep(weights);
            sums.keep_all();
            before_products();
            sums.start(weights, stream.values(tile), c);
            commit_products();
        });
        wait_for_products();
        sums.keep_all();
    });
    own = Own<ROWS>::queries(heads);
    u32 row = own.first + row_of_warp<1>() + row_of_lane();
    put_outputs(o, lse, heads, own.example, own.head, row, sums, softmax);
}

template <int D>
constexpr int GROUPS_OF_QUERIES = D == 64 ? 1 : 2;

// Also inner[b, h, i] = do_i · o_i, which the keys' gradients need as well.
template <class N, int D, bool CAPPED>
__device__ void flash_queries(const N* q, const N* k, const N* v, const N* o, const f32* lse, const N* slope,
                              f32* inner, N* dq, Heads heads, bool add) {
    constexpr int GROUPS = GROUPS_OF_QUERIES<D>, WORKERS = 128 * GROUPS, ROWS = 64 * GROUPS, KEYS = 64;
    typedef Panels<N, D, ROWS, WORKERS> Rows;
    typedef Stream<N, D, KEYS, Panels<N, D, KEYS, WORKERS>> Met;
    N* memory = reinterpret_cast<N*>(panels_memory());
    auto own = Own<ROWS>::queries(heads);
    u32 end = heads.last_key(least(own.first + ROWS, heads.sequence) - 1), stride = heads.query_row * D;
    Rows queries{memory}, slopes{memory + Rows::SIZE};
    Met stream(slopes.at + Rows::SIZE, k, v, heads, own.example, own.head, heads.first_key(own.first));
    Statistics* statistics = reinterpret_cast<Statistics*>(stream.memory + Met::SIZE);
    u64 place = heads.query(own.example, own.head, own.first) + queries.place_of_thread(stride);
    u32 slope_stride = heads.heads * D;
    queries.fetch(q + place, stride, heads.sequence - own.first);
    u64 result = heads.result(own.example, own.head, own.first) + slopes.place_of_thread(slope_stride);
    slopes.fetch(slope + result, slope_stride, heads.sequence - own.first);
    stream.begin(stream.first);
    make_statistics<D, 2>(o, slope, lse, inner, statistics, heads, own.example, own.head, own.first,
                           row_of_warp<1>() + row_of_lane());
    GroupLeft<N, D, ROWS, WORKERS> own_queries{queries}, own_slopes{slopes};
    Scores<CAPPED> scores(heads);
    GroupSums<D> sums;
    auto seen = Seen<GroupRows>::keys(heads, own.first + GroupRows::of_group());
    stream.each_tile(end, [&](u32 tile) {
        seen.template each_chunk<64, KEYS>(tile, [&](auto counts, i32 c) {
            GroupSums<64> weights, changes;
            before_products();
            weights.start_turned(own_queries, stream.keys(tile), c);
            changes.start_turned(own_slopes, stream.values(tile), c);
            commit_products();
            wait_for_products();
            weights.keep_all();
            changes.keep_all();
            sums.keep_all();
            const Statistics* of_lane = statistics + row_of_warp<1>() + lane_anew() / 4;
            Statistics of_rows[2] = {of_lane[0], of_lane[8]};
            weights.each_with(changes, [&](i32 row, i32 column, f32& weight, f32& change) {
                weigh(scores, counts(row, column), weight, change, of_rows[row]);
            });
            u32 factors[4][4];
            changes.template round<N>(factors);
            keep(factors);
            before_products();
            sums.start(factors, stream.keys(tile), c);
            commit_products();
        });
        wait_for_products();
        sums.keep_all();
    });
    own = Own<ROWS>::queries(heads);
    u32 row = own.first + row_of_warp<1>() + row_of_lane();
    put_queries(dq, heads, own.example, own.head, row, sums, add);
}

template <class N, int D, bool CAPPED>
__device__ void flash_keys(const N* q, const N* k, const N* v, const f32* lse, const N* slope, const f32* inner, N* dk,
                           N* dv, Heads heads, bool add) {
    constexpr int WORKERS = 128, ROWS = 64, QUERIES = 64;
    typedef Panels<N, D, ROWS, WORKERS> Rows;
    N* memory = reinterpret_cast<N*>(panels_memory());
    auto own = Own<ROWS>::keys(heads);
    u32 stride = heads.query_row * D, slope_stride = heads.heads * D, key_stride = heads.key_row * D;
    Rows keys{memory}, values{memory + Rows::SIZE};
    auto queries = [&](i32 stage) { return Rows{memory + (2 + stage * 2) * Rows::SIZE}; };
    auto slopes = [&](i32 stage) { return Rows{queries(stage).at + Rows::SIZE}; };
    // Of the queries of a stage: lse, then inner.
    f32* statistics = reinterpret_cast<f32*>(memory + 6 * Rows::SIZE);
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
        u64 query = heads.query(own.example, head, at) + Rows::place_of_thread(stride);
        u64 result = heads.result(own.example, head, at) + Rows::place_of_thread(slope_stride);
        queries(stage).fetch(q + query, stride, heads.sequence - at);
        slopes(stage).fetch(slope + result, slope_stride, heads.sequence - at);
        u32 row = least(at + threadIdx.x % QUERIES, heads.sequence - 1);
        const f32* of = threadIdx.x < QUERIES ? lse : inner;
        f32* to = statistics + stage * (2 * QUERIES) + threadIdx.x;
        copy_async(to, of + heads.statistic(own.example, head, row));
        commit_copies();
    };
    if (steps > 0) begin(first, steps % 2);
    auto seen = Seen<GroupRows>::queries(heads, own.first);
    GroupLeft<N, D, ROWS, WORKERS> own_keys{keys}, own_values{values};
    Scores<CAPPED> scores(heads);
    GroupSums<D> of_keys, of_values;
    for (u32 tile = first; steps > 0; steps--) {
        i32 stage = steps % 2;
        u32 next = tile + QUERIES;
        wait_for_copies<0>();
        Rows::show_copies();
        __syncthreads();
        if (next >= end) {
            next = first;
            head++;
        }
        if (steps > 1) begin(next, 1 - stage);
        seen.template each_chunk<64, QUERIES>(tile, [&](auto counts, i32 c) {
            GroupSums<64> weights, changes;
            before_products();
            weights.start_turned(own_keys, queries(stage), c);
            changes.start_turned(own_values, slopes(stage), c);
            commit_products();
            wait_for_products();
            weights.keep_all();
            changes.keep_all();
            const f32* of_lane = statistics + stage * (2 * QUERIES) + c + column_of_lane();
            weights.each_with(changes, [&](i32 row, i32 column, f32& weight, f32& change) {
                Statistics of_query = {of_lane[column] * LOG2_E, of_lane[QUERIES + column]};
                weigh(scores, counts(row, column), weight, change, of_query);
            });
            u32 factors[4][4], slopes_of[4][4];
            weights.template round<N>(factors);
            changes.template round<N>(slopes_of);
            keep(factors);
            keep(slopes_of);
            of_values.keep_all();
            of_keys.keep_all();
            before_products();
            of_values.start(factors, slopes(stage), c);
            of_keys.start(slopes_of, queries(stage), c);
            commit_products();
            wait_for_products();
            of_values.keep_all();
            of_keys.keep_all();
        });
        tile = next;
    }
    wait_for_copies<0>();
    own = Own<ROWS>::keys(heads);
    u32 row = own.first + row_of_warp<1>() + row_of_lane();
    put_keys(dk, heads.scale, heads, own.example, own.head, row, of_keys, add);
    put_keys(dv, 1, heads, own.example, own.head, row, of_values, add);
}

// Blocks of a multiprocessor, by the registers that they need.
template <int D>
constexpr int TOGETHER = D == 64 ? 2 : 1;
template <int D>
constexpr int TOGETHER_QUERIES = D == 64 ? 3 : 1;
template <int D, bool CAPPED>
constexpr int TOGETHER_KEYS = D == 64 && !CAPPED ? 3 : 2;

#define EXPORT(N, D, MARK, CAPPED)                                                                                 \
    KERNEL_TOGETHER(TOGETHER<D>, 256, flash_sm90##MARK##_##D##_##N,                                                \
                    (const N* q, const N* k, const N* v, N* o, f32* lse, HEADS),                                   \
                    flash<N, D, CAPPED>(q, k, v, o, lse, HEADS_OF))                                                \
    KERNEL_TOGETHER(TOGETHER_QUERIES<D>, (128 * GROUPS_OF_QUERIES<D>), flash_sm90_queries##MARK##_##D##_##N,                                        \
                    (const N* q, const N* k, const N* v, const N* o, const f32* lse, const N* slope, f32* inner,   \
                     N* dq, HEADS, u32 add),                                                                       \
                    flash_queries<N, D, CAPPED>(q, k, v, o, lse, slope, inner, dq, HEADS_OF, add))                 \
    KERNEL_TOGETHER((TOGETHER_KEYS<D, CAPPED>), 128, flash_sm90_keys##MARK##_##D##_##N,                                      \
                    (const N* q, const N* k, const N* v, const f32* lse, const N* slope, const f32* inner, N* dk,  \
                     N* dv, HEADS, u32 add),                                                                       \
                    flash_keys<N, D, CAPPED>(q, k, v, lse, slope, inner, dk, dv, HEADS_OF, add))
// For heads of D numbers N, with capped scores and without. Other devices have no such instructions.
#if defined(ROUNDELAY_EMULATION) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define EXPORT_HEADS(N, D) EXPORT(N, D, , false) EXPORT(N, D, _capped, true)
#else
#define EXPORT_HEADS(N, D)
#endif
