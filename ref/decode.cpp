#include "ref/decode.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "ref/ledger.h"
#include "sim/base/rational.h"

namespace gradledger::ref {

void Decoder::add(std::vector<double> gradients, double held, double error) { elements_.push_back({std::move(gradients), held, error}); }

std::vector<Decoder::Group> Decoder::groups() const {
  std::map<std::vector<double>, std::size_t> by_data;
  std::vector<Group> out;
  for (std::size_t k = 0; k < candidates_.size(); ++k) {
    std::vector<double> data;
    for (const Element& element : elements_) data.push_back(element.gradients[k]);
    const auto [at, fresh] = by_data.try_emplace(std::move(data), out.size());
    if (fresh) out.emplace_back();
    out[at->second].members.push_back(k);
  }
  return out;
}

// What correct arithmetic may leave between an element and the weighted sum of what came into it.
double Decoder::bound(const Element& element, const std::vector<Group>& groups) const {
  double magnitude = 0, terms = 0;
  for (const Group& group : groups) {
    const double gradient = element.gradients[group.members.front()];
    if (gradient == 0 || !group.known) continue;
    magnitude += std::abs(gradient) * std::abs(group.sum);
    terms += static_cast<double>(group.members.size());
  }
  return element.error + (rounding_ + addition_ * std::max(0.0, terms - 1)) * magnitude;
}

// From element to element: one that a single unknown sum is left in tells that sum. Of several, the one that tells it best.
void Decoder::solve(std::vector<Group>& groups) const {
  for (bool progress = true; progress;) {
    progress = false;
    Group* best = nullptr;
    double sum = 0, error = HUGE_VAL;
    for (const Element& element : elements_) {
      Group* unknown = nullptr;
      std::size_t left = 0;
      double rest = element.held, off = 0;
      for (Group& group : groups) {
        const double gradient = element.gradients[group.members.front()];
        if (gradient == 0) continue;
        if (!group.known) {
          unknown = &group;
          ++left;
        } else {
          rest -= gradient * group.sum;
          off += std::abs(gradient) * group.error;
        }
      }
      if (left != 1) continue;
      const double gradient = std::abs(element.gradients[unknown->members.front()]);
      const double found = rest / element.gradients[unknown->members.front()];
      const double own = (rounding_ + addition_ * static_cast<double>(unknown->members.size() - 1)) * std::abs(found);
      const double its = (off + bound(element, groups)) / gradient + own;
      if (its >= error) continue;
      best = unknown;
      sum = found;
      error = its;
    }
    if (!best) return;
    best->known = progress = true;
    best->sum = sum;
    best->error = error;
  }
}

bool Decoder::explained(const std::vector<Group>& groups) const {
  return std::all_of(elements_.begin(), elements_.end(), [&](const Element& element) {
    double rest = element.held;
    for (const Group& group : groups) {
      const double gradient = element.gradients[group.members.front()];
      if (gradient != 0 && !group.known) return true;
      rest -= gradient * group.sum;
    }
    return std::abs(rest) <= bound(element, groups);
  });
}

// The simplest weight that a lone candidate can have by what was found of it.
double Decoder::simplest(const Group& group) const {
  const Candidate& candidate = candidates_[group.members.front()];
  for (const double weight : {candidate.due, 0.0, candidate.averaged, candidate.own})
    if (std::abs(group.sum - weight) <= group.error) return weight;
  for (const double weight : {candidate.averaged, candidate.own}) {
    const double ratio = group.sum / weight;
    for (const double simple : {std::round(ratio), 1.0 / std::round(1.0 / ratio)})
      if (std::isfinite(simple) && simple != 0 && std::abs(group.sum - simple * weight) <= group.error) return simple * weight;
  }
  constexpr std::int64_t terms_max = 1 << 10;
  const auto fraction = simplest_within(group.sum, group.error, terms_max);
  return fraction ? value_of(*fraction) : group.sum;
}

// Divides a group's sum among its members. Where several ways to do so are as good, what is wrong goes to those of the window, with the others beside them.
void Decoder::settle(Group& group, std::vector<Weight>& out) const {
  double due = 0, due_before = 0;
  for (const std::size_t k : group.members) {
    out[k].value = candidates_[k].due;
    due += candidates_[k].due;
    due_before += candidates_[k].due + candidates_[k].seen_before;
  }
  const auto close = [&](double sum) { return std::abs(group.sum - sum) <= group.error; };
  if (close(due)) {
    group.sum = due;
    return;
  }
  if (close(0)) {
    for (const std::size_t k : group.members) out[k].value = 0;
    group.sum = 0;
    return;
  }
  if (due_before != due && close(due_before)) {
    for (const std::size_t k : group.members) out[k].value += candidates_[k].seen_before;
    group.sum = due_before;
    return;
  }
  if (group.members.size() == 1) {
    group.sum = out[group.members.front()].value = simplest(group);
    return;
  }
  const auto in_window = [&](std::size_t k) { return candidates_[k].in_window; };
  const auto first = std::find_if(group.members.begin(), group.members.end(), in_window);
  const std::size_t chosen = first == group.members.end() ? group.members.back() : *first;
  const Group lone{{chosen}, true, group.sum - (due - candidates_[chosen].due), group.error};
  out[chosen].value = simplest(lone);
  group.sum = out[chosen].value + due - candidates_[chosen].due;
  for (const std::size_t k : group.members)
    if (k != chosen) out[chosen].alike.push_back(k);
}

std::optional<std::vector<Weight>> Decoder::weights() const {
  std::vector<Group> all = groups();
  solve(all);
  std::vector<Weight> out(candidates_.size());
  for (Group& group : all) {
    double most = 0;  // that a contribution like these can be expected to weigh
    for (const std::size_t k : group.members) most = std::max({most, candidates_[k].averaged, candidates_[k].own});
    if (group.known && group.error < Ledger::tolerance_max * std::max(most, std::abs(group.sum))) {
      settle(group, out);
      continue;
    }
    group.known = false;
    for (const std::size_t k : group.members) out[k] = {candidates_[k].due, true, {}};
  }
  if (!explained(all)) return std::nullopt;
  return out;
}

}  // namespace gradledger::ref
