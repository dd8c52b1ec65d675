#include "sim/frameworks/deepspeed/search/search_space.h"

#include <algorithm>

#include "sim/base/hash.h"
#include "sim/frameworks/deepspeed/behaviour.h"
#include "sim/frameworks/deepspeed/engines.h"
#include "sim/frameworks/deepspeed/legality.h"
#include "sim/frameworks/deepspeed/search/parts.h"
#include "sim/frameworks/deepspeed/settings.h"

namespace gradledger::deepspeed {
namespace {

// By the table that the engines raise by.
class DeepSpeedCalls final : public Calls {
 public:
  DeepSpeedCalls(const Scenario& scenario, Wrapper wrapper) : behaviour_(resolve_behaviour(scenario.engine.as_of).value()), protocol_(protocol_of(scenario, behaviour_, wrapper)) {}
  DeepSpeedCalls(const DeepSpeedCalls&) = delete;
  DeepSpeedCalls& operator=(const DeepSpeedCalls&) = delete;

  bool takes(EventKind event, bool in_block, bool direct) const override {
    Protocol at = protocol_;
    at.in_block = in_block;
    return !refusal_of(at, event, direct);
  }
  bool manages_windows() const override { return protocol_.config().managed_gradient_accumulation; }
  bool sets_gradients() const override { return behaviour_.set_gradient_api == SetGradientApi::available; }
  bool sets_own_partitions() const override { return protocol_.config().zero.stage == 3; }

 private:
  Behaviour behaviour_;
  Protocol protocol_;
};

bool pins_memory(const Scenario& s) {
  const auto behaviour = resolve_behaviour(s.engine.as_of);
  return deepspeed_config(s).offloads_optimizer() && behaviour && pins_host_memory(deepspeed_config(s), *behaviour);
}

class Space final : public SearchSpace {
 public:
  std::span<const Variant> variants() const override { return deepspeed::variants(); }
  std::span<const Variant> further_variants() const override { return deepspeed::further_variants(); }
  std::string variant_of(const Scenario& s) const override {
    if (s.engine.optimizer.type == OptimizerType::muon) return "zero" + std::to_string(deepspeed_config(s).zero.stage) + "-muon";
    const auto selected = select_wrapper(s);
    if (selected.ok() && *selected == Wrapper::bf16) return "bf16-optimizer";
    return "zero" + std::to_string(deepspeed_config(s).zero.stage) + (deepspeed_config(s).offloads_optimizer() ? "-offload" : "");
  }

  std::span<const FeatureInfo> features() const override { return deepspeed::features(); }
  void draw_engine(std::span<const Variant* const> among, Draws& draws, const Swarm& swarm, Scenario& out) const override { deepspeed::draw_engine(among, draws, swarm, out); }
  void draw_options(Draws& draws, const Swarm& swarm, Scenario& out) const override { deepspeed::draw_options(draws, swarm, out); }
  void leave_out_open_defects(Scenario& scenario) const override { deepspeed::leave_out_open_defects(scenario); }
  std::unique_ptr<Calls> calls(const Scenario& scenario) const override {
    const auto wrapper = select_wrapper(scenario);
    return std::make_unique<DeepSpeedCalls>(scenario, wrapper.ok() ? *wrapper : Wrapper::plain);
  }

  // By the counter of step() calls, which divides the losses too.
  void write_loop(const PlainLoop& loop, Scenario& out) const override {
    out.contract = {};
    tuning().manage_windows(out);
    tuning().count_windows(out, loop.micro_batches);
    ScriptItem backward, step;
    backward.kind = ScriptKind::backward;
    ScriptItem all;
    all.kind = ScriptKind::repeat;
    all.times = loop.windows * loop.micro_batches;
    all.items = {backward, step};
    out.script = {all};
    out.after_error = AfterError::stop;
  }

  // Both boundary calls, both zero_grads, a block and its end.
  std::vector<std::string> alphabet(const Scenario& s) const override {
    return {"backward", "step", "boundary(T)", "boundary(F)", "engine.zero_grad", "optimizer.zero_grad", deepspeed_config(s).zero.stage == 0 ? "no_sync" : "coalesce", "end"};
  }
  std::vector<Simplification> simplifications() const override { return deepspeed::simplifications(); }

  std::uint64_t alike(const Scenario& s) const override {
    const DeepSpeedConfig& c = deepspeed_config(s);
    const bool wide = c.zero.stage == 1 && s.model_dtype != grad_accum_dtype_of(s);  // another lifecycle
    return hash_keys({c.zero.stage, c.offloads_optimizer(), wide, c.managed_gradient_accumulation});
  }
  bool uses_streams(const Scenario& s) const override {
    const ZeroConfig& zero = deepspeed_config(s).zero;
    return zero.stage > 0 && (zero.overlap_comm.value_or(zero.stage == 3) || pins_memory(s) ||
                              std::any_of(s.parameters.begin(), s.parameters.end(), [](const Parameter& p) { return p.on_side_stream; }));
  }

  bool has_documented_form() const override { return true; }
  const Tuning& tuning() const override { return deepspeed::tuning(); }
};

}  // namespace

const SearchSpace& search_space() {
  static const Space it;
  return it;
}

}  // namespace gradledger::deepspeed
