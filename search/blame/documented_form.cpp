#include "search/blame/documented_form.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "sim/base/overloaded.h"
#include "sim/frameworks/search_space.h"
#include "sim/load.h"

namespace gradledger::search {
namespace {

class Writer {
 public:
  Writer(const Scenario& scenario, const Timeline& timeline, const std::vector<Misuse>& misuses, Form form)
      : timeline_(timeline), form_(form), theirs_(timeline.contract.boundary), ours_(timeline.contract.boundary) {
    for (const Misuse& m : misuses) broken_.insert(m.step);
    out_.scenario = scenario;
    out_.scenario.script.clear();
    out_.scenario.expect = {};
    const bool keeps = !scenario.contract.zero_grad_discards;
    out_.scenario.contract = {};
    out_.scenario.contract.zero_grad_discards = !keeps;
    out_.scenario.contract.average_over = tuning_of(scenario).average_over(scenario);
    into_ = &out_.scenario.script;
  }

  std::optional<Documented> write() {
    if (form_ == Form::counted && !count_windows()) return std::nullopt;
    for (std::uint32_t w = 0; w < timeline_.steps; ++w) window(w);
    out_.scenario.allow_open = true;
    return std::move(out_);
  }

 private:
  bool manages() const { return timeline_.contract.boundary.counted; }
  bool of_calls() const { return manages() && !timeline_.contract.boundary.of_backwards; }

  // ---- windows ---------------------------------------------------------------------------------------------------------------------

  void window(std::uint32_t w) {
    const bool rewrite = form_ == Form::counted || broken_.contains(w);
    const auto [first, last] = events_of(w);
    if (rewrite && (form_ == Form::left_out || kept(w).empty())) {
      for (std::uint32_t e = first; e < last; ++e) follow(timeline_.events[e]);
      out_.window.emplace_back();
      return;
    }
    out_.window.emplace_back(windows_++);
    if (rewrite) as_documented(w, first, last);
    else as_it_is(first, last);
  }

  std::pair<std::uint32_t, std::uint32_t> events_of(std::uint32_t w) const {
    const auto& events = timeline_.events;
    const auto first = std::partition_point(events.begin(), events.end(), [&](const Event& e) { return e.step < w; });
    const auto last = std::partition_point(first, events.end(), [&](const Event& e) { return e.step == w; });
    return {static_cast<std::uint32_t>(first - events.begin()), static_cast<std::uint32_t>(last - events.begin())};
  }

  // What the original's counter makes of an event.
  void follow(const Event& e) {
    follow_override(e);
    if (e.is<events::Backward>()) theirs_.backward();
    if (e.is<events::Step>()) theirs_.step();
  }

  // Backwards of the window that somebody meant to count.
  std::vector<std::uint32_t> kept(std::uint32_t w) const {
    std::vector<std::uint32_t> out;
    for (const std::uint32_t b : timeline_.backwards_of(w, Layer::meant)) {
      const Backward& backward = timeline_.backwards[b];
      const auto counts = [&](std::uint32_t r) { return backward.micro_batch[r] != no_contribution && timeline_.dropped_at[b][r] == never; };
      bool any = false;
      for (std::uint32_t r = 0; r < timeline_.world_size; ++r) any = any || counts(r);
      if (any) out.push_back(b);
    }
    return out;
  }

  // Every closed window has as many backwards, nothing else decides, and the loop asked for no divisor of its own.
  bool count_windows() {
    const bool calls = std::any_of(timeline_.events.begin(), timeline_.events.end(), [](const Event& e) { return e.is<events::SetBoundary>(); });
    if (calls || !of_calls() || timeline_.steps == 0) return false;
    const auto micro_batches = static_cast<std::uint32_t>(kept(0).size());
    for (std::uint32_t w = 1; w < timeline_.steps; ++w)
      if (kept(w).size() != micro_batches) return false;
    return micro_batches > 0 && tuning_of(out_.scenario).count_windows(out_.scenario, micro_batches);
  }

  void as_documented(std::uint32_t w, std::uint32_t first, std::uint32_t last) {
    for (std::uint32_t e = first; e < last; ++e) follow(timeline_.events[e]);
    const std::vector<std::uint32_t> backwards = kept(w);
    const bool closed = last > first && timeline_.events[last - 1].updates();
    for (std::size_t i = 0; i < backwards.size(); ++i) {
      const bool at_boundary = i + 1 == backwards.size() && (closed || timeline_.backwards[backwards[i]].boundary);
      if (form_ == Form::calls) set_boundary(at_boundary);
      ScriptItem item = backward_of(backwards[i]);
      item.direct = false;
      item.scale_wrt_gas = true;
      item.of.reset();
      add(std::move(item));
      if (form_ == Form::counted && !at_boundary) add(item_of(ScriptKind::step));
    }
    for (std::uint32_t e = first; e < last; ++e)
      if (const auto* set = timeline_.events[e].as<events::SetGradient>(); set && closed) add(set_gradient_of(*set));
    plants(backwards);
    if (!closed) return;
    if (form_ == Form::calls) set_boundary(true);
    add(item_of(ScriptKind::step));
  }

  void as_it_is(std::uint32_t first, std::uint32_t last) {
    std::vector<std::uint32_t> backwards;
    for (std::uint32_t e = first; e < last; ++e) {
      const Event& event = timeline_.events[e];
      const bool asked = event.is<events::Backward>() || event.is<events::Step>() || event.is<events::EnterCoalesce>();
      follow_override(event);
      if (asked && of_calls() && !event.nobody) set_boundary(theirs_.now());
      if (const auto* backward = event.as<events::Backward>()) backwards.push_back(backward->ordinal);
      if (e + 1 == last) plants(backwards);
      if (!event.nobody) same(event);
      else if (event.is<events::ExitNoSync>() || event.is<events::ExitCoalesce>()) into_ = &out_.scenario.script;
      if (!event.is<events::SetBoundary>()) follow(event);
    }
  }

