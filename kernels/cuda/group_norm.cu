// Group normalisation (Wu and He, arXiv 1803.08494).

constexpr f64 EPSILON = 1e-5;

// The values of one group of one example, one block each: positions, and columns side by side.
struct Group {
    u64 first, column, width, columns, size;

    __device__ Group(u64 positions, u64 columns, u64 width)
        : column(blockIdx.x % (columns / width) * width), width(width), columns(columns), size(positions * width) {
        first = blockIdx.x / (columns / width) * positions * columns;
    }
    // Calls body(column, place, width) for all values, width.count at once if they are packed.
    template <class N, class Body>
    __device__ void each(bool aligned, Body body) const {
        constexpr int COUNT = PACKED<N>;
        bool packed = aligned && width % COUNT == 0 && columns % COUNT == 0;
        for_each_in_row<COUNT>(size, packed, [&](u64 e, auto pack) {
            u64 position = e / width, own = column + e - position * width;
            body(own, first + position * columns + own, pack);
        });
    }
};

template <class N>
__device__ void group_norm(const N* x, const N* gain, const N* bias, N* y, Wide<N>* means, Wide<N>* rstds,
                           u64 positions, u64 columns, u64 width) {
    typedef Wide<N> W;
    Group group(positions, columns, width);
    auto mean_of = [&](auto term) {
        W total = W(0);
        group.each<N>(is_aligned(x), [&](u64, u64 place, auto pack) {
            auto values = load<decltype(pack)::count>(x + place);
#pragma unroll
            for (int k = 0; k < decltype(pack)::count; k++) total += term(widen(values.at[k]));
        });
        return row_sum(total) / W(group.size);
    };
    W mean = mean_of([](W x) { return x; });
    W rstd = one_over_root(mean_of([mean](W x) { return (x - mean) * (x - mean); }) + W(EPSILON));
    bool aligned = is_aligned(x) && is_aligned(gain) && is_aligned(bias) && is_aligned(y);
    group.each<N>(aligned, [&](u64 column, u64 place, auto pack) {
        constexpr int COUNT = decltype(pack)::count;
        auto from = load<COUNT>(x + place), factor = load<COUNT>(gain + column), term = load<COUNT>(bias + column);
        W values[COUNT];
#pragma unroll
        for (int k = 0; k < COUNT; k++)
            values[k] = (widen(from.at[k]) - mean) * rstd * widen(factor.at[k]) + widen(term.at[k]);
        put_pack(y + place, values, false);
    });
    if (threadIdx.x) return;
    means[blockIdx.x] = mean;
    rstds[blockIdx.x] = rstd;
}

// dx = rstd · (g − avg(g) − x̂ · avg(g · x̂)), g = dy · gain.
template <class N>
__device__ void group_norm_backward(const N* x, const N* gain, const Wide<N>* means, const Wide<N>* rstds,
                                    const N* dy, N* dx, u64 positions, u64 columns, u64 width, bool add) {
    typedef Wide<N> W;
    Group group(positions, columns, width);
    W mean = means[blockIdx.x], rstd = rstds[blockIdx.x], average = W(0), along = W(0);
    bool aligned = is_aligned(x) && is_aligned(gain) && is_aligned(dy) && is_aligned(dx);
    auto all = [&](auto body) {
        group.each<N>(aligned, [&](u64 column, u64 place, auto pack) {
            constexpr int COUNT = decltype(pack)::count;
            auto value = load<COUNT>(x + place), slope = load<COUNT>(dy + place), factor = load<COUNT>(gain + column);
            W normal[COUNT], scaled[COUNT];
#pragma unroll
            for (int k = 0; k < COUNT; k++) {
                normal[k] = (widen(value.at[k]) - mean) * rstd;
                scaled[k] = widen(slope.at[k]) * widen(factor.at[k]);
            }
            body(place, normal, scaled, pack);
        });
    };
    all([&](u64, auto& normal, auto& scaled, auto pack) {
#pragma unroll
        for (int k = 0; k < decltype(pack)::count; k++) {
            average += scaled[k];
            along += scaled[k] * normal[k];
        }
    });
    average = row_sum(average) / W(group.size);
    along = row_sum(along) / W(group.size);
    all([&](u64 place, auto& normal, auto& scaled, auto pack) {
#pragma unroll
        for (int k = 0; k < decltype(pack)::count; k++)
            scaled[k] = rstd * (scaled[k] - average - normal[k] * along);
        put_pack(dx + place, scaled, add);
    });
}

// Term 0: dy · x̂, term 1: dy.
template <class N>
__device__ void group_slopes_of_segments(const N* x, const Wide<N>* means, const Wide<N>* rstds, const N* dy,
                                         u64 positions, u64 width, Wide<N>* partial, u64 rows, u64 columns,
                                         u64 per_segment) {
    constexpr int COUNT = PACKED<N>;
    Share<N> share(columns, is_aligned(x) && is_aligned(dy));
    u64 groups[COUNT];
#pragma unroll
    for (int k = 0; k < COUNT; k++) groups[k] = least(share.column + k, columns - 1) / width;
    auto read = [=](auto way, u64 place) { return Both<N>{way.read(x + place), way.read(dy + place)}; };
    sum_segments<2, 1>(rows, columns, per_segment, share, partial, read, [&](auto& sums, const auto& met, u64 row) {
        u64 first = row / positions * (columns / width);
#pragma unroll
        for (int k = 0; k < COUNT; k++) {
            u64 group = first + groups[k];
            sums[k] += widen(met.right.at[k]) * ((widen(met.left.at[k]) - means[group]) * rstds[group]);
            sums[COUNT + k] += widen(met.right.at[k]);
        }
    });
}

#define EXPORT(N)                                                                                                  \
    KERNEL(256, group_norm_##N,                                                                                    \
           (const N* x, const N* gain, const N* bias, N* y, Wide<N>* means, Wide<N>* rstds, u64 positions,         \
            u64 columns, u64 width),                                                                               \
           group_norm(x, gain, bias, y, means, rstds, positions, columns, width))                                  \
    KERNEL(256, group_norm_backward_##N,                                                                           \
           (const N* x, const N* gain, const Wide<N>* means, const Wide<N>* rstds, const N* dy, N* dx,             \
            u64 positions, u64 columns, u64 width, u32 add),                                                       \
           group_norm_backward(x, gain, means, rstds, dy, dx, positions, columns, width, add))                     \
    KERNEL(256, group_slopes_of_segments_##N,                                                                      \
           (const N* x, const Wide<N>* means, const Wide<N>* rstds, const N* dy, u64 positions, u64 width,         \
            Wide<N>* partial, u64 rows, u64 columns, u64 per_segment),                                             \
           group_slopes_of_segments(x, means, rstds, dy, positions, width, partial, rows, columns, per_segment))
FOR_NUMBERS(EXPORT)
#undef EXPORT
