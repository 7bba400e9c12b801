// Attention whose scores are stored: products of queries and keys, and sums by weights, one block
// for each row of a head.

// out_ij = scale · a_i · b_j, −∞ where i does not see j.
template <class N>
__device__ void scores(const N* a, const N* b, N* out, Heads heads, bool add) {
    typedef Wide<N> W;
    RowOfBlock own(heads.sequence, heads.heads);
    u32 key_head = own.head / heads.group(), low = heads.first_key(own.position), high = heads.last_key(own.position);
    const N* query = a + heads.query(own.example, own.head, own.position);
    out += heads.statistic(own.example, own.head, own.position) * heads.sequence;
    for (u32 j = threadIdx.x; j < heads.sequence; j += blockDim.x) {
        W score = negative_infinity<W>();
        if (j >= low && j < high)
            score = dot(query, b + heads.key(own.example, key_head, j), heads.depth) * W(heads.scale);
        put(out + j, score, add);
    }
}

// out_i = scale · Σ_j weight_ij x_j.
template <class N>
__device__ void mix_values(const N* weights, const N* x, N* out, Heads heads, bool add) {
    typedef Wide<N> W;
    RowOfBlock own(heads.sequence, heads.heads);
    u32 key_head = own.head / heads.group();
    weights += heads.statistic(own.example, own.head, own.position) * heads.sequence;
    out += heads.query(own.example, own.head, own.position);
    for (u32 c = threadIdx.x; c < heads.depth; c += blockDim.x) {
        W total = W(0);
        for (u32 j = 0; j < heads.sequence; j++)
            total += widen(weights[j]) * widen(x[heads.key(own.example, key_head, j) + c]);
        put(out + c, total * W(heads.scale), add);
    }
}

// out_j = scale · Σ_i weight_ij x_i over the heads of a key head.
template <class N>
__device__ void mix_slopes(const N* weights, const N* x, N* out, Heads heads, bool add) {
    typedef Wide<N> W;
    RowOfBlock own(heads.sequence, heads.key_heads);
    out += heads.key(own.example, own.head, own.position);
    for (u32 c = threadIdx.x; c < heads.depth; c += blockDim.x) {
        W total = W(0);
        for (u32 head = own.head * heads.group(); head < (own.head + 1) * heads.group(); head++)
            for (u32 i = 0; i < heads.sequence; i++) {
                u64 row = heads.statistic(own.example, head, i) * heads.sequence;
                total += widen(weights[row + own.position]) * widen(x[heads.query(own.example, head, i) + c]);
            }
        put(out + c, total * W(heads.scale), add);
    }
}

#define EXPORT(N)                                                                                              \
    KERNEL(128, scores_##N, (const N* a, const N* b, N* out, HEADS, u32 add), scores(a, b, out, HEADS_OF, add)) \
    KERNEL(128, mix_##N, (const N* weights, const N* x, N* out, HEADS, u32 add),                               \
           mix_values(weights, x, out, HEADS_OF, add))                                                         \
    KERNEL(128, mix_backward_##N, (const N* weights, const N* x, N* out, HEADS, u32 add),                      \
           mix_slopes(weights, x, out, HEADS_OF, add))
FOR_NUMBERS(EXPORT)
#undef EXPORT
