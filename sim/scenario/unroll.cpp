// A script to a timeline: events in order, windows, contributions, reductions and updates as the contract has them.
#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "sim/base/limits.h"
#include "sim/scenario/factor.h"
#include "sim/scenario/open_forwards.h"
#include "sim/scenario/overflows.h"
#include "sim/scenario/script.h"
#include "sim/scenario/script_pointer.h"
#include "sim/scenario/timeline.h"
#include "sim/scenario/weights.h"

namespace gradledger {
namespace {

// Walks the script once, in order, as every rank will.
class Unroller {
 public:
  Unroller(const Workload& workload, Contract contract) : workload_(workload), forwards_(workload.world_size) {
    out_.contract = std::move(contract);
    out_.world_size = workload.world_size;
    ranks_.resize(workload.world_size, DocumentedBoundary(out_.contract.boundary));
    left_.resize(workload.world_size, false);
    inside_.resize(workload.world_size, 0);
    switched_.resize(workload.world_size, 0);
    kept_from_.resize(workload.world_size, 0);
    kept_documented_.resize(workload.world_size, 0);
    updates_marked_ = out_.contract.stated.window == Window::marked;
    marked_ = updates_marked_ && out_.contract.boundary.calls > 0;
    for (std::uint32_t p = 0; p < workload.parameters.size(); ++p) parameter_named_.emplace(workload.parameters[p].name, p);
    open_window();
  }

  std::optional<InputError> run(const std::vector<ScriptItem>& script) {
    if (auto error = walk(script, "/script")) return error;
    finish();
    if (auto error = plant_overflows(workload_, overflows_, out_)) return error;
    return weigh(workload_, items_, scales_, out_);
  }

  Timeline take() { return std::move(out_); }

 private:
  std::optional<InputError> walk(const std::vector<ScriptItem>& items, const std::string& where) {
    for (std::size_t i = 0; i < items.size(); ++i)
      if (auto error = visit(items[i], where + "/" + std::to_string(i))) return error;
    return std::nullopt;
  }

  std::optional<InputError> visit(const ScriptItem& item, const std::string& where) {
    switch (item.kind) {
      case ScriptKind::repeat:
        for (std::uint32_t i = 0; i < item.times; ++i)
          if (auto error = walk(item.items, where + "/repeat/of")) return error;
        return std::nullopt;
      case ScriptKind::no_sync: return block(item, events::EnterNoSync{}, events::ExitNoSync{}, where);
      case ScriptKind::coalesce: return coalesced(item, where);
      case ScriptKind::raise: return raise(item, where);
      case ScriptKind::backward:
        for (std::uint32_t i = 0; i < item.micro_batches; ++i)
          if (auto error = backward(item, where)) return error;
        return std::nullopt;
      case ScriptKind::forward:
        for (std::uint32_t r = 0; r < ranks_.size(); ++r)
          if (runs(item, r)) forwards_.add(r);
        return emit(item, events::Forward{}, where);
      case ScriptKind::set_boundary:
        for (std::uint32_t r = 0; r < ranks_.size(); ++r)
          if (runs(item, r)) ranks_[r].set(item.boundary);
        return emit(item, events::SetBoundary{item.boundary}, where);
      case ScriptKind::step: return step(item, where);
      case ScriptKind::engine_zero_grad: return zero_grad(item, events::EngineZeroGrad{item.set_to_none}, where);
      case ScriptKind::optimizer_zero_grad: return zero_grad(item, events::OptimizerZeroGrad{item.set_to_none}, where);
      case ScriptKind::overflow: return overflow(item, where);
      case ScriptKind::set_gradient: return set_gradient(item, where);
      case ScriptKind::scale_gradients: return touch(item, events::ScaleGradients{}, where);
      case ScriptKind::clip: return touch(item, events::ClipGradients{item.max_norm, group(item.over)}, where);
      case ScriptKind::all_reduce: return touch(item, events::AllReduce{group(item.over), item.reduced == Reduced::gradients, item.mean}, where);
      case ScriptKind::finalize: return touch(item, events::Finalize{}, where);
      case ScriptKind::save: return save(item, where);
      case ScriptKind::restore: return restore(item, where);
      case ScriptKind::unscale: return emit(item, events::Unscale{}, where);
      case ScriptKind::of_framework: return of_framework(item, where);
    }
    return std::nullopt;
  }

