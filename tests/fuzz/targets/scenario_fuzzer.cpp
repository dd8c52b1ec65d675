// Bytes as scenario files.
#include <cstdint>
#include <cstring>

#include "sim/scenario/json_reader.h"
#include "tests/fuzz/mutation.h"
#include "tests/fuzz/properties.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  gradledger::fuzz::check_scenario({reinterpret_cast<const char*>(data), size});
  return 0;
}

// Half of the time as bytes; half of the time as a document.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed) {
  gradledger::SplitMix64 random(seed);
  if (random.below(2) == 0) return LLVMFuzzerMutate(data, size, most);
  const auto document = gradledger::read_json({reinterpret_cast<const char*>(data), size});
  if (!document) return LLVMFuzzerMutate(data, size, most);
  nlohmann::json bent = gradledger::fuzz::mutated(*document, random);
  for (std::uint32_t more = random.below(3); more > 0; --more) bent = gradledger::fuzz::mutated(std::move(bent), random);
  const std::string text = bent.dump();
  if (text.size() > most) return LLVMFuzzerMutate(data, size, most);
  std::memcpy(data, text.data(), text.size());
  return text.size();
}
