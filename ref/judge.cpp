#include "ref/judge.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ref/dtype_facts.h"
#include "ref/overflow.h"

namespace gradledger::ref {
namespace {

constexpr std::size_t kept_elements_max = 4096;

void add_element(std::vector<ElementRange>& ranges, std::uint32_t parameter, std::uint32_t element) {
  if (!ranges.empty() && ranges.back().parameter == parameter && ranges.back().end == element) ++ranges.back().end;
  else ranges.push_back({parameter, element, element + 1});
}

std::uint64_t bits_at(const ObservedPiece& piece, std::size_t i) {
  std::uint64_t bits = 0;
  const std::size_t width = size_of(piece.dtype);
  std::memcpy(&bits, piece.data + i * width, width);
  return bits;
}

}  // namespace

void JudgeStatistics::add(const JudgeStatistics& more) {
  snapshots += more.snapshots;
  for (std::size_t i = 0; i < reasons_not_due; ++i) not_due[i] += more.not_due[i];
  elements += more.elements;
  inconclusive += more.inconclusive;
  tightest = std::max(tightest, more.tightest);
}

PassJudge::PassJudge(const Workload& workload, const Timeline& timeline, Model& model, Model::Mode mode, double clipping, std::vector<JudgedSnapshot>* judged, Meant meant)
    : workload_(workload),
      timeline_(timeline),
      model_(model),
      mode_(mode),
      clipping_(clipping),
      due_(timeline),
      judged_(judged),
      meant_(std::move(meant)),
      skipped_(windows_to_skip(timeline)),
      planted_(planted_windows(timeline)),
      rank_event_(workload.world_size, 0) {}

void PassJudge::observe(const Observation& o) {
  if (o.role > Role::applied_gradient && o.role != Role::scratch) return;  // weights and moments have a judge of their own
  Due due = due_.of(o);
  // Values are held to the documentation, which says nothing of what the loop itself does; the ledger follows the contributions through that.
  if (o.role == Role::applied_gradient && timeline_.two_layers && meant_.empty() && timeline_.touched_at(o.event, o.at_end)) due.not_due = NotDue::touched;
  const bool reduced = o.role == Role::reduced_accumulator || o.role == Role::master_gradient || o.role == Role::replicated_accumulator;
  if (reduced && due.not_due != NotDue::interrupted && timeline_.is_boundary(o.event)) cover(reduced_, o);
  if (due.not_due) {
    ++statistics_.not_due[static_cast<std::size_t>(*due.not_due)];
    return;
  }
  if (judged_) list(o, due);
  if (o.role == Role::applied_gradient) return judge_applied(o);
  compare(o, due, due_of(o, due), 1.0, 0.0);
}

const Field& PassJudge::due_of(const Observation& o, const Due& due) {
  if (o.role == Role::local_accumulator) return model_.local(o.rank, o.event, o.at_end, due.after);
  if (o.role == Role::replicated_accumulator) return model_.replicated(o.rank, o.event, o.at_end);
  return model_.done(o.event, o.at_end);
}

void PassJudge::list(const Observation& o, const Due& due) {
  JudgedSnapshot seen{{o.event, o.at_end, o.rank, std::string(o.buffer)}, o.role, window(o), due.after, {}};
  for (const ObservedPiece& piece : o.pieces)
    if (o.role == Role::applied_gradient && piece.parameter >= 0)
      seen.layout.push_back({static_cast<std::uint32_t>(piece.parameter), piece.parameter_offset, piece.parameter_offset + piece.numel});
  judged_->push_back(std::move(seen));
}

std::uint32_t PassJudge::window(const Observation& o) const { return timeline_.window_at(o.event, o.at_end, o.role == Role::applied_gradient ? Layer::meant : Layer::documented); }

void PassJudge::judge_applied(const Observation& o) {
  cover(applied_, o);
  const Field& field = applied_model(o.rank).reduced(o.event, o.at_end);
  const bool unmeant = !meant_.empty() && !timeline_.events[o.event].updates();
  if (unmeant || skipped_[window(o)]) return compare(o, {}, field, 0.0, 0.0);  // nothing of it is due
  double factor = 1.0, factor_error = 0.0;
  if (mode_ == Model::Mode::bounded) {
    const Rounding fp32{facts_of(Dtype::float32).unit_roundoff(), facts_of(Dtype::float32).tiny()};
    factor_error = 3 * fp32.u;  // unscaling: the reciprocal, the product, the combination with the clip
    if (clipping_ > 0) {
      // min(1, clip / (norm + guard)) moves by no more than its argument does.
      const Bounded norm = model_.norm(field);
      factor = std::min(1.0, clipping_ / (norm.value + timeline_.contract.clip.guard));
      factor_error += norm.value > norm.error ? factor * norm.error / (norm.value - norm.error) + 6 * fp32.u : 1.0;
    }
  }
  compare(o, {}, field, factor, factor_error);
}

// stored = true x scale, so everything is compared in stored units.
void PassJudge::compare(const Observation& o, const Due& due, const Field& field, double factor, double factor_error) {
  ++statistics_.snapshots;
  const bool bounded = mode_ == Model::Mode::bounded;
  Mismatch mismatch;
  double worst_measure = -1;
  std::size_t total = 0;
  const std::uint64_t inconclusive_before = statistics_.inconclusive;
  for (const ObservedPiece& piece : o.pieces) {
    if (piece.parameter < 0) continue;
    const auto p = static_cast<std::uint32_t>(piece.parameter);
    stored_.resize(piece.numel);
    read_stored(piece.dtype, piece.data, piece.numel, stored_.data());
    const std::size_t base = model_.offset(p) + piece.parameter_offset;
    total += piece.numel;
    for (std::uint32_t i = 0; i < piece.numel; ++i) {
      const double expected = field.value[base + i] * factor * o.scale;
      double bound = piece.error ? piece.error[i] : 0;
      if (bounded) {
        bound += o.scale * (field.error[base + i] * factor + (std::abs(field.value[base + i]) + field.error[base + i]) * factor_error);
        if (factor_error > 0) bound += facts_of(piece.dtype).tiny();
      }
      if (!std::isfinite(expected) || !std::isfinite(bound) || (bounded && !std::isfinite(stored_[i]) && may_leave_its_range(o, std::abs(expected) + bound))) {
        ++statistics_.inconclusive;
        continue;
      }
      const double error = std::abs(stored_[i] - expected);
      if (error <= bound) {
        if (bound > 0) statistics_.tightest = std::max(statistics_.tightest, error / bound);
        continue;
      }
      add_element(mismatch.ranges, p, piece.parameter_offset + i);
      ++mismatch.wrong_elements;
      const double measure = std::isnan(error) ? HUGE_VAL : bound > 0 ? error / bound : error;
      if (measure <= worst_measure) continue;
      worst_measure = measure;
      mismatch.worst = {p, piece.parameter_offset + i, stored_[i], expected, bound, bits_at(piece, i), piece.dtype};
    }
  }
  statistics_.elements += total;
  if (o.role == Role::applied_gradient && statistics_.inconclusive - inconclusive_before < total) applied_compared_.insert(o.event);
  if (mismatch.wrong_elements == 0) return;
  mismatch.key = {o.event, o.at_end, o.rank, std::string(o.buffer)};
  mismatch.role = o.role;
  mismatch.step = window(o);
  mismatch.after = due.after;
  mismatch.scale = o.scale;
  if (total <= kept_elements_max) {
    for (const ObservedPiece& piece : o.pieces) {
      if (piece.parameter < 0) continue;
      const std::size_t at = mismatch.observed.size();
      mismatch.observed.resize(at + piece.numel);
      read_stored(piece.dtype, piece.data, piece.numel, mismatch.observed.data() + at);
      const std::size_t base = model_.offset(static_cast<std::uint32_t>(piece.parameter)) + piece.parameter_offset;
      for (std::uint32_t i = 0; i < piece.numel; ++i) mismatch.expected.push_back(field.value[base + i] * factor * o.scale);
    }
  }
  if (bounded && o.role == Role::applied_gradient && clipping_ > 0 && factor > 0)
    if (const auto common = common_factor(o, field)) mismatch.clipping = Quantity{"clipping", *common, factor, factor * factor_error};
  mismatches_.push_back(std::move(mismatch));
}

// Whether the sum over all ranks, before it is averaged, may be too large for a format on the way. The step says what becomes of it.
bool PassJudge::may_leave_its_range(const Observation& o, double magnitude) const {
  double largest = facts_of(workload_.model_dtype).largest();
  for (Dtype dtype : {timeline_.contract.accumulation, timeline_.contract.wire}) largest = std::min(largest, facts_of(dtype).largest());
  return o.role != Role::applied_gradient && magnitude * workload_.world_size >= largest;
}

// The factor between a snapshot and its reference, where there is one that explains every element within the bound of the reference.
std::optional<double> PassJudge::common_factor(const Observation& o, const Field& field) {
  double least = 0, most = HUGE_VAL;
  for (const ObservedPiece& piece : o.pieces) {
    if (piece.parameter < 0) continue;
    stored_.resize(piece.numel);
    read_stored(piece.dtype, piece.data, piece.numel, stored_.data());
    const DtypeFacts facts = facts_of(piece.dtype);
    const double roundoff = std::max(facts.unit_roundoff(), facts_of(Dtype::float32).unit_roundoff());  // a gradient that was worked out is in fp64
    const std::size_t base = model_.offset(static_cast<std::uint32_t>(piece.parameter)) + piece.parameter_offset;
    for (std::uint32_t i = 0; i < piece.numel; ++i) {
      const double due = field.value[base + i] * o.scale;
      const double error = o.scale * field.error[base + i] + 9 * roundoff * std::abs(due);  // unscaling and clipping round 9 times
      const double hidden = facts.tiny() + (piece.error ? piece.error[i] : 0);
      if (!(std::abs(due) > error)) continue;
      const double along = due > 0 ? stored_[i] : -stored_[i];
      least = std::max(least, (along - hidden) / (std::abs(due) + error));
      most = std::min(most, (along + hidden) / (std::abs(due) - error));
    }
  }
  if (!(least <= most) || !std::isfinite(most)) return std::nullopt;
  return least + (most - least) / 2;
}

void PassJudge::cover(std::map<std::uint32_t, Coverage>& coverage, const Observation& o) {
  Coverage& covered = coverage[o.event];
  covered.ranges.resize(workload_.parameters.size());
  for (const ObservedPiece& piece : o.pieces) {
    if (piece.parameter < 0) continue;
    auto& ranges = covered.ranges[static_cast<std::size_t>(piece.parameter)];
    const std::pair range{piece.parameter_offset, piece.parameter_offset + piece.numel};
    if (std::find(ranges.begin(), ranges.end(), range) == ranges.end()) ranges.push_back(range);
  }
}

// Whether some contribution of the window that nothing dropped has a gradient of the parameter.
bool PassJudge::used_in(std::uint32_t window, std::uint32_t parameter, Layer layer) const {
  for (std::uint32_t b = 0; b < timeline_.backwards.size(); ++b) {
    if (timeline_.window_of(timeline_.backwards[b], layer) != window) continue;
    for (std::uint32_t r = 0; r < workload_.world_size; ++r)
      if (timeline_.dropped(b, r, layer) == never && timeline_.used(workload_, b, r, parameter)) return true;
  }
  return false;
}

// What no rank shows of the gradients of a window.
std::vector<ElementRange> PassJudge::holes(const Coverage* coverage, std::uint32_t window, Layer layer) const {
  std::vector<ElementRange> out;
  for (std::uint32_t p = 0; p < workload_.parameters.size(); ++p) {
    if (!workload_.parameters[p].has_gradient() || !used_in(window, p, layer)) continue;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> ranges;
    if (coverage && p < coverage->ranges.size()) ranges = coverage->ranges[p];
    std::sort(ranges.begin(), ranges.end());
    std::uint32_t at = 0;
    for (const auto& [begin, end] : ranges) {
      if (begin > at) out.push_back({p, at, begin});
      at = std::max(at, end);
    }
    if (at < workload_.parameters[p].numel) out.push_back({p, at, workload_.parameters[p].numel});
  }
  return out;
}

std::map<std::uint32_t, std::vector<ElementRange>> PassJudge::not_applied() const {
  std::map<std::uint32_t, std::vector<ElementRange>> out;
  for (std::uint32_t e = 0; e < timeline_.events.size(); ++e) {
    if (!timeline_.events[e].updates() || planted_[timeline_.events[e].step]) continue;
    const auto covered = applied_.find(e);
    auto missing = holes(covered == applied_.end() ? nullptr : &covered->second, timeline_.events[e].step, Layer::meant);
    if (!missing.empty()) out[e] = std::move(missing);
  }
  return out;
}

std::map<std::uint32_t, std::vector<ElementRange>> PassJudge::not_reduced() const {
  std::map<std::uint32_t, std::vector<ElementRange>> out;
  for (const std::uint32_t event : timeline_.boundaries) {
    const auto covered = reduced_.find(event);
    auto missing = holes(covered == reduced_.end() ? nullptr : &covered->second, timeline_.events[event].documented, Layer::documented);
    if (!missing.empty()) out[event] = std::move(missing);
  }
  return out;
}

void PassJudge::event_done(std::uint32_t rank, std::uint32_t event) {
  due_.event_done(rank, event);
  rank_event_[rank] = event + 1;
  const std::uint32_t past = *std::min_element(rank_event_.begin(), rank_event_.end());
  model_.forget_before(past);
  for (const auto& meant : meant_) meant->forget_before(past);
}

}  // namespace gradledger::ref
