#include "sim/frameworks/torch/ddp/history.h"

#include <string>
#include <utility>

namespace gradledger::torch {

const WrapperHistory& ddp_history() {
  static const WrapperHistory it({"ddp",
                                  "DistributedDataParallel",
                                  {},
                                  {{"skip_all_reduce_unused_params", "2.8.0"},
                                   {"bucket_cap_mb_list", "2.11.0"},
                                   {"batched_grad_copy", "2.12.0"},
                                   {"lazy_bucket_allocation", "2.15.0"},
                                   {"require_manual_backward_finalization", "2.15.0"},
                                   {"finalize_backward", "2.15.0"}},
                                  {}});
  return it;
}

std::optional<InputError> not_yet_there(const Scenario& s, const DdpConfig& config) {
  const std::pair<const char*, bool> options[] = {{"skip_all_reduce_unused_params", config.skip_all_reduce_unused_params},
                                                  {"bucket_cap_mb_list", !config.bucket_cap_mb_list.empty()},
                                                  {"batched_grad_copy", config.batched_grad_copy},
                                                  {"lazy_bucket_allocation", config.lazy_bucket_allocation}};
  for (const auto& [name, said] : options)
    if (said)
      if (auto problem = ddp_history().missing(s.engine.as_of, name, std::string("/engine/config/") + name)) return problem;
  return ddp_history().missing_calls(s.engine.as_of, s.script, "/script");
}

}  // namespace gradledger::torch
