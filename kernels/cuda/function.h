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

// Φ(x) by the complementary error function, which keeps its digits in the tail.
__device__ inline f32 normal_distribution(f32 x) { return 0.5f * erfcf(-x * 0.70710678118654752f); }
__device__ inline f64 normal_distribution(f64 x) { return 0.5 * erfc(-x * 0.70710678118654752440); }

// φ(x).
template <class W>
__device__ W normal_density(W x) {
    return exponential(W(-0.5) * x * x) * W(0.39894228040143267794);
}

template <class W>
__device__ W sigmoid(W x) {
    return W(1) / (W(1) + exponential(-x));
}

template <class W>
__device__ W gelu_of(W x) {
    return x * normal_distribution(x);
}

// The same as a call of its own, for loops that are unrolled often.
template <class W>
__device__ __noinline__ W gelu_called(W x) {
    return gelu_of(x);
}
