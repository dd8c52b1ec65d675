#include "sim/frameworks/torch/fsdp1/documented_use.h"

#include <array>
#include <set>
#include <utility>

#include "sim/base/hash.h"
#include "sim/base/overloaded.h"
#include "sim/frameworks/torch/fsdp1/layout.h"
#include "sim/frameworks/use_walk.h"

namespace gradledger::torch::flat_sharded {
namespace {

enum class Use : std::uint8_t {
  same_calls,
  last_is_synchronised,
  backward_behind_forward,
  used_again,
  offload_in_no_sync,
  ends_with_exception,
  loss_division,
  average,
  zero_grad_behind_step,
  zero_grad_before_backward,
  backward_before_step,
  scaler_asks_all,
  weights,
  own_gradients,
  checkpoint,
};

// By the numbers of Use.
constexpr std::array<UseRule, 15> rules{{
    {"flat-ranks-alike", "Every rank makes the same calls in the same order, with the same parameters in use."},
    {"last-backward-outside-no-sync", "The last forward and backward before step() stand outside no_sync(): it is they that reduce what was accumulated."},
    {"flat-forward-then-backward", "Each forward is followed by its own backward, once, before the next forward."},
    {"flat-units-used-again", "A module that was used in no_sync() is used in the backward that synchronises."},
    {"offload-accumulates-in-no-sync", "With CPU offload gradients are accumulated within no_sync() alone."},
    {"flat-no-exception", "A forward or backward that raises ends the training loop."},
    {"flat-loss-division", "FullyShardedDataParallel divides by the ranks alone: what else a loss is to be divided by, the loop divides it by."},
    {"flat-mean", "Gradients are averaged over all ranks."},
    {"flat-zero-grad-in-window", "zero_grad() is not called between a backward and the step() that applies it."},
    {"flat-zero-grad", "Gradients last over step(): a loop calls zero_grad() between it and the next backward."},
    {"flat-step-of-a-backward", "A step() follows a backward of its window."},
    {"sharded-grad-scaler", "Losses are scaled by ShardedGradScaler, by which all ranks skip a step or none does."},
    {"flat-weights", "What the loop multiplies a loss by, averaged over the ranks, is what the contribution is due to weigh.", true},
    {"flat-gradients-kept", "What the loop does to gradients, or reduces beside FullyShardedDataParallel, is its own.", true},
    {"flat-checkpoint", "A checkpoint is saved behind a step() that updates: the gradients of an open window are not in it."},
}};

// Where a rank stands.
struct RankUse {
  bool in_no_sync = false, contributed = false, last_synchronised = true, synchronised = false, applied = false, raised = false;
  std::uint32_t forwards = 0;
  std::set<std::uint32_t> open;      // explicit forwards that had no backward yet
  std::set<std::uint32_t> deferred;  // modules with gradients that were not reduced
};

class Walk final : public UseWalk {
 public:
  Walk(const Scenario& scenario, const Timeline& timeline, const Fsdp1Config& config)
      : UseWalk(timeline, rules, scenario.world_size),
        scenario_(scenario),
        config_(config),
        module_of_(module_of_parameters(scenario, config.wrap, config.units)),
        ranks_(scenario.world_size) {}

 private:
  std::uint64_t state() const override {
    TraceHash hash;
    for (const RankUse& u : ranks_) {
      for (const bool part : {u.in_no_sync, u.contributed, u.last_synchronised, u.synchronised, u.applied, u.raised}) hash.add(part);
      hash.add(u.open.size());
      for (const std::uint32_t module : u.deferred) hash.add(module + 1);
    }
    return hash.value();
  }

  void broken(Use use) { UseWalk::broken(static_cast<std::size_t>(use)); }

  void leave_no_sync(std::uint32_t rank) override { ranks_[rank].in_no_sync = false; }

  // Where the loop states what it means: whether the wrapper can know of it.
  void on_event(const Event& e) override {
    if (e.is<events::Restore>()) return restored(e);
    if (timeline_.two_layers && e.touches_gradients()) broken(Use::own_gradients);
    if (timeline_.two_layers && e.updates() && weighs_otherwise(e)) broken(Use::weights);
    if (const auto* backward = e.as<events::Backward>()) same_parameters(*backward, e);
  }

