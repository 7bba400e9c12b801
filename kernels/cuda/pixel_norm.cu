// Group normalisation (Wu and He, arXiv 1803.08494), and batch and group normalisation of images whose pixels
// several devices divide equally. Of (examples, positions, columns) a statistic is of one example and `width`
// neighbouring columns: of a batch norm there is one example of all pixels, and a column has a statistic of its own.

constexpr f64 EPSILON = 1e-5;

// What statistics are given beside means: variances, or one over their roots.
struct Variances {
    template <class W>
    __device__ static W rstd(W variance) {
        return one_over_root(variance + W(EPSILON));
    }
};
struct OverRoots {
    template <class W>
    __device__ static W rstd(W rstd) {
        return rstd;
    }
};

// Rows in stretches, none of which has rows of two examples: `each` of every example, of `rows` rows but for the
// last one. A block along x has one, of columns along y.
struct Stretches {
    u64 examples, positions, columns, width, rows, each;

    // The example of the block's stretch, and the thread's rows of it.
    __device__ u64 example() const { return blockIdx.x / u32(each); }
    __device__ Rows own() const {
        u64 begin = example() * positions, first = blockIdx.x % u32(each) * rows;
        return {begin + first + threadIdx.y, begin + least(positions, first + rows), blockDim.y, columns};
    }
    __device__ u64 groups() const { return columns / width; }
    __device__ u64 statistics() const { return examples * groups(); }
    // Elements of a column in a stretch with this number in its example.
    __device__ u64 count(u64 number) const { return number + 1 == each ? positions - number * rows : rows; }
    // Of each of the thread's columns the statistic in the example.
    template <class N>
    __device__ void spread(const Share<N>& share, const Wide<N>* from, Wide<N> (&to)[PACKED<N>]) const {
#pragma unroll
        for (int k = 0; k < PACKED<N>; k++)
            to[k] = u64(k) < share.valid ? from[example() * groups() + (share.column + k) / width] : Wide<N>(0);
    }
    // Calls meet(terms, column, number) for what the thread joins of two terms of statistic t: every stretch,
    // by its number in the example, and every column. Of several all is read before any is met.
    template <class W, class Meet>
    __device__ void each_of_statistic(const W* partial, u64 t, Meet meet) const {
        u64 first = t / groups() * each, column = t % groups() * width;
        Rows{threadIdx.y, each * width, blockDim.y, 1}.template each<2>(
            [=](u64 i) {
                const W* at = partial + (first + i / width) * 2 * columns + column + i % width;
                return Pack<W, 2>{at[0], at[columns]};
            },
            [&](const Pack<W, 2>& terms, u64, u64 i) { meet(terms.at, column + i % width, i / width); });
    }
};

// The moments of the block's stretch.
template <class N>
__device__ void moments_of_stretches(const N* x, Wide<N>* partial, const Stretches& all) {
    Share<N> share(all.columns, is_aligned(x), blockIdx.y);
    moments_of_segment([&] { return all.own(); }, blockIdx.x, all.columns, share, x, partial);
}

// Calls put(t, mean, Σ (x − mean)²) for every statistic t of own pixels.
template <class W, class Put>
__device__ void join_stretches(const W* partial, const Stretches& all, Put put) {
    u64 t = thread_of_grid(), statistics = all.statistics();
    W own[3] = {};
    if (t < statistics)
        all.each_of_statistic(partial, t, [&](const W (&terms)[2], u64, u64 number) {
            W other[3] = {terms[0], terms[1], W(all.count(number))};
            JoinMoments()(own, other);
        });
    join_rows(own, JoinMoments());
    if (t < statistics && threadIdx.y == 0) put(t, own[0], own[1]);
}

// moments_0 = the means of own pixels, moments_1 = Σ (x − mean)².
template <class W>
__device__ void pixel_moments(const W* partial, W* moments, const Stretches& all) {
    join_stretches(partial, all, [&](u64 t, W mean, W squares) {
        moments[t] = mean;
        moments[all.statistics() + t] = squares;
    });
}

// The means of all pixels, and one over the roots of their variances.
template <class W>
__device__ void group_statistics(const W* partial, W* means, W* rstds, const Stretches& all) {
    join_stretches(partial, all, [&](u64 t, W mean, W squares) {
        means[t] = mean;
        rstds[t] = Variances::rstd(squares / W(all.positions * all.width));
    });
}