  bool runs(const ScriptItem& item, std::uint32_t rank) const { return !left_[rank] && (item.ranks.empty() || std::binary_search(item.ranks.begin(), item.ranks.end(), rank)); }

  // Reductions wait until the end of a block of either kind, on the ranks that are in it.
  std::optional<InputError> block(const ScriptItem& item, EventBody enter, EventBody exit, const std::string& where) {
    const bool switches = item.kind == ScriptKind::no_sync && out_.contract.block_is_a_switch;
    std::vector<std::uint32_t> entered;
    for (std::uint32_t r = 0; r < workload_.world_size; ++r)
      if (runs(item, r)) entered.push_back(r);
    if (auto error = emit(item, std::move(enter), where)) return error;
    ++depth_;
    for (const std::uint32_t r : entered) switches ? switched_[r] = own_sums | partial_sums : ++inside_[r];
    if (auto error = walk(item.items, pointer_of_items(item, where))) return error;
    --depth_;
    for (const std::uint32_t r : entered) switches ? switched_[r] = 0 : --inside_[r];
    if (auto error = emit(item, std::move(exit), where)) return error;
    if (depth_ == 0) std::fill(left_.begin(), left_.end(), false);
    return std::nullopt;
  }

  std::optional<InputError> coalesced(const ScriptItem& item, const std::string& where) {
    const std::size_t first = out_.backwards.size();
    if (auto error = block(item, events::EnterCoalesce{}, events::ExitCoalesce{}, where)) return error;
    if (out_.backwards.size() > first && out_.events.back().ranks.empty() && !out_.events.back().nobody) reduce_here(true);
    return std::nullopt;
  }

  void reduce_here(bool boundary) {
    const auto event = static_cast<std::uint32_t>(out_.events.size() - 1);
    out_.reductions.push_back(event);
    if (boundary) out_.boundaries.push_back(event);
  }

  // The exception leaves every block: what is left of them does not run on these ranks.
  std::optional<InputError> raise(const ScriptItem& item, const std::string& where) {
    if (auto error = emit(item, events::Raise{item.caught}, where)) return error;
    for (std::uint32_t r = 0; depth_ > 0 && r < workload_.world_size; ++r) left_[r] = left_[r] || runs(item, r);
    return std::nullopt;
  }

  // Kept until the windows are known: it may stand before its backward or after it.
  std::optional<InputError> overflow(const ScriptItem& item, const std::string& where) {
    if (overflows_.size() >= limits::events_max / workload_.world_size)
      return InputError{where, "makes the unrolled script plant too often; expected entries x ranks of at most " + std::to_string(limits::events_max)};
    overflows_.push_back({&item, out_.steps - 1, where});
    return std::nullopt;
  }

  std::optional<InputError> emit(const ScriptItem& item, EventBody body, const std::string& where) {
    if (out_.events.size() >= limits::events_max / workload_.world_size)
      return InputError{where, "the unrolled script has too many events; expected events x ranks of at most " + std::to_string(limits::events_max)};
    Event event;
    event.body = std::move(body);
    event.step = out_.steps - 1;
    event.documented = marked_ ? documented_ : event.step;
    if (out_.pointers.empty() || out_.pointers.back() != where) out_.pointers.push_back(where);
    event.item = static_cast<std::uint32_t>(out_.pointers.size() - 1);
    event.ranks = item.ranks;
    if (std::find(left_.begin(), left_.end(), true) != left_.end()) {
      event.ranks.clear();
      for (std::uint32_t r = 0; r < workload_.world_size; ++r)
        if (runs(item, r)) event.ranks.push_back(r);
      event.nobody = event.ranks.empty();
    }
    out_.events.push_back(std::move(event));
    return std::nullopt;
  }

