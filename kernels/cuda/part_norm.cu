// Layer and root mean square normalisation of rows of which several devices have the columns each;
// `whole` counts the columns of all of them. A row belongs to one warp, or to a block. Around zero
// there are no means, no totals and no bias.

// out = Σ x, or Σ (x − total / whole)².
template <class N>
__device__ void row_sums(const N* x, const Wide<N>* totals, Wide<N>* out, u64 rows, u64 columns, u64 whole,
                         bool squared) {
    typedef Wide<N> W;
    u64 row = row_of_grid();
    if (row >= rows) return;
    x += row * columns;
    W mean = totals ? totals[row] / W(whole) : W(0), sum = W(0);
    for_each_in_row<PACKED<N>>(columns, is_aligned(x), [&](u64 i, auto width) {
        constexpr int COUNT = decltype(width)::count;
        auto pack = load<COUNT>(x + i);
#pragma unroll
        for (int k = 0; k < COUNT; k++) {
            W away = widen(pack.at[k]) - mean;
            sum += squared ? away * away : away;
        }
    });
    sum = row_sum(sum);
    if (threadIdx.x == 0) out[row] = sum;
}

// y = (x − mean) · rstd · gain + bias, rstd = 1/√(squares / whole + ε).
template <class N>
__device__ void normalise_part(const N* x, const N* gain, const N* bias, const Wide<N>* totals,
                               const Wide<N>* squares, N* y, Wide<N>* means, Wide<N>* rstds, u64 rows,
                               u64 columns, u64 whole, f64 epsilon) {
    typedef Wide<N> W;
    u64 row = row_of_grid();
    if (row >= rows) return;
    x += row * columns;
    y += row * columns;
    bool packed = is_aligned(x) && is_aligned(y) && is_aligned(gain) && is_aligned(bias);
    W mean = totals ? totals[row] / W(whole) : W(0);
    W rstd = one_over_root(squares[row] / W(whole) + W(epsilon));
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
        if (means) means[row] = mean;
        rstds[row] = rstd;
    }
}

// slopes[row] = Σ g · x̂, and with means slopes[rows + row] = Σ g; g = dy · gain.
template <class N>
__device__ void slopes_of_rows(const N* x, const N* gain, const Wide<N>* means, const Wide<N>* rstds,
                               const N* dy, Wide<N>* slopes, u64 rows, u64 columns) {
    typedef Wide<N> W;
    u64 row = row_of_grid();
    if (row >= rows) return;
    x += row * columns;
    dy += row * columns;
    bool packed = is_aligned(x) && is_aligned(dy) && is_aligned(gain);
    W mean = means ? means[row] : W(0), rstd = rstds[row], along = W(0), average = W(0);
    for_each_in_row<PACKED<N>>(columns, packed, [&](u64 i, auto width) {
        constexpr int COUNT = decltype(width)::count;
        auto pack = load<COUNT>(x + i), slope = load<COUNT>(dy + i), factor = load<COUNT>(gain + i);
#pragma unroll
        for (int k = 0; k < COUNT; k++) {
            W scaled = widen(slope.at[k]) * widen(factor.at[k]);
            along += scaled * ((widen(pack.at[k]) - mean) * rstd);
            average += scaled;
        }
    });
    along = row_sum(along);
    if (means) average = row_sum(average);
    if (threadIdx.x == 0) {
        slopes[row] = along;
        if (means) slopes[rows + row] = average;
    }
}

// dx = rstd · (g − slopes_1 / whole − x̂ · slopes_0 / whole).
template <class N, class G>
__device__ void normalise_part_backward(const N* x, const N* gain, const Wide<N>* means,
                                        const Wide<N>* rstds, const N* dy, const Wide<N>* slopes, G* dx,
                                        u64 rows, u64 columns, u64 whole, bool add) {
    typedef Wide<N> W;
    u64 row = row_of_grid();
    if (row >= rows) return;
    x += row * columns;
    dy += row * columns;
    dx += row * columns;
    bool packed = is_aligned(x) && is_aligned(dy) && is_aligned(dx) && is_aligned(gain);
    W mean = means ? means[row] : W(0), rstd = rstds[row], along = slopes[row] / W(whole);
    W average = means ? slopes[rows + row] / W(whole) : W(0);
    for_each_in_row<PACKED<N>>(columns, packed, [&](u64 i, auto width) {
        constexpr int COUNT = decltype(width)::count;
        auto pack = load<COUNT>(x + i), slope = load<COUNT>(dy + i), factor = load<COUNT>(gain + i);
        W values[COUNT];
#pragma unroll
        for (int k = 0; k < COUNT; k++) {
            W normal = (widen(pack.at[k]) - mean) * rstd;
            values[k] = rstd * (widen(slope.at[k]) * widen(factor.at[k]) - average - normal * along);
        }
        put_pack(dx + i, values, add);
    });
}

#define EXPORT(N)                                                                                       \
    KERNEL(512, row_sums_##N,                                                                           \
           (const N* x, const Wide<N>* totals, Wide<N>* out, u64 rows, u64 columns, u64 whole,          \
            u64 squared),                                                                               \
           row_sums(x, totals, out, rows, columns, whole, squared != 0))                                \
    KERNEL(512, normalise_part_##N,                                                                     \
           (const N* x, const N* gain, const N* bias, const Wide<N>* totals, const Wide<N>* squares,    \
            N* y, Wide<N>* means, Wide<N>* rstds, u64 rows, u64 columns, u64 whole, f64 epsilon),       \
           normalise_part(x, gain, bias, totals, squares, y, means, rstds, rows, columns, whole,        \
                          epsilon))                                                                     \
    KERNEL(512, slopes_of_rows_##N,                                                                     \
           (const N* x, const N* gain, const Wide<N>* means, const Wide<N>* rstds, const N* dy,         \
            Wide<N>* slopes, u64 rows, u64 columns),                                                    \
           slopes_of_rows(x, gain, means, rstds, dy, slopes, rows, columns))
FOR_NUMBERS(EXPORT)
#undef EXPORT

#define EXPORT(N, G)                                                                                    \
    KERNEL(512, normalise_part_backward_##N##_##G,                                                      \
           (const N* x, const N* gain, const Wide<N>* means, const Wide<N>* rstds, const N* dy,         \
            const Wide<N>* slopes, G* dx, u64 rows, u64 columns, u64 whole, u32 add),                   \
           normalise_part_backward(x, gain, means, rstds, dy, slopes, dx, rows, columns, whole, add))
FOR_NUMBER_PAIRS(EXPORT)
#undef EXPORT
