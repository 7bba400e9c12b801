// SGD and AdamW over one slice of a stage's flat parameters, in PyTorch's order of operations.

enum Treatment { DECAYED = 0, SPARED = 1, AVERAGED = 2 };

#define EIGHT(a) u64 a##0, u64 a##1, u64 a##2, u64 a##3, u64 a##4, u64 a##5, u64 a##6, u64 a##7
#define EIGHT_OF(a) a##0, a##1, a##2, a##3, a##4, a##5, a##6, a##7

// Writes a piece of a table that the call says: `count` words from `first` on.
KERNEL(32, write_words, (u64* table, u64 first, u32 count, EIGHT(a), EIGHT(b), EIGHT(c), EIGHT(d)),
       const u64 words[32] = {EIGHT_OF(a), EIGHT_OF(b), EIGHT_OF(c), EIGHT_OF(d)};
       if (threadIdx.x == 0)
           for (u32 i = 0; i < 32; i++)
               if (i < count) table[first + i] = words[i])

// The first of ascending ranges that does not end before an element.
template <class Table>
__device__ u64 first_behind(const Table& ranges, u64 element) {
    u64 low = 0, high = ranges.count;
    while (low < high) {
        u64 middle = (low + high) / 2;
        if (ranges.end(middle) <= element) low = middle + 1;
        else high = middle;
    }
    return low;
}

// Ranges of the stage's parameters that are no ordinary weights: begin, then end with the treatment
// in its two highest bits; ascending, disjoint. The slice starts at `offset`.
struct Ranges {
    const u64* table;
    u64 count, offset;

    __device__ u64 begin(u64 r) const { return table[2 * r]; }
    __device__ u64 end(u64 r) const { return table[2 * r + 1] & ~(3ull << 62); }
    __device__ u64 find(u64 i) const { return first_behind(*this, i + offset); }
    // What an element is, with `r` at or before its range.
    __device__ Treatment of(u64 i, u64& r) const {
        while (r < count && end(r) <= i + offset) r++;
        if (r == count || begin(r) > i + offset) return DECAYED;
        return Treatment(table[2 * r + 1] >> 62);
    }
    // How much of an element's square counts.
    __device__ f64 weight(u64 i, u64& r) const { return of(i, r) == AVERAGED ? 0 : 1; }
};

// Ranges of the stage's parameters that do not count in full: begin, end, and how many hold it, each
// of whom counts an equal share; with none it does not count. Ascending, disjoint.
struct Copies {
    const u64* table;
    u64 count, offset;

    __device__ u64 end(u64 r) const { return table[3 * r + 1]; }
    __device__ u64 find(u64 i) const { return first_behind(*this, i + offset); }
    // How much of an element's square counts, with `r` at or before its range.
    __device__ f64 weight(u64 i, u64& r) const {
        while (r < count && end(r) <= i + offset) r++;
        if (r == count || table[3 * r] > i + offset) return 1;
        u64 copies = table[3 * r + 2];
        return copies == 0 ? 0 : 1 / f64(copies);
    }
};

// partial[b] = the part of block b of Σ weight · (g · share)², in 64 bits.
template <class G, class Weights>
__device__ void weighed_squares(const G* gradient, f64* partial, u64 count, f64 share, Weights weights) {
    f64 total = 0;
    for_each<PACKED<G>>(count, is_aligned(gradient), [&](u64 i, auto width) {
        constexpr int COUNT = decltype(width)::count;
        auto pack = load<COUNT>(gradient + i);
        u64 r = weights.find(i);
#pragma unroll
        for (int k = 0; k < COUNT; k++) {
            f64 mean = f64(widen(pack.at[k])) * share, weight = weights.weight(i + k, r);
            if (weight != 0) total += weight * (mean * mean);
        }
    });
    total = row_sum(total);
    if (threadIdx.x == 0) partial[blockIdx.x] = total;
}

// The sum of what all blocks found. By all threads of a block.
__device__ inline f64 sum_of(const f64* partial, u64 partials) {
    f64 total = 0;
    for (u64 i = threadIdx.x; i < partials; i += blockDim.x) total += partial[i];
    return row_sum(total);
}

