// Which modules a forward calls, in which order: that of the model that the drivers run. Of both versions.
#pragma once

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

// Goes through a backward from the last call to the first, and in each from the last parameter to the first, as their gradients become ready.
class CallsBackwards {
 public:
  explicit CallsBackwards(const std::vector<ModuleCall>& calls) : calls_(calls), at_(calls.size()) {}

  // begin(call) of each call down to that whose next parameter this is, or of all that are left; end(call) of each that it leaves.
  template <class Begin, class End>
  void up_to(std::uint32_t parameter, Begin&& begin, End&& end) {
    while (!takes(parameter)) {
      if (at_ < calls_.size()) end(calls_[at_]);
      if (at_ == 0) return;
      begin(calls_[--at_]);
      left_ = calls_[at_].parameters.size();
    }
  }

 private:
  bool takes(std::uint32_t parameter) {
    if (left_ == 0 || calls_[at_].parameters[left_ - 1] != parameter) return false;
    --left_;
    return true;
  }

  const std::vector<ModuleCall>& calls_;
  std::size_t at_, left_ = 0;  // the call, and its parameters that are to come
};

}  // namespace gradledger::megatron_fsdp
