#include "ref/taking_apart.h"

#include <algorithm>
#include <cmath>

#include "ref/dtype_facts.h"
#include "ref/loss_scale.h"
#include "ref/normalisation.h"

namespace gradledger::ref {
namespace {

constexpr std::uint32_t failures_max = 256;  // stretches without weights, after which no more are tried

// A loop's scaler divides all that is in a gradient, what an earlier window left there too: by the scale of each window since.
double left_by_scalers(const std::vector<double>& scales, std::uint32_t window, std::uint32_t ago) {
  double out = 1;
  for (std::uint32_t i = 0; i < ago && window - i < scales.size(); ++i) out /= scales[window - i];
  return out;
}

std::vector<Term> terms_of(const LedgerEntry& entry, const Ledger& ledger, const Timeline& timeline) {
  const std::vector<double> scales = loss_scales(timeline);
  std::vector<Term> out;
  for (const LedgerColumn& column : entry.columns) {
    Term term;
    for (const ElementRange& piece : entry.layout) term.due = std::max(term.due, ledger.expected(entry, column.backward, column.rank, piece.parameter));
    term.own = column.own;
    term.averaged = column.averaged;
    term.windows_ago = windows_between(entry, column);
    term.left = left_by_scalers(scales, entry.step, term.windows_ago);
    term.own_rank = column.rank == entry.key.rank;
    term.boundary = timeline.backwards[column.backward].boundary;
    term.micro_batch = column.contribution.micro_batch;
    out.push_back(term);
  }
  return out;
}

// Up to a factor, and what rounding leaves of quotients of whole numbers.
bool same_shape(const WeightShape& a, const WeightShape& b) {
  double factor = 0;
  for (std::size_t k = 0; k < a.size(); ++k) {
    if ((a[k] == 0) != (b[k] == 0)) return false;
    if (a[k] == 0) continue;
    if (factor == 0) factor = b[k] / a[k];
    constexpr double roundings = 8;
    if (std::abs(b[k] / a[k] - factor) > roundings * facts_of(Dtype::float64).unit_roundoff() * std::abs(factor)) return false;
  }
  return true;
}

std::vector<WeightShape> shapes_of(const Workload& workload, const Timeline& timeline, const LedgerEntry& entry) {
  std::vector<WeightShape> out;
  if (!timeline.two_layers || entry.role != Role::applied_gradient) return out;
  for (Normalisation& known : known_normalisations(workload, timeline, entry))
    if (std::none_of(out.begin(), out.end(), [&](const WeightShape& shape) { return same_shape(shape, known.weights); })) out.push_back(std::move(known.weights));
  return out;
}

}  // namespace

std::uint32_t windows_between(const LedgerEntry& entry, const LedgerColumn& column) {
  const std::uint32_t window = entry.role == Role::applied_gradient ? column.contribution.step : column.documented;
  return window < entry.step ? entry.step - window : 0;
}

TakingApart::TakingApart(const Workload& workload, const Timeline& timeline, const Ledger& ledger, const RowRounding& rounding, LedgerEntry& entry)
    : workload_(workload),
      timeline_(timeline),
      ledger_(ledger),
      entry_(entry),
      exact_(rounding.exact),
      unit_(rounding.unit),
      addition_(rounding.addition),
      solver_(terms_of(entry, ledger, timeline), shapes_of(workload, timeline, entry), rounding) {
  for (std::uint32_t p = 0; p < entry.layout.size(); ++p) {
    numel_ += entry.layout[p].end - entry.layout[p].begin;
    piece_of_.resize(numel_, p);
    std::vector<double>& due = expected_.emplace_back();
    DueWeights weights = ledger.due(entry, entry.layout[p].parameter);
    for (const LedgerColumn& column : entry.columns) due.push_back(weights.of(column.backward, column.rank));
  }
  wrong_.assign(numel_, false);
}

void TakingApart::set_wrong(const std::vector<ElementRange>& ranges) {
  std::uint32_t e = 0;
  for (const ElementRange& piece : entry_.layout)
    for (std::uint64_t element = piece.begin; element < piece.end; ++element, ++e)
      wrong_[e] = std::any_of(ranges.begin(), ranges.end(), [&](const ElementRange& r) { return r.parameter == piece.parameter && r.begin <= element && element < r.end; });
}

void TakingApart::add(const GradientSource& source, const std::vector<double>& held, const std::vector<double>& error) {
  sources_.push_back(&source);
  held_.push_back(&held);
  error_.push_back(&error);
}

bool TakingApart::run() {
  if (!fill()) return false;
  became_.assign(numel_, unknown);
  Elements wrong;
  for (std::uint32_t e = 0; e < numel_; ++e) {
    bool due = true, any = false;
    for (const auto& rows : rows_) {
      if (!rows[e].gradients) continue;
      any = true;
      due = due && solver_.explains({{}, {}, {}, 1.0}, rows[e]);
    }
    if (any && due && !wrong_[e]) became_[e] = as_due;
    else if (any) wrong.push_back(e);
  }
  explain(wrong);
  // An answer that was found later, or beside, may be the answer here.
  Elements left;
  for (std::uint32_t e = 0; e < numel_; ++e)
    if (became_[e] == unknown && !rows_of({e}).empty()) left.push_back(e);
  try_answers(left);
  if (!left.empty()) look_elsewhere();
  drop_lone_answers();
  join_neighbours();
  look_for_hidden();
  write();
  return true;
}

// The equations of all runs. False: they are too many, or there are none.
bool TakingApart::fill() {
  const std::size_t columns = entry_.columns.size();
  if (columns == 0 || numel_ == 0 || sources_.empty() || std::size_t{numel_} * columns * sources_.size() > terms_max) return false;
  gradients_.assign(sources_.size() * numel_ * columns, 0.0f);
  rows_.resize(sources_.size());
  for (std::size_t run = 0; run < sources_.size(); ++run) fill(*sources_[run], run);
  return true;
}

// The gradients of one run, and its equations.
void TakingApart::fill(const GradientSource& source, std::size_t run) {
  const std::size_t columns = entry_.columns.size();
  std::vector<double> of_piece;
  float* const base = gradients_.data() + run * numel_ * columns;
  std::uint64_t at = 0;
  for (const ElementRange& piece : entry_.layout) {
    of_piece.resize(piece.end - piece.begin);
    for (std::size_t k = 0; k < columns; ++k) {
      if (!timeline_.counts(workload_, entry_.columns[k].backward, entry_.columns[k].rank, piece.parameter)) continue;
      source.gradient(entry_.columns[k].backward, entry_.columns[k].rank, piece.parameter, piece.begin, of_piece);
      for (std::size_t i = 0; i < of_piece.size(); ++i) {
        base[(at + i) * columns + k] = static_cast<float>(of_piece[i]);
      }
    }
    at += piece.end - piece.begin;
  }
  for (std::uint32_t e = 0; e < numel_; ++e) {
    PackedRow& row = rows_[run].emplace_back();
    row.held = (*held_[run])[e];
    row.error = (*error_[run])[e];
    if (!std::isfinite(row.held)) continue;
    row.gradients = base + e * columns;
    number_lost_ones({base + e * columns, columns});
    for (std::size_t k = 0; k < columns; ++k) {
      const double term = expected_[piece_of_[e]][k] * static_cast<double>(row.gradients[k]);
      row.due += term;
      row.due_magnitude += std::abs(term);
    }
  }
}

// Nothing of an infinity or NaN is in a finite sum: whatever number stands for it there, its weight is 0.
void TakingApart::number_lost_ones(std::span<float> gradients) const {
  float largest = static_cast<float>(solver_.unit());
  for (const float x : gradients)
    if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
  float odd = 1;
  for (float& x : gradients)
    if (!std::isfinite(x)) x = (odd += 2) * largest;
}

std::vector<PackedRow> TakingApart::rows_of(const Elements& elements) const {
  std::vector<PackedRow> out;
  for (const auto& rows : rows_)
    for (const std::uint32_t e : elements)
      if (rows[e].gradients) out.push_back(rows[e]);
  return out;
}

bool TakingApart::fits(const RowWeights& answer, std::uint32_t element) const {
  return std::all_of(rows_.begin(), rows_.end(), [&](const auto& rows) { return !rows[element].gradients || solver_.explains(answer, rows[element]); });
}

// Sums are rounded, and those of what is due may be as near as others.
bool TakingApart::says_wrong_is_due(const RowWeights& answer, const Elements& elements) const {
  const auto is_due = [&](std::uint32_t e) {
    if (answer.of_due) return *answer.of_due == 1;
    return !answer.any_open() && answer.value == expected_[piece_of_[e]];
  };
  return std::any_of(elements.begin(), elements.end(), [&](std::uint32_t e) { return wrong_[e] && is_due(e); });
}

// Takes out what an answer without gaps explains.
void TakingApart::try_answers(Elements& elements) {
  for (int a = 0; a < static_cast<int>(answers_.size()); ++a) {
    if (answers_[static_cast<std::size_t>(a)].any_open()) continue;
    std::erase_if(elements, [&](std::uint32_t e) {
      if (!fits(answers_[static_cast<std::size_t>(a)], e) || says_wrong_is_due(answers_[static_cast<std::size_t>(a)], {e})) return false;
      became_[e] = a;
      return true;
    });
  }
}

void TakingApart::take(const Elements& elements, RowWeights answer) {
  for (const std::uint32_t e : elements) became_[e] = static_cast<int>(answers_.size());
  answers_.push_back(std::move(answer));
}

// Together if one answer explains all, else in parts. What explains some of them may do so by chance, and comes behind what explains all.
void TakingApart::explain(const Elements& some) {
  if (some.empty()) return;
  std::optional<RowWeights> with_gaps;
  if (explain_together(some, with_gaps)) return;
  Elements elements = some;
  try_answers(elements);
  if (elements.empty() || failures_ > failures_max) return;
  if (elements.size() < some.size() && explain_together(elements, with_gaps)) return;
  if (with_gaps) return take(elements, std::move(*with_gaps));
  ++failures_;
  if (elements.size() == 1) return;
  for (const Elements& part : parts(elements)) explain(part);
}

// with_gaps: set to one that does not say all, if there is no better one.
bool TakingApart::explain_together(const Elements& elements, std::optional<RowWeights>& with_gaps) {
  const auto explains_all = [&](const RowWeights& answer) {
    return !answer.any_open() && !says_wrong_is_due(answer, elements) && std::all_of(elements.begin(), elements.end(), [&](std::uint32_t e) { return fits(answer, e); });
  };
  if (const auto known = std::find_if(answers_.begin(), answers_.end(), explains_all); known != answers_.end()) {
    for (const std::uint32_t e : elements) became_[e] = static_cast<int>(known - answers_.begin());
    return true;
  }
  if (failures_ > failures_max) return false;
  const std::vector<PackedRow> rows = rows_of(elements);
  std::optional<RowWeights> answer = solver_.solve(rows);
  if (answer && says_wrong_is_due(*answer, elements)) answer.reset();
  if (!answer || answer->any_open() || answer->near_others) {
    with_gaps = std::move(answer);
    answer = by_pattern(rows);
    if (answer && says_wrong_is_due(*answer, elements)) answer.reset();
  }
  if (answer) take(elements, std::move(*answer));
  return answer.has_value();
}

// Where most elements of a piece have no weights, one that has some of its own has them by chance. So has one with an odd share of what is due, where
// what else is wrong of the piece has not the same: numbers that are off by a little lie next to one another.
// Nor has one that rounding alone keeps from what most of the others have.
void TakingApart::drop_lone_answers() {
  std::vector<std::uint32_t> of_answer(answers_.size(), 0), without(entry_.layout.size(), 0), with(entry_.layout.size(), 0);
  std::map<std::pair<std::uint32_t, int>, std::uint32_t> of_piece;
  for (std::uint32_t e = 0; e < numel_; ++e) {
    const int became = became_[e];
    if (became >= 0) ++of_answer[static_cast<std::size_t>(became)];
    if (became >= 0) ++with[piece_of_[e]];
    if (became == unknown || became == elsewhere) ++without[piece_of_[e]];
    if (became != as_due) ++of_piece[{piece_of_[e], became}];
  }
  for (std::uint32_t e = 0; e < numel_; ++e) {
    if (became_[e] < 0) continue;
    const auto answer = static_cast<std::size_t>(became_[e]);
    const std::uint32_t piece = piece_of_[e];
    const bool lone = of_answer[answer] <= 2 && without[piece] > with[piece];
    const bool one_of_many = answers_[answer].odd_share && of_piece[{piece, became_[e]}] < with[piece] + without[piece];
    if (lone || one_of_many || (of_answer[answer] <= 2 && rounded_of_others(e, of_piece))) became_[e] = unknown;
  }
}

// of_piece: how many elements of a piece have an answer.
bool TakingApart::rounded_of_others(std::uint32_t element, const std::map<std::pair<std::uint32_t, int>, std::uint32_t>& of_piece) const {
  const std::uint32_t piece = piece_of_[element];
  for (int a = 0; a < static_cast<int>(answers_.size()); ++a) {
    const RowWeights& answer = answers_[static_cast<std::size_t>(a)];
    const auto has = of_piece.find({piece, a});
    constexpr std::uint32_t many = 4;  // times as many as those that have an answer of their own
    if (a == became_[element] || answer.any_open() || has == of_piece.end() || has->second < many * of_piece.at({piece, became_[element]})) continue;
    if (std::all_of(rows_.begin(), rows_.end(), [&](const auto& rows) { return !rows[element].gradients || solver_.explains(answer, rows[element], true); })) return true;
  }
  return false;
}

// An element that is right by chance, between others that one answer explains, has that answer too.
void TakingApart::join_neighbours() {
  for (std::uint32_t e = 0; e < numel_; ++e) {
    if (became_[e] != as_due) continue;
    int before = as_due, behind = as_due;
    for (std::uint32_t i = e; i-- > 0 && piece_of_[i] == piece_of_[e] && before == as_due;) before = became_[i];
    for (std::uint32_t i = e + 1; i < numel_ && piece_of_[i] == piece_of_[e] && behind == as_due; ++i) behind = became_[i];
    const int both = before == as_due ? behind : behind == as_due ? before : before == behind ? before : as_due;
    if (both >= 0 && !answers_[static_cast<std::size_t>(both)].any_open() && fits(answers_[static_cast<std::size_t>(both)], e)) became_[e] = both;
  }
}

// By pieces; one piece at its widest gap, else in the middle.
std::vector<TakingApart::Elements> TakingApart::parts(const Elements& elements) const {
  std::vector<Elements> out;
  if (piece_of_[elements.front()] != piece_of_[elements.back()]) {
    for (const std::uint32_t e : elements) {
      if (out.empty() || piece_of_[out.back().back()] != piece_of_[e]) out.emplace_back();
      out.back().push_back(e);
    }
    return out;
  }
  std::size_t cut = elements.size() / 2;
  std::uint32_t widest = 4;
  for (std::size_t i = 1; i < elements.size(); ++i) {
    if (elements[i] - elements[i - 1] <= widest) continue;
    widest = elements[i] - elements[i - 1];
    cut = i;
  }
  const auto middle = elements.begin() + static_cast<std::ptrdiff_t>(cut);
  return {Elements(elements.begin(), middle), Elements(middle, elements.end())};
}

// Of a column that an element of another parameter, or of this one, is there in place of.
void TakingApart::place(std::size_t column, const Instead& instead, CoefficientRun& run) const {
  if (std::find(instead.columns.begin(), instead.columns.end(), column) == instead.columns.end()) return;
  const LedgerColumn& of = entry_.columns[column];
  run.coefficient = 0;
  run.misplaced = ledger_.expected(entry_, of.backward, of.rank, instead.parameter) != 0;
}

// By piece: whether no element that is as due has this column in any run. Then nothing is known of its weight there.
std::vector<bool> TakingApart::dark_where_due(std::size_t column) const {
  std::vector<bool> out(entry_.layout.size(), true);
  for (const auto& rows : rows_)
    for (std::uint32_t e = 0; e < numel_; ++e)
      if (became_[e] == as_due && rows[e].gradients && rows[e].gradients[column] != 0) out[piece_of_[e]] = false;
  return out;
}

void TakingApart::write() {
  for (std::size_t k = 0; k < entry_.columns.size(); ++k) {
    LedgerColumn& column = entry_.columns[k];
    column.runs.clear();
    const std::vector<bool> dark = dark_where_due(k);
    for (std::uint32_t e = 0; e < numel_; ++e) {
      const double due = expected_[piece_of_[e]][k];
      CoefficientRun run{e, e + 1, due, false};
      const bool used = timeline_.counts(workload_, column.backward, column.rank, entry_.layout[piece_of_[e]].parameter);
      if (used && became_[e] >= 0) {
        const RowWeights& answer = answers_[static_cast<std::size_t>(became_[e])];
        const bool in_dark = !answer.dark.empty() && answer.dark[k];
        run.open = (!answer.of_due && answer.open[k]) || in_dark;
        if (!run.open && !in_dark) run.coefficient = answer.of_due ? *answer.of_due * due : answer.value[k];
      }
      run.open = run.open || (used && (became_[e] == unknown || (became_[e] == as_due && due != 0 && dark[piece_of_[e]])));
      if (became_[e] == elsewhere) place(k, instead_.at(e), run);
      open_ = open_ || run.open;
      column.append(run);
    }
  }
}

}  // namespace gradledger::ref