// What the gradient sum is multiplied by: its mean, cut to norm `clip`, whose square is what blocks
// found or what is `given`. By all threads of a block.
template <class W>
__device__ f64 scale_of(const f64* partial, u64 partials, const W* given, f64 clip, f64 share) {
    if (clip == 0) return share;
    f64 total = given ? f64(*given) : sum_of(partial, partials);
    return share * least(clip / (sqrt(total) + 1e-6), 1.0);
}

// What is the same for all elements, in the type that is computed with; made by one block.
template <class W>
struct Constants {
    W scale, rate, root_correction, shrink;
};

#define EXPORT(W)                                                                                              \
    KERNEL(256, squares_##W, (const f64* partial, u64 partials, W* out, u32 add),                              \
           f64 total = sum_of(partial, partials);                                                              \
           if (threadIdx.x == 0) *out = W((add ? f64(*out) : 0) + total))                                      \
    KERNEL(256, sgd_constants_##W,                                                                             \
           (Constants<W> * out, const Scalars* scalars, const f64* partial, u64 partials, const W* given,      \
            f64 clip, f64 share),                                                                              \
           W scale = W(scale_of(partial, partials, given, clip, share));                                       \
           if (threadIdx.x == 0) *out = Constants<W>{scale, W(scalars->rate), W(1), W(1)})                     \
    KERNEL(256, adamw_constants_##W,                                                                           \
           (Constants<W> * out, const Scalars* scalars, const f64* partial, u64 partials, const W* given,      \
            f64 clip, f64 share, f64 beta1, f64 beta2, f64 decay),                                             \
           f64 updates = f64(scalars->updates), rate = scalars->rate;                                          \
           f64 mean = 1 - pow(beta1, updates), square = 1 - pow(beta2, updates);                               \
           W scale = W(scale_of(partial, partials, given, clip, share));                                       \
           if (threadIdx.x == 0)                                                                               \
               *out = Constants<W>{scale, W(rate / mean), W(sqrt(square)), W(1 - rate * decay)})
EXPORT(f32)
EXPORT(f64)
#undef EXPORT

// A step of every element: the master copy's where there is one, else the parameter's own.
template <class N, class G, class Step>
__device__ void step_all(const G* gradient, const N* parameter, N* next, Wide<N>* master, u64 count, bool packed,
                         Ranges ranges, f64 share, f64 average, Step step) {
    typedef Wide<N> W;
    W keep = W(1 - average), momentum = W(average), mean = W(share);
    packed = packed && is_aligned(gradient) && is_aligned(parameter) && is_aligned(next) && is_aligned(master);
    for_each<PACKED<N>>(count, packed, [&](u64 i, auto width) {
        constexpr int COUNT = decltype(width)::count;
        auto slope = load<COUNT>(gradient + i);
        W values[COUNT], slopes[COUNT];
        Treatment treatments[COUNT];
        u64 r = ranges.find(i);
        if (master) {
            auto from = load<COUNT>(master + i);
#pragma unroll
            for (int k = 0; k < COUNT; k++) values[k] = from.at[k];
        } else {
            auto from = load<COUNT>(parameter + i);
#pragma unroll
            for (int k = 0; k < COUNT; k++) values[k] = widen(from.at[k]);
        }
#pragma unroll
        for (int k = 0; k < COUNT; k++) {
            slopes[k] = widen(slope.at[k]);
            treatments[k] = ranges.of(i + k, r);
            if (treatments[k] == AVERAGED) values[k] = keep * values[k] + momentum * (slopes[k] * mean);
        }
        step(i, width, slopes, values, treatments);
        if (master) put_pack(master + i, values, false);
        put_pack(next + i, values, false);
    });
}

// g = g · scale + decay · p; b = β b + g; p −= rate · (g + β b, b or g).
template <class N, class G>
__device__ void sgd(const G* gradient, const N* parameter, N* next, Wide<N>* momenta, Wide<N>* master,
                    const Constants<Wide<N>>* constants, u64 count, Ranges ranges, f64 share, f64 average,
                    f64 weight_decay, f64 beta, bool nesterov) {
    typedef Wide<N> W;
    W scale = constants->scale, rate = constants->rate, inertia = W(beta), decay = W(weight_decay);
    auto step = [&](u64 i, auto width, auto& slopes, auto& values, auto& treatments) {
        constexpr int COUNT = decltype(width)::count;
        Pack<W, COUNT> momentum = {};
        if (momenta) momentum = load<COUNT>(momenta + i);
#pragma unroll
        for (int k = 0; k < COUNT; k++) {
            if (treatments[k] == AVERAGED) continue;
            W g = slopes[k] * scale + (treatments[k] == DECAYED ? decay : W(0)) * values[k], direction = g;
            if (momenta) {
                momentum.at[k] = inertia * momentum.at[k] + g;
                direction = nesterov ? g + inertia * momentum.at[k] : momentum.at[k];
            }
            values[k] -= rate * direction;
        }
        if (momenta) store<COUNT>(momenta + i, momentum);
    };
    step_all(gradient, parameter, next, master, count, is_aligned(momenta), ranges, share, average, step);
}

