// Sums over rows in two passes: partial sums of segments of rows, then the sum of the segments,
// each in order. Blocks of 256 threads: along x columns, along y rows of a segment.

// The columns of a thread, PACKED<N> of them where so many exist.
template <class N>
struct Share {
    u64 column, valid;
    bool packed;

    __device__ Share(u64 columns, bool aligned) {
        column = (u64(blockIdx.x) * blockDim.x + threadIdx.x) * PACKED<N>;
        valid = column < columns ? columns - column : 0;
        packed = aligned && columns % PACKED<N> == 0;
    }
    __device__ Pack<N, PACKED<N>> read(const N* row) const {
        return load_some<PACKED<N>>(row + column, valid, packed);
    }
    // A number of each column as what is computed with; zero where there is no column.
    template <class T>
    __device__ void spread(const T* from, Wide<N> (&to)[PACKED<N>]) const {
#pragma unroll
        for (int k = 0; k < PACKED<N>; k++) to[k] = u64(k) < valid ? Wide<N>(widen(from[column + k])) : Wide<N>(0);
    }
};

// Joins what the rows of the block have, half with half, into row 0: `join(own, other)` adds SIZE
// numbers to SIZE numbers.
template <int SIZE, class W, class Join>
__device__ void join_rows(W (&own)[SIZE], Join join) {
    // One number more, so that neighbours lie in different banks.
    __shared__ W all[256][SIZE + 1 - SIZE % 2];
    u32 self = threadIdx.y * blockDim.x + threadIdx.x;
    for (u32 half = blockDim.y / 2; half > 0; half /= 2) {
        if (threadIdx.y >= half && threadIdx.y < 2 * half)
#pragma unroll
            for (int i = 0; i < SIZE; i++) all[self][i] = own[i];
        __syncthreads();
        if (threadIdx.y < half) join(own, all[self + half * blockDim.x]);
    }
}

// Adds.
struct Plus {
    template <class W, class Others, int SIZE>
    __device__ void operator()(W (&own)[SIZE], const Others& others) const {
#pragma unroll
        for (int i = 0; i < SIZE; i++) own[i] += others[i];
    }
};

// partial[s, t, j] = own[t, j] for the segment of the block, by row 0.
template <int TERMS, class N>
__device__ void store_segment(const Wide<N> (&own)[TERMS * PACKED<N>], const Share<N>& share, u64 columns,
                              Wide<N>* partial) {
    if (threadIdx.y) return;
#pragma unroll
    for (int t = 0; t < TERMS; t++)
#pragma unroll
        for (int k = 0; k < PACKED<N>; k++)
            if (u64(k) < share.valid)
                partial[(u64(blockIdx.y) * TERMS + t) * columns + share.column + k] = own[t * PACKED<N> + k];
}

// partial[s, t, j] = Σ over the rows r of segment s of term_t(r, j), for TERMS terms.
template <int TERMS, class N, class Term>
__device__ void sum_segments(u64 rows, u64 columns, u64 per_segment, const Share<N>& share, Wide<N>* partial,
                             Term term) {
    u64 begin = u64(blockIdx.y) * per_segment, end = least(rows, begin + per_segment);
    Wide<N> sums[TERMS * PACKED<N>] = {};
    if (share.valid)
        for (u64 row = begin + threadIdx.y; row < end; row += blockDim.y) term(row, sums);
    join_rows(sums, Plus());
    store_segment<TERMS>(sums, share, columns, partial);
}

// Σ over segments s of partial[s · stride + j], in row 0 of the block.
template <class W>
__device__ W total_of_segments(const W* partial, u64 j, u64 columns, u64 segments, u64 stride) {
    W total[1] = {W(0)};
    if (j < columns)
        for (u64 s = threadIdx.y; s < segments; s += blockDim.y) total[0] += partial[s * stride + j];
    join_rows(total, Plus());
    return total[0];
}
