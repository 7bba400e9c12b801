// Kernels with a mistake each, to see that sanitizers find mistakes in emulated kernels: run with
// `clean`, `behind` (a write behind the end), `barrier` (one that is missing) or `early` (a copy that begins
// before the barrier behind which its place is free). The first also says whether static shared memory is fresh.

#include "kernel.h"
#include "ptx.h"

// to = from, reversed within every block of 64; `rows` are written, of which there are `count`.
__device__ void reverse(const f32* from, f32* to, u32 rows, bool barrier) {
    __shared__ f32 tile[64];
    u32 at = blockIdx.x * 64 + threadIdx.x;
    tile[threadIdx.x] = from[at];
    if (barrier) __syncthreads();
    if (at < rows) to[at] = tile[63 - threadIdx.x];
}

KERNEL(64, reverse_all, (const f32* from, f32* to, u32 rows, u32 barrier), reverse(from, to, rows, barrier != 0))

// to = from, reversed within every block of 64, by tiles that come into two places in turn: as tiles of matrix
// products do, each begins to come when nobody reads any more what was in its place.
__device__ void reverse_tiles(const f32* from, f32* to, u32 tiles, bool early) {
    __shared__ f32 places[2][64];
    u32 own = threadIdx.x, next = 0;
    auto begin = [&] {
        if (next < tiles) copy_async(&places[next % 2][own], from + next * 64 + own);
        commit_copies();
        next++;
    };
    begin();
    for (u32 tile = 0; tile < tiles; tile++) {
        wait_for_copies<0>();
        if (early) begin();
        __syncthreads();
        if (!early) begin();
        to[tile * 64 + own] = places[tile % 2][63 - own];
    }
}

KERNEL(64, reverse_tiles_all, (const f32* from, f32* to, u32 tiles, u32 early),
       reverse_tiles(from, to, tiles, early != 0))

// Adds one to what nobody cleared.
__device__ void add_one(u32* to) {
    __shared__ u32 sum;
    sum++;
    to[blockIdx.x] = sum;
}

KERNEL(1, add_one_all, (u32* to), add_one(to))

// Whether no block finds what those before it left in static memory.
bool are_fresh() {
    u32 sums[3] = {}, *to = sums;
    void* all[] = {&to};
    unsigned grid[] = {3, 1, 1}, block[] = {1, 1, 1};
    roundelay_emulate_add_one_all(grid, block, 0, all);
    return sums[0] == sums[1] && sums[1] == sums[2];
}

// Whether rows of 64 numbers are reversed, by whichever kernel.
bool are_reversed(const f32* from, const f32* to, u32 rows) {
    for (u32 i = 0; i < rows; i++)
        if (to[i] != from[i / 64 * 64 + 63 - i % 64]) return false;
    return true;
}

int main(int, char** arguments) {
    auto is = [=](const char* mistake) { return strcmp(arguments[1], mistake) == 0; };
    constexpr u32 TILES = 8;
    u32 count = TILES * 64, rows = is("behind") ? count : count - 1, tiles = TILES - 1;
    u32 barrier = !is("barrier"), early = is("early");
    f32 *from = new f32[count], *to = new f32[count - 1];
    for (u32 i = 0; i < count; i++) from[i] = f32(i);
    void *all[] = {&from, &to, &rows, &barrier}, *all_tiles[] = {&from, &to, &tiles, &early};
    unsigned grid[] = {TILES, 1, 1}, one[] = {1, 1, 1}, block[] = {64, 1, 1};
    roundelay_emulate_reverse_all(grid, block, 0, all);
    bool right = are_fresh() && are_reversed(from, to, count - 1);
    roundelay_emulate_reverse_tiles_all(one, block, 0, all_tiles);
    right = right && are_reversed(from, to, count - 1);
    delete[] from;
    delete[] to;
    return right || !barrier || early ? 0 : 1;
}
