// Softmax, layer and root mean square normalisation along rows. A row belongs to one warp, or to
// a block; it is read again for every sum, from the caches.

template <class N>
__device__ void softmax(const N* x, N* y, u64 rows, u64 columns) {
    typedef Wide<N> W;
    u64 row = row_of_grid();
    if (row >= rows) return;
    x += row * columns;
    y += row * columns;
    bool packed = is_aligned(x) && is_aligned(y);
    W most = negative_infinity<W>();
    auto all = [&](auto body) {
        for_each_in_row<PACKED<N>>(columns, packed, [&](u64 i, auto width) {
            constexpr int COUNT = decltype(width)::count;
            auto pack = load<COUNT>(x + i);
            W values[COUNT];
#pragma unroll
            for (int k = 0; k < COUNT; k++) values[k] = widen(pack.at[k]);
            body(i, values);
        });
    };
    all([&](u64, auto& values) {
        for (W value : values) most = greatest(most, value);
    });
    most = row_most(most);
    W total = W(0);
    all([&](u64, auto& values) {
        for (W value : values) total += exponential(value - most);
    });
    total = row_sum(total);
    all([&](u64 i, auto& values) {
        for (W& value : values) value = exponential(value - most) / total;
        put_pack(y + i, values, false);
    });
}

// dx = y · (dy − Σ y · dy).
template <class N, class G>
__device__ void softmax_backward(const N* y, const N* dy, G* dx, u64 rows, u64 columns, bool add) {
    typedef Wide<N> W;
    u64 row = row_of_grid();
    if (row >= rows) return;
    u64 first = row * columns;
    bool packed = is_aligned(y + first) && is_aligned(dy + first) && is_aligned(dx + first);
    W inner = W(0);
    for_each_in_row<PACKED<N>>(columns, packed, [&](u64 i, auto width) {
        constexpr int COUNT = decltype(width)::count;
        auto a = load<COUNT>(y + first + i), b = load<COUNT>(dy + first + i);
#pragma unroll
        for (int k = 0; k < COUNT; k++) inner += widen(a.at[k]) * widen(b.at[k]);
    });
    inner = row_sum(inner);
    for_each_in_row<PACKED<N>>(columns, packed, [&](u64 i, auto width) {
        constexpr int COUNT = decltype(width)::count;
        auto a = load<COUNT>(y + first + i), b = load<COUNT>(dy + first + i);
        W values[COUNT];
#pragma unroll
        for (int k = 0; k < COUNT; k++) values[k] = widen(a.at[k]) * (widen(b.at[k]) - inner);
        put_pack(dx + first + i, values, add);
    });
}

// y = (x − mean) · rstd · gain + bias, rstd = 1/√(variance + ε); without a bias mean is zero, and
// the variance the mean of squares.
template <class N>
__device__ void normalise(const N* x, const N* gain, const N* bias, N* y, Wide<N>* means, Wide<N>* rstds,
                          u64 rows, u64 columns, f64 epsilon) {
    typedef Wide<N> W;
    u64 row = row_of_grid();
    if (row >= rows) return;
    x += row * columns;
    y += row * columns;
    bool packed = is_aligned(x) && is_aligned(y) && is_aligned(gain) && is_aligned(bias);
    auto sum_of = [&](auto term) {
        W total = W(0);
        for_each_in_row<PACKED<N>>(columns, packed, [&](u64 i, auto width) {
            constexpr int COUNT = decltype(width)::count;
            auto pack = load<COUNT>(x + i);
#pragma unroll
            for (int k = 0; k < COUNT; k++) total += term(widen(pack.at[k]));
        });
        return row_sum(total) / W(columns);
    };
    W mean = bias ? sum_of([](W x) { return x; }) : W(0);
    W rstd = one_over_root(sum_of([mean](W x) { return (x - mean) * (x - mean); }) + W(epsilon));
    for_each_in_row<PACKED<N>>(columns, packed, [&](u64 i, auto width) {
        constexpr int COUNT = decltype(width)::count;
        auto pack = load<COUNT>(x + i), factor = load<COUNT>(gain + i);
        Pack<N, COUNT> term = {};
        if (bias) term = load<COUNT>(bias + i);
        W values[COUNT];
#pragma unroll
        for (int k = 0; k < COUNT; k++)
            values[k] = (widen(pack.at[k]) - mean) * rstd * widen(factor.at[k]) + widen(term.at[k]);
        put_pack(y + i, values, false);
    });
    if (threadIdx.x == 0) {
        if (bias) means[row] = mean;
        rstds[row] = rstd;
    }
}

