// Pooling: every number of the result, or of the gradient, by one thread.

// Element `at` of an array (images, height, width, channels).
struct Pixel {
    u64 image;
    u32 row, column, channel;

    __device__ Pixel(u64 at, const u32 (&extents)[2], u32 channels) {
        channel = at % channels;
        at /= channels;
        column = at % extents[1];
        at /= extents[1];
        row = at % extents[0];
        image = at / extents[0];
    }
};

// Calls body(place in x) for what the window at (i, j) sees of a channel, row by row.
template <class Body>
__device__ void each_seen(const Window& window, u64 image, u32 i, u32 j, u32 channel, u32 channels, Body body) {
    for (u32 u = 0; u < window.kernel[0]; u++) {
        u32 row = window.seen(0, i, u);
        if (row >= window.input[0]) continue;
        for (u32 v = 0; v < window.kernel[1]; v++) {
            u32 column = window.seen(1, j, v);
            if (column < window.input[1])
                body(((image * window.input[0] + row) * window.input[1] + column) * channels + channel);
        }
    }
}

// Where the first greatest number is that a window sees.
template <class N>
__device__ u64 greatest_seen(const N* x, const Window& window, u64 image, u32 i, u32 j, u32 channel, u32 channels) {
    u64 most = ~0ull;
    each_seen(window, image, i, j, channel, channels, [&](u64 at) {
        if (most == ~0ull || widen(x[at]) > widen(x[most])) most = at;
    });
    return most;
}

template <class N>
__device__ void max_pool(const N* x, N* y, u64 count, u32 channels, Window window) {
    for (u64 at = thread_of_grid(); at < count; at += threads_of_grid()) {
        Pixel own(at, window.output, channels);
        y[at] = x[greatest_seen(x, window, own.image, own.row, own.column, own.channel, channels)];
    }
}

template <class N>
__device__ void avg_pool(const N* x, N* y, u64 count, u32 channels, Window window) {
    typedef Wide<N> W;
    for (u64 at = thread_of_grid(); at < count; at += threads_of_grid()) {
        Pixel own(at, window.output, channels);
        W total = W(0);
        each_seen(window, own.image, own.row, own.column, own.channel, channels,
                  [&](u64 from) { total += widen(x[from]); });
        y[at] = narrow<N>(total / W(window.taps()));
    }
}

// dx = Σ share(place of dy) over the windows that see a pixel.
template <class N, class G, class Share>
__device__ void pool_backward(G* dx, u64 count, u32 channels, Window window, bool add, Share share) {
    typedef Wide<N> W;
    for (u64 at = thread_of_grid(); at < count; at += threads_of_grid()) {
        Pixel own(at, window.input, channels);
        W total = W(0);
        for (u32 i = window.first_place(0, own.row); i < window.end_place(0, own.row); i++)
            for (u32 j = window.first_place(1, own.column); j < window.end_place(1, own.column); j++) {
                u64 place = (own.image * window.output[0] + i) * window.output[1] + j;
                total += share(at, own, i, j, place * channels + own.channel);
            }
        put(dx + at, total, add);
    }
}

template <class N, class G>
__device__ void max_pool_backward(const N* x, const N* dy, G* dx, u64 count, u32 channels, Window window, bool add) {
    typedef Wide<N> W;
    auto share = [&](u64 at, const Pixel& own, u32 i, u32 j, u64 place) {
        bool takes = greatest_seen(x, window, own.image, i, j, own.channel, channels) == at;
        return takes ? W(widen(dy[place])) : W(0);
    };
    pool_backward<N>(dx, count, channels, window, add, share);
}

template <class N, class G>
__device__ void avg_pool_backward(const N* dy, G* dx, u64 count, u32 channels, Window window, bool add) {
    typedef Wide<N> W;
    auto share = [&](u64, const Pixel&, u32, u32, u64 place) { return W(widen(dy[place])) / W(window.taps()); };
    pool_backward<N>(dx, count, channels, window, add, share);
}

// y[b, c] = Σ x[b, p, c] / pixels.
template <class N>
__device__ void global_pool(const N* x, N* y, u64 count, u64 pixels, u64 channels) {
    typedef Wide<N> W;
    for (u64 at = thread_of_grid(); at < count; at += threads_of_grid()) {
        const N* from = x + at / channels * pixels * channels + at % channels;
        W total = W(0);
        for (u64 p = 0; p < pixels; p++) total += widen(from[p * channels]);
        y[at] = narrow<N>(total / W(pixels));
    }
}

template <class N, class G>
__device__ void global_pool_backward(const N* dy, G* dx, u64 count, u64 pixels, u64 channels, bool add) {
    typedef Wide<N> W;
    for (u64 at = thread_of_grid(); at < count; at += threads_of_grid())
        put(dx + at, widen(dy[at / (pixels * channels) * channels + at % channels]) / W(pixels), add);
}

#define EXPORT(N)                                                                                         \
    KERNEL(256, max_pool_##N, (const N* x, N* y, u64 count, u32 channels, WINDOW),                        \
           max_pool(x, y, count, channels, WINDOW_OF))                                                    \
    KERNEL(256, avg_pool_##N, (const N* x, N* y, u64 count, u32 channels, WINDOW),                        \
           avg_pool(x, y, count, channels, WINDOW_OF))                                                    \
    KERNEL(256, global_pool_##N, (const N* x, N* y, u64 count, u64 pixels, u64 channels),                 \
           global_pool(x, y, count, pixels, channels))
FOR_NUMBERS(EXPORT)
#undef EXPORT

#define EXPORT(N, G)                                                                                      \
    KERNEL(256, max_pool_backward_##N##_##G,                                                              \
           (const N* x, const N* dy, G* dx, u64 count, u32 channels, WINDOW, u32 add),                    \
           max_pool_backward(x, dy, dx, count, channels, WINDOW_OF, add))                                 \
    KERNEL(256, avg_pool_backward_##N##_##G, (const N* dy, G* dx, u64 count, u32 channels, WINDOW, u32 add), \
           avg_pool_backward(dy, dx, count, channels, WINDOW_OF, add))                                    \
    KERNEL(256, global_pool_backward_##N##_##G,                                                           \
           (const N* dy, G* dx, u64 count, u64 pixels, u64 channels, u32 add),                            \
           global_pool_backward(dy, dx, count, pixels, channels, add))
FOR_NUMBER_PAIRS(EXPORT)
#undef EXPORT
