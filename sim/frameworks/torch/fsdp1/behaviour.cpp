#include "sim/frameworks/torch/fsdp1/behaviour.h"

namespace gradledger::torch::flat_sharded {

const WrapperHistory& history() {
  static const WrapperHistory it({"fsdp1",
                                  "FullyShardedDataParallel",
                                  {{"replaced_parameter",
                                    "NO_SHARD with use_orig_params: whether a view that took the place of a parameter, in a forward that did not use it, takes gradients, which "
                                    "the optimizer does not see, or raises",
                                    {{"takes_gradients"}, {"raises", "2.15.0"}}}},
                                  {},
                                  {}});
  return it;
}

Result<Behaviour> behaviour_at(const AsOf& as_of) {
  const auto values = history().resolve(as_of);
  if (!values) return values.error();
  Behaviour out;
  out.replaced_parameter = static_cast<ReplacedParameter>((*values)[0]);
  out.replaced_parameter.place_at(0);
  return out;
}

}  // namespace gradledger::torch::flat_sharded
