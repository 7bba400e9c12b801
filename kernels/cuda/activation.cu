// Activations and their derivatives, element by element.

struct Relu {
    template <class N, class W>
    __device__ static W of(W x) {
        return rectified(x);
    }
    template <class N, class W>
    __device__ static W slope(W y, W dy) {
        return y > W(0) ? dy : W(0);
    }
};
struct Gelu {
    template <class N, class W>
    __device__ static W of(W x) {
        return gelu_of<N>(x);
    }
    template <class N, class W>
    __device__ static W slope(W x, W dy) {
        auto at = normal<N>(x);
        return dy * (at.distribution + x * at.density);
    }
};
struct GeluTanh {
    template <class N, class W>
    __device__ static W of(W x) {
        return gelu_tanh_of<N>(x);
    }
    template <class N, class W>
    __device__ static W slope(W x, W dy) {
        return gelu_tanh_slope<N>(x, dy);
    }
};
struct Silu {
    template <class N, class W>
    __device__ static W of(W x) {
        return x * sigmoid<N>(x);
    }
    template <class N, class W>
    __device__ static W slope(W x, W dy) {
        W open = sigmoid<N>(x);
        return dy * open * (W(1) + x * (W(1) - open));
    }
};

#define EXPORT_BOTH(name, Function, N, G)                                                               \
    KERNEL(256, name##_##N##_##G, (const N* x, G* y, u64 count),                                        \
           map(x, y, count, false, [](auto x) { return Function::template of<N>(x); }))                 \
    KERNEL(256, name##_backward_##N##_##G, (const N* kept, const N* dy, G* dx, u64 count, u32 add),     \
           zip(kept, dy, dx, count, count, add,                                                         \
               [](auto kept, auto dy) { return Function::template slope<N>(kept, dy); }))

#define EXPORT(N, G)                         \
    EXPORT_BOTH(relu, Relu, N, G)            \
    EXPORT_BOTH(gelu, Gelu, N, G)            \
    EXPORT_BOTH(gelu_tanh, GeluTanh, N, G)   \
    EXPORT_BOTH(silu, Silu, N, G)            \
    KERNEL(256, soft_cap_##N##_##G, (const N* x, G* y, u64 count, f64 cap),                              \
           Wide<N> most = Wide<N>(cap);                                                                  \
           map(x, y, count, false, [most](auto x) { return most * tangent(x / most); }))                 \
    KERNEL(256, soft_cap_backward_##N##_##G, (const N* y, const N* dy, G* dx, u64 count, f64 cap, u32 add), \
           Wide<N> most = Wide<N>(cap);                                                                  \
           zip(y, dy, dx, count, count, add, [most](auto y, auto dy) {                                   \
               auto share = y / most;                                                                    \
               return dy * (1 - share * share);                                                          \
           }))
FOR_NUMBER_PAIRS(EXPORT)
#undef EXPORT
