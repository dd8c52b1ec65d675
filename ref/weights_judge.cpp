#include "ref/weights_judge.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <span>

namespace gradledger::ref {

WeightsJudge::WeightsJudge(const Workload& workload, const Timeline& timeline, const Ledger& ledger, std::vector<JudgedSnapshot>* judged)
    : workload_(workload), timeline_(timeline), ledger_(ledger), book_(workload, timeline, nullptr, false), judged_(judged), first_wrong_(workload.world_size) {
  number_of({});          // 0: nobody weighs anything
  number_of_profile({});  // likewise
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

std::uint32_t WeightsJudge::number_of_profile(Profile profile) {
  const auto [at, fresh] = profile_numbers_.try_emplace(std::move(profile), static_cast<std::uint32_t>(profiles_.size()));
  if (fresh) profiles_.push_back(&at->first);
  return at->second;
}

void WeightsJudge::append(Cells& cells, const Block& block) {
  if (block.profile == 0 || block.begin == block.end) return;
  if (!cells.empty() && cells.back().end == block.begin && cells.back().profile == block.profile) cells.back().end = block.end;
  else cells.push_back(block);
}

// Terms overlap in backwards and in ranks as they like: cut where the backwards of any begin or end. What is misplaced counts once for each backward
// and rank, as 1: the same contribution may come from several other elements, and how much of it does says nothing.
WeightsJudge::Cells WeightsJudge::cells_of(std::vector<WeightTerm> terms, double scale, bool misplaced) {
  std::sort(terms.begin(), terms.end(), [](const WeightTerm& a, const WeightTerm& b) { return a.backward_begin < b.backward_begin; });
  std::vector<std::uint32_t> cuts;
  for (const WeightTerm& term : terms) cuts.insert(cuts.end(), {term.backward_begin, term.backward_end});
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  Cells out;
  std::vector<RankRun> live;  // of the terms that reach into the stretch at hand
  std::vector<std::uint32_t> ends;
  std::size_t next = 0;
  for (std::size_t c = 0; c + 1 < cuts.size(); ++c) {
    for (std::size_t i = live.size(); i-- > 0;)
      if (ends[i] <= cuts[c]) live.erase(live.begin() + static_cast<std::ptrdiff_t>(i)), ends.erase(ends.begin() + static_cast<std::ptrdiff_t>(i));
    for (; next < terms.size() && terms[next].backward_begin == cuts[c]; ++next) {
      live.push_back({terms[next].rank_begin, terms[next].rank_end, misplaced ? 1 : value_of(terms[next].weight) / scale});
      ends.push_back(terms[next].backward_end);
    }
    Profile runs = live, profile;
    std::sort(runs.begin(), runs.end());
    for (const RankRun& run : runs) {
      if (run.weight == 0) continue;
      if (!profile.empty() && run.begin <= profile.back().end && run.weight == profile.back().weight) profile.back().end = std::max(profile.back().end, run.end);
      else profile.push_back(run);
    }
    append(out, {cuts[c], cuts[c + 1], number_of_profile(std::move(profile))});
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
  const auto known = last_taken_ != taken_.end() && last_taken_->first == key ? last_taken_ : taken_.find(key);
  if (known != taken_.end()) {
    last_taken_ = known;
    std::tie(out.cells, out.misplaced) = known->second;
    return out;
  }
  std::vector<WeightTerm> here, elsewhere;
  for (const WeightTerm& term : piece.terms) (term.shift + piece.shift == 0 ? here : elsewhere).push_back(term);
  out.cells = number_of(cells_of(std::move(here), scale, false));
  out.misplaced = number_of(cells_of(std::move(elsewhere), scale, true));
  taken_[key] = {out.cells, out.misplaced};
  return out;
}

// Precondition: the snapshot counts the backward, and the kind is that of both.
std::uint32_t WeightsJudge::due_of_backward(const LedgerEntry& entry, std::uint32_t b, const DueKind& kind) {
  const auto [at, fresh] = due_of_backward_.try_emplace({b, kind}, 0);
  if (!fresh) return at->second;
  // Before a reduction a rank has what is its own at most: the others' need not be asked for.
  const bool own = entry.role == Role::local_accumulator || (entry.role != Role::applied_gradient && !kind.reduced);
  Profile profile;
  const std::uint32_t mine = timeline_.contract.contributor(entry.key.rank, kind.parameter);
  DueWeights due = ledger_.due(entry, kind.parameter);
  for (std::uint32_t r = own ? mine : 0; r < (own ? mine + 1 : workload_.world_size); ++r) {
    const double weight = timeline_.backwards[b].micro_batch[r] == no_contribution ? 0 : due.of(b, r);
    if (weight == 0) continue;
    if (!profile.empty() && profile.back().end == r && profile.back().weight == weight) ++profile.back().end;
    else profile.push_back({r, r + 1, weight});
  }
  return at->second = number_of_profile(std::move(profile));
}

void WeightsJudge::append_due(const LedgerEntry& entry, const DueKind& kind, std::uint32_t begin, std::uint32_t end, Cells& out) {
  if (begin >= end) return;
  Grown& grown = grown_.try_emplace({begin, kind}, Grown{begin, {}}).first->second;
  for (; grown.end < end; ++grown.end) append(grown.cells, {grown.end, grown.end + 1, due_of_backward(entry, grown.end, kind)});
  for (const Block& block : grown.cells) {
    if (block.begin >= end) break;
    append(out, {block.begin, std::min(block.end, end), block.profile});
  }
}

// The window's backwards up to the snapshot, cut behind the last reduction and behind what the buffer counts from.
WeightsJudge::Cells WeightsJudge::work_out_due(const LedgerEntry& entry, std::uint32_t parameter) {
  const Layer layer = entry.role == Role::applied_gradient ? Layer::meant : Layer::documented;
  const std::uint32_t last_event = timeline_.events_behind(entry.key.event, entry.key.at_end) - 1;
  const auto window = timeline_.backwards_of(entry.step, layer);
  const auto behind = [&](std::uint32_t event) {
    const auto of = std::span(timeline_.backwards).subspan(*window.begin(), window.size());
    return *window.begin() + static_cast<std::uint32_t>(std::partition_point(of.begin(), of.end(), [&](const Backward& b) { return b.event <= event; }) - of.begin());
  };
  DueKind kind{parameter, entry.role, never, 0, false, false, timeline_.events[entry.key.event].updates()};
  kind.changes = static_cast<std::size_t>(std::upper_bound(changes_.begin(), changes_.end(), last_event) - changes_.begin());
  const std::uint32_t reduced = timeline_.reduction_before(last_event + 1, entry.step), begin = *window.begin(), end = behind(last_event);
  const std::uint32_t unreduced = reduced == never ? begin : std::min(end, behind(reduced)), counted = entry.after == never ? begin : std::min(end, behind(entry.after));
  Cells cells;
  std::uint32_t at = begin;
  for (const std::uint32_t cut : {std::min(unreduced, counted), std::max(unreduced, counted), end}) {
    kind.reduced = at < unreduced;
    kind.after = at >= counted;
    // An average is the same wherever it was replicated to.
    const bool of_all = same_on_all_ranks(entry.role) || (entry.role == Role::replicated_accumulator && kind.reduced);
    kind.only_rank = of_all ? never : entry.key.rank;
    append_due(entry, kind, at, cut, cells);
    at = cut;
  }
  return cells;
}

bool WeightsJudge::same_on_all_ranks(Role role) const {
  return role == Role::reduced_accumulator || role == Role::master_gradient || (role == Role::applied_gradient && timeline_.contract.average_group.empty());
}

std::uint32_t WeightsJudge::due_of(const LedgerEntry& entry, std::uint32_t of) {
  const std::uint32_t parameter = ledger_.alike()[of];
  const DueKey key{entry.key.event, entry.key.at_end, entry.role, entry.after, same_on_all_ranks(entry.role) ? never : entry.key.rank, parameter};
  if (last_due_ && last_due_->first == key) return last_due_->second;
  const auto [at, fresh] = due_.try_emplace(key, 0);
  if (fresh) at->second = number_of(work_out_due(entry, parameter));
  last_due_ = *at;
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

// Whether two lists of what stands in [begin, end) hold alike things everywhere. They may be cut differently: things that balance need not be equal.
template <class List, class Alike>
bool alike_everywhere(const List& a, const List& b, Alike&& alike) {
  std::size_t i = 0, j = 0;
  for (std::uint32_t at = 0; i < a.size() && j < b.size();) {
    if (std::max(at, a[i].begin) != std::max(at, b[j].begin) || !alike(a[i], b[j])) return false;
    at = std::min(a[i].end, b[j].end);
    if (a[i].end == at) ++i;
    if (b[j].end == at) ++j;
  }
  return i == a.size() && j == b.size();
}

bool WeightsJudge::equal(const Cells& a, const Cells& b) {
  return alike_everywhere(a, b, [&](const Block& x, const Block& y) { return equal_profiles(x.profile, y.profile); });
}

bool WeightsJudge::equal_profiles(std::uint32_t a, std::uint32_t b) {
  if (a == b) return true;
  const auto [at, fresh] = compared_profiles_.try_emplace({a, b}, false);
  if (fresh) at->second = alike_everywhere(*profiles_[a], *profiles_[b], [&](const RankRun& x, const RankRun& y) { return same(x.weight, y.weight); });
  return at->second;
}

// Whether every contribution that is due is there, with whatever weight.
bool WeightsJudge::takes_part(std::uint32_t held, std::uint32_t due) const {
  for (const Block& block : *cells_[due])
    for (std::uint32_t b = block.begin; b < block.end; ++b)
      for (const RankRun& run : *profiles_[block.profile])
        for (std::uint32_t r = run.begin; r < run.end; ++r)
          if (weight_in(*cells_[held], b, r) == 0) return false;
  return true;
}

void WeightsJudge::weights(const WeightObservation& o) {
  elements_.clear();
  std::uint32_t shown_piece = 0;
  for (const WeightPiece& piece : o.pieces) {
    const std::uint64_t end = piece.parameter_offset + piece.numel;
    if (!elements_.empty() && shown_piece == piece.piece) elements_.back().end = end;
    else elements_.push_back({piece.parameter, piece.parameter_offset, end});
    shown_piece = piece.piece;
  }
  contents_of(o.pieces, contents_);
  const std::span<const std::byte> bytes = std::as_bytes(std::span(contents_));
  const bool zeros = o.role == Role::applied_gradient && std::all_of(o.pieces.begin(), o.pieces.end(), [](const WeightPiece& piece) {
                       return piece.held == WeightPiece::Held::weights && piece.constant == 0 && piece.terms.empty();
                     });
  const Shown shown{o.rank, o.event, o.at_end, o.buffer, o.role, elements_, {&bytes, 1}, zeros};
  const auto due = book_.open(shown);
  if (!due) return;
  pieces_.clear();
  for (const WeightPiece& piece : o.pieces) pieces_.push_back(taken(piece, o.scale));
  // Of what steps did not apply the books name what is wrong, and a list of all of it would be as long as the run.
  if (judged_ && o.role == Role::applied_gradient) judged_->push_back({{o.event, o.at_end, o.rank, std::string(o.buffer)}, o.role, book_.window(shown), due->after, elements_});
  judge(o, *due, book_.window(shown));
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
    const std::uint32_t due_cells = due_of(entry, piece.elements.parameter);
    const bool in_place = piece.held == WeightPiece::Held::weights && cells_[piece.misplaced]->empty();
    const bool approximated = timeline_.approximates_weights(piece.elements.parameter, o.event, o.at_end);
    if (in_place && (approximated ? takes_part(piece.cells, due_cells) : balances(piece.cells, due_cells))) {
      statistics.inconclusive += approximated ? numel : 0;
      untold = untold || approximated;
      continue;
    }
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
  const bool first = wrong && first_wrong_[o.rank].try_emplace(window, o.event).first->second == o.event;
  if (applied || first) kept_[entry.key] = {o.role, window, due.after, pieces_, wrong};
  if (!wrong) return;
  mismatch.key = std::move(entry.key);
  mismatch.role = o.role;
  mismatch.step = window;
  mismatch.after = due.after;
  mismatch.scale = o.scale;
  mismatches_.push_back(std::move(mismatch));
}

double WeightsJudge::weight_in(const Cells& cells, std::uint32_t backward, std::uint32_t rank) const {
  const auto block = std::partition_point(cells.begin(), cells.end(), [&](const Block& b) { return b.end <= backward; });
  if (block == cells.end() || block->begin > backward) return 0;
  const Profile& profile = *profiles_[block->profile];
  const auto run = std::partition_point(profile.begin(), profile.end(), [&](const RankRun& r) { return r.end <= rank; });
  return run == profile.end() || run->begin > rank ? 0 : run->weight;
}

// The contributions of the snapshot's window, and of other windows those that it holds: a script may have thousands of windows. Memory that nobody
// wrote has no weight of any contribution; the last ones stand for all. So they do where weights are untold and nothing is due: without a column a row
// would say that nothing is there.
std::vector<std::pair<std::uint32_t, std::uint32_t>> WeightsJudge::columns_of(const SnapshotKey& key, const Kept& kept, Layer layer) const {
  constexpr std::size_t of_unwritten_max = 1024;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> out;
  const auto settle = [&] {
    if (!std::is_sorted(out.begin(), out.end())) std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
  };
  for (const std::uint32_t b : timeline_.backwards_of(kept.step, layer))
    for (std::uint32_t r = 0; r < workload_.world_size; ++r)
      if (timeline_.backwards[b].micro_batch[r] != no_contribution) out.emplace_back(b, r);
  const auto in_window = static_cast<std::ptrdiff_t>(out.size());
  std::set<std::uint32_t> taken;
  for (const Piece& piece : kept.pieces) taken.insert({piece.cells, piece.misplaced});
  for (const std::uint32_t held : taken)
    for (const Block& block : *cells_[held])
      for (const RankRun& run : *profiles_[block.profile])
        for (std::uint32_t b = block.begin; b < block.end; ++b)
          for (std::uint32_t r = run.begin; r < run.end; ++r)
            if (const std::pair contribution(b, r); !std::binary_search(out.begin(), out.begin() + in_window, contribution)) out.push_back(contribution);
  settle();
  const std::size_t told = out.size();
  const auto any = [&](WeightPiece::Held held) { return std::any_of(kept.pieces.begin(), kept.pieces.end(), [&](const Piece& piece) { return piece.held == held; }); };
  const bool stand_in = any(WeightPiece::Held::unwritten) || (told == 0 && any(WeightPiece::Held::untold));
  for (auto b = static_cast<std::uint32_t>(timeline_.backwards.size()); stand_in && b-- > 0 && out.size() < of_unwritten_max;)
    for (std::uint32_t r = 0; timeline_.backwards[b].event <= key.event && r < workload_.world_size; ++r)
      if (const std::pair contribution(b, r);
          timeline_.backwards[b].micro_batch[r] != no_contribution && !std::binary_search(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(told), contribution))
        out.push_back(contribution);
  settle();
  return out;
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
  EntryColumns columns(timeline_, key.rank, layer);
  const auto contributions = columns_of(key, kept, layer);
  out.columns.reserve(contributions.size());
  for (const auto& [b, r] : contributions) out.columns.push_back(columns.column(b, r));
  std::uint64_t begin = 0, end = 0;
  for (std::size_t i = 0; i < kept.pieces.size(); ++i) {
    const Piece& piece = kept.pieces[i];
    out.layout.push_back(piece.elements);
    end += piece.elements.end - piece.elements.begin;
    if (i + 1 < kept.pieces.size() && weigh_alike(piece, kept.pieces[i + 1])) continue;
    append_runs(out, piece, begin, end);
    begin = end;
  }
  return out;
}

bool WeightsJudge::weigh_alike(const Piece& a, const Piece& b) const {
  if (a.held != b.held || a.cells != b.cells || a.misplaced != b.misplaced) return false;
  return a.held != WeightPiece::Held::untold || ledger_.alike()[a.elements.parameter] == ledger_.alike()[b.elements.parameter];
}

void WeightsJudge::append_runs(LedgerEntry& entry, const Piece& piece, std::uint64_t begin, std::uint64_t end) const {
  if (begin == end) return;
  const Cells &held = *cells_[piece.cells], &misplaced = *cells_[piece.misplaced];
  DueWeights due = ledger_.due(entry, piece.elements.parameter);
  for (LedgerColumn& column : entry.columns) {
    CoefficientRun run{begin, end, ledger_.snapped(weight_in(held, column.backward, column.rank), column)};
    run.misplaced = !misplaced.empty() && weight_in(misplaced, column.backward, column.rank) != 0;
    run.open = piece.held == WeightPiece::Held::untold;
    if (run.open) run.coefficient = due.of(column.backward, column.rank);
    if (piece.held == WeightPiece::Held::unwritten) run.coefficient = std::numeric_limits<double>::quiet_NaN();
    column.runs.push_back(run);
  }
}

}  // namespace gradledger::ref
