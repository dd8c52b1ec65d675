#include "tools/gradledger/allocator.h"

#include <malloc.h>

#ifdef GRADLEDGER_HAS_JEMALLOC

// Read by jemalloc before main(). An oversize_threshold of 0: large pieces are kept like others.
extern "C" {
extern const char* malloc_conf;
const char* malloc_conf = "dirty_decay_ms:-1,oversize_threshold:0";
}

void gradledger::tool::keep_freed_memory() {}

#else

void gradledger::tool::keep_freed_memory() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
}

#endif
