#include <cstdio>
#include <gtest/gtest.h>

#include "search/mutants/hunt.h"

namespace gradledger::search {
TEST(dev, table) {
  const char* only = getenv("MUTANT");
  for (const Mutant& m : mutants()) {
    if (only && m.name != only) continue;
    for (auto v : m.variants) {
      const Hunt h = hunt(m, v, getenv("SEED") ? atoi(getenv("SEED")) : 1, 12);
      std::string r;
      for (auto c : h.reported) r += std::string(name_of(c)) + " ";
      printf("%-36s %-16s %s %2u  %s\n", std::string(m.name).c_str(), std::string(v).c_str(), h.found ? "ok " : "MISS", h.cases, r.c_str());
      fflush(stdout);
    }
  }
}
}