// The mean and the variance of all pixels, of `count` elements of each part: mean = the mean of means, variance =
// Σ (squares + count (mean_p − mean)²) / all. Where there are running ones they are taken outside of training.
template <class N>
__device__ void pixel_statistics(const Wide<N>* moments, const N* running_mean, const N* running_variance,
                                 Wide<N>* means, Wide<N>* variances, u64 parts, u64 statistics, u64 count,
                                 const Scalars* scalars) {
    typedef Wide<N> W;
    bool running = running_mean && !scalars->training;
    for (u64 t = thread_of_grid(); t < statistics; t += threads_of_grid()) {
        if (running) {
            means[t] = W(widen(running_mean[t]));
            variances[t] = W(widen(running_variance[t]));
            continue;
        }
        W mean = W(0), squares = W(0);
        for (u64 p = 0; p < parts; p++) mean += moments[2 * p * statistics + t];
        mean /= W(parts);
        for (u64 p = 0; p < parts; p++) {
            W apart = moments[2 * p * statistics + t] - mean;
            squares += moments[(2 * p + 1) * statistics + t] + W(count) * apart * apart;
        }
        means[t] = mean;
        variances[t] = squares / (W(count) * W(parts));
    }
}

// y = (x − mean) · rstd · gain + bias.
template <class Given, class N>
__device__ void norm_stretches(const N* x, const N* gain, const N* bias, const Wide<N>* means, const Wide<N>* given,
                               N* y, const Stretches& all) {
    typedef Wide<N> W;
    constexpr int COUNT = PACKED<N>;
    Share<N> share(all.columns, is_aligned(x) && is_aligned(y), blockIdx.y);
    W mean[COUNT], factor[COUNT], term[COUNT], rstd[COUNT];
    all.spread(share, means, mean);
    all.spread(share, given, rstd);
    share.spread(gain, factor);
    share.spread(bias, term);
#pragma unroll
    for (int k = 0; k < COUNT; k++) factor[k] *= Given::rstd(rstd[k]);
    share.go([&](auto way) {
        auto read = [&](u64 place) { return way.read(x + place); };
        all.own().template each<way.rows(2)>(read, [&](const auto& pack, u64 place, u64) {
            auto wide = widen(pack);
            W values[COUNT];
#pragma unroll
            for (int k = 0; k < COUNT; k++) values[k] = fused(wide.at[k] - mean[k], factor[k], term[k]);
            way.put(y + place, values, false);
        });
    });
}

// Term 0: dy · x̂, term 1: dy.
template <class Given, class N>
__device__ void slopes_of_stretches(const N* x, const Wide<N>* means, const Wide<N>* given, const N* dy,
                                    Wide<N>* partial, const Stretches& all) {
    typedef Wide<N> W;
    constexpr int COUNT = PACKED<N>;
    Share<N> share(all.columns, is_aligned(x) && is_aligned(dy), blockIdx.y);
    W mean[COUNT], rstd[COUNT];
    all.spread(share, means, mean);
    all.spread(share, given, rstd);
#pragma unroll
    for (int k = 0; k < COUNT; k++) rstd[k] = Given::rstd(rstd[k]);
    auto own = [&] { return all.own(); };
    auto read = [=](auto way, u64 place) { return Both<N>{way.read(x + place), way.read(dy + place)}; };
    sum_segment<2, 2>(own, blockIdx.x, all.columns, share, partial, read, [&](auto& sums, const auto& met, u64) {
        auto value = widen(met.left), slope = widen(met.right);
#pragma unroll
        for (int k = 0; k < COUNT; k++) {
            sums[k] += slope.at[k] * ((value.at[k] - mean[k]) * rstd[k]);
            sums[COUNT + k] += slope.at[k];
        }
    });
}

// slopes_0 = Σ g · x̂, slopes_1 = Σ g, g = dy · gain.
template <class N>
__device__ void pixel_slopes(const Wide<N>* partial, const N* gain, Wide<N>* slopes, const Stretches& all) {
    typedef Wide<N> W;
    u64 t = thread_of_grid(), statistics = all.statistics();
    W own[2] = {};
    if (t < statistics)
        all.each_of_statistic(partial, t, [&](const W (&terms)[2], u64 column, u64) {
            W factor = widen(gain[column]);
            own[0] += terms[0] * factor;
            own[1] += terms[1] * factor;
        });
    join_rows(own, Plus());
    if (t >= statistics || threadIdx.y) return;
    slopes[t] = own[0];
    slopes[statistics + t] = own[1];
}

