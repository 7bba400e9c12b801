// Matrix products where no library is at hand: out = scale · a b, row-major, batch by batch.

enum Tail { PLAIN = 0, BIAS = 1, BIAS_RELU = 2, BIAS_GELU = 3 };

// What becomes of a sum.
template <class O, class B>
struct Finish {
    O* out;
    const B* bias;
    O* before;
    u64 m, n, row;
    f32 scale;
    u32 accumulate, tail;

    template <class W>
    __device__ void operator()(u64 i, u64 j, W sum) const {
        if (i >= m || j >= n) return;
        W value = W(scale) * sum;
        O* place = out + i * row + j;
        if (accumulate) value += W(widen(*place));
        if (tail != PLAIN) value += W(widen(bias[j]));
        if (tail == BIAS_RELU) value = greatest(value, W(0));
        if (tail == BIAS_GELU) {
            before[i * row + j] = narrow<O>(value);
            value = gelu_called(value);
        }
        *place = narrow<O>(value);
    }
};

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

// The 16 × 16 numbers from (across, depth) on: fragments of a, or two of b.
template <class N>
__device__ void fragments(u32 (&to)[4], const N* tile, bool deep, bool depth_first, u32 across, u32 depth) {
    u32 lane = threadIdx.x % 32, row = lane % 8, high = lane / 8 % 2 * 8, higher = lane / 16 * 8;
    u32 x = across + (depth_first ? higher : high), d = depth + (depth_first ? high : higher);
    if (deep) load_matrices(to, tile + (x + row) * ALONG_DEPTH + d);
    else load_matrices_transposed(to, tile + (d + row) * ALONG_ACROSS + x);
}

