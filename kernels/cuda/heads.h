// The extents of attention: o (batch, sequence, heads · depth), q with as many rows, k and v with `before` more
// in every example, and which keys a query sees. Query i stands where key i + `before` does. Rows of q, k and v
// may be parts of longer ones, which have other things beside them.

struct Heads {
    u32 batch, sequence, before, heads, key_heads, depth, causal;
    // How many heads would fill a row that queries lie in, and one that keys do.
    u32 query_row, key_row;
    // Numbers between the queries of a key head's heads and those of the next, and from a key head to the next.
    u32 query_gap, key_step;
    // Positions less than this many away are seen.
    u64 reach;
    // Scores are scale · q kᵀ, and cap · tanh(score / cap) where cap is not zero.
    f64 scale, cap;

    // Keys of an example.
    __device__ u32 positions() const { return before + sequence; }
    // Where a row of a head stands in q, in k and v, and in o; gradients stand as what they are of.
    __device__ u64 query(u32 example, u32 head, u32 i) const {
        return (u64(example) * sequence + i) * (query_row * depth) + (head * depth + head / group() * query_gap);
    }
    __device__ u64 key(u32 example, u32 key_head, u32 j) const {
        return (u64(example) * positions() + j) * (key_row * depth) + key_head * key_step;
    }
    __device__ u64 result(u32 example, u32 head, u32 i) const {
        return ((u64(example) * sequence + i) * heads + head) * depth;
    }
    __device__ u64 statistic(u32 example, u32 head, u32 i) const {
        return (u64(example) * heads + head) * sequence + i;
    }
    __device__ u32 group() const { return heads / key_heads; }
    // The keys that a query sees, and the queries that see a key.
    __device__ u32 first_key(u32 i) const {
        u64 own = u64(i) + before;
        return own + 1 > reach ? u32(own + 1 - reach) : 0;
    }
    __device__ u32 last_key(u32 i) const {
        u64 own = u64(i) + before;
        return u32(least<u64>(causal ? own + 1 : own + least<u64>(reach, positions()), positions()));
    }
    __device__ u32 first_query(u32 j) const {
        u32 first = causal ? j : u64(j) + 1 > reach ? u32(u64(j) + 1 - reach) : 0;
        return first > before ? first - before : 0;
    }
    __device__ u32 last_query(u32 j) const {
        u64 last = least<u64>(j + least<u64>(reach, positions()), positions());
        return last > before ? u32(last - before) : 0;
    }

    // The score of a product, and its slope by the scaled product.
    template <class W>
    __device__ W score(W product) const {
        W value = product * W(scale);
        return cap > 0 ? W(cap) * tangent(value / W(cap)) : value;
    }
    template <class W>
    __device__ W steepness(W score) const {
        W share = cap > 0 ? score / W(cap) : W(0);
        return 1 - share * share;
    }
};

// Σ left · right.
template <class N>
__device__ Wide<N> dot(const N* left, const N* right, u32 depth) {
    Wide<N> total = 0;
    for (u32 c = 0; c < depth; c++) total += widen(left[c]) * widen(right[c]);
    return total;
}

// The block's query or key: position, head and example.
struct RowOfBlock {
    u32 position, head, example;

    __device__ RowOfBlock(u32 sequence, u32 of)
        : position(blockIdx.x % sequence), head(blockIdx.x / sequence % of), example(blockIdx.x / sequence / of) {}
};

#define HEADS                                                                                                  \
    u32 batch, u32 sequence, u32 before, u32 heads, u32 key_heads, u32 depth, u32 causal, u32 query_row,       \
        u32 key_row, u32 query_gap, u32 key_step, u64 reach, f64 scale, f64 cap
#define HEADS_OF                                                                                               \
    Heads {                                                                                                    \
        batch, sequence, before, heads, key_heads, depth, causal, query_row, key_row, query_gap, key_step, reach, \
            scale, cap                                                                                         \
    }
