// Losses, their gradients, and what is measured. A target that is no class makes no number of the
// loss and of its row's gradient, so that it is seen.

// Which classes there are: `whole` in all, of which a row has `each` from number `part` · each on.
struct Classes {
    u64 whole, each, part;
    u32 masked;

    __device__ u64 first() const { return least(part * each, whole); }
    __device__ u64 own() const { return least(each, whole - first()); }
    // Whether a row with this target counts; the number of classes itself stands for none.
    __device__ bool counts(i32 target) const { return !(masked && u64(i64(target)) == whole); }
    __device__ bool is_class(i32 target) const { return target >= 0 && u64(target) < whole; }
};

// What rows count: of each so many neighbours what one number says, from row `first` on.
template <class W>
struct Shares {
    const W* numbers;
    u64 first, alike;

    __device__ W of(u64 row) const { return numbers[(first + row) / alike]; }
};

// Powers of what logits are above a base. Rounding changes a logit of 16 bits by far more than the device's
// powers of two are off, so those have exponents of two, others of e.
template <class N>
struct Powers {
    typedef Wide<N> W;

    __device__ static W exponent(W logit) {
        if constexpr (IN_16_BITS<N>) return logit * LOG2_E;
        else return logit;
    }
    __device__ static W of(W logit, W base) {
        if constexpr (IN_16_BITS<N>) return power_of_two(fmaf(logit, LOG2_E, -base));
        else return exponential(logit - base);
    }
    // What a sum is multiplied by whose base becomes another.
    __device__ static W shrink(W base, W next) {
        if constexpr (IN_16_BITS<N>) return power_of_two(base - next);
        else return exponential(base - next);
    }
    // ln of a sum above a base.
    __device__ static W logarithm_of(W total, W base) {
        if constexpr (IN_16_BITS<N>) return base * LN_2 + logarithm(total);
        else return base + logarithm(total);
    }
    // The base of those who have met nothing; no exponent is below it.
    __device__ static W lowest() { return sizeof(N) == 8 ? W(-1.7e308) : W(-3.4e38f); }
};

// ln Σ exp(logits[c]) over the own classes of a row, for all of its threads. A logit that is no number has
// none as its power, which stays in the sum whatever the base is.
template <class N>
__device__ Wide<N> log_sum(const N* logits, const Classes& classes) {
    typedef Wide<N> W;
    // An exponent may be as much above the base, so that the base rarely changes.
    constexpr W SLACK = 8;
    W base = Powers<N>::lowest(), total = W(0);
    Span<PACKED<N>>(classes.own(), logits).each([&](u32 i, auto width) {
        constexpr int COUNT = decltype(width)::count;
        auto pack = widen(load<COUNT>(logits + i));
        W high = pack.at[0];
#pragma unroll
        for (int k = 1; k < COUNT; k++) high = greater_number(high, pack.at[k]);
        high = Powers<N>::exponent(high);
        if (high > base + SLACK) {
            total *= Powers<N>::shrink(base, high);
            base = high;
        }
#pragma unroll
        for (int k = 0; k < COUNT; k++) total += Powers<N>::of(pack.at[k], base);
    });
    W most = row_reduce_by_halves<Most>(base);
    total = row_reduce_by_halves<Sum>(total * Powers<N>::shrink(base, most));
    return total == 0 ? negative_infinity<W>() : Powers<N>::logarithm_of(total, most);
}

// The target's logit of a row, if it is one of the own classes.
template <class N>
__device__ Wide<N> picked_logit(const N* logits, i32 target, const Classes& classes) {
    u64 at = u64(i64(target)) - classes.first();
    if (classes.counts(target) && !classes.is_class(target)) return no_number<Wide<N>>();
    return at < classes.own() ? Wide<N>(widen(logits[at])) : Wide<N>(0);
}

// lse[i] = ln Σ exp(logits[i, c]) over the own classes; picked[i] = the target's logit, if it is
// one of them.
template <class N>
__device__ void class_sums(const N* logits, const i32* targets, Wide<N>* lse, Wide<N>* picked, u64 rows,
                           Classes classes) {
    u64 row = row_of_grid();
    if (row >= rows) return;
    logits += row * classes.each;
    Wide<N> sum = log_sum(logits, classes);
    if (threadIdx.x) return;
    lse[row] = sum;
    picked[row] = picked_logit(logits, targets[row], classes);
}

// lse[i] = ln Σ_p exp(sums[p, 0, i]), picked[i] = Σ_p sums[p, 1, i].
template <class W>
__device__ void join_sums(const W* sums, W* lse, W* picked, u64 rows, u64 parts) {
    for (u64 i = thread_of_grid(); i < rows; i += threads_of_grid()) {
        W most = negative_infinity<W>(), total = W(0), logit = W(0);
        for (u64 p = 0; p < parts; p++) most = greatest(most, sums[p * 2 * rows + i]);
        for (u64 p = 0; p < parts; p++) {
            total += exponential(sums[p * 2 * rows + i] - most);
            logit += sums[(p * 2 + 1) * rows + i];
        }
        lse[i] = most + logarithm(total);
        picked[i] = logit;
    }
}

