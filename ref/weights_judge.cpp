#include "ref/weights_judge.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

namespace gradledger::ref {

WeightsJudge::WeightsJudge(const Workload& workload, const Timeline& timeline, const Ledger& ledger, std::vector<JudgedSnapshot>* judged)
    : workload_(workload), timeline_(timeline), ledger_(ledger), book_(workload, timeline, judged, false) {
  number_of({});  // 0: nobody weighs anything
  changes_ = timeline.gradients_set;
  for (const auto* drops : {&timeline.dropped_at, &timeline.dropped_documented})
    for (const std::vector<std::uint32_t>& by_rank : *drops)
      std::copy_if(by_rank.begin(), by_rank.end(), std::back_inserter(changes_), [](std::uint32_t event) { return event != never; });
  std::sort(changes_.begin(), changes_.end());
  changes_.erase(std::unique(changes_.begin(), changes_.end()), changes_.end());
}

std::uint32_t WeightsJudge::number_of(Cells cells) {
  const auto [at, fresh] = numbers_.try_emplace(std::move(cells), static_cast<std::uint32_t>(cells_.size()));
  if (fresh) cells_.push_back(&at->first);
  return at->second;
}

// Each backward and rank once, as 1: the same contribution may come from several other elements, and how much of it does says nothing.
WeightsJudge::Cells WeightsJudge::united(Cells cells) {
  std::sort(cells.begin(), cells.end());
  Cells out;
  for (const Cell& cell : cells) {
    if (!out.empty() && out.back().backward == cell.backward && cell.begin <= out.back().end) out.back().end = std::max(out.back().end, cell.end);
    else out.push_back({cell.backward, cell.begin, cell.end, 1});
  }
  return out;
}

// The terms of one element as cells, in units of the true gradient.
WeightsJudge::Piece WeightsJudge::taken(const WeightPiece& piece, double scale) {
  const auto begin = piece.parameter_offset;
  Piece out{{piece.parameter, begin, begin + piece.numel}, piece.held, 0, 0};
  if (piece.constant != 0) out.held = WeightPiece::Held::unwritten;  // as far from a sum of gradients
  if (out.held != WeightPiece::Held::weights) return out;
  const auto key = std::tuple(piece.form, piece.shift, scale);
  if (const auto known = taken_.find(key); known != taken_.end()) {
    std::tie(out.cells, out.misplaced) = known->second;
    return out;
  }
  Cells cells, misplaced;
  for (const WeightTerm& term : piece.terms)
    for (std::uint32_t b = term.backward_begin; b < term.backward_end; ++b)
      (term.shift + piece.shift == 0 ? cells : misplaced).push_back({b, term.rank_begin, term.rank_end, value_of(term.weight) / scale});
  std::sort(cells.begin(), cells.end());
  out.cells = number_of(std::move(cells));
  out.misplaced = number_of(united(std::move(misplaced)));
  taken_[key] = {out.cells, out.misplaced};
  return out;
}

// What is due of a backward by everything that may differ between two snapshots which count it.
const WeightsJudge::Cells& WeightsJudge::due_of_backward(const LedgerEntry& entry, std::uint32_t b, std::uint32_t parameter, std::uint32_t only_rank) {
  const std::uint32_t last_event = entry.key.at_end ? entry.key.event : entry.key.event - 1, event = timeline_.backwards[b].event;
  const std::uint32_t reduced = timeline_.reduction_before(last_event + 1, entry.step);
  const std::uint32_t bits = (reduced != never && event <= reduced) | (entry.after == never || event > entry.after) << 1 | timeline_.events[entry.key.event].updates() << 2;
  const auto changes = static_cast<std::size_t>(std::upper_bound(changes_.begin(), changes_.end(), last_event) - changes_.begin());
  const auto [at, fresh] = due_of_backward_.try_emplace({b, parameter, entry.role, only_rank, changes, bits});
  const bool own = entry.role == Role::local_accumulator;
  for (std::uint32_t r = own ? entry.key.rank : 0; fresh && r < (own ? entry.key.rank + 1 : workload_.world_size); ++r) {
    const double weight = timeline_.backwards[b].micro_batch[r] == no_contribution ? 0 : ledger_.expected(entry, b, r, parameter);
    if (weight == 0) continue;
    Cells& cells = at->second;
    if (!cells.empty() && cells.back().end == r && cells.back().weight == weight) ++cells.back().end;
    else cells.push_back({b, r, r + 1, weight});
  }
  return at->second;
}

WeightsJudge::Cells WeightsJudge::work_out_due(const LedgerEntry& entry, std::uint32_t parameter) {
  const Layer layer = entry.role == Role::applied_gradient ? Layer::meant : Layer::documented;
  const std::uint32_t only_rank = same_on_all_ranks(entry.role) ? never : entry.key.rank;
  const std::uint32_t end = entry.key.at_end ? entry.key.event + 1 : entry.key.event;
  const auto first = first_backward_of(entry.step, layer);
  Cells cells;
  for (auto at = first; at != timeline_.backwards.end() && timeline_.window_of(*at, layer) == entry.step && at->event < end; ++at) {
    const Cells& of_backward = due_of_backward(entry, static_cast<std::uint32_t>(at - timeline_.backwards.begin()), parameter, only_rank);
    cells.insert(cells.end(), of_backward.begin(), of_backward.end());
  }
  return cells;
}

bool WeightsJudge::same_on_all_ranks(Role role) const {
  return role == Role::reduced_accumulator || role == Role::master_gradient || (role == Role::applied_gradient && timeline_.contract.average_group.empty());
}

std::uint32_t WeightsJudge::due_of(const LedgerEntry& entry, std::uint32_t parameter) {
  const DueKey key{entry.key.event, entry.key.at_end, entry.role, entry.after, same_on_all_ranks(entry.role) ? never : entry.key.rank, parameter};
  const auto [at, fresh] = due_.try_emplace(key, 0);
  if (fresh) at->second = number_of(work_out_due(entry, parameter));
  return at->second;
}

// Both are quotients of whole numbers, up to the roundings of a few products in fp64.
bool WeightsJudge::same(double held, double due) const { return std::abs(held - due) <= ledger_.rounding() * std::abs(due); }

bool WeightsJudge::balances(std::uint32_t held, std::uint32_t due) {
  if (held == due) return true;
  const auto [at, fresh] = compared_.try_emplace({held, due}, false);
  if (fresh) at->second = equal(*cells_[held], *cells_[due]);
  return at->second;
}

// Runs of ranks may be cut differently.
bool WeightsJudge::equal(const Cells& a, const Cells& b) const {
  std::size_t i = 0, j = 0;
  std::uint32_t done_a = 0, done_b = 0;  // ranks of the cells at hand that were compared
  while (i < a.size() && j < b.size()) {
    if (a[i].backward != b[j].backward || a[i].begin + done_a != b[j].begin + done_b || !same(a[i].weight, b[j].weight)) return false;
    const std::uint32_t ranks = std::min(a[i].end - a[i].begin - done_a, b[j].end - b[j].begin - done_b);
    done_a += ranks;
    done_b += ranks;
    if (a[i].begin + done_a == a[i].end) ++i, done_a = 0;
    if (b[j].begin + done_b == b[j].end) ++j, done_b = 0;
  }
  return i == a.size() && j == b.size();
}

void WeightsJudge::weights(const WeightObservation& o) {
  elements_.clear();
  pieces_.clear();
  contents_.clear();
  std::uint32_t shown_piece = 0;
  for (const WeightPiece& piece : o.pieces) {
    pieces_.push_back(taken(piece, o.scale));
    const ElementRange& next = pieces_.back().elements;
    if (!elements_.empty() && shown_piece == piece.piece) elements_.back().end = next.end;
    else elements_.push_back(next);
    shown_piece = piece.piece;
    contents_.insert(contents_.end(), {piece.numel, static_cast<std::uint64_t>(piece.held), piece.form, static_cast<std::uint64_t>(piece.shift)});
  }
  const std::span<const std::byte> bytes = std::as_bytes(std::span(contents_));
  const Shown shown{o.rank, o.event, o.at_end, o.buffer, o.role, elements_, {&bytes, 1}};
  if (const auto due = book_.open(shown)) judge(o, *due, book_.window(shown));
}

void WeightsJudge::judge(const WeightObservation& o, const Due& due, std::uint32_t window) {
  LedgerEntry entry;
  entry.key = {o.event, o.at_end, o.rank, {}};
  entry.role = o.role;
  entry.step = window;
  entry.after = due.after;
  JudgeStatistics& statistics = book_.statistics();
  ++statistics.snapshots;
  Mismatch mismatch;
  bool compared = false, untold = false;
  for (const Piece& piece : pieces_) {
    const std::uint64_t numel = piece.elements.end - piece.elements.begin;
    statistics.elements += numel;
    if (piece.held == WeightPiece::Held::untold) {
      statistics.inconclusive += numel;
      untold = true;
      continue;
    }
    compared = true;
    const bool right = piece.held == WeightPiece::Held::weights && cells_[piece.misplaced]->empty() && balances(piece.cells, due_of(entry, piece.elements.parameter));
    if (right) continue;
    mismatch.wrong_elements += numel;
    auto& ranges = mismatch.ranges;
    if (!ranges.empty() && ranges.back().parameter == piece.elements.parameter && ranges.back().end == piece.elements.begin) ranges.back().end = piece.elements.end;
    else ranges.push_back(piece.elements);
  }
  const bool applied = o.role == Role::applied_gradient;
  if (applied && compared) book_.compared_applied(o.event);
  const bool wrong = mismatch.wrong_elements > 0;
  if (!applied && !wrong) return;
  entry.key.buffer = o.buffer;
  if (applied && untold) untold_.push_back(entry.key);
  // Of a rank's window the first event that does not balance is taken apart, and what steps applied.
  const bool first = wrong && first_wrong_.try_emplace({o.rank, window}, o.event).first->second == o.event;
  if (applied || first) kept_[entry.key] = {o.role, window, due.after, pieces_};
  if (!wrong) return;
  wrong_.insert(entry.key);
  mismatch.key = std::move(entry.key);
  mismatch.role = o.role;
  mismatch.step = window;
  mismatch.after = due.after;
  mismatch.scale = o.scale;
  mismatches_.push_back(std::move(mismatch));
}

double WeightsJudge::weight_in(const Cells& cells, std::uint32_t backward, std::uint32_t rank) {
  const auto after =
      std::upper_bound(cells.begin(), cells.end(), std::pair(backward, rank), [](const auto& at, const Cell& cell) { return at < std::pair(cell.backward, cell.begin); });
  if (after == cells.begin()) return 0;
  const Cell& cell = *std::prev(after);
  return cell.backward == backward && rank < cell.end ? cell.weight : 0;
}

// The contributions of the snapshot's window, and of other windows those that it holds: a script may have thousands of windows. Memory that nobody
// wrote has no weight of any contribution; the last ones stand for all.
std::set<std::pair<std::uint32_t, std::uint32_t>> WeightsJudge::columns_of(const SnapshotKey& key, const Kept& kept, Layer layer) const {
  constexpr std::size_t of_unwritten_max = 1024;
  std::set<std::pair<std::uint32_t, std::uint32_t>> out;
  for (const Piece& piece : kept.pieces)
    for (const std::uint32_t held : {piece.cells, piece.misplaced})
      for (const Cell& cell : *cells_[held])
        for (std::uint32_t r = cell.begin; r < cell.end; ++r) out.emplace(cell.backward, r);
  const auto first = first_backward_of(kept.step, layer);
  for (auto at = first; at != timeline_.backwards.end() && timeline_.window_of(*at, layer) == kept.step; ++at)
    for (std::uint32_t r = 0; r < workload_.world_size; ++r)
      if (at->micro_batch[r] != no_contribution) out.emplace(static_cast<std::uint32_t>(at - timeline_.backwards.begin()), r);
  const bool unwritten = std::any_of(kept.pieces.begin(), kept.pieces.end(), [](const Piece& piece) { return piece.held == WeightPiece::Held::unwritten; });
  for (auto b = static_cast<std::uint32_t>(timeline_.backwards.size()); unwritten && b-- > 0 && out.size() < of_unwritten_max;)
    for (std::uint32_t r = 0; timeline_.backwards[b].event <= key.event && r < workload_.world_size; ++r)
      if (timeline_.backwards[b].micro_batch[r] != no_contribution) out.emplace(b, r);
  return out;
}

std::vector<Backward>::const_iterator WeightsJudge::first_backward_of(std::uint32_t window, Layer layer) const {
  return std::partition_point(timeline_.backwards.begin(), timeline_.backwards.end(), [&](const Backward& b) { return timeline_.window_of(b, layer) < window; });
}

LedgerEntry WeightsJudge::entry(const SnapshotKey& key) const {
  const Kept& kept = kept_.at(key);
  const Layer layer = kept.role == Role::applied_gradient ? Layer::meant : Layer::documented;
  LedgerEntry out;
  out.symbolic = true;
  out.key = key;
  out.role = kept.role;
  out.step = kept.step;
  out.after = kept.after;
  for (const auto& [b, r] : columns_of(key, kept, layer))
    out.columns.push_back(
        {b, r, timeline_.contribution(b, r), timeline_.backwards[b].documented, timeline_.own_weight(b, r), timeline_.averaged_weight(b, r, key.rank, layer), {}, {}});
  std::uint64_t at = 0;
  for (const Piece& piece : kept.pieces) {
    out.layout.push_back(piece.elements);
    const std::uint64_t end = at + piece.elements.end - piece.elements.begin;
    for (LedgerColumn& column : out.columns) {
      CoefficientRun run{at, end, ledger_.snapped(weight_in(*cells_[piece.cells], column.backward, column.rank), column)};
      run.misplaced = weight_in(*cells_[piece.misplaced], column.backward, column.rank) != 0;
      run.open = piece.held == WeightPiece::Held::untold;
      if (run.open) run.coefficient = ledger_.expected(out, column.backward, column.rank, piece.elements.parameter);
      if (piece.held == WeightPiece::Held::unwritten) run.coefficient = std::numeric_limits<double>::quiet_NaN();
      column.runs.push_back(run);
    }
    at = end;
  }
  return out;
}

}  // namespace gradledger::ref
