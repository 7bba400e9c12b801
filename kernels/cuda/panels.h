// Tiles of attention in shared memory as products of warp groups take them, and sums of such products.

// The rows of a warp group.
struct GroupRows {
    static constexpr i32 COUNT = 64;
    __device__ static u32 of_lane() { return threadIdx.x / 32 % 4 * 16 + row_of_lane(); }
    // The group's first row among the block's, which is known to be one for all lanes.
    __device__ static i32 of_group() { return __shfl_sync(WHOLE_WARP, threadIdx.x / 128, 0) * COUNT; }
};

// The block's dynamic shared memory, where eight rows may begin. It lies behind static shared memory, so
// kernels that have panels must have none: no `__shared__` in them, nor in what they call.
__device__ inline unsigned char* panels_memory() {
#if defined(ROUNDELAY_EMULATION)
    unsigned char* panels = emulation::block().shared;
#else
    extern __shared__ __align__(ROWS_OF_8) unsigned char panels[];
#endif
    check_rows_begin(panels);
    return panels;
}

// Rows of D numbers, cut into panels of 64 numbers, for blocks of so many threads.
template <class N, int D, int COUNT, int WORKERS>
struct Panels {
    static constexpr int PANEL = COUNT * 64, SIZE = COUNT * D;
    static constexpr u32 PACKS = D / 8, TOGETHER = WORKERS / PACKS;
    static_assert(COUNT % TOGETHER == 0 && TOGETHER % 8 == 0, "every thread has one place in as many rows");
    N* at;

    // As `Tile::fetch`.
    __device__ void fetch(const N* from, u32 stride, u32 end) const {
        u32 row = threadIdx.x / PACKS, pack = threadIdx.x % PACKS;
        N* to = at + pack / 8 * PANEL + row * 64 + (pack % 8 ^ row % 8) * 8;
        if (is_aligned(from)) {
#pragma unroll
            for (u32 r = 0; r < COUNT; r += TOGETHER)
                copy_async(to + r * 64, from + u64(r) * stride, row + r < end);
        } else {
#pragma unroll 1
            for (u32 r = 0; r < COUNT; r += TOGETHER)
#pragma unroll 1
                for (u32 i = 0; i < 8; i++) to[r * 64 + i] = row + r < end ? from[u64(r) * stride + i] : N{0};
        }
    }
    __device__ static void show_copies() { show_to_products(); }
    // From where the first row begins.
    __device__ static u64 place_of_thread(u32 stride) {
        return u64(threadIdx.x / PACKS) * stride + threadIdx.x % PACKS * 8;
    }
    // The rows from one of eight on, and in them the numbers from one of sixteen on.
    __device__ u64 factor(u32 row, u32 column) const {
        return factor_at(at) + (row * 64 + column / 64 * PANEL + column % 64) / 8;
    }
};

// A warp group's rows of panels as left factors, in registers.
template <class N, int D>
struct GroupKept {
    u32 held[D / 16][4];

    template <int COUNT, int WORKERS>
    __device__ GroupKept(const Panels<N, D, COUNT, WORKERS>& of) {
        u32 lane = threadIdx.x % 32, row = row_of_warp<1>() + lane % 16;
#pragma unroll
        for (int d = 0; d < D; d += 16) {
            u32 pack = (d % 64 / 8 + lane / 16) ^ row % 8;
            load_matrices(held[d / 16], of.at + d / 64 * of.PANEL + row * 64 + pack * 8);
        }
    }
    __device__ const u32 (&left(int depth) const)[4] { return held[depth / 16]; }
};

// A warp group's rows of panels as left factors, where they are.
template <class N, int D, int COUNT, int WORKERS>
struct GroupLeft {
    Panels<N, D, COUNT, WORKERS> of;

    __device__ u64 left(int depth) const { return of.factor(GroupRows::of_group(), depth); }
};

// A warp group's sums, whose columns come 64 at a time.
template <int COLUMNS>
struct GroupSums : Sums<COLUMNS, 1> {
    static constexpr int PARTS = COLUMNS / 64;

    __device__ GroupProduct& part(int part) { return reinterpret_cast<GroupProduct&>(this->at[0][part * 8]); }
    __device__ void keep_all() {
#pragma unroll
        for (int p = 0; p < PARTS; p++) keep(part(p));
    }
    // = a · bᵀ over D, of 64 rows of `b` from one on: on its way.
    template <class Left, class N, int D, int COUNT, int WORKERS>
    __device__ void start_turned(const Left& a, const Panels<N, D, COUNT, WORKERS>& b, u32 row) {
        static_assert(PARTS == 1, "as many columns as rows");
        ::start_turned<N, Before::Nothing>(part(0), a.left(0), b.factor(row, 0));
#pragma unroll
        for (int d = 16; d < D; d += 16) ::start_turned<N, Before::Sums>(part(0), a.left(d), b.factor(row, d));
    }
    // += factors · b, of 64 rows of `b` from one on: on its way.
    template <class N, int COUNT, int WORKERS>
    __device__ void start(const u32 (&factors)[4][4], const Panels<N, COLUMNS, COUNT, WORKERS>& b, u32 row) {
#pragma unroll
        for (int r = 0; r < 64; r += 16)
#pragma unroll
            for (int p = 0; p < PARTS; p++) start_straight<N>(part(p), factors[r / 16], b.factor(row + r, p * 64));
    }
    // Sums as left factors, rounded.
    template <class N>
    __device__ void round(u32 (&to)[4][4]) const {
        static_assert(PARTS == 1, "64 columns");
#pragma unroll
        for (int r = 0; r < 64; r += 16)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const f32(&pairs)[4] = this->at[0][r / 8 + i / 2];
                to[r / 16][i] = narrow_two<N>(pairs[i % 2 * 2], pairs[i % 2 * 2 + 1]);
            }
    }
};
