// Blocks of threads: who runs, barriers of blocks and of warps, and exchange inside of a warp.
//
// A system thread runs one block at a time, thread by thread: each until it waits or ends.
#pragma once

#include <atomic>
#include <cstdio>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "fiber.h"
#include "shared.h"

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
struct uint3 {
    unsigned x, y, z;
};

namespace emulation {

// Ready is zero, which `next_ready` looks for.
enum class State : uint8_t { Ready, AtBlockBarrier, AtWarpBarrier, Ended };

constexpr unsigned LANES = 32;
constexpr unsigned SLOT = 64;

// A copy into shared memory that is on its way: zeros where it comes from nowhere.
struct Copy {
    void* to;
    const void* from;
    unsigned bytes;
    unsigned group;
};

struct Thread {
    Stack stack;
    std::vector<Copy> copies;
    unsigned copy_group;
    // Products of warp groups that are on their way, of which so many were committed.
    std::vector<std::function<void()>> products;
    size_t committed;
    uint3 place;
    unsigned number;
    const char* file;
    int line;
};

// What the lanes of a warp show each other; two sets, because a lane may be one exchange ahead.
struct Warp {
    alignas(16) unsigned char slots[2][LANES][SLOT];
    unsigned lanes, alive, arrived, generation;
    char order[2];
};

struct Block {
    dim3 grid, size;
    uint3 place;
    unsigned count, alive, arrived, generation;
    std::vector<Thread> threads;
    std::vector<State> states;
    std::vector<Warp> warps;
    // The first of each: what threads hand on by is not seen by sanitizers, as calls of vectors are.
    Thread* thread;
    State* state;
    Thread* current;
    Stack scheduler;
    const std::function<void()>* body;
    unsigned char* shared;
    // Apart, so that no thread seems to come after one that has ended.
    char order[2], begun, ended;
};

inline thread_local Block* block_of_thread = nullptr;

// Lies where the static shared memory of this file's kernels lies.
static thread_local volatile char beside_shared;

#if defined(EMULATION_BY_STACK)
// Of whoever runs on a stack of a block: it stands where the region of stacks begins.
inline Block& block() {
    uintptr_t stack;
    asm("movq %%rsp, %0" : "=r"(stack));
    return **reinterpret_cast<Block**>(stack & ~(REGION - 1));
}
#else
// Not inlined, so that no address in thread-local memory is kept over a switch.
EMULATION_UNSEEN inline Block& block() {
    Block* found = block_of_thread;
    asm volatile("" : "+r"(found));
    return *found;
}
#endif

inline void acquire([[maybe_unused]] char* order) {
#if defined(__SANITIZE_THREAD__)
    __tsan_acquire(order);
#endif
}
inline void release_order([[maybe_unused]] char* order) {
#if defined(__SANITIZE_THREAD__)
    __tsan_release(order);
#endif
}

// The number of the first thread that can go on, from a number on; the number of threads where none can.
EMULATION_UNSEEN inline unsigned next_ready(const Block& own, unsigned from) {
    unsigned i = from;
    while (i < own.count && own.state[i] != State::Ready) i++;
    return i;
}

// Goes on with the next thread, or with the scheduler behind the last one, which begins again at the first.
EMULATION_UNSEEN inline void hand_on(Block& own, Thread& self) {
    unsigned next = next_ready(own, self.number + 1);
    bool last = own.state[self.number] == State::Ended;
    if (next == own.count) return change(self.stack, own.scheduler, last);
    own.current = own.thread + next;
    change(self.stack, own.current->stack, last);
}

EMULATION_UNSEEN inline void pass_block_barrier(Block& own) {
    if (own.alive == 0 || own.arrived < own.alive) return;
    own.arrived = 0;
    own.generation++;
    for (unsigned i = 0; i < own.count; i++)
        if (own.state[i] == State::AtBlockBarrier) own.state[i] = State::Ready;
}

EMULATION_UNSEEN inline void block_barrier(const char* file, int line) {
    Block& own = block();
    Thread& self = *own.current;
    self.file = file;
    self.line = line;
    // Orders alternate: with one alone, the barrier after the next would seem to order what only
    // the next one should.
    char* order = &own.order[own.generation & 1];
    release_order(order);
    own.state[self.number] = State::AtBlockBarrier;
    own.arrived++;
    pass_block_barrier(own);
    hand_on(own, self);
    acquire(order);
}

EMULATION_UNSEEN inline Warp& warp() {
    Block& own = block();
    return own.warps[own.current->number / LANES];
}
EMULATION_UNSEEN inline unsigned lane() { return block().current->number % LANES; }

// All lanes of the warp that have not ended must come.
EMULATION_UNSEEN inline void warp_barrier(const char* file, int line) {
    Block& own = block();
    Thread& self = *own.current;
    Warp& warp = own.warps[self.number / LANES];
    self.file = file;
    self.line = line;
    char* order = &warp.order[warp.generation & 1];
    release_order(order);
    if (++warp.arrived >= warp.alive) {
        warp.arrived = 0;
        warp.generation++;
        State* first = own.state + self.number / LANES * LANES;
        for (unsigned i = 0; i < warp.lanes; i++)
            if (first[i] == State::AtWarpBarrier) first[i] = State::Ready;
    } else {
        own.state[self.number] = State::AtWarpBarrier;
        hand_on(own, self);
    }
    acquire(order);
}

// Shows a value to the warp; what all lanes showed, until the exchange after the next.
template <class T>
EMULATION_UNSEEN const unsigned char (*show(const T& value, const char* file, int line))[SLOT] {
    static_assert(sizeof(T) <= SLOT, "a slot has room for a value");
    Warp& own = warp();
    unsigned char(*slots)[SLOT] = own.slots[own.generation & 1];
    memcpy(slots[lane()], &value, sizeof(T));
    warp_barrier(file, line);
    return slots;
}

template <class T>
EMULATION_UNSEEN T exchange(T value, unsigned from, const char* file, int line) {
    const auto slots = show(value, file, line);
    if (from < LANES) memcpy(&value, slots[from], sizeof(T));
    return value;
}

// Whether a value is true in any lane.
EMULATION_UNSEEN inline bool is_any(bool value, const char* file, int line) {
    const auto slots = show(value, file, line);
    bool any = false;
    for (unsigned i = 0; i < warp().lanes; i++) any |= slots[i][0] != 0;
    return any;
}

// Of each lane whether it has the same value, as bits.
EMULATION_UNSEEN inline unsigned matching(unsigned value, const char* file, int line) {
    const auto slots = show(value, file, line);
    unsigned same = 0;
    for (unsigned i = 0; i < warp().lanes; i++) same |= unsigned(!memcmp(slots[i], &value, sizeof value)) << i;
    return same;
}

EMULATION_UNSEEN inline void run_thread() {
    Block& own = block();
    arrive(own.current->stack, &own.scheduler);
    acquire(&own.begun);
    (*own.body)();
    own.alive--;
    own.warps[own.current->number / LANES].alive--;
    pass_block_barrier(own);
    // Nothing that a sanitizer sees follows, so all that the thread did comes before what ends the block.
    release_order(&own.ended);
    own.state[own.current->number] = State::Ended;
    hand_on(own, *own.current);
    abort();
}

EMULATION_UNSEEN inline void report_deadlock(const Block& own) {
    fprintf(stderr, "emulation: block (%u, %u, %u) cannot go on: %u of %u threads wait\n", own.place.x,
            own.place.y, own.place.z, own.alive, own.count);
    for (const Thread& thread : own.threads)
        if (own.state[thread.number] != State::Ended) {
            fprintf(stderr, "  thread %u waits at %s:%d\n", thread.number, thread.file, thread.line);
            break;
        }
    abort();
}

EMULATION_UNSEEN inline void begin_block(Block& own, char* stacks) {
    own.alive = own.count;
    own.arrived = own.generation = 0;
    for (unsigned i = 0; i < own.count; i++) {
        Thread& thread = own.threads[i];
        own.state[i] = State::Ready;
        thread.number = i;
        thread.copies.clear();
        thread.copy_group = 0;
        thread.products.clear();
        thread.committed = 0;
        thread.place = {i % own.size.x, i / own.size.x % own.size.y, i / (own.size.x * own.size.y)};
        begin(thread.stack, stacks + i * STACK, run_thread);
    }
    for (unsigned w = 0; w < own.warps.size(); w++) {
        unsigned rest = own.count - w * LANES;
        own.warps[w].lanes = own.warps[w].alive = rest < LANES ? rest : LANES;
        own.warps[w].arrived = own.warps[w].generation = 0;
    }
}

EMULATION_UNSEEN inline void run_block(Block& own, char* stacks) {
    begin_block(own, stacks);
#if defined(__SANITIZE_THREAD__)
    own.scheduler.fiber = __tsan_get_current_fiber();
#endif
    release_order(&own.begun);
    while (own.alive) {
        unsigned first = next_ready(own, 0);
        if (first == own.count) report_deadlock(own);
        own.current = own.thread + first;
        change(own.scheduler, own.current->stack, false);
    }
    acquire(&own.ended);
}

// Takes blocks of a grid until none is left.
inline void work(dim3 grid, dim3 size, size_t shared, const std::function<void()>& body,
                 std::atomic<uint64_t>& next) {
    Block own;
    own.grid = grid;
    own.size = size;
    own.count = size.x * size.y * size.z;
    own.threads.resize(own.count);
    own.states.resize(own.count);
    own.thread = own.threads.data();
    own.state = own.states.data();
    own.warps.resize((own.count + LANES - 1) / LANES);
    own.body = &body;
    char* stacks = memory_of_stacks.of(own.count * STACK);
    uint64_t blocks = uint64_t{grid.x} * grid.y * grid.z;
    block_of_thread = &own;
#if defined(EMULATION_BY_STACK)
    *reinterpret_cast<Block**>(stacks - HEAD) = &own;
#endif
    // Thread-local memory is made at its first use: not by one CUDA thread of a block for the others.
    beside_shared = 1;
    Range statics = memory_beside(&beside_shared);
    for (uint64_t i; (i = next++) < blocks;) {
        uint64_t row = i / grid.x;
        own.place = {unsigned(i % grid.x), unsigned(row % grid.y), unsigned(row / grid.y)};
        // Every block has fresh memory of just the right size, and finds no zeros in it, nor what blocks
        // before it left in static memory.
        poison(statics, block_of_thread, memory_of_stacks);
        void* memory = nullptr;
        if (posix_memalign(&memory, 1024, shared ? shared : 1)) abort();
        own.shared = static_cast<unsigned char*>(memset(memory, 0xff, shared));
        run_block(own, stacks);
        free(memory);
    }
    block_of_thread = nullptr;
#if defined(__SANITIZE_THREAD__)
    for (Thread& thread : own.threads) __tsan_destroy_fiber(thread.stack.fiber);
#endif
}

// System threads that share the blocks of a grid: ROUNDELAY_EMULATION_THREADS, or one.
inline unsigned system_threads() {
    const char* given = getenv("ROUNDELAY_EMULATION_THREADS");
    int threads = given ? atoi(given) : 1;
    return threads < 1 ? 1 : unsigned(threads);
}

inline void launch(dim3 grid, dim3 size, size_t shared, const std::function<void()>& body) {
    std::atomic<uint64_t> next{0};
    std::vector<std::thread> helpers;
    for (unsigned i = 1; i < system_threads(); i++)
        helpers.emplace_back([&] { work(grid, size, shared, body, next); });
    work(grid, size, shared, body, next);
    for (std::thread& helper : helpers) helper.join();
}

}  // namespace emulation
