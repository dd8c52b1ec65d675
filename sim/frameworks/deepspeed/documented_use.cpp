#include "sim/frameworks/deepspeed/documented_use.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <utility>

#include "sim/base/hash.h"
#include "sim/base/overloaded.h"
#include "sim/frameworks/deepspeed/behaviour.h"
#include "sim/frameworks/deepspeed/engines.h"
#include "sim/frameworks/deepspeed/legality.h"
#include "sim/frameworks/deepspeed/settings.h"

namespace gradledger::deepspeed {
namespace {

constexpr std::array<UseRule, 16> rules{{
    {"one-backward-a-step", "Where the counter of step() calls decides, one step() follows each backward."},
    {"step-behind-backward", "A step() that updates follows a backward of its window."},
    {"single-boundary", "The backward at a gradient accumulation boundary is the last one before step(), and the only one at the boundary."},
    {"boundary-before-step", "The last backward before a step() that updates runs at the boundary, and outside no_sync."},
    {"same-script", "Every rank makes the same calls in the same order."},
    {"zero-grad-behind-step", "step() zeroes the gradients itself; zero_grad() is not called between a backward and the step() that applies it."},
    {"set-gradient-behind-boundary", "A gradient is set behind the backward at the boundary and before step()."},
    {"direct-backward", "loss.backward() is for releases from DeepSpeed#7665 on, and for configurations that take it; the others want engine.backward(loss)."},
    {"refused-call", "A call that this configuration refuses is not made."},
    {"coalesced-backwards", "coalesce_grad_reduction() stands around backwards, and around no call that moves the boundary."},
    {"divisor", "The engine divides every loss by gradient_accumulation_steps, or by nothing with scale_wrt_gas=False."},
    {"average", "Gradients are averaged over ranks, or summed with gradient_allreduce_op \"sum\"."},
    {"window", "A step() updates at a gradient accumulation boundary, and nowhere else."},
    {"weights", "What the loop multiplies a loss by, divided as the engine divides, is what the contribution is due to weigh.", true},
    {"own-gradients", "Gradients are changed through the framework's API and reduced by the engine; what a loop does to param.grad, or reduces beside that, is its own.", true},
    {"checkpoint", "A checkpoint is saved behind a step() that updates: the gradients of an open window are not in it.", true},
}};

// Where a rank stands in its window.
struct RankUse {
  DocumentedBoundary boundary;
  bool overridden = false;        // a call on the engine decides
  std::uint32_t backwards = 0;    // since the last step()
  bool contributed = false;       // a backward since the last update
  bool boundary_seen = false;     // one of them at the boundary
  bool last_at_boundary = false;  // and the latest
  bool in_block = false, coalesces = false;
  std::uint32_t coalesced = 0;  // backwards of the block
};

class Walk {
 public:
  Walk(const Scenario& scenario, const Timeline& timeline)
      : scenario_(scenario),
        timeline_(timeline),
        behaviour_(resolve_behaviour(scenario.engine.as_of)),
        ranks_(scenario.world_size, RankUse{DocumentedBoundary(timeline.contract.boundary)}) {
    const auto wrapper = select_wrapper(scenario);
    protocol_ = {&scenario_, &*behaviour_, false, wrapper.ok() && *wrapper != Wrapper::bf16 && deepspeed_config(scenario).zero.stage > 0};
  }

  UseReport run() {
    for (event_ = 0; event_ < timeline_.events.size(); ++event_) visit(timeline_.events[event_]);
    TraceHash hash;
    for (const RankUse& u : ranks_) {
      hash.add(std::min(u.backwards, 2u));
      hash.add(std::min(u.coalesced, 1u));
      for (const bool part : {u.contributed, u.boundary_seen, u.last_at_boundary}) hash.add(part);
    }
    out_.state = hash.value();
    return std::move(out_);
  }

 private:
  const BoundaryRule& rule() const { return timeline_.contract.boundary; }
  bool by_counter(const RankUse& u) const { return rule().counted && !rule().of_backwards && !u.overridden; }

  void broken(Use use) {
    const std::uint32_t step = timeline_.events[event_].step;
    if (said_.insert({use, step}).second) out_.misuses.push_back({&rules[static_cast<std::size_t>(use)], event_, step});
  }

  void visit(const Event& e) {
    if (e.is<events::ExitNoSync>() || e.is<events::ExitCoalesce>()) return leave_block();
    if (e.nobody) return;
    if (!e.ranks.empty() && e.ranks.size() < ranks_.size()) broken(Use::same_script);
    if (timeline_.two_layers) own_contract(e);
    for (std::uint32_t r = 0; r < ranks_.size(); ++r)
      if (e.runs_on(r)) on_rank(e, ranks_[r]);
  }

  // Where the loop states what it means: whether the framework can know of it.
  void own_contract(const Event& e) {
    if (e.is<events::Restore>()) return restored(e);
    if (e.touches_gradients()) broken(Use::own_gradients);
    if (!e.is<events::Step>()) return;
    if (e.updates() != e.closes()) broken(Use::window);
    if (!e.updates()) return;
    for (const std::uint32_t b : timeline_.backwards_of(e.step, Layer::meant))
      for (std::uint32_t r = 0; r < ranks_.size(); ++r)
        if (timeline_.backwards[b].micro_batch[r] != no_contribution && !weighs_what_is_due(b, r)) return broken(Use::weights);
  }

