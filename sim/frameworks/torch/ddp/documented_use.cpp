#include "sim/frameworks/torch/ddp/documented_use.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "sim/base/hash.h"
#include "sim/base/overloaded.h"
#include "sim/frameworks/torch/ddp/calls.h"
#include "sim/frameworks/use_walk.h"

namespace gradledger::torch {
namespace {

enum class Use : std::uint8_t {
  same_script,
  forward_in_the_block,
  last_is_synchronised,
  finalized_once,
  one_backward_a_forward,
  unused_parameters,
  static_graph,
  no_exception,
  no_reduction,
  loss_division,
  average,
  zero_grad_behind_step,
  zero_grad_before_backward,
  backward_before_step,
  scaler_of_fp32,
  weights,
  own_gradients,
  checkpoint,
  parts_of_gradients,
  loss_from_outputs,
};

// By the numbers of Use.
constexpr std::array<UseRule, 20> rules{{
    {"same-calls", "Every rank makes the same calls in the same order."},
    {"forward-in-no-sync", "A forward and its backward stand in no_sync together, or outside of it together: what decides is the forward."},
    {"last-backward-synchronised", "The last forward and backward before step() run outside of no_sync."},
    {"finalized-once-a-backward",
     "With require_manual_backward_finalization every synchronised backward is followed by finalize_backward(), once, before step(), zero_grad() and the next forward; it is set "
     "between that and a forward."},
    {"one-backward-a-forward", "Each forward is followed by its own backward, once, before the next forward."},
    {"unused-parameters", "Where a backward leaves parameters out, find_unused_parameters or static_graph says so."},
    {"static-graph", "With static_graph every backward uses the parameters that the first one did, and the first one is synchronised."},
    {"no-exception", "A DistributedDataParallel whose backward raised is not trained on with."},
    {"reducing-hook", "The communication hook averages what it is given, which nobody has divided; noop_hook is for measurements."},
    {"loss-division", "DistributedDataParallel divides by the ranks alone: what else a loss is to be divided by, the loop divides it by."},
    {"mean-over-ranks", "Gradients are averaged over all ranks."},
    {"zero-grad-between-windows", "zero_grad() is not called between a backward and the step() that applies it."},
    {"zero-grad-before-backward", "Gradients last over step(): a loop calls zero_grad() between it and the next backward."},
    {"backward-before-step", "A step() follows a backward of its window."},
    {"scaler-of-fp32", "GradScaler unscales gradients in fp32: the parameters are kept in fp32, and autocast casts."},
    {"weights-of-the-loop", "What the loop multiplies a loss by, averaged over the ranks, is what the contribution is due to weigh.", true},
    {"reduced-gradients-kept", "What the loop does to param.grad, or reduces beside the wrapper, is its own.", true},
    {"checkpoint-behind-step", "A checkpoint is saved behind a step() that updates: the gradients of an open window are not in it."},
    {"parts-of-gradients", "A parameter of which tensor-parallel ranks have parts of a gradient is a DTensor, which DistributedDataParallel is told with device_mesh."},
    {"loss-from-outputs",
     "With find_unused_parameters every term of the loss is made of what the forward returns, and with static_graph at least one: that is where the wrapper looks for parameters, "
     "and begins."},
}};

// Where a rank stands.
struct RankUse {
  bool in_no_sync = false, contributed = false, last_synchronised = true, applied = false;
  bool by_hand = false, unfinished = false;  // the loop ends backwards; one is not ended
  std::uint32_t forwards = 0;                // explicit ones, in the open window
  std::map<std::uint32_t, bool> open;        // explicit forwards that had no backward yet, and whether each ran in no_sync
  std::set<std::uint32_t> run;               // graphs that had theirs
  std::optional<std::vector<bool>> first_graph;
};

class Walk final : public UseWalk {
 public:
  Walk(const Scenario& scenario, const Timeline& timeline, const DdpConfig& config)
      : UseWalk(timeline, rules, scenario.world_size), scenario_(scenario), config_(config), ranks_(scenario.world_size) {}

 private:
  std::uint64_t state() const override {
    TraceHash hash;
    for (const RankUse& u : ranks_) {
      for (const bool part : {u.in_no_sync, u.contributed, u.last_synchronised, u.applied, u.by_hand, u.unfinished}) hash.add(part);
      hash.add(u.open.size());
    }
    return hash.value();
  }

  void broken(Use use) { UseWalk::broken(static_cast<std::size_t>(use)); }

  void leave_no_sync(std::uint32_t rank) override { ranks_[rank].in_no_sync = false; }

  void on_event(const Event& e) override {
    if (e.is<events::Restore>()) return restored(e);
    if (timeline_.two_layers) own_contract(e);
    const auto cut = [&](const Parameter& p) { return !p.summed_over.empty() && config_.is_plain(p.name); };
    if (e.is<events::Step>() && std::any_of(scenario_.parameters.begin(), scenario_.parameters.end(), cut)) broken(Use::parts_of_gradients);
  }

  // Where the loop states what it means: whether the wrapper can know of it.
  void own_contract(const Event& e) {
    if (e.touches_gradients()) broken(Use::own_gradients);
    if (e.updates() && weighs_otherwise(e)) broken(Use::weights);
  }

  // What new processes have of the old ones is the checkpoint alone.
  void restored(const Event& e) {
    if (lost_at(e)) broken(Use::checkpoint);
    ranks_.assign(ranks_.size(), {});
  }

