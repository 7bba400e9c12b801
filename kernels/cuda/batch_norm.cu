// Batch normalisation (Ioffe and Szegedy, arXiv 1502.03167).

constexpr f64 EPSILON = 1e-5;

// The moments of the block's segment; nothing outside of training.
template <class N>
__device__ void moments_of_segments(const N* x, Wide<N>* partial, u64 rows, u64 columns, u64 per_segment,
                                    const Scalars* scalars) {
    if (!scalars->training) return;
    Share<N> share(columns, is_aligned(x));
    auto which = [&] { return rows_of_segment(rows, columns, per_segment); };
    moments_of_segment(which, blockIdx.y, columns, share, x, partial);
}

// Mean, Σ (x − mean)² and count of a column over all segments that are the thread's. All but the last have as
// many rows. Means are taken from the first one on, which is near to all others, so that nothing is divided
// before the end.
template <class W>
__device__ void moments_of_column(W (&own)[3], const W* partial, u64 rows, u64 columns, u64 per_segment,
                                  u64 segments) {
    W each = W(per_segment), last = W(rows - (segments - 1) * per_segment);
    W base = partial[2 * threadIdx.y * columns], apart = W(0), around = W(0);
    each_segment<2>(partial, segments, 2 * columns, columns, [&](const W (&terms)[2], u64 s) {
        W count = s + 1 == segments ? last : each, from_base = terms[0] - base;
        own[1] += terms[1];
        own[2] += count;
        apart += count * from_base;
        around += count * from_base * from_base;
    });
    W mean = apart / own[2];
    own[0] = base + mean;
    own[1] += greatest(around - apart * mean, W(0));
}

// The mean and the variance of every column: of all segments in training, else the running ones.
template <class N>
__device__ void moments(const Wide<N>* partial, const N* running_mean, const N* running_variance, Wide<N>* means,
                        Wide<N>* variances, u64 rows, u64 columns, u64 per_segment, const Scalars* scalars) {
    typedef Wide<N> W;
    u64 j = u64(blockIdx.x) * blockDim.x + threadIdx.x, segments = (rows + per_segment - 1) / per_segment;
    if (!scalars->training) segments = 0;
    W own[3] = {};
    if (j < columns && threadIdx.y < segments)
        moments_of_column(own, partial + j, rows, columns, per_segment, segments);
    join_rows(own, JoinMoments());
    if (j >= columns || threadIdx.y) return;
    means[j] = segments ? own[0] : W(widen(running_mean[j]));
    variances[j] = segments ? own[1] / W(rows) : W(widen(running_variance[j]));
}

// The norm of columns, (x − mean) · factor + bias, rounded once behind x − mean however a function is
// compiled: backward makes it again, and every number must be > 0 there where it was forward.
template <class N>
struct Norm {
    typedef Wide<N> W;
    W mean[PACKED<N>], factor[PACKED<N>], bias[PACKED<N>];

    __device__ Norm(const Share<N>& share, const N* gains, const N* biases, const W* means, const W* variances) {
        W variance[PACKED<N>];
        share.spread(means, mean);
        share.spread(variances, variance);
        share.spread(gains, factor);
        share.spread(biases, bias);
#pragma unroll
        for (int k = 0; k < PACKED<N>; k++) factor[k] *= one_over_root(variance[k] + W(EPSILON));
    }
    __device__ W of(W value, int k) const { return fused(value - mean[k], factor[k], bias[k]); }
    // Whether the norm is > 0 when it is stored.
    __device__ bool is_open(W value, int k) const { return of(value, k) > W(ROUNDED_TO_ZERO<N>); }
};

