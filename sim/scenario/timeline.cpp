#include "sim/scenario/timeline.h"

#include <algorithm>
#include <string_view>

namespace gradledger {

std::uint32_t Timeline::last_before(const std::vector<std::uint32_t>& list, std::uint32_t event, std::uint32_t step) const {
  const auto after = std::lower_bound(list.begin(), list.end(), event);
  return after == list.begin() || events[*std::prev(after)].documented != step ? never : *std::prev(after);
}

std::uint32_t Timeline::taken_before(std::uint32_t event, std::uint32_t step) const {
  const std::uint32_t whole = reduction_before(event, step), part = last_before(partial, event, step);
  return whole == never || (part != never && part > whole) ? part : whole;
}

std::ranges::iota_view<std::uint32_t, std::uint32_t> Timeline::backwards_of(std::uint32_t window, Layer layer) const {
  const auto first = std::partition_point(backwards.begin(), backwards.end(), [&](const Backward& b) { return window_of(b, layer) < window; });
  const auto last = std::partition_point(first, backwards.end(), [&](const Backward& b) { return window_of(b, layer) == window; });
  return {static_cast<std::uint32_t>(first - backwards.begin()), static_cast<std::uint32_t>(last - backwards.begin())};
}

namespace {

bool approximated(const Timeline& timeline, std::uint32_t event, bool at_end) {
  // A rank counts what it reduces itself: those that others leave out may be among them.
  const auto up_to = [](const std::vector<std::uint32_t>& list, std::uint32_t last) { return std::upper_bound(list.begin(), list.end(), last) - list.begin(); };
  const std::uint32_t window = timeline.window_at(event, at_end, Layer::documented);
  const std::uint32_t whole = timeline.reduction_before(event + at_end, window), some = timeline.last_before(timeline.apart, event + at_end, window);
  const std::uint32_t last = whole == never || (some != never && some > whole) ? some : whole;
  return last != never && up_to(timeline.reductions, last) + up_to(timeline.apart, last) > static_cast<std::ptrdiff_t>(timeline.contract.approximation->exact_reductions);
}

}  // namespace

bool Timeline::approximates_weights(std::uint32_t parameter, std::uint32_t event, bool at_end) const {
  return contract.approximation && contract.approximation->weights[parameter] && approximated(*this, event, at_end);
}

bool Timeline::approximates_values(std::uint32_t parameter, std::uint32_t event, bool at_end) const {
  return contract.approximation && contract.approximation->values[parameter] && approximated(*this, event, at_end);
}

bool Timeline::windows_in_order() const { return std::ranges::is_sorted(backwards, {}, &Backward::step) && std::ranges::is_sorted(backwards, {}, &Backward::documented); }

bool Timeline::waits_for_reduction(std::uint32_t event) const {
  const auto after = std::upper_bound(backwards.begin(), backwards.end(), event, [](std::uint32_t e, const Backward& b) { return e < b.event; });
  if (after == backwards.begin() || std::prev(after)->documented != events[event].documented) return false;
  const std::uint32_t reduced = reduction_before(event + 1, events[event].documented);
  return reduced == never || reduced < std::prev(after)->event;
}

bool Timeline::is_boundary(std::uint32_t event) const { return std::binary_search(boundaries.begin(), boundaries.end(), event); }

double Timeline::averaged_weight(std::uint32_t backward, std::uint32_t rank, std::uint32_t on_rank, Layer layer) const {
  if (!is_averaged_on(rank, on_rank, layer)) return 0;
  const Rational& weight = weight_of(backward, rank, layer);
  return value_of(layer == Layer::documented ? weight / contract.average_divisor : weight);
}

double Timeline::averaged_weight_of(std::uint32_t parameter, std::uint32_t backward, std::uint32_t rank, std::uint32_t on_rank, Layer layer) const {
  if (contract.share_of.empty()) return averaged_weight(backward, rank, on_rank, layer);
  const Rational divisor = contract.share_divisor(parameter);
  if (!is_averaged_on(rank, on_rank, layer, parameter)) return 0;
  return value_of(weight_of(backward, rank, layer) / (layer == Layer::documented ? contract.average_divisor * divisor : divisor));
}

std::string Timeline::describe(std::uint32_t event) const {
  const Event& e = events.at(event);
  const auto* own = e.as<events::OfFramework>();
  std::string text = "event " + std::to_string(event) + ": " + (own ? own->name : std::string(name_of(e.kind())));
  if (const auto* backward = e.as<events::Backward>()) {
    const std::vector<std::uint32_t>& numbers = backwards[backward->ordinal].micro_batch;
    const auto number = std::find_if(numbers.begin(), numbers.end(), [](std::uint32_t m) { return m != no_contribution; });
    text += number == numbers.end() ? " of nobody" : " of micro-batch " + std::to_string(*number);
  }
  if (const auto* set = e.as<events::SetBoundary>()) text += set->boundary ? " true" : " false";
  const auto* step = e.as<events::Step>();
  if (step && contract.stated.window == Window::marked) text += step->updates ? " (the loop means to update)" : " (the loop means no update)";
  if (step && !step->at_boundary && !e.nobody)
    text += step->call > 0 ? " (call " + std::to_string(step->call) + " of " + std::to_string(contract.boundary.calls) + ")" : " (not at a boundary)";
  return text;
}

Contribution Timeline::contribution(std::uint32_t backward, std::uint32_t rank) const { return {backwards.at(backward).step, rank, backwards.at(backward).micro_batch.at(rank)}; }

bool Timeline::used(const Workload& workload, std::uint32_t backward, std::uint32_t rank, std::uint32_t parameter) const {
  if (!in_graph(workload, backward, rank, parameter)) return false;
  const std::optional<std::uint32_t> after = backwards[backward].raises_after;
  if (!after) return true;
  const std::vector<std::uint32_t> ready = ready_order(workload, backward, rank);
  const auto last = ready.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(*after, ready.size()));
  return std::find(ready.begin(), last, parameter) != last;
}

