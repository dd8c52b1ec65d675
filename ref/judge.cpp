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

PassJudge::PassJudge(const Workload& workload, const Timeline& timeline, Model& model, Model::Mode mode, double clipping, std::vector<JudgedSnapshot>* judged,
                     const MeantModels* meant)
    : workload_(workload),
      timeline_(timeline),
      model_(model),
      mode_(mode),
      clipping_(clipping),
      meant_(meant && !meant->empty() ? meant : nullptr),
      book_(workload, timeline, judged, !by_meaning()),
      slowest_(workload.world_size) {}

void PassJudge::observe(const Observation& o) {
  elements_.clear();
  contents_.clear();
  for (const ObservedPiece& piece : o.pieces) {
    if (piece.parameter < 0) continue;
    elements_.push_back({static_cast<std::uint32_t>(piece.parameter), piece.parameter_offset, piece.parameter_offset + piece.numel});
    contents_.emplace_back(piece.data, std::size_t{piece.numel} * size_of(piece.dtype));
  }
  const Shown shown{o.rank, o.event, o.at_end, o.buffer, o.role, elements_, contents_, zeros_in_place_of_a_gradient(o)};
  const auto due = book_.open(shown);
  if (!due) return;
  if (o.role == Role::applied_gradient) return judge_applied(o, book_.window(shown));
  add(o, *due, book_.window(shown), differences(o, {&due_of(o, *due), 1.0, 0.0}));
}

bool PassJudge::zeros_in_place_of_a_gradient(const Observation& o) {
  const auto is_zero = [](std::byte b) { return b == std::byte{0}; };
  if (o.role != Role::applied_gradient || o.at_end || !timeline_.events[o.event].is<events::Backward>()) return false;
  if (!std::all_of(contents_.begin(), contents_.end(), [&](const auto& bytes) { return std::all_of(bytes.begin(), bytes.end(), is_zero); })) return false;
  const Field& due = model_.reduced(o.event, o.at_end);
  return std::any_of(elements_.begin(), elements_.end(), [&](const ElementRange& range) {
    const auto first = due.value.data() + model_.offset(range.parameter);
    return std::any_of(first + range.begin, first + range.end, [](double value) { return value != 0; });
  });
}

const Field& PassJudge::due_of(const Observation& o, const Due& due) {
  if (o.role == Role::local_accumulator) return model_.local(o.rank, o.event, o.at_end, due.after);
  if (o.role == Role::replicated_accumulator) return model_.replicated(o.rank, o.event, o.at_end);
  return model_.done(o.event, o.at_end);
}

void PassJudge::judge_applied(const Observation& o, std::uint32_t window) {
  Model& model = by_meaning() ? meant_->of(o.rank) : model_;
  const bool updates = timeline_.events[o.event].updates();
  if ((by_meaning() && !updates) || book_.skipped(window)) return add(o, {}, window, differences(o, {&model.reduced(o.event, o.at_end), 0.0, 0.0}));  // nothing of it is due
  const Applied due = applied_of(model, o);
  Differences found = differences(o, due);
  if (found.mismatch.wrong_elements > 0 && meant_ && updates)
    if (Differences from_meant = differences(o, applied_of(meant_->of(o.rank), o)); from_meant.mismatch.wrong_elements == 0) found = std::move(from_meant);
  if (found.mismatch.wrong_elements > 0 && mode_ == Model::Mode::bounded && clipping_ > 0 && due.factor > 0)
    if (const auto common = common_factor(o, *due.field)) found.mismatch.clipping = Quantity{"clipping", *common, due.factor, due.factor * due.factor_error};
  add(o, {}, window, std::move(found));
}

PassJudge::Applied PassJudge::applied_of(Model& model, const Observation& o) const {
  Applied out{&model.reduced(o.event, o.at_end), 1.0, 0.0};
  if (mode_ != Model::Mode::bounded) return out;
  const Rounding fp32{facts_of(Dtype::float32).unit_roundoff(), facts_of(Dtype::float32).tiny()};
  out.factor_error = 3 * fp32.u;  // unscaling: the reciprocal, the product, the combination with the clip
  if (clipping_ == 0) return out;
  // min(1, clip / (norm + guard)) moves by no more than its argument does.
  const Bounded norm = model.norm(*out.field);
  out.factor = std::min(1.0, clipping_ / (norm.value + timeline_.contract.clip.guard));
  if (!std::isfinite(norm.error)) out.factor_error = HUGE_VAL;
  else out.factor_error += norm.value > norm.error ? out.factor * norm.error / (norm.value - norm.error) + 6 * fp32.u : 1.0;
  return out;
}

// stored = true x scale, so everything is compared in stored units.
PassJudge::Differences PassJudge::differences(const Observation& o, const Applied& due) {
  const bool bounded = mode_ == Model::Mode::bounded;
  Differences out;
  out.tightest = book_.statistics().tightest;
  for (const ObservedPiece& piece : o.pieces) {
    if (piece.parameter < 0) continue;
    const auto p = static_cast<std::uint32_t>(piece.parameter);
    stored_.resize(piece.numel);
    read_stored(piece.dtype, piece.data, piece.numel, stored_.data());
    out.elements += piece.numel;
    if (timeline_.approximates_values(p, o.event, o.at_end)) {
      out.inconclusive += piece.numel;
      continue;
    }
    const std::size_t base = model_.offset(p) + piece.parameter_offset;
    const double below_normals = due.factor_error > 0 ? least_kept(o, piece.dtype) : 0;
    compare_piece(
        o, piece,
        {stored_.data(), piece.error, due.field->value.data() + base, bounded ? due.field->error.data() + base : nullptr, due.factor, due.factor_error, o.scale, below_normals},
        out);
  }
  return out;
}

void PassJudge::add(const Observation& o, const Due& due, std::uint32_t window, Differences found) {
  JudgeStatistics& statistics = book_.statistics();
  ++statistics.snapshots;
  statistics.elements += found.elements;
  statistics.inconclusive += found.inconclusive;
  statistics.tightest = found.tightest;
  if (o.role == Role::applied_gradient && found.inconclusive < found.elements) book_.compared_applied(o.event);
  Mismatch& mismatch = found.mismatch;
  if (mismatch.wrong_elements == 0) return;
  mismatch.key = {o.event, o.at_end, o.rank, std::string(o.buffer)};
  mismatch.role = o.role;
  mismatch.step = window;
  mismatch.after = due.after;
  mismatch.scale = o.scale;
  mismatches_.push_back(std::move(mismatch));
}

// Elements that are right go by many at a time; of those that are not each is looked at.
void PassJudge::compare_piece(const Observation& o, const ObservedPiece& piece, const Held& held, Differences& differences) {
  for (std::size_t i = 0; i < piece.numel; ++i) {
    i += count_within(held.from(i), piece.numel - i, differences.tightest);
    if (i == piece.numel) return;
    const double expected = held.expected(i), bound = held.bound(i), stored = held.stored[i];
    // What is due holds a planted infinity or NaN, which no sum loses.
    const bool lost = clipping_ == 0 && !std::isfinite(held.due[i]) && std::isfinite(stored);
    if (!lost && (!std::isfinite(expected) || !std::isfinite(bound) || (held.due_error && !std::isfinite(stored) && may_leave_its_range(o, std::abs(expected) + bound)))) {
      ++differences.inconclusive;
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
  if (!meant_) return;
  for (const auto& meant : meant_->models) meant->forget_before(past);
}

}  // namespace gradledger::ref
