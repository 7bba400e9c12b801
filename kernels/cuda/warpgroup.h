// Instructions of warp groups: four warps that multiply together, on devices of `sm_90a`. Each has a twin
// that does the same on the host.
//
// A product is on its way until the wait for it. Until then its sums, its left factors and the shared
// memory that it reads must stay as they are. The twin multiplies at the wait, but what it has of left factors in
// registers is from the start: it does not see them change.

// Right factors, and left ones in shared memory, are 64 numbers of 16 bits wide: rows of 128 bytes, eight
// of which are 1024 bytes that begin at a multiple of that. Of row r, the p-th 16 bytes are at place
// p ^ r % 8. A factor is named by where its first number is; other rows and columns begin so many 16 bytes
// behind.
constexpr u32 SWIZZLE_128 = 1, ROWS_OF_8 = 1024;

// Sums of a product: 64 columns, of which lane l of warp w of the group has, of rows 16 w + l / 4 and
// 8 below, columns 2 (l % 4) and the next of every 8.
typedef f32 GroupProduct[8][4];

// Whether there are sums already.
enum class Before { Nothing, Sums };

#if defined(ROUNDELAY_EMULATION)

inline u32 shared_address(const void* at) {
    return u32(static_cast<const unsigned char*>(at) - emulation::block().shared);
}
inline void check_rows_begin(const void* at) {
    if (reinterpret<u64>(at) % ROWS_OF_8) abort();
}

// The number of a row and a column of a factor, as the bits of its name say.
template <class N>
f32 number_of(u64 factor, u32 row, u32 column) {
    u32 rows_of_8 = u32(factor >> 32 & 0x3fff) << 4;
    u32 place = (u32(factor & 0x3fff) << 4) + row / 8 * rows_of_8 + row % 8 * 128 + column * 2;
    if (factor >> 62 == SWIZZLE_128) place ^= place >> 3 & 0x70;
    N number;
    memcpy(&number, emulation::block().shared + place, sizeof number);
    return widen(number);
}

// sums = or += left · right, over 16 numbers; left(i, k) is of the lane's row or, for i = 1, that 8 below,
// right(k, n) of column n.
template <Before BEFORE, class Left, class Right>
void start_product(GroupProduct& sums, Left left, Right right) {
    u32 first = emulation::lane() % 4 * 2;
    emulation::block().current->products.push_back([&sums, left, right, first] {
        f32 rows[2][16];
        for (u32 i = 0; i < 2; i++)
            for (u32 k = 0; k < 16; k++) rows[i][k] = left(i, k);
        for (u32 c = 0; c < 8; c++)
            for (u32 e = 0; e < 2; e++) {
                f32 own[2] = {};
                for (u32 i = 0; i < 2 && BEFORE == Before::Sums; i++) own[i] = sums[c][i * 2 + e];
                for (u32 k = 0; k < 16; k++) {
                    f32 factor = right(k, c * 8 + first + e);
                    for (u32 i = 0; i < 2; i++) own[i] += rows[i][k] * factor;
                }
                for (u32 i = 0; i < 2; i++) sums[c][i * 2 + e] = own[i];
            }
    });
}

// Left factors in registers: the lane's two rows, of which the warp's lanes have parts as of `multiply_add`.
template <class N>
struct RowsOfLane {
    f32 at[2][16];

    explicit RowsOfLane(const u32 (&a)[4]) {
        struct Fragment {
            u32 at[4];
        } own = {{a[0], a[1], a[2], a[3]}};
        const auto all = emulation::show(own, __FILE__, __LINE__);
        for (u32 i = 0; i < 2; i++)
            for (u32 k = 0; k < 16; k++) {
                Fragment of;
                memcpy(&of, all[emulation::lane() / 4 * 4 + k % 8 / 2], sizeof of);
                at[i][k] = widen(reinterpret<N>(u16(of.at[i + k / 8 * 2] >> k % 2 * 16)));
            }
    }
    f32 operator()(u32 i, u32 k) const { return at[i][k]; }
};

template <class N, Before BEFORE>
void start_turned(GroupProduct& sums, const u32 (&a)[4], u64 b) {
    start_product<BEFORE>(sums, RowsOfLane<N>(a), [b](u32 k, u32 n) { return number_of<N>(b, n, k); });
}
template <class N, Before BEFORE>
void start_turned(GroupProduct& sums, u64 a, u64 b) {
    u32 row = threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
    auto left = [a, row](u32 i, u32 k) { return number_of<N>(a, row + i * 8, k); };
    start_product<BEFORE>(sums, left, [b](u32 k, u32 n) { return number_of<N>(b, n, k); });
    __syncwarp();
}
template <class N>
void start_straight(GroupProduct& sums, const u32 (&a)[4], u64 b) {
    auto right = [b](u32 k, u32 n) { return number_of<N>(b, k, n); };
    start_product<Before::Sums>(sums, RowsOfLane<N>(a), right);
}
inline void before_products() {}
inline void commit_products() {
    emulation::Thread& self = *emulation::block().current;
    self.committed = self.products.size();
}
inline void wait_for_products() {
    __syncwarp();
    emulation::Thread& self = *emulation::block().current;
    for (size_t i = 0; i < self.committed; i++) self.products[i]();
    self.products.erase(self.products.begin(), self.products.begin() + self.committed);
    self.committed = 0;
}
inline void keep(GroupProduct&) {}
inline void keep(u32 (&)[4][4]) {}
inline void show_to_products() {}

