// Tiles of matrix products: by threads in any type, on tensor cores in types of 16 bits.

// 64 × 64 sums, from row `top` on, by 256 threads that have 4 × 4 each.
template <class W, class LoadA, class LoadB, class Done>
__device__ void multiply_by_threads(u64 top, u64 m, u64 n, u64 k, bool a_turned, bool b_turned, LoadA a, LoadB b,
                                    Done done) {
    __shared__ W left[16][65], right[16][65];
    u64 side = u64(blockIdx.y) * 64;
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
// need be, so that eight of them lie in different banks. TILE numbers hold it in either order.
constexpr u32 DEPTH = 32, ALONG_DEPTH = DEPTH + 8;
template <u32 ACROSS>
constexpr u32 ALONG_ACROSS = ACROSS + 8;
template <u32 ACROSS>
constexpr u32 TILE = ACROSS * ALONG_DEPTH;
static_assert(TILE<64> >= DEPTH * ALONG_ACROSS<64> && TILE<128> >= DEPTH * ALONG_ACROSS<128>, "in either order");

// `deep`: depth is contiguous. `packed`: all rows begin where 16 bytes are moved at once; what is behind
// their last number is not read.
struct Layout {
    u64 across, depth, row;
    bool deep, packed;
};

// Fetches tiles of a matrix that memory has as it is, from `across` on.
template <u32 ACROSS, class N>
struct Stored {
    const N* from;
    Layout layout;
    u64 across;

    __device__ void operator()(N* tile, u64 depth) const {
        constexpr u32 BY_DEPTH = DEPTH / 8, BY_ACROSS = ACROSS / 8;
        bool deep = layout.deep;
        u64 outer = deep ? across : depth, inner = deep ? depth : across;
        u64 outer_end = deep ? layout.across : layout.depth, inner_end = deep ? layout.depth : layout.across;
#pragma unroll
        for (u32 x = 0; x < ACROSS * DEPTH / 8 / 256; x++) {
            u32 e = threadIdx.x + x * 256;
            u32 r = deep ? e / BY_DEPTH : e / BY_ACROSS, c = (deep ? e % BY_DEPTH : e % BY_ACROSS) * 8;
            N* to = tile + r * (deep ? ALONG_DEPTH : ALONG_ACROSS<ACROSS>) + c;
            const N* source = from + (outer + r) * layout.row + inner + c;
            u64 valid = outer + r < outer_end && inner + c < inner_end ? inner_end - inner - c : 0;
            if (layout.packed) copy_some_async(to, valid ? source : from, valid < 8 ? u32(valid) * 2 : 16);
            else store(to, load_some<8>(source, valid, false));
        }
    }
};

// The 16 × 16 numbers from (across, depth) on: fragments of a, or two of b.
template <u32 ACROSS, class N>
__device__ void fragments(u32 (&to)[4], const N* tile, bool deep, bool depth_first, u32 across, u32 depth) {
    u32 lane = threadIdx.x % 32, row = lane % 8, high = lane / 8 % 2 * 8, higher = lane / 16 * 8;
    u32 x = across + (depth_first ? higher : high), d = depth + (depth_first ? high : higher);
    if (deep) load_matrices(to, tile + (x + row) * ALONG_DEPTH + d);
    else load_matrices_transposed(to, tile + (d + row) * ALONG_ACROSS<ACROSS> + x);
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

// HEIGHT × WIDTH sums, from row `top` on, by eight warps on tensor cores. So many `stages` of tiles,
// 2 or 4, are in shared memory: one is multiplied while the others arrive. `a` and `b` are called
// with a tile and where its depth begins, stage by stage, and fetch it as `deep` or not. No sum
// depends on the tile's extents or on `stages`.
template <u32 HEIGHT, u32 WIDTH, class N, class FetchA, class FetchB, class Done>
__device__ void multiply_by_warps(u64 top, u64 k, u32 stages, bool a_deep, bool b_deep, FetchA a, FetchB b, Done done) {
    // A warp has 16 × 32 sums, BANDS times one below the other.
    constexpr u32 BESIDE = WIDTH / 32, BANDS = HEIGHT / 16 * BESIDE / 8, STAGE = TILE<HEIGHT> + TILE<WIDTH>;
    N* tiles = reinterpret_cast<N*>(dynamic_shared());
    u64 side = u64(blockIdx.y) * WIDTH;
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    u32 row = warp / BESIDE * BANDS * 16, column = warp % BESIDE * 32;
    f32 sums[BANDS][4][4] = {};
    // A group of copies for every stage, and empty ones behind the last, so that waits may count.
    u64 next = 0;
    u32 arriving = 0;
    auto begin = [&] {
        if (next < k) {
            N* x = tiles + arriving * STAGE;
            a(x, next);
            b(x + TILE<HEIGHT>, next);
        }
        commit_copies();
        next += DEPTH;
        arriving = arriving + 1 == stages ? 0 : arriving + 1;
    };
    for (u32 s = 1; s < stages; s++) begin();
    u32 stage = 0;
    for (u64 depth = 0; depth < k; depth += DEPTH, stage = stage + 1 == stages ? 0 : stage + 1) {
        if (stages > 2) wait_for_copies<2>();
        else wait_for_copies<0>();
        __syncthreads();
        begin();
        const N *x = tiles + stage * STAGE, *y = x + TILE<HEIGHT>;
#pragma unroll
        for (u32 d = 0; d < DEPTH; d += 16) {
            u32 from_a[BANDS][4], from_b[2][4];
#pragma unroll
            for (u32 i = 0; i < BANDS; i++) fragments<HEIGHT>(from_a[i], x, a_deep, false, row + i * 16, d);
#pragma unroll
            for (u32 j = 0; j < 2; j++) fragments<WIDTH>(from_b[j], y, b_deep, true, column + j * 16, d);
#pragma unroll
            for (u32 i = 0; i < BANDS; i++)
#pragma unroll
                for (u32 j = 0; j < 4; j++) {
                    const u32 part[2] = {from_b[j / 2][j % 2 * 2], from_b[j / 2][j % 2 * 2 + 1]};
                    multiply_add_of(N{}, sums[i][j], from_a[i], part);
                }
        }
    }
#pragma unroll
    for (u32 i = 0; i < BANDS; i++) finish(sums[i], top + row + i * 16 + lane / 4, side + column, done);
}