// y = (x − mean) / √(variance + ε) · gain + bias, plus the residual where there is one, and
// max(·, 0) of that if `relu`.
template <class N>
__device__ void batch_norm(const N* x, const N* gain, const N* bias, const Wide<N>* means, const Wide<N>* variances,
                           const N* residual, N* y, u64 rows, u64 columns, u64 per_segment, bool relu) {
    typedef Wide<N> W;
    constexpr int COUNT = PACKED<N>;
    Share<N> share(columns, is_aligned(x) && is_aligned(residual) && is_aligned(y));
    Norm<N> norm(share, gain, bias, means, variances);
    share.go([&](auto way) {
        auto put = [&](W(&values)[COUNT], u64 place) {
#pragma unroll
            for (int k = 0; k < COUNT; k++) values[k] = relu ? rectified(values[k]) : values[k];
            way.put(y + place, values, false);
        };
        RowsBack own = rows_back(rows, columns, per_segment);
        if (residual) {
            auto read = [&](u64 place) { return Both<N>{way.read(x + place), way.read(residual + place)}; };
            own.template each<way.rows(2)>(read, [&](const auto& both, u64 place) {
                auto left = widen(both.left), right = widen(both.right);
                W values[COUNT];
#pragma unroll
                for (int k = 0; k < COUNT; k++) values[k] = norm.of(left.at[k], k) + right.at[k];
                put(values, place);
            });
        } else {
            auto read = [&](u64 place) { return way.read(x + place); };
            own.template each<way.rows(2)>(read, [&](const auto& pack, u64 place) {
                auto wide = widen(pack);
                W values[COUNT];
#pragma unroll
                for (int k = 0; k < COUNT; k++) values[k] = norm.of(wide.at[k], k);
                put(values, place);
            });
        }
    });
}

// What gradients are made of: x, dy, and y where it says which of dy count.
template <class N>
struct Slopes {
    const N *x, *y, *dy;

    struct Read {
        Pack<N, PACKED<N>> x, y, dy;
    };
    // Without y, dy is read in its place and not looked at.
    template <class Ways>
    __device__ Read read(const Ways& way, u64 place) const {
        return {way.read(x + place), way.read((y ? y : dy) + place), way.read(dy + place)};
    }
    // dy where it counts: where y > 0, if there is y.
    __device__ Pack<Wide<N>, PACKED<N>> slopes(const Read& read, const Pack<Wide<N>, PACKED<N>>&) const {
        auto open = widen(read.y), slopes = widen(read.dy);
#pragma unroll
        for (int k = 0; k < PACKED<N>; k++)
            if (y && !(open.at[k] > Wide<N>(0))) slopes.at[k] = Wide<N>(0);
        return slopes;
    }
};

// The same where the norm of x says which of dy count: where it is > 0 when it is stored.
template <class N>
struct SlopesAgain {
    const N *x, *dy;
    const Norm<N>& norm;

    struct Read {
        Pack<N, PACKED<N>> x, dy;
    };
    template <class Ways>
    __device__ Read read(const Ways& way, u64 place) const {
        return {way.read(x + place), way.read(dy + place)};
    }
    __device__ Pack<Wide<N>, PACKED<N>> slopes(const Read& read, const Pack<Wide<N>, PACKED<N>>& x) const {
        auto slopes = widen(read.dy);
#pragma unroll
        for (int k = 0; k < PACKED<N>; k++)
            if (!norm.is_open(x.at[k], k)) slopes.at[k] = Wide<N>(0);
        return slopes;
    }
};

// Adds term 0: dy · (x − mean), and term 1: dy.
template <class N>
__device__ void add_slopes(Wide<N> (&sums)[2 * PACKED<N>], const Pack<Wide<N>, PACKED<N>>& x,
                           const Pack<Wide<N>, PACKED<N>>& dy, const Wide<N> (&mean)[PACKED<N>]) {
#pragma unroll
    for (int k = 0; k < PACKED<N>; k++) {
        sums[k] += dy.at[k] * (x.at[k] - mean[k]);
        sums[PACKED<N> + k] += dy.at[k];
    }
}

