#include "loops/of_megatron.h"

#include "loops/script.h"

namespace gradledger::loops {
namespace {

using nlohmann::json;

json finalize() { return {{"event", {{"name", "finalize_model_grads"}}}}; }

// With calculate_per_token_loss a loss is the sum over its tokens, and finalize_model_grads divides by those of the window.
std::string weight_of(const LoopSetting& s) { return s.per_token ? "tokens" : ""; }

// `events`: from the first backward of a window to what stands before its step().
Expansion megatron_windows(const LoopSetting& s, const json& events) {
  json window = json::array({zero_grad(), {{"zero_grad", "optimizer"}}});
  window.insert(window.end(), events.begin(), events.end());
  window.push_back(step());
  Expansion out;
  out.script.push_back({{"repeat", {{"times", s.windows}, {"of", std::move(window)}}}});
  if (!s.per_token) return out;
  out.contract["divide_by"] = "tokens";
  out.counts_tokens = true;
  return out;
}

// The last backward alone reduces.
json last_reduces(const LoopSetting& s) {
  json out = json::array();
  if (s.micro_batches > 1) out.push_back(no_sync(json::array({backwards(s.micro_batches - 1, weight_of(s))})));
  out.push_back(backward(weight_of(s)));
  out.push_back(finalize());
  return out;
}

// A schedule divides each loss by its micro-batches, unless finalize_model_grads divides by tokens.
void call_schedule(const LoopSetting& s, std::uint32_t n, Expansion& out) { out.config["schedule"] = {{"num_microbatches", n}, {"loss", s.per_token ? "sum_and_tokens" : "mean"}}; }

}  // namespace

Expansion megatron_schedule(const LoopSetting& s) {
  Expansion out = megatron_windows(s, last_reduces(s));
  call_schedule(s, s.micro_batches, out);
  return out;
}

Expansion megatron_schedule_each(const LoopSetting& s) {
  json each = json::array({backward(weight_of(s)), finalize()});
  Expansion out = megatron_windows(s, json::array({{{"repeat", {{"times", s.micro_batches}, {"of", std::move(each)}}}}}));
  call_schedule(s, 1, out);
  return out;
}

Expansion megatron_manual(const LoopSetting& s) { return megatron_windows(s, json::array({backwards(s.micro_batches, weight_of(s)), finalize()})); }

Expansion megatron_no_sync(const LoopSetting& s) { return megatron_windows(s, last_reduces(s)); }

Expansion megatron_never_finalized(const LoopSetting& s) { return megatron_windows(s, json::array({backwards(s.micro_batches, weight_of(s))})); }

}  // namespace gradledger::loops
