// Neighbouring numbers that memory moves at once, mostly 16 bytes per instruction.

template <class T, int COUNT>
struct Pack {
    T at[COUNT];
};

// Numbers of a type in 16 bytes, of the narrower and of the wider of two types.
template <class T>
constexpr int PACKED = 16 / sizeof(T);
template <class A, class B>
constexpr int PACKED_OF_BOTH = PACKED<A> > PACKED<B> ? PACKED<A> : PACKED<B>;
template <class A, class B>
constexpr int PACKED_OF_WIDER = PACKED<A> < PACKED<B> ? PACKED<A> : PACKED<B>;

__device__ inline bool is_aligned(const void* pointer) {
    return reinterpret<u64>(pointer) % 16 == 0;
}

// What so many bytes are moved as: words of 16 bytes, or one that is smaller.
template <int BYTES>
struct WordOf {
    static_assert(BYTES % 16 == 0, "whole words");
    typedef uint4 type;
};
template <>
struct WordOf<8> {
    typedef uint2 type;
};
template <>
struct WordOf<4> {
    typedef u32 type;
};
template <>
struct WordOf<2> {
    typedef u16 type;
};
template <class T, int COUNT>
using Word = typename WordOf<COUNT * sizeof(T)>::type;

// COUNT numbers from an address that is a multiple of a word; one from any.
template <int COUNT, class T>
__device__ Pack<T, COUNT> load(const T* from) {
    if constexpr (COUNT == 1) {
        return {{*from}};
    } else {
        typedef Word<T, COUNT> W;
        union {
            Pack<T, COUNT> pack;
            W words[COUNT * sizeof(T) / sizeof(W)];
        } both;
#pragma unroll
        for (int i = 0; i < int(COUNT * sizeof(T) / sizeof(W)); i++)
            both.words[i] = reinterpret_cast<const W*>(from)[i];
        return both.pack;
    }
}

template <int COUNT, class T>
__device__ void store(T* to, const Pack<T, COUNT>& pack) {
    if constexpr (COUNT == 1) {
        *to = pack.at[0];
    } else {
        typedef Word<T, COUNT> W;
        union {
            Pack<T, COUNT> pack;
            W words[COUNT * sizeof(T) / sizeof(W)];
        } both;
        both.pack = pack;
#pragma unroll
        for (int i = 0; i < int(COUNT * sizeof(T) / sizeof(W)); i++) reinterpret_cast<W*>(to)[i] = both.words[i];
    }
}

// All of them as what is computed with. Two bf16 of a word are their bits where they belong.
template <class T, int COUNT>
__device__ Pack<Wide<T>, COUNT> widen(const Pack<T, COUNT>& pack) {
    Pack<Wide<T>, COUNT> wide;
    if constexpr (IS_BF16<T> && COUNT % 2 == 0) {
        struct Words {
            u32 at[COUNT / 2];
        };
        Words words = reinterpret<Words>(pack);
#pragma unroll
        for (int k = 0; k < COUNT; k += 2) {
            wide.at[k] = reinterpret<f32>(words.at[k / 2] << 16);
            wide.at[k + 1] = reinterpret<f32>(words.at[k / 2] & 0xffff0000u);
        }
    } else {
#pragma unroll
        for (int k = 0; k < COUNT; k++) wide.at[k] = widen(pack.at[k]);
    }
    return wide;
}

// Up to COUNT numbers, of which `valid` exist; zeros behind them.
template <int COUNT, class T>
__device__ Pack<T, COUNT> load_some(const T* from, u64 valid, bool packed) {
    if (packed && valid >= COUNT) return load<COUNT>(from);
    Pack<T, COUNT> pack;
#pragma unroll
    for (int i = 0; i < COUNT; i++) pack.at[i] = u64(i) < valid ? from[i] : T{};
    return pack;
}

// Sums on tensor cores have two neighbours in each lane, in two rows. Of four eights of columns of
// a row, in which the lane has a pair each, four lanes get one each: all its pairs, in order.
__device__ inline void join_pairs(const f32 (*sums)[4], int half, f32 (&values)[8]) {
#pragma unroll
    for (int i = 0; i < 8; i++) values[i] = sums[i / 2][half * 2 + i % 2];
#pragma unroll
    for (u32 by = 1; by < 4; by *= 2) {
        bool upper = threadIdx.x & by;
#pragma unroll
        for (u32 i = 0; i < 8; i++) {
            if (i & 2 * by) continue;
            f32 &low = values[i], &high = values[i + 2 * by];
            f32 other = __shfl_xor_sync(WHOLE_WARP, upper ? low : high, by);
            (upper ? low : high) = other;
        }
    }
}