// Σ of a term over all rows, by one block, in 64 bits.
template <class Term>
__device__ f64 sum_by_block(u64 rows, Term term) {
    f64 total = 0;
    for (u64 i = threadIdx.x; i < rows; i += blockDim.x) total += term(i);
    return row_sum(total);
}

// loss = mean of lse − picked; where some rows do not count, Σ share · (lse − picked) over those that do.
template <class W, class G>
__device__ void class_loss(const W* lse, const W* picked, const i32* targets, Shares<W> shares, G* loss, u64 rows,
                           Classes classes) {
    f64 total = sum_by_block(rows, [&](u64 i) {
        if (!classes.counts(targets[i])) return 0.0;
        f64 own = f64(lse[i] - picked[i]);
        return classes.masked ? own * f64(shares.of(i)) : own;
    });
    f64 factor = classes.masked ? 1.0 : 1.0 / f64(rows);
    if (threadIdx.x == 0) *loss = narrow<G>(W(total * factor));
}

// Zeros in so many places; nothing changes where they would be added.
template <class G>
__device__ void fill_zeros(G* to, u32 count, bool add) {
    if (add) return;
    Span<PACKED<G>>(count, to).each([=](u32 i, auto width) {
        store(to + i, Pack<G, decltype(width)::count>{});
    });
}

// dlogits = (softmax − one-hot) · share of a row that counts, zero of another and of classes that are not
// there. A thread may write over logits that it has read.
template <class N, class G>
__device__ void slopes_of_row(const N* logits, i32 target, Wide<N> lse, Wide<N> share, G* dlogits,
                              const Classes& classes, bool add) {
    typedef Wide<N> W;
    bool counts = classes.counts(target);
    u32 own = counts ? classes.own() : 0;
    fill_zeros(dlogits + own, u32(classes.each) - own, add);
    if (!counts) return;
    W factor = classes.is_class(target) ? share : no_number<W>(), base = Powers<N>::exponent(lse);
    Span<PACKED<N>> span(own, logits, dlogits);
    // Who writes the target's slope does it once more with what was there before.
    u64 at = u64(i64(target)) - classes.first();
    bool mine = at < own && span.meets(at);
    W logit = mine ? W(widen(logits[at])) : W(0), before = mine && add ? W(widen(dlogits[at])) : W(0);
    span.each([&](u32 i, auto width) {
        constexpr int COUNT = decltype(width)::count;
        auto pack = widen(load<COUNT>(logits + i));
        W values[COUNT];
#pragma unroll
        for (int k = 0; k < COUNT; k++) values[k] = Powers<N>::of(pack.at[k], base) * factor;
        put_pack(dlogits + i, values, add);
    });
    if (mine) dlogits[at] = narrow<G>(before + (Powers<N>::of(logit, base) - W(1)) * factor);
}

// The same of all rows, whose lse are known.
template <class N, class G>
__device__ void class_slopes(const N* logits, const i32* targets, const Wide<N>* lse, Shares<Wide<N>> shares,
                             G* dlogits, u64 rows, Classes classes, bool add) {
    u64 row = row_of_grid();
    if (row >= rows) return;
    u64 start = row * classes.each;
    slopes_of_row(logits + start, targets[row], lse[row], shares.of(row), dlogits + start, classes, add);
}

// class_sums, then slopes in place of the logits: a row is read twice by the same threads, the
// second time from the cache.
template <class N>
__device__ void class_both(N* logits, const i32* targets, Wide<N>* lse, Wide<N>* picked, Shares<Wide<N>> shares,
                           u64 rows, Classes classes) {
    u64 row = row_of_grid();
    if (row >= rows) return;
    logits += row * classes.each;
    Wide<N> sum = log_sum(logits, classes);
    i32 target = targets[row];
    Wide<N> logit = picked_logit(logits, target, classes);
    // The target's logit is replaced by one thread after all have read it.
    sync_row();
    if (threadIdx.x == 0) {
        lse[row] = sum;
        picked[row] = logit;
    }
    slopes_of_row(logits, target, sum, shares.of(row), logits, classes, false);
}

// 1 where the target's logit is the largest, the first of equals; a row with no number has none, nor has
// one that does not count.
template <class N>
__device__ void largest(const N* logits, const i32* targets, f32* right, u64 rows, Classes classes) {
    u64 row = row_of_grid();
    if (row >= rows) return;
    logits += row * classes.each;
    i32 target = targets[row];
    bool valid = classes.is_class(target);
    f32 wrong = classes.counts(target) ? 0 : 1;
    for (u64 k = threadIdx.x; valid && k < classes.whole; k += blockDim.x) {
        auto own = widen(logits[target]), other = widen(logits[k]);
        bool less = k < u64(target) ? other < own : other <= own;
        if (!less) wrong = 1;
    }
    wrong = row_most(wrong);
    if (threadIdx.x == 0) right[row] = valid || wrong ? 1 - wrong : no_number<f32>();
}

