#include "ref/snapshot_book.h"

#include <algorithm>

#include "ref/overflow.h"

namespace gradledger::ref {

void JudgeStatistics::add(const JudgeStatistics& more) {
  snapshots += more.snapshots;
  for (std::size_t i = 0; i < reasons_not_due; ++i) not_due[i] += more.not_due[i];
  elements += more.elements;
  inconclusive += more.inconclusive;
  tightest = std::max(tightest, more.tightest);
}

SnapshotBook::SnapshotBook(const Workload& workload, const Timeline& timeline, std::vector<JudgedSnapshot>* judged, bool documented)
    : workload_(workload),
      timeline_(timeline),
      judged_(judged),
      documented_(documented),
      due_(timeline),
      skipped_(windows_to_skip(timeline)),
      planted_(planted_windows(timeline)) {}

std::optional<Due> SnapshotBook::open(const Shown& o) {
  if (o.role > Role::applied_gradient && o.role != Role::scratch) return std::nullopt;  // weights and moments have a judge of their own
  Due due = due_.of(o);
  // Values are held to the documentation; the ledger follows the contributions through what the loop does.
  if (o.role == Role::applied_gradient && timeline_.two_layers && documented_ && timeline_.touched_at(o.event, o.at_end)) due.not_due = NotDue::touched;
  const bool reduced = o.role == Role::reduced_accumulator || o.role == Role::master_gradient || o.role == Role::replicated_accumulator;
  if (reduced && due.not_due != NotDue::interrupted && timeline_.is_boundary(o.event)) cover(reduced_, o);
  if (due.not_due) {
    ++statistics_.not_due[static_cast<std::size_t>(*due.not_due)];
    return std::nullopt;
  }
  if (judged_) list(o, due);
  if (o.role == Role::applied_gradient) cover(applied_, o);
  return due;
}

void SnapshotBook::list(const Shown& o, const Due& due) {
  judged_->push_back({{o.event, o.at_end, o.rank, std::string(o.buffer)}, o.role, window(o), due.after, {}});
  if (o.role == Role::applied_gradient) judged_->back().layout.assign(o.elements.begin(), o.elements.end());
}

void SnapshotBook::cover(std::map<std::uint32_t, Coverage>& coverage, const Shown& o) {
  Coverage& covered = coverage[o.event];
  covered.ranges.resize(workload_.parameters.size());
  for (const ElementRange& elements : o.elements) covered.ranges[elements.parameter].emplace(elements.begin, elements.end);
}

// Whether some contribution of the window that nothing dropped has a gradient of the parameter.
bool SnapshotBook::used_in(std::uint32_t window, std::uint32_t parameter, Layer layer) const {
  for (const std::uint32_t b : timeline_.backwards_of(window, layer))
    for (std::uint32_t r = 0; r < workload_.world_size; ++r)
      if (timeline_.dropped(b, r, layer) == never && timeline_.used(workload_, b, r, parameter)) return true;
  return false;
}

// What no rank shows of the gradients of a window.
std::vector<ElementRange> SnapshotBook::holes(const Coverage* coverage, std::uint32_t window, Layer layer) const {
  std::vector<ElementRange> out;
  for (std::uint32_t p = 0; p < workload_.parameters.size(); ++p) {
    if (!workload_.parameters[p].has_gradient() || !used_in(window, p, layer)) continue;
    std::uint64_t at = 0;
    if (coverage && p < coverage->ranges.size())
      for (const auto& [begin, end] : coverage->ranges[p]) {
        if (begin > at) out.push_back({p, at, begin});
        at = std::max(at, end);
      }
    if (at < workload_.parameters[p].numel) out.push_back({p, at, workload_.parameters[p].numel});
  }
  return out;
}

std::map<std::uint32_t, std::vector<ElementRange>> SnapshotBook::not_applied() const {
  std::map<std::uint32_t, std::vector<ElementRange>> out;
  for (std::uint32_t e = 0; e < timeline_.events.size(); ++e) {
    if (!timeline_.events[e].updates() || planted_[timeline_.events[e].step]) continue;
    const auto covered = applied_.find(e);
    auto missing = holes(covered == applied_.end() ? nullptr : &covered->second, timeline_.events[e].step, Layer::meant);
    if (!missing.empty()) out[e] = std::move(missing);
  }
  return out;
}

std::map<std::uint32_t, std::vector<ElementRange>> SnapshotBook::not_reduced() const {
  std::map<std::uint32_t, std::vector<ElementRange>> out;
  for (const std::uint32_t event : timeline_.boundaries) {
    const auto covered = reduced_.find(event);
    auto missing = holes(covered == reduced_.end() ? nullptr : &covered->second, timeline_.events[event].documented, Layer::documented);
    if (!missing.empty()) out[event] = std::move(missing);
  }
  return out;
}

}  // namespace gradledger::ref
