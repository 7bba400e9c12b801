// CUDA C++ on the CPU: put before a source of `kernels/cuda` with `-include`, it makes a C++17
// compiler build a shared object whose kernels run thread by thread.
//
//     c++ -std=c++17 -O1 -fPIC -fvisibility=hidden -shared -pthread -include kernels/cuda/host/emulation.h SOURCE -o OBJECT
//
// For every kernel SYMBOL the object exports three C functions:
//
//     void roundelay_emulate_SYMBOL(const unsigned* grid, const unsigned* block,
//                                   unsigned long long shared, void** arguments);
//     unsigned roundelay_parameters_SYMBOL(unsigned long long* sizes);
//     unsigned roundelay_threads_SYMBOL(void);
//
// The first runs the whole grid and returns when all of it has run. `grid` and `block` have three
// extents (x, y, z), `shared` is the size of the block's dynamic shared memory in bytes, and
// `arguments` has the address of each argument in order, as `cuLaunchKernel` takes them. The
// second gives the number of parameters, and the size of each in bytes where `sizes` is not null
// (no kernel has more than 128); the third the most threads that its blocks may have. Blocks run one after another unless ROUNDELAY_EMULATION_THREADS
// says on how many system threads. What would hang a GPU (a barrier that not all threads reach)
// ends the process with the place on standard error.
#pragma once

#define ROUNDELAY_EMULATION 1

#include <tuple>
#include <type_traits>
#include <utility>

#include "language.h"

namespace emulation {

template <class... Parameters, size_t... Index>
void call(void (*kernel)(Parameters...), void** arguments, std::index_sequence<Index...>) {
    kernel(*static_cast<std::remove_cv_t<Parameters>*>(arguments[Index])...);
}

template <class... Parameters>
void emulate(void (*kernel)(Parameters...), const unsigned* grid, const unsigned* block,
             unsigned long long shared, void** arguments) {
    launch(dim3(grid[0], grid[1], grid[2]), dim3(block[0], block[1], block[2]), shared,
           [=] { call(kernel, arguments, std::index_sequence_for<Parameters...>{}); });
}

template <class... Parameters>
unsigned parameters(void (*)(Parameters...), unsigned long long* sizes) {
    unsigned long long all[] = {sizeof(Parameters)..., 0};
    for (unsigned i = 0; sizes && i < sizeof...(Parameters); i++) sizes[i] = all[i];
    return sizeof...(Parameters);
}

}  // namespace emulation

// Whatever else a source has stays its own (`-fvisibility=hidden`).
#define EMULATION_VISIBLE extern "C" __attribute__((visibility("default")))
#define EMULATION_EXPORT(threads, symbol)                                                            \
    EMULATION_VISIBLE void roundelay_emulate_##symbol(const unsigned* grid, const unsigned* block,   \
                                                      unsigned long long shared, void** arguments) { \
        emulation::emulate(symbol, grid, block, shared, arguments);                                  \
    }                                                                                                \
    EMULATION_VISIBLE unsigned roundelay_parameters_##symbol(unsigned long long* sizes) {            \
        return emulation::parameters(symbol, sizes);                                                 \
    }                                                                                                \
    EMULATION_VISIBLE unsigned roundelay_threads_##symbol() { return threads; }
