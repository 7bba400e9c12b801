// Means and sums of squares around them, joined without a difference of large sums.

// Joins the moments of COLUMNS columns over some rows to those over others: means, Σ (x − mean)², and last
// the count of rows (Chan, Golub and LeVeque, Updating formulae and a pairwise algorithm for computing sample
// variances, 1979).
struct JoinMoments {
    template <class W, class Others, int SIZE>
    __device__ void operator()(W (&own)[SIZE], const Others& others) const {
        constexpr int COLUMNS = SIZE / 2;
        W before = own[2 * COLUMNS], total = before + others[2 * COLUMNS];
        if (others[2 * COLUMNS] == W(0)) return;
        W share = others[2 * COLUMNS] / total;
#pragma unroll
        for (int k = 0; k < COLUMNS; k++) {
            W apart = others[k] - own[k];
            own[k] += apart * share;
            own[COLUMNS + k] += others[COLUMNS + k] + apart * apart * before * share;
        }
        own[2 * COLUMNS] = total;
    }
};

// Joins a row to means, Σ (x − mean)² and the count of rows (Welford, Note on a method for calculating
// corrected sums of squares and products, 1962).
template <class N>
__device__ void join_row(Wide<N> (&own)[2 * PACKED<N> + 1], const Pack<N, PACKED<N>>& row) {
    typedef Wide<N> W;
    constexpr int COUNT = PACKED<N>;
    own[2 * COUNT] += W(1);
    W weight = inverse(own[2 * COUNT]);
    auto values = widen(row);
#pragma unroll
    for (int k = 0; k < COUNT; k++) {
        W value = values.at[k], apart = value - own[k];
        own[k] += apart * weight;
        own[COUNT + k] += apart * (value - own[k]);
    }
}

// partial[s] = means and Σ (x − mean)² of the columns over the rows of segment s, of which the thread has those of
// `which()`, in one pass.
template <class N, class Which>
__device__ void moments_of_segment(Which which, u64 s, u64 columns, const Share<N>& share, const N* x,
                                   Wide<N>* partial) {
    typedef Wide<N> W;
    constexpr int COUNT = PACKED<N>;
    // Means, squares, and last the count.
    W own[2 * COUNT + 1] = {};
    share.go([&](auto way) {
        auto read = [&](u64 place) { return way.read(x + place); };
        auto join = [&](const auto& pack, u64, u64) { join_row<N>(own, pack); };
        which().template each<way.rows(4)>(read, join);
    });
    join_rows(own, JoinMoments());
    W moments[2 * COUNT];
#pragma unroll
    for (int i = 0; i < 2 * COUNT; i++) moments[i] = own[i];
    store_segment<2>(moments, share, s, columns, partial);
}