bool Timeline::is_averaged_on(std::uint32_t rank, std::uint32_t on_rank, Layer layer, std::optional<std::uint32_t> parameter) const {
  if (layer == Layer::documented) return true;
  return parameter && !contract.share_of.empty() ? contract.due_on(rank, on_rank, *parameter) : contract.average_together(rank, on_rank);
}

bool Timeline::counts_wherever_it_runs(const Workload& workload, std::uint32_t backward, std::uint32_t parameter) const {
  const Backward& b = backwards[backward];
  const Parameter& p = workload.parameters[parameter];
  return contract.share_of.empty() && contract.held_by_all(parameter) && b.uses.empty() && !b.raises_after && !p.used_by && p.has_gradient();
}

bool Timeline::in_graph(const Workload& workload, std::uint32_t backward, std::uint32_t rank, std::uint32_t parameter) const {
  const Backward& b = backwards[backward];
  if (b.micro_batch[rank] == no_contribution || !workload.parameters[parameter].has_gradient() || !contract.holds(rank, parameter)) return false;
  const Parameter& p = workload.parameters[parameter];
  // A name stands for all parts: the script has the number of the first.
  if (!b.uses.empty()) return std::find(b.uses.begin(), b.uses.end(), parameter - (p.part ? p.part->number : 0)) != b.uses.end();
  const std::uint32_t of = contract.contributor(rank, parameter);
  return !p.used_by || p.used_by->holds(contribution(backward, of), micro_batches[b.step][of]);
}

bool Timeline::passes_apart(const Workload& workload, std::uint32_t backward) const {
  const Backward& b = backwards[backward];
  const auto skipped = static_cast<std::size_t>(std::count(b.micro_batch.begin(), b.micro_batch.end(), no_contribution));
  if (!b.order.empty() || (skipped > 0 && skipped < b.micro_batch.size())) return true;
  for (std::uint32_t p = 0; b.uses.empty() && p < workload.parameters.size(); ++p) {
    if (!workload.parameters[p].used_by) continue;
    std::optional<bool> passed;
    for (std::uint32_t r = 0; r < world_size; ++r) {
      if (!contract.holds(r, p)) continue;
      const bool passes = in_graph(workload, backward, r, p);
      if (passes != passed.value_or(passes)) return true;
      passed = passes;
    }
  }
  return false;
}

double Timeline::factor(std::uint32_t backward, std::uint32_t rank, std::uint32_t parameter, std::uint32_t up_to_event) const {
  double product = 1.0;
  const Backward& b = backwards[backward];
  for (auto at = std::upper_bound(gradients_set.begin(), gradients_set.end(), b.event); at != gradients_set.end() && *at <= up_to_event; ++at) {
    const Event& e = events[*at];
    if (e.step != b.step) break;
    const auto* set = e.as<events::SetGradient>();
    if (set->parameter == parameter && e.runs_on(rank)) product *= set->factor;
  }
  return product;
}

std::vector<std::uint32_t> Timeline::ready_order(const Workload& workload, std::uint32_t backward, std::uint32_t rank) const {
  const auto count = static_cast<std::uint32_t>(workload.parameters.size());
  std::vector<std::uint32_t> all;
  all.reserve(count);
  const auto add = [&](std::uint32_t p) {
    if (in_graph(workload, backward, rank, workload.parameters[p].tied_to.value_or(p))) all.push_back(p);
  };
  std::vector<bool> placed;  // where an order is given
  if (const auto first = backwards[backward].order.find(rank); first != backwards[backward].order.end()) {
    placed.resize(count);
    for (const std::uint32_t p : first->second)
      for (std::uint32_t part = 0; part < (workload.parameters[p].part ? workload.parameters[p].part->count : 1); ++part) {
        add(p + part);
        placed[p + part] = true;
      }
  }
  // A term that goes around the outputs is made after the forward: its backward is first.
  for (const bool around : {true, false})
    for (std::uint32_t p = count; p-- > 0;)
      if ((workload.parameters[p].hooked_outputs == 0) == around && (placed.empty() || !placed[p])) add(p);
  return all;
}

}  // namespace gradledger
