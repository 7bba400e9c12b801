// Sums over rows, in two passes.

template <class N>
__device__ void sum_of_segments(const N* x, Wide<N>* partial, u64 rows, u64 columns, u64 per_segment) {
    sum_segments<1, N>(rows, columns, per_segment, is_aligned(x), partial,
                       [=](u64 row, u64 column, u64 valid, bool packed, auto& sums) {
        auto a = load_some<PACKED<N>>(x + row * columns + column, valid, packed);
#pragma unroll
        for (int k = 0; k < PACKED<N>; k++) sums[0][k] += widen(a.at[k]);
    });
}

template <class N>
__device__ void product_of_segments(const N* a, const N* b, Wide<N>* partial, u64 rows, u64 columns,
                                    u64 per_segment) {
    sum_segments<1, N>(rows, columns, per_segment, is_aligned(a) && is_aligned(b), partial,
                       [=](u64 row, u64 column, u64 valid, bool packed, auto& sums) {
        auto left = load_some<PACKED<N>>(a + row * columns + column, valid, packed);
        auto right = load_some<PACKED<N>>(b + row * columns + column, valid, packed);
#pragma unroll
        for (int k = 0; k < PACKED<N>; k++) sums[0][k] += widen(left.at[k]) * widen(right.at[k]);
    });
}

// Term 0: dy · x̂, x̂ = (x − mean) · rstd; term 1: dy. Without means they are zero.
template <class N>
__device__ void slopes_of_segments(const N* x, const Wide<N>* means, const Wide<N>* rstds, const N* dy,
                                   Wide<N>* partial, u64 rows, u64 columns, u64 per_segment) {
    sum_segments<2, N>(rows, columns, per_segment, is_aligned(x) && is_aligned(dy), partial,
                       [=](u64 row, u64 column, u64 valid, bool packed, auto& sums) {
        auto value = load_some<PACKED<N>>(x + row * columns + column, valid, packed);
        auto slope = load_some<PACKED<N>>(dy + row * columns + column, valid, packed);
        Wide<N> mean = means ? means[row] : Wide<N>(0), rstd = rstds[row];
#pragma unroll
        for (int k = 0; k < PACKED<N>; k++) {
            sums[0][k] += widen(slope.at[k]) * ((widen(value.at[k]) - mean) * rstd);
            sums[1][k] += widen(slope.at[k]);
        }
    });
}

// out[j] = Σ over segments s of partial[s · stride + j].
template <class W, class G>
__device__ void join_segments(const W* partial, G* out, u64 columns, u64 segments, u64 stride, bool add) {
    for (u64 j = thread_of_grid(); j < columns; j += threads_of_grid()) {
        W total = W(0);
        for (u64 s = 0; s < segments; s++) total += partial[s * stride + j];
        put(out + j, total, add);
    }
}

#define EXPORT(N)                                                                                            \
    KERNEL(256, sum_of_segments_##N, (const N* x, Wide<N>* partial, u64 rows, u64 columns, u64 per_segment), \
           sum_of_segments(x, partial, rows, columns, per_segment))                                          \
    KERNEL(256, product_of_segments_##N,                                                                     \
           (const N* a, const N* b, Wide<N>* partial, u64 rows, u64 columns, u64 per_segment),               \
           product_of_segments(a, b, partial, rows, columns, per_segment))                                   \
    KERNEL(256, slopes_of_segments_##N,                                                                      \
           (const N* x, const Wide<N>* means, const Wide<N>* rstds, const N* dy, Wide<N>* partial, u64 rows, \
            u64 columns, u64 per_segment),                                                                   \
           slopes_of_segments(x, means, rstds, dy, partial, rows, columns, per_segment))
FOR_NUMBERS(EXPORT)
#undef EXPORT

#define EXPORT(W, G)                                                                                       \
    KERNEL(256, join_segments_##W##_##G,                                                                   \
           (const W* partial, G* out, u64 columns, u64 segments, u64 stride, u32 add),                     \
           join_segments(partial, out, columns, segments, stride, add))
EXPORT(f32, f32)
EXPORT(f64, f64)
EXPORT(f32, bf16)
EXPORT(f32, f16)
#undef EXPORT
