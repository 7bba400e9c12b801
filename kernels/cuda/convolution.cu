// Convolutions as products of matrices one of which is never stored: what the window sees, see
// `view.h`. Groups are products of their own.

// Fetches tiles of rows of a block, from row `top` on; their depth are the columns, from the first
// on.
template <class N, bool TURNED>
struct Rows {
    const N* from;
    View<TURNED> view;
    bool packed;
    Spot spots[2];
    Tap tap;

    __device__ Rows(const N* from, const View<TURNED>& view, u64 top, u64 rows)
        : from(from), view(view), packed(view.packed(from)), tap{0, 0, 0} {
        for (int x = 0; x < 2; x++) spots[x] = view.spot(top + threadIdx.x / 4 + x * 64, rows);
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

    __device__ Columns(const N* from, const View<false>& view, u64 first, u64 end)
        : from(from), view(view), first(first), end(end), packed(view.packed(from)),
          tap(view.tap(u64(blockIdx.y) * 128 + threadIdx.x % 16 * 8)) {}
    __device__ void operator()(N* tile, u64 depth) const {
        N* to = tile + threadIdx.x / 16 * ALONG_ACROSS<128> + threadIdx.x % 16 * 8;
#pragma unroll
        for (int x = 0; x < 2; x++) {
            Spot spot = view.spot(first + depth + threadIdx.x / 16 + x * 16, end);
            view.fetch(to + x * 16 * ALONG_ACROSS<128>, from, spot, tap, packed);
        }
    }
};

// Rows of a tile of what is seen.
template <class N>
constexpr u32 TILE_HEIGHT = sizeof(N) == 2 ? 128 : 64;

// What is seen (rows, depth) · b, from row `top` on: calls put(row, column, sums) for neighbouring
// sums, of which the first exists. b is (across, depth), or (depth, across) where the view is turned.
template <u32 WIDTH, class N, bool TURNED, class Put>
__device__ void multiply_seen(const N* from, const N* b, const View<TURNED>& view, u64 top, u64 rows, u64 across,
                              u32 stages, Put put) {
    u64 depth = view.depth();
    if constexpr (sizeof(N) == 2) {
        u64 length = TURNED ? across : depth;
        Layout right = {across, depth, length, !TURNED, is_aligned(b) && length % 8 == 0};
        multiply_by_warps<128, WIDTH, N>(top, depth, stages, true, !TURNED, Rows<N, TURNED>(from, view, top, rows),
                                         Stored<WIDTH, N>{b, right, u64(blockIdx.y) * WIDTH},
                                         in_packs([=](u64 i, u64 j, const f32(&sums)[8]) {
                                             if (i < rows && j < across) put(i, j, sums);
                                         }));
    } else {
        multiply_by_threads<Wide<N>>(
            top, rows, across, depth, false, !TURNED,
            [&](u64 i, u64 q) { return view.number(from, view.spot(i, rows), view.tap(q)); },
            [=](u64 q, u64 j) { return b[TURNED ? q * across + j : j * depth + q]; },
            [=](u64 i, u64 j, Wide<N> sum) {
                const Wide<N> sums[1] = {sum};
                if (i < rows && j < across) put(i, j, sums);
            });
    }
}

// y (places, groups, filters) = what places see · weight (groups, filters, depth). Blocks along z
// are the groups.
template <u32 WIDTH, class N>
__device__ void convolution(const N* x, const N* weight, N* y, u64 places, const Groups& groups, const Window& window,
                            u32 stages) {
    View<false> view(window, groups);
    u64 filters = groups.filters, row = groups.count * filters;
    y += blockIdx.z * filters;
    bool packed = is_aligned(y) && row % 8 == 0;
    multiply_seen<WIDTH>(x + u64(blockIdx.z) * groups.channels, weight + blockIdx.z * filters * view.depth(), view,
                         u64(blockIdx.x) * TILE_HEIGHT<N>, places, filters, stages, [=](u64 i, u64 j, auto& sums) {
                             put_some(y + i * row + j, sums, filters - j, packed, false);
                         });
}

// dx (pixels, groups, channels) = what sees pixels · the weights of the taps by which it does, or
// added to it. The same taps see the pixels of two residues, so each pair of them is a product of
// its own; blocks along x are these products, one after another, as many for each as the largest
// needs, and along z the groups.
template <u32 WIDTH, class N, class G>
__device__ void convolution_backward(const N* dy, const N* turned, G* dx, u64 images, const Groups& groups,
                                     const Window& window, bool add, u32 stages) {
    u32 stride = window.stride, height = least(stride, window.input[0]), width = least(stride, window.input[1]);
    u32 each = gridDim.x / (height * width), pair = blockIdx.x / each;
    Residue down(window, 0, residue(window, 0, pair / width)), along(window, 1, residue(window, 1, pair % width));
    View<true> view(window, groups, down, along);
    u64 rows = images * down.pixels * along.pixels, top = u64(blockIdx.x % each) * TILE_HEIGHT<N>;
    // What no tap sees has no gradient.
    if (top >= rows || (add && view.depth() == 0)) return;
    u64 channels = groups.channels, row = groups.count * channels;
    u64 taps = u64(blockIdx.z) * window.taps() + down.before * window.kernel[1] + down.taps * along.before;
    dx += blockIdx.z * channels;
    bool packed = is_aligned(dx) && row % 8 == 0;
    auto pixel = [=](u64 i) {
        if (stride == 1) return i;
        u64 line = i / along.pixels, image = line / down.pixels;
        u64 y = (line - image * down.pixels) * stride + down.pixel;
        u64 x = (i - line * along.pixels) * stride + along.pixel;
        return (image * window.input[0] + y) * window.input[1] + x;
    };
    multiply_seen<WIDTH>(dy + u64(blockIdx.z) * groups.filters, turned + taps * groups.filters * channels, view, top,
                         rows, channels, stages, [=](u64 i, u64 j, auto& sums) {
                             put_some(dx + pixel(i) * row + j, sums, channels - j, packed, add);
                         });
}

// partial[s] (groups, filters, depth) = Σ over the places of segment s of dy · what is seen. Blocks
// along z are segments times groups.
template <u32 HEIGHT, class N>
__device__ void convolution_weights(const N* x, const N* dy, Wide<N>* partial, u64 places, u64 per_segment,
                                    const Groups& groups, const Window& window, u32 stages) {
    View<false> view(window, groups);
    u64 filters = groups.filters, row = groups.count * filters, depth = view.depth();
    u64 segment = blockIdx.z / groups.count, group = blockIdx.z % groups.count;
    u64 first = segment * per_segment, end = least(places, first + per_segment);
    x += group * groups.channels;
    dy += first * row + group * filters;
    partial += blockIdx.z * filters * depth;
    u64 top = u64(blockIdx.x) * (sizeof(N) == 2 ? HEIGHT : 64);
    if constexpr (sizeof(N) == 2) {
        Layout left = {filters, end - first, row, false, is_aligned(dy) && row % 8 == 0 && filters % 8 == 0};
        bool aligned = is_aligned(partial) && depth % PACKED<f32> == 0;
        multiply_by_warps<HEIGHT, 128, N>(top, end - first, stages, false, false, Stored<HEIGHT, N>{dy, left, top},
                                          Columns<N>(x, view, first, end),
                                          in_packs([=](u64 i, u64 j, const f32(&sums)[8]) {
                                              if (i < filters && j < depth)
                                                  put_some(partial + i * depth + j, sums, depth - j, aligned, false);
                                          }));
    } else {
        multiply_by_threads<N>(
            top, filters, depth, end - first, true, false, [=](u64 i, u64 p) { return dy[p * row + i]; },
            [&](u64 p, u64 j) { return view.number(x, view.spot(first + p, end), view.tap(j)); },
            [=](u64 i, u64 j, auto sum) {
                if (i < filters && j < depth) partial[i * depth + j] = sum;
            });
    }
}

// turned (groups, taps, filters, channels) = weight (groups, filters, taps, channels), taps in order
// of the residues of their rows, then of their columns.
template <class N>
__device__ void turn_weights(const N* weight, N* turned, const Groups& groups, const Window& window) {
    u64 filters = groups.filters, channels = groups.channels;
    u32 stride = window.stride, taps = window.taps();
    bool packed = is_aligned(weight) && is_aligned(turned) && channels % PACKED<N> == 0;
    for_each<PACKED<N>>(groups.count * filters * taps * channels, packed, [&](u64 i, auto width) {
        constexpr int COUNT = decltype(width)::count;
        u64 row = i / channels, filter = row / taps % filters, group = row / taps / filters;
        u32 tap = row % taps, u = tap / window.kernel[1], v = tap % window.kernel[1];
        Residue down(window, 0, u % stride), along(window, 1, v % stride);
        u64 place = down.before * window.kernel[1] + down.taps * along.before + u / stride * along.taps + v / stride;
        u64 to = ((group * taps + place) * filters + filter) * channels + i % channels;
        store(turned + to, load<COUNT>(weight + i));
    });
}

// In 16 bits a tile has 128 rows and columns; `slim` ones have 64 of those that are filters, or
// channels in the gradient of the images.
#define EXPORT_WIDE(SLIM, WIDTH, N)                                                                           \
    KERNEL_TOGETHER(2, 256, convolution##SLIM##_##N,                                                          \
                    (const N* x, const N* weight, N* y, u64 places, GROUPS, WINDOW, u32 stages),              \
                    convolution<WIDTH>(x, weight, y, places, GROUPS_OF, WINDOW_OF, stages))                   \
    KERNEL_TOGETHER(2, 256, convolution_weights##SLIM##_##N,                                                  \
                    (const N* x, const N* dy, Wide<N>* partial, u64 places, u64 per_segment, GROUPS, WINDOW,  \
                     u32 stages),                                                                             \
                    convolution_weights<WIDTH>(x, dy, partial, places, per_segment, GROUPS_OF, WINDOW_OF, stages))
#define EXPORT(N)                                                                                            \
    KERNEL(256, turn_weights_##N, (const N* weight, N* turned, GROUPS, WINDOW),                              \
           turn_weights(weight, turned, GROUPS_OF, WINDOW_OF))                                               \
    EXPORT_WIDE(, 128, N)
FOR_NUMBERS(EXPORT)
#undef EXPORT
EXPORT_WIDE(_slim, 64, bf16)
EXPORT_WIDE(_slim, 64, f16)
#undef EXPORT_WIDE

#define EXPORT_WIDE(SLIM, WIDTH, N, G)                                                             \
    KERNEL_TOGETHER(2, 256, convolution_backward##SLIM##_##N##_##G,                                \
                    (const N* dy, const N* turned, G* dx, u64 images, GROUPS, WINDOW, u32 add,     \
                     u32 stages),                                                                  \
                    convolution_backward<WIDTH>(dy, turned, dx, images, GROUPS_OF, WINDOW_OF, add, stages))
#define EXPORT(N, G) EXPORT_WIDE(, 128, N, G)
FOR_NUMBER_PAIRS(EXPORT)
#undef EXPORT
EXPORT_WIDE(_slim, 64, bf16, bf16)
EXPORT_WIDE(_slim, 64, bf16, f32)
EXPORT_WIDE(_slim, 64, f16, f16)
EXPORT_WIDE(_slim, 64, f16, f32)
#undef EXPORT_WIDE
