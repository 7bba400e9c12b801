// Sums over rows in two passes: partial sums of segments of rows, then the sum of the segments,
// each in order. Blocks of 256 threads: along x columns, along y rows of a segment.

// How a thread reads and writes its columns of a row: all at once, or one by one as far as they exist.
template <class N, bool AT_ONCE>
struct Way {
    typedef Wide<N> W;
    u64 column, valid;

    // Rows that are read together, of as many as there are registers for at best.
    static constexpr int rows(int most) { return AT_ONCE ? most : 1; }
    __device__ Pack<N, PACKED<N>> read(const N* row) const {
        if constexpr (AT_ONCE) return load<PACKED<N>>(row + column);
        else return load_some<PACKED<N>>(row + column, valid, false);
    }
    __device__ void put(N* row, const W (&values)[PACKED<N>], bool add) const {
        if constexpr (AT_ONCE) put_pack(row + column, values, add);
        else put_some(row + column, values, valid, false, add);
    }
};

// The columns of a thread, PACKED<N> of them where so many exist; blocks along x have them, or as they say.
template <class N>
struct Share {
    u64 column, valid;
    bool packed;

    __device__ Share(u64 columns, bool aligned, u32 block = blockIdx.x) {
        column = (u64(block) * blockDim.x + threadIdx.x) * PACKED<N>;
        valid = column < columns ? columns - column : 0;
        packed = aligned && columns % PACKED<N> == 0;
    }
    // Calls body(way) if there are columns. The way is known before any loop of `body`, so that none of
    // them waits for what it reads in order to branch.
    template <class Body>
    __device__ void go(Body body) const {
        if (!valid) return;
        if (packed) body(Way<N, true>{column, valid});
        else body(Way<N, false>{column, valid});
    }
    // A number of each column as what is computed with; zero where there is no column.
    template <class T>
    __device__ void spread(const T* from, Wide<N> (&to)[PACKED<N>]) const {
        if (packed && valid && is_aligned(from)) {
            auto pack = widen(load<PACKED<N>>(from + column));
#pragma unroll
            for (int k = 0; k < PACKED<N>; k++) to[k] = pack.at[k];
            return;
        }
#pragma unroll
        for (int k = 0; k < PACKED<N>; k++) to[k] = u64(k) < valid ? Wide<N>(widen(from[column + k])) : Wide<N>(0);
    }
};

// Its numbers of two arrays at the same place.
template <class N>
struct Both {
    Pack<N, PACKED<N>> left, right;
};

// Calls meet(read(place), place, left) for every `step`-th of `left` rows, where `left` says how many there still are
// from it on; the first number of the first is at `place`, and those of others are `apart`. Of TOGETHER rows all is
// read before any is met, so that memory answers once for them.
template <int TOGETHER, class Read, class Meet>
__device__ void each_row(i64 left, i64 step, u64 place, u64 apart, Read read, Meet meet) {
    for (; left > (TOGETHER - 1) * step; left -= TOGETHER * step, place += TOGETHER * apart) {
        decltype(read(place)) all[TOGETHER];
#pragma unroll
        for (int r = 0; r < TOGETHER; r++) all[r] = read(place + r * apart);
#pragma unroll
        for (int r = 0; r < TOGETHER; r++) meet(all[r], place + r * apart, left - r * step);
    }
    for (; left > 0; left -= step, place += apart) meet(read(place), place, left);
}

// Rows that a thread works on: from one to before `end`, `step` apart, of so many columns.
struct Rows {
    u64 first, end, step, columns;

    // Calls meet(read(place), place, row) for each, in order.
    template <int TOGETHER, class Read, class Meet>
    __device__ void each(Read read, Meet meet) const {
        auto met = [&](const auto& own, u64 place, i64 left) { meet(own, place, end - left); };
        each_row<TOGETHER>(end - first, step, first * columns, step * columns, read, met);
    }
};

// The same rows counted from row `last` back, which nobody numbers.
struct RowsBack {
    Rows rows;
    u64 last;

