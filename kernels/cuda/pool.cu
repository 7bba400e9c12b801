// Pooling: neighbouring channels of a place, or of a pixel, by one thread.

// Element `at` of an array (images, height, width, channels).
struct Pixel {
    u64 image;
    u32 row, column, channel;

    __device__ Pixel(u64 at, const u32 (&extents)[2], u32 channels) {
        u64 line = at / channels;
        channel = at - line * channels;
        u64 top = line / extents[1];
        column = line - top * extents[1];
        image = top / extents[0];
        row = top - image * extents[0];
    }
};

// Calls body(tap, place in x) for what the window sees, row by row.
template <class Body>
__device__ void each_seen(const Window& window, const Pixel& own, u32 channels, Body body) {
    for (u32 u = 0; u < window.kernel[0]; u++) {
        u32 row = window.seen(0, own.row, u);
        if (row >= window.input[0]) continue;
        for (u32 v = 0; v < window.kernel[1]; v++) {
            u32 column = window.seen(1, own.column, v);
            if (column >= window.input[1]) continue;
            u64 pixel = (own.image * window.input[0] + row) * window.input[1] + column;
            body(u * window.kernel[1] + v, pixel * channels + own.channel);
        }
    }
}

// The greatest numbers that a window sees, and which tap saw the first of them.
template <class N, int COUNT>
struct Greatest {
    Pack<N, COUNT> most;
    Pack<u32, COUNT> taps;

    __device__ Greatest(const N* x, u64 at, u32 channels, const Window& window) {
        bool first = true;
        each_seen(window, Pixel(at, window.output, channels), channels, [&](u32 tap, u64 from) {
            auto pack = load<COUNT>(x + from);
#pragma unroll
            for (int k = 0; k < COUNT; k++)
                if (first || exceeds(widen(pack.at[k]), widen(most.at[k]))) {
                    most.at[k] = pack.at[k];
                    taps.at[k] = tap;
                }
            first = false;
        });
    }
};

template <class N>
__device__ void max_pool(const N* x, N* y, u64 count, u32 channels, Window window) {
    bool packed = is_aligned(x) && is_aligned(y) && channels % PACKED<N> == 0;
    for_each<PACKED<N>>(count, packed, [&](u64 i, auto width) {
        constexpr int COUNT = decltype(width)::count;
        store(y + i, Greatest<N, COUNT>(x, i, channels, window).most);
    });
}

// The taps that saw the greatest numbers of all windows, as numbers of a type that has room for all taps.
template <class Tap, class N>
__device__ void winning_taps(const N* x, Tap* taps, u64 count, u32 channels, Window window) {
    for_each<PACKED<N>>(count, is_aligned(x) && channels % PACKED<N> == 0, [&](u64 i, auto width) {
        constexpr int COUNT = decltype(width)::count;
        Greatest<N, COUNT> found(x, i, channels, window);
        Pack<Tap, COUNT> winners;
#pragma unroll
        for (int k = 0; k < COUNT; k++) winners.at[k] = Tap(found.taps.at[k]);
        store(taps + i, winners);
    });
}

template <class N>
__device__ void avg_pool(const N* x, N* y, u64 count, u32 channels, Window window) {
    typedef Wide<N> W;
    bool packed = is_aligned(x) && is_aligned(y) && channels % PACKED<N> == 0;
    for_each<PACKED<N>>(count, packed, [&](u64 i, auto width) {
        constexpr int COUNT = decltype(width)::count;
        W values[COUNT] = {};
        each_seen(window, Pixel(i, window.output, channels), channels, [&](u32, u64 from) {
            auto pack = load<COUNT>(x + from);
#pragma unroll
            for (int k = 0; k < COUNT; k++) values[k] += widen(pack.at[k]);
        });
#pragma unroll
        for (int k = 0; k < COUNT; k++) values[k] = values[k] / W(window.taps());
        put_pack(y + i, values, false);
    });
}

// dx = Σ over the windows that see a pixel of what `share(place in dy, tap, sums)` adds.
template <int MOST, class W, class G, class Share>
__device__ void pool_backward(G* dx, u64 count, u32 channels, const Window& window, bool aligned, bool add,
                              Share share) {
    bool packed = aligned && is_aligned(dx) && channels % MOST == 0;
    for_each<MOST>(count, packed, [&](u64 at, auto width) {
        Pixel own(at, window.input, channels);
        W sums[decltype(width)::count] = {};
        for (u32 i = window.first_place(0, own.row); i < window.end_place(0, own.row); i++)
            for (u32 j = window.first_place(1, own.column); j < window.end_place(1, own.column); j++) {
                u32 u = own.row + window.padding - i * window.stride, v = own.column + window.padding - j * window.stride;
                u64 place = (own.image * window.output[0] + i) * window.output[1] + j;
                share(place * channels + own.channel, u * window.kernel[1] + v, sums);
            }
        put_pack(dx + at, sums, add);
    });
}

template <class Tap, class N, class G>
__device__ void max_pool_backward(const Tap* taps, const N* dy, G* dx, u64 count, u32 channels, Window window,
                                  bool add) {
    typedef Wide<N> W;
    auto share = [=](u64 place, u32 tap, auto& sums) {
        constexpr int COUNT = sizeof(sums) / sizeof(W);
        auto winners = load<COUNT>(taps + place);
        auto slopes = load<COUNT>(dy + place);
#pragma unroll
        for (int k = 0; k < COUNT; k++) sums[k] += winners.at[k] == tap ? W(widen(slopes.at[k])) : W(0);
    };
    pool_backward<PACKED_OF_BOTH<N, G>, W>(dx, count, channels, window, is_aligned(dy), add, share);
}

