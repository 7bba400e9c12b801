// Real numbers of 16, 32 and 64 bits: stored in one type, computed with in one of 32 bits at least.

struct bf16 {
    u16 bits;
};
struct f16 {
    u16 bits;
};

// What numbers are computed in.
template <class T>
struct Compute {
    typedef f32 type;
};
template <>
struct Compute<f64> {
    typedef f64 type;
};
template <class T>
using Wide = typename Compute<T>::type;

__device__ inline f32 widen(bf16 x) { return reinterpret<f32>(u32(x.bits) << 16); }
__device__ inline f32 widen(f16 x) { return f16_value(x.bits); }
__device__ inline f32 widen(f32 x) { return x; }
__device__ inline f64 widen(f64 x) { return x; }

template <class T>
constexpr bool IS_BF16 = false;
template <>
constexpr bool IS_BF16<bf16> = true;

template <class T>
struct Narrow {
    template <class W>
    __device__ static T of(W x) {
        return T(x);
    }
};
template <>
struct Narrow<bf16> {
    template <class W>
    __device__ static bf16 of(W x) {
        return bf16{bf16_bits(f32(x))};
    }
    __device__ static u32 two(f32 first, f32 second) { return bf16_pair(first, second); }
};
template <>
struct Narrow<f16> {
    template <class W>
    __device__ static f16 of(W x) {
        return f16{f16_bits(f32(x))};
    }
    __device__ static u32 two(f32 first, f32 second) { return f16_pair(first, second); }
};

// The nearest number of a type.
template <class T, class W>
__device__ T narrow(W x) {
    return Narrow<T>::of(x);
}

// The greatest number that is stored as zero: half of the least one that is not, which is even.
template <class T>
constexpr f32 ROUNDED_TO_ZERO = 0;
template <>
constexpr f32 ROUNDED_TO_ZERO<bf16> = 0x1p-134f;
template <>
constexpr f32 ROUNDED_TO_ZERO<f16> = 0x1p-25f;

// Two neighbours of 16 bits at once, the first in the lower half.
template <class T>
__device__ u32 narrow_two(f32 first, f32 second) {
    return Narrow<T>::two(first, second);
}

// Stores a number, or adds it to what is there.
template <class T, class W>
__device__ void put(T* place, W value, bool add) {
    if (add) value += W(widen(*place));
    *place = narrow<T>(value);
}

// The same of a sum that is whole: it is rounded before it is added, as where it lies aside between the two.
template <class T, class W>
__device__ void put_whole(T* place, W value, bool add) {
    put(place, W(widen(narrow<T>(value))), add);
}

// −∞ and no number, in either type that is computed with.
template <class W>
__device__ W negative_infinity() {
    return W(reinterpret<f32>(0xff800000u));
}
// The least number that is finite.
template <class W>
__device__ W lowest();
template <>
__device__ inline f32 lowest<f32>() {
    return reinterpret<f32>(0xff7fffffu);
}
template <>
__device__ inline f64 lowest<f64>() {
    return reinterpret<f64>(0xffefffffffffffffull);
}
template <class W>
__device__ W no_number() {
    return W(reinterpret<f32>(0x7fc00000u));
}

// A kernel for each type, or for each type with one of the outputs in it or in its wide type.
#define FOR_NUMBERS(EXPORT) EXPORT(f32) EXPORT(f64) EXPORT(bf16) EXPORT(f16)
#define FOR_NUMBER_PAIRS(EXPORT) \
    EXPORT(f32, f32) EXPORT(f64, f64) EXPORT(bf16, bf16) EXPORT(bf16, f32) EXPORT(f16, f16) EXPORT(f16, f32)

// Products of 16 × 16 and 16 × 8 matrices of a type of 16 bits, see `ptx.h`.
__device__ inline void multiply_add_of(bf16, float (&sum)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    multiply_add_bf16(sum, a, b);
}
__device__ inline void multiply_add_of(f16, float (&sum)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    multiply_add_f16(sum, a, b);
}
