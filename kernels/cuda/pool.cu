// Pooling: neighbouring channels of a place, or of a pixel, by one thread.

// Element `at` of an array (images, height, width, channels).
struct Pixel {
    u64 image;
    u32 row, column, channel;

    // Numbers of 32 bits, as most are, are divided without a branch for each quotient.
    __device__ Pixel(u64 at, const u32 (&extents)[2], u32 channels) {
        if (at >> 32) divide(at, extents, channels);
        else divide(u32(at), extents, channels);
    }
    // The first element of a row of its image, at its channel.
    __device__ u64 line(u32 row, const u32 (&extents)[2], u32 channels) const {
        return (image * extents[0] + row) * extents[1] * channels + channel;
    }

  private:
    template <class U>
    __device__ void divide(U at, const u32 (&extents)[2], u32 channels) {
        U line = at / channels, top = line / extents[1], number = top / extents[0];
        channel = at - line * channels;
        column = line - top * extents[1];
        row = top - number * extents[0];
        image = number;
    }
};

// Calls meet(row, column, valid, read(element)) for a box of the image that `own` is of, at its channel, row by
// row. Of ROWS × COLUMNS all is read before any is met, so that memory answers once for them; where there are
// fewer the last are read again, and not valid. With several ROWS the box is no larger.
template <int ROWS, int COLUMNS, class Read, class Meet>
__device__ void each_in(const Box& box, const Pixel& own, const u32 (&extents)[2], u32 channels, Read read,
                        Meet meet) {
    for (u32 i = box.first[0]; i < box.end[0]; i += ROWS)
        for (u32 j = box.first[1]; j < box.end[1]; j += COLUMNS) {
            u64 along[COLUMNS];
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) along[c] = u64(least(j + c, box.end[1] - 1)) * channels;
            decltype(read(u64(0))) all[ROWS][COLUMNS];
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                u64 line = own.line(least(i + r, box.end[0] - 1), extents, channels);
#pragma unroll
                for (int c = 0; c < COLUMNS; c++) all[r][c] = read(line + along[c]);
            }
#pragma unroll
            for (int r = 0; r < ROWS; r++)
#pragma unroll
                for (int c = 0; c < COLUMNS; c++)
                    meet(i + r, j + c, i + r < box.end[0] && j + c < box.end[1], all[r][c]);
            if (ROWS > 1) return;
        }
}

// The same for what the window sees from a place: of a small window all at once, of others four of a row.
template <class Read, class Meet>
__device__ void each_seen(const Window& window, const Box& box, const Pixel& own, u32 channels, Read read,
                          Meet meet) {
    u32 most = greatest(window.kernel[0], window.kernel[1]);
    if (most <= 2) each_in<2, 2>(box, own, window.input, channels, read, meet);
    else if (most == 3) each_in<3, 3>(box, own, window.input, channels, read, meet);
    else each_in<1, 4>(box, own, window.input, channels, read, meet);
}

// The greatest numbers that a window sees, and which tap saw the first of them.
template <class N, int COUNT>
struct Greatest {
    Wide<N> most[COUNT];
    u32 taps[COUNT];

    __device__ Greatest(const N* x, u64 at, u32 channels, const Window& window) {
        Pixel own(at, window.output, channels);
        Box box = window.seen(own.row, own.column);
        auto tap = [&](u32 row, u32 column) {
            return window.tap(own.row, row) * window.kernel[1] + window.tap(own.column, column);
        };
#pragma unroll
        for (int k = 0; k < COUNT; k++) {
            most[k] = negative_infinity<Wide<N>>();
            taps[k] = tap(box.first[0], box.first[1]);
        }
        auto read = [=](u64 from) { return load<COUNT>(x + from); };
        // What is read again exceeds nothing, so whether it is valid does not matter.
        each_seen(window, box, own, channels, read, [&](u32 row, u32 column, bool, const auto& pack) {
            auto wide = widen(pack);
#pragma unroll
            for (int k = 0; k < COUNT; k++) {
                bool more = exceeds(wide.at[k], most[k]);
                most[k] = more ? wide.at[k] : most[k];
                taps[k] = more ? tap(row, column) : taps[k];
            }
        });
    }
};

template <class N>
__device__ void max_pool(const N* x, N* y, u64 count, u32 channels, Window window) {
    bool packed = is_aligned(x) && is_aligned(y) && channels % PACKED<N> == 0;
    for_each<PACKED<N>>(count, packed, [&](u64 i, auto width) {
        constexpr int COUNT = decltype(width)::count;
        put_pack(y + i, Greatest<N, COUNT>(x, i, channels, window).most, false);
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
        for (int k = 0; k < COUNT; k++) winners.at[k] = Tap(found.taps[k]);
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
        Pixel own(i, window.output, channels);
        auto read = [=](u64 from) { return load<COUNT>(x + from); };
        auto meet = [&](u32, u32, bool valid, const auto& pack) {
            auto wide = widen(pack);
#pragma unroll
            for (int k = 0; k < COUNT; k++)
                if (valid) values[k] += wide.at[k];
        };
        each_seen(window, window.seen(own.row, own.column), own, channels, read, meet);
#pragma unroll
        for (int k = 0; k < COUNT; k++) values[k] = values[k] / W(window.taps());
        put_pack(y + i, values, false);
    });
}

