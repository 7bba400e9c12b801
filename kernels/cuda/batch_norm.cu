// Batch normalisation (Ioffe and Szegedy, arXiv 1502.03167).

constexpr f64 EPSILON = 1e-5;

// Joins the moments of some numbers to those of others: count, mean, Σ (x − mean)² (Chan, Golub and
// LeVeque, Updating formulae and a pairwise algorithm for computing sample variances, 1979).
template <class W>
__device__ void join_moments(W& count, W& mean, W& squares, W others, W other_mean, W other_squares) {
    if (others == W(0)) return;
    W total = count + others, share = others / total, apart = other_mean - mean;
    mean += apart * share;
    squares += other_squares + apart * apart * count * share;
    count = total;
}

// partial[s] = means and Σ (x − mean)² of the columns of segment s, in one pass (Welford, Note on a
// method for calculating corrected sums of squares and products, 1962). Nothing outside of training.
template <class N>
__device__ void moments_of_segments(const N* x, Wide<N>* partial, u64 rows, u64 columns, u64 per_segment,
                                    const Scalars* scalars) {
    typedef Wide<N> W;
    constexpr int COUNT = PACKED<N>;
    if (!scalars->training) return;
    Share<N> share(columns, is_aligned(x));
    u64 begin = u64(blockIdx.y) * per_segment, end = least(rows, begin + per_segment);
    // Means, squares, and last the count.
    W own[2 * COUNT + 1] = {};
    W& count = own[2 * COUNT];
    for (u64 row = begin + threadIdx.y; row < end; row += blockDim.y) {
        auto pack = share.read(x + row * columns);
        count += W(1);
        W weight = W(1) / count;
#pragma unroll
        for (int k = 0; k < COUNT; k++) {
            W value = widen(pack.at[k]), apart = value - own[k];
            own[k] += apart * weight;
            own[COUNT + k] += apart * (value - own[k]);
        }
    }
    join_rows(own, [](auto& own, const auto& others) {
        W before = own[2 * COUNT];
#pragma unroll
        for (int k = 0; k < COUNT; k++) {
            own[2 * COUNT] = before;
            join_moments(own[2 * COUNT], own[k], own[COUNT + k], others[2 * COUNT], others[k], others[COUNT + k]);
        }
    });
    W moments[2 * COUNT];
#pragma unroll
    for (int i = 0; i < 2 * COUNT; i++) moments[i] = own[i];
    store_segment<2>(moments, share, columns, partial);
}

// The mean and the variance of every column: of all segments in training, else the running ones.
template <class N>
__device__ void moments(const Wide<N>* partial, const N* running_mean, const N* running_variance, Wide<N>* means,
                        Wide<N>* variances, u64 rows, u64 columns, u64 per_segment, const Scalars* scalars) {
    typedef Wide<N> W;
    u64 j = u64(blockIdx.x) * blockDim.x + threadIdx.x, segments = (rows + per_segment - 1) / per_segment;
    if (!scalars->training) segments = 0;
    W own[3] = {};
    if (j < columns)
        for (u64 s = threadIdx.y; s < segments; s += blockDim.y) {
            W count = W(least(per_segment, rows - s * per_segment));
            const W* from = partial + 2 * s * columns + j;
            join_moments(own[0], own[1], own[2], count, from[0], from[columns]);
        }
    join_rows(own, [](auto& own, const auto& others) {
        join_moments(own[0], own[1], own[2], others[0], others[1], others[2]);
    });
    if (j >= columns || threadIdx.y) return;
    means[j] = segments ? own[1] : W(widen(running_mean[j]));
    variances[j] = segments ? own[2] / W(rows) : W(widen(running_variance[j]));
}

// Calls body(place) for the own columns of some rows: blocks along y share the rows.
template <class Body>
__device__ void each_row(u64 rows, u64 columns, Body body) {
    u64 step = u64(gridDim.y) * blockDim.y;
    for (u64 row = u64(blockIdx.y) * blockDim.y + threadIdx.y; row < rows; row += step) body(row * columns);
}

