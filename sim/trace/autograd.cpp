#include "sim/trace/autograd.h"

#include <algorithm>

namespace gradledger {

void ComputedGradients::gradient(std::uint32_t backward, std::uint32_t rank, std::uint32_t parameter, std::uint64_t offset, std::span<double> out) const {
  Entry& entry = latest_[rank];
  if (entry.backward != backward) {
    entry.backward.reset();  // should the run throw
    autograd_.run(backward, rank, entry.gradients);
    entry.backward = backward;
  }
  std::copy_n(entry.gradients[parameter].begin() + offset, out.size(), out.begin());
  inner_.plant(backward, rank, parameter, offset, out);
}

}  // namespace gradledger
