// Scaled dot-product attention for every type and size of head: one block for each query, or each
// key. What is fast is in `flash.cu`.

// Keys or queries that a block looks at together, one per thread.
constexpr u32 TOGETHER = 128;

template <class N>
__device__ void attention(const N* q, const N* k, const N* v, N* o, Wide<N>* lse, Heads heads) {
    typedef Wide<N> W;
    __shared__ W weights[TOGETHER];
    W* sums = reinterpret_cast<W*>(dynamic_shared());
    RowOfBlock own(heads.sequence, heads.heads);
    u32 key_head = own.head / heads.group(), end = heads.last_key(own.position);
    const N* query = q + heads.query(own.example, own.head, own.position);
    // Finite, so that scores of −∞ alone are less than it, and weigh nothing.
    W most = lowest<W>(), total = W(0);
    for (u32 c = threadIdx.x; c < heads.depth; c += TOGETHER) sums[c] = W(0);
    for (u32 first = heads.first_key(own.position); first < end; first += TOGETHER) {
        u32 j = first + threadIdx.x, count = least(TOGETHER, end - first);
        W score = negative_infinity<W>();
        if (j < end) score = heads.score(dot(query, k + heads.key(own.example, key_head, j), heads.depth));
        W high = greatest(most, row_most(score)), shrink = exponential(most - high);
        W weight = j < end ? exponential(score - high) : W(0);
        weights[threadIdx.x] = weight;
        total = total * shrink + row_sum(weight);
        most = high;
        for (u32 c = threadIdx.x; c < heads.depth; c += TOGETHER) {
            W sum = sums[c] * shrink;
            for (u32 e = 0; e < count; e++)
                sum += weights[e] * W(widen(v[heads.key(own.example, key_head, first + e) + c]));
            sums[c] = sum;
        }
        __syncthreads();
    }
    N* out = o + heads.result(own.example, own.head, own.position);
    for (u32 c = threadIdx.x; c < heads.depth; c += TOGETHER) out[c] = narrow<N>(sums[c] / total);
    if (threadIdx.x == 0) lse[heads.statistic(own.example, own.head, own.position)] = most + logarithm(total);
}

// inner[b, h, i] = do_i · o_i, a warp for each.
template <class N>
__device__ void inner_products(const N* o, const N* slope, Wide<N>* inner, Heads heads) {
    u64 row = row_of_grid();
    if (row >= u64(heads.batch) * heads.heads * heads.sequence) return;
    u32 i = row % heads.sequence, head = row / heads.sequence % heads.heads,
        example = row / heads.sequence / heads.heads;
    u64 at = heads.result(example, head, i);
    Wide<N> total = 0;
    for (u32 c = threadIdx.x; c < heads.depth; c += 32) total += widen(o[at + c]) * widen(slope[at + c]);
    total = warp_reduce<Sum>(total);
    if (threadIdx.x == 0) inner[row] = total;
}

// The slope of the scaled product of query i and key j.
template <class N>
__device__ Wide<N> change_of(const N* query, const N* key, const N* value, const N* slope, Wide<N> lse, Wide<N> inner,
                             const Heads& heads, Wide<N>& weight) {
    typedef Wide<N> W;
    W score = heads.score(dot(query, key, heads.depth));
    weight = exponential(score - lse);
    return weight * (dot(slope, value, heads.depth) - inner) * W(heads.scale) * heads.steepness(score);
}