template <class N, class All>
__device__ void sum_slopes(const All& all, const Share<N>& share, const Wide<N> (&mean)[PACKED<N>], Wide<N>* partial,
                           u64 rows, u64 columns, u64 per_segment) {
    auto read = [&](auto way, u64 place) { return all.read(way, place); };
    sum_segments<2, 2>(rows, columns, per_segment, share, partial, read, [&](auto& sums, const auto& met, u64) {
        auto value = widen(met.x);
        add_slopes<N>(sums, value, all.slopes(met, value), mean);
    });
}

template <class N>
__device__ void batch_slopes_of_segments(const N* x, const Wide<N>* means, const N* y, const N* dy, Wide<N>* partial,
                                         u64 rows, u64 columns, u64 per_segment) {
    Share<N> share(columns, is_aligned(x) && is_aligned(y) && is_aligned(dy));
    Wide<N> mean[PACKED<N>];
    share.spread(means, mean);
    sum_slopes(Slopes<N>{x, y, dy}, share, mean, partial, rows, columns, per_segment);
}

// The same, and dt: dy where y > 0, else 0, which may lie where y does.
template <class N>
__device__ void batch_slopes_opened(const N* x, const Wide<N>* means, const N* y, const N* dy, N* dt,
                                    Wide<N>* partial, u64 rows, u64 columns, u64 per_segment) {
    Share<N> share(columns, is_aligned(x) && is_aligned(y) && is_aligned(dy) && is_aligned(dt));
    Wide<N> mean[PACKED<N>], sums[2 * PACKED<N>] = {};
    share.spread(means, mean);
    Slopes<N> all{x, y, dy};
    share.go([&](auto way) {
        auto read = [&](u64 place) { return all.read(way, place); };
        rows_of_segment(rows, columns, per_segment)
            .template each<way.rows(2)>(read, [&](const auto& met, u64 place, u64) {
                auto value = widen(met.x), slopes = all.slopes(met, value);
                way.put(dt + place, slopes.at, false);
                add_slopes<N>(sums, value, slopes, mean);
            });
    });
    join_rows(sums, Plus());
    store_segment<2>(sums, share, blockIdx.y, columns, partial);
}

template <class N>
__device__ void batch_slopes_again(const N* x, const Wide<N>* means, const N* gain, const Wide<N>* variances,
                                   const N* bias, const N* dy, Wide<N>* partial, u64 rows, u64 columns,
                                   u64 per_segment) {
    Share<N> share(columns, is_aligned(x) && is_aligned(dy));
    Norm<N> norm(share, gain, bias, means, variances);
    sum_slopes(SlopesAgain<N>{x, dy, norm}, share, norm.mean, partial, rows, columns, per_segment);
}

// dgain = rstd · Σ dy · (x − mean), dbias = Σ dy; dmean and dvariance, what the micro-batch adds to the averages of
// its statistics; and for dx, per row, shifts = Σ dy / m and slopes = rstd² · Σ dy · (x − mean) / m.
template <class W, class G>
__device__ void batch_slopes(const W* partial, const W* means, const W* variances, G* dgain, G* dbias, G* dmean,
                             G* dvariance, W* shifts, W* slopes, u64 rows, u64 columns, u64 segments, f64 unbiased,
                             bool add) {
    u64 j = u64(blockIdx.x) * blockDim.x + threadIdx.x;
    W own[2] = {};
    add_segments(own, partial, j, columns, segments);
    if (j >= columns || threadIdx.y) return;
    W variance = variances[j], rstd = one_over_root(variance + W(EPSILON));
    put_whole(dgain + j, own[0] * rstd, add);
    put_whole(dbias + j, own[1], add);
    put_whole(dmean + j, means[j], add);
    put_whole(dvariance + j, variance * W(unbiased), add);
    shifts[j] = own[1] / W(rows);
    slopes[j] = own[0] * rstd * rstd / W(rows);
}