  void on_rank(const Event& e, std::uint32_t rank) override {
    RankUse& u = ranks_[rank];
    using namespace events;
    std::visit(
        overloaded{
            [&](const EnterNoSync&) { u.in_no_sync = true; },
            [&](const Forward&) {
              if (!u.open.empty()) broken(Use::one_backward_a_forward);
              if (u.unfinished) broken(Use::finalized_once);
              u.open[u.forwards++] = u.in_no_sync;
            },
            [&](const events::Backward& body) { backward(body, rank, u); }, [&](const Step&) { step(u); },
            [&](const one_of<EngineZeroGrad, OptimizerZeroGrad> auto&) {
              if (u.contributed) broken(Use::zero_grad_behind_step);
              if (u.unfinished) broken(Use::finalized_once);
              u.applied = false;
            },
            [&](const Raise&) { broken(Use::no_exception); }, [&](const OfFramework& body) { call(body.arguments.as<data_parallel::Call>(), u); },
            [](const one_of<SetBoundary, ExitNoSync, EnterCoalesce, ExitCoalesce, SetGradient, ScaleGradients, ClipGradients, AllReduce, Finalize, Save, Restore, Unscale> auto&) {
            }},
        e.body);
  }

  void call(const data_parallel::Call& call, RankUse& u) {
    if (call.method == data_parallel::Method::require_manual_backward_finalization) {
      if (call.value != u.by_hand && (u.unfinished || !u.open.empty())) broken(Use::finalized_once);
      u.by_hand = call.value;
      return;
    }
    if (!u.by_hand || !u.unfinished) broken(Use::finalized_once);
    u.unfinished = false;
  }

  void step(RankUse& u) {
    if (u.unfinished) broken(Use::finalized_once);
    if (!u.contributed) broken(Use::backward_before_step);
    if (u.contributed && !u.last_synchronised) broken(Use::last_is_synchronised);
    u.applied = u.applied || u.contributed;
    u.contributed = false;
    u.last_synchronised = true;
    u.forwards = 0;
    u.open.clear();
    u.run.clear();
  }

  void backward(const events::Backward& e, std::uint32_t rank, RankUse& u) {
    const bool sum_is_meant = scenario_.contract.average_over == "none";
    if (config_.comm_hook == CommHook::noop || (config_.comm_hook == CommHook::sum && !sum_is_meant)) broken(Use::no_reduction);
    if (!timeline_.two_layers && timeline_.contract.divisor != Rational(1)) broken(Use::loss_division);
    if (!timeline_.two_layers && scenario_.contract.average_over != "world" && !(sum_is_meant && config_.comm_hook == CommHook::sum)) broken(Use::average);
    if (e.raises_after) broken(Use::no_exception);
    if (config_.grad_scaler && scenario_.model_dtype == Dtype::float16) broken(Use::scaler_of_fp32);
    if (u.applied && !config_.steps_inside_backwards()) broken(Use::zero_grad_before_backward);
    const bool deferred = forward_in_no_sync(e, u);
    if (deferred != u.in_no_sync) broken(Use::forward_in_the_block);
    graph(e, rank, u, deferred);
    if (u.unfinished) broken(Use::finalized_once);
    u.unfinished = u.by_hand && !deferred;
    u.contributed = true;
    u.last_synchronised = !deferred;
  }

  // Whether its forward ran in no_sync. A graph whose backward ran before has used up its reduction.
  bool forward_in_no_sync(const events::Backward& e, RankUse& u) {
    if (e.own_forward) {
      if (!u.open.empty()) broken(Use::one_backward_a_forward);
      return u.in_no_sync;
    }
    const auto open = u.open.find(e.of);
    if (!u.run.insert(e.of).second || open == u.open.end()) {
      broken(Use::one_backward_a_forward);
      return u.in_no_sync;
    }
    const bool in_no_sync = open->second;
    u.open.erase(open);
    return in_no_sync;
  }

  // Of the parameters that a backward uses: some where the wrapper looks for unused ones, and all where static_graph begins at the outputs.
  bool goes_around_outputs(const std::vector<bool>& uses, bool deferred) const {
    std::size_t around = 0, through = 0;
    for (std::uint32_t p = 0; p < uses.size(); ++p)
      if (uses[p]) ++(scenario_.parameters[p].hooked_outputs == 0 ? around : through);
    return around > 0 && !config_.backward_in_forward && (config_.static_graph ? through == 0 : config_.find_unused_parameters && !deferred);
  }

  void graph(const events::Backward& e, std::uint32_t rank, RankUse& u, bool deferred) {
    std::vector<bool> uses;
    bool all = true;
    for (std::uint32_t p = 0; p < scenario_.parameters.size(); ++p) {
      uses.push_back(timeline_.in_graph(scenario_, e.ordinal, rank, p));
      all &= uses.back() || !scenario_.parameters[p].has_gradient() || !timeline_.contract.holds(rank, p);
    }
    if (!all && !deferred && !config_.find_unused_parameters && !config_.static_graph) broken(Use::unused_parameters);
    if (goes_around_outputs(uses, deferred)) broken(Use::loss_from_outputs);
    if (!config_.static_graph) return;
    if (!u.first_graph && deferred) broken(Use::static_graph);
    if (u.first_graph && *u.first_graph != uses) broken(Use::static_graph);
    u.first_graph = uses;
  }

  const Scenario& scenario_;
  const DdpConfig& config_;
  std::vector<RankUse> ranks_;
};

}  // namespace

std::span<const UseRule> ddp_use_rules() { return rules; }

UseReport ddp_use_of(const Scenario& scenario, const Timeline& timeline, const DdpConfig& config) { return Walk(scenario, timeline, config).run(); }

}  // namespace gradledger::torch
