// Bytes as conditions on contributions.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/properties.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  gradledger::fuzz::check_predicate({reinterpret_cast<const char*>(data), size});
  return 0;
}