  std::optional<InputError> backward(const ScriptItem& item, const std::string& where) {
    for (std::uint32_t r = 0; item.of && r < workload_.world_size; ++r)
      if (runs(item, r) && *item.of >= forwards_.count(r))
        return InputError{where + "/backward/of", "names forward " + std::to_string(*item.of) + ", but only " + std::to_string(forwards_.count(r)) +
                                                      " explicit forwards came before it in its window on rank " + std::to_string(r)};
    named_uses_ += item.uses.size();
    for (const auto& [rank, names] : item.order) named_uses_ += names.size();
    if (named_uses_ > limits::named_uses_max)
      return InputError{where + "/backward/uses",
                        "makes the unrolled script name more than " + std::to_string(limits::named_uses_max) + " parameters; expected fewer, or used_by with the parameters"};
    const events::Backward body{.own_forward = !item.of.has_value(),
                                .of = item.of.value_or(0),
                                .scale_wrt_gas = item.scale_wrt_gas,
                                .phases = item.phases,
                                .summed = item.sum_of,
                                .raises_after = item.raises_after,
                                .past_scaler = item.past_scaler,
                                .direct = item.direct,
                                .ordinal = static_cast<std::uint32_t>(out_.backwards.size())};
    if (auto error = emit(item, body, where)) return error;
    bool boundary = false;
    const auto held = held_back(item);
    for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
      if (!runs(item, r)) continue;
      boundary |= ranks_[r].now();
      ranks_[r].backward();
    }
    const bool asked = boundary || out_.contract.reduces_every_backward, reduces = asked && held == std::uint8_t{0}, inside = out_.contract.boundary.inside_backwards;
    if (asked && !held && inside)
      return InputError{where, "is reduced by some ranks alone, and with the optimizer inside backwards each of those that are reduced ends a window; expected all ranks alike"};
    if (reduces) reduce_here(boundary);
    if (asked && held == partial_sums) out_.partial.push_back(static_cast<std::uint32_t>(out_.events.size() - 1));
    if (asked && !held) out_.apart.push_back(static_cast<std::uint32_t>(out_.events.size() - 1));
    for (std::uint32_t i = 0; i < item.sum_of; ++i) contribute(item, i, boundary);
    if (!reduces || !inside) return std::nullopt;
    out_.events.back().as<events::Backward>()->steps = true;
    saved_.reset();
    open_window();
    return std::nullopt;
  }

  // What the ranks of a backward hold back of its reduction; nothing where they disagree.
  std::optional<std::uint8_t> held_back(const ScriptItem& item) const {
    std::optional<std::uint8_t> all;
    for (std::uint32_t r = 0; r < workload_.world_size; ++r) {
      if (!runs(item, r)) continue;
      const std::uint8_t own = inside_[r] > 0 ? own_sums | partial_sums : switched_[r];
      if (all.value_or(own) != own) return std::nullopt;
      all = own;
    }
    return all.value_or(own_sums | partial_sums);
  }

  // One contribution of every rank to the backward that was emitted last.
  void contribute(const ScriptItem& item, std::uint32_t number, bool boundary) {
    const Event& event = out_.events.back();
    Backward backward{.event = static_cast<std::uint32_t>(out_.events.size() - 1), .step = event.step, .documented = event.documented, .boundary = boundary};
    backward.raises_after = item.raises_after;
    for (const std::string& name : item.uses) backward.uses.push_back(parameter_named_.at(name));
    for (const auto& [rank, names] : item.order)
      for (const std::string& name : names) backward.order[rank].push_back(parameter_named_.at(name));
    for (std::uint32_t r = 0; r < workload_.world_size; ++r) {
      if (item.of && runs(item, r)) forwards_.give_order(r, *item.of, backward.order);
      std::uint32_t& count = out_.micro_batches.back()[r];
      backward.micro_batch.push_back(runs(item, r) ? count++ : no_contribution);
      backward.data.push_back(item.micro_batch ? *item.micro_batch + number : backward.micro_batch.back());
    }
    out_.backwards.push_back(std::move(backward));
    items_.push_back(&item);
    out_.dropped_at.emplace_back(workload_.world_size, never);
    if (marked_) out_.dropped_documented.emplace_back(workload_.world_size, never);
  }

