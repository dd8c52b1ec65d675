#include "sim/frameworks/megatron_fsdp/v2/documented_use.h"

#include <array>
#include <vector>

#include "sim/base/hash.h"
#include "sim/base/overloaded.h"
#include "sim/frameworks/use_walk.h"

namespace gradledger::megatron_fsdp::v2 {
namespace {

enum class Use : std::uint8_t {
  same_calls,
  last_is_said,
  zero_grad_behind_step,
  zero_grad_before_backward,
  backward_before_step,
  parameters_alike,
  loss_division,
  average,
  no_exception,
  weights,
  own_gradients,
};

// By the numbers of Use.
constexpr std::array<UseRule, 11> rules{{
    {"same-fsdp-v2-calls", "Every rank makes the same calls in the same order."},
    {"last-microbatch-of-replicas", "With a mesh the last backward before step() runs outside of microbatch(model, is_last=False)."},
    {"zero-grad-in-fsdp-v2-window", "zero_grad() is not called between a backward and the step() that applies it."},
    {"zero-grad-of-main-grad", "Gradients last over step(): a loop calls zero_grad() between it and the next backward."},
    {"step-of-an-fsdp-v2-window", "A step() follows a backward of its window."},
    {"fsdp-v2-parameters-alike", "Every rank uses the same parameters in a backward: a module reduces once it has all of its gradients."},
    {"loss-division-beside-fsdp-v2", "Megatron-FSDP v2 divides by the ranks alone: what else a loss is to be divided by, the loop divides it by."},
    {"mean-of-fsdp-v2-ranks", "Gradients are averaged over all ranks."},
    {"no-fsdp-v2-exception", "A model whose backward raised is not trained on with."},
    {"weights-of-the-fsdp-v2-loop", "What the loop multiplies a loss by, averaged over the ranks, is what the contribution is due to weigh.", true},
    {"fsdp-v2-gradients-kept", "What the loop does to param.grad is its own.", true},
}};

// Where a rank stands.
struct RankUse {
  bool in_no_sync = false, contributed = false, applied = false, last_said = true;
};

class Walk final : public UseWalk {
 public:
  Walk(const Scenario& scenario, const Timeline& timeline, const V2Config& config)
      : UseWalk(timeline, rules, scenario.world_size), scenario_(scenario), config_(config), ranks_(scenario.world_size) {}

 private:
  std::uint64_t state() const override {
    TraceHash hash;
    for (const RankUse& u : ranks_)
      for (const bool part : {u.in_no_sync, u.contributed, u.applied, u.last_said}) hash.add(part);
    return hash.value();
  }

  void broken(Use use) { UseWalk::broken(static_cast<std::size_t>(use)); }

  void leave_no_sync(std::uint32_t rank) override { ranks_[rank].in_no_sync = false; }

  void on_event(const Event& e) override {
    if (timeline_.two_layers && e.touches_gradients()) broken(Use::own_gradients);
    if (timeline_.two_layers && e.updates() && weighs_otherwise(e)) broken(Use::weights);
    if (e.is<events::Backward>() && !parameters_alike(scenario_, e)) broken(Use::parameters_alike);
  }

  void on_rank(const Event& e, std::uint32_t rank) override {
    RankUse& u = ranks_[rank];
    using namespace events;
    std::visit(
        overloaded{[&](const EnterNoSync&) { u.in_no_sync = true; }, [&](const ExitNoSync&) { u.in_no_sync = false; }, [&](const events::Backward&) { backward(u); },
                   [&](const Step&) { step(u); }, [&](const one_of<EngineZeroGrad, OptimizerZeroGrad> auto&) { zero_grad(u); }, [&](const Raise&) { broken(Use::no_exception); },
                   [](const one_of<OfFramework, Forward, SetBoundary, EnterCoalesce, ExitCoalesce, SetGradient, ScaleGradients, ClipGradients, AllReduce, Finalize, Save, Restore,
                                   Unscale> auto&) {}},
        e.body);
  }

  void zero_grad(RankUse& u) {
    if (u.contributed) broken(Use::zero_grad_behind_step);
    u.applied = false;
  }

  void step(RankUse& u) {
    if (!u.contributed) broken(Use::backward_before_step);
    if (u.contributed && !u.last_said) broken(Use::last_is_said);
    u.applied = u.applied || u.contributed;
    u.contributed = false;
    u.last_said = true;
  }

  void backward(RankUse& u) {
    if (!timeline_.two_layers && timeline_.contract.divisor != Rational(1)) broken(Use::loss_division);
    if (!timeline_.two_layers && scenario_.contract.average_over != "world") broken(Use::average);
    if (u.applied) broken(Use::zero_grad_before_backward);
    u.contributed = true;
    u.last_said = !config_.mesh || !u.in_no_sync;
  }

  const Scenario& scenario_;
  const V2Config& config_;
  std::vector<RankUse> ranks_;
};

}  // namespace

std::span<const UseRule> v2_use_rules() { return rules; }

UseReport v2_use_of(const Scenario& scenario, const Timeline& timeline, const V2Config& config) { return Walk(scenario, timeline, config).run(); }

}  // namespace gradledger::megatron_fsdp::v2
