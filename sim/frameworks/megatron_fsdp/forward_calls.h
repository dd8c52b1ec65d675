// Which modules a forward calls, in which order: that of the model that the drivers run. Of both versions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/engine/engine.h"
#include "sim/frameworks/megatron_fsdp/layout.h"

namespace gradledger::megatron_fsdp {

struct ModuleCall {
  std::uint32_t module = 0;               // the unit; 0: what the root runs of its own
  std::vector<std::uint32_t> parameters;  // that are used, in the order of the forward
  bool reached = false;                   // by autograd: it, or a call before it, has a gradient
  bool goes_on = false;                   // a gradient goes on to the call before it
};

// calls_unused: units of which nothing is used are called too.
std::vector<ModuleCall> forward_calls(const EngineContext& context, const Layout& layout, std::uint32_t backward, bool calls_unused);

// Goes through a backward from the last call to the first.
class CallsBackwards {
 public:
  explicit CallsBackwards(const std::vector<ModuleCall>& calls) : calls_(calls), at_(calls.size()) {}

  // begin(call) of each call down to that which has the parameter, or of all that are left; end(call) of each that it leaves.
  template <class Begin, class End>
  void up_to(std::uint32_t parameter, Begin&& begin, End&& end) {
    while (!has(parameter)) {
      if (at_ < calls_.size()) end(calls_[at_]);
      if (at_ == 0) {
        at_ = calls_.size();
        return;
      }
      begin(calls_[--at_]);
    }
  }

 private:
  bool has(std::uint32_t parameter) const {
    return at_ < calls_.size() && std::find(calls_[at_].parameters.begin(), calls_[at_].parameters.end(), parameter) != calls_[at_].parameters.end();
  }

  const std::vector<ModuleCall>& calls_;
  std::size_t at_;
};

}  // namespace gradledger::megatron_fsdp
