#include "sim/scenario/contract.h"

#include <algorithm>

namespace gradledger {

bool Contract::holds(std::uint32_t rank, std::uint32_t parameter) const {
  return held_by_all(parameter) || std::binary_search(holders[parameter].begin(), holders[parameter].end(), rank);
}

}  // namespace gradledger
