// Sums, products and copies of arrays, and copies of windows of rows.

// to[r, c] = from[r, c + shift] where that exists, else filler[c], or zero without a filler. Rows
// of `to` and `from` have these lengths.
template <class N, class G>
__device__ void window(const N* from, const N* filler, G* to, u64 count, u64 to_length, u64 from_length,
                       i64 shift, bool add) {
    bool packed = is_aligned(from) && is_aligned(filler) && is_aligned(to) && to_length % PACKED<N> == 0 &&
                  from_length % PACKED<N> == 0 && shift % PACKED<N> == 0;
    for_each<PACKED<N>>(count, packed, [&](u64 i, auto width) {
        constexpr int COUNT = decltype(width)::count;
        u64 row = i / to_length, column = i % to_length, at = column + u64(shift);
        Pack<N, COUNT> pack;
        if (at < from_length) {
            pack = load<COUNT>(from + row * from_length + at);
        } else if (filler) {
            pack = load<COUNT>(filler + column);
        } else {
#pragma unroll
            for (int k = 0; k < COUNT; k++) pack.at[k] = N{};
        }
        Wide<N> values[COUNT];
#pragma unroll
        for (int k = 0; k < COUNT; k++) values[k] = widen(pack.at[k]);
        put_pack<COUNT>(to + i, values, add);
    });
}

#define EXPORT(N, G)                                                                                     \
    KERNEL(256, add_##N##_##G, (const N* a, const N* b, G* out, u64 count, u64 length),                  \
           zip(a, b, out, count, length, false, [](auto a, auto b) { return a + b; }))                   \
    KERNEL(256, multiply_##N##_##G, (const N* a, const N* b, G* out, u64 count, u64 length, u32 add),    \
           zip(a, b, out, count, length, add, [](auto a, auto b) { return a * b; }))                     \
    KERNEL(256, scale_##N##_##G, (const N* x, G* out, u64 count, f64 factor, u32 add),                   \
           Wide<N> by = Wide<N>(factor);                                                                 \
           map(x, out, count, add, [by](auto x) { return by * x; }))                                     \
    KERNEL(256, window_##N##_##G,                                                                        \
           (const N* from, const N* filler, G* to, u64 count, u64 to_length, u64 from_length, i64 shift, \
            u64 each, u64 part, u32 add),                                                                \
           window(from, filler, to, count, to_length, from_length, shift + i64(each * part), add))
FOR_NUMBER_PAIRS(EXPORT)
#undef EXPORT

// The other casts; `scale` has the ones that widen.
#define EXPORT(N, G)                                                                   \
    KERNEL(256, scale_##N##_##G, (const N* x, G* out, u64 count, f64 factor, u32 add), \
           Wide<N> by = Wide<N>(factor);                                               \
           map(x, out, count, add, [by](auto x) { return by * x; }))
EXPORT(f32, bf16)
EXPORT(f32, f16)
#undef EXPORT

constexpr int MOST_SUMMED = 32;

// Calls body(p) for every second of the arrays as far as there are `parts`. It is known to the compiler which one that
// is, or all their addresses would be copied into local memory.
template <class Body>
__device__ void each_pair(u32 parts, Body body) {
#pragma unroll
    for (int p = 0; p < MOST_SUMMED; p += 2) {
        if (u32(p) >= parts) break;
        body(p);
    }
}

// out = Σ of the first `parts` arrays, from the first to the last. Two are read at once; behind the last array, the
// first one is read again.
template <class N>
__device__ void sum(const N* const (&from)[MOST_SUMMED], u32 parts, N* out, u64 count, bool add) {
    u64 bits = reinterpret<u64>(out);
    each_pair(parts, [&](int p) { bits |= reinterpret<u64>(from[p]) | reinterpret<u64>(from[p + 1]); });
    for_each<PACKED<N>>(count, bits % 16 == 0, [&](u64 i, auto width) {
        constexpr int COUNT = decltype(width)::count;
        Pack<Wide<N>, COUNT> total;
        each_pair(parts, [&](int p) {
            auto one = widen(load<COUNT>(from[p] + i)), next = widen(load<COUNT>(from[p + 1] + i));
#pragma unroll
            for (int k = 0; k < COUNT; k++) {
                total.at[k] = p == 0 ? one.at[k] : total.at[k] + one.at[k];
                if (u32(p + 1) < parts) total.at[k] += next.at[k];
            }
        });
        put_pack<COUNT>(out + i, total.at, add);
    });
}

#define EIGHT(N, a) \
    const N *a##0, const N *a##1, const N *a##2, const N *a##3, const N *a##4, const N *a##5, const N *a##6, const N *a##7
#define EIGHT_OF(a) a##0, a##1, a##2, a##3, a##4, a##5, a##6, a##7

#define EXPORT(N)                                                                                      \
    KERNEL(256, sum_##N,                                                                               \
           (N * out, u64 count, u32 parts, u32 add, EIGHT(N, a), EIGHT(N, b), EIGHT(N, c), EIGHT(N, d)), \
           const N* const from[MOST_SUMMED] = {EIGHT_OF(a), EIGHT_OF(b), EIGHT_OF(c), EIGHT_OF(d)};    \
           sum(from, parts, out, count, add))
FOR_NUMBERS(EXPORT)
#undef EXPORT
