// Sums over rows, in two passes.

template <class N>
__device__ void sum_of_segments(const N* x, Wide<N>* partial, u64 rows, u64 columns, u64 per_segment) {
    Share<N> share(columns, is_aligned(x));
    auto read = [=](auto way, u64 place) { return way.read(x + place); };
    sum_segments<1, 4>(rows, columns, per_segment, share, partial, read, [](auto& sums, const auto& met, u64) {
#pragma unroll
        for (int k = 0; k < PACKED<N>; k++) sums[k] += widen(met.at[k]);
    });
}

template <class N>
__device__ void product_of_segments(const N* a, const N* b, Wide<N>* partial, u64 rows, u64 columns,
                                    u64 per_segment) {
    Share<N> share(columns, is_aligned(a) && is_aligned(b));
    auto read = [=](auto way, u64 place) { return Both<N>{way.read(a + place), way.read(b + place)}; };
    sum_segments<1, 4>(rows, columns, per_segment, share, partial, read, [](auto& sums, const auto& met, u64) {
#pragma unroll
        for (int k = 0; k < PACKED<N>; k++) sums[k] += widen(met.left.at[k]) * widen(met.right.at[k]);
    });
}

// Term 0: dy · x̂, x̂ = (x − mean) · rstd; term 1, where there are MEANS: dy. Without means they are zero.
template <bool MEANS, class N>
__device__ void slopes_of_segments(const N* x, const Wide<N>* means, const Wide<N>* rstds, const N* dy,
                                   Wide<N>* partial, u64 rows, u64 columns, u64 per_segment) {
    Share<N> share(columns, is_aligned(x) && is_aligned(dy));
    auto read = [=](auto way, u64 place) { return Both<N>{way.read(x + place), way.read(dy + place)}; };
    constexpr int TERMS = MEANS ? 2 : 1;
    sum_segments<TERMS, 2>(rows, columns, per_segment, share, partial, read, [=](auto& sums, const auto& met, u64 row) {
        Wide<N> mean = MEANS ? means[row] : Wide<N>(0), rstd = rstds[row];
#pragma unroll
        for (int k = 0; k < PACKED<N>; k++) {
            sums[k] += widen(met.right.at[k]) * ((widen(met.left.at[k]) - mean) * rstd);
            if constexpr (MEANS) sums[PACKED<N> + k] += widen(met.right.at[k]);
        }
    });
}

// out[t][j] = Σ over segments s of partial[s, t, j].
template <int TERMS, class W, class G>
__device__ void join_segments(const W* partial, G* const (&out)[TERMS], u64 columns, u64 segments, bool add) {
    u64 j = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    W totals[TERMS] = {};
    add_segments(totals, partial, j, columns, segments);
    if (j >= columns || threadIdx.y) return;
#pragma unroll
    for (int t = 0; t < TERMS; t++) put_whole(out[t] + j, totals[t], add);
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
           slopes_of_segments<true>(x, means, rstds, dy, partial, rows, columns, per_segment))               \
    KERNEL(256, slopes_around_zero_of_segments_##N,                                                          \
           (const N* x, const Wide<N>* rstds, const N* dy, Wide<N>* partial, u64 rows, u64 columns,          \
            u64 per_segment),                                                                                \
           slopes_of_segments<false>(x, (const Wide<N>*)nullptr, rstds, dy, partial, rows, columns,          \
                                     per_segment))
FOR_NUMBERS(EXPORT)
#undef EXPORT

#define EXPORT(W, G)                                                                                     \
    KERNEL(256, join_segments_##W##_##G, (const W* partial, G* out, u64 columns, u64 segments, u32 add), \
           join_segments<1>(partial, {out}, columns, segments, add))                                     \
    KERNEL(256, join_both_##W##_##G,                                                                     \
           (const W* partial, G* first, G* second, u64 columns, u64 segments, u32 add),                  \
           join_segments<2>(partial, {first, second}, columns, segments, add))
EXPORT(f32, f32)
EXPORT(f64, f64)
EXPORT(f32, bf16)
EXPORT(f32, f16)
#undef EXPORT
