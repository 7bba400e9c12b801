// Loops over arrays: 16 bytes at once where all of them are aligned, else number by number.

template <int COUNT>
struct Width {
    static constexpr int count = COUNT;
};

// Calls body(i, width) for all elements, width.count at once from i on. Thread `own` of `threads`.
template <int COUNT, class Body>
__device__ void for_each_of(u64 own, u64 threads, u64 count, bool packed, Body body) {
    u64 packs = packed ? count / COUNT : 0;
    for (u64 p = own; p < packs; p += threads) body(p * COUNT, Width<COUNT>());
    for (u64 i = packs * COUNT + own; i < count; i += threads) body(i, Width<1>());
}

// By all threads of the grid.
template <int COUNT, class Body>
__device__ void for_each(u64 count, bool packed, Body body) {
    for_each_of<COUNT>(thread_of_grid(), threads_of_grid(), count, packed, body);
}

// By all threads of the grid, in two steps: of TOGETHER packs all is read before any is put, by
// put(i, width, read(i, width)).
template <int COUNT, int TOGETHER, class Read, class Put>
__device__ void for_each_together(u64 count, bool packed, Read read, Put put) {
    u64 packs = packed ? count / COUNT : 0, threads = threads_of_grid();
    Width<COUNT> wide;
    for (u64 p = thread_of_grid(); p < packs; p += TOGETHER * threads) {
        decltype(read(p, wide)) all[TOGETHER];
#pragma unroll
        for (int t = 0; t < TOGETHER; t++)
            all[t] = read((t == 0 ? p : least(p + t * threads, packs - 1)) * COUNT, wide);
#pragma unroll
        for (int t = 0; t < TOGETHER; t++)
            if (p + t * threads < packs) put((p + t * threads) * COUNT, wide, all[t]);
    }
    Width<1> one;
    for (u64 i = packs * COUNT + thread_of_grid(); i < count; i += threads) put(i, one, read(i, one));
}

// By the threads of a row of the block.
template <int COUNT, class Body>
__device__ void for_each_in_row(u64 count, bool packed, Body body) {
    for_each_of<COUNT>(threadIdx.x, blockDim.x, count, packed, body);
}

// The numbers of a row that begins anywhere, as the threads of a row of the block meet them: COUNT at once
// from the first 16 bytes on, the numbers before and behind them one by one.
template <int COUNT>
struct Span {
    u32 head, packs, count;

    // Of `count` numbers at `first` and at each of the `others`; one by one where not all of them come to
    // 16 bytes at the same number.
    template <class T, class... Others>
    __device__ Span(u32 count, const T* first, const Others*... others) : count(count) {
        u32 before = u32(-reinterpret<u64>(first)) % 16 / sizeof(T);
        bool together = before < count && is_aligned(first + before) && (is_aligned(others + before) && ... && true);
        head = together ? before : 0;
        packs = together ? (count - head) / COUNT : 0;
    }
    // Calls body(i, width) for what the thread meets, width.count at once from i on.
    template <class Body>
    __device__ void each(Body body) const {
        for (u32 p = threadIdx.x; p < packs; p += blockDim.x) body(head + p * COUNT, Width<COUNT>());
        for (u32 i = threadIdx.x; i < count - packs * COUNT; i += blockDim.x)
            body(i < head ? i : i + packs * COUNT, Width<1>());
    }
    // Whether the thread meets number i.
    __device__ bool meets(u32 i) const {
        u32 turn = i < head ? i : i - head < packs * COUNT ? (i - head) / COUNT : i - packs * COUNT;
        return turn % blockDim.x == threadIdx.x;
    }
};

// The row of the array that this row of the block works on.
__device__ inline u64 row_of_grid() { return u64(blockIdx.x) * blockDim.y + threadIdx.y; }