// p *= 1 − rate · decay; m += (1 − β₁)(g − m); s = β₂ s + (1 − β₂) g²;
// p −= rate / c₁ · m / (√s / √c₂ + ε), c = 1 − β^(t + 1).
template <class N, class G>
__device__ void adamw(const G* gradient, const N* parameter, N* next, Wide<N>* means, Wide<N>* squares,
                      Wide<N>* master, const Constants<Wide<N>>* constants, u64 count, Ranges ranges, f64 share,
                      f64 average, f64 beta1, f64 beta2, f64 epsilon) {
    typedef Wide<N> W;
    Constants<W> same = *constants;
    W mean_share = W(1 - beta1), keep = W(beta2), square_share = W(1 - beta2), least_root = W(epsilon);
    auto step = [&](u64 i, auto width, auto& slopes, auto& values, auto& treatments) {
        constexpr int COUNT = decltype(width)::count;
        auto mean = load<COUNT>(means + i), square = load<COUNT>(squares + i);
#pragma unroll
        for (int k = 0; k < COUNT; k++) {
            if (treatments[k] == AVERAGED) continue;
            W g = slopes[k] * same.scale;
            values[k] *= treatments[k] == DECAYED ? same.shrink : W(1);
            mean.at[k] += mean_share * (g - mean.at[k]);
            square.at[k] = keep * square.at[k] + square_share * (g * g);
            W denominator = root(square.at[k]) / same.root_correction + least_root;
            values[k] -= same.rate * (mean.at[k] / denominator);
        }
        store<COUNT>(means + i, mean);
        store<COUNT>(squares + i, square);
    };
    bool packed = is_aligned(means) && is_aligned(squares);
    step_all(gradient, parameter, next, master, count, packed, ranges, share, average, step);
}

#define RANGES const u64 *table, u64 ranges, u64 offset

#define EXPORT(G)                                                                                          \
    KERNEL(256, trained_squares_##G, (const G* gradient, f64* partial, u64 count, f64 share, RANGES),      \
           weighed_squares(gradient, partial, count, share, Ranges{table, ranges, offset}))                \
    KERNEL(256, own_squares_##G, (const G* gradient, f64* partial, u64 count, f64 share, RANGES),          \
           weighed_squares(gradient, partial, count, share, Copies{table, ranges, offset}))
FOR_NUMBERS(EXPORT)
#undef EXPORT

// SGD is bound to what it takes without spilling.
#define EXPORT(N, G)                                                                                       \
    KERNEL_TOGETHER(5, 256, sgd_##N##_##G,                                                                 \
           (const G* gradient, const N* parameter, N* next, Wide<N>* momenta, Wide<N>* master,             \
            const Constants<Wide<N>>* constants, u64 count, RANGES, f64 share, f64 average, f64 decay,     \
            f64 beta, u32 nesterov),                                                                       \
           sgd(gradient, parameter, next, momenta, master, constants, count, Ranges{table, ranges, offset}, \
               share, average, decay, beta, nesterov))                                                     \
    KERNEL(256, adamw_##N##_##G,                                                                           \
           (const G* gradient, const N* parameter, N* next, Wide<N>* means, Wide<N>* squares, Wide<N>* master, \
            const Constants<Wide<N>>* constants, u64 count, RANGES, f64 share, f64 average, f64 beta1,     \
            f64 beta2, f64 epsilon),                                                                       \
           adamw(gradient, parameter, next, means, squares, master, constants, count,                      \
                 Ranges{table, ranges, offset}, share, average, beta1, beta2, epsilon))
FOR_NUMBER_PAIRS(EXPORT)
#undef EXPORT
