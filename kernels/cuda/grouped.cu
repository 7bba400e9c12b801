// Convolutions of several groups: sums of few terms, each by one thread.

// out = Σ over taps and the group's channels of what is seen times the weight: y of x, or, turned,
// dx of dy. Weights are (filters, taps, channels of a group).
template <class N, bool TURNED, class G>
__device__ void grouped(const N* from, const N* weight, G* out, u64 rows, Groups groups, Window window, bool add) {
    typedef Wide<N> W;
    u32 read = TURNED ? groups.filters : groups.channels, own = TURNED ? groups.channels : groups.filters;
    View<TURNED> view{window, groups.count * read, read};
    u32 taps = window.taps(), across = groups.count * own;
    // One filter for each channel: neighbours read neighbours.
    bool packed = read == 1 && own == 1 && is_aligned(from) && is_aligned(out) && across % PACKED<N> == 0;
    for_each<PACKED<N>>(rows * across, packed, [&](u64 i, auto width) {
        constexpr int COUNT = decltype(width)::count;
        u64 row = i / across;
        u32 channel = i - row * across, group = channel / own;
        Spot spot = view.spot(row, rows);
        W sums[COUNT] = {};
        for (u32 tap = 0; tap < taps; tap++) {
            u64 place = view.at(spot, tap / window.kernel[1], tap % window.kernel[1]);
            if (place == NOTHING) continue;
            for (u32 e = 0; e < read; e++) {
                auto pack = load<COUNT>(from + place + group * read + e);
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
    View<false> view{window, groups.count * each, each};
    u32 filter = blockIdx.x * 32 + threadIdx.x, term = blockIdx.z * TERMS, from = filter / groups.filters * each;
    u64 first = blockIdx.y * per_segment, end = least(places, first + per_segment);
    W sums[TERMS] = {};
    if (filter < filters)
        for (u64 p = first + threadIdx.y; p < end; p += 8) {
            Spot spot = view.spot(p, end);
            W slope = widen(dy[p * filters + filter]);
#pragma unroll
            for (u32 t = 0; t < TERMS; t++) {
                u32 tap = (term + t) / each;
                u64 place = view.at(spot, tap / window.kernel[1], tap % window.kernel[1]);
                if (place != NOTHING) sums[t] += slope * widen(x[place + from + (term + t) % each]);
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
