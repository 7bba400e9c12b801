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

// ln Σ exp(logits[c]) over the own classes of a row, for all of its threads.
template <class N>
__device__ Wide<N> log_sum(const N* logits, const Classes& classes) {
    typedef Wide<N> W;
    W most = negative_infinity<W>(), total = W(0);
    for_each_in_row<PACKED<N>>(classes.own(), is_aligned(logits), [&](u64 i, auto width) {
        constexpr int COUNT = decltype(width)::count;
        auto pack = load<COUNT>(logits + i);
        W high = most;
#pragma unroll
        for (int k = 0; k < COUNT; k++) high = greatest(high, W(widen(pack.at[k])));
        if (high > most) {
            total *= exponential(most - high);
            most = high;
        }
        // A thread that has met nothing but −∞ has no maximum to take off.
        W base = most == negative_infinity<W>() ? W(0) : most;
#pragma unroll
        for (int k = 0; k < COUNT; k++) total += exponential(widen(pack.at[k]) - base);
    });
    W all = row_most(most);
    // A thread without a maximum has met nothing to add, or no numbers, which must stay.
    total = row_sum(most == negative_infinity<W>() ? total : total * exponential(most - all));
    return total == 0 ? all : all + logarithm(total);
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

// One over the number of rows that count; zero without any.
__device__ inline f64 share_of(const i32* targets, u64 rows, Classes classes) {
    if (!classes.masked) return 1.0 / f64(rows);
    f64 count = sum_by_block(rows, [&](u64 i) { return classes.counts(targets[i]) ? 1.0 : 0.0; });
    return count > 0 ? 1.0 / count : 0.0;
}

// loss = mean of lse − picked over the rows that count.
template <class W, class G>
__device__ void class_loss(const W* lse, const W* picked, const i32* targets, G* loss, u64 rows, Classes classes) {
    f64 share = share_of(targets, rows, classes);
    f64 total = sum_by_block(rows, [&](u64 i) { return classes.counts(targets[i]) ? f64(lse[i] - picked[i]) : 0.0; });
    if (threadIdx.x == 0) *loss = narrow<G>(W(total * share));
}

// dlogits = (softmax − one-hot) · share of a row that counts, zero of another.
template <class N, class G>
__device__ void slopes_of_row(const N* logits, i32 target, Wide<N> base, Wide<N> share, G* dlogits,
                              const Classes& classes, bool add) {
    typedef Wide<N> W;
    bool counts = classes.counts(target);
    W factor = !counts ? W(0) : classes.is_class(target) ? share : no_number<W>();
    u64 own = classes.own(), at = counts ? u64(i64(target)) - classes.first() : own;
    bool packed = is_aligned(logits) && is_aligned(dlogits);
    for_each_in_row<PACKED<N>>(classes.each, packed, [&](u64 i, auto width) {
        constexpr int COUNT = decltype(width)::count;
        auto pack = load<COUNT>(logits + i);
        W values[COUNT];
#pragma unroll
        for (int k = 0; k < COUNT; k++) {
            W probability = counts ? exponential(widen(pack.at[k]) - base) : W(0);
            W certain = i + k == at ? W(1) : W(0);
            values[k] = i + k < own ? (probability - certain) * factor : W(0);
        }
        put_pack(dlogits + i, values, add);
    });
}

// The same of all rows, whose lse are known.
template <class N, class G>
__device__ void class_slopes(const N* logits, const i32* targets, const Wide<N>* lse, const Wide<N>* shares,
                             G* dlogits, u64 rows, Classes classes, bool add) {
    u64 row = row_of_grid();
    if (row >= rows) return;
    u64 start = row * classes.each;
    slopes_of_row(logits + start, targets[row], lse[row], *shares, dlogits + start, classes, add);
}

// class_sums, then slopes in place of the logits: a row is read twice by the same threads, the
// second time from the cache.
template <class N>
__device__ void class_both(N* logits, const i32* targets, Wide<N>* lse, Wide<N>* picked, const Wide<N>* shares,
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
    slopes_of_row(logits, target, sum, *shares, logits, classes, false);
}

// 1 where the target's logit is the largest, the first of equals; a row with no number has none.
template <class N>
__device__ void largest(const N* logits, const i32* targets, f32* right, u64 rows, u64 classes) {
    u64 row = row_of_grid();
    if (row >= rows) return;
    logits += row * classes;
    i32 target = targets[row];
    bool valid = target >= 0 && u64(target) < classes;
    f32 wrong = 0;
    for (u64 k = threadIdx.x; valid && k < classes; k += blockDim.x) {
        auto own = widen(logits[target]), other = widen(logits[k]);
        bool less = k < u64(target) ? other < own : other <= own;
        if (!less) wrong = 1;
    }
    wrong = row_most(wrong);
    if (threadIdx.x == 0) right[row] = valid ? 1 - wrong : no_number<f32>();
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

#define CLASSES u64 whole, u64 each, u64 part, u32 masked

#define EXPORT(N)                                                                                               \
    KERNEL(512, class_sums_##N,                                                                                 \
           (const N* logits, const i32* targets, Wide<N>* lse, Wide<N>* picked, u64 rows, CLASSES),             \
           class_sums(logits, targets, lse, picked, rows, Classes{whole, each, part, masked}))                  \
    KERNEL(512, class_both_##N,                                                                                 \
           (N* logits, const i32* targets, Wide<N>* lse, Wide<N>* picked, const Wide<N>* shares, u64 rows,      \
            CLASSES),                                                                                           \
           class_both(logits, targets, lse, picked, shares, rows, Classes{whole, each, part, masked}))          \
    KERNEL(512, largest_##N, (const N* logits, const i32* targets, f32* right, u64 rows, u64 classes),          \
           largest(logits, targets, right, rows, classes))                                                      \
    KERNEL(256, square_distance_##N, (const N* a, const N* b, f64* partial, u64 count),                         \
           square_distance(a, b, partial, count))
FOR_NUMBERS(EXPORT)
#undef EXPORT

#define EXPORT(N, G)                                                                                            \
    KERNEL(1024, class_loss_##N##_##G,                                                                          \
           (const Wide<N>* lse, const Wide<N>* picked, const i32* targets, G* loss, u64 rows, CLASSES),         \
           class_loss(lse, picked, targets, loss, rows, Classes{whole, each, part, masked}))                    \
    KERNEL(512, class_slopes_##N##_##G,                                                                         \
           (const N* logits, const i32* targets, const Wide<N>* lse, const Wide<N>* shares, G* dlogits,         \
            u64 rows, CLASSES, u32 add),                                                                        \
           class_slopes(logits, targets, lse, shares, dlogits, rows, Classes{whole, each, part, masked}, add))  \
    KERNEL(256, difference_##N##_##G, (const N* a, const N* b, G* out, u64 count, f64 factor, u32 add),         \
           Wide<N> by = Wide<N>(factor);                                                                        \
           zip(a, b, out, count, count, add, [by](auto a, auto b) { return by * (a - b); }))
FOR_NUMBER_PAIRS(EXPORT)
#undef EXPORT

#define EXPORT(W)                                                                                  \
    KERNEL(256, join_sums_##W, (const W* sums, W* lse, W* picked, u64 rows, u64 parts),            \
           join_sums(sums, lse, picked, rows, parts))                                              \
    KERNEL(1024, class_share_##W, (const i32* targets, W* share, u64 rows, CLASSES),               \
           f64 found = share_of(targets, rows, Classes{whole, each, part, masked});                \
           if (threadIdx.x == 0) *share = W(found))
EXPORT(f32)
EXPORT(f64)
#undef EXPORT

#define EXPORT(G)                                                                                        \
    KERNEL(1024, mean_f32_##G, (const f32* numbers, G* out, u64 count, f64 factor), mean(numbers, out, count, factor)) \
    KERNEL(1024, mean_f64_##G, (const f64* numbers, G* out, u64 count, f64 factor), mean(numbers, out, count, factor))
FOR_NUMBERS(EXPORT)
#undef EXPORT
