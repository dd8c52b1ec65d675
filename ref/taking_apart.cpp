#include "ref/taking_apart.h"

#include <algorithm>
#include <cmath>

namespace gradledger::ref {
namespace {

constexpr std::size_t terms_max = std::size_t{1} << 25;  // gradients of a snapshot that are held at a time
constexpr std::uint32_t failures_max = 256;              // stretches without weights, after which no more are tried

std::vector<Term> terms_of(const LedgerEntry& entry, const Ledger& ledger) {
  std::vector<Term> out;
  const bool applied = entry.role == Role::applied_gradient;
  for (const LedgerColumn& column : entry.columns) {
    Term term;
    for (const ElementRange& piece : entry.layout) term.due = std::max(term.due, ledger.expected(entry, column.backward, column.rank, piece.parameter));
    term.own = column.own;
    term.averaged = column.averaged;
    const std::uint32_t window = applied ? column.contribution.step : column.documented;
    term.windows_ago = window < entry.step ? entry.step - window : 0;
    term.own_rank = column.rank == entry.key.rank;
    out.push_back(term);
  }
  return out;
}

}  // namespace

TakingApart::TakingApart(const Workload& workload, const Timeline& timeline, const Ledger& ledger, const RowRounding& rounding, LedgerEntry& entry)
    : workload_(workload), timeline_(timeline), ledger_(ledger), entry_(entry), solver_(terms_of(entry, ledger), rounding) {
  for (std::uint32_t p = 0; p < entry.layout.size(); ++p) {
    numel_ += entry.layout[p].end - entry.layout[p].begin;
    piece_of_.resize(numel_, p);
    std::vector<double>& due = expected_.emplace_back();
    for (const LedgerColumn& column : entry.columns) due.push_back(ledger.expected(entry, column.backward, column.rank, entry.layout[p].parameter));
  }
}

void TakingApart::add(const GradientSource& source, const std::vector<double>& held, const std::vector<double>& error) {
  sources_.push_back(&source);
  held_.push_back(&held);
  error_.push_back(&error);
}

bool TakingApart::run() {
  const std::size_t columns = entry_.columns.size();
  if (columns == 0 || numel_ == 0 || sources_.empty() || std::size_t{numel_} * columns * sources_.size() > terms_max) return false;
  gradients_.assign(sources_.size() * numel_ * columns, 0.0f);
  rows_.resize(sources_.size());
  for (std::size_t run = 0; run < sources_.size(); ++run) fill(*sources_[run], run);
  became_.assign(numel_, unknown);
  Elements wrong;
  for (std::uint32_t e = 0; e < numel_; ++e) {
    bool due = true, any = false;
    for (const auto& rows : rows_) {
      if (!rows[e].gradients) continue;
      any = true;
      due = due && solver_.explains({{}, {}, 1.0}, rows[e]);
    }
    if (any && due) became_[e] = as_due;
    else if (any) wrong.push_back(e);
  }
  explain(wrong);
  // An answer that was found later, or beside, may be the answer here.
  Elements left;
  for (std::uint32_t e = 0; e < numel_; ++e)
    if (became_[e] == unknown && !rows_of({e}).empty()) left.push_back(e);
  try_answers(left);
  write();
  return true;
}

// The gradients of one run, and its equations.
void TakingApart::fill(const GradientSource& source, std::size_t run) {
  const std::size_t columns = entry_.columns.size();
  std::vector<double> of_piece;
  std::vector<bool> finite(numel_, true);
  float* const base = gradients_.data() + run * numel_ * columns;
  std::uint32_t at = 0;
  for (const ElementRange& piece : entry_.layout) {
    of_piece.resize(piece.end - piece.begin);
    for (std::size_t k = 0; k < columns; ++k) {
      if (!timeline_.used(workload_, entry_.columns[k].backward, entry_.columns[k].rank, piece.parameter)) continue;
      source.gradient(entry_.columns[k].backward, entry_.columns[k].rank, piece.parameter, piece.begin, of_piece);
      for (std::size_t i = 0; i < of_piece.size(); ++i) {
        base[(at + i) * columns + k] = static_cast<float>(of_piece[i]);
        if (!std::isfinite(of_piece[i])) finite[at + i] = false;
      }
    }
    at += piece.end - piece.begin;
  }
  for (std::uint32_t e = 0; e < numel_; ++e) {
    PackedRow& row = rows_[run].emplace_back();
    row.held = (*held_[run])[e];
    row.error = (*error_[run])[e];
    if (!finite[e] || !std::isfinite(row.held)) continue;
    row.gradients = base + e * columns;
    for (std::size_t k = 0; k < columns; ++k) {
      const double term = expected_[piece_of_[e]][k] * static_cast<double>(row.gradients[k]);
      row.due += term;
      row.due_magnitude += std::abs(term);
    }
  }
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

// Takes out what an answer without gaps explains.
void TakingApart::try_answers(Elements& elements) {
  for (int a = 0; a < static_cast<int>(answers_.size()); ++a) {
    if (answers_[static_cast<std::size_t>(a)].any_open()) continue;
    std::erase_if(elements, [&](std::uint32_t e) {
      if (!fits(answers_[static_cast<std::size_t>(a)], e)) return false;
      became_[e] = a;
      return true;
    });
  }
}

// Together if one answer explains all, else in parts.
void TakingApart::explain(const Elements& some) {
  Elements elements = some;
  try_answers(elements);
  if (elements.empty() || failures_ > failures_max) return;
  const std::vector<PackedRow> rows = rows_of(elements);
  auto answer = solver_.solve(rows);
  if (answer) {
    for (const std::uint32_t e : elements) became_[e] = static_cast<int>(answers_.size());
    answers_.push_back(std::move(*answer));
    return;
  }
  ++failures_;
  if (elements.size() == 1) return;
  const std::size_t before = answers_.size();
  for (const Elements& part : parts(elements)) explain(part);
  const bool nothing = std::all_of(answers_.begin() + static_cast<std::ptrdiff_t>(before), answers_.end(), [](const RowWeights& a) { return a.any_open(); });
  if (nothing && solver_.tell_everything(rows.size()))
    for (const std::uint32_t e : elements) became_[e] = no_weights;
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

void TakingApart::write() {
  for (std::size_t k = 0; k < entry_.columns.size(); ++k) {
    LedgerColumn& column = entry_.columns[k];
    column.runs.clear();
    for (std::uint32_t e = 0; e < numel_; ++e) {
      const double due = expected_[piece_of_[e]][k];
      CoefficientRun run{e, e + 1, due, false};
      const bool used = timeline_.used(workload_, column.backward, column.rank, entry_.layout[piece_of_[e]].parameter);
      if (used && became_[e] >= 0) {
        const RowWeights& answer = answers_[static_cast<std::size_t>(became_[e])];
        run.open = !answer.of_due && answer.open[k];
        if (!run.open) run.coefficient = answer.of_due ? *answer.of_due * due : answer.value[k];
      }
      run.open = run.open || (used && became_[e] == unknown);
      open_ = open_ || run.open;
      if (!column.runs.empty() && column.runs.back().coefficient == run.coefficient && column.runs.back().open == run.open) column.runs.back().end = e + 1;
      else column.runs.push_back(run);
    }
  }
}

}  // namespace gradledger::ref
