// Rotary positions: pairs of every head turned by their position (Su et al., arXiv 2104.09864). The
// angle of a position and a pair is found once, in 64 bits, for many examples and heads.

// Of x (batch, sequence, heads, depth) the first `turned` numbers of every head; the others stay.
// Threads along x are positions times what a head has of pairs and single numbers; blocks along y
// share the examples and heads.
template <class N, class G>
__device__ void rotary(const N* x, G* y, u64 batch, u64 sequence, u64 heads, u64 depth, u64 turned, f64 base,
                       f64 sign, bool add) {
    typedef Wide<N> W;
    u64 half = turned / 2, places = depth - half, at = thread_of_grid();
    if (at >= sequence * places) return;
    u64 position = at / places, place = at % places;
    bool pair = place < half;
    f64 angle = pair ? f64(position) * (sign * pow(base, -2.0 * f64(place) / f64(turned))) : 0;
    W cosine = W(cos(angle)), sine = W(sin(angle));
    for (u64 row = blockIdx.y; row < batch * heads; row += gridDim.y) {
        u64 first = ((row / heads * sequence + position) * heads + row % heads) * depth;
        if (pair) {
            W a = widen(x[first + place]), b = widen(x[first + place + half]);
            put(y + first + place, a * cosine - b * sine, add);
            put(y + first + place + half, b * cosine + a * sine, add);
        } else {
            put(y + first + place + half, W(widen(x[first + place + half])), add);
        }
    }
}

#define EXPORT(N, G)                                                                                        \
    KERNEL(256, rotary_##N##_##G,                                                                           \
           (const N* x, G* y, u64 batch, u64 sequence, u64 heads, u64 depth, u64 turned, f64 base, f64 sign, \
            u32 add),                                                                                       \
           rotary(x, y, batch, sequence, heads, depth, turned, base, sign, add))
FOR_NUMBER_PAIRS(EXPORT)
#undef EXPORT
