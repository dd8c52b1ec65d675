#include "tools/gradledger/allocator.h"

#include <malloc.h>

#include <cstddef>
#include <string>

#ifdef GRADLEDGER_HAS_JEMALLOC

extern "C" int mallctl(const char* name, void* old, std::size_t* old_size, void* to, std::size_t size);

// Read by jemalloc before main(). An oversize_threshold of 0: large pieces are kept like others.
extern "C" {
extern const char* malloc_conf;
const char* malloc_conf = "dirty_decay_ms:-1,oversize_threshold:0";
}

void gradledger::tool::keep_freed_memory() {}

void gradledger::tool::give_back_idle_memory() {
  unsigned arena = 0;
  std::size_t size = sizeof arena;
  if (mallctl("thread.arena", &arena, &size, nullptr, 0) != 0) return;
  std::ptrdiff_t after_ms = 1000;
  mallctl(("arena." + std::to_string(arena) + ".dirty_decay_ms").c_str(), nullptr, nullptr, &after_ms, sizeof after_ms);
}

#else

void gradledger::tool::keep_freed_memory() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
}

void gradledger::tool::give_back_idle_memory() { mallopt(M_TRIM_THRESHOLD, 64 << 20); }

#endif
