// Sums and maxima over warps and blocks, always in the same order.

struct Sum {
    template <class W>
    __device__ static W join(W a, W b) {
        return a + b;
    }
};
struct Most {
    template <class W>
    __device__ static W join(W a, W b) {
        return greatest(a, b);
    }
};

// Over the lanes of a warp; every lane gets it.
template <class How, class W>
__device__ W warp_reduce(W value) {
#pragma unroll
    for (int by = 16; by > 0; by /= 2)
        value = How::join(value, __shfl_xor_sync(WHOLE_WARP, value, by));
    return value;
}

// Over the threads of a row of the block, blockDim.x of them, which are one warp or several; every
// thread gets it. Where they are several, all rows of the block come here.
template <class How, class W>
__device__ W row_reduce(W value) {
    value = warp_reduce<How>(value);
    if (blockDim.x == 32) return value;
    __shared__ W warps[32];
    u32 count = blockDim.x / 32, first = threadIdx.y * count;
    if (threadIdx.x % 32 == 0) warps[first + threadIdx.x / 32] = value;
    __syncthreads();
    value = warps[first];
    for (u32 i = 1; i < count; i++) value = How::join(value, warps[first + i]);
    __syncthreads();
    return value;
}

// The same where a row is a power of two of warps: each of them joins what all have by halves, so that a
// large block need not go through its warps one by one.
template <class How, class W>
__device__ W row_reduce_by_halves(W value) {
    value = warp_reduce<How>(value);
    if (blockDim.x == 32) return value;
    __shared__ W warps[32];
    u32 count = blockDim.x / 32, first = threadIdx.y * count;
    if (threadIdx.x % 32 == 0) warps[first + threadIdx.x / 32] = value;
    __syncthreads();
    value = warps[first + threadIdx.x % count];
    for (u32 by = count / 2; by > 0; by /= 2) value = How::join(value, __shfl_xor_sync(WHOLE_WARP, value, by));
    __syncthreads();
    return value;
}

// Waits for the threads of a row of the block, which then see what each has written before, and have
// read all that they read before; of several warps, all rows of the block come here.
__device__ inline void sync_row() {
    if (blockDim.x == 32) {
        __syncwarp();
    } else {
        __syncthreads();
    }
}

template <class W>
__device__ W row_sum(W value) {
    return row_reduce<Sum>(value);
}
template <class W>
__device__ W row_most(W value) {
    return row_reduce<Most>(value);
}