  std::optional<InputError> step(const ScriptItem& item, const std::string& where) {
    events::Step event{.past_scaler = item.past_scaler};
    for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
      if (!runs(item, r)) continue;
      event.call = std::max(event.call, ranks_[r].call());
      event.at_boundary |= ranks_[r].step();
    }
    if (updates_marked_ && !marked_) event.at_boundary = item.update;
    event.updates = updates_marked_ ? item.update : event.at_boundary || out_.contract.stated.window == Window::every_step_call;
    event.closes = marked_ ? event.at_boundary : event.updates;
    if (auto error = emit(item, event, where)) return error;
    if (event.closes || event.updates) saved_.reset();
    for (std::uint32_t r = 0; event.closes && r < workload_.world_size; ++r) forwards_.forget(r);
    if (marked_ && event.closes) {
      ++documented_;
      std::fill(kept_documented_.begin(), kept_documented_.end(), out_.backwards.size());
    }
    if (event.updates) open_window();
    return std::nullopt;
  }

  std::optional<InputError> zero_grad(const ScriptItem& item, EventBody body, const std::string& where) {
    if (auto error = emit(item, std::move(body), where)) return error;
    if (!out_.contract.stated.zero_grad_discards) return std::nullopt;
    const auto event = static_cast<std::uint32_t>(out_.events.size() - 1);
    for (std::uint32_t r = 0; r < workload_.world_size; ++r) {
      if (!runs(item, r)) continue;
      drop(r, event, kept_from_, out_.dropped_at);
      if (marked_) drop(r, event, kept_documented_, out_.dropped_documented);
    }
    return std::nullopt;
  }

  void drop(std::uint32_t rank, std::uint32_t event, std::vector<std::size_t>& kept_from, std::vector<std::vector<std::uint32_t>>& dropped) {
    for (std::size_t b = kept_from[rank]; b < out_.backwards.size(); ++b)
      if (out_.backwards[b].micro_batch[rank] != no_contribution) dropped[b][rank] = event;
    kept_from[rank] = out_.backwards.size();
  }

  // What the loop does to gradients itself, or sends beside them.
  std::optional<InputError> touch(const ScriptItem& item, EventBody body, const std::string& where) {
    if (out_.touched.size() >= limits::loop_events_max)
      return InputError{where, "makes the unrolled script change gradients too often; expected at most " + std::to_string(limits::loop_events_max) + " such events"};
    if (auto error = emit(item, std::move(body), where)) return error;
    if (!out_.events.back().touches_gradients()) return std::nullopt;
    scales_.push_back(&item);
    out_.touched.push_back(static_cast<std::uint32_t>(out_.events.size() - 1));
    return std::nullopt;
  }

  std::uint32_t group(const std::string& over) {
    const auto name = std::find(out_.group_names.begin(), out_.group_names.end(), over);
    const auto index = static_cast<std::uint32_t>(name - out_.group_names.begin());
    if (name == out_.group_names.end()) out_.group_names.push_back(over);
    return index;
  }

  std::optional<InputError> of_framework(const ScriptItem& item, const std::string& where) {
    if (auto error = emit(item, events::OfFramework{item.event.name, item.event.arguments}, where)) return error;
    const Event& event = out_.events.back();
    const bool held = item.event.heeds_switches && std::any_of(switched_.begin(), switched_.end(), [](std::uint8_t stages) { return stages != 0; });
    if (item.event.reduces && !held && depth_ == 0 && event.ranks.empty() && !event.nobody) reduce_here(false);
    for (std::uint32_t r = 0; item.event.switches && r < workload_.world_size; ++r) {
      if (!runs(item, r)) continue;
      const auto stages = item.event.switches->stages;
      switched_[r] = static_cast<std::uint8_t>(item.event.switches->held_back ? switched_[r] | stages : switched_[r] & ~stages);
    }
    return std::nullopt;
  }

  std::optional<InputError> save(const ScriptItem& item, const std::string& where) {
    saved_ = out_.backwards.size();
    return emit(item, events::Save{}, where);
  }

  // A new process, whose engine counts from the start. What ran since the checkpoint did not happen.
  std::optional<InputError> restore(const ScriptItem& item, const std::string& where) {
    if (!saved_) return InputError{where, "has no checkpoint to load; expected a save before it, and no step that updates between the two"};
    if (depth_ > 0) return InputError{where, "stands inside a block, which a new process is not in; expected it behind the block"};
    if (auto error = touch(item, events::Restore{}, where)) return error;
    for (std::uint32_t r = 0; r < workload_.world_size; ++r) {
      std::vector<std::size_t> since(workload_.world_size, *saved_);
      drop(r, static_cast<std::uint32_t>(out_.events.size() - 1), since, out_.dropped_at);
      kept_from_[r] = std::max(kept_from_[r], *saved_);
      ranks_[r] = DocumentedBoundary(out_.contract.boundary);
      forwards_.forget(r);
    }
    std::fill(switched_.begin(), switched_.end(), 0);  // a switch of the framework's is where it begins
    return std::nullopt;
  }

