#include "loops/of_megatron.h"

#include <algorithm>
#include <cstddef>

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

// Groups of micro-batches go through all chunks, the model's last one first.
json interleaved(const LoopSetting& s, std::uint32_t n, const json& chunks) {
  const std::uint32_t in_group = s.schedule.value("microbatch_group_size_per_vp_stage", s.stages);
  json out = json::array();
  for (std::uint32_t first = 0; first < n; first += in_group)
    for (std::size_t chunk = chunks.size(); chunk-- > 0;) {
      json run = backwards(std::min(in_group, n - first), weight_of(s));
      run["backward"]["uses"] = chunks[chunk];
      out.push_back(std::move(run));
    }
  return out;
}

// Which backwards of a pipeline reduce is the schedule's own affair, and another matter on each stage.
json pipelined(const LoopSetting& s, std::uint32_t n) {
  json out = json::array({{{"event", {{"name", "forward_backward_func"}}}}});
  const json runs = s.schedule.contains("model_chunks") ? interleaved(s, n, s.schedule["model_chunks"]) : json::array({backwards(n, weight_of(s))});
  out.insert(out.end(), runs.begin(), runs.end());
  out.push_back(finalize());
  return out;
}

// The schedule enters no_sync() for a window of one micro-batch too; of finalize_model_grads() Megatron-FSDP has finish_grad_sync().
Expansion megatron_fsdp_windows(const LoopSetting& s) {
  json before = json::array();
  if (s.micro_batches > 1) before.push_back(backwards(s.micro_batches - 1));
  json window = json::array({zero_grad(), {{"zero_grad", "optimizer"}}, no_sync(std::move(before)), backward(), {{"event", {{"name", "finish_grad_sync"}}}}, step()});
  Expansion out;
  out.script.push_back({{"repeat", {{"times", s.windows}, {"of", std::move(window)}}}});
  return out;
}

// Its wrapper has a no_sync() that does nothing, and so have zero_grad_buffer() and finish_grad_sync(). The optimizer's zero_grad() is the model's besides.
Expansion megatron_fsdp_v2_windows(const LoopSetting& s) {
  Expansion out;
  out.script.push_back({{"repeat", {{"times", s.windows}, {"of", json::array({zero_grad(), {{"zero_grad", "optimizer"}}, backwards(s.micro_batches), step()})}}}});
  return out;
}

}  // namespace

Expansion megatron_schedule(const LoopSetting& s) {
  if (s.framework == "megatron-fsdp-v2") return megatron_fsdp_v2_windows(s);
  if (!s.on_megatron()) return megatron_fsdp_windows(s);
  Expansion out = megatron_windows(s, s.stages > 1 ? pipelined(s, s.micro_batches) : last_reduces(s));
  call_schedule(s, s.micro_batches, out);
  return out;
}

Expansion megatron_schedule_each(const LoopSetting& s) {
  json each = s.stages > 1 ? pipelined(s, 1) : json::array({backward(weight_of(s)), finalize()});
  Expansion out = megatron_windows(s, json::array({{{"repeat", {{"times", s.micro_batches}, {"of", std::move(each)}}}}}));
  call_schedule(s, 1, out);
  return out;
}

Expansion megatron_manual(const LoopSetting& s) { return megatron_windows(s, json::array({backwards(s.micro_batches, weight_of(s)), finalize()})); }

Expansion megatron_no_sync(const LoopSetting& s) { return megatron_windows(s, last_reduces(s)); }

Expansion megatron_never_finalized(const LoopSetting& s) { return megatron_windows(s, json::array({backwards(s.micro_batches, weight_of(s))})); }

}  // namespace gradledger::loops
