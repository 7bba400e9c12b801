// Sums over rows in two passes: partial sums of segments of rows, then the sum of the segments,
// each in order.

// partial[s, t, j] = Σ over the rows r of segment s of term_t(r, j), for TERMS terms. Blocks of
// 32 × 8 threads; along x a thread has PACKED<N> columns, along y the segments.
template <int TERMS, class N, class Term>
__device__ void sum_segments(u64 rows, u64 columns, u64 per_segment, bool packed, Wide<N>* partial, Term term) {
    typedef Wide<N> W;
    constexpr int COUNT = PACKED<N>;
    u64 column = (u64(blockIdx.x) * 32 + threadIdx.x) * COUNT;
    u64 begin = u64(blockIdx.y) * per_segment, end = least(rows, begin + per_segment);
    u64 valid = column < columns ? columns - column : 0;
    packed = packed && columns % COUNT == 0;
    W sums[TERMS][COUNT] = {};
    if (valid)
        for (u64 row = begin + threadIdx.y; row < end; row += 8) term(row, column, valid, packed, sums);
    __shared__ W others[8][TERMS * COUNT][33];
#pragma unroll
    for (int t = 0; t < TERMS; t++)
#pragma unroll
        for (int k = 0; k < COUNT; k++) others[threadIdx.y][t * COUNT + k][threadIdx.x] = sums[t][k];
    __syncthreads();
    // Warp y adds up some of the terms of all eight.
    for (u32 at = threadIdx.y; at < TERMS * COUNT; at += 8) {
        W total = W(0);
        for (int y = 0; y < 8; y++) total += others[y][at][threadIdx.x];
        u64 t = at / COUNT, k = at % COUNT;
        if (k < valid) partial[(u64(blockIdx.y) * TERMS + t) * columns + column + k] = total;
    }
}
