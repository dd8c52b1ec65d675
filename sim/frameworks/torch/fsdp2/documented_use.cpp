#include "sim/frameworks/torch/fsdp2/documented_use.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>
#include <vector>

#include "sim/base/hash.h"
#include "sim/base/overloaded.h"
#include "sim/frameworks/use_walk.h"
#include "sim/frameworks/torch/fsdp2/calls.h"
#include "sim/frameworks/torch/fsdp2/modules.h"

namespace gradledger::torch::fully_shard {
namespace {

enum class Use : std::uint8_t {
  same_calls,
  last_is_synchronised,
  one_backward_a_forward,
  unused_parameters,
  reset_behind_exception,
  last_backward,
  finalized,
  held_until_finalized,
  reshard_behind_step,
  loss_division,
  average,
  zero_grad_behind_step,
  zero_grad_before_backward,
  backward_before_step,
  weights,
  own_gradients,
  checkpoint,
  plan,
};

// By the numbers of Use.
constexpr std::array<UseRule, 18> rules{{
    {"ranks-alike", "Every rank makes the same calls in the same order."},
    {"last-backward-reduced", "The last backward before step() reduces gradients: set_requires_gradient_sync(True) stands before it."},
    {"graph-run-once", "Each forward is followed by its own backward, once."},
    {"parameters-alike", "Where ranks use different parameters in a backward, set_reduce_scatter_unused_params says so."},
    {"reset-behind-exception", "Behind a forward or backward that raised, reset_iter_state() is called on the root, and the window begins anew."},
    {"last-backward-said", "set_is_last_backward(True) stands before the last backward of a window."},
    {"backward-finalized",
     "With set_manual_backward_finalization(True), finalize_backward() stands behind the last backward of a window, with gradient sync on and no forward open, and is waited for "
     "before step() and zero_grad(). The mode changes between that and a backward; both are methods of the root."},
    {"unreduced-until-finalized", "Of several backwards before one finalize_backward() none reduces gradients."},
    {"reshard-behind-step", "Parameters that were kept behind a backward are given up before the forward that follows step()."},
    {"loss-division-beside-ranks", "fully_shard divides by the ranks alone, or by gradient_divide_factor: what else a loss is to be divided by, the loop divides it by."},
    {"mean-of-shards", "Gradients are averaged over all ranks."},
    {"zero-grad-in-window", "zero_grad() is not called between a backward and the step() that applies it."},
    {"zero-grad-of-shards", "Gradients last over step(): a loop calls zero_grad() between it and the next backward."},
    {"step-of-a-backward", "A step() follows a backward of its window."},
    {"weights-of-the-sharded-loop", "What the loop multiplies a loss by, averaged over the ranks, is what the contribution is due to weigh.", true},
    {"reduced-shards-kept", "What the loop does to param.grad, or reduces beside fully_shard, is its own.", true},
    {"sharded-checkpoint", "A checkpoint is saved behind a step() that updates: the gradients of an open window are not in it."},
    {"plan-of-parallelize-module",
     "The plan of parallelize_module has every parameter of which tensor-parallel ranks have parts of a gradient, and all of those that are clipped together, or none."},
}};

// Where a rank stands.
struct RankUse {
  bool contributed = false, last_synchronised = true, applied = false, raised = false, last_backward = true, reshards = true, kept = false;
  // The loop ends backwards; some are not ended, of which one reduced; what finalize_backward() began was not waited for.
  bool by_hand = false, unfinished = false, reduced_unfinished = false, pending = false;
  std::uint32_t forwards = 0;
  std::set<std::uint32_t> open;  // explicit forwards that had no backward yet
  // Modules that reduce nothing, and those that reduce nothing between replicas, the root first.
  std::set<std::uint32_t> unreduced, within_shards;