  void follow_override(const Event& e) {
    if (const auto* set = e.as<events::SetBoundary>()) theirs_.set(set->boundary);
  }

  // ---- items -----------------------------------------------------------------------------------------------------------------------

  void add(ScriptItem item) {
    if (item.kind == ScriptKind::step) ours_.step();
    if (item.kind == ScriptKind::backward) ours_.backward();
    into_->push_back(std::move(item));
  }

  void set_boundary(bool value) {
    if (!of_calls() || ours_.now() == value) return;
    ours_.set(value);
    ScriptItem item = item_of(ScriptKind::set_boundary);
    item.boundary = value;
    add(std::move(item));
  }

  void same(const Event& e) {
    using namespace events;
    std::visit(overloaded{[&](const Forward&) { add(item_of(ScriptKind::forward)); }, [&](const events::Backward& body) { add(backward_of(body.ordinal)); },
                          [](const SetBoundary&) {}, [&](const EnterNoSync&) { enter(ScriptKind::no_sync); }, [&](const EnterCoalesce&) { enter(ScriptKind::coalesce); },
                          [&](const one_of<ExitNoSync, ExitCoalesce> auto&) { into_ = &out_.scenario.script; }, [&](const Step&) { add(item_of(ScriptKind::step)); },
                          [&](const EngineZeroGrad&) { add(item_of(ScriptKind::engine_zero_grad)); },
                          [&](const OptimizerZeroGrad&) { add(item_of(ScriptKind::optimizer_zero_grad)); }, [&](const SetGradient& body) { add(set_gradient_of(body)); },
                          [&](const Raise& body) {
                            ScriptItem item = item_of(ScriptKind::raise);
                            item.caught = body.caught;
                            add(std::move(item));
                          },
                          // Of loops that have no documented form.
                          [](const one_of<ScaleGradients, ClipGradients, AllReduce, Finalize, Save, Restore, Unscale, OfFramework> auto&) {}},
               e.body);
  }

  // Blocks do not nest in a documented script.
  void enter(ScriptKind kind) {
    out_.scenario.script.push_back(item_of(kind));
    into_ = &out_.scenario.script.back().items;
  }

  ScriptItem backward_of(std::uint32_t b) const {
    const Backward& backward = timeline_.backwards[b];
    const auto& event = *timeline_.events[backward.event].as<events::Backward>();
    ScriptItem out = item_of(ScriptKind::backward);
    if (!event.own_forward) out.of = event.of;
    out.scale_wrt_gas = event.scale_wrt_gas;
    out.phases = event.phases;
    out.direct = event.direct;
    for (std::uint32_t r = timeline_.world_size; r-- > 0;)
      if (backward.micro_batch[r] != no_contribution && backward.data[r] != backward.micro_batch[r]) out.micro_batch = backward.data[r];
    for (const std::uint32_t p : backward.uses) out.uses.push_back(out_.scenario.parameters[p].name);
    for (const auto& [rank, parameters] : backward.order)
      for (const std::uint32_t p : parameters) out.order[rank].push_back(out_.scenario.parameters[p].name);
    return out;
  }

  ScriptItem set_gradient_of(const events::SetGradient& e) const {
    ScriptItem out = item_of(ScriptKind::set_gradient);
    out.uses = {out_.scenario.parameters[e.parameter].name};
    out.factor = e.factor;
    out.local = e.local;
    return out;
  }

  // What was planted in the backwards that a window now has.
  void plants(const std::vector<std::uint32_t>& backwards) {
    for (const Plant& plant : timeline_.planted) {
      const auto at = std::find(backwards.begin(), backwards.end(), plant.backward);
      if (at == backwards.end()) continue;
      ScriptItem item = item_of(ScriptKind::overflow);
      item.micro_batch = static_cast<std::uint32_t>(at - backwards.begin());
      item.ranks = {plant.rank};
      item.uses = {out_.scenario.parameters[plant.parameter].name};
      item.planted = std::isnan(plant.value) ? PlantedValue::not_a_number : plant.value > 0 ? PlantedValue::infinity : PlantedValue::minus_infinity;
      out_.scenario.script.push_back(std::move(item));
    }
  }

  const Timeline& timeline_;
  const Form form_;
  DocumentedBoundary theirs_, ours_;
  std::set<std::uint32_t> broken_;
  Documented out_;
  std::vector<ScriptItem>* into_;
  std::uint32_t windows_ = 0;
};

}  // namespace

std::optional<Documented> documented_form(const Scenario& scenario, const Timeline& timeline, const std::vector<Misuse>& misuses, Form form) {
  if (timeline.two_layers) return std::nullopt;  // what the loop means is in no document
  const SearchSpace* space = framework_of(scenario).search_space();
  if (!space || !space->has_documented_form()) return std::nullopt;
  auto out = Writer(scenario, timeline, misuses, form).write();
  if (!out || out->scenario.script.empty() || admission_error(out->scenario)) return std::nullopt;
  if (out->scenario.after_error == AfterError::go_on) out->scenario.after_error = AfterError::stop;
  const auto again = make_timeline(out->scenario);
  if (!again || !framework_of(out->scenario).use_of(out->scenario, *again).misuses.empty()) return std::nullopt;
  return out;
}

}  // namespace gradledger::search
