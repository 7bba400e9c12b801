// Counter-based random numbers, bit for bit those of `kernels/src/random.rs`.

#define GOLDEN 0x9e3779b97f4a7c15ull

// The finalizer of SplitMix64, a bijection.
__device__ inline u64 mix(u64 bits) {
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9ull;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebull;
    return bits ^ (bits >> 31);
}

// A sequence of numbers, each found by its index alone.
struct Stream {
    u64 first, second;

    __device__ u64 bits(u64 index) const { return mix(mix(index * GOLDEN ^ first) + second); }
};

template <int COUNT>
__device__ u64 stream_key(u64 start, const u64 (&labels)[COUNT]) {
    u64 key = mix(start);
    for (int i = 0; i < COUNT; i++) key = mix((key << 23 | key >> 41) ^ mix(labels[i] + GOLDEN));
    return mix(key ^ u64(COUNT));
}

// The sequence of one seed and one list of labels.
template <int COUNT>
__device__ Stream stream_of(u64 seed, const u64 (&labels)[COUNT]) {
    return Stream{stream_key(seed, labels), stream_key(seed ^ GOLDEN, labels)};
}
