// What CUDA C++ has and C++ has not: qualifiers, built-in variables, vector types, warp and block
// functions, the few functions of mathematics that have other names.
#pragma once

#include <cmath>

#include "block.h"

#define __global__
#define __device__
#define __host__
#define __constant__ static const
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
// See `shared.h`.
#define __shared__ static thread_local

#define threadIdx (emulation::block().current->place)
#define blockIdx (emulation::block().place)
#define blockDim (emulation::block().size)
#define gridDim (emulation::block().grid)

struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

#define __syncthreads() emulation::block_barrier(__FILE__, __LINE__)
#define __syncwarp() emulation::warp_barrier(__FILE__, __LINE__)
// Lanes outside of the warp keep their own value; all lanes of a warp must take part.
#define __shfl_sync(mask, value, from) emulation::exchange((value), (from) % 32u, __FILE__, __LINE__)
#define __shfl_xor_sync(mask, value, by) \
    emulation::exchange((value), emulation::lane() ^ unsigned(by), __FILE__, __LINE__)
#define __shfl_up_sync(mask, value, by) \
    emulation::exchange((value), emulation::lane() - unsigned(by), __FILE__, __LINE__)
#define __any_sync(mask, value) emulation::is_any((value), __FILE__, __LINE__)
#define __match_any_sync(mask, value) emulation::matching((value), __FILE__, __LINE__)
#define __popc(value) __builtin_popcount(value)

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
