// Convolutions as products of matrices one of which is never stored: what the window sees, see
// `view.h`. Groups are products of their own.

// Fetches tiles of rows of a block, whose depth are the columns, from the first on.
template <class N, bool TURNED>
struct Rows {
    const N* from;
    View<TURNED> view;
    bool packed;
    Spot spots[2];
    Tap tap;

    __device__ Rows(const N* from, const View<TURNED>& view, u64 rows, bool packed)
        : from(from), view(view), packed(packed), tap{0, 0, 0} {
        u64 first = u64(blockIdx.x) * ACROSS + threadIdx.x / 4;
        for (int x = 0; x < 2; x++) spots[x] = view.spot(first + x * 64, rows);
        view.advance(tap, threadIdx.x % 4 * 8);
    }
    __device__ void operator()(N* tile, u64) {
        N* to = tile + threadIdx.x / 4 * ALONG_DEPTH + threadIdx.x % 4 * 8;
#pragma unroll
        for (int x = 0; x < 2; x++) view.fetch(to + x * 64 * ALONG_DEPTH, from, spots[x], tap, packed);
        view.advance(tap, DEPTH);
    }
};

// Fetches tiles of columns of a block, whose depth are the rows from `first` on, up to `end`.
template <class N>
struct Columns {
    const N* from;
    View<false> view;
    u64 first, end;
    bool packed;
    Tap tap;

    __device__ Columns(const N* from, const View<false>& view, u64 first, u64 end, bool packed)
        : from(from), view(view), first(first), end(end), packed(packed),
          tap(view.tap(u64(blockIdx.y) * ACROSS + threadIdx.x % 16 * 8)) {}
    __device__ void operator()(N* tile, u64 depth) const {
        N* to = tile + threadIdx.x / 16 * ALONG_ACROSS + threadIdx.x % 16 * 8;
#pragma unroll
        for (int x = 0; x < 2; x++) {
            Spot spot = view.spot(first + depth + threadIdx.x / 16 + x * 16, end);
            view.fetch(to + x * 16 * ALONG_ACROSS, from, spot, tap, packed);
        }
    }
};

// out (rows, across) = what is seen (rows, depth) · b, or added to it: blocks along z are the
// groups. b is (groups, across, depth), or (groups, depth, across) where the view is turned.
template <class N, bool TURNED>
struct Convolution {
    const N *from, *b;
    View<TURNED> view;
    u64 rows, across, row;

    // Of the block's group.
    __device__ Convolution(const N* from, const N* b, const Window& window, u64 rows, const Groups& groups)
        : from(from), b(b), view{window, groups.count * (TURNED ? groups.filters : groups.channels),
                                 TURNED ? groups.filters : groups.channels},
          rows(rows), across(TURNED ? groups.channels : groups.filters), row(across * groups.count) {
        this->from += u64(blockIdx.z) * view.channels;
        this->b += blockIdx.z * across * depth();
    }
    __device__ u64 depth() const { return u64(view.window.taps()) * view.channels; }

    template <class Done>
    __device__ void by_threads(Done done) const {
        auto seen = [&](u64 i, u64 q) { return view.number(from, view.spot(i, rows), view.tap(q)); };
        auto other = [&](u64 q, u64 j) { return b[TURNED ? q * across + j : j * depth() + q]; };
        multiply_by_threads<Wide<N>>(rows, across, depth(), false, !TURNED, seen, other, done);
    }
    template <class Done>
    __device__ void by_warps(Done done) const {
        u64 length = TURNED ? across : depth();
        Layout right = {across, depth(), length, !TURNED, is_aligned(b) && length % 8 == 0};
        bool packed = is_aligned(from) && view.channels % 8 == 0;
        multiply_by_warps<N>(depth(), true, !TURNED, Rows<N, TURNED>(from, view, rows, packed),
                             Stored<N>{b, right, u64(blockIdx.y) * ACROSS}, done);
    }
    template <class G>
    __device__ void run(G* out, bool add) const {
        out += blockIdx.z * across;
        if constexpr (sizeof(N) == 2) {
            bool packed = is_aligned(out) && row % 8 == 0;
            by_warps(in_packs([=](u64 i, u64 j, const f32(&sums)[8]) {
                if (i < rows && j < across) put_some(out + i * row + j, sums, across - j, packed, add);
            }));
        } else {
            by_threads([=](u64 i, u64 j, auto sum) {
                if (i < rows && j < across) put(out + i * row + j, sum, add);
            });
        }
    }
};