  // By the contract whatever the open window has of that parameter so far is multiplied, on every rank.
  std::optional<InputError> set_gradient(const ScriptItem& item, const std::string& where) {
    if (out_.gradients_set.size() >= limits::gradients_set_max)
      return InputError{where, "the unrolled script sets too many gradients; expected at most " + std::to_string(limits::gradients_set_max)};
    const std::uint32_t parameter = parameter_named_.at(item.uses.front());
    Factors& in_window = factors_[parameter];
    in_window.product *= item.factor;
    const bool exact = exact_factor(in_window.product / in_window.least) && exact_factor(in_window.product / in_window.most);
    in_window.least = std::min(in_window.least, in_window.product);
    in_window.most = std::max(in_window.most, in_window.product);
    if (!exact) return InputError{where + "/set_gradient/times", "makes what the window multiplies this gradient by inexact; expected all of it together " + exact_factors()};
    if (auto error = emit(item, events::SetGradient{parameter, item.factor, item.local}, where)) return error;
    out_.gradients_set.push_back(static_cast<std::uint32_t>(out_.events.size() - 1));
    return std::nullopt;
  }

  void open_window() {
    ++out_.steps;
    factors_.clear();
    std::fill(kept_from_.begin(), kept_from_.end(), out_.backwards.size());
    out_.micro_batches.emplace_back(workload_.world_size, 0);
  }

  // A trailing window without events is none.
  void finish() {
    const bool used = !out_.events.empty() && out_.events.back().step == out_.steps - 1 && !out_.events.back().updates();
    out_.open_window = !out_.backwards.empty() && out_.backwards.back().step == out_.steps - 1;
    if (!used && out_.steps > 1) {
      --out_.steps;
      out_.micro_batches.pop_back();
    }
    const auto of_some = [&](const Event& e) { return (e.is<events::Forward>() || e.is<events::Step>()) && !e.ranks.empty() && e.ranks.size() < workload_.world_size; };
    out_.passed_apart = std::any_of(out_.events.begin(), out_.events.end(), of_some);
    for (std::uint32_t b = 0; b < out_.backwards.size() && !out_.passed_apart; ++b) out_.passed_apart = out_.passes_apart(workload_, b);
  }

  const Workload& workload_;
  Timeline out_;
  std::vector<DocumentedBoundary> ranks_;
  std::map<std::string, std::uint32_t> parameter_named_;
  OpenForwards forwards_;
  std::vector<std::size_t> kept_from_;             // by rank: backwards of the open window from here on were not dropped
  std::vector<std::size_t> kept_documented_;       // likewise of the documentation's window
  std::vector<const ScriptItem*> items_, scales_;  // by backward; by event that touches gradients
  std::optional<std::size_t> saved_;               // backwards before the checkpoint; none behind an update
  std::uint32_t documented_ = 0;                   // the documentation's window
  bool updates_marked_ = false, marked_ = false;   // by the script; likewise, and the framework has windows of its own
  // What the open window multiplied a gradient by: now, and where it was least and most. Any contribution takes part in some of it.
  struct Factors {
    double product = 1, least = 1, most = 1;
  };
  std::map<std::uint32_t, Factors> factors_;  // by parameter
  std::uint64_t named_uses_ = 0;
  std::vector<Overflow> overflows_;
  std::uint32_t depth_ = 0;             // of blocks around the event
  std::vector<std::uint32_t> inside_;   // by rank: blocks that it is in
  std::vector<std::uint8_t> switched_;  // by rank: what events of the framework's own hold back of reductions
  std::vector<bool> left_;              // by rank: an exception left the blocks around
};

}  // namespace

Result<Timeline> unroll(const Workload& workload, const std::vector<ScriptItem>& script, Contract contract) {
  Unroller unroller(workload, std::move(contract));
  if (auto error = unroller.run(script)) return *error;
  return unroller.take();
}

}  // namespace gradledger
