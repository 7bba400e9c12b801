// Table look-up, and its gradient without atomics: tokens are sorted, equal ones in their order, and
// sorted ones are cut into pieces. A piece adds up the gradients of each row from the first to the last; what
// goes on in other pieces is joined, in order, many of one row in groups.

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

// A stable sort by 8 bits of the keys. A warp has neighbours, 32 in each of ROUNDS rounds: it counts the
// digits before each of them, sums of the counts say where those of a block go, and it puts its keys there.
constexpr u32 DIGITS = 256, WARPS = 8, ROUNDS = 8;

// Calls body(i, to) for the keys of a warp in order; `next` has a number for each digit, which becomes one
// more with each key that has it, and `to` is what it was before.
template <class Body>
__device__ void each_digit(const u32* keys, u64 count, u32 shift, u32 (&next)[DIGITS], Body body) {
    u32 lane = threadIdx.x % 32;
    u64 first = (u64(blockIdx.x) * WARPS + threadIdx.x / 32) * ROUNDS * 32 + lane;
    for (u32 round = 0; round < ROUNDS; round++) {
        u64 i = first + round * 32;
        u32 digit = i < count ? keys[i] >> shift & (DIGITS - 1) : DIGITS;
        u32 same = __match_any_sync(WHOLE_WARP, digit), before = __popc(same & ((1u << lane) - 1));
        u32 to = digit < DIGITS ? next[digit] + before : 0;
        __syncwarp();
        if (digit < DIGITS && before == 0) next[digit] += __popc(same);
        __syncwarp();
        if (digit < DIGITS) body(i, to);
    }
}

// The digits of every warp of the block, counted.
__device__ inline void count_by_warp(const u32* keys, u64 count, u32 shift, u32 (&own)[WARPS][DIGITS]) {
    for (u32 w = 0; w < WARPS; w++) own[w][threadIdx.x] = 0;
    __syncthreads();
    each_digit(keys, count, shift, own[threadIdx.x / 32], [](u64, u32) {});
    __syncthreads();
}

KERNEL(256, count_digits, (const u32* keys, u32* counts, u64 count, u32 shift),
       __shared__ u32 own[WARPS][DIGITS];
       count_by_warp(keys, count, shift, own);
       u32 total = 0;
       for (u32 w = 0; w < WARPS; w++) total += own[w][threadIdx.x];
       counts[u64(threadIdx.x) * gridDim.x + blockIdx.x] = total)

KERNEL(256, move_digits,
       (const u32* keys, const u32* order, const u32* counts, u32* sorted_keys, u32* sorted_order, u64 count,
        u32 shift),
       __shared__ u32 own[WARPS][DIGITS];
       count_by_warp(keys, count, shift, own);
       u32 next = counts[u64(threadIdx.x) * gridDim.x + blockIdx.x];
       for (u32 w = 0; w < WARPS; w++) {
           u32 after = next + own[w][threadIdx.x];
           own[w][threadIdx.x] = next;
           next = after;
       }
       __syncthreads();
       each_digit(keys, count, shift, own[threadIdx.x / 32], [=](u64 i, u32 to) {
           sorted_keys[to] = keys[i];
           sorted_order[to] = order[i];
       }))

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

// begins[r] = how many of the sorted keys are below r, for all rows and one more.
KERNEL(256, row_begins, (const u32* keys, u32* begins, u64 count, u64 rows),
       for (u64 r = thread_of_grid(); r <= rows; r += threads_of_grid()) begins[r] = u32(first_key(keys, count, r)))

// Zeros in the rows that no token has.
template <class G>
__device__ void clear_rows(const u32* begins, G* dtable, u64 rows, u64 columns) {
    bool packed = is_aligned(dtable) && columns % PACKED<G> == 0;
    for_each<PACKED<G>>(rows * columns, packed, [&](u64 i, auto width) {
        u64 row = i / columns;
        if (begins[row] == begins[row + 1]) store(dtable + i, Pack<G, decltype(width)::count>{});
    });
}

// Sorted tokens of a piece, and how many gradients a thread reads together.
constexpr u32 PIECE = 32, TOGETHER = 8;

// dtable[r] = Σ dy[i] over the tokens i of row r, one block per piece. Of a row that goes on in other pieces,
// partial[p, 0] has the sum of piece p where it began before it, else partial[p, 1].
template <class N, class G>
__device__ void gather_pieces(const u32* keys, const u32* order, const N* dy, G* dtable, Wide<N>* partial, u64 count,
                              u64 columns, u64 rows, bool add) {
    typedef Wide<N> W;
    // The keys of the piece, between those before and behind it.
    __shared__ u32 key[PIECE + 2], from[PIECE];
    u64 first = u64(blockIdx.x) * PIECE;
    u32 size = least<u64>(PIECE, count - first);
    for (u32 i = threadIdx.x; i < size + 2; i += blockDim.x) {
        u64 behind = first + i;
        key[i] = behind > 0 && behind <= count ? keys[behind - 1] : 0xffffffff;
        if (i < size) from[i] = order[behind];
    }
    __syncthreads();
    // Keys of rows elsewhere are behind all others.
    if (key[1] >= rows) return;
    bool packed = is_aligned(dy) && is_aligned(dtable) && columns % PACKED<N> == 0;
    for_each_in_row<PACKED<N>>(columns, packed, [&](u64 j, auto width) {
        constexpr int COUNT = decltype(width)::count;
        W values[COUNT] = {};
        auto meet = [&](u32 at, const Pack<N, COUNT>& slopes) {
            auto wide = widen(slopes);
#pragma unroll
            for (int k = 0; k < COUNT; k++) values[k] += wide.at[k];
            u32 row = key[at];
            bool goes_on = key[at + 1] == row;
            if (goes_on && at < size) return;
            if (row < rows) {
                if (goes_on || key[0] == row) {
                    W* to = partial + (2 * u64(blockIdx.x) + (key[0] != row)) * columns + j;
                    put_pack(to, values, false);
                } else {
                    put_pack(dtable + row * columns + j, values, add);
                }
            }
#pragma unroll
            for (int k = 0; k < COUNT; k++) values[k] = W(0);
        };
        for (u32 i = 0; i < size; i += TOGETHER) {
            Pack<N, COUNT> all[TOGETHER];
#pragma unroll
            for (u32 t = 0; t < TOGETHER; t++) all[t] = load<COUNT>(dy + from[least(i + t, size - 1)] * columns + j);
#pragma unroll
            for (u32 t = 0; t < TOGETHER; t++)
                if (i + t < size) meet(i + t + 1, all[t]);
        }
    });
}

