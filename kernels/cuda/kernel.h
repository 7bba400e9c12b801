// What every source begins with: names of types, and how a kernel is exported.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;
typedef float f32;
typedef double f64;

// An `extern "C"` function for blocks of at most `threads` threads. The emulation also exports
// how to call it.
#if defined(ROUNDELAY_EMULATION)
#define KERNEL_WITHIN(bounds, threads, symbol, parameters, ...) \
    extern "C" void symbol parameters { __VA_ARGS__; } EMULATION_EXPORT(threads, symbol)
#else
#define KERNEL_WITHIN(bounds, threads, symbol, parameters, ...) \
    extern "C" __global__ void __launch_bounds__ bounds symbol parameters { __VA_ARGS__; }
#endif
#define KERNEL(threads, symbol, parameters, ...) \
    KERNEL_WITHIN((threads), threads, symbol, parameters, __VA_ARGS__)
// The same with so few registers that `blocks` of them run together on a multiprocessor.
#define KERNEL_TOGETHER(blocks, threads, symbol, parameters, ...) \
    KERNEL_WITHIN((threads, blocks), threads, symbol, parameters, __VA_ARGS__)

// The block's dynamic shared memory.
__device__ inline unsigned char* dynamic_shared() {
#if defined(ROUNDELAY_EMULATION)
    return emulation::block().shared;
#else
    extern __shared__ __align__(128) unsigned char memory[];
    return memory;
#endif
}

// What changes from one training step to the next, as `cuda::Scalars` of Rust.
struct Scalars {
    u64 step, updates, seed;
    f64 rate;
    u64 training;
};

#define WHOLE_WARP 0xffffffffu

template <class A, class B>
__device__ A reinterpret(B from) {
    static_assert(sizeof(A) == sizeof(B), "bits are kept");
    union {
        B from;
        A to;
    } both;
    both.from = from;
    return both.to;
}

template <class T>
__device__ T least(T a, T b) {
    return b < a ? b : a;
}
template <class T>
__device__ T greatest(T a, T b) {
    return b > a ? b : a;
}
// max(x, 0), of either zero +0; no number of what is none. Said in this way it is one instruction in 32 bits,
// and goes with the rounding to 16.
template <class T>
__device__ T rectified(T x) {
    return x <= T(0) ? T(0) : x;
}

// Whether a is greater than b; what is no number is greater than all that are.
template <class T>
__device__ bool exceeds(T a, T b) {
    return !(a <= b) && b == b;
}

// The number of the thread in a grid along x, and of all threads there.
__device__ inline u64 thread_of_grid() { return u64(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ inline u64 threads_of_grid() { return u64(gridDim.x) * blockDim.x; }
