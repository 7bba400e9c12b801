// Convolutions as matrix products: what filters see is laid out as rows of a matrix, (place, group,
// tap, channel of the group), and gradients of such rows are gathered back into images.

// columns[place, g, tap, c] = x seen by the tap, zero in the padding.
template <class N>
__device__ void unfold(const N* x, N* unfolded, u64 count, u32 channels, u32 groups, Window window) {
    u32 each = channels / groups;
    bool packed = is_aligned(x) && is_aligned(unfolded) && each % PACKED<N> == 0;
    for_each<PACKED<N>>(count, packed, [&](u64 i, auto width) {
        constexpr int COUNT = decltype(width)::count;
        u64 at = i / each, c = i % each;
        u32 tap = at % window.taps();
        at /= window.taps();
        u32 group = at % groups;
        at /= groups;
        u32 column = window.seen(1, at % window.output[1], tap % window.kernel[1]);
        at /= window.output[1];
        u32 row = window.seen(0, at % window.output[0], tap / window.kernel[1]);
        u64 image = at / window.output[0];
        Pack<N, COUNT> pack = {};
        if (row < window.input[0] && column < window.input[1])
            pack = load<COUNT>(x + ((image * window.input[0] + row) * window.input[1] + column) * channels +
                               group * each + c);
        store<COUNT>(unfolded + i, pack);
    });
}

// dx = Σ over the taps that see a pixel of their rows' numbers.
template <class N, class G>
__device__ void fold(const N* unfolded, G* dx, u64 count, u32 channels, u32 groups, Window window, bool add) {
    typedef Wide<N> W;
    u32 each = channels / groups;
    bool packed = is_aligned(unfolded) && is_aligned(dx) && each % PACKED<N> == 0;
    for_each<PACKED<N>>(count, packed, [&](u64 i, auto width) {
        constexpr int COUNT = decltype(width)::count;
        u32 channel = i % channels, group = channel / each;
        u64 at = i / channels;
        u32 column = at % window.input[1];
        at /= window.input[1];
        u32 row = at % window.input[0];
        u64 image = at / window.input[0];
        W values[COUNT] = {};
        for (u32 tap = 0; tap < window.taps(); tap++) {
            u32 p = window.place(0, row, tap / window.kernel[1]), q = window.place(1, column, tap % window.kernel[1]);
            if (p >= window.output[0] || q >= window.output[1]) continue;
            u64 place = (image * window.output[0] + p) * window.output[1] + q;
            auto pack = load<COUNT>(unfolded + ((place * groups + group) * window.taps() + tap) * each + channel % each);
#pragma unroll
            for (int k = 0; k < COUNT; k++) values[k] += widen(pack.at[k]);
        }
        put_pack(dx + i, values, add);
    });
}

#define EXPORT(N)                                                                                       \
    KERNEL(256, unfold_##N, (const N* x, N* unfolded, u64 count, u32 channels, u32 groups, WINDOW),     \
           unfold(x, unfolded, count, channels, groups, WINDOW_OF))
FOR_NUMBERS(EXPORT)
#undef EXPORT

#define EXPORT(N, G)                                                                                    \
    KERNEL(256, fold_##N##_##G,                                                                         \
           (const N* unfolded, G* dx, u64 count, u32 channels, u32 groups, WINDOW, u32 add),            \
           fold(unfolded, dx, count, channels, groups, WINDOW_OF, add))
FOR_NUMBER_PAIRS(EXPORT)
#undef EXPORT