// 128 × 128 sums by eight warps that have 64 × 32 each, on tensor cores; tiles arrive while the
// ones before them are multiplied.
template <class N, class Done>
__device__ void multiply_by_warps(const N* a, const N* b, const Layout& left, const Layout& right, Done done) {
    N* tiles = reinterpret_cast<N*>(dynamic_shared());
    u64 top = u64(blockIdx.x) * ACROSS, side = u64(blockIdx.y) * ACROSS;
    u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = warp / 4 * 64, column = warp % 4 * 32;
    f32 sums[4][4][4] = {};
    auto begin = [&](u64 depth, u32 stage) {
        fetch(tiles + stage * 2 * TILE, a, left, top, depth);
        fetch(tiles + stage * 2 * TILE + TILE, b, right, side, depth);
        commit_copies();
    };
    begin(0, 0);
    u32 stage = 0;
    for (u64 depth = 0; depth < left.depth; depth += DEPTH, stage ^= 1) {
        wait_for_copies<0>();
        __syncthreads();
        if (depth + DEPTH < left.depth) begin(depth + DEPTH, stage ^ 1);
        const N *x = tiles + stage * 2 * TILE, *y = x + TILE;
#pragma unroll
        for (u32 d = 0; d < DEPTH; d += 16) {
            u32 from_a[4][4], from_b[2][4];
#pragma unroll
            for (int i = 0; i < 4; i++) fragments(from_a[i], x, left.deep, false, row + i * 16, d);
#pragma unroll
            for (int j = 0; j < 2; j++) fragments(from_b[j], y, right.deep, true, column + j * 16, d);
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
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                done(top + row + i * 16 + e / 2 * 8 + lane / 4, side + column + j * 8 + lane % 4 * 2 + e % 2,
                     sums[i][j][e]);
}

#define MATRICES(A, B, O)                                                                                     \
    (const A* a, const B* b, O* out, const A* bias, O* before, u64 m, u64 n, u64 k, u32 a_turned, u64 a_row,  \
     u64 a_batch, u32 b_turned, u64 b_row, u64 b_batch, u64 out_row, u64 out_batch, f32 scale, u32 accumulate, \
     u32 tail)
#define FINISH(A, O) \
    Finish<O, A>{out + blockIdx.z * out_batch, bias, before + blockIdx.z * out_batch, m, n, out_row, scale, accumulate, tail}

#define EXPORT(N)                                                                                           \
    KERNEL(256, product_##N##_##N, MATRICES(N, N, N), a += blockIdx.z * a_batch; b += blockIdx.z * b_batch; \
           multiply_by_threads<Wide<N>>(                                                                    \
               m, n, k, a_turned, b_turned, [=](u64 i, u64 p) { return a[a_turned ? p * a_row + i : i * a_row + p]; }, \
               [=](u64 p, u64 j) { return b[b_turned ? j * b_row + p : p * b_row + j]; }, FINISH(N, N)))
EXPORT(f32)
EXPORT(f64)
#undef EXPORT

#define EXPORT(N, O)                                                                                          \
    KERNEL(256, product_##N##_##O, MATRICES(N, N, O), a += blockIdx.z * a_batch; b += blockIdx.z * b_batch;   \
           Layout left = {m, k, a_row, !a_turned, is_aligned(a) && a_row % 8 == 0 && (a_turned ? m : k) % 8 == 0}; \
           Layout right = {n, k, b_row, b_turned != 0,                                                        \
                           is_aligned(b) && b_row % 8 == 0 && (b_turned ? k : n) % 8 == 0};                   \
           multiply_by_warps(a, b, left, right, FINISH(N, O)))
EXPORT(bf16, bf16)
EXPORT(bf16, f32)
EXPORT(f16, f16)
EXPORT(f16, f32)
#undef EXPORT

// Numbers of any type, whose type is said when it is called.
enum Tag { TAG_BF16 = 0, TAG_F16 = 1, TAG_F32 = 2, TAG_F64 = 3 };

__device__ inline f64 read_any(const void* from, u64 at, u32 tag) {
    if (tag == TAG_BF16) return widen(static_cast<const bf16*>(from)[at]);
    if (tag == TAG_F16) return widen(static_cast<const f16*>(from)[at]);
    if (tag == TAG_F32) return static_cast<const f32*>(from)[at];
    return static_cast<const f64*>(from)[at];
}
__device__ inline void write_any(void* to, u64 at, u32 tag, f64 value) {
    if (tag == TAG_BF16) static_cast<bf16*>(to)[at] = narrow<bf16>(value);
    else if (tag == TAG_F16) static_cast<f16*>(to)[at] = narrow<f16>(value);
    else if (tag == TAG_F32) static_cast<f32*>(to)[at] = f32(value);
    else static_cast<f64*>(to)[at] = value;
}

// Every mix of types that has no kernel of its own; bias has the type of a, before that of out.
KERNEL(256, product_mixed,
       (const void* a, const void* b, void* out, const void* bias, void* before, u64 m, u64 n, u64 k, u32 a_turned,
        u64 a_row, u64 a_batch, u32 b_turned, u64 b_row, u64 b_batch, u64 out_row, u64 out_batch, f32 scale,
        u32 accumulate, u32 tail, u32 a_tag, u32 b_tag, u32 out_tag),
       u64 batch = blockIdx.z;
       multiply_by_threads<f64>(
           m, n, k, a_turned, b_turned,
           [=](u64 i, u64 p) { return read_any(a, batch * a_batch + (a_turned ? p * a_row + i : i * a_row + p), a_tag); },
           [=](u64 p, u64 j) { return read_any(b, batch * b_batch + (b_turned ? j * b_row + p : p * b_row + j), b_tag); },
           [=](u64 i, u64 j, f64 sum) {
               if (i >= m || j >= n) return;
               f64 value = f64(scale) * sum;
               u64 at = batch * out_batch + i * out_row + j;
               if (accumulate) value += read_any(out, at, out_tag);
               if (tail != PLAIN) value += read_any(bias, j, a_tag);
               if (tail == BIAS_RELU) value = greatest(value, 0.0);
               if (tail == BIAS_GELU) {
                   write_any(before, at, out_tag, value);
                   value = gelu_called(value);
               }
               write_any(out, at, out_tag, value);
           }))