// dx = rstd · (g − avg(g) − x̂ · avg(g · x̂)), x̂ = (x − mean) · rstd, g = dy · gain; without means
// they are zero, and so is avg(g).
template <class N>
__device__ void normalise_backward(const N* x, const N* gain, const Wide<N>* means, const Wide<N>* rstds,
                                   const N* dy, N* dx, u64 rows, u64 columns, bool add) {
    typedef Wide<N> W;
    u64 row = row_of_grid();
    if (row >= rows) return;
    x += row * columns;
    dy += row * columns;
    dx += row * columns;
    bool packed = is_aligned(x) && is_aligned(dy) && is_aligned(dx) && is_aligned(gain);
    W mean = means ? means[row] : W(0), rstd = rstds[row], average = W(0), along = W(0);
    auto all = [&](auto body) {
        for_each_in_row<PACKED<N>>(columns, packed, [&](u64 i, auto width) {
            constexpr int COUNT = decltype(width)::count;
            auto pack = load<COUNT>(x + i), slope = load<COUNT>(dy + i), factor = load<COUNT>(gain + i);
            W normal[COUNT], scaled[COUNT];
#pragma unroll
            for (int k = 0; k < COUNT; k++) {
                normal[k] = (widen(pack.at[k]) - mean) * rstd;
                scaled[k] = widen(slope.at[k]) * widen(factor.at[k]);
            }
            body(i, normal, scaled, width);
        });
    };
    all([&](u64, auto& normal, auto& scaled, auto width) {
#pragma unroll
        for (int k = 0; k < decltype(width)::count; k++) {
            average += scaled[k];
            along += scaled[k] * normal[k];
        }
    });
    average = means ? row_sum(average) / W(columns) : W(0);
    along = row_sum(along) / W(columns);
    all([&](u64 i, auto& normal, auto& scaled, auto width) {
#pragma unroll
        for (int k = 0; k < decltype(width)::count; k++)
            scaled[k] = rstd * (scaled[k] - average - normal[k] * along);
        put_pack(dx + i, scaled, add);
    });
}

// Neighbours of 16 bytes that a thread has in each row that it works on: as many as there are
// registers for the sums of their columns.
template <class N>
constexpr int PACKS = sizeof(N) == 2 ? 3 : 6;
// Blocks with such sums that a multiprocessor has registers for.
template <class N>
constexpr int TOGETHER = sizeof(N) == 2 ? 2 : 1;

// partial[j] = Σ over the rows of the block of what they have of column j.
template <int COUNT, int HELD, class W>
__device__ void store_columns(W (&own)[HELD][COUNT], u64 columns, W* partial) {
#pragma unroll
    for (int p = 0; p < HELD; p++) {
        // The shared memory is that of the pack before.
        __syncthreads();
        join_rows(own[p], Plus());
        u64 column = (u64(p) * blockDim.x + threadIdx.x) * COUNT;
#pragma unroll
        for (int k = 0; k < COUNT; k++)
            if (threadIdx.y == 0 && column + k < columns) partial[column + k] = own[p][k];
    }
}

// Sums of the columns that a thread has in all of its rows.
template <class N>
using Sums = Wide<N>[PACKS<N>][PACKED<N>];

// The same dx of the rows from `begin` to before `end`, and on the way the sums of dy · x̂, and of dy where there
// are MEANS. A row belongs to a row of the block, whose threads have PACKS of its neighbours each, the same in all
// rows. Where neighbours are read at once, all of a row is asked for before any of it is used, so that it waits for
// memory once; held one by one they would take the registers of a second block.
template <class N, bool MEANS, bool AT_ONCE>
__device__ void normalise_rows(const N* x, const N* gain, const Wide<N>* means, const Wide<N>* rstds, const N* dy,
                               N* dx, Sums<N>& gain_sums, Sums<N>& bias_sums, u64 begin, u64 end, u64 columns,
                               bool add) {
    typedef Wide<N> W;
    constexpr int COUNT = PACKED<N>;
    for (u64 top = begin; top < end; top += blockDim.y) {
        u64 row = top + threadIdx.y, count = row < end ? columns : 0, first = row * columns;
        auto column_of = [](int p) { return (u64(p) * blockDim.x + threadIdx.x) * COUNT; };
        auto each = [&](auto body) {
#pragma unroll
            for (int p = 0; p < PACKS<N>; p++) {
                u64 column = column_of(p);
                if (column < count) body(p, Way<N, AT_ONCE>{column, columns - column});
            }
        };
        Pack<N, COUNT> packs[PACKS<N>], slopes[PACKS<N>], before[PACKS<N>];
        if constexpr (AT_ONCE) {
#pragma unroll
            for (int p = 0; p < PACKS<N>; p++) {
                // Nobody has a column here: all threads of the row see that before they read anything.
                if (p > 0 && u64(p) * blockDim.x * COUNT >= columns) break;
                // Something is read where there is no column and nothing to add to, for a branch would wait.
                u64 i = least(row, end - 1) * columns + least(column_of(p), columns - COUNT);
                packs[p] = load<COUNT>(x + i);
                slopes[p] = load<COUNT>(dy + i);
                before[p] = load<COUNT>((add ? dx : dy) + i);
            }
        }
        auto read = [&](const auto& held, const N* from, auto way) {
            if constexpr (AT_ONCE) return widen(held);
            else return widen(way.read(from + first));
        };
        W mean = MEANS && count ? means[row] : W(0), rstd = count ? rstds[row] : W(0);
        W average = W(0), along = W(0);
        auto all = [&](auto body) {
            each([&](int p, auto way) {
                auto normal = read(packs[p], x, way), slope = read(slopes[p], dy, way), scaled = widen(way.read(gain));
#pragma unroll
                for (int k = 0; k < COUNT; k++) {
                    normal.at[k] = (normal.at[k] - mean) * rstd;
                    scaled.at[k] *= slope.at[k];
                }
                body(p, way, normal.at, slope.at, scaled.at);
            });
        };
        all([&](int, auto, auto& normal, auto&, auto& scaled) {
#pragma unroll
            for (int k = 0; k < COUNT; k++) {
                average += scaled[k];
                along += scaled[k] * normal[k];
            }
        });
        average = MEANS ? row_sum(average) / W(columns) : W(0);
        along = row_sum(along) / W(columns);
        all([&](int p, auto way, auto& normal, auto& slope, auto& scaled) {
#pragma unroll
            for (int k = 0; k < COUNT; k++) {
                gain_sums[p][k] += slope[k] * normal[k];
                if (MEANS) bias_sums[p][k] += slope[k];
                scaled[k] = rstd * (scaled[k] - average - normal[k] * along);
            }
            if (add) {
                auto own = read(before[p], dx, way);
#pragma unroll
                for (int k = 0; k < COUNT; k++) scaled[k] += own.at[k];
            }
            way.put(dx + first, scaled, false);
        });
    }
}