#else

#define SUM_NAMES                                                                                      \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "   \
    "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define FOUR_SUMS(mark, c) mark(sums[c][0]), mark(sums[c][1]), mark(sums[c][2]), mark(sums[c][3])
#define SUMS(mark)                                                                                     \
    FOUR_SUMS(mark, 0), FOUR_SUMS(mark, 1), FOUR_SUMS(mark, 2), FOUR_SUMS(mark, 3), FOUR_SUMS(mark, 4), \
        FOUR_SUMS(mark, 5), FOUR_SUMS(mark, 6), FOUR_SUMS(mark, 7)
// `adds` is 1 where sums are there already, `mark` how the product uses them, `rest` which factors are
// turned.
#define START(type, adds, mark, left, rest, ...)                                                       \
    asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, " adds                                        \
                 ", 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32." #type "." #type " " SUM_NAMES ", " left \
                 ", adds, 1, 1, " rest ";\n}"                                                          \
                 : SUMS(mark)                                                                          \
                 : __VA_ARGS__                                                                         \
                 : "memory")
#define IN_REGISTERS "{%32, %33, %34, %35}, %36"
#define IN_MEMORY "%32, %33"
#define REGISTERS "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])

#define GROUP_PRODUCTS(type)                                                                           \
    template <Before BEFORE>                                                                           \
    __device__ void start_turned_of(type, GroupProduct& sums, const u32(&a)[4], u64 b) {               \
        if constexpr (BEFORE == Before::Sums) START(type, "1", "+f", IN_REGISTERS, "0", REGISTERS, "l"(b)); \
        else START(type, "0", "=f", IN_REGISTERS, "0", REGISTERS, "l"(b));                              \
    }                                                                                                  \
    template <Before BEFORE>                                                                           \
    __device__ void start_turned_of(type, GroupProduct& sums, u64 a, u64 b) {                          \
        if constexpr (BEFORE == Before::Sums) START(type, "1", "+f", IN_MEMORY, "0, 0", "l"(a), "l"(b)); \
        else START(type, "0", "=f", IN_MEMORY, "0, 0", "l"(a), "l"(b));                                 \
    }                                                                                                  \
    __device__ inline void start_straight_of(type, GroupProduct& sums, const u32(&a)[4], u64 b) {      \
        START(type, "1", "+f", IN_REGISTERS, "1", REGISTERS, "l"(b));                                   \
    }
GROUP_PRODUCTS(bf16)
GROUP_PRODUCTS(f16)

// sums = or += a · bᵀ over 16 numbers, of which rows of both factors have neighbours.
template <class N, Before BEFORE, class Left>
__device__ void start_turned(GroupProduct& sums, const Left& a, u64 b) {
    start_turned_of<BEFORE>(N{}, sums, a, b);
}
// sums += a · b, over 16 rows of b.
template <class N>
__device__ void start_straight(GroupProduct& sums, const u32 (&a)[4], u64 b) {
    start_straight_of(N{}, sums, a, b);
}
// Ends the kernel where eight rows cannot begin: products would read other numbers, and say nothing.
__device__ inline void check_rows_begin(const void* at) {
    if (shared_address(at) % ROWS_OF_8) __trap();
}
// Products that start behind it find registers as they are here.
__device__ inline void before_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits for all that were committed.
__device__ inline void wait_for_products() { asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); }
// Keeps what happens to sums, or to left factors, where it stands, on either side of a wait and of what
// comes before products.
__device__ inline void keep(GroupProduct& sums) { asm volatile("" : SUMS("+f")::"memory"); }
__device__ inline void keep(u32 (&a)[4][4]) {
#pragma unroll
    for (u32(&word)[4] : a)
        asm volatile("" : "+r"(word[0]), "+r"(word[1]), "+r"(word[2]), "+r"(word[3])::"memory");
}
// Products see what the thread has written to shared memory.
__device__ inline void show_to_products() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

#endif

__device__ inline u64 factor_at(const void* at) {
    return shared_address(at) >> 4 | u64{ROWS_OF_8 >> 4} << 32 | u64{SWIZZLE_128} << 62;
}
