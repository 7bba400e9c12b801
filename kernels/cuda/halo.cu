// Rows of images of which several devices have some each: put side by side with padding around them, or added up.
// Rows have numbers that mean the same to all devices; where a row lies, strips say.

// `count` rows of every image from number `first` on, so many numbers from one to the next, and from image to image.
template <class N>
struct Strip {
    const N* at;
    u64 first, count, row, image;

    // Where a row of an image begins; nowhere where it has none with this number.
    __device__ const N* of(u64 which, u64 number) const {
        u64 own = number - first;
        return own < count ? at + which * image + own * row : nullptr;
    }
};

constexpr int STRIPS = 8;

// Calls body(line, image, number) for all lines of the result that are of the thread's row of the block: `rows` of
// every image, from number `first` on.
template <class Body>
__device__ void each_line(u64 images, u64 rows, u64 first, Body body) {
    for (u64 line = row_of_grid(); line < images * rows; line += u64(gridDim.x) * blockDim.y)
        body(line, line / rows, first + line % rows);
}

// out = the rows of the strips, none of which have one in common, with padding at both ends; a row that no strip
// has is padding, or left alone unless `all` are made.
template <class N>
__device__ void halo(N* out, const Strip<N> (&strips)[STRIPS], u64 images, u64 rows, u64 first, u64 width, u64 side,
                     bool lowest, bool all) {
    N padding = lowest ? narrow<N>(negative_infinity<Wide<N>>()) : N{};
    u64 length = width + 2 * side;
    bool even = width % PACKED<N> == 0 && side % PACKED<N> == 0;
    each_line(images, rows, first, [&](u64 line, u64 image, u64 number) {
        const N* from = nullptr;
#pragma unroll
        for (int p = 0; p < STRIPS; p++)
            if (const N* own = strips[p].of(image, number)) from = own;
        if (!from && !all) return;
        N* to = out + line * length;
        for_each_in_row<PACKED<N>>(length, even && is_aligned(from) && is_aligned(to), [&](u64 i, auto pack) {
            constexpr int COUNT = decltype(pack)::count;
            Pack<N, COUNT> values;
            if (from && i - side < width) {
                values = load<COUNT>(from + (i - side));
            } else {
#pragma unroll
                for (int k = 0; k < COUNT; k++) values.at[k] = padding;
            }
            store<COUNT>(to + i, values);
        });
    });
}

// out = Σ over the strips that have a row, in their order, added to what is there if `add`.
template <class N>
__device__ void halo_add(N* out, const Strip<N> (&strips)[STRIPS], u64 images, u64 rows, u64 first, u64 width,
                         bool add) {
    typedef Wide<N> W;
    each_line(images, rows, first, [&](u64 line, u64 image, u64 number) {
        N* to = out + line * width;
        const N* from[STRIPS];
        bool packed = width % PACKED<N> == 0 && is_aligned(to);
#pragma unroll
        for (int p = 0; p < STRIPS; p++) {
            from[p] = strips[p].of(image, number);
            packed = packed && is_aligned(from[p]);
        }
        for_each_in_row<PACKED<N>>(width, packed, [&](u64 i, auto pack) {
            constexpr int COUNT = decltype(pack)::count;
            W values[COUNT] = {};
            if (add) {
                auto before = widen(load<COUNT>(to + i));
#pragma unroll
                for (int k = 0; k < COUNT; k++) values[k] = before.at[k];
            }
#pragma unroll
            for (int p = 0; p < STRIPS; p++) {
                if (!from[p]) continue;
                auto more = widen(load<COUNT>(from[p] + i));
#pragma unroll
                for (int k = 0; k < COUNT; k++) values[k] += more.at[k];
            }
            put_pack(to + i, values, false);
        });
    });
}

#define STRIP(N, p) const N *at##p, u64 first##p, u64 count##p, u64 row##p, u64 image##p
#define STRIP_OF(N, p) \
    Strip<N> { at##p, first##p, count##p, row##p, image##p }
#define EIGHT(N) \
    STRIP(N, 0), STRIP(N, 1), STRIP(N, 2), STRIP(N, 3), STRIP(N, 4), STRIP(N, 5), STRIP(N, 6), STRIP(N, 7)
#define EIGHT_OF(N)                                                                                          \
    {STRIP_OF(N, 0), STRIP_OF(N, 1), STRIP_OF(N, 2), STRIP_OF(N, 3), STRIP_OF(N, 4), STRIP_OF(N, 5), STRIP_OF(N, 6), \
     STRIP_OF(N, 7)}

#define EXPORT(N)                                                                                               \
    KERNEL(512, halo_##N,                                                                                       \
           (N * out, u64 images, u64 rows, u64 first, u64 width, u64 side, u32 lowest, u32 all, EIGHT(N)),      \
           const Strip<N> strips[STRIPS] = EIGHT_OF(N);                                                         \
           halo(out, strips, images, rows, first, width, side, lowest, all))                                    \
    KERNEL(512, halo_add_##N, (N * out, u64 images, u64 rows, u64 first, u64 width, u32 add, EIGHT(N)),         \
           const Strip<N> strips[STRIPS] = EIGHT_OF(N);                                                         \
           halo_add(out, strips, images, rows, first, width, add))
FOR_NUMBERS(EXPORT)
#undef EXPORT
