// Dropout: which elements stay is a function of seed, step, micro-batch, operator and element, bit
// for bit as on the CPU.

template <class N, class G>
__device__ void dropout(const N* x, G* out, u64 count, u64 columns, u64 parts, u64 part, f64 rate, u64 op,
                        const Scalars* scalars, u64 micro_batch, bool add) {
    typedef Wide<N> W;
    const u64 labels[] = {0x64726f70, scalars->step, micro_batch, op};
    Stream stream = stream_of(scalars->seed, labels);
    if (!scalars->training) rate = 0;
    u64 limit = u64(ceil(rate * f64(1ull << 53))), own = parts > 1 ? part : 0;
    W scale = W(1 / (1 - rate));
    bool packed = is_aligned(x) && is_aligned(out) && columns % PACKED<N> == 0;
    for_each<PACKED<N>>(count, packed, [&](u64 i, auto width) {
        constexpr int COUNT = decltype(width)::count;
        auto pack = load<COUNT>(x + i);
        u64 first = (i / columns * parts + own) * columns + i % columns;
        W values[COUNT];
#pragma unroll
        for (int k = 0; k < COUNT; k++)
            values[k] = stream.bits(first + k) >> 11 >= limit ? widen(pack.at[k]) * scale : W(0);
        put_pack(out + i, values, add);
    });
}

#define EXPORT(N, G)                                                                                     \
    KERNEL(256, dropout_##N##_##G,                                                                       \
           (const N* x, G* out, u64 count, u64 columns, u64 parts, u64 part, f64 rate, u64 op,           \
            const Scalars* scalars, u64 micro_batch, u32 add),                                           \
           dropout(x, out, count, columns, parts, part, rate, op, scalars, micro_batch, add))
FOR_NUMBER_PAIRS(EXPORT)
#undef EXPORT