// Pieces whose sums are joined before those of others, where one row has all their tokens and some before them.
constexpr u32 GROUP = 32;
constexpr u64 IN_GROUP = u64(GROUP) * PIECE;

// Adds to COUNT sums those of pieces, or of groups, that begin at `places`, in order.
template <int COUNT, class W>
__device__ void add_pieces(Pack<W, COUNT>& sums, const W* partial, Rows places) {
    places.template each<4>([=](u64 place) { return load<COUNT>(partial + place); },
                            [&](const auto& more, u64, u64) {
#pragma unroll
                                for (int k = 0; k < COUNT; k++) sums.at[k] += more.at[k];
                            });
}

// partial[p, 1] = Σ partial[q, 0] over the pieces q of a group, of which p is the first, if all are of one row that began
// before it; p has no other sum there then. No row began before group 0.
template <class N>
__device__ void join_groups(const u32* keys, Wide<N>* partial, u64 columns, u64 rows) {
    u64 group = u64(blockIdx.x) + 1, first = group * IN_GROUP;
    u32 row = keys[first - 1];
    if (row >= rows || keys[first + IN_GROUP - 1] != row) return;
    for_each_in_row<PACKED<N>>(columns, columns % PACKED<N> == 0, [&](u64 j, auto width) {
        Wide<N>* sum = partial + group * GROUP * 2 * columns + j;
        auto sums = load<decltype(width)::count>(sum);
        add_pieces(sums, sum, Rows{1, GROUP, 1, 2 * columns});
        store(sum + columns, sums);
    });
}

// The sums of a row that begins in the block's piece and goes on in others: groups of them are joined already.
template <class N, class G>
__device__ void join_pieces(const u32* keys, const Wide<N>* partial, G* dtable, u64 count, u64 columns, u64 rows,
                            bool add) {
    u64 piece = blockIdx.x, first = piece * PIECE, end = first + PIECE;
    if (end >= count) return;
    u32 row = keys[end - 1];
    if (row >= rows || keys[end] != row || (first > 0 && keys[first - 1] == row)) return;
    u64 behind = first_key(keys, count, u64(row) + 1), pieces = (behind - 1) / PIECE + 1;
    u64 group = piece / GROUP + 1, groups = greatest(behind / IN_GROUP, group);
    bool packed = is_aligned(dtable) && columns % PACKED<N> == 0;
    for_each_in_row<PACKED<N>>(columns, packed, [&](u64 j, auto width) {
        auto sums = load<decltype(width)::count>(partial + (2 * piece + 1) * columns + j);
        // Pieces before the groups, these, and pieces behind them, by one loop that has registers for one.
#pragma unroll 1
        for (int turn = 0; turn < 3; turn++) {
            Rows places = turn == 0   ? Rows{piece + 1, least(pieces, group * GROUP), 1, 2 * columns}
                          : turn == 1 ? Rows{group, groups, 1, 2 * GROUP * columns}
                                      : Rows{groups * GROUP, pieces, 1, 2 * columns};
            add_pieces(sums, partial + (turn == 1 ? columns : 0) + j, places);
        }
        put_pack(dtable + row * columns + j, sums.at, add);
    });
}

#define EXPORT(N)                                                                                             \
    KERNEL(256, look_up_##N,                                                                                  \
           (const i32* tokens, const N* table, N* y, u64 count, u64 columns, u64 whole, u64 each, u64 part),  \
           look_up(tokens, table, y, count, columns, whole, each, part))
FOR_NUMBERS(EXPORT)
#undef EXPORT

#define EXPORT(N)                                                                                             \
    KERNEL(256, join_groups_##N, (const u32* keys, Wide<N>* partial, u64 columns, u64 rows),                  \
           join_groups<N>(keys, partial, columns, rows))
FOR_NUMBERS(EXPORT)
#undef EXPORT

#define EXPORT(G)                                                                                             \
    KERNEL(256, clear_rows_##G, (const u32* begins, G* dtable, u64 rows, u64 columns),                        \
           clear_rows(begins, dtable, rows, columns))
FOR_NUMBERS(EXPORT)
#undef EXPORT

#define EXPORT(N, G)                                                                                          \
    KERNEL(256, gather_pieces_##N##_##G,                                                                      \
           (const u32* keys, const u32* order, const N* dy, G* dtable, Wide<N>* partial, u64 count,           \
            u64 columns, u64 rows, u32 add),                                                                  \
           gather_pieces(keys, order, dy, dtable, partial, count, columns, rows, add))                        \
    KERNEL(256, join_pieces_##N##_##G,                                                                        \
           (const u32* keys, const Wide<N>* partial, G* dtable, u64 count, u64 columns, u64 rows, u32 add),   \
           join_pieces<N>(keys, partial, dtable, count, columns, rows, add))
FOR_NUMBER_PAIRS(EXPORT)
#undef EXPORT