// y = (x − mean) / √(variance + ε) · gain + bias, plus the residual where there is one, and
// max(·, 0) of that if `relu`.
template <class N>
__device__ void batch_norm(const N* x, const N* gain, const N* bias, const Wide<N>* means, const Wide<N>* variances,
                           const N* residual, N* y, u64 rows, u64 columns, bool relu) {
    typedef Wide<N> W;
    constexpr int COUNT = PACKED<N>;
    Share<N> share(columns, is_aligned(x) && is_aligned(residual) && is_aligned(y));
    W mean[COUNT], factor[COUNT], spread[COUNT], term[COUNT];
    share.spread(means, mean);
    share.spread(variances, spread);
    share.spread(gain, factor);
    share.spread(bias, term);
#pragma unroll
    for (int k = 0; k < COUNT; k++) factor[k] *= one_over_root(spread[k] + W(EPSILON));
    if (!share.valid) return;
    each_row(rows, columns, [&](u64 row) {
        auto pack = share.read(x + row);
        Pack<N, COUNT> rest = {};
        if (residual) rest = share.read(residual + row);
        W values[COUNT];
#pragma unroll
        for (int k = 0; k < COUNT; k++) {
            W value = (widen(pack.at[k]) - mean[k]) * factor[k] + term[k] + widen(rest.at[k]);
            values[k] = relu ? greatest(value, W(0)) : value;
        }
        put_some(y + row + share.column, values, share.valid, share.packed, false);
    });
}

// dy where it counts: where y > 0, if there is y.
template <class N>
__device__ void counted_slopes(const Share<N>& share, const N* y, const N* dy, u64 row, Wide<N> (&slopes)[PACKED<N>]) {
    auto slope = share.read(dy + row);
    Pack<N, PACKED<N>> open = {};
    if (y) open = share.read(y + row);
#pragma unroll
    for (int k = 0; k < PACKED<N>; k++)
        slopes[k] = !y || widen(open.at[k]) > Wide<N>(0) ? Wide<N>(widen(slope.at[k])) : Wide<N>(0);
}

// Term 0: dy · (x − mean), term 1: dy.
template <class N>
__device__ void batch_slopes_of_segments(const N* x, const Wide<N>* means, const N* y, const N* dy, Wide<N>* partial,
                                         u64 rows, u64 columns, u64 per_segment) {
    typedef Wide<N> W;
    Share<N> share(columns, is_aligned(x) && is_aligned(y) && is_aligned(dy));
    W mean[PACKED<N>];
    share.spread(means, mean);
    sum_segments<2>(rows, columns, per_segment, share, partial, [&](u64 row, auto& sums) {
        auto value = share.read(x + row * columns);
        W slopes[PACKED<N>];
        counted_slopes(share, y, dy, row * columns, slopes);
#pragma unroll
        for (int k = 0; k < PACKED<N>; k++) {
            sums[k] += slopes[k] * (widen(value.at[k]) - mean[k]);
            sums[PACKED<N> + k] += slopes[k];
        }
    });
}

// dgain = rstd · Σ dy · (x − mean), dbias = Σ dy; and for dx, per row, shifts = Σ dy / m and
// slopes = rstd² · Σ dy · (x − mean) / m.
template <class W, class G>
__device__ void batch_slopes(const W* partial, const W* variances, G* dgain, G* dbias, W* shifts, W* slopes, u64 rows,
                             u64 columns, u64 segments) {
    u64 j = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    W own[2] = {};
    if (j < columns)
        for (u64 s = threadIdx.y; s < segments; s += blockDim.y) {
            own[0] += partial[2 * s * columns + j];
            own[1] += partial[(2 * s + 1) * columns + j];
        }
    join_rows(own, Plus());
    if (j >= columns || threadIdx.y) return;
    W rstd = one_over_root(variances[j] + W(EPSILON));
    put(dgain + j, own[0] * rstd, false);
    put(dbias + j, own[1], false);
    shifts[j] = own[1] / W(rows);
    slopes[j] = own[0] * rstd * rstd / W(rows);
}

