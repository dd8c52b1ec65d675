#include "ref/judge.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ref/dtype_facts.h"

namespace gradledger::ref {
namespace {

void add_element(std::vector<ElementRange>& ranges, std::uint32_t parameter, std::uint64_t element) {
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

PassJudge::PassJudge(const Workload& workload, const Timeline& timeline, Model& model, Model::Mode mode, double clipping, std::vector<JudgedSnapshot>* judged, Meant meant)
    : workload_(workload),
      timeline_(timeline),
      model_(model),
      mode_(mode),
      clipping_(clipping),
      meant_(std::move(meant)),
      book_(workload, timeline, judged, meant_.empty()),
      slowest_(workload.world_size) {}

void PassJudge::observe(const Observation& o) {
  elements_.clear();
  contents_.clear();
  for (const ObservedPiece& piece : o.pieces) {
    if (piece.parameter < 0) continue;
    elements_.push_back({static_cast<std::uint32_t>(piece.parameter), piece.parameter_offset, piece.parameter_offset + piece.numel});
    contents_.emplace_back(piece.data, std::size_t{piece.numel} * size_of(piece.dtype));
  }
  const Shown shown{o.rank, o.event, o.at_end, o.buffer, o.role, elements_, contents_};
  const auto due = book_.open(shown);
  if (!due) return;
  if (o.role == Role::applied_gradient) return judge_applied(o, book_.window(shown));
  compare(o, *due, book_.window(shown), due_of(o, *due), 1.0, 0.0);
}

const Field& PassJudge::due_of(const Observation& o, const Due& due) {
  if (o.role == Role::local_accumulator) return model_.local(o.rank, o.event, o.at_end, due.after);
  if (o.role == Role::replicated_accumulator) return model_.replicated(o.rank, o.event, o.at_end);
  return model_.done(o.event, o.at_end);
}

void PassJudge::judge_applied(const Observation& o, std::uint32_t window) {
  const Field& field = applied_model(o.rank).reduced(o.event, o.at_end);
  const bool unmeant = !meant_.empty() && !timeline_.events[o.event].updates();
  if (unmeant || book_.skipped(window)) return compare(o, {}, window, field, 0.0, 0.0);  // nothing of it is due
  double factor = 1.0, factor_error = 0.0;
  if (mode_ == Model::Mode::bounded) {
    const Rounding fp32{facts_of(Dtype::float32).unit_roundoff(), facts_of(Dtype::float32).tiny()};
    factor_error = 3 * fp32.u;  // unscaling: the reciprocal, the product, the combination with the clip
    if (clipping_ > 0) {
      // min(1, clip / (norm + guard)) moves by no more than its argument does.
      const Bounded norm = model_.norm(field);
      factor = std::min(1.0, clipping_ / (norm.value + timeline_.contract.clip.guard));
      if (!std::isfinite(norm.error)) factor_error = HUGE_VAL;
      else factor_error += norm.value > norm.error ? factor * norm.error / (norm.value - norm.error) + 6 * fp32.u : 1.0;
    }
  }
  compare(o, {}, window, field, factor, factor_error);
}

// stored = true x scale, so everything is compared in stored units.
void PassJudge::compare(const Observation& o, const Due& due, std::uint32_t window, const Field& field, double factor, double factor_error) {
  JudgeStatistics& statistics = book_.statistics();
  ++statistics.snapshots;
  const bool bounded = mode_ == Model::Mode::bounded;
  Differences differences;
  std::size_t total = 0;
  const std::uint64_t inconclusive_before = statistics.inconclusive;
  for (const ObservedPiece& piece : o.pieces) {
    if (piece.parameter < 0) continue;
    const auto p = static_cast<std::uint32_t>(piece.parameter);
    stored_.resize(piece.numel);
    read_stored(piece.dtype, piece.data, piece.numel, stored_.data());
    total += piece.numel;
    if (timeline_.approximates_values(p, o.event, o.at_end)) {
      statistics.inconclusive += piece.numel;
      continue;
    }
    const std::size_t base = model_.offset(p) + piece.parameter_offset;
    const double below_normals = factor_error > 0 ? least_kept(o, piece.dtype) : 0;
    compare_piece(o, piece, {stored_.data(), piece.error, field.value.data() + base, bounded ? field.error.data() + base : nullptr, factor, factor_error, o.scale, below_normals},
                  differences);
  }
  statistics.elements += total;
  if (o.role == Role::applied_gradient && statistics.inconclusive - inconclusive_before < total) book_.compared_applied(o.event);
  Mismatch& mismatch = differences.mismatch;
  if (mismatch.wrong_elements == 0) return;
  mismatch.key = {o.event, o.at_end, o.rank, std::string(o.buffer)};
  mismatch.role = o.role;
  mismatch.step = window;
  mismatch.after = due.after;
  mismatch.scale = o.scale;
  if (bounded && o.role == Role::applied_gradient && clipping_ > 0 && factor > 0)
    if (const auto common = common_factor(o, field)) mismatch.clipping = Quantity{"clipping", *common, factor, factor * factor_error};
  mismatches_.push_back(std::move(mismatch));
}

// Elements that are right go by many at a time; of those that are not each is looked at.
void PassJudge::compare_piece(const Observation& o, const ObservedPiece& piece, const Held& held, Differences& differences) {
  JudgeStatistics& statistics = book_.statistics();
  for (std::size_t i = 0; i < piece.numel; ++i) {
    i += count_within(held.from(i), piece.numel - i, statistics.tightest);
    if (i == piece.numel) return;
    const double expected = held.expected(i), bound = held.bound(i), stored = held.stored[i];
    // What is due holds a planted infinity or NaN, which no sum loses.
    const bool lost = clipping_ == 0 && !std::isfinite(held.due[i]) && std::isfinite(stored);
    if (!lost && (!std::isfinite(expected) || !std::isfinite(bound) || (held.due_error && !std::isfinite(stored) && may_leave_its_range(o, std::abs(expected) + bound)))) {
      ++statistics.inconclusive;
      continue;
    }
    Mismatch& mismatch = differences.mismatch;
    const auto p = static_cast<std::uint32_t>(piece.parameter);
    add_element(mismatch.ranges, p, piece.parameter_offset + i);
    ++mismatch.wrong_elements;
    const double error = std::abs(stored - expected);
    const double true_error = std::isnan(error) ? HUGE_VAL : error / held.scale;
    mismatch.squared_errors += true_error * true_error;
    const double measure = std::isnan(error) ? HUGE_VAL : bound > 0 ? error / bound : error;
    if (measure <= differences.worst) continue;
    differences.worst = measure;
    mismatch.worst = {p, piece.parameter_offset + i, stored, expected, bound, bits_at(piece, i), piece.dtype};
  }
}

// The smallest number that clipping keeps, in stored units: it is done on what is applied, or before that is copied out of the accumulator, where the loss
// scale is in it.
double PassJudge::least_kept(const Observation& o, Dtype applied) const {
  return std::max(facts_of(applied).tiny(), facts_of(timeline_.contract.accumulation).tiny() * o.scale / model_.least_scale());
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
    for (std::uint64_t i = 0; i < piece.numel; ++i) {
      const double due = field.value[base + i] * o.scale;
      const double error = o.scale * field.error[base + i] + 9 * roundoff * std::abs(due);  // unscaling and clipping round 9 times
      const double hidden = least_kept(o, piece.dtype) + (piece.error ? piece.error[i] : 0);
      if (!(std::abs(due) > error)) continue;
      const double along = due > 0 ? stored_[i] : -stored_[i];
      least = std::max(least, (along - hidden) / (std::abs(due) + error));
      most = std::min(most, (along + hidden) / (std::abs(due) - error));
    }
  }
  if (!(least <= most) || !std::isfinite(most)) return std::nullopt;
  return least + (most - least) / 2;
}

void PassJudge::event_done(std::uint32_t rank, std::uint32_t event) {
  book_.event_done(rank, event);
  const std::uint32_t past = slowest_.done(rank, event);
  model_.forget_before(past);
  for (const auto& meant : meant_) meant->forget_before(past);
}

}  // namespace gradledger::ref
