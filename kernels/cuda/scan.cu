// How many words of each run of an array equal a given one: what memory still holds of what it was
// filled with. A block counts one run.

__device__ inline void count_equal(const u32* words, u64 count, u64 each, u32 word, u32* found) {
    u64 first = u64(blockIdx.x) * each, end = least(first + each, count);
    u32 equal = 0;
    for (u64 i = first + threadIdx.x; i < end; i += blockDim.x) equal += words[i] == word;
    equal = row_sum(equal);
    if (threadIdx.x == 0) found[blockIdx.x] = equal;
}

KERNEL(256, count_words, (const u32* words, u64 count, u64 each, u32 word, u32* found),
       count_equal(words, count, each, word, found))
