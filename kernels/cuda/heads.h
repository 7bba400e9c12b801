// The extents of attention: q (batch, sequence, heads · depth), k and v (batch, before + sequence,
// key heads · depth), and which keys a query sees. Query i stands where key i + `before` does.

struct Heads {
    u32 batch, sequence, before, heads, key_heads, depth, causal;
    // Positions less than this many away are seen.
    u64 reach;
    // Scores are scale · q kᵀ, and cap · tanh(score / cap) where cap is not zero.
    f64 scale, cap;

    // Keys of an example.
    __device__ u32 positions() const { return before + sequence; }
    // Where a row of a head stands, in arrays with so many heads.
    __device__ u64 row(u64 at, u32 head, u32 of) const { return (at * of + head) * depth; }
    __device__ u64 query(u32 example, u32 head, u32 i) const {
        return row(u64(example) * sequence + i, head, heads);
    }
    __device__ u64 key(u32 example, u32 head, u32 j) const {
        return row(u64(example) * positions() + j, head, key_heads);
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
    u32 batch, u32 sequence, u32 before, u32 heads, u32 key_heads, u32 depth, u32 causal, u64 reach, f64 scale, \
        f64 cap
#define HEADS_OF Heads{batch, sequence, before, heads, key_heads, depth, causal, reach, scale, cap}
