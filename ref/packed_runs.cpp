#include "ref/packed_runs.h"

#include <algorithm>
#include <cmath>

#include "ref/dtype_facts.h"
#include "ref/loss_scale.h"

namespace gradledger::ref {
namespace {

constexpr std::uint64_t kept_bytes_max = std::uint64_t{256} << 20;

}  // namespace

PackedRuns::PackedRuns(const Workload& workload, const Timeline& timeline, const Ledger& ledger, const ProbeRange& range, std::uint64_t seed)
    : workload_(workload), timeline_(timeline), ledger_(ledger), packing_(packing_of(timeline, range, ledger.lone_rounding())), seed_(seed) {
  rounding_.exact = packing_.exact;
  rounding_.precision = range.precision;
  rounding_.unit = packing_.unit;
  rounding_.lone = ledger.lone_rounding();
  for (Dtype dtype : {workload.model_dtype, timeline.contract.accumulation, timeline.contract.wire})
    rounding_.addition = std::max(rounding_.addition, facts_of(dtype).unit_roundoff());
}

const GradientSource& PackedRuns::next_run(std::optional<std::uint32_t> every_second) {
  packed_.push_back(std::make_unique<PackedSource>(workload_, timeline_, packing_, seed_, runs(), every_second));
  of_windows_ = every_second.has_value();
  sources_.push_back(std::make_unique<PlantedSource>(*packed_.back(), timeline_));
  return *sources_.back();
}

// Stands before the judge of a run, if it has one.
class PackedRuns::Keeper final : public TraceSink {
 public:
  Keeper(PackedRuns& runs, PassJudge* judge) : runs_(runs), judge_(judge), looks_for_left_over_(judge && !runs.of_windows_ && hides_earlier_windows(runs.timeline_)) {}

  void observe(const Observation& o) override {
    const SnapshotKey key{o.event, o.at_end, o.rank, std::string(o.buffer)};
    if (!judge_) {
      const auto kept = runs_.kept_.find(key);
      if (kept != runs_.kept_.end() && !runs_.settled_.contains(key)) runs_.keep(o, kept->second);
      return;
    }
    const std::size_t before = judge_->mismatches().size();
    judge_->observe(o);
    if (looks_for_left_over_ && !runs_.found_left_over_ && o.at_end) look_for_left_over(o);
    if (const auto kept = runs_.kept_.find(key); kept != runs_.kept_.end()) return runs_.keep(o, kept->second);
    const auto in_values = runs_.of_windows_ ? runs_.wrong_values_.end() : runs_.wrong_values_.find(key);
    const bool seen = judge_->mismatches().size() > before;
    if (!seen && in_values == runs_.wrong_values_.end()) return;
    // Of each rank and window what is wrong first, and the applied gradient.
    const Wrong wrong = seen ? Wrong{judge_->mismatches().back().step, judge_->mismatches().back().after} : in_values->second;
    const std::uint32_t first = runs_.first_wrong_.try_emplace({o.rank, wrong.step, !seen}, o.event).first->second;
    if (first != o.event && o.role != Role::applied_gradient) return;
    Kept& kept = runs_.kept_[key];
    kept.role = o.role;
    kept.after = wrong.after;
    kept.only_in_values = !seen;
    if (seen) kept.wrong = judge_->mismatches().back().ranges;
    runs_.keep(o, kept);
  }

  void engine_error(const EngineErrorRecord& record) override {
    if (judge_) judge_->engine_error(record);
  }
  void event_done(std::uint32_t rank, std::uint32_t event) override {
    if (judge_) judge_->event_done(rank, event);
    last_event_[rank] = event;
  }

 private:
  // A sum of gradients that was there, and not zero, when the window before was over, and is there behind a backward of this one.
  void look_for_left_over(const Observation& o) {
    if (!holds_gradients(o.role) || o.role == Role::applied_gradient) return;
    const std::vector<Event>& events = runs_.timeline_.events;
    Left& left = left_[{o.rank, std::string(o.buffer)}];
    const auto before = last_event_.find(o.rank);
    const bool stayed = before != last_event_.end() && left.event == before->second && left.nonzero, is_backward = events[o.event].is<events::Backward>();
    const std::uint32_t window = events[o.event].documented;
    runs_.found_left_over_ = stayed && is_backward && left.window != window;
    const bool nonzero = std::any_of(o.pieces.begin(), o.pieces.end(), [](const ObservedPiece& piece) { return holds_any(piece); });
    left = {o.event, stayed && !is_backward ? left.window : window, nonzero};
  }
  static bool holds_any(const ObservedPiece& piece) {
    const auto* const begin = static_cast<const std::byte*>(piece.data);
    return piece.parameter >= 0 && std::any_of(begin, begin + std::size_t{piece.numel} * size_of(piece.dtype), [](std::byte b) { return b != std::byte{0}; });
  }