  // Modules are gathered and reduced as they are used: by all ranks, or by none.
  void same_parameters(const events::Backward& backward, const Event& e) {
    std::set<std::uint32_t> first;
    bool any = false;
    for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
      if (!e.runs_on(r)) continue;
      const std::set<std::uint32_t> used = modules(backward, r);
      if (std::exchange(any, true) && used != first) return broken(Use::same_calls);
      first = used;
    }
  }

  std::set<std::uint32_t> modules(const events::Backward& backward, std::uint32_t rank) const {
    std::set<std::uint32_t> out;
    for (std::uint32_t p = 0; p < scenario_.parameters.size(); ++p)
      if (timeline_.in_graph(scenario_, backward.ordinal, rank, p)) out.insert(module_of_[p]);
    return out;
  }

  // What new processes have of the old ones is the checkpoint alone.
  void restored(const Event& e) {
    if (lost_at(e)) broken(Use::checkpoint);
    ranks_.assign(ranks_.size(), {});
  }

  void on_rank(const Event& e, std::uint32_t rank) override {
    using namespace events;
    RankUse& u = ranks_[rank];
    std::visit(overloaded{[&](const EnterNoSync&) { u.in_no_sync = true; },
                          [&](const Forward&) {
                            if (!u.open.empty()) broken(Use::backward_behind_forward);
                            u.open.insert(u.forwards++);
                          },
                          [&](const events::Backward& body) { backward(body, rank); }, [&](const Step&) { step(u); },
                          [&](const one_of<EngineZeroGrad, OptimizerZeroGrad> auto&) {
                            if (u.contributed) broken(Use::zero_grad_behind_step);
                            u.applied = false;
                          },
                          [&](const Raise&) { u.in_no_sync = false; },
                          [](const one_of<SetBoundary, ExitNoSync, EnterCoalesce, ExitCoalesce, SetGradient, ScaleGradients, ClipGradients, AllReduce, Finalize, Save, Restore,
                                          Unscale, OfFramework> auto&) {}},
               e.body);
  }

  void step(RankUse& u) {
    if (!u.contributed) broken(Use::backward_before_step);
    if (u.contributed && !u.last_synchronised) broken(Use::last_is_synchronised);
    if (config_.plain_grad_scaler) broken(Use::scaler_asks_all);
    u.applied = u.applied || u.contributed;
    u.contributed = u.synchronised = false;
    u.last_synchronised = true;
    u.forwards = 0;
    u.open.clear();
  }

  void backward(const events::Backward& e, std::uint32_t rank) {
    RankUse& u = ranks_[rank];
    if (!timeline_.two_layers && timeline_.contract.divisor != Rational(1)) broken(Use::loss_division);
    if (!timeline_.two_layers && scenario_.contract.average_over != "world") broken(Use::average);
    if (u.applied) broken(Use::zero_grad_before_backward);
    if (u.raised) broken(Use::ends_with_exception);
    if (e.own_forward ? !u.open.empty() : u.open.erase(e.of) == 0) broken(Use::backward_behind_forward);
    if (e.raises_after) u.raised = true;
    if (config_.offload && u.synchronised) broken(Use::offload_in_no_sync);
    const std::set<std::uint32_t> used = modules(e, rank);
    if (u.in_no_sync) {
      u.deferred.insert(used.begin(), used.end());
    } else {
      for (const std::uint32_t module : u.deferred)
        if (!used.contains(module)) broken(Use::used_again);
      u.deferred.clear();
    }
    u.contributed = !e.raises_after;
    u.last_synchronised = !u.in_no_sync;
    u.synchronised = u.synchronised || !u.in_no_sync;
  }

  const Scenario& scenario_;
  const Fsdp1Config& config_;
  std::vector<std::uint32_t> module_of_;
  std::vector<RankUse> ranks_;
};

}  // namespace

std::span<const UseRule> fsdp1_use_rules() { return rules; }

UseReport fsdp1_use_of(const Scenario& scenario, const Timeline& timeline, const Fsdp1Config& config) { return Walk(scenario, timeline, config).run(); }

}  // namespace gradledger::torch::flat_sharded