  // What the new processes count is theirs alone.
  void restored(const Event& e) {
    for (const std::uint32_t b : timeline_.backwards_of(e.step, Layer::meant))
      for (std::uint32_t r = 0; timeline_.backwards[b].event < event_ && r < ranks_.size(); ++r)
        if (timeline_.backwards[b].micro_batch[r] != no_contribution && timeline_.dropped_at[b][r] > event_) broken(Use::checkpoint);
    ranks_.assign(ranks_.size(), RankUse{DocumentedBoundary(rule())});
  }

  bool weighs_what_is_due(std::uint32_t backward, std::uint32_t rank) const {
    for (std::uint32_t on = 0; on < ranks_.size(); ++on)
      if (timeline_.averaged_weight(backward, rank, on, Layer::documented) != timeline_.averaged_weight(backward, rank, on, Layer::meant)) return false;
    return true;
  }

  // An exception may have left the block before.
  void leave_block() {
    for (RankUse& u : ranks_) {
      if (u.coalesces && u.in_block && u.coalesced == 0) broken(Use::coalesced_backwards);
      u.in_block = u.coalesces = false;
      if (timeline_.is_boundary(event_)) u.boundary_seen = u.last_at_boundary = true;
    }
  }

  void on_rank(const Event& e, RankUse& u) {
    protocol_.in_block = u.in_block;
    if (refusal_of(protocol_, e.kind(), e.direct())) broken(e.is<events::Backward>() ? Use::direct_backward : Use::refused_call);
    using namespace events;
    std::visit(
        overloaded{[&](const SetBoundary& body) {
                     if (!rule().counted) broken(Use::refused_call);  // unmanaged, every step() is a boundary
                     if (u.coalesces) broken(Use::coalesced_backwards);
                     u.overridden = true;
                     u.boundary.set(body.boundary);
                   },
                   [&](const EnterCoalesce&) {
                     u.coalesces = true;
                     enter_block(u);
                   },
                   [&](const EnterNoSync&) { enter_block(u); }, [&](const events::Backward& body) { backward(body, u); }, [&](const Step& body) { step(body, u); },
                   [&](const one_of<EngineZeroGrad, OptimizerZeroGrad> auto&) {
                     if (u.contributed) broken(Use::zero_grad_behind_step);
                   },
                   [&](const SetGradient&) {
                     if (behaviour_->set_gradient_api == SetGradientApi::absent) broken(Use::refused_call);
                     if (rule().counted && !u.last_at_boundary) broken(Use::set_gradient_behind_boundary);
                   },
                   [](const one_of<Forward, ExitNoSync, ExitCoalesce, Raise, ScaleGradients, ClipGradients, AllReduce, Finalize, Save, Restore, Unscale, OfFramework> auto&) {}},
        e.body);
  }

  // A coalesced block stands for one backward.
  void enter_block(RankUse& u) const {
    u.in_block = true;
    u.backwards += u.coalesces;
    u.coalesced = 0;
  }

  void backward(const events::Backward& e, RankUse& u) {
    if (e.direct && behaviour_->scale_site == ScaleSite::loss) broken(Use::direct_backward);
    if (!timeline_.two_layers && Rational(documented_divisor(e)) != timeline_.contract.divisor) broken(Use::divisor);
    if (!timeline_.two_layers && (scenario_.contract.average_over == "world") == (deepspeed_config(scenario_).gradient_allreduce_op == AllreduceOp::sum)) broken(Use::average);
    u.backwards += !u.coalesces;
    if (by_counter(u) && !u.coalesces && u.backwards > 1) broken(Use::one_backward_a_step);
    else if (rule().counted && u.boundary_seen) broken(Use::single_boundary);
    u.coalesced += u.coalesces;
    u.contributed = true;
    u.last_at_boundary = !u.in_block && u.boundary.now();
    u.boundary_seen |= u.last_at_boundary;
    u.boundary.backward();
  }

  std::int64_t documented_divisor(const events::Backward& e) const { return e.scale_wrt_gas ? deepspeed_config(scenario_).gradient_accumulation_steps : 1; }

  void step(const events::Step& e, RankUse& u) {
    if (u.backwards == 0 && by_counter(u)) broken(Use::one_backward_a_step);
    else if (!u.contributed && e.closes) broken(Use::step_behind_backward);
    if (rule().counted && u.contributed && e.at_boundary && !u.last_at_boundary) broken(Use::boundary_before_step);
    if (!timeline_.two_layers && e.updates && !e.at_boundary) broken(Use::window);
    u.boundary.step();
    u.backwards = 0;
    if (e.closes) u.contributed = u.boundary_seen = u.last_at_boundary = false;
  }

  const Scenario& scenario_;
  const Timeline& timeline_;
  const Result<Behaviour> behaviour_;
  Protocol protocol_;
  std::vector<RankUse> ranks_;
  std::uint32_t event_ = 0;
  std::set<std::pair<Use, std::uint32_t>> said_;
  UseReport out_;
};

}  // namespace

std::span<const UseRule> use_rules() { return rules; }

UseReport use_of(const Scenario& scenario, const Timeline& timeline) { return Walk(scenario, timeline).run(); }

}  // namespace gradledger::deepspeed