// Slopes of neighbouring channels of a place, and the taps that saw their greatest numbers: four of 8 bits in a
// word, so that each does not take a register.
template <class Tap, class N, int COUNT>
struct Won {
    static constexpr int IN_WORD = 4 / sizeof(Tap), BITS = 8 * sizeof(Tap);
    u32 winners[(COUNT + IN_WORD - 1) / IN_WORD] = {};
    Pack<N, COUNT> slopes;

    __device__ Won(const Tap* taps, const N* dy) {
        auto pack = load<COUNT>(taps);
#pragma unroll
        for (int k = 0; k < COUNT; k++) winners[k / IN_WORD] |= u32(pack.at[k]) << k % IN_WORD * BITS;
        slopes = load<COUNT>(dy);
    }
    Won() = default;
    // As of a place that does not exist: no tap has that number, for 255 taps are at most counted in 8 bits.
    __device__ void clear() {
        for (u32& word : winners) word = ~0u;
    }
    // Adds what a tap sends back.
    template <class W>
    __device__ void share(u32 tap, W (&sums)[COUNT]) const {
        auto wide = widen(slopes);
        u32 everywhere = sizeof(Tap) == 1 ? tap * 0x01010101 : tap;
#pragma unroll
        for (int k = 0; k < COUNT; k++) {
            u32 bits = (~0u >> (32 - BITS)) << k % IN_WORD * BITS;
            if (((winners[k / IN_WORD] ^ everywhere) & bits) == 0) sums[k] += wide.at[k];
        }
    }
};

// Slopes of which every tap has an equal part.
template <class N, int COUNT>
struct Divided {
    Pack<N, COUNT> slopes;
    Wide<N> part;

    // As of a place that does not exist.
    __device__ void clear() {
#pragma unroll
        for (int k = 0; k < COUNT; k++) slopes.at[k] = N{};
    }
    template <class W>
    __device__ void share(u32, W (&sums)[COUNT]) const {
        auto wide = widen(slopes);
#pragma unroll
        for (int k = 0; k < COUNT; k++) sums[k] += wide.at[k] * part;
    }
};

// What the 2 × 2 places have that see a cell where no window is longer than two strides: its own, and those before.
template <class Read, class Found>
__device__ void read_cell(const Pixel& cell, u32 channels, const Window& window, Read read, Found (&all)[2][2]) {
    const u32(&extents)[2] = window.output;
#pragma unroll
    for (u32 r = 0; r < 2; r++) {
        u32 i = cell.row + r - 1;
        u64 line = cell.line(least(i, extents[0] - 1), extents, channels);
#pragma unroll
        for (u32 c = 0; c < 2; c++) {
            u32 j = cell.column + c - 1;
            all[r][c] = read(line + u64(least(j, extents[1] - 1)) * channels);
            if (i >= extents[0] || j >= extents[1]) all[r][c].clear();
        }
    }
}

// dx of all pixels of a cell, for which its places are read once.
template <int COUNT, class W, class G, class Read>
__device__ void cell_backward(G* dx, const Pixel& cell, u32 channels, const Window& window, bool add, Read read) {
    decltype(read(u64(0))) all[2][2];
    read_cell(cell, channels, window, read, all);
    u32 stride = window.stride;
    for (u32 u = 0; u < stride; u++) {
        u32 row = cell.row * stride + u - window.padding;
        if (row >= window.input[0]) continue;
        u64 line = cell.line(row, window.input, channels);
        for (u32 v = 0; v < stride; v++) {
            u32 column = cell.column * stride + v - window.padding;
            if (column >= window.input[1]) continue;
            W sums[COUNT] = {};
#pragma unroll
            for (u32 r = 0; r < 2; r++)
#pragma unroll
                for (u32 c = 0; c < 2; c++) {
                    u32 down = u + (1 - r) * stride, along = v + (1 - c) * stride;
                    if (down < window.kernel[0] && along < window.kernel[1])
                        all[r][c].share(down * window.kernel[1] + along, sums);
                }
            put_pack(dx + line + u64(column) * channels, sums, add);
        }
    }
}

// dx of a pixel, whatever the window.
template <int COUNT, class W, class G, class Read>
__device__ void pixel_backward(G* dx, const Pixel& own, u32 channels, const Window& window, bool add, Read read) {
    W sums[COUNT] = {};
    auto meet = [&](u32 i, u32 j, bool valid, const auto& found) {
        u32 tap = window.tap(i, own.row) * window.kernel[1] + window.tap(j, own.column);
        if (valid) found.share(tap, sums);
    };
    each_in<1, 4>(window.places_of(own.row, own.column), own, window.output, channels, read, meet);
    put_pack(dx + own.line(own.row, window.input, channels) + u64(own.column) * channels, sums, add);
}

