// Batch and group normalisation (Ioffe and Szegedy, arXiv 1502.03167; Wu and He, arXiv 1803.08494).

constexpr f64 EPSILON = 1e-5;

// Σ (x − mean)².
template <class N>
__device__ void squares_of_segments(const N* x, const Wide<N>* means, Wide<N>* partial, u64 rows, u64 columns,
                                    u64 per_segment) {
    sum_segments<1, N>(rows, columns, per_segment, is_aligned(x), partial,
                       [=](u64 row, u64 column, u64 valid, bool packed, auto& sums) {
        auto a = load_some<PACKED<N>>(x + row * columns + column, valid, packed);
#pragma unroll
        for (int k = 0; k < PACKED<N>; k++) {
            Wide<N> off = widen(a.at[k]) - means[column + least<u64>(k, valid - 1)];
            sums[0][k] += off * off;
        }
    });
}

// A moment of every column: Σ of the segments / rows in training, else the running one.
template <class N>
__device__ void moment(const Wide<N>* partial, const N* running, Wide<N>* out, u64 columns, u64 segments, u64 rows,
                       const Scalars* scalars) {
    typedef Wide<N> W;
    for (u64 j = thread_of_grid(); j < columns; j += threads_of_grid()) {
        W total = W(0);
        for (u64 s = 0; s < segments; s++) total += partial[s * columns + j];
        out[j] = scalars->training ? total / W(rows) : W(widen(running[j]));
    }
}

// y = (x − mean) / √(variance + ε) · gain + bias, plus the residual where there is one, and
// max(·, 0) of that if `relu`.
template <class N>
__device__ void batch_norm(const N* x, const N* gain, const N* bias, const Wide<N>* means, const Wide<N>* variances,
                           const N* residual, N* y, u64 count, u64 columns, bool relu) {
    typedef Wide<N> W;
    bool packed = is_aligned(x) && is_aligned(residual) && is_aligned(y) && columns % PACKED<N> == 0;
    for_each<PACKED<N>>(count, packed, [&](u64 i, auto width) {
        constexpr int COUNT = decltype(width)::count;
        auto pack = load<COUNT>(x + i);
        Pack<N, COUNT> rest = {};
        if (residual) rest = load<COUNT>(residual + i);
        u64 column = i % columns;
        W values[COUNT];
#pragma unroll
        for (int k = 0; k < COUNT; k++) {
            u64 j = column + k;
            W rstd = one_over_root(variances[j] + W(EPSILON));
            W value = (widen(pack.at[k]) - means[j]) * rstd * widen(gain[j]) + widen(bias[j]) + widen(rest.at[k]);
            values[k] = relu ? greatest(value, W(0)) : value;
        }
        put_pack(y + i, values, false);
    });
}

// Term 0: dy · x̂, term 1: dy, where dy counts only where y > 0 if there is y.
template <class N>
__device__ void batch_slopes_of_segments(const N* x, const Wide<N>* means, const Wide<N>* variances, const N* y,
                                         const N* dy, Wide<N>* partial, u64 rows, u64 columns, u64 per_segment) {
    typedef Wide<N> W;
    bool aligned = is_aligned(x) && is_aligned(y) && is_aligned(dy);
    sum_segments<2, N>(rows, columns, per_segment, aligned, partial,
                       [=](u64 row, u64 column, u64 valid, bool packed, auto& sums) {
        u64 at = row * columns + column;
        auto value = load_some<PACKED<N>>(x + at, valid, packed), slope = load_some<PACKED<N>>(dy + at, valid, packed);
        Pack<N, PACKED<N>> open = {};
        if (y) open = load_some<PACKED<N>>(y + at, valid, packed);
#pragma unroll
        for (int k = 0; k < PACKED<N>; k++) {
            u64 j = column + least<u64>(k, valid - 1);
            W counted = !y || widen(open.at[k]) > 0 ? W(widen(slope.at[k])) : W(0);
            sums[0][k] += counted * ((widen(value.at[k]) - means[j]) * one_over_root(variances[j] + W(EPSILON)));
            sums[1][k] += counted;
        }
    });
}

// dx = gain · rstd · (dy − Σ dy / m − x̂ · Σ (dy · x̂) / m).
template <class N>
__device__ void batch_norm_backward(const N* x, const N* gain, const Wide<N>* means, const Wide<N>* variances,
                                    const N* y, const N* dy, const Wide<N>* sums, N* dx, u64 rows, u64 columns,
                                    bool add) {
    typedef Wide<N> W;
    bool packed = is_aligned(x) && is_aligned(y) && is_aligned(dy) && is_aligned(dx) && columns % PACKED<N> == 0;
    for_each<PACKED<N>>(rows * columns, packed, [&](u64 i, auto width) {
        constexpr int COUNT = decltype(width)::count;
        auto value = load<COUNT>(x + i), slope = load<COUNT>(dy + i);
        Pack<N, COUNT> open = {};
        if (y) open = load<COUNT>(y + i);
        u64 column = i % columns;
        W values[COUNT];
#pragma unroll
        for (int k = 0; k < COUNT; k++) {
            u64 j = column + k;
            W rstd = one_over_root(variances[j] + W(EPSILON)), normal = (widen(value.at[k]) - means[j]) * rstd;
            W counted = !y || widen(open.at[k]) > 0 ? W(widen(slope.at[k])) : W(0);
            W rest = counted - sums[columns + j] / W(rows) - normal * (sums[j] / W(rows));
            values[k] = widen(gain[j]) * rstd * rest;
        }
        put_pack(dx + i, values, add);
    });
}

