#include "ref/loop_clip.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "ref/dtype_facts.h"

namespace gradledger::ref {

LoopClipJudge::LoopClipJudge(const Workload& workload, const Timeline& timeline, Model& model) : workload_(workload), timeline_(timeline), model_(model) {
  const auto narrow = [&](Dtype dtype) {
    if (facts_of(dtype).precision < facts_of(gradients_).precision) gradients_ = dtype;
  };
  narrow(timeline.contract.accumulation);
  for (std::uint32_t p = 0; p < workload.parameters.size(); ++p)
    if (workload.parameters[p].has_gradient()) narrow(workload.dtype_of(p));
}

void LoopClipJudge::step_fact(const StepRecord& r) {
  const Event& event = timeline_.events[r.event];
  if (r.fact != StepFact::loop_norm || !event.is<events::ClipGradients>()) return;
  // What the loop did to gradients before leaves open what it means to clip.
  if (timeline_.touched_at(r.event, false)) return;
  const Field& gradient = model_.reduced(r.event, false);
  const std::string over = timeline_.contract.stated.clip ? timeline_.contract.stated.clip->norm_over : "world";
  const Bounded due = norm_over(timeline_.contract.groups.of(over, r.rank), gradient);
  if (std::isfinite(due.value)) norms_.compared(r.event, r.rank, r.fact, due.value, due.error);
  if (!std::isfinite(due.error) || std::abs(r.value - due.value) <= due.error) return;
  if (std::isinf(r.value) && due.magnitude() >= facts_of(gradients_).largest()) return;  // it may have no room for the norm that is due
  StepMismatch mismatch;
  mismatch.event = r.event;
  mismatch.rank = r.rank;
  mismatch.quantity = Quantity{name_of(r.fact), r.value, due.value, due.error};
  mismatch.what = fmt::format("the loop clips by a norm of {:.9g}, due is {:.9g}, that of the gradient which the ranks of {} hold together", r.value, due.value, over);
  found_.push_back({std::move(mismatch), right_for(r.rank, r.value, gradient)});
}

// Of the parameters that some of the ranks hold, each counted once. The loop squares and sums in fp32 where the model does, and adds over ranks.
Bounded LoopClipJudge::norm_over(const std::vector<std::uint32_t>& ranks, const Field& gradient) const {
  Field held = gradient;
  for (std::uint32_t p = 0; p < workload_.parameters.size(); ++p) {
    if (std::any_of(ranks.begin(), ranks.end(), [&](std::uint32_t r) { return timeline_.contract.holds(r, p); })) continue;
    std::fill_n(held.value.begin() + static_cast<std::ptrdiff_t>(model_.offset(p)), workload_.parameters[p].numel, 0.0);
    std::fill_n(held.error.begin() + static_cast<std::ptrdiff_t>(model_.offset(p)), workload_.parameters[p].numel, 0.0);
  }
  const Bounded norm = model_.norm(held);
  const double over_ranks = (2.0 + workload_.world_size) * facts_of(Dtype::float32).unit_roundoff();
  return rounded_norm({norm.value, widened(norm.error + over_ranks * norm.magnitude())});
}

// Of gradients in 16 bits every norm may be in 16 bits too, and what ranks send: the norm of a parameter, its part of it that a rank answers for, the
// square of that, sums over no more than all ranks in two dimensions of a mesh, their roots, and the norm of all. A rounding of a square is half one of
// the norm, but for what falls below the normal numbers.
Bounded LoopClipJudge::rounded_norm(Bounded norm) const {
  if (gradients_ == Dtype::float32 || gradients_ == Dtype::float64) return norm;
  const double norms = static_cast<double>(workload_.parameters.size()), ranks = workload_.world_size;
  const double u = facts_of(gradients_).unit_roundoff(), hidden = facts_of(gradients_).tiny() / 2;
  const double of_all = (6 + ranks) * u;
  if (of_all >= 1) return {norm.value, HUGE_VAL};
  const double of_squares = norms * (2 + ranks) * hidden;
  const double below_normals = 6 * std::sqrt(norms) * hidden + std::min(std::sqrt(of_squares), norm.value > 0 ? of_squares / norm.value : HUGE_VAL);
  return {norm.value, widened(norm.error + below_normals + of_all / (1 - of_all) * (norm.magnitude() + below_normals))};
}

// Which other norms it may be, in words; empty where none that is known fits.
std::vector<std::string> LoopClipJudge::right_for(std::uint32_t rank, double norm, const Field& gradient) const {
  std::vector<std::string> out;
  std::vector<std::string> names{"rank", "world"};
  for (const auto& [name, sets] : timeline_.contract.groups.named()) names.push_back(name);
  for (const std::string& name : names) {
    const std::vector<std::uint32_t> ranks = timeline_.contract.groups.of(name, rank);
    const Bounded of_group = norm_over(ranks, gradient);
    if (std::abs(norm - of_group.value) <= of_group.error) out.push_back(fmt::format("over {}", name == "rank" ? "this rank alone" : name));
    // Squares added up over ranks that hold some of it, or all, in common. The roots of two sums of squares lie no further apart than the root of those of what is off.
    double squares = 0, errors = 0;
    for (const std::uint32_t r : ranks) {
      const Bounded own = norm_over({r}, gradient);
      squares += own.value * own.value;
      errors += own.error * own.error;
    }
    if (ranks.size() > 1 && std::abs(norm - std::sqrt(squares)) <= widened(std::sqrt(errors)))
      out.push_back(fmt::format("over {}, with what several of its ranks hold counted once for each of them", name));
  }
  return out;
}

// ---- of all passes -----------------------------------------------------------------------------------------------------------------

std::vector<StepMismatch> named(std::vector<OtherNorm> found) {
  std::stable_sort(found.begin(), found.end(), [](const OtherNorm& a, const OtherNorm& b) { return a.mismatch.event < b.mismatch.event; });
  std::vector<StepMismatch> out;
  for (auto begin = found.begin(), end = begin; begin != found.end(); begin = end) {
    end = std::find_if(begin, found.end(), [&](const OtherNorm& of) { return of.mismatch.event != begin->mismatch.event; });
    const auto fits_all = [&](const std::string& name) {
      return std::all_of(begin, end, [&](const OtherNorm& of) { return std::find(of.may_be.begin(), of.may_be.end(), name) != of.may_be.end(); });
    };
    const auto other = std::find_if(begin->may_be.begin(), begin->may_be.end(), fits_all);
    for (auto at = begin; at != end; ++at) {
      StepMismatch& mismatch = out.emplace_back(at->mismatch);
      mismatch.finding = other == begin->may_be.end() ? FindingClass::wrong_norm : FindingClass::wrong_group;
      if (other != begin->may_be.end()) mismatch.what += "; it is the norm " + *other;
    }
  }
  return out;
}

}  // namespace gradledger::ref