// Stores numbers of 16 bits, two of which are rounded at once.
template <int COUNT, class G>
__device__ void store_pairs(G* to, const f32 (&values)[COUNT]) {
    union {
        u32 words[COUNT / 2];
        Pack<G, COUNT> pack;
    } both;
#pragma unroll
    for (int k = 0; k < COUNT; k += 2) both.words[k / 2] = narrow_two<G>(values[k], values[k + 1]);
    store<COUNT>(to, both.pack);
}

// Stores values, or adds them to what is there.
template <int COUNT, class G, class W>
__device__ void put_pack(G* to, const W (&values)[COUNT], bool add) {
    Pack<G, COUNT> pack;
    if constexpr (sizeof(G) == 2 && COUNT % 2 == 0) {
        if (!add) return store_pairs(to, values);
        pack = load<COUNT>(to);
        f32 sums[COUNT];
#pragma unroll
        for (int k = 0; k < COUNT; k++) sums[k] = values[k] + widen(pack.at[k]);
        store_pairs(to, sums);
    } else {
        if (add) pack = load<COUNT>(to);
#pragma unroll
        for (int k = 0; k < COUNT; k++) {
            W value = values[k];
            if (add) value += W(widen(pack.at[k]));
            pack.at[k] = narrow<G>(value);
        }
        store<COUNT>(to, pack);
    }
}

// Stores the first `valid` values, or adds them to what is there.
template <int COUNT, class G, class W>
__device__ void put_some(G* to, const W (&values)[COUNT], u64 valid, bool packed, bool add) {
    if (packed && valid >= COUNT) {
        put_pack(to, values, add);
        return;
    }
#pragma unroll
    for (int k = 0; k < COUNT; k++)
        if (u64(k) < valid) put(to + k, values[k], add);
}

// Packs by the wider type that have as many numbers as 16 bytes of the narrower one: so many are read together.
template <class A, class B>
constexpr int PACKS_OF_WIDER = PACKED_OF_BOTH<A, B> / PACKED_OF_WIDER<A, B>;

// out = f(x), element by element. Packs are of the wider numbers, so that threads have neighbouring words.
template <class N, class G, class Function>
__device__ void map(const N* x, G* out, u64 count, bool add, Function f) {
    bool packed = is_aligned(x) && is_aligned(out);
    auto read = [=](u64 i, auto width) { return load<decltype(width)::count>(x + i); };
    for_each_together<PACKED_OF_WIDER<N, G>, PACKS_OF_WIDER<N, G>>(
        count, packed, read, [=](u64 i, auto width, const auto& from) {
            constexpr int COUNT = decltype(width)::count;
            auto wide = widen(from);
            Wide<N> values[COUNT];
#pragma unroll
            for (int k = 0; k < COUNT; k++) values[k] = f(wide.at[k]);
            put_pack<COUNT>(out + i, values, add);
        });
}

// Numbers of two arrays at the same place.
template <class N, int COUNT>
struct Pair {
    Pack<N, COUNT> left, right;
};

// out = f(a, b), element by element; b has `length` elements and repeats.
template <class N, class G, class Function>
__device__ void zip(const N* a, const N* b, G* out, u64 count, u64 length, bool add, Function f) {
    constexpr int PACK = PACKED_OF_WIDER<N, G>;
    bool packed = is_aligned(a) && is_aligned(b) && is_aligned(out) && length % PACK == 0;
    auto read = [=](u64 i, auto width) {
        constexpr int COUNT = decltype(width)::count;
        return Pair<N, COUNT>{load<COUNT>(a + i), load<COUNT>(b + (length == count ? i : i % length))};
    };
    for_each_together<PACK, PACKS_OF_WIDER<N, G>>(count, packed, read, [=](u64 i, auto width, const auto& pair) {
        constexpr int COUNT = decltype(width)::count;
        auto left = widen(pair.left), right = widen(pair.right);
        Wide<N> values[COUNT];
#pragma unroll
        for (int k = 0; k < COUNT; k++) values[k] = f(left.at[k], right.at[k]);
        put_pack<COUNT>(out + i, values, add);
    });
}