// out = Σ of the numbers, each as much as the share of its row.
template <class W, class G>
__device__ void sum_of_shares(const f32* numbers, Shares<W> shares, G* out, u64 rows) {
    f64 total = sum_by_block(rows, [&](u64 i) { return f64(numbers[i]) * f64(shares.of(i)); });
    if (threadIdx.x == 0) *out = narrow<G>(W(total));
}

// out = factor · Σ of the numbers.
template <class S, class G>
__device__ void mean(const S* numbers, G* out, u64 count, f64 factor) {
    f64 total = sum_by_block(count, [&](u64 i) { return f64(numbers[i]); });
    if (threadIdx.x == 0) *out = narrow<G>(total * factor);
}

// partial[b] = the part of block b of Σ (a − b)².
template <class N>
__device__ void square_distance(const N* a, const N* b, f64* partial, u64 count) {
    f64 total = 0;
    for (u64 i = thread_of_grid(); i < count; i += threads_of_grid()) {
        f64 difference = widen(a[i]) - widen(b[i]);
        total += difference * difference;
    }
    total = row_sum(total);
    if (threadIdx.x == 0) partial[blockIdx.x] = total;
}

// Blocks of rows on a multiprocessor, by the registers that they need.
template <class N>
constexpr int TOGETHER = sizeof(N) == 8 ? 1 : 2;
template <class N>
constexpr int TOGETHER_SLOPES = sizeof(N) == 8 ? 2 : 3;

#define CLASSES u64 whole, u64 each, u64 part, u32 masked
#define SHARES(W) const W* shares, u64 first, u64 alike

#define EXPORT(N)                                                                                               \
    KERNEL_TOGETHER(TOGETHER<N>, 1024, class_sums_##N,                                                          \
           (const N* logits, const i32* targets, Wide<N>* lse, Wide<N>* picked, u64 rows, CLASSES),             \
           class_sums(logits, targets, lse, picked, rows, Classes{whole, each, part, masked}))                  \
    KERNEL_TOGETHER(TOGETHER<N>, 1024, class_both_##N,                                                          \
           (N* logits, const i32* targets, Wide<N>* lse, Wide<N>* picked, SHARES(Wide<N>), u64 rows, CLASSES),  \
           Shares<Wide<N>> own{shares, first, alike};                                                           \
           class_both(logits, targets, lse, picked, own, rows, Classes{whole, each, part, masked}))             \
    KERNEL(512, largest_##N, (const N* logits, const i32* targets, f32* right, u64 rows, CLASSES),              \
           largest(logits, targets, right, rows, Classes{whole, each, part, masked}))                           \
    KERNEL(256, square_distance_##N, (const N* a, const N* b, f64* partial, u64 count),                         \
           square_distance(a, b, partial, count))
FOR_NUMBERS(EXPORT)
#undef EXPORT

#define EXPORT(N, G)                                                                                            \
    KERNEL(1024, class_loss_##N##_##G,                                                                          \
           (const Wide<N>* lse, const Wide<N>* picked, const i32* targets, SHARES(Wide<N>), G* loss, u64 rows,  \
            CLASSES),                                                                                           \
           Shares<Wide<N>> own{shares, first, alike};                                                           \
           class_loss(lse, picked, targets, own, loss, rows, Classes{whole, each, part, masked}))               \
    KERNEL_TOGETHER(TOGETHER_SLOPES<N>, 512, class_slopes_##N##_##G,                                            \
           (const N* logits, const i32* targets, const Wide<N>* lse, SHARES(Wide<N>), G* dlogits, u64 rows,     \
            CLASSES, u32 add),                                                                                  \
           Shares<Wide<N>> own{shares, first, alike};                                                           \
           class_slopes(logits, targets, lse, own, dlogits, rows, Classes{whole, each, part, masked}, add))     \
    KERNEL(1024, sum_of_shares_##N##_##G, (const f32* numbers, SHARES(Wide<N>), G* out, u64 rows),              \
           sum_of_shares(numbers, Shares<Wide<N>>{shares, first, alike}, out, rows))                            \
    KERNEL(256, difference_##N##_##G, (const N* a, const N* b, G* out, u64 count, f64 factor, u32 add),         \
           Wide<N> by = Wide<N>(factor);                                                                        \
           zip(a, b, out, count, count, add, [by](auto a, auto b) { return by * (a - b); }))
FOR_NUMBER_PAIRS(EXPORT)
#undef EXPORT

#define EXPORT(W)                                                                                  \
    KERNEL(256, join_sums_##W, (const W* sums, W* lse, W* picked, u64 rows, u64 parts),            \
           join_sums(sums, lse, picked, rows, parts))                                              \
    KERNEL(32, class_share_##W, (W* share, u64 rows),                                              \
           if (threadIdx.x == 0) *share = W(1.0 / f64(rows)))
EXPORT(f32)
EXPORT(f64)
#undef EXPORT

#define EXPORT(G)                                                                                        \
    KERNEL(1024, mean_f32_##G, (const f32* numbers, G* out, u64 count, f64 factor), mean(numbers, out, count, factor)) \
    KERNEL(1024, mean_f64_##G, (const f64* numbers, G* out, u64 count, f64 factor), mean(numbers, out, count, factor))
FOR_NUMBERS(EXPORT)
#undef EXPORT
