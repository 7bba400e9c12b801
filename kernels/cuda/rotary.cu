// Rotary positions: pairs of every head turned by their position (Su et al., arXiv 2104.09864).

// Radians per position that a pair turns for texts `factor` times as long: divided where it turns less
// than `low` times within `original` positions, as ever where more than `high` times, with a share of
// both between them (Llama 3, arXiv 2407.21783). Without original positions all are divided; by 1 that
// changes no bit.
__device__ inline f64 stretched(f64 speed, f64 factor, f64 original, f64 low, f64 high) {
    constexpr f64 TURN = 6.283185307179586;
    f64 turns = original * speed / TURN;
    f64 kept = fmin(fmax((turns - low) / (high - low), 0.0), 1.0);
    return (1.0 - kept) * speed / factor + kept * speed;
}

// Cosines and then sines (sequence, half) of position · base^(−2i / turned), stretched, found once in
// 64 bits for all examples and heads, of positions from `first` on; `sign` −1 turns back. A thread has one pair, so
// that it finds a speed once, at every so many positions. There are threads for all pairs.
template <class W>
__device__ void angles(W* cosines, u64 sequence, u64 half, u64 first, f64 base, f64 factor, f64 original,
                       f64 low, f64 high, f64 sign) {
    u64 count = sequence * half, own = thread_of_grid(), together = threads_of_grid() / half;
    if (own >= together * half) return;
    f64 speed = sign * stretched(pow(base, -f64(own % half) / f64(half)), factor, original, low, high);
    u64 position = first + own / half;
    for (u64 at = own; at < count; at += together * half, position += together) {
        f64 angle = f64(position) * speed;
        cosines[at] = W(cos(angle));
        cosines[count + at] = W(sin(angle));
    }
}

// Of x (batch, sequence, heads, depth) the first 2 half numbers of every head; the others stay, and so
// does all of the last one of every `still` heads, where that is not zero.
// Threads have pairs, or single numbers behind them, of all `rows` heads.
template <class N, class G>
__device__ void rotary(const N* x, const Wide<N>* cosines, G* y, u64 rows, u64 sequence, u64 heads, u64 still,
                       u64 depth, u64 half, bool add) {
    typedef Wide<N> W;
    constexpr int MOST = PACKED_OF_BOTH<N, G>;
    const W* sines = cosines + sequence * half;
    u64 places = depth - half;
    bool packed = is_aligned(x) && is_aligned(y) && half % MOST == 0 && depth % MOST == 0;
    for_each<MOST>(rows * places, packed, [&](u64 i, auto width) {
        constexpr int COUNT = decltype(width)::count;
        u64 row = i / places, place = i - row * places, position = row / heads % sequence;
        u64 first = row * depth + place;
        bool turns = still == 0 || row % heads % still != still - 1;
        auto behind = load<COUNT>(x + first + half);
        W second[COUNT];
#pragma unroll
        for (int k = 0; k < COUNT; k++) second[k] = widen(behind.at[k]);
        if (place < half) {
            auto before = load<COUNT>(x + first);
            auto cosine = load<COUNT>(cosines + position * half + place);
            auto sine = load<COUNT>(sines + position * half + place);
            W values[COUNT];
#pragma unroll
            for (int k = 0; k < COUNT; k++) {
                W a = widen(before.at[k]), b = second[k];
                values[k] = turns ? a * cosine.at[k] - b * sine.at[k] : a;
                second[k] = turns ? b * cosine.at[k] + a * sine.at[k] : b;
            }
            put_pack(y + first, values, add);
        }
        put_pack(y + first + half, second, add);
    });
}

#define EXPORT(W)                                                                                    \
    KERNEL(256, angles_##W,                                                                          \
           (W* cosines, u64 sequence, u64 half, u64 first, f64 base, f64 factor, f64 original,       \
            f64 low, f64 high, f64 sign),                                                            \
           angles(cosines, sequence, half, first, base, factor, original, low, high, sign))
EXPORT(f32)
EXPORT(f64)
#undef EXPORT

#define EXPORT(N, G)                                                                                 \
    KERNEL(256, rotary_##N##_##G,                                                                    \
           (const N* x, const Wide<N>* cosines, G* y, u64 rows, u64 sequence, u64 heads, u64 still,  \
            u64 depth, u64 half, u32 add),                                                                      \
           rotary(x, cosines, y, rows, sequence, heads, still, depth, half, add))
FOR_NUMBER_PAIRS(EXPORT)
#undef EXPORT
