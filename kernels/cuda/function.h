// Elementary functions in 32 and 64 bits, and what activations are made of.

__device__ inline f32 exponential(f32 x) { return expf(x); }
__device__ inline f64 exponential(f64 x) { return exp(x); }
__device__ inline f32 logarithm(f32 x) { return logf(x); }
__device__ inline f64 logarithm(f64 x) { return log(x); }
__device__ inline f32 tangent(f32 x) { return tanhf(x); }
__device__ inline f64 tangent(f64 x) { return tanh(x); }
__device__ inline f32 root(f32 x) { return sqrtf(x); }
__device__ inline f64 root(f64 x) { return sqrt(x); }
__device__ inline f32 one_over_root(f32 x) { return 1.0f / sqrtf(x); }
__device__ inline f64 one_over_root(f64 x) { return 1.0 / sqrt(x); }
// a · b + c, rounded once.
__device__ inline f32 fused(f32 a, f32 b, f32 c) { return fmaf(a, b, c); }
__device__ inline f64 fused(f64 a, f64 b, f64 c) { return fma(a, b, c); }
// 1/x for x above zero, to the last place.
__device__ inline f32 inverse(f32 x) { return reciprocal(x); }
__device__ inline f64 inverse(f64 x) { return 1.0 / x; }
// The greater of two; the other one of what is no number.
__device__ inline f32 greater_number(f32 a, f32 b) { return fmaxf(a, b); }
__device__ inline f64 greater_number(f64 a, f64 b) { return fmax(a, b); }

constexpr f32 LOG2_E = 1.4426950408889634f, LN_2 = 0.6931471805599453f;

// Rounding changes an f16 by up to 2⁻¹¹ of its size, a bf16 by 2⁻⁸. So activations of such numbers
// take the device's approximate powers and reciprocals, and are off by less than 2⁻¹⁶, most where an
// exponent of up to 126 was rounded.
template <class N>
constexpr bool IN_16_BITS = sizeof(N) == 2;

// Φ(x) by the complementary error function, which keeps its digits in the tail.
__device__ inline f32 normal_distribution(f32 x) { return 0.5f * erfcf(-x * 0.70710678118654752f); }
__device__ inline f64 normal_distribution(f64 x) { return 0.5 * erfc(-x * 0.70710678118654752440); }

// Φ(x) and φ(x).
template <class W>
struct Normal {
    W distribution, density;
};
template <class W>
__device__ Normal<W> exact_normal(W x) {
    return {normal_distribution(x), exponential(W(-0.5) * x * x) * W(0.39894228040143267794)};
}

// The same by one power: Φ(−a) = exp(−a²/2) t P(t), t = 1 / (1 + p a), whose factors `normal.py`
// finds. The polynomial is off by 4 · 10⁻⁷ at most. Beyond ±13.2 the power is zero, and what is
// less than 2⁻¹²⁷ with it.
__device__ inline Normal<f32> quick_normal(f32 x) {
    constexpr f32 FACTORS[] = {-0.158823296f, 0.209154844f, -0.0562723726f, 0.129937679f,
                               0.0994941741f, 0.12082158f,  0.119624853f};
    f32 t = reciprocal(fmaf(fabsf(x), 0.3f, 1.0f)), power = power_of_two(x * x * (-0.5f * LOG2_E));
    f32 sum = 0.0360624827f;
#pragma unroll
    for (f32 factor : FACTORS) sum = fmaf(sum, t, factor);
    f32 tail = power * (t * sum);
    return {x < 0 ? tail : 1 - tail, power * 0.39894228040143267794f};
}

// Of a number that is stored as N.
template <class N>
__device__ Normal<Wide<N>> normal(Wide<N> x) {
    if constexpr (IN_16_BITS<N>) return quick_normal(x);
    else return exact_normal(x);
}

// 1 / (1 + exp(−x)). In 16 bits, what is less than 2⁻¹²⁶ is zero.
template <class N>
__device__ Wide<N> sigmoid(Wide<N> x) {
    if constexpr (IN_16_BITS<N>) return reciprocal(1 + power_of_two(x * -LOG2_E));
    else return Wide<N>(1) / (Wide<N>(1) + exponential(-x));
}

template <class N>
__device__ Wide<N> gelu_of(Wide<N> x) {
    return x * normal<N>(x).distribution;
}

// x (1 + tanh u) / 2 = x σ(2u), u = √(2/π) (x + 0.044715 x³); beyond ±30 the cube is cut, so that the
// slope stays a number.
struct Inside {
    template <class W>
    __device__ static W near(W x) {
        return least(greatest(x, W(-30)), W(30));
    }
    template <class W>
    __device__ static W of(W x) {
        return W(0.79788456080286535588) * (x + W(0.044715) * x * x * x);
    }
    template <class W>
    __device__ static W steepness(W x) {
        return W(0.79788456080286535588) * (W(1) + W(3 * 0.044715) * x * x);
    }
};

template <class N>
__device__ Wide<N> gelu_tanh_of(Wide<N> x) {
    typedef Wide<N> W;
    if constexpr (IN_16_BITS<N>) return x * sigmoid<N>(2 * Inside::of(Inside::near(x)));
    else return W(0.5) * x * (W(1) + tangent(Inside::of(Inside::near(x))));
}

// dy times the slope at x.
template <class N>
__device__ Wide<N> gelu_tanh_slope(Wide<N> x, Wide<N> dy) {
    typedef Wide<N> W;
    W cut = Inside::near(x);
    if constexpr (IN_16_BITS<N>) {
        W open = sigmoid<N>(2 * Inside::of(cut));
        return dy * (open + x * (open * (1 - open)) * (2 * Inside::steepness(cut)));
    } else {
        W t = tangent(Inside::of(cut));
        return dy * W(0.5) * (W(1) + t + x * (W(1) - t * t) * Inside::steepness(cut));
    }
}
