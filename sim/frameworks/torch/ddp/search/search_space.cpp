#include "sim/frameworks/torch/ddp/search/search_space.h"

#include <array>

#include "sim/base/hash.h"
#include "sim/frameworks/loop_drawing.h"
#include "sim/frameworks/torch/ddp/search/parts.h"
#include "sim/frameworks/torch/scaler_contract.h"

namespace gradledger::torch::data_parallel {
namespace {

constexpr std::array<Variant, 1> all_variants{{{"ddp", "DistributedDataParallel", {.reduces_every_backward = true}, [](Scenario& s) { s.engine.framework = "ddp"; }}}};

bool without_hook(Scenario& s) {
  DdpConfig& config = ddp_config(s);
  const bool was = config.comm_hook != CommHook::none;
  config.comm_hook = CommHook::none;
  config.power_sgd.reset();
  config.rows.clear();
  return was;
}

class DataParallelTuning final : public Tuning {
 public:
  bool set_model_dtype(Scenario& s, Dtype dtype) const override { return set_loop_dtype(s, dtype); }
  bool set_loss_scale(Scenario& s, const LossScalePolicy& policy) const override {
    ddp_config(s).grad_scaler = scaler_of(policy);
    return true;
  }
  bool limit_buckets(Scenario& s, std::uint64_t numel) const override {
    ddp_config(s).bucket_cap_mb = static_cast<double>(numel * size_of(s.model_dtype)) / (1024.0 * 1024.0);
    return true;
  }
  bool set_wire_dtype(Scenario& s, std::optional<Dtype> dtype) const override {
    if (dtype == Dtype::float32) return false;
    without_hook(s);
    if (dtype) ddp_config(s).comm_hook = *dtype == Dtype::float16 ? CommHook::fp16_compress : CommHook::bf16_compress;
    return true;
  }
  bool approximate(Scenario& s) const override {
    without_hook(s);
    DdpConfig& config = ddp_config(s);
    config.comm_hook = CommHook::power_sgd;
    config.power_sgd = PowerSgdConfig{.start_powerSGD_iter = 2, .min_compression_rate = 1};
    for (const Parameter& p : s.parameters)
      if (p.has_gradient() && config.rows.empty()) config.rows[p.name] = 6;
    return true;
  }
};

std::vector<Simplification> simpler() {
  std::vector<Simplification> out;
  add_loop_simplifications(out);
  const auto defaults = [&](auto option) { out.push_back(option_default(option)); };
  out.emplace_back(without_hook);
  defaults(&DdpConfig::delay_all_reduce);
  defaults(&DdpConfig::bucket_cap_mb);
  defaults(&DdpConfig::bucket_cap_mb_list);
  defaults(&DdpConfig::skip_all_reduce_unused_params);
  defaults(&DdpConfig::find_unused_parameters);
  defaults(&DdpConfig::gradient_as_bucket_view);
  defaults(&DdpConfig::static_graph);
  defaults(&DdpConfig::batched_grad_copy);
  defaults(&DdpConfig::lazy_bucket_allocation);
  defaults(&DdpConfig::grad_scaler);
  defaults(&DdpConfig::plain);
  return out;
}

class Space final : public SearchSpace {
 public:
  std::span<const Variant> variants() const override { return all_variants; }
  std::string variant_of(const Scenario&) const override { return "ddp"; }

  std::span<const FeatureInfo> features() const override { return data_parallel::features(); }
  void draw_engine(std::span<const Variant* const> among, Draws& draws, const Swarm& swarm, Scenario& out) const override { data_parallel::draw_engine(among, draws, swarm, out); }
  void draw_options(Draws& draws, const Swarm& swarm, Scenario& out) const override { data_parallel::draw_options(draws, swarm, out); }
  // A bucket of which nothing is used is divided again where it is what param.grad views, and what PowerSGD keeps remembers an overflow (docs/ddp.md). A sum
  // is added up again by each further backward of a window that is reduced.
  void leave_out_open_defects(Scenario& s) const override {
    DdpConfig& config = ddp_config(s);
    if (config.skip_all_reduce_unused_params) config.gradient_as_bucket_view = false;
    if (config.comm_hook == CommHook::sum) {
      config.comm_hook = CommHook::allreduce;
      s.contract.average_over = "world";
    }
    if (config.power_sgd && config.grad_scaler) config.power_sgd->use_error_feedback = config.power_sgd->warm_start = false;
  }
  std::unique_ptr<Calls> calls(const Scenario&) const override { return std::make_unique<LoopCalls>(true); }
  bool draw_window(const WindowSlot& slot, Draws& draws, const Swarm& swarm, Scenario& out) const override {
    data_parallel::draw_window(slot, draws, swarm, out);
    return true;
  }
  void write_loop(const PlainLoop& loop, Scenario& out) const override {
    ddp_config(out).find_unused_parameters = leaves_parameters_out(out);
    ddp_config(out).skip_all_reduce_unused_params = false;
    write_plain_loop(loop, {}, {}, out);
  }

  std::vector<OwnLetter> letters(const Scenario&) const override {
    return {{"require_manual_backward_finalization(T)", call_item({Method::require_manual_backward_finalization, true})},
            {"require_manual_backward_finalization(F)", call_item({Method::require_manual_backward_finalization, false})},
            {"finalize_backward", call_item({Method::finalize_backward})}};
  }

  bool share(Scenario& s, std::uint32_t ranks) const override { return share_small_world(s, ranks); }
  std::vector<std::string> alphabet(const Scenario&) const override { return {"backward", "step", "optimizer.zero_grad", "no_sync", "end"}; }
  std::vector<Simplification> simplifications() const override { return simpler(); }

  std::uint64_t alike(const Scenario& s) const override {
    const DdpConfig& c = ddp_config(s);
    return hash_keys({c.static_graph, c.searches_unused(), c.comm_hook != CommHook::none, c.power_sgd.has_value(), c.gradient_as_bucket_view, c.delay_all_reduce.has_value(),
                      c.grad_scaler.has_value()});
  }

  const Tuning& tuning() const override {
    static const DataParallelTuning it;
    return it;
  }
};

}  // namespace

ScriptItem call_item(Call call) { return event_item(call_events()[static_cast<std::size_t>(call.method)], FrameworkValue(call), switches_reductions(call)); }

const SearchSpace& search_space() {
  static const Space it;
  return it;
}

}  // namespace gradledger::torch::data_parallel
