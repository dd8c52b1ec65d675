#include "sim/frameworks/megatron/contract.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "sim/frameworks/loop_contract.h"
#include "sim/frameworks/megatron/parallel_groups.h"
#include "sim/scenario/layout.h"
#include "sim/scenario/script.h"

namespace gradledger::megatron {
namespace {

// Whether the script or the contract weighs contributions by more than one divisor.
bool states_weights(const Scenario& s) {
  const auto any = [](const auto& self, const std::vector<ScriptItem>& items) -> bool {
    return std::any_of(items.begin(), items.end(), [&](const ScriptItem& item) { return !item.weight.empty() || self(self, item.items); });
  };
  const bool in_a_group = s.contract.average_over != "world" && s.contract.average_over != "none";
  return s.contract.window == Window::marked || s.contract.normaliser > Normaliser::number || in_a_group || any(any, s.script);
}

// An embedding that first and last stage share is on both.
bool on_rank(const Scenario& s, const MegatronConfig& config, std::uint32_t rank, std::uint32_t p) {
  if (!config.attributes_of(s.parameters[p].name).shared_embedding) return holds(s, rank, p);
  const bool at_an_end = stage_of(s, rank) == 0 || stage_of(s, rank) + 1 == s.engine.pipeline_stages;
  const std::optional<ParameterPart>& part = s.parameters[p].part;
  return at_an_end && (!part || place_in(s, part->over, rank) == part->number);
}

// By rank: "world" are the ranks that Megatron averages over. Empty: all ranks together.
std::vector<std::uint32_t> average_groups(const Scenario& s, const Groups& groups, const std::vector<std::uint32_t>& data_parallel) {
  const std::string& over = s.contract.average_over;
  if (over == "none" || !groups.contains(over)) return {};
  if (over == "world") return std::count(data_parallel.begin(), data_parallel.end(), data_parallel.front()) == s.world_size ? std::vector<std::uint32_t>{} : data_parallel;
  std::vector<std::uint32_t> out;
  for (std::uint32_t r = 0; r < s.world_size; ++r) out.push_back(groups.of(over, r).front());
  return out;
}

// Where no parameter had a share: every rank's gradient stands for itself.
void share_with_nobody(const Scenario& s, Contract& out) {
  if (!out.share_of.empty()) return;
  GradientShare own{std::vector<std::uint32_t>(s.world_size), true, Rational(1)};
  std::iota(own.first.begin(), own.first.end(), 0u);
  out.shares = {std::move(own)};
  out.share_of.assign(s.parameters.size(), 0);
}

void share_as(std::uint32_t p, const GradientShare& share, Contract& out) {
  const auto known = std::find(out.shares.begin(), out.shares.end(), share);
  out.share_of[p] = static_cast<std::uint32_t>(known - out.shares.begin());
  if (known == out.shares.end()) out.shares.push_back(share);
}

// Both ends of a pipeline add up what they have of an embedding that they share, though each end averages with others.
void share_embeddings(const Scenario& s, const MegatronConfig& config, Contract& out) {
  if (out.average_group.empty() || s.engine.pipeline_stages == 1) return;
  const GradientShare of_both_ends{first_stages(s), false, Rational(1)};
  for (std::uint32_t p = 0; p < s.parameters.size(); ++p) {
    const bool whole = !s.parameters[p].part && !stated_sets(s, "tp").empty();  // and copied by tensor-parallel ranks, of whose copies one stands for all
    if (!config.attributes_of(s.parameters[p].name).shared_embedding || whole) continue;
    share_with_nobody(s, out);
    share_as(p, of_both_ends, out);
  }
}

// Experts average with the ranks that have the same ones: with fewer "etp" than "tp", those of several places in "tp".
void share_experts(const Scenario& s, Contract& out) {
  if (out.average_group.empty() || s.contract.average_over != "world") return;
  const std::vector<std::uint32_t> groups = first_expert_data_parallel(s);
  for (std::uint32_t p = 0; p < s.parameters.size(); ++p) {
    if (!s.parameters[p].expert) continue;
    share_with_nobody(s, out);
    GradientShare share = *out.share(p);
    share.average_group = groups;
    share_as(p, share, out);
  }
}

// A loss that comes with its tokens is divided by them in its micro-batch, or with calculate_per_token_loss by finalize_model_grads(), which counts those of the
// last stages of all data-parallel ranks.
std::optional<TokenDivision> token_division(const Scenario& s, const MegatronConfig& config, const std::vector<std::uint32_t>& data_parallel) {
  const bool of_window = config.model.calculate_per_token_loss;
  const bool counted = config.schedule ? config.schedule->loss == LossReturns::sum_and_tokens : of_window;
  if (!counted || !s.tokens.stated()) return std::nullopt;
  TokenDivision out{of_window, {}, {}};
  if (!of_window) return out;
  std::vector<std::uint32_t> all(s.world_size);
  std::iota(all.begin(), all.end(), 0u);
  const std::vector<std::uint32_t> last = last_stages(s, all);
  for (std::uint32_t r = 0; r < s.world_size; ++r) {
    out.set.push_back(data_parallel[last[r]]);
    out.counts.push_back(last[r] == r);
  }
  return out;
}

}  // namespace

Contract megatron_contract(const Scenario& s, const MegatronConfig& config, const Behaviour& behaviour) {
  Contract out;
  out.stated = s.contract;
  out.own_weights = states_weights(s);
  out.groups = named_groups(s);
  // A schedule divides losses by its micro-batches; a loop's own loss is its own. Context-parallel ranks have parts of one sequence, and count as
  // ranks all the same: from 0.12.0 on the schedule makes up for it in a loss that is a mean.
  const bool mean = config.schedule && config.schedule->loss == LossReturns::mean;
  const auto context = static_cast<std::int64_t>(out.groups.contains("cp") ? out.groups.of("cp", 0).size() : 1);
  if (config.schedule) out.divisor = Rational(config.schedule->num_microbatches, mean && behaviour.mean_times_context ? context : 1);
  if (config.schedule) out.steps_scalar = config.schedule->num_microbatches;
  if (s.contract.normaliser == Normaliser::number && !out.own_weights) out.divisor = s.contract.divide_by;
  const std::vector<std::uint32_t> data_parallel = first_data_parallel(s);
  if (s.contract.normaliser != Normaliser::number || out.own_weights) out.token_division = token_division(s, config, data_parallel);
  if (out.token_division && out.token_division->of_window) {
    out.divisor = Rational(1);
    out.steps_scalar = 1;
  }
  const auto together = static_cast<std::int64_t>(std::count(data_parallel.begin(), data_parallel.end(), data_parallel.front()));
  out.average_divisor = s.contract.average_over == "none" && !out.own_weights ? Rational(1) : Rational(together);
  if (out.own_weights) out.average_group = average_groups(s, out.groups, data_parallel);
  out.holders = holders_by(s, [&](std::uint32_t r, std::uint32_t p) { return on_rank(s, config, r, p); });
  share_gradients(s, out.groups, out);
  share_embeddings(s, config, out);
  share_experts(s, out);
  out.boundary = {1, false, false, "step()"};
  out.replicates_reduced = !config.ddp.use_distributed_optimizer;
  out.accumulation = config.ddp.grad_reduce_in_fp32 ? Dtype::float32 : s.model_dtype;
  out.wire = out.accumulation;
  out.clip = {config.optimizer.clip_grad, 1e-6};  // no tolerance: part of Megatron's formula
  if (s.model_dtype == Dtype::float16 || config.optimizer.loss_scale) {
    out.skips_nonfinite = true;
    out.loss_scale.initial = config.optimizer.loss_scale.value_or(config.optimizer.initial_loss_scale);
    out.loss_scale.dynamic = !config.optimizer.loss_scale;
    out.loss_scale.window = config.optimizer.loss_scale_window;
    out.loss_scale.hysteresis = config.optimizer.hysteresis;
    out.loss_scale.minimum = config.optimizer.min_loss_scale;
  }
  if (s.engine.param_groups.empty()) out.optimizers = {s.engine.optimizer};
  else
    for (std::uint32_t p = 0; p < s.parameters.size(); ++p) out.optimizers.push_back(s.engine.optimizer_of(p));
  return out;
}

}  // namespace gradledger::megatron