// dx = factor · (dy − shift − (x − mean) · slope), where factor = gain · rstd.
template <class N, class All>
__device__ void spread_slopes(const All& all, const Share<N>& share, const Wide<N> (&mean)[PACKED<N>],
                              const Wide<N> (&factor)[PACKED<N>], const Wide<N>* shifts, const Wide<N>* slopes, N* dx,
                              u64 rows, u64 columns, u64 per_segment, bool add) {
    typedef Wide<N> W;
    constexpr int COUNT = PACKED<N>;
    W shift[COUNT], slope[COUNT];
    share.spread(shifts, shift);
    share.spread(slopes, slope);
    share.go([&](auto way) {
        auto read = [&](u64 place) { return all.read(way, place); };
        auto put = [&](const auto& met, u64 place) {
            auto value = widen(met.x), dy = all.slopes(met, value);
            W values[COUNT];
#pragma unroll
            for (int k = 0; k < COUNT; k++)
                values[k] = factor[k] * (dy.at[k] - shift[k] - (value.at[k] - mean[k]) * slope[k]);
            way.put(dx + place, values, add);
        };
        rows_back(rows, columns, per_segment).template each<way.rows(2)>(read, put);
    });
}

template <class N>
__device__ void batch_norm_backward(const N* x, const N* gain, const Wide<N>* means, const Wide<N>* variances,
                                    const N* y, const N* dy, const Wide<N>* shifts, const Wide<N>* slopes, N* dx,
                                    u64 rows, u64 columns, u64 per_segment, bool add) {
    typedef Wide<N> W;
    constexpr int COUNT = PACKED<N>;
    Share<N> share(columns, is_aligned(x) && is_aligned(y) && is_aligned(dy) && is_aligned(dx));
    W mean[COUNT], factor[COUNT], variance[COUNT];
    share.spread(means, mean);
    share.spread(variances, variance);
    share.spread(gain, factor);
#pragma unroll
    for (int k = 0; k < COUNT; k++) factor[k] *= one_over_root(variance[k] + W(EPSILON));
    spread_slopes(Slopes<N>{x, y, dy}, share, mean, factor, shifts, slopes, dx, rows, columns, per_segment,
                  add);
}

template <class N>
__device__ void batch_norm_backward_again(const N* x, const N* gain, const Wide<N>* means, const Wide<N>* variances,
                                          const N* bias, const N* dy, const Wide<N>* shifts, const Wide<N>* slopes,
                                          N* dx, u64 rows, u64 columns, u64 per_segment, bool add) {
    Share<N> share(columns, is_aligned(x) && is_aligned(dy) && is_aligned(dx));
    Norm<N> norm(share, gain, bias, means, variances);
    SlopesAgain<N> all{x, dy, norm};
    spread_slopes(all, share, norm.mean, norm.factor, shifts, slopes, dx, rows, columns, per_segment, add);
}

// dt = dy where the norm of x is > 0 when it is stored.
template <class N>
__device__ void relu_backward_again(const N* x, const N* gain, const N* bias, const Wide<N>* means,
                                    const Wide<N>* variances, const N* dy, N* dt, u64 rows, u64 columns,
                                    u64 per_segment, bool add) {
    Share<N> share(columns, is_aligned(x) && is_aligned(dy) && is_aligned(dt));
    Norm<N> norm(share, gain, bias, means, variances);
    SlopesAgain<N> all{x, dy, norm};
    share.go([&](auto way) {
        auto read = [&](u64 place) { return all.read(way, place); };
        auto put = [&](const auto& met, u64 place) {
            auto values = all.slopes(met, widen(met.x));
            way.put(dt + place, values.at, add);
        };
        rows_back(rows, columns, per_segment).template each<way.rows(2)>(read, put);
    });
}