// dx = Σ over the windows that see a pixel of what read(element of dy, width) shares with it. CELLS if there may be
// windows of no more than two strides; a cell of a longer stride is too much for one thread.
template <int MOST, bool CELLS, class W, class G, class Read>
__device__ void pool_backward(G* dx, u64 images, u32 channels, const Window& window, bool aligned, bool add,
                              Read read) {
    bool packed = aligned && is_aligned(dx) && channels % MOST == 0;
    u32 stride = window.stride;
    if (CELLS && stride <= 4 && window.kernel[0] <= 2 * stride && window.kernel[1] <= 2 * stride) {
        Box box = window.cells();
        const u32 cells[2] = {box.end[0] - box.first[0], box.end[1] - box.first[1]};
        for_each<MOST>(images * cells[0] * cells[1] * channels, packed, [&](u64 at, auto width) {
            Pixel cell(at, cells, channels);
            cell.row += box.first[0], cell.column += box.first[1];
            cell_backward<decltype(width)::count, W>(dx, cell, channels, window, add,
                                                     [=](u64 from) { return read(from, width); });
        });
        return;
    }
    for_each<MOST>(images * window.input[0] * window.input[1] * channels, packed, [&](u64 at, auto width) {
        pixel_backward<decltype(width)::count, W>(dx, Pixel(at, window.input, channels), channels, window, add,
                                                  [=](u64 from) { return read(from, width); });
    });
}

template <class Tap, class N, class G>
__device__ void max_pool_backward(const Tap* taps, const N* dy, G* dx, u64 images, u32 channels, Window window,
                                  bool add) {
    auto read = [=](u64 from, auto width) {
        constexpr int COUNT = decltype(width)::count;
        return Won<Tap, N, COUNT>(taps + from, dy + from);
    };
    // Of no more than two strides of 4 each way they have 64 taps, and are counted in 8 bits.
    constexpr bool CELLS = sizeof(Tap) == 1;
    pool_backward<PACKED_OF_BOTH<N, G>, CELLS, Wide<N>>(dx, images, channels, window, is_aligned(dy), add, read);
}

template <class N, class G>
__device__ void avg_pool_backward(const N* dy, G* dx, u64 images, u32 channels, Window window, bool add) {
    Wide<N> part = Wide<N>(1) / Wide<N>(window.taps());
    auto read = [=](u64 from, auto width) {
        constexpr int COUNT = decltype(width)::count;
        return Divided<N, COUNT>{load<COUNT>(dy + from), part};
    };
    pool_backward<PACKED_OF_BOTH<N, G>, true, Wide<N>>(dx, images, channels, window, is_aligned(dy), add, read);
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
    KERNEL_TOGETHER(4, 256, max_pool_##N, (const N* x, N* y, u64 count, u32 channels, WINDOW),               \
           max_pool(x, y, count, channels, WINDOW_OF))                                                       \
    KERNEL_TOGETHER(4, 256, winning_taps_u8_##N, (const N* x, u8* taps, u64 count, u32 channels, WINDOW),    \
           winning_taps(x, taps, count, channels, WINDOW_OF))                                                \
    KERNEL_TOGETHER(4, 256, winning_taps_u32_##N, (const N* x, u32* taps, u64 count, u32 channels, WINDOW),  \
           winning_taps(x, taps, count, channels, WINDOW_OF))                                                \
    KERNEL_TOGETHER(4, 256, avg_pool_##N, (const N* x, N* y, u64 count, u32 channels, WINDOW),               \
           avg_pool(x, y, count, channels, WINDOW_OF))                                                       \
    KERNEL(256, global_pool_##N, (const N* x, N* y, u64 images, u64 pixels, u64 channels),                   \
           global_pool(x, y, images, pixels, channels))
FOR_NUMBERS(EXPORT)
#undef EXPORT

#define EXPORT(N, G)                                                                                         \
    KERNEL_TOGETHER(3, 256, max_pool_backward_u8_##N##_##G,                                                  \
           (const u8* taps, const N* dy, G* dx, u64 images, u32 channels, WINDOW, u32 add),                   \
           max_pool_backward(taps, dy, dx, images, channels, WINDOW_OF, add))                                 \
    KERNEL_TOGETHER(3, 256, max_pool_backward_u32_##N##_##G,                                                 \
           (const u32* taps, const N* dy, G* dx, u64 images, u32 channels, WINDOW, u32 add),                  \
           max_pool_backward(taps, dy, dx, images, channels, WINDOW_OF, add))                                 \
    KERNEL_TOGETHER(3, 256, avg_pool_backward_##N##_##G,                                                     \
           (const N* dy, G* dx, u64 images, u32 channels, WINDOW, u32 add),                                   \
           avg_pool_backward(dy, dx, images, channels, WINDOW_OF, add))                                       \
    KERNEL(256, global_pool_backward_##N##_##G,                                                              \
           (const N* dy, G* dx, u64 count, u64 pixels, u64 channels, u32 add),                               \
           global_pool_backward(dy, dx, count, pixels, channels, add))
FOR_NUMBER_PAIRS(EXPORT)
#undef EXPORT
