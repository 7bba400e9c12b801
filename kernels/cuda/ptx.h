// Instructions that C++ has no words for, each with a twin that does the same on the host.

#if defined(ROUNDELAY_EMULATION)

// The nearest bf16, ties to even; a number that is none stays none.
inline u16 bf16_bits(float x) {
    u32 bits = reinterpret<u32>(x);
    if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
    return u16((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// The nearest IEEE half, ties to even; too large becomes infinite.
inline u16 f16_bits(float x) {
    u32 bits = reinterpret<u32>(x), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    if (size > 0x7f800000) return 0x7fff;
    if (size >= 0x477ff000) return u16(sign | 0x7c00);
    if (size < 0x38800000) {
        // Adding 0.5 leaves the multiples of 2^-24 in the lowest bits, rounded.
        float shifted = reinterpret<float>(size) + 0.5f;
        return u16(sign | (reinterpret<u32>(shifted) - 0x3f000000));
    }
    return u16(sign | ((size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13));
}

// Two neighbours in one word, the first in its lower half.
inline u32 bf16_pair(float first, float second) { return bf16_bits(first) | u32(bf16_bits(second)) << 16; }
inline u32 f16_pair(float first, float second) { return f16_bits(first) | u32(f16_bits(second)) << 16; }

inline float f16_value(u16 half) {
    u32 sign = u32(half & 0x8000) << 16, size = half & 0x7fff;
    if (size >= 0x7c00) return reinterpret<float>(sign | 0x7f800000 | (size & 0x3ff) << 13);
    if (size < 0x400) return reinterpret<float>(sign | reinterpret<u32>(float(size) * 0x1p-24f));
    return reinterpret<float>(sign | ((size << 13) + 0x38000000));
}

// 2^x within a few units of the last place; what is below the normal numbers is zero.
inline float power_of_two(float x) {
    float power = exp2f(x);
    return power < 0x1p-126f ? 0.0f : power;
}

// 1/x to the last place, for x above zero; what is below the normal numbers is zero.
inline float reciprocal(float x) {
    float result = 1.0f / x;
    return result < 0x1p-126f ? 0.0f : result;
}

// The thread's number in its warp and the block's in its grid, read anew: no register has to keep what
// follows from them.
inline u32 lane_anew() { return emulation::lane(); }
inline u32 block_anew() { return blockIdx.x; }

// Begins to copy `bytes`, or zeros from nowhere, to be there at the wait. Early they are there at once, by stores that
// sanitizers see: a device may take either time, or any between them.
inline void begin_copy(void* to, const void* from, u32 bytes) {
#if defined(EMULATION_EARLY_COPIES)
    for (u32 i = 0; i < bytes / sizeof(u16); i++)
        static_cast<u16*>(to)[i] = from ? static_cast<const u16*>(from)[i] : u16(0);
#else
    emulation::Thread& self = *emulation::block().current;
    if (bytes) self.copies.push_back({to, from, bytes, self.copy_group});
#endif
}
// Copies 16 bytes into shared memory, or zeros where there is nothing to copy; they are there
// after the wait for their group.
inline void copy_async(void* to, const void* from, bool valid) { begin_copy(to, valid ? from : nullptr, 16); }
// Copies the first `bytes` of 16 in the same way, and zeros behind them.
inline void copy_some_async(void* to, const void* from, u32 bytes) {
    begin_copy(to, from, bytes);
    begin_copy(static_cast<char*>(to) + bytes, nullptr, 16 - bytes);
}
// Copies one number of 32 bits in the same way.
inline void copy_async(f32* to, const f32* from) { begin_copy(to, from, sizeof(f32)); }
inline void commit_copies() { emulation::block().current->copy_group++; }
// Waits until at most LATE groups are on their way.
template <int LATE>
void wait_for_copies() {
    emulation::Thread& self = *emulation::block().current;
    size_t done = 0;
    for (; done < self.copies.size() && self.copies[done].group + LATE < self.copy_group; done++) {
        const auto& copy = self.copies[done];
        if (copy.from) memcpy(copy.to, copy.from, copy.bytes);
        else memset(copy.to, 0, copy.bytes);
    }
    self.copies.erase(self.copies.begin(), self.copies.begin() + done);
}

// Four 8 × 8 matrices of 16 bits from shared memory: lane 8 i + r has the address of row r of
// matrix i; lane l gets elements 2 (l % 4) and the next of row l / 4 of each.
inline void load_matrices(u32 (&to)[4], const void* row) {
    const auto rows = emulation::show(row, __FILE__, __LINE__);
    unsigned lane = emulation::lane();
    for (int i = 0; i < 4; i++) {
        const char* from;
        memcpy(&from, rows[i * 8 + lane / 4], sizeof from);
        memcpy(&to[i], from + lane % 4 * 4, 4);
    }
}
// The same of the matrices' transposes.
inline void load_matrices_transposed(u32 (&to)[4], const void* row) {
    const auto rows = emulation::show(row, __FILE__, __LINE__);
    unsigned lane = emulation::lane();
    for (int i = 0; i < 4; i++) {
        u16 pair[2];
        for (unsigned k = 0; k < 2; k++) {
            const char* from;
            memcpy(&from, rows[i * 8 + lane % 4 * 2 + k], sizeof from);
            memcpy(&pair[k], from + lane / 4 * 2, 2);
        }
        to[i] = pair[0] | u32(pair[1]) << 16;
    }
}

// sum (16 × 8) += a (16 × 16) · b (16 × 8), as `mma.sync.m16n8k16` spreads them over a warp.
template <class Value>
void multiply_add(float (&sum)[4], const u32 (&a)[4], const u32 (&b)[2], Value value) {
    const u32 own[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
    const auto all = emulation::show(own, __FILE__, __LINE__);
    unsigned lane = emulation::lane(), row = lane / 4, column = lane % 4 * 2;
    auto half = [all](unsigned from, unsigned word, unsigned k) {
        u16 number;
        memcpy(&number, all[from] + word * 4 + k % 2 * 2, sizeof number);
        return number;
    };
    // The lane's two rows of the left factor, and its two columns of the right one.
    float left[2][16], right[2][16];
    for (unsigned i = 0; i < 2; i++)
        for (unsigned k = 0; k < 16; k++) {
            left[i][k] = value(half(row * 4 + k % 8 / 2, i + k / 8 * 2, k));
            right[i][k] = value(half((column + i) * 4 + k % 8 / 2, 4 + k / 8, k));
        }
    for (unsigned i = 0; i < 4; i++)
        for (unsigned k = 0; k < 16; k++) sum[i] += left[i / 2][k] * right[i % 2][k];
}
inline void multiply_add_bf16(float (&sum)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    multiply_add(sum, a, b, [](u16 bits) { return reinterpret<float>(u32(bits) << 16); });
}
inline void multiply_add_f16(float (&sum)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    multiply_add(sum, a, b, f16_value);
}

#else

__device__ inline u16 bf16_bits(float x) {
    u16 bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}
__device__ inline u16 f16_bits(float x) {
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}
__device__ inline u32 bf16_pair(float first, float second) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
}
__device__ inline u32 f16_pair(float first, float second) {
    u32 pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
}
__device__ inline float f16_value(u16 half) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(half));
    return x;
}

__device__ inline float power_of_two(float x) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}
__device__ inline float reciprocal(float x) {
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

__device__ inline u32 lane_anew() {
    u32 lane;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}
__device__ inline u32 block_anew() {
    u32 block;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block));
    return block;
}

__device__ inline u32 shared_address(const void* pointer) {
    return u32(__cvta_generic_to_shared(pointer));
}

__device__ inline void copy_some_async(void* to, const void* from, u32 bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes)
                 : "memory");
}
__device__ inline void copy_async(void* to, const void* from, bool valid) {
    copy_some_async(to, from, valid ? 16 : 0);
}
__device__ inline void copy_async(f32* to, const f32* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LATE>
__device__ void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LATE) : "memory");
}

__device__ inline void load_matrices(u32 (&to)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row))
                 : "memory");
}
__device__ inline void load_matrices_transposed(u32 (&to)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row))
                 : "memory");
}

#define MULTIPLY_ADD(name)                                                                            \
    __device__ inline void multiply_add_##name(float (&sum)[4], const u32 (&a)[4], const u32 (&b)[2]) { \
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." #name "." #name                          \
                     ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"             \
                     : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])                          \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));              \
    }
MULTIPLY_ADD(bf16)
MULTIPLY_ADD(f16)

#endif
