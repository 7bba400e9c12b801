// Kernels with a mistake each, to see that sanitizers find mistakes in emulated kernels: run with
// `clean`, `behind` (a write behind the end) or `barrier` (one that is missing).

#include "kernel.h"

// to = from, reversed within every block of 64; `rows` are written, of which there are `count`.
__device__ void reverse(const f32* from, f32* to, u32 rows, bool barrier) {
    __shared__ f32 tile[64];
    u32 at = blockIdx.x * 64 + threadIdx.x;
    tile[threadIdx.x] = from[at];
    if (barrier) __syncthreads();
    if (at < rows) to[at] = tile[63 - threadIdx.x];
}

KERNEL(64, reverse_all, (const f32* from, f32* to, u32 rows, u32 barrier), reverse(from, to, rows, barrier != 0))

int main(int, char** arguments) {
    u32 count = 128, rows = strcmp(arguments[1], "behind") ? count - 1 : count;
    u32 barrier = strcmp(arguments[1], "barrier") != 0;
    f32 *from = new f32[count], *to = new f32[count - 1];
    for (u32 i = 0; i < count; i++) from[i] = f32(i);
    void* all[] = {&from, &to, &rows, &barrier};
    unsigned grid[] = {2, 1, 1}, block[] = {64, 1, 1};
    roundelay_emulate_reverse_all(grid, block, 0, all);
    bool right = to[0] == 63 && to[64] == 127;
    delete[] from;
    delete[] to;
    return right || !barrier ? 0 : 1;
}
