#include "sim/frameworks/torch/ddp/history.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>

#include "sim/frameworks/watched_switch.h"

namespace gradledger::torch {
namespace {

// In the order of the values of its row.
enum class DelayedBucketCap : std::uint8_t { integers, numbers };

// The constructor broadcasts delayed parameters in pieces of bucket_cap_mb, for which the binding of up to 2.11 takes an int alone.
std::optional<InputError> bucket_cap_problem(const AsOf& as_of, const DdpConfig& config) {
  if (!config.delay_all_reduce || !config.bucket_cap_mb || std::trunc(*config.bucket_cap_mb) == *config.bucket_cap_mb) return std::nullopt;
  Watched<DelayedBucketCap> cap(static_cast<DelayedBucketCap>(ddp_history().resolve(as_of).value()[0]));
  cap.place_at(0);
  if (cap == DelayedBucketCap::numbers) return std::nullopt;
  return InputError{"/engine/config/bucket_cap_mb",
                    "PyTorch " + as_of.base +
                        " refuses this at initialisation, beside delay_all_reduce: TypeError: _broadcast_coalesced(): incompatible function arguments; expected a whole number, or "
                        "PyTorch 2.12.0 or later in /engine/as_of"};
}

}  // namespace

const WrapperHistory& ddp_history() {
  static const WrapperHistory it(
      {"ddp",
       "DistributedDataParallel",
       {{"delayed_bucket_cap", "delay_all_reduce beside bucket_cap_mb: whether the constructor takes whole numbers alone, or others too", {{"integers"}, {"numbers", "2.12.0"}}}},
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
  if (auto problem = bucket_cap_problem(s.engine.as_of, config)) return problem;
  return ddp_history().missing_calls(s.engine.as_of, s.script, "/script");
}

}  // namespace gradledger::torch