// dx = rstd · (g − Σ g / count − x̂ · Σ (g · x̂) / count), the sums over the `count` elements of all parts.
template <class Given, class N>
__device__ void norm_stretches_backward(const N* x, const N* gain, const Wide<N>* means, const Wide<N>* given,
                                        const N* dy, const Wide<N>* slopes, N* dx, const Stretches& all, u64 count,
                                        bool add) {
    typedef Wide<N> W;
    constexpr int COUNT = PACKED<N>;
    Share<N> share(all.columns, is_aligned(x) && is_aligned(dy) && is_aligned(dx), blockIdx.y);
    W mean[COUNT], factor[COUNT], shift[COUNT], slope[COUNT], own[COUNT];
    all.spread(share, means, mean);
    all.spread(share, given, own);
    all.spread(share, slopes, slope);
    all.spread(share, slopes + all.statistics(), shift);
    share.spread(gain, factor);
#pragma unroll
    for (int k = 0; k < COUNT; k++) {
        W rstd = Given::rstd(own[k]);
        factor[k] *= rstd;
        shift[k] *= rstd / W(count);
        slope[k] *= rstd * rstd / W(count);
    }
    share.go([&](auto way) {
        auto read = [&](u64 place) { return Both<N>{way.read(x + place), way.read(dy + place)}; };
        all.own().template each<way.rows(2)>(read, [&](const auto& met, u64 place, u64) {
            auto value = widen(met.left), dy = widen(met.right);
            W values[COUNT];
#pragma unroll
            for (int k = 0; k < COUNT; k++)
                values[k] = factor[k] * dy.at[k] - shift[k] - (value.at[k] - mean[k]) * slope[k];
            way.put(dx + place, values, add);
        });
    });
}

#define STRETCHES u64 examples, u64 positions, u64 columns, u64 width, u64 rows, u64 each
#define ALL (Stretches{examples, positions, columns, width, rows, each})

// Norms by variances, and by one over their roots: NAME is `pixel` or `group`.
#define EXPORT_BY(N, NAME, GIVEN)                                                                                   \
    KERNEL_TOGETHER(3, 256, NAME##_norm_##N,                                                                        \
           (const N* x, const N* gain, const N* bias, const Wide<N>* means, const Wide<N>* given, N* y,             \
            STRETCHES),                                                                                             \
           norm_stretches<GIVEN>(x, gain, bias, means, given, y, ALL))                                              \
    KERNEL_TOGETHER(3, 256, NAME##_slopes_of_stretches_##N,                                                         \
           (const N* x, const Wide<N>* means, const Wide<N>* given, const N* dy, Wide<N>* partial, STRETCHES),      \
           slopes_of_stretches<GIVEN>(x, means, given, dy, partial, ALL))                                           \
    KERNEL_TOGETHER(3, 256, NAME##_norm_backward_##N,                                                               \
           (const N* x, const N* gain, const Wide<N>* means, const Wide<N>* given, const N* dy,                     \
            const Wide<N>* slopes, N* dx, STRETCHES, u64 count, u32 add),                                           \
           norm_stretches_backward<GIVEN>(x, gain, means, given, dy, slopes, dx, ALL, count, add))

#define EXPORT(N)                                                                                                   \
    EXPORT_BY(N, pixel, Variances)                                                                                  \
    EXPORT_BY(N, group, OverRoots)                                                                                  \
    KERNEL_TOGETHER(3, 256, pixel_moments_of_stretches_##N, (const N* x, Wide<N>* partial, STRETCHES),              \
           moments_of_stretches(x, partial, ALL))                                                                   \
    KERNEL(256, pixel_statistics_##N,                                                                               \
           (const Wide<N>* moments, const N* running_mean, const N* running_variance, Wide<N>* means,               \
            Wide<N>* variances, u64 parts, u64 statistics, u64 count, const Scalars* scalars),                      \
           pixel_statistics(moments, running_mean, running_variance, means, variances, parts, statistics, count,    \
                            scalars))                                                                               \
    KERNEL(256, pixel_slopes_##N, (const Wide<N>* partial, const N* gain, Wide<N>* slopes, STRETCHES),              \
           pixel_slopes(partial, gain, slopes, ALL))
FOR_NUMBERS(EXPORT)
#undef EXPORT

#define EXPORT(W)                                                                                                   \
    KERNEL(256, pixel_moments_##W, (const W* partial, W* moments, STRETCHES), pixel_moments(partial, moments, ALL)) \
    KERNEL(256, group_statistics_##W, (const W* partial, W* means, W* rstds, STRETCHES),                            \
           group_statistics(partial, means, rstds, ALL))
EXPORT(f32)
EXPORT(f64)
#undef EXPORT
