// The buffers that the engines allocate, by the framework's names without index ("averaged_gradients[0]" is of the family
// averaged_gradients). What a parameter has its own of is written with "*" for the parameter's name: "*.grad".
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include "sim/scenario/scenario.h"

namespace gradledger {

// What memory is for. A buffer keeps the purpose that it was allocated for: stages 1 and 2 accumulate in the first gradients themselves.
enum class BufferPurpose : std::uint8_t {
  weights,
  gradients,  // what autograd writes, model dtype
  buckets,    // buckets, flat copies, casts and partitions on their way
  accumulators,
  master_weights,
  master_gradients,  // their gradients, for the step
  optimizer_state,
  scalars,
  other,  // of no family: another producer's
};
inline constexpr std::size_t buffer_purposes = 9;
std::string_view name_of(BufferPurpose purpose);

struct BufferFamily {
  std::string_view name;
  BufferPurpose purpose;
  std::string_view allocated_by;
  std::string_view holds;
};

// The purpose of a buffer by its name with index: "fp32_groups[0][w].grad" holds master gradients. Views the scenario's names, and the families.
class BufferPurposes {
 public:
  BufferPurposes(const Scenario& scenario, std::span<const BufferFamily> families);
  BufferPurpose of(std::string_view name) const;

 private:
  std::span<const BufferFamily> families_;
  std::set<std::string_view> parameters_;
};

// Whether an engine with these families could allocate a buffer of that name for the scenario's parameters.
bool names_one_of(std::span<const BufferFamily> families, const Scenario& scenario, std::string_view name);

}  // namespace gradledger