#define EXPORT(N)                                                                                                  \
    KERNEL_TOGETHER(3, 256, moments_of_segments_##N,                                                               \
           (const N* x, Wide<N>* partial, u64 rows, u64 columns, u64 per_segment, const Scalars* scalars),         \
           moments_of_segments(x, partial, rows, columns, per_segment, scalars))                                   \
    KERNEL(256, moments_##N,                                                                                       \
           (const Wide<N>* partial, const N* running_mean, const N* running_variance, Wide<N>* means,              \
            Wide<N>* variances, u64 rows, u64 columns, u64 per_segment, const Scalars* scalars),                   \
           moments(partial, running_mean, running_variance, means, variances, rows, columns, per_segment, scalars)) \
    KERNEL_TOGETHER(3, 256, batch_norm_##N,                                                                        \
           (const N* x, const N* gain, const N* bias, const Wide<N>* means, const Wide<N>* variances,              \
            const N* residual, N* y, u64 rows, u64 columns, u64 per_segment, u32 relu),                            \
           batch_norm(x, gain, bias, means, variances, residual, y, rows, columns, per_segment, relu))             \
    KERNEL_TOGETHER(3, 256, batch_slopes_of_segments_##N,                                                          \
           (const N* x, const Wide<N>* means, const N* y, const N* dy, Wide<N>* partial, u64 rows, u64 columns,    \
            u64 per_segment),                                                                                      \
           batch_slopes_of_segments(x, means, y, dy, partial, rows, columns, per_segment))                         \
    KERNEL_TOGETHER(3, 256, batch_slopes_opened_##N,                                                               \
           (const N* x, const Wide<N>* means, const N* y, const N* dy, N* dt, Wide<N>* partial, u64 rows,          \
            u64 columns, u64 per_segment),                                                                         \
           batch_slopes_opened(x, means, y, dy, dt, partial, rows, columns, per_segment))                          \
    KERNEL_TOGETHER(3, 256, batch_norm_backward_##N,                                                               \
           (const N* x, const N* gain, const Wide<N>* means, const Wide<N>* variances, const N* y, const N* dy,    \
            const Wide<N>* shifts, const Wide<N>* slopes, N* dx, u64 rows, u64 columns, u64 per_segment, u32 add), \
           batch_norm_backward(x, gain, means, variances, y, dy, shifts, slopes, dx, rows, columns, per_segment,   \
                               add))                                                                               \
    KERNEL_TOGETHER(3, 256, batch_slopes_again_##N,                                                                \
           (const N* x, const Wide<N>* means, const N* gain, const Wide<N>* variances, const N* bias, const N* dy, \
            Wide<N>* partial, u64 rows, u64 columns, u64 per_segment),                                             \
           batch_slopes_again(x, means, gain, variances, bias, dy, partial, rows, columns, per_segment))           \
    KERNEL_TOGETHER(3, 256, batch_norm_backward_again_##N,                                                         \
           (const N* x, const N* gain, const Wide<N>* means, const Wide<N>* variances, const N* bias, const N* dy, \
            const Wide<N>* shifts, const Wide<N>* slopes, N* dx, u64 rows, u64 columns, u64 per_segment, u32 add), \
           batch_norm_backward_again(x, gain, means, variances, bias, dy, shifts, slopes, dx, rows, columns,       \
                                     per_segment, add))                                                            \
    KERNEL_TOGETHER(3, 256, relu_backward_again_##N,                                                               \
           (const N* x, const N* gain, const N* bias, const Wide<N>* means, const Wide<N>* variances, const N* dy, \
            N* dt, u64 rows, u64 columns, u64 per_segment, u32 add),                                               \
           relu_backward_again(x, gain, bias, means, variances, dy, dt, rows, columns, per_segment, add))
FOR_NUMBERS(EXPORT)
#undef EXPORT

#define EXPORT(W, G)                                                                                               \
    KERNEL(256, batch_slopes_##W##_##G,                                                                            \
           (const W* partial, const W* means, const W* variances, G* dgain, G* dbias, G* dmean, G* dvariance,      \
            W* shifts, W* slopes, u64 rows, u64 columns, u64 segments, f64 unbiased, u32 add),                     \
           batch_slopes(partial, means, variances, dgain, dbias, dmean, dvariance, shifts, slopes, rows, columns,  \
                        segments, unbiased, add))
EXPORT(f32, f32)
EXPORT(f64, f64)
EXPORT(f32, bf16)
EXPORT(f32, f16)
#undef EXPORT
