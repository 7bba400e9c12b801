// Table look-up, and its gradient without atomics: tokens are sorted, equal ones in their order,
// so every row of the table adds up its own gradients from the first to the last.

// Where a token's row is among the `each` own rows, from part · each on; `each` if it is not there.
__device__ inline u64 own_row(i32 token, u64 whole, u64 each, u64 part) {
    u64 first = least(part * each, whole), end = least(first + each, whole);
    return token >= 0 && u64(token) >= first && u64(token) < end ? u64(token) - first : each;
}

// y[i] = table[tokens[i]], zero where the row is elsewhere, no numbers where there is none.
template <class N>
__device__ void look_up(const i32* tokens, const N* table, N* y, u64 count, u64 columns, u64 whole, u64 each,
                        u64 part) {
    bool packed = is_aligned(table) && is_aligned(y) && columns % PACKED<N> == 0;
    for_each<PACKED<N>>(count * columns, packed, [&](u64 i, auto width) {
        constexpr int COUNT = decltype(width)::count;
        i32 token = tokens[i / columns];
        u64 row = own_row(token, whole, each, part);
        Pack<N, COUNT> pack;
        if (row < each) {
            pack = load<COUNT>(table + row * columns + i % columns);
        } else {
            bool valid = token >= 0 && u64(token) < whole;
#pragma unroll
            for (int k = 0; k < COUNT; k++) pack.at[k] = narrow<N>(valid ? 0.0f : no_number<f32>());
        }
        store<COUNT>(y + i, pack);
    });
}

KERNEL(256, token_keys, (const i32* tokens, u32* keys, u32* order, u64 count, u64 whole, u64 each, u64 part),
       for (u64 i = thread_of_grid(); i < count; i += threads_of_grid()) {
           keys[i] = u32(own_row(tokens[i], whole, each, part));
           order[i] = u32(i);
       })

// A stable sort by 4 bits of the keys: every thread counts the digits of `each` neighbours, sums
// of the counts say where a thread's keys go, and it puts them there one by one.
KERNEL(256, count_digits, (const u32* keys, u32* counts, u64 count, u64 each, u32 shift),
       __shared__ u32 own[16][256];
       for (int d = 0; d < 16; d++) own[d][threadIdx.x] = 0;
       u64 thread = thread_of_grid(), begin = thread * each, end = least(count, begin + each);
       for (u64 i = begin; i < end; i++) own[keys[i] >> shift & 15][threadIdx.x]++;
       for (int d = 0; d < 16; d++) counts[d * threads_of_grid() + thread] = own[d][threadIdx.x])

KERNEL(256, move_digits,
       (const u32* keys, const u32* order, const u32* counts, u32* sorted_keys, u32* sorted_order, u64 count,
        u64 each, u32 shift),
       __shared__ u32 next[16][256];
       u64 thread = thread_of_grid(), begin = thread * each, end = least(count, begin + each);
       for (int d = 0; d < 16; d++) next[d][threadIdx.x] = counts[d * threads_of_grid() + thread];
       for (u64 i = begin; i < end; i++) {
           u32 to = next[keys[i] >> shift & 15][threadIdx.x]++;
           sorted_keys[to] = keys[i];
           sorted_order[to] = order[i];
       })

// counts[i] = Σ of the counts before it, by one block of 1024 threads.
KERNEL(1024, sum_before, (u32* counts, u64 count),
       __shared__ u32 sums[1024];
       u64 each = (count + 1023) / 1024, begin = least(count, threadIdx.x * each), end = least(count, begin + each);
       u32 own = 0;
       for (u64 i = begin; i < end; i++) own += counts[i];
       sums[threadIdx.x] = own;
       __syncthreads();
       for (u32 by = 1; by < 1024; by *= 2) {
           u32 before = threadIdx.x >= by ? sums[threadIdx.x - by] : 0;
           __syncthreads();
           sums[threadIdx.x] += before;
           __syncthreads();
       }
       u32 before = sums[threadIdx.x] - own;
       for (u64 i = begin; i < end; i++) {
           u32 next = before + counts[i];
           counts[i] = before;
           before = next;
       })

// The first of the sorted keys that is not below a key.
__device__ inline u64 first_key(const u32* keys, u64 count, u64 key) {
    u64 low = 0, high = count;
    while (low < high) {
        u64 middle = (low + high) / 2;
        if (keys[middle] < key) low = middle + 1;
        else high = middle;
    }
    return low;
}

// dtable[r] = Σ dy[i] over the tokens i of row r, one block per row.
template <class N, class G>
__device__ void gather_slopes(const u32* keys, const u32* order, const N* dy, G* dtable, u64 count, u64 columns,
                              bool add) {
    typedef Wide<N> W;
    u64 begin = first_key(keys, count, blockIdx.x), end = first_key(keys, count, u64(blockIdx.x) + 1);
    dtable += blockIdx.x * columns;
    if (begin == end && add) return;
    bool packed = is_aligned(dy) && is_aligned(dtable) && columns % PACKED<N> == 0;
    for_each_in_row<PACKED<N>>(columns, packed, [&](u64 j, auto width) {
        constexpr int COUNT = decltype(width)::count;
        W values[COUNT] = {};
        for (u64 i = begin; i < end; i++) {
            auto pack = load<COUNT>(dy + order[i] * columns + j);
#pragma unroll
            for (int k = 0; k < COUNT; k++) values[k] += widen(pack.at[k]);
        }
        put_pack(dtable + j, values, add);
    });
}

#define EXPORT(N)                                                                                             \
    KERNEL(256, look_up_##N,                                                                                  \
           (const i32* tokens, const N* table, N* y, u64 count, u64 columns, u64 whole, u64 each, u64 part),  \
           look_up(tokens, table, y, count, columns, whole, each, part))
FOR_NUMBERS(EXPORT)
#undef EXPORT

#define EXPORT(N, G)                                                                                          \
    KERNEL(128, gather_slopes_##N##_##G,                                                                      \
           (const u32* keys, const u32* order, const N* dy, G* dtable, u64 count, u64 columns, u32 add),      \
           gather_slopes(keys, order, dy, dtable, count, columns, add))
FOR_NUMBER_PAIRS(EXPORT)
#undef EXPORT
