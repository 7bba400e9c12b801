// Convolutions of several groups: sums of few terms, each by one thread.

// The pixel that a tap of a window sees from a place, or, turned, the place that sees a pixel
// through it.
template <bool TURNED>
struct Sight {
    const Window& window;
    u64 image;
    u32 row, column;

    // Of place or pixel `number`. Sums wrap round where the padding is; so they are right again later.
    __device__ Sight(const Window& window, u64 number) : window(window) {
        const u32(&own)[2] = TURNED ? window.input : window.output;
        u64 line = number / own[1];
        u32 step = TURNED ? 1 : window.stride, before = TURNED ? window.padding : 0 - window.padding;
        image = line / own[0];
        row = u32(line - image * own[0]) * step + before;
        column = u32(number - line * own[1]) * step + before;
    }
    // The number of what is seen, or NOTHING.
    __device__ u64 through(u32 tap) const {
        u32 u = tap / window.kernel[1], v = tap % window.kernel[1];
        u32 y = TURNED ? row - u : row + u, x = TURNED ? column - v : column + v;
        bool valid = u < window.kernel[0];
        if (TURNED) {
            valid = valid && row >= u && column >= v;
            if (window.stride > 1) {
                valid = valid && y % window.stride == 0 && x % window.stride == 0;
                y /= window.stride;
                x /= window.stride;
            }
        }
        const u32(&seen)[2] = TURNED ? window.output : window.input;
        return valid && y < seen[0] && x < seen[1] ? (image * seen[0] + y) * seen[1] + x : NOTHING;
    }
};

// out = Σ over taps and the group's channels of what is seen times the weight: y of x, or, turned,
// dx of dy. Weights are (filters, taps, channels of a group).
template <class N, bool TURNED, class G>
__device__ void grouped(const N* from, const N* weight, G* out, u64 rows, Groups groups, Window window, bool add) {
    typedef Wide<N> W;
    u32 read = TURNED ? groups.filters : groups.channels, own = TURNED ? groups.channels : groups.filters;
    u32 taps = window.taps(), all = groups.count * read, across = groups.count * own;
    // One filter for each channel: neighbours read neighbours.
    bool packed = read == 1 && own == 1 && is_aligned(from) && is_aligned(out) && across % PACKED<N> == 0;
    for_each<PACKED<N>>(rows * across, packed, [&](u64 i, auto width) {
        constexpr int COUNT = decltype(width)::count;
        u64 row = i / across;
        u32 channel = i - row * across, group = channel / own;
        Sight<TURNED> sight(window, row);
        W sums[COUNT] = {};
        for (u32 tap = 0; tap < taps; tap++) {
            u64 place = sight.through(tap);
            if (place == NOTHING) continue;
            for (u32 e = 0; e < read; e++) {
                auto pack = load<COUNT>(from + place * all + group * read + e);
                u64 filter = TURNED ? group * read + e : channel;
                u32 column = TURNED ? channel % own : e;
#pragma unroll
                for (int k = 0; k < COUNT; k++)
                    sums[k] += widen(pack.at[k]) * widen(weight[((filter + k) * taps + tap) * groups.channels + column]);
            }
        }
        put_pack(out + i, sums, add);
    });
}

// partial[s, filter, tap, c] = Σ over the places of segment s of dy · what is seen. Blocks of 32 × 8
// threads: filters along x, places along y; blocks along z take TERMS of (tap, c) each.
constexpr u32 TERMS = 8;

template <class N>
__device__ void grouped_weights(const N* x, const N* dy, Wide<N>* partial, u64 places, u64 per_segment, Groups groups,
                                Window window) {
    typedef Wide<N> W;
    u32 each = groups.channels, depth = window.taps() * each, filters = groups.count * groups.filters;
    u32 all = groups.count * each;
    u32 filter = blockIdx.x * 32 + threadIdx.x, term = blockIdx.z * TERMS, from = filter / groups.filters * each;
    u64 first = blockIdx.y * per_segment, end = least(places, first + per_segment);
    W sums[TERMS] = {};
    if (filter < filters)
        for (u64 p = first + threadIdx.y; p < end; p += 8) {
            Sight<false> sight(window, p);
            W slope = widen(dy[p * filters + filter]);
#pragma unroll
            for (u32 t = 0; t < TERMS; t++) {
                u64 place = sight.through((term + t) / each);
                if (place != NOTHING) sums[t] += slope * widen(x[place * all + from + (term + t) % each]);
            }
        }
    __shared__ W others[8][TERMS][33];
#pragma unroll
    for (u32 t = 0; t < TERMS; t++) others[threadIdx.y][t][threadIdx.x] = sums[t];
    __syncthreads();
    W total = W(0);
    for (int y = 0; y < 8; y++) total += others[y][threadIdx.y][threadIdx.x];
    if (filter < filters && term + threadIdx.y < depth)
        partial[(u64(blockIdx.y) * filters + filter) * depth + term + threadIdx.y] = total;
}

#define EXPORT(N)                                                                                             \
    KERNEL(256, grouped_##N, (const N* x, const N* weight, N* y, u64 places, GROUPS, WINDOW),                 \
           (grouped<N, false>(x, weight, y, places, GROUPS_OF, WINDOW_OF, false)))                            \
    KERNEL(256, grouped_weights_##N,                                                                          \
           (const N* x, const N* dy, Wide<N>* partial, u64 places, u64 per_segment, GROUPS, WINDOW),          \
           grouped_weights(x, dy, partial, places, per_segment, GROUPS_OF, WINDOW_OF))
FOR_NUMBERS(EXPORT)
#undef EXPORT

#define EXPORT(N, G)                                                                                          \
    KERNEL(256, grouped_backward_##N##_##G,                                                                   \
           (const N* dy, const N* weight, G* dx, u64 pixels, GROUPS, WINDOW, u32 add),                        \
           (grouped<N, true>(dy, weight, dx, pixels, GROUPS_OF, WINDOW_OF, add)))
FOR_NUMBER_PAIRS(EXPORT)
#undef EXPORT
