#include "sim/scenario/contract.h"

#include <algorithm>

namespace gradledger {

bool Contract::holds(std::uint32_t rank, std::uint32_t parameter) const {
  if (holders.empty() || holders[parameter].empty()) return true;
  return std::binary_search(holders[parameter].begin(), holders[parameter].end(), rank);
}

}  // namespace gradledger