template <class N>
__device__ void query_slopes(const N* q, const N* k, const N* v, const Wide<N>* lse, const N* slope,
                             const Wide<N>* inner, N* dq, Heads heads, bool add) {
    typedef Wide<N> W;
    __shared__ W changes[TOGETHER];
    W* sums = reinterpret_cast<W*>(dynamic_shared());
    RowOfBlock own(heads.sequence, heads.heads);
    u32 key_head = own.head / heads.group(), end = heads.last_key(own.position);
    u64 at = heads.query(own.example, own.head, own.position), row = heads.statistic(own.example, own.head, own.position);
    u64 result = heads.result(own.example, own.head, own.position);
    for (u32 c = threadIdx.x; c < heads.depth; c += TOGETHER) sums[c] = W(0);
    for (u32 first = heads.first_key(own.position); first < end; first += TOGETHER) {
        u32 j = first + threadIdx.x, count = least(TOGETHER, end - first);
        if (j < end) {
            u64 key = heads.key(own.example, key_head, j);
            W weight;
            changes[threadIdx.x] = change_of(q + at, k + key, v + key, slope + result, lse[row], inner[row], heads, weight);
        }
        __syncthreads();
        for (u32 c = threadIdx.x; c < heads.depth; c += TOGETHER)
            for (u32 e = 0; e < count; e++)
                sums[c] += changes[e] * W(widen(k[heads.key(own.example, key_head, first + e) + c]));
        __syncthreads();
    }
    for (u32 c = threadIdx.x; c < heads.depth; c += TOGETHER) put(dq + at + c, sums[c], add);
}

template <class N>
__device__ void key_slopes(const N* q, const N* k, const N* v, const Wide<N>* lse, const N* slope,
                           const Wide<N>* inner, N* dk, N* dv, Heads heads, bool add) {
    typedef Wide<N> W;
    __shared__ W changes[TOGETHER], weights[TOGETHER];
    W *sums = reinterpret_cast<W*>(dynamic_shared()), *values = sums + heads.depth;
    RowOfBlock own(heads.positions(), heads.key_heads);
    u64 key = heads.key(own.example, own.head, own.position);
    u32 end = heads.last_query(own.position);
    for (u32 c = threadIdx.x; c < heads.depth; c += TOGETHER) sums[c] = values[c] = W(0);
    for (u32 head = own.head * heads.group(); head < (own.head + 1) * heads.group(); head++)
        for (u32 first = heads.first_query(own.position); first < end; first += TOGETHER) {
            u32 i = first + threadIdx.x, count = least(TOGETHER, end - first);
            if (i < end) {
                u64 at = heads.query(own.example, head, i), result = heads.result(own.example, head, i);
                u64 row = heads.statistic(own.example, head, i);
                changes[threadIdx.x] = change_of(q + at, k + key, v + key, slope + result, lse[row], inner[row], heads,
                                                 weights[threadIdx.x]);
            }
            __syncthreads();
            for (u32 c = threadIdx.x; c < heads.depth; c += TOGETHER)
                for (u32 e = 0; e < count; e++) {
                    u64 at = heads.query(own.example, head, first + e), result = heads.result(own.example, head, first + e);
                    sums[c] += changes[e] * W(widen(q[at + c]));
                    values[c] += weights[e] * W(widen(slope[result + c]));
                }
            __syncthreads();
        }
    for (u32 c = threadIdx.x; c < heads.depth; c += TOGETHER) {
        put(dk + key + c, sums[c], add);
        put(dv + key + c, values[c], add);
    }
}

#define EXPORT(N)                                                                                                \
    KERNEL(128, attention_##N, (const N* q, const N* k, const N* v, N* o, Wide<N>* lse, HEADS),                  \
           attention(q, k, v, o, lse, HEADS_OF))                                                                 \
    KERNEL(128, inner_products_##N, (const N* o, const N* slope, Wide<N>* inner, HEADS),                         \
           inner_products(o, slope, inner, HEADS_OF))                                                            \
    KERNEL(128, query_slopes_##N,                                                                                \
           (const N* q, const N* k, const N* v, const Wide<N>* lse, const N* slope, const Wide<N>* inner, N* dq, \
            HEADS, u32 add),                                                                                     \
           query_slopes(q, k, v, lse, slope, inner, dq, HEADS_OF, add))                                          \
    KERNEL(128, key_slopes_##N,                                                                                  \
           (const N* q, const N* k, const N* v, const Wide<N>* lse, const N* slope, const Wide<N>* inner, N* dk, \
            N* dv, HEADS, u32 add),                                                                              \
           key_slopes(q, k, v, lse, slope, inner, dk, dv, HEADS_OF, add))
FOR_NUMBERS(EXPORT)
#undef EXPORT