  struct Left {
    std::uint32_t event = never, window = 0;  // that of the last backward before it
    bool nonzero = false;
  };
  PackedRuns& runs_;
  PassJudge* judge_;
  const bool looks_for_left_over_;
  std::map<std::pair<std::uint32_t, std::string>, Left> left_;
  std::map<std::uint32_t, std::uint32_t> last_event_;  // by rank
};

void PackedRuns::expect_wrong(const std::vector<Mismatch>& values) {
  for (const Mismatch& mismatch : values)
    if (!mismatch.clipping) wrong_values_.try_emplace(mismatch.key, Wrong{mismatch.step, mismatch.after});
}

std::unique_ptr<TraceSink> PackedRuns::keeper(PassJudge* judge) { return std::make_unique<Keeper>(*this, judge); }

void PackedRuns::keep(const Observation& o, Kept& kept) {
  std::vector<ElementRange> layout;
  std::vector<double> held, error;
  for (const ObservedPiece& piece : o.pieces) {
    if (piece.parameter < 0 || piece.numel == 0) continue;
    bytes_kept_ += std::uint64_t{piece.numel} * 2 * sizeof(double);
    if (bytes_kept_ > kept_bytes_max) return;
    layout.push_back({static_cast<std::uint32_t>(piece.parameter), piece.parameter_offset, piece.parameter_offset + piece.numel});
    const std::size_t at = held.size();
    held.resize(at + piece.numel);
    read_stored(piece.dtype, piece.data, piece.numel, held.data() + at);
    // Below the smallest values of a format something is lost, even of exact sums.
    const double smallest = packing_.exact ? 0 : facts_of(piece.dtype).tiny() * workload_.world_size;
    for (std::uint32_t i = 0; i < piece.numel; ++i) {
      held[at + i] /= o.scale;
      error.push_back(((piece.error ? piece.error[i] : 0) + smallest) / o.scale);
    }
  }
  if (!kept.held.empty() && layout != kept.layout) return;  // another buffer of that name: it tells nothing of the first
  kept.layout = std::move(layout);
  kept.held.resize(runs());
  kept.error.resize(runs());
  kept.held.back() = std::move(held);
  kept.error.back() = std::move(error);
}

void PackedRuns::take_windows_alone() {
  for (auto& [key, kept] : kept_) {
    if (kept.held.size() < runs() || std::any_of(kept.held.begin() + 1, kept.held.end(), [](const auto& held) { return held.empty(); })) continue;
    kept.held.front().clear();
    kept.error.front().clear();
  }
}

bool PackedRuns::decode() {
  decoded_.clear();
  std::vector<WeightPattern> patterns;
  bool done = true;
  for (auto& [key, kept] : kept_) {
    decoded_.push_back(take_apart(key, kept, patterns));
    // One run may have balanced by chance.
    const bool confirmed = !kept.only_in_values || runs() > 1;
    if (confirmed && !decoded_.back().open) settled_.insert(key);
    done = done && confirmed;
  }
  // What was told of one rank or window may be what happened to another one, of which less is shown.
  const bool may_hide = std::any_of(patterns.begin(), patterns.end(), [](const WeightPattern& p) { return p.least_share < 1; });
  for (Decoded& decoded : decoded_) {
    if (may_hide || (decoded.open && !patterns.empty())) decoded = take_apart(decoded.entry.key, kept_[decoded.entry.key], patterns);
    done = done && !decoded.open;
  }
  return done;
}

bool PackedRuns::hides() const {
  return std::any_of(decoded_.begin(), decoded_.end(), [](const Decoded& decoded) { return decoded.hides; });
}

BornOut PackedRuns::bear_out(LedgerEntry& alone) const {
  const auto kept = kept_.find(alone.key);
  if (kept == kept_.end()) return BornOut::no;
  std::erase_if(alone.layout, [](const ElementRange& piece) { return piece.begin == piece.end; });
  if (alone.layout != kept->second.layout) return BornOut::no;
  TakingApart taking(workload_, timeline_, ledger_, rounding_, alone);
  taking.set_wrong(kept->second.wrong);
  add_runs(kept->second, taking);
  return taking.bear_out();
}

// How many elements they have.
std::size_t PackedRuns::add_runs(const Kept& kept, TakingApart& taking) const {
  std::size_t elements = 0;
  for (std::uint32_t run = 0; run < kept.held.size(); ++run)
    if (!kept.held[run].empty()) {
      taking.add(*sources_[run], kept.held[run], kept.error[run]);
      elements += kept.held[run].size();
    }
  return elements;
}

// Twice as many as weights tell what is wrong from what only fits.
bool PackedRuns::lacks_equations() const {
  constexpr std::size_t spare = 8;
  return std::any_of(decoded_.begin(), decoded_.end(), [&](const Decoded& d) { return d.open && d.equations < packing_.classes * (2 * d.entry.columns.size() + spare); });
}

PackedRuns::Decoded PackedRuns::take_apart(const SnapshotKey& key, const Kept& kept, std::vector<WeightPattern>& patterns) const {
  Decoded out;
  out.only_in_values = kept.only_in_values;
  out.entry = ledger_.empty_entry(key, kept.role, kept.after);
  out.entry.layout = kept.layout;
  TakingApart taking(workload_, timeline_, ledger_, rounding_, out.entry);
  const std::vector<WeightPattern> known = patterns;
  taking.set_patterns(known);
  taking.set_wrong(kept.wrong);
  out.equations = add_runs(kept, taking);
  out.missing = !taking.run();
  out.open = !out.missing && taking.open();
  out.hides = !out.missing && taking.hides();
  if (out.missing) return out;
  constexpr std::size_t patterns_max = 64;
  for (WeightPattern& pattern : taking.patterns())
    if (patterns.size() < patterns_max && std::find(patterns.begin(), patterns.end(), pattern) == patterns.end()) patterns.push_back(std::move(pattern));
  return out;
}

}  // namespace gradledger::ref
