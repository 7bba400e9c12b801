// Fibers: stacks that one system thread switches between, and what sanitizers must be told of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <sys/mman.h>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define EMULATION_SANITIZED 1
#endif

// Whether a thread finds its block by its stack (`block` in `block.h`).
#if defined(__x86_64__) && !defined(EMULATION_SANITIZED)
#define EMULATION_BY_STACK 1
#endif

#if defined(__SANITIZE_THREAD__)
#define EMULATION_UNSEEN __attribute__((no_sanitize("thread"), noinline))
extern "C" {
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void* __tsan_get_current_fiber();
void __tsan_acquire(void* address);
void __tsan_release(void* address);
}
#elif defined(EMULATION_BY_STACK)
#define EMULATION_UNSEEN
#else
#define EMULATION_UNSEEN __attribute__((noinline))
#endif

#if defined(__SANITIZE_ADDRESS__)
extern "C" {
void __sanitizer_start_switch_fiber(void** fake, const void* bottom, size_t size);
void __sanitizer_finish_switch_fiber(void* fake, const void** bottom, size_t* size);
void __asan_unpoison_memory_region(void const volatile* address, size_t size);
}
#endif

namespace emulation {

// Room for the locals of one CUDA thread; sanitizers want more. Untouched pages cost nothing. No power
// of two, because tops of stacks that are such a one apart would share few lines of a cache.
#if defined(EMULATION_SANITIZED)
constexpr size_t STACK = 256 * 1024;
#else
constexpr size_t STACK = 64 * 1024 + 320;
#endif

#if defined(__x86_64__)
// Saves the registers that a call keeps on the present stack, and goes on with another. Not by a
// return, which processors expect to go back to its call.
extern "C" void roundelay_emulation_switch(void** from, void* to);
asm(R"(
.text
.weak roundelay_emulation_switch
.hidden roundelay_emulation_switch
.type roundelay_emulation_switch,@function
roundelay_emulation_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  popq %rcx
  jmpq *%rcx
)");
#endif

// Where a stack goes on.
struct Stack {
#if defined(__x86_64__)
    void* pointer = nullptr;
#else
    ucontext_t pointer;
#endif
    char* memory = nullptr;
#if defined(__SANITIZE_ADDRESS__)
    void* fake = nullptr;
    const void* bottom = nullptr;
    size_t size = 0;
#endif
#if defined(__SANITIZE_THREAD__)
    void* fiber = nullptr;
#endif
};

// Makes `stack` begin with `entry`, which never returns.
EMULATION_UNSEEN inline void begin(Stack& stack, char* memory, void (*entry)()) {
    stack.memory = memory;
#if defined(__x86_64__)
    void** top = reinterpret_cast<void**>((reinterpret_cast<uintptr_t>(memory) + STACK) & ~uintptr_t{15});
    *--top = nullptr;
    *--top = reinterpret_cast<void*>(entry);
    for (int saved = 0; saved < 6; saved++) *--top = nullptr;
    stack.pointer = top;
#else
    getcontext(&stack.pointer);
    stack.pointer.uc_stack.ss_sp = memory;
    stack.pointer.uc_stack.ss_size = STACK;
    stack.pointer.uc_link = nullptr;
    makecontext(&stack.pointer, entry, 0);
#endif
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(memory, STACK);
    stack.fake = nullptr;
    stack.bottom = memory;
    stack.size = STACK;
#endif
#if defined(__SANITIZE_THREAD__)
    if (!stack.fiber) stack.fiber = __tsan_create_fiber(0);
#endif
}

// What a stack that was switched to does first.
EMULATION_UNSEEN inline void arrive([[maybe_unused]] Stack& self, [[maybe_unused]] Stack* from) {
#if defined(__SANITIZE_ADDRESS__)
    const void* bottom = nullptr;
    size_t size = 0;
    __sanitizer_finish_switch_fiber(self.fake, &bottom, &size);
    // The first thread of a block comes from the scheduler, others come from threads.
    if (from && !from->memory && !from->bottom) {
        from->bottom = bottom;
        from->size = size;
    }
#endif
}

// Goes on with `to`; returns when somebody goes on with `from`, unless `last`.
EMULATION_UNSEEN inline void change(Stack& from, Stack& to, [[maybe_unused]] bool last) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(last ? nullptr : &from.fake, to.bottom, to.size);
#endif
#if defined(__SANITIZE_THREAD__)
    __tsan_switch_to_fiber(to.fiber, 1);
#endif
#if defined(__x86_64__)
    roundelay_emulation_switch(&from.pointer, to.pointer);
#else
    swapcontext(&from.pointer, &to.pointer);
#endif
    arrive(from, nullptr);
}

#if defined(EMULATION_BY_STACK)
// All stacks of a system thread lie in a region that begins at a multiple of its size: room for 1024
// of them, behind what begins it.
constexpr size_t REGION = size_t{1} << 27, HEAD = 4096;
static_assert(HEAD + 1024 * STACK <= REGION, "a block has at most 1024 threads");
#endif

// Memory for stacks. A system thread keeps it from one launch to the next, because pages that are
// touched anew take longer than most launches; sanitizers get fresh memory.
struct Memory {
    char* start = nullptr;
    size_t bytes = 0;

    Memory() = default;
    Memory(const Memory&) = delete;
    ~Memory() { release(); }
#if defined(EMULATION_BY_STACK)
    char* of(size_t) {
        if (start) return start + HEAD;
        char* found = map(2 * REGION);
        char* own = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(found) + REGION - 1) & ~(REGION - 1));
        if (own > found) munmap(found, own - found);
        if (found + REGION > own) munmap(own + REGION, found + REGION - own);
        bytes = REGION;
        start = own;
        return start + HEAD;
    }
#else
    char* of(size_t wanted) {
#if defined(EMULATION_SANITIZED)
        release();
#endif
        if (wanted <= bytes) return start;
        release();
        start = map(wanted);
        bytes = wanted;
        return start;
    }
#endif
    static char* map(size_t wanted) {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        void* found = mmap(nullptr, wanted, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (found == MAP_FAILED) abort();
        return static_cast<char*>(found);
    }
    void release() {
        if (start) munmap(start, bytes);
        start = nullptr;
        bytes = 0;
    }
};

inline thread_local Memory memory_of_stacks;

}  // namespace emulation