  // set_requires_gradient_sync of everything.
  void set_all(std::uint32_t modules, bool reduces) {
    unreduced.clear();
    for (std::uint32_t m = 0; !reduces && m < modules; ++m) unreduced.insert(m);
    within_shards = unreduced;
  }
};

class Walk final : public UseWalk {
 public:
  Walk(const Scenario& scenario, const Timeline& timeline, const Fsdp2Config& config)
      : UseWalk(timeline, rules, scenario.world_size),
        scenario_(scenario),
        config_(config),
        ranks_(scenario.world_size),
        modules_(static_cast<std::uint32_t>(modules_of(scenario, config, 0).parameters.size())) {}

 private:
  std::uint64_t state() const override {
    TraceHash hash;
    for (const RankUse& u : ranks_) {
      for (const bool part :
           {u.contributed, u.last_synchronised, u.applied, u.raised, u.last_backward, u.reshards, u.kept, u.by_hand, u.unfinished, u.reduced_unfinished, u.pending})
        hash.add(part);
      hash.add(u.open.size());
      for (const std::set<std::uint32_t>& off : {u.unreduced, u.within_shards}) {
        hash.add(off.size());
        for (const std::uint32_t module : off) hash.add(module);
      }
    }
    return hash.value();
  }

  void broken(Use use) { UseWalk::broken(static_cast<std::size_t>(use)); }

  // A switch and no block: its end sets every module, whatever was set before it and in it.
  void leave_no_sync(std::uint32_t rank) override { ranks_[rank].set_all(modules_, true); }

  void on_event(const Event& e) override {
    if (e.is<events::Restore>()) return restored(e);
    if (timeline_.two_layers) own_contract(e);
    const bool reduces_unused = config_.reduce_scatter_unused_params && config_.calls_unused_units;
    if (e.is<events::Backward>() && !reduces_unused && !parameters_alike(scenario_, e)) broken(Use::unused_parameters);
    if ((e.is<events::Step>() || e.is<events::ClipGradients>()) && left_out(e.is<events::ClipGradients>())) broken(Use::plan);
  }

  // Where the loop states what it means: whether the wrapper can know of it.
  void own_contract(const Event& e) {
    if (e.touches_gradients()) broken(Use::own_gradients);
    if (e.updates() && weighs_otherwise(e)) broken(Use::weights);
  }

  // Whether the plan leaves out what the call needs in it.
  bool left_out(bool clips) const {
    const auto plain = [&](const Parameter& p) { return std::find(config_.plain.begin(), config_.plain.end(), p.name) != config_.plain.end(); };
    const auto& all = scenario_.parameters;
    if (clips) return std::any_of(all.begin(), all.end(), plain) && !std::all_of(all.begin(), all.end(), plain);
    return std::any_of(all.begin(), all.end(), [&](const Parameter& p) { return plain(p) && !p.summed_over.empty(); });
  }

  // What new processes have of the old ones is the checkpoint alone.
  void restored(const Event& e) {
    if (lost_at(e)) broken(Use::checkpoint);
    ranks_.assign(ranks_.size(), {});
  }

  void on_rank(const Event& e, std::uint32_t rank) override {
    RankUse& u = ranks_[rank];
    using namespace events;
    std::visit(overloaded{[&](const EnterNoSync&) { u.set_all(modules_, false); },
                          [&](const Forward&) {
                            forward(u);
                            u.open.insert(u.forwards++);
                          },
                          [&](const events::Backward& body) { backward(body, u); }, [&](const Step&) { step(u); },
                          [&](const one_of<EngineZeroGrad, OptimizerZeroGrad> auto&) {
                            if (u.contributed) broken(Use::zero_grad_behind_step);
                            if (u.unfinished || u.pending) broken(Use::finalized);
                            u.applied = false;
                          },
                          [&](const OfFramework& body) { call(body.arguments.as<Call>(), u); },
                          [](const one_of<SetBoundary, ExitNoSync, Raise, EnterCoalesce, ExitCoalesce, SetGradient, ScaleGradients, ClipGradients, AllReduce, Finalize, Save,
                                          Restore, Unscale> auto&) {}},
               e.body);
  }