// The values of one group of one example, one block each: element e is column e % width of the
// group in row e / width.
struct Group {
    u64 first, column, width, columns, size;

    __device__ Group(u64 positions, u64 columns, u64 width)
        : column(blockIdx.x % (columns / width) * width), width(width), columns(columns), size(positions * width) {
        first = blockIdx.x / (columns / width) * positions * columns;
    }
    __device__ u64 column_of(u64 e) const { return column + e % width; }
    __device__ u64 place(u64 e) const { return first + e / width * columns + column_of(e); }
    // The mean of a term.
    template <class W, class Term>
    __device__ W mean(Term term) const {
        W total = W(0);
        for (u64 e = threadIdx.x; e < size; e += blockDim.x) total += term(e);
        return row_sum(total) / W(size);
    }
};

template <class N>
__device__ void group_norm(const N* x, const N* gain, const N* bias, N* y, Wide<N>* means, Wide<N>* rstds,
                           u64 positions, u64 columns, u64 width) {
    typedef Wide<N> W;
    Group group(positions, columns, width);
    auto value = [&](u64 e) { return W(widen(x[group.place(e)])); };
    W mean = group.mean<W>(value);
    W rstd = one_over_root(group.mean<W>([&](u64 e) { return (value(e) - mean) * (value(e) - mean); }) + W(EPSILON));
    for (u64 e = threadIdx.x; e < group.size; e += blockDim.x) {
        u64 j = group.column_of(e);
        y[group.place(e)] = narrow<N>((value(e) - mean) * rstd * widen(gain[j]) + widen(bias[j]));
    }
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
    W mean = means[blockIdx.x], rstd = rstds[blockIdx.x];
    auto normal = [&](u64 e) { return (widen(x[group.place(e)]) - mean) * rstd; };
    auto scaled = [&](u64 e) { return W(widen(dy[group.place(e)])) * widen(gain[group.column_of(e)]); };
    W average = group.mean<W>(scaled), along = group.mean<W>([&](u64 e) { return scaled(e) * normal(e); });
    for (u64 e = threadIdx.x; e < group.size; e += blockDim.x)
        put(dx + group.place(e), rstd * (scaled(e) - average - normal(e) * along), add);
}

// Term 0: dy · x̂, term 1: dy.
template <class N>
__device__ void group_slopes_of_segments(const N* x, const Wide<N>* means, const Wide<N>* rstds, const N* dy,
                                         u64 positions, u64 width, Wide<N>* partial, u64 rows, u64 columns,
                                         u64 per_segment) {
    sum_segments<2, N>(rows, columns, per_segment, is_aligned(x) && is_aligned(dy), partial,
                       [=](u64 row, u64 column, u64 valid, bool packed, auto& sums) {
        u64 at = row * columns + column, first = row / positions * (columns / width);
        auto value = load_some<PACKED<N>>(x + at, valid, packed), slope = load_some<PACKED<N>>(dy + at, valid, packed);
#pragma unroll
        for (int k = 0; k < PACKED<N>; k++) {
            u64 group = first + (column + least<u64>(k, valid - 1)) / width;
            sums[0][k] += widen(slope.at[k]) * ((widen(value.at[k]) - means[group]) * rstds[group]);
            sums[1][k] += widen(slope.at[k]);
        }
    });
}

#define SEGMENTS(N) Wide<N>*partial, u64 rows, u64 columns, u64 per_segment

#define EXPORT(N)                                                                                                  \
    KERNEL(256, squares_of_segments_##N, (const N* x, const Wide<N>* means, SEGMENTS(N)),                             \
           squares_of_segments(x, means, partial, rows, columns, per_segment))                                     \
    KERNEL(256, moment_##N,                                                                                        \
           (const Wide<N>* partial, const N* running, Wide<N>* out, u64 columns, u64 segments, u64 rows,           \
            const Scalars* scalars),                                                                               \
           moment(partial, running, out, columns, segments, rows, scalars))                                        \
    KERNEL(256, batch_norm_##N,                                                                                    \
           (const N* x, const N* gain, const N* bias, const Wide<N>* means, const Wide<N>* variances,              \
            const N* residual, N* y, u64 count, u64 columns, u32 relu),                                            \
           batch_norm(x, gain, bias, means, variances, residual, y, count, columns, relu))                         \
    KERNEL(256, batch_slopes_of_segments_##N,                                                                      \
           (const N* x, const Wide<N>* means, const Wide<N>* variances, const N* y, const N* dy, SEGMENTS(N)),        \
           batch_slopes_of_segments(x, means, variances, y, dy, partial, rows, columns, per_segment))              \
    KERNEL(256, batch_norm_backward_##N,                                                                           \
           (const N* x, const N* gain, const Wide<N>* means, const Wide<N>* variances, const N* y, const N* dy,    \
            const Wide<N>* sums, N* dx, u64 rows, u64 columns, u32 add),                                           \
           batch_norm_backward(x, gain, means, variances, y, dy, sums, dx, rows, columns, add))                    \
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
            SEGMENTS(N)),                                                                                             \
           group_slopes_of_segments(x, means, rstds, dy, positions, width, partial, rows, columns, per_segment))
FOR_NUMBERS(EXPORT)
#undef EXPORT
