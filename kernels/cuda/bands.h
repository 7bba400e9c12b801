// Tiles of attention in shared memory, and warps that have bands of 16 rows: every right factor that a
// warp loads serves all its bands.

constexpr u32 THREADS = 128;

// Rows of a block; the warp's first among them, which is known to be one for all lanes; the lane's
// first row and column among the warp's.
template <int BANDS>
constexpr int ROWS_OF = THREADS / 32 * 16 * BANDS;
template <int BANDS>
__device__ int row_of_warp() {
    return int(__shfl_sync(WHOLE_WARP, threadIdx.x / 32, 0)) * (16 * BANDS);
}
__device__ inline u32 row_of_lane() { return threadIdx.x % 32 / 4; }
__device__ inline u32 column_of_lane() { return threadIdx.x % 4 * 2; }

// The rows of a warp.
template <int BANDS>
struct WarpRows {
    static constexpr i32 COUNT = 16 * BANDS;
    __device__ static u32 of_lane() { return row_of_lane(); }
};

// 16 × 16 numbers at a time of rows that are LENGTH apart; `at` is the lane's place in the first ones.
template <class N, int LENGTH, bool TRANSPOSED>
struct Fragments {
    N* at;

    __device__ void load(u32 (&to)[4], int row, int column) const {
        const N* from = at + (row * LENGTH + column);
        if (TRANSPOSED) load_matrices_transposed(to, from);
        else load_matrices(to, from);
    }
};

// The greatest power of two that is at most a number.
constexpr u32 floor_power(u32 most) { return most < 2 ? most : 2 * floor_power(most / 2); }

// Rows of D numbers in shared memory, 16 bytes longer than they need be, so that eight of them lie
// in different banks.
template <class N, int D, int COUNT>
struct Tile {
    static constexpr int LENGTH = D + 8;
    static constexpr int SIZE = COUNT * LENGTH;
    N* at;

    // Takes rows in, of which `end` exist; zeros behind them. `from` is the thread's own place in the
    // first rows. One number at a time keeps few registers where sums need them.
    __device__ void fetch(const N* from, u32 stride, u32 end) const {
        constexpr u32 PACKS = D / 8, TOGETHER = floor_power(THREADS / PACKS);
        static_assert(COUNT % TOGETHER == 0, "every thread that takes rows in has as many");
        u32 row = threadIdx.x / PACKS;
        if (TOGETHER * PACKS < THREADS && row >= TOGETHER) return;
        N* to = at + row * LENGTH + threadIdx.x % PACKS * 8;
        if (is_aligned(from)) {
#pragma unroll
            for (u32 r = 0; r < COUNT; r += TOGETHER)
                copy_async(to + r * LENGTH, from + u64(r) * stride, row + r < end);
        } else {
#pragma unroll 1
            for (u32 r = 0; r < COUNT; r += TOGETHER)
#pragma unroll 1
                for (u32 i = 0; i < 8; i++) to[r * LENGTH + i] = row + r < end ? from[u64(r) * stride + i] : N{0};
        }
    }
    // Whoever multiplies sees what has arrived.
    __device__ static void show_copies() {}
    // From where the first row begins.
    __device__ static u64 place_of_thread(u32 stride) {
        return u64(threadIdx.x / (D / 8)) * stride + threadIdx.x % (D / 8) * 8;
    }
    // The rows from `row` on.
    template <int FEWER>
    __device__ Tile<N, D, FEWER> part(int row) const {
        return {at + row * LENGTH};
    }
    // As left factors of 16 × 16.
    __device__ Fragments<N, LENGTH, false> left() const {
        u32 lane = lane_anew();
        return {at + (lane % 16 * LENGTH + lane / 16 * 8)};
    }
    // The transpose as pairs of right factors of 16 × 8.
    __device__ Fragments<N, LENGTH, false> turned() const {
        u32 lane = lane_anew();
        return {at + ((lane / 16 * 8 + lane % 8) * LENGTH + lane / 8 % 2 * 8)};
    }
    // As pairs of right factors of 16 × 8.
    __device__ Fragments<N, LENGTH, true> right() const { return {left().at}; }
};

// A warp's bands of a tile as left factors, the first HELD of their D numbers in registers; others are
// loaded wherever they are needed.
template <class N, int D, int BANDS, int HELD>
struct Kept {
    Fragments<N, D + 8, false> all;
    u32 held[HELD / 16 + 1][BANDS][4];

    template <int COUNT>
    __device__ Kept(const Tile<N, D, COUNT>& tile, int row) : all(tile.template part<16 * BANDS>(row).left()) {
#pragma unroll
        for (int d = 0; d < HELD; d += 16)
#pragma unroll
            for (int band = 0; band < BANDS; band++) all.load(held[d / 16][band], band * 16, d);
    }
    __device__ void left(u32 (&to)[BANDS][4], int depth) const {
#pragma unroll
        for (int band = 0; band < BANDS; band++) {
            if (depth >= HELD) {
                all.load(to[band], band * 16, depth);
                continue;
            }
#pragma unroll
            for (int i = 0; i < 4; i++) to[band][i] = held[depth / 16][band][i];
        }
    }
};

