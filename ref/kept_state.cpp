#include "ref/kept_state.h"

#include <algorithm>

#include <fmt/format.h>

#include "ref/describe.h"
#include "ref/dtype_facts.h"
#include "sim/base/hash.h"

namespace gradledger::ref {

KeptStateJudge::KeptStateJudge(const Workload& workload, const Timeline& timeline, const GradientSource& source)
    : workload_(workload), timeline_(timeline), source_(source), ranks_(workload.world_size) {}

void KeptStateJudge::step_fact(const StepRecord& r) {
  if (r.fact == StepFact::skipped && r.value != 0 && timeline_.events[r.event].steps()) ranks_[r.rank].skipped_at = r.event;
}

void KeptStateJudge::observe(const Observation& o) {
  RankState& rank = ranks_[o.rank];
  if (o.role == Role::applied_gradient) rank.applied_at = o.event;
  if (!o.at_end || (o.role != Role::parameter && o.role != Role::master_parameter && !is_moment(o.role))) return;
  std::vector<std::uint64_t> hashes = hashes_of(o);
  const auto before = rank.hashes.find(o.buffer);
  if (rank.skipped_at == o.event && rank.applied_at != o.event) compare(o, before == rank.hashes.end() ? nullptr : &before->second, hashes);
  rank.hashes.insert_or_assign(std::string(o.buffer), std::move(hashes));
}

std::vector<std::uint64_t> KeptStateJudge::hashes_of(const Observation& o) const {
  std::vector<std::uint64_t> out;
  for (const ObservedPiece& piece : o.pieces) {
    TraceHash hash;
    if (piece.parameter >= 0) hash.add_bytes({piece.data, piece.numel * std::size_t{size_of(piece.dtype)}});
    out.push_back(hash.value());
  }
  return out;
}

// Weights begin as the data says, which every format on the way holds, and moments at zero.
bool KeptStateJudge::as_at_the_start(const Observation& o, const ObservedPiece& piece) const {
  std::vector<double> stored(piece.numel), initial(piece.numel, 0.0);
  read_stored(piece.dtype, piece.data, piece.numel, stored.data());
  if (!is_moment(o.role)) source_.initial_parameter(static_cast<std::uint32_t>(piece.parameter), piece.parameter_offset, initial);
  return stored == initial;
}

void KeptStateJudge::compare(const Observation& o, const std::vector<std::uint64_t>* before, const std::vector<std::uint64_t>& after) {
  StepMismatch mismatch;
  mismatch.event = o.event;
  mismatch.rank = o.rank;
  for (std::size_t i = 0; i < o.pieces.size(); ++i) {
    const ObservedPiece& piece = o.pieces[i];
    if (piece.parameter < 0 || piece.numel == 0) continue;
    if (before ? i < before->size() && (*before)[i] == after[i] : as_at_the_start(o, piece)) continue;
    mismatch.elements.push_back({static_cast<std::uint32_t>(piece.parameter), piece.parameter_offset, piece.parameter_offset + piece.numel});
  }
  const bool known = std::any_of(mismatches_.begin(), mismatches_.end(), [&](const StepMismatch& m) { return m.event == o.event && m.rank == o.rank; });
  if (mismatch.elements.empty() || known) return;
  mismatch.what = fmt::format("skips, and {} changes in {} all the same", o.buffer, elements_text(workload_, mismatch.elements));
  mismatches_.push_back(std::move(mismatch));
}

}  // namespace gradledger::ref