  void call(const Call& call, RankUse& u) {
    if (call.method == Method::set_requires_gradient_sync || call.method == Method::set_requires_all_reduce) defer(call, u);
    if (call.method == Method::set_is_last_backward) u.last_backward = call.flag();
    if (call.method == Method::set_reshard_after_backward) u.reshards = call.flag();
    if (call.method == Method::reshard) u.kept = false;
    if (call.method == Method::set_manual_backward_finalization) {
      if (call.unit || (call.flag() != u.by_hand && (u.unfinished || u.pending))) broken(Use::finalized);
      u.by_hand = call.flag();
    }
    if (call.method == Method::finalize_backward) finalize(call, u);
    if (call.method == Method::wait_for_gradient_reduction) u.pending = false;
    if (call.method != Method::reset_iter_state) return;
    u.raised = u.contributed = u.unfinished = u.reduced_unfinished = u.pending = false;  // the window begins anew
    u.open.clear();
  }

  // Of one module, or of all.
  void defer(const Call& call, RankUse& u) {
    const std::uint32_t first = call.unit ? *call.unit + 1 : 0, behind = of_a_part(call) ? first + 1 : modules_;
    for (std::uint32_t module = first; module < behind; ++module)
      for (std::set<std::uint32_t>* off : {&u.unreduced, &u.within_shards}) {
        if (off == &u.unreduced && call.method == Method::set_requires_all_reduce) continue;
        if (call.flag()) off->erase(module);
        else off->insert(module);
      }
  }

  void finalize(const Call& call, RankUse& u) {
    if (u.raised) broken(Use::reset_behind_exception);
    if (!u.unreduced.empty() || !u.within_shards.empty() || !u.open.empty() || !u.by_hand || call.unit) broken(Use::finalized);
    u.unfinished = u.reduced_unfinished = false;
    u.pending = call.flag();
  }

  void forward(RankUse& u) {
    if (u.pending) broken(Use::finalized);
    if (u.raised) broken(Use::reset_behind_exception);
    if (u.kept && u.applied) broken(Use::reshard_behind_step);
  }

  void step(RankUse& u) {
    if (!u.contributed) broken(Use::backward_before_step);
    if (u.contributed && !u.last_synchronised) broken(Use::last_is_synchronised);
    if (u.contributed && !u.last_backward && !u.by_hand) broken(Use::last_backward);
    if (u.unfinished || u.pending) broken(Use::finalized);
    u.applied = u.applied || u.contributed;
    u.contributed = false;
    u.last_synchronised = true;
    u.forwards = 0;
    u.open.clear();
  }

  void backward(const events::Backward& e, RankUse& u) {
    if (!timeline_.two_layers && timeline_.contract.divisor != Rational(1)) broken(Use::loss_division);
    if (!timeline_.two_layers && scenario_.contract.average_over != "world") broken(Use::average);
    if (u.applied) broken(Use::zero_grad_before_backward);
    if (e.own_forward) forward(u);
    else if (u.open.erase(e.of) == 0) broken(Use::one_backward_a_forward);
    if (e.raises_after) u.raised = true;
    u.kept = !u.reshards;
    u.contributed = true;
    const bool reduces = u.unreduced.size() < modules_;
    u.last_synchronised = u.by_hand || (u.unreduced.empty() && u.within_shards.empty());
    if (!u.by_hand) return;
    if (u.reduced_unfinished || (u.unfinished && reduces)) broken(Use::held_until_finalized);
    u.unfinished = true;
    u.reduced_unfinished = reduces;
  }

  const Scenario& scenario_;
  const Fsdp2Config& config_;
  std::vector<RankUse> ranks_;
  const std::uint32_t modules_;
};

}  // namespace

std::span<const UseRule> fsdp2_use_rules() { return rules; }

UseReport fsdp2_use_of(const Scenario& scenario, const Timeline& timeline, const Fsdp2Config& config) { return Walk(scenario, timeline, config).run(); }

}  // namespace gradledger::torch::fully_shard