    template <int TOGETHER, class Read, class Meet>
    __device__ void each(Read read, Meet meet) const {
        u64 place = (last - rows.first) * rows.columns, apart = 0 - rows.step * rows.columns;
        auto met = [&](const auto& own, u64 place, i64) { meet(own, place); };
        each_row<TOGETHER>(rows.end - rows.first, rows.step, place, apart, read, met);
    }
};

// The rows of the block's segment that are the thread's.
__device__ inline Rows rows_of_segment(u64 rows, u64 columns, u64 per_segment) {
    u64 begin = u64(blockIdx.y) * per_segment;
    return {begin + threadIdx.y, least(rows, begin + per_segment), blockDim.y, columns};
}

// The rows of a segment that are the thread's, where blocks take all segments back from where functions of
// the same grid ended that summed them: what those read last is still in the second-level cache.
__device__ inline RowsBack rows_back(u64 rows, u64 columns, u64 per_segment) {
    u64 begin = u64(gridDim.y - 1 - blockIdx.y) * per_segment, end = least(rows, begin + per_segment);
    return {{threadIdx.y, end - begin, blockDim.y, columns}, end - 1};
}

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

// partial[s, t, j] = own[t, j] for a segment s of the block, by row 0.
template <int TERMS, class N>
__device__ void store_segment(const Wide<N> (&own)[TERMS * PACKED<N>], const Share<N>& share, u64 s, u64 columns,
                              Wide<N>* partial) {
    if (threadIdx.y) return;
#pragma unroll
    for (int t = 0; t < TERMS; t++)
#pragma unroll
        for (int k = 0; k < PACKED<N>; k++)
            if (u64(k) < share.valid)
                partial[(s * TERMS + t) * columns + share.column + k] = own[t * PACKED<N> + k];
}

// partial[s, t, j] = Σ over the rows of segment s, of which the thread has those of `which()`, of TERMS terms:
// read(way, place) has what they are made of, and add(sums, that, row) adds them.
template <int TERMS, int TOGETHER, class N, class Which, class Read, class Add>
__device__ void sum_segment(Which which, u64 s, u64 columns, const Share<N>& share, Wide<N>* partial, Read read,
                            Add add) {
    Wide<N> sums[TERMS * PACKED<N>] = {};
    share.go([&](auto way) {
        which().template each<way.rows(TOGETHER)>([&](u64 place) { return read(way, place); },
                                                  [&](const auto& met, u64, u64 row) { add(sums, met, row); });
    });
    join_rows(sums, Plus());
    store_segment<TERMS>(sums, share, s, columns, partial);
}

// The same for the segment of the block.
template <int TERMS, int TOGETHER, class N, class Read, class Add>
__device__ void sum_segments(u64 rows, u64 columns, u64 per_segment, const Share<N>& share, Wide<N>* partial,
                             Read read, Add add) {
    auto which = [&] { return rows_of_segment(rows, columns, per_segment); };
    sum_segment<TERMS, TOGETHER>(which, blockIdx.y, columns, share, partial, read, add);
}

// Calls meet(terms, s) for every segment that the thread joins, in order; term t of segment s is
// partial[s · stride + t · apart]. Of several segments all is read before any is met.
template <int TERMS, class W, class Meet>
__device__ void each_segment(const W* partial, u64 segments, u64 stride, u64 apart, Meet meet) {
    Rows{threadIdx.y, segments, blockDim.y, stride}.template each<8>(
        [=](u64 place) {
            Pack<W, TERMS> terms;
#pragma unroll
            for (int t = 0; t < TERMS; t++) terms.at[t] = partial[place + t * apart];
            return terms;
        },
        [&](const Pack<W, TERMS>& terms, u64, u64 s) { meet(terms.at, s); });
}

// totals[t] += Σ over segments s of partial[s, t, j], in row 0 of the block.
template <int TERMS, class W>
__device__ void add_segments(W (&totals)[TERMS], const W* partial, u64 j, u64 columns, u64 segments) {
    if (j < columns)
        each_segment<TERMS>(partial + j, segments, TERMS * columns, columns,
                            [&](const W (&terms)[TERMS], u64) { Plus()(totals, terms); });
    join_rows(totals, Plus());
}