// dx = gain · rstd · (dy − shift − (x − mean) · slope).
template <class N>
__device__ void batch_norm_backward(const N* x, const N* gain, const Wide<N>* means, const Wide<N>* variances,
                                    const N* y, const N* dy, const Wide<N>* shifts, const Wide<N>* slopes, N* dx,
                                    u64 rows, u64 columns, bool add) {
    typedef Wide<N> W;
    constexpr int COUNT = PACKED<N>;
    Share<N> share(columns, is_aligned(x) && is_aligned(y) && is_aligned(dy) && is_aligned(dx));
    W mean[COUNT], factor[COUNT], spread[COUNT], shift[COUNT], slope[COUNT];
    share.spread(means, mean);
    share.spread(variances, spread);
    share.spread(gain, factor);
    share.spread(shifts, shift);
    share.spread(slopes, slope);
#pragma unroll
    for (int k = 0; k < COUNT; k++) factor[k] *= one_over_root(spread[k] + W(EPSILON));
    if (!share.valid) return;
    each_row(rows, columns, [&](u64 row) {
        auto value = share.read(x + row);
        W values[COUNT];
        counted_slopes(share, y, dy, row, values);
#pragma unroll
        for (int k = 0; k < COUNT; k++)
            values[k] = factor[k] * (values[k] - shift[k] - (widen(value.at[k]) - mean[k]) * slope[k]);
        put_some(dx + row + share.column, values, share.valid, share.packed, add);
    });
}

#define EXPORT(N)                                                                                                  \
    KERNEL(256, moments_of_segments_##N,                                                                           \
           (const N* x, Wide<N>* partial, u64 rows, u64 columns, u64 per_segment, const Scalars* scalars),         \
           moments_of_segments(x, partial, rows, columns, per_segment, scalars))                                   \
    KERNEL(256, moments_##N,                                                                                       \
           (const Wide<N>* partial, const N* running_mean, const N* running_variance, Wide<N>* means,              \
            Wide<N>* variances, u64 rows, u64 columns, u64 per_segment, const Scalars* scalars),                   \
           moments(partial, running_mean, running_variance, means, variances, rows, columns, per_segment, scalars)) \
    KERNEL(256, batch_norm_##N,                                                                                    \
           (const N* x, const N* gain, const N* bias, const Wide<N>* means, const Wide<N>* variances,              \
            const N* residual, N* y, u64 rows, u64 columns, u32 relu),                                             \
           batch_norm(x, gain, bias, means, variances, residual, y, rows, columns, relu))                          \
    KERNEL(256, batch_slopes_of_segments_##N,                                                                      \
           (const N* x, const Wide<N>* means, const N* y, const N* dy, Wide<N>* partial, u64 rows, u64 columns,    \
            u64 per_segment),                                                                                      \
           batch_slopes_of_segments(x, means, y, dy, partial, rows, columns, per_segment))                         \
    KERNEL(256, batch_norm_backward_##N,                                                                           \
           (const N* x, const N* gain, const Wide<N>* means, const Wide<N>* variances, const N* y, const N* dy,    \
            const Wide<N>* shifts, const Wide<N>* slopes, N* dx, u64 rows, u64 columns, u32 add),                  \
           batch_norm_backward(x, gain, means, variances, y, dy, shifts, slopes, dx, rows, columns, add))
FOR_NUMBERS(EXPORT)
#undef EXPORT

#define EXPORT(W, G)                                                                                               \
    KERNEL(256, batch_slopes_##W##_##G,                                                                            \
           (const W* partial, const W* variances, G* dgain, G* dbias, W* shifts, W* slopes, u64 rows, u64 columns, \
            u64 segments),                                                                                         \
           batch_slopes(partial, variances, dgain, dbias, shifts, slopes, rows, columns, segments))
EXPORT(f32, f32)
EXPORT(f64, f64)
EXPORT(f32, bf16)
EXPORT(f32, f16)
#undef EXPORT