template <class N, class G>
__device__ void avg_pool_backward(const N* dy, G* dx, u64 count, u32 channels, Window window, bool add) {
    typedef Wide<N> W;
    W part = W(1) / W(window.taps());
    auto share = [=](u64 place, u32, auto& sums) {
        constexpr int COUNT = sizeof(sums) / sizeof(W);
        auto slopes = load<COUNT>(dy + place);
#pragma unroll
        for (int k = 0; k < COUNT; k++) sums[k] += widen(slopes.at[k]) * part;
    };
    pool_backward<PACKED_OF_BOTH<N, G>, W>(dx, count, channels, window, is_aligned(dy), add, share);
}

// y[b, c] = Σ x[b, p, c] / pixels: blocks along x have channels, along y images.
template <class N>
__device__ void global_pool(const N* x, N* y, u64 images, u64 pixels, u64 channels) {
    typedef Wide<N> W;
    Share<N> share(channels, is_aligned(x) && is_aligned(y));
    for (u64 image = blockIdx.y; image < images; image += gridDim.y) {
        W sums[PACKED<N>] = {};
        share.go([&](auto way) {
            const N* own = x + image * pixels * channels;
            Rows{threadIdx.y, pixels, blockDim.y, channels}.template each<way.rows(4)>(
                [&](u64 place) { return way.read(own + place); },
                [&](const auto& pack, u64, u64) {
#pragma unroll
                    for (int k = 0; k < PACKED<N>; k++) sums[k] += widen(pack.at[k]);
                });
        });
        join_rows(sums, Plus());
#pragma unroll
        for (int k = 0; k < PACKED<N>; k++) sums[k] = sums[k] / W(pixels);
        if (threadIdx.y == 0) put_some(y + image * channels + share.column, sums, share.valid, share.packed, false);
        // The next image uses the same shared memory.
        __syncthreads();
    }
}

template <class N, class G>
__device__ void global_pool_backward(const N* dy, G* dx, u64 count, u64 pixels, u64 channels, bool add) {
    typedef Wide<N> W;
    constexpr int MOST = PACKED_OF_BOTH<N, G>;
    bool packed = is_aligned(dy) && is_aligned(dx) && channels % MOST == 0;
    for_each<MOST>(count, packed, [&](u64 i, auto width) {
        constexpr int COUNT = decltype(width)::count;
        u64 pixel = i / channels, image = pixel / pixels;
        auto slopes = load<COUNT>(dy + image * channels + i - pixel * channels);
        W values[COUNT];
#pragma unroll
        for (int k = 0; k < COUNT; k++) values[k] = widen(slopes.at[k]) / W(pixels);
        put_pack(dx + i, values, add);
    });
}

// Bounds are those at which nothing spills: left alone, the compiler spills to have more blocks together.
#define EXPORT(N)                                                                                            \
    KERNEL_TOGETHER(5, 256, max_pool_##N, (const N* x, N* y, u64 count, u32 channels, WINDOW),               \
           max_pool(x, y, count, channels, WINDOW_OF))                                                       \
    KERNEL_TOGETHER(5, 256, winning_taps_u8_##N, (const N* x, u8* taps, u64 count, u32 channels, WINDOW),    \
           winning_taps(x, taps, count, channels, WINDOW_OF))                                                \
    KERNEL_TOGETHER(5, 256, winning_taps_u32_##N, (const N* x, u32* taps, u64 count, u32 channels, WINDOW),  \
           winning_taps(x, taps, count, channels, WINDOW_OF))                                                \
    KERNEL_TOGETHER(5, 256, avg_pool_##N, (const N* x, N* y, u64 count, u32 channels, WINDOW),               \
           avg_pool(x, y, count, channels, WINDOW_OF))                                                       \
    KERNEL(256, global_pool_##N, (const N* x, N* y, u64 images, u64 pixels, u64 channels),                   \
           global_pool(x, y, images, pixels, channels))
FOR_NUMBERS(EXPORT)
#undef EXPORT

#define EXPORT(N, G)                                                                                         \
    KERNEL_TOGETHER(4, 256, max_pool_backward_u8_##N##_##G,                                                  \
           (const u8* taps, const N* dy, G* dx, u64 count, u32 channels, WINDOW, u32 add),                   \
           max_pool_backward(taps, dy, dx, count, channels, WINDOW_OF, add))                                 \
    KERNEL_TOGETHER(4, 256, max_pool_backward_u32_##N##_##G,                                                 \
           (const u32* taps, const N* dy, G* dx, u64 count, u32 channels, WINDOW, u32 add),                  \
           max_pool_backward(taps, dy, dx, count, channels, WINDOW_OF, add))                                 \
    KERNEL_TOGETHER(5, 256, avg_pool_backward_##N##_##G,                                                     \
           (const N* dy, G* dx, u64 count, u32 channels, WINDOW, u32 add),                                   \
           avg_pool_backward(dy, dx, count, channels, WINDOW_OF, add))                                       \
    KERNEL(256, global_pool_backward_##N##_##G,                                                              \
           (const N* dy, G* dx, u64 count, u64 pixels, u64 channels, u32 add),                               \
           global_pool_backward(dy, dx, count, pixels, channels, add))
FOR_NUMBER_PAIRS(EXPORT)
#undef EXPORT
