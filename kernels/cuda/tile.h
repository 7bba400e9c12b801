// Tiles of matrix products: by threads in any type, on tensor cores in types of 16 bits.

// 64 × 64 sums by 256 threads that have 4 × 4 each.
template <class W, class LoadA, class LoadB, class Done>
__device__ void multiply_by_threads(u64 m, u64 n, u64 k, bool a_turned, bool b_turned, LoadA a, LoadB b, Done done) {
    __shared__ W left[16][65], right[16][65];
    u64 top = u64(blockIdx.x) * 64, side = u64(blockIdx.y) * 64;
    u32 thread = threadIdx.x, row = thread / 16, column = thread % 16;
    W sums[4][4] = {};
    for (u64 first = 0; first < k; first += 16) {
        for (u32 e = thread; e < 64 * 16; e += 256) {
            // Neighbouring threads read neighbouring memory, however a matrix is stored.
            u32 i = a_turned ? e % 64 : e / 16, p = a_turned ? e / 64 : e % 16;
            left[p][i] = top + i < m && first + p < k ? a(top + i, first + p) : W(0);
            u32 j = b_turned ? e / 16 : e % 64, q = b_turned ? e % 16 : e / 64;
            right[q][j] = side + j < n && first + q < k ? b(first + q, side + j) : W(0);
        }
        __syncthreads();
        for (int p = 0; p < 16; p++) {
            W x[4], y[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                x[i] = left[p][row * 4 + i];
                y[i] = right[p][column + i * 16];
            }
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) sums[i][j] += x[i] * y[j];
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) done(top + row * 4 + i, side + column + j * 16, sums[i][j]);
}

// A tile of a matrix of 16-bit numbers in shared memory, in the order in which memory has it:
// ACROSS rows or columns that do not meet, DEPTH of the sums. Rows are 16 bytes longer than they
// need be, so that eight of them lie in different banks.
constexpr u32 ACROSS = 128, DEPTH = 32;
constexpr u32 ALONG_DEPTH = DEPTH + 8, ALONG_ACROSS = ACROSS + 8;
constexpr u32 TILE = ACROSS * ALONG_DEPTH > DEPTH * ALONG_ACROSS ? ACROSS * ALONG_DEPTH : DEPTH * ALONG_ACROSS;

// `deep`: depth is contiguous.
struct Layout {
    u64 across, depth, row;
    bool deep, packed;
};

template <class N>
__device__ void fetch(N* tile, const N* from, const Layout& layout, u64 across, u64 depth) {
    u32 length = layout.deep ? DEPTH : ACROSS, stride = layout.deep ? ALONG_DEPTH : ALONG_ACROSS;
    u64 outer = layout.deep ? across : depth, inner = layout.deep ? depth : across;
    u64 outer_end = layout.deep ? layout.across : layout.depth, inner_end = layout.deep ? layout.depth : layout.across;
    for (u32 e = threadIdx.x; e < ACROSS * DEPTH / 8; e += 256) {
        u32 r = e / (length / 8), c = e % (length / 8) * 8;
        N* to = tile + r * stride + c;
        const N* source = from + (outer + r) * layout.row + inner + c;
        bool row_valid = outer + r < outer_end;
        if (layout.packed) {
            bool valid = row_valid && inner + c < inner_end;
            copy_async(to, valid ? source : from, valid);
        } else {
            for (u32 x = 0; x < 8; x++)
                to[x] = row_valid && inner + c + x < inner_end ? source[x] : N{0};
        }
    }
}

// Fetches tiles of a matrix that memory has as it is, from `across` on.
template <class N>
struct Stored {
    const N* from;
    Layout layout;
    u64 across;

    __device__ void operator()(N* tile, u64 depth) const { fetch(tile, from, layout, across, depth); }
};

// The 16 × 16 numbers from (across, depth) on: fragments of a, or two of b.
template <class N>
__device__ void fragments(u32 (&to)[4], const N* tile, bool deep, bool depth_first, u32 across, u32 depth) {
    u32 lane = threadIdx.x % 32, row = lane % 8, high = lane / 8 % 2 * 8, higher = lane / 16 * 8;
    u32 x = across + (depth_first ? higher : high), d = depth + (depth_first ? high : higher);
    if (deep) load_matrices(to, tile + (x + row) * ALONG_DEPTH + d);
    else load_matrices_transposed(to, tile + (d + row) * ALONG_ACROSS + x);
}

// Calls done(row, column, sum) for a lane's part of 16 × 32 sums: rows `row` and that + 8.
template <class Done>
__device__ void finish(const f32 (&sums)[4][4], u64 row, u64 column, Done done) {
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            done(row + e / 2 * 8, column + j * 8 + threadIdx.x % 4 * 2 + e % 2, sums[j][e]);
}

// What is to be called with eight neighbours of a row at once: done(row, column, sums).
template <class Done>
struct InPacks {
    Done done;
};
template <class Done>
__device__ InPacks<Done> in_packs(Done done) {
    return {done};
}
template <class Done>
__device__ void finish(const f32 (&sums)[4][4], u64 row, u64 column, const InPacks<Done>& packs) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        f32 values[8];
        join_pairs(sums, half, values);
        packs.done(row + half * 8, column + threadIdx.x % 4 * 8, values);
    }
}

// 128 × 128 sums by eight warps that have 64 × 32 each, on tensor cores; tiles arrive while the
// ones before them are multiplied. `a` and `b` are called with a tile and where its depth begins,
// stage by stage, and fetch it as `deep` or not.
template <class N, class FetchA, class FetchB, class Done>
__device__ void multiply_by_warps(u64 k, bool a_deep, bool b_deep, FetchA a, FetchB b, Done done) {
    N* tiles = reinterpret_cast<N*>(dynamic_shared());
    u64 top = u64(blockIdx.x) * ACROSS, side = u64(blockIdx.y) * ACROSS;
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = warp / 4 * 64, column = warp % 4 * 32;
    f32 sums[4][4][4] = {};
    auto begin = [&](u64 depth, u32 stage) {
        a(tiles + stage * 2 * TILE, depth);
        b(tiles + stage * 2 * TILE + TILE, depth);
        commit_copies();
    };
    begin(0, 0);
    u32 stage = 0;
    for (u64 depth = 0; depth < k; depth += DEPTH, stage ^= 1) {
        wait_for_copies<0>();
        __syncthreads();
        if (depth + DEPTH < k) begin(depth + DEPTH, stage ^ 1);
        const N *x = tiles + stage * 2 * TILE, *y = x + TILE;
#pragma unroll
        for (u32 d = 0; d < DEPTH; d += 16) {
            u32 from_a[4][4], from_b[2][4];
#pragma unroll
            for (int i = 0; i < 4; i++) fragments(from_a[i], x, a_deep, false, row + i * 16, d);
#pragma unroll
            for (int j = 0; j < 2; j++) fragments(from_b[j], y, b_deep, true, column + j * 16, d);
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const u32 part[2] = {from_b[j / 2][j % 2 * 2], from_b[j / 2][j % 2 * 2 + 1]};
                    multiply_add_of(N{}, sums[i][j], from_a[i], part);
                }
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) finish(sums[i], top + row + i * 16 + lane / 4, side + column, done);
}
