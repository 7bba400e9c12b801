// Matrix products where no library is at hand: out = scale · a b, plus what is at `added` where it
// is an address; row-major, batch by batch.

enum Tail { PLAIN = 0, BIAS = 1, BIAS_RELU = 2, BIAS_GELU = 3, BIAS_GELU_TANH = 4, GELU_TANH_SLOPE = 5 };

// What the tails from BIAS_GELU on make of a value, and of what is stored before the activation. A call
// of its own, for loops that are unrolled often. Slopes are taken times what would have been stored.
template <class O>
__device__ __noinline__ Wide<O> bent(u32 tail, Wide<O> value, O* before) {
    if (tail == GELU_TANH_SLOPE) return gelu_tanh_slope<O>(widen(*before), widen(narrow<O>(value)));
    *before = narrow<O>(value);
    return tail == BIAS_GELU ? gelu_of<O>(value) : gelu_tanh_of<O>(value);
}

// What becomes of a sum.
template <class O, class B>
struct Finish {
    O* out;
    const B* bias;
    O* before;
    const O* added;
    u64 m, n, row;
    f32 scale;
    u32 tail;

    template <class W>
    __device__ void operator()(u64 i, u64 j, W sum) const {
        if (i >= m || j >= n) return;
        W value = W(scale) * sum;
        if (added) value += W(widen(added[i * row + j]));
        if (bias) value += W(widen(bias[j]));
        if (tail == BIAS_RELU) value = rectified(value);
        if (tail >= BIAS_GELU) value = bent<O>(tail, value, before + i * row + j);
        out[i * row + j] = narrow<O>(value);
    }
};

#define MATRICES(A, B, O)                                                                                     \
    (const A* a, const B* b, O* out, const A* bias, O* before, const O* added, u64 m, u64 n, u64 k,           \
     u32 a_turned, u64 a_row, u64 a_batch, u32 b_turned, u64 b_row, u64 b_batch, u64 out_row, u64 out_batch,  \
     f32 scale, u32 tail, u32 stages)
#define FINISH(A, O)                                                                                          \
    Finish<O, A>{out + blockIdx.z * out_batch, bias, before + blockIdx.z * out_batch,                         \
                 added ? added + blockIdx.z * out_batch : added, m, n, out_row, scale, tail}

#define EXPORT(N)                                                                                           \
    KERNEL(256, product_##N##_##N, MATRICES(N, N, N), a += blockIdx.z * a_batch; b += blockIdx.z * b_batch; \
           multiply_by_threads<Wide<N>>(                                                                    \
               u64(blockIdx.x) * 64, m, n, k, a_turned, b_turned,                                           \
               [=](u64 i, u64 p) { return a[a_turned ? p * a_row + i : i * a_row + p]; },                   \
               [=](u64 p, u64 j) { return b[b_turned ? j * b_row + p : p * b_row + j]; }, FINISH(N, N)))
EXPORT(f32)
EXPORT(f64)
#undef EXPORT

// In 16 bits on tensor cores; `slim` where no more than 64 columns are.
template <u32 WIDTH, class N, class Done>
__device__ void multiply(const N* a, const N* b, u64 m, u64 n, u64 k, bool a_turned, u64 a_row, bool b_turned,
                         u64 b_row, u32 stages, Done done) {
    u64 top = u64(blockIdx.x) * 128, side = u64(blockIdx.y) * WIDTH;
    Layout left = {m, k, a_row, !a_turned, is_aligned(a) && a_row % 8 == 0};
    Layout right = {n, k, b_row, b_turned, is_aligned(b) && b_row % 8 == 0};
    multiply_by_warps<128, WIDTH, N>(top, k, stages, left.deep, right.deep, Stored<128, N>{a, left, top},
                                     Stored<WIDTH, N>{b, right, side}, done);
}

#define EXPORT_WIDE(SYMBOL, WIDTH, N, O)                                                          \
    KERNEL_TOGETHER(2, 256, SYMBOL##_##N##_##O, MATRICES(N, N, O),                                \
                    multiply<WIDTH>(a + blockIdx.z * a_batch, b + blockIdx.z * b_batch, m, n, k,  \
                                    a_turned, a_row, b_turned, b_row, stages, FINISH(N, O)))
#define EXPORT(N, O) EXPORT_WIDE(product, 128, N, O) EXPORT_WIDE(product_slim, 64, N, O)
EXPORT(bf16, bf16)
EXPORT(bf16, f32)
EXPORT(f16, f16)
EXPORT(f16, f32)
#undef EXPORT
#undef EXPORT_WIDE

// Numbers of any type, whose type is said when it is called. Calls, because 16 copies of these choices for each use
// take compilers most of a minute.
enum Tag { TAG_BF16 = 0, TAG_F16 = 1, TAG_F32 = 2, TAG_F64 = 3 };

__device__ __noinline__ f64 read_any(const void* from, u64 at, u32 tag) {
    if (tag == TAG_BF16) return widen(static_cast<const bf16*>(from)[at]);
    if (tag == TAG_F16) return widen(static_cast<const f16*>(from)[at]);
    if (tag == TAG_F32) return static_cast<const f32*>(from)[at];
    return static_cast<const f64*>(from)[at];
}
__device__ __noinline__ void write_any(void* to, u64 at, u32 tag, f64 value) {
    if (tag == TAG_BF16) static_cast<bf16*>(to)[at] = narrow<bf16>(value);
    else if (tag == TAG_F16) static_cast<f16*>(to)[at] = narrow<f16>(value);
    else if (tag == TAG_F32) static_cast<f32*>(to)[at] = f32(value);
    else static_cast<f64*>(to)[at] = value;
}

// Every mix of types that has no kernel of its own; bias has the type of a, before that of out.
KERNEL(256, product_mixed,
       (const void* a, const void* b, void* out, const void* bias, void* before, const void* added, u64 m, u64 n,
        u64 k, u32 a_turned, u64 a_row, u64 a_batch, u32 b_turned, u64 b_row, u64 b_batch, u64 out_row, u64 out_batch,
        f32 scale, u32 tail, u32 stages, u32 a_tag, u32 b_tag, u32 out_tag),
       u64 batch = blockIdx.z;
       multiply_by_threads<f64>(
           u64(blockIdx.x) * 64, m, n, k, a_turned, b_turned,
           [=](u64 i, u64 p) { return read_any(a, batch * a_batch + (a_turned ? p * a_row + i : i * a_row + p), a_tag); },
           [=](u64 p, u64 j) { return read_any(b, batch * b_batch + (b_turned ? j * b_row + p : p * b_row + j), b_tag); },
           [=](u64 i, u64 j, f64 sum) {
               if (i >= m || j >= n) return;
               f64 value = f64(scale) * sum;
               u64 at = batch * out_batch + i * out_row + j;
               if (added) value += read_any(added, at, out_tag);
               if (bias) value += read_any(bias, j, a_tag);
               if (tail == BIAS_RELU) value = rectified(value);
               if (tail >= BIAS_GELU) {
                   f64 stored = 0.0;
                   if (tail == GELU_TANH_SLOPE) {
                       stored = read_any(before, at, out_tag);
                       write_any(out, at, out_tag, value);
                       value = read_any(out, at, out_tag);
                   }
                   value = bent<f64>(tail, value, &stored);
                   if (tail != GELU_TANH_SLOPE) write_any(before, at, out_tag, stored);
               }
               write_any(out, at, out_tag, value);
           }))