// As `join_pairs` of the four eights from `first` on, with zeros for those that there are not.
template <int EIGHTS>
__device__ void join_four(const f32 (&sums)[EIGHTS][4], int first, int half, f32 (&values)[8]) {
    f32 four[4][4];
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) four[j][i] = first + j < EIGHTS ? sums[first + j][i] : 0;
    join_pairs(four, half, values);
}

// Sums of a warp: COLUMNS columns of its bands. Lane l has row l / 4 of every 8, and of every 8 columns
// 2 (l % 4) and the next.
template <int COLUMNS, int BANDS>
struct Sums {
    static constexpr int ROWS = 2 * BANDS;
    f32 at[BANDS][COLUMNS / 8][4] = {};

    // += a · b, the right factors of columns `first` and that + 8.
    template <class N>
    __device__ void multiply_add_pair(const u32 (&a)[BANDS][4], const u32 (&b)[4], int first) {
        const u32 low[2] = {b[0], b[1]}, high[2] = {b[2], b[3]};
#pragma unroll
        for (int band = 0; band < BANDS; band++) {
            multiply_add_of(N{}, at[band][first / 8], a[band], low);
            multiply_add_of(N{}, at[band][first / 8 + 1], a[band], high);
        }
    }
    // += a · bᵀ, over D.
    template <class N, int D, class Rows>
    __device__ void multiply_turned(const Rows& a, const Tile<N, D, COLUMNS>& b) {
        auto fragments = b.turned();
#pragma unroll
        for (int d = 0; d < D; d += 16) {
            u32 x[BANDS][4];
            a.left(x, d);
#pragma unroll
            for (int c = 0; c < COLUMNS; c += 16) {
                u32 y[4];
                fragments.load(y, c, d);
                multiply_add_pair<N>(x, y, c);
            }
        }
    }
    // += factors · b; the factors are a warp's sums, rounded.
    template <class N, int COUNT>
    __device__ void multiply(const Sums<COUNT, BANDS>& factors, const Tile<N, COLUMNS, COUNT>& b) {
        auto fragments = b.right();
#pragma unroll
        for (int r = 0; r < COUNT; r += 16) {
            u32 x[BANDS][4];
#pragma unroll
            for (int band = 0; band < BANDS; band++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const f32(&pairs)[4] = factors.at[band][r / 8 + i / 2];
                    x[band][i] = narrow_two<N>(pairs[i % 2 * 2], pairs[i % 2 * 2 + 1]);
                }
#pragma unroll
            for (int c = 0; c < COLUMNS; c += 16) {
                u32 y[4];
                fragments.load(y, r, c);
                multiply_add_pair<N>(x, y, c);
            }
        }
    }
    // Calls body(row, column, value, the other's value there) for the lane's: row r is 8 r below its
    // first, column c is c beside its first.
    template <class Body>
    __device__ void each_with(Sums& other, Body body) {
#pragma unroll
        for (int c = 0; c < COLUMNS / 8; c++)
#pragma unroll
            for (int e = 0; e < 2; e++)
#pragma unroll
                for (int row = 0; row < ROWS; row++) {
                    int i = row % 2 * 2 + e;
                    body(row, c * 8 + e, at[row / 2][c][i], other.at[row / 2][c][i]);
                }
    }
    // The same without another.
    template <class Body>
    __device__ void each(Body body) {
        each_with(*this, [&](i32 row, i32 column, f32& value, f32&) { body(row, column, value); });
    }
    // Stores them times the factor of each row, or adds that to what is there, where rows(row) is.
    template <class N, class Rows>
    __device__ void put(const f32 (&factor)[ROWS], bool packed, bool add, Rows rows) const {
        u32 lane = threadIdx.x % 4;
#pragma unroll
        for (int row = 0; row < ROWS; row++) {
            N* to = rows(row);
#pragma unroll
            for (int c = 0; c < COLUMNS / 8; c += 4) {
                f32 values[8];
                join_four(at[row / 2], c, row % 2, values);
#pragma unroll
                for (f32& value : values) value *= factor[row];
                if (to && (COLUMNS % 32 == 0 || c + lane < COLUMNS / 8))
                    put_some(to + (c + lane) * 8, values, 8, packed, add);
            }
        }
    }
    // The same with one factor for all.
    template <class N, class Rows>
    __device__ void put(f32 factor, bool packed, bool add, Rows rows) const {
        f32 factors[ROWS];
#pragma unroll
        for (f32& each : factors) each = factor;
        put<N>(factors, packed, add, rows);
    }
};

// Over the four lanes that share a row.
__device__ inline f32 sum_of_row(f32 value) {
    value += __shfl_xor_sync(WHOLE_WARP, value, 1);
    return value + __shfl_xor_sync(WHOLE_WARP, value, 2);
}
__device__ inline f32 most_of_row(f32 value) {
    value = fmaxf(value, __shfl_xor_sync(WHOLE_WARP, value, 1));
    return fmaxf(value, __shfl_xor_sync(WHOLE_WARP, value, 2));
}
