// Static shared memory. A system thread runs one block at a time, so what a block shares is local to the thread,
// and lies with all else in the object of the kernels that is.
#pragma once

#include <cstddef>
#include <cstring>

#if defined(__linux__)
#include <link.h>
#endif

namespace emulation {

struct Range {
    char* start;
    size_t bytes;
};

#if defined(__linux__)
// The thread-local memory of the object of which a variable is.
inline Range memory_beside(const volatile void* variable) {
    struct Search {
        const volatile char* variable;
        Range found;
    } search = {static_cast<const volatile char*>(variable), {nullptr, 0}};
    auto look = [](dl_phdr_info* object, size_t, void* data) {
        Search& search = *static_cast<Search*>(data);
        char* start = static_cast<char*>(object->dlpi_tls_data);
        for (int i = 0; start && i < object->dlpi_phnum; i++) {
            size_t bytes = object->dlpi_phdr[i].p_memsz;
            if (object->dlpi_phdr[i].p_type != PT_TLS) continue;
            if (start <= search.variable && search.variable < start + bytes) search.found = {start, bytes};
        }
        return int(search.found.start != nullptr);
    };
    dl_iterate_phdr(look, &search);
    return search.found;
}
#else
inline Range memory_beside(const volatile void*) { return {nullptr, 0}; }
#endif

// Makes a range no numbers but for two variables in it that are kept. What the compiler put there besides says that
// something is done already: it is not zero before, nor behind.
template <class First, class Second>
void poison(Range range, First& first, Second& second) {
    unsigned char kept[sizeof(First) + sizeof(Second)];
    memcpy(kept, static_cast<void*>(&first), sizeof(First));
    memcpy(kept + sizeof(First), static_cast<void*>(&second), sizeof(Second));
    if (range.start) memset(range.start, 0xff, range.bytes);
    memcpy(static_cast<void*>(&first), kept, sizeof(First));
    memcpy(static_cast<void*>(&second), kept + sizeof(First), sizeof(Second));
}

}  // namespace emulation