// partial[s] (groups, filters, depth) = Σ over the places of segment s of dy · what is seen. Blocks
// along z are segments times groups.
template <class N>
__device__ void convolution_weights(const N* x, const N* dy, Wide<N>* partial, u64 places, u64 per_segment,
                                    const Groups& groups, const Window& window) {
    View<false> view{window, groups.count * groups.channels, groups.channels};
    u64 filters = groups.filters, row = groups.count * filters, depth = u64(window.taps()) * groups.channels;
    u64 segment = blockIdx.z / groups.count, group = blockIdx.z % groups.count;
    u64 first = segment * per_segment, end = least(places, first + per_segment);
    x += group * groups.channels;
    dy += first * row + group * filters;
    partial += blockIdx.z * filters * depth;
    if constexpr (sizeof(N) == 2) {
        Layout left = {filters, end - first, row, false, is_aligned(dy) && row % 8 == 0 && filters % 8 == 0};
        bool packed = is_aligned(x) && view.all % 8 == 0 && view.channels % 8 == 0;
        bool aligned = is_aligned(partial) && depth % PACKED<f32> == 0;
        multiply_by_warps<N>(end - first, false, false, Stored<N>{dy, left, u64(blockIdx.x) * ACROSS},
                             Columns<N>(x, view, first, end, packed),
                             in_packs([=](u64 i, u64 j, const f32(&sums)[8]) {
                                 if (i < filters && j < depth)
                                     put_some(partial + i * depth + j, sums, depth - j, aligned, false);
                             }));
    } else {
        multiply_by_threads<N>(
            filters, depth, end - first, true, false, [=](u64 i, u64 p) { return dy[p * row + i]; },
            [&](u64 p, u64 j) { return view.number(x, view.spot(first + p, end), view.tap(j)); },
            [=](u64 i, u64 j, auto sum) {
                if (i < filters && j < depth) partial[i * depth + j] = sum;
            });
    }
}

// turned (groups, taps, filters, channels) = weight (groups, filters, taps, channels).
template <class N>
__device__ void turn_weights(const N* weight, N* turned, u64 taps, const Groups& groups) {
    u64 filters = groups.filters, channels = groups.channels;
    bool packed = is_aligned(weight) && is_aligned(turned) && channels % PACKED<N> == 0;
    for_each<PACKED<N>>(groups.count * filters * taps * channels, packed, [&](u64 i, auto width) {
        constexpr int COUNT = decltype(width)::count;
        u64 row = i / channels, filter = row % filters, tap = row / filters % taps, group = row / filters / taps;
        store(turned + i, load<COUNT>(weight + ((group * filters + filter) * taps + tap) * channels + i % channels));
    });
}

#define EXPORT(N)                                                                                            \
    KERNEL(256, convolution_##N, (const N* x, const N* weight, N* y, u64 places, GROUPS, WINDOW),            \
           (Convolution<N, false>(x, weight, WINDOW_OF, places, GROUPS_OF).run(y, false)))                   \
    KERNEL(256, convolution_weights_##N,                                                                     \
           (const N* x, const N* dy, Wide<N>* partial, u64 places, u64 per_segment, GROUPS, WINDOW),         \
           convolution_weights(x, dy, partial, places, per_segment, GROUPS_OF, WINDOW_OF))                   \
    KERNEL(256, turn_weights_##N, (const N* weight, N* turned, u64 taps, GROUPS),                            \
           turn_weights(weight, turned, taps, GROUPS_OF))
FOR_NUMBERS(EXPORT)
#undef EXPORT

#define EXPORT(N, G)                                                                                         \
    KERNEL(256, convolution_backward_##N##_##G,                                                              \
           (const N* dy, const N* turned, G* dx, u64 pixels, GROUPS, WINDOW, u32 add),                       \
           (Convolution<N, true>(dy, turned, WINDOW_OF, pixels, GROUPS_OF).run(dx, add)))
FOR_NUMBER_PAIRS(EXPORT)
#undef EXPORT