// The same, with partial[s, 0, j] = Σ dy · x̂ and, where there are MEANS, partial[s, 1, j] = Σ dy over the rows of
// segment s, which is the block's. Whether rows are read at once is known before any of them is.
template <bool MEANS, class N>
__device__ void normalise_slopes(const N* x, const N* gain, const Wide<N>* means, const Wide<N>* rstds, const N* dy,
                                 N* dx, Wide<N>* partial, u64 rows, u64 columns, u64 per_segment, bool add) {
    bool packed = is_aligned(x) && is_aligned(dy) && is_aligned(dx) && is_aligned(gain) && columns % PACKED<N> == 0;
    Sums<N> gain_sums = {}, bias_sums = {};
    u64 begin = blockIdx.x * per_segment, end = least(rows, begin + per_segment);
    if (packed)
        normalise_rows<N, MEANS, true>(x, gain, means, rstds, dy, dx, gain_sums, bias_sums, begin, end, columns, add);
    else
        normalise_rows<N, MEANS, false>(x, gain, means, rstds, dy, dx, gain_sums, bias_sums, begin, end, columns, add);
    partial += u64(blockIdx.x) * (MEANS ? 2 : 1) * columns;
    store_columns(gain_sums, columns, partial);
    if (MEANS) store_columns(bias_sums, columns, partial + columns);
}

#define EXPORT(N)                                                                                       \
    KERNEL(512, softmax_##N, (const N* x, N* y, u64 rows, u64 columns), softmax(x, y, rows, columns))   \
    KERNEL(512, normalise_##N,                                                                          \
           (const N* x, const N* gain, const N* bias, N* y, Wide<N>* means, Wide<N>* rstds, u64 rows,   \
            u64 columns, f64 epsilon),                                                                  \
           normalise(x, gain, bias, y, means, rstds, rows, columns, epsilon))                           \
    KERNEL_TOGETHER(3, 512, normalise_backward_##N,                                                     \
           (const N* x, const N* gain, const Wide<N>* means, const Wide<N>* rstds, const N* dy, N* dx,  \
            u64 rows, u64 columns, u32 add),                                                            \
           normalise_backward(x, gain, means, rstds, dy, dx, rows, columns, add))                       \
    KERNEL_TOGETHER(TOGETHER<N>, 256, normalise_slopes_##N,                                             \
           (const N* x, const N* gain, const Wide<N>* means, const Wide<N>* rstds, const N* dy, N* dx,  \
            Wide<N>* partial, u64 rows, u64 columns, u64 per_segment, u32 add),                         \
           normalise_slopes<true>(x, gain, means, rstds, dy, dx, partial, rows, columns, per_segment,   \
                                  add))                                                                 \
    KERNEL_TOGETHER(TOGETHER<N>, 256, normalise_slopes_around_zero_##N,                                 \
           (const N* x, const N* gain, const Wide<N>* rstds, const N* dy, N* dx, Wide<N>* partial,      \
            u64 rows, u64 columns, u64 per_segment, u32 add),                                           \
           normalise_slopes<false>(x, gain, (const Wide<N>*)nullptr, rstds, dy, dx, partial, rows,      \
                                   columns, per_segment, add))
FOR_NUMBERS(EXPORT)
#undef EXPORT

#define EXPORT(N, G)                                                                                    \
    KERNEL(512, softmax_backward_##N##_##G,                                                             \
           (const N* y, const N* dy, G* dx, u64 rows, u64 columns, u32 add),                            \
           softmax_backward(y, dy, dx, rows, columns, add))
FOR_NUMBER_PAIRS(EXPORT)
#undef EXPORT
