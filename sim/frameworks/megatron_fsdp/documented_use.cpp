#include "sim/frameworks/megatron_fsdp/documented_use.h"

#include <array>
#include <vector>

#include "sim/base/hash.h"
#include "sim/base/overloaded.h"
#include "sim/frameworks/megatron_fsdp/methods.h"
#include "sim/frameworks/use_walk.h"

namespace gradledger::megatron_fsdp {
namespace {

enum class Use : std::uint8_t {
  same_calls,
  one_reduction_of_whole_gradients,
  last_is_synchronised,
  flag_of_no_sync,
  zero_grad_behind_step,
  zero_grad_before_backward,
  backward_before_step,
  parameters_alike,
  loss_division,
  average,
  no_exception,
  weights,
  own_gradients,
  checkpoint,
};

// By the numbers of Use.
constexpr std::array<UseRule, 14> rules{{
    {"same-fsdp-calls", "Every rank makes the same calls in the same order."},
    {"whole-gradients-reduced-once", "With no_shard, optim or a mesh a window reduces its gradients once: a buffer must not be reduced again before zero_grad()."},
    {"last-fsdp-backward-reduced", "The last backward before step() is reduced: it runs outside of no_sync(), or behind set_model_auto_sync(True)."},
    {"auto-sync-or-no-sync", "no_sync() holds where sync_model_each_microbatch is off, and the flag that it leaves is set by a first no_sync()."},
    {"zero-grad-in-fsdp-window", "zero_grad() is not called between a backward and the step() that applies it."},
    {"zero-grad-of-buffers", "Gradients last over step(): a loop calls zero_grad() between it and the next backward."},
    {"step-of-an-fsdp-window", "A step() follows a backward of its window."},
    {"fsdp-parameters-alike", "Every rank uses the same parameters in a backward: what ranks use decides the order of their reductions."},
    {"loss-division-beside-fsdp", "Megatron-FSDP divides by the ranks alone: what else a loss is to be divided by, the loop divides it by."},
    {"mean-of-fsdp-ranks", "Gradients are averaged over all ranks."},
    {"no-fsdp-exception", "A model whose backward raised is not trained on with."},
    {"weights-of-the-fsdp-loop", "What the loop multiplies a loss by, averaged over the ranks, is what the contribution is due to weigh.", true},
    {"scaled-by-tokens-alone", "What scale_gradients() multiplies by is what calculate_per_token_loss leaves to the loop.", true},
    {"megatron-fsdp-checkpoint", "A checkpoint is saved behind a step() that updates: the gradients of an open window are not in it."},
}};

// Where a rank stands.
struct RankUse {
  bool in_no_sync = false, auto_sync = true, flag_was_set = false, contributed = false, applied = false, last_synchronised = true;
  std::uint32_t reduced = 0;  // backwards of the window
};

class Walk final : public UseWalk {
 public:
  Walk(const Scenario& scenario, const Timeline& timeline, const MegatronFsdpConfig& config)
      : UseWalk(timeline, rules, scenario.world_size), scenario_(scenario), config_(config), ranks_(scenario.world_size) {
    for (RankUse& u : ranks_) u.auto_sync = config.sync_model_each_microbatch;
  }

 private:
  std::uint64_t state() const override {
    TraceHash hash;
    for (const RankUse& u : ranks_) {
      for (const bool part : {u.in_no_sync, u.auto_sync, u.flag_was_set, u.contributed, u.applied, u.last_synchronised}) hash.add(part);
      hash.add(u.reduced);
    }
    return hash.value();
  }

  void broken(Use use) { UseWalk::broken(static_cast<std::size_t>(use)); }

  void leave_no_sync(std::uint32_t rank) override { ranks_[rank].in_no_sync = false; }

  void on_event(const Event& e) override {
    if (e.is<events::Restore>()) return restored(e);
    if (timeline_.two_layers && e.touches_gradients() && !config_.calculate_per_token_loss) broken(Use::own_gradients);
    if (timeline_.two_layers && e.updates() && !config_.calculate_per_token_loss && weighs_otherwise(e)) broken(Use::weights);
    if (e.is<events::Backward>() && !parameters_alike(scenario_, e)) broken(Use::parameters_alike);
  }

  // What new processes have of the old ones is the checkpoint alone, and no no_sync() has set their flag.
  void restored(const Event& e) {
    if (lost_at(e)) broken(Use::checkpoint);
    ranks_.assign(ranks_.size(), {});
    for (RankUse& u : ranks_) u.auto_sync = config_.sync_model_each_microbatch;
  }

  void on_rank(const Event& e, std::uint32_t rank) override {
    RankUse& u = ranks_[rank];
    using namespace events;
    std::visit(
        overloaded{
            [&](const EnterNoSync&) { enter_no_sync(u); }, [&](const ExitNoSync&) { u.in_no_sync = false; }, [&](const events::Backward&) { backward(u); },
            [&](const Step&) { step(u); }, [&](const one_of<EngineZeroGrad, OptimizerZeroGrad> auto&) { zero_grad(u); },
            [&](const OfFramework& body) {
              if (body.name == auto_sync_event) u.auto_sync = body.arguments.as<Call>().sync;
            },
            [&](const Raise&) { broken(Use::no_exception); },
            [](const one_of<Forward, SetBoundary, EnterCoalesce, ExitCoalesce, SetGradient, ScaleGradients, ClipGradients, AllReduce, Finalize, Save, Restore, Unscale> auto&) {}},
        e.body);
  }

  void enter_no_sync(RankUse& u) {
    if (u.auto_sync && (!config_.shards_gradients() || config_.mesh)) broken(Use::flag_of_no_sync);
    u.in_no_sync = u.flag_was_set = true;
  }

  void zero_grad(RankUse& u) {
    if (u.contributed) broken(Use::zero_grad_behind_step);
    u.applied = false;
    u.reduced = 0;
  }

  void step(RankUse& u) {
    if (!u.contributed) broken(Use::backward_before_step);
    if (u.contributed && !u.last_synchronised) broken(u.in_no_sync || u.flag_was_set ? Use::last_is_synchronised : Use::flag_of_no_sync);
    u.applied = u.applied || u.contributed;
    u.contributed = false;
    u.last_synchronised = true;
  }

  void backward(RankUse& u) {
    if (!timeline_.two_layers && timeline_.contract.divisor != Rational(1)) broken(Use::loss_division);
    if (!timeline_.two_layers && scenario_.contract.average_over != "world" && !config_.calculate_per_token_loss) broken(Use::average);
    if (u.applied) broken(Use::zero_grad_before_backward);
    u.contributed = true;
    if (config_.shards_gradients() && !config_.mesh) return;  // each backward is reduced, whatever the switches say
    u.last_synchronised = u.auto_sync || (!u.in_no_sync && u.flag_was_set);
    u.reduced += u.last_synchronised;
    if (u.reduced > 1) broken(Use::one_reduction_of_whole_gradients);
  }

  const Scenario& scenario_;
  const MegatronFsdpConfig& config_;
  std::vector<RankUse> ranks_;
};

}  // namespace

std::span<const UseRule> megatron_fsdp_use_rules() { return rules; }

UseReport megatron_fsdp_use_of(const Scenario& scenario, const Timeline& timeline, const MegatronFsdpConfig& config) { return Walk(scenario, timeline, config).run(); }

}  // namespace gradledger::megatron_fsdp
