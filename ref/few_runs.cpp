// A producer that takes long to set up is run a few times. One run has every decision alive, one is held to the books with all contributions at once,
// and only where these leave weights open there are more, up to a number that is larger where few elements have them. What is open then is looked for in
// a run for each contribution.
#include <algorithm>
#include <map>
#include <utility>

#include "ref/packed_runs.h"
#include "ref/passes.h"
#include "ref/sorted_mismatches.h"

namespace gradledger::ref {
namespace {

// Beside the run of values: as a rule, and where too few elements have the weights in common.
constexpr std::uint32_t packed_runs_max = 3, packed_runs_of_few_elements_max = 12;

// Of a snapshot that the runs of some contributions did not show, these are taken to be no part, which its sums bear out or not.
void take_unseen_as_absent(LedgerEntry& alone, const LedgerEntry& all) {
  std::uint64_t numel = 0;
  for (const ElementRange& piece : alone.layout) numel += piece.end - piece.begin;
  const auto before = [](const LedgerColumn& a, const LedgerColumn& b) { return std::pair(a.backward, a.rank) < std::pair(b.backward, b.rank); };
  const std::size_t seen = alone.columns.size();
  for (const LedgerColumn& column : all.columns) {
    if (std::binary_search(alone.columns.begin(), alone.columns.begin() + static_cast<std::ptrdiff_t>(seen), column, before)) continue;
    alone.columns.push_back(column);
    alone.columns.back().runs = {{0, numel, 0.0, false}};
  }
  std::inplace_merge(alone.columns.begin(), alone.columns.begin() + static_cast<std::ptrdiff_t>(seen), alone.columns.end(), before);
}

}  // namespace

void Passes::few_runs(Verdict& verdict) {
  const GradientKind kind = workload_.gradients.kind;
  verdict.few_runs = true;
  verdict.dyadic = range_.dyadic;
  verdict.contributions = static_cast<std::uint32_t>(all_contributions().size());
  if (kind == GradientKind::probe) value_pass(*mixed_source(workload_, timeline_, value_seed(GradientKind::normal)), true, verdict);
  else value_pass(kind, true, verdict);
  if (!evidence_.facts.races.empty()) ledger_schedule_.policy = Schedule::Policy::in_order;
  PackedRuns runs(workload_, timeline_, ledger_, range_, options_.seed);
  runs.expect_wrong(evidence_.values);
  packed_run(runs, {}, verdict);
  const bool hidden = runs.found_left_over();
  if (hidden) {
    packed_run(runs, 0, verdict);
    packed_run(runs, 1, verdict);
    runs.take_windows_alone();
  }
  const std::uint32_t runs_max = packed_runs_max + (hidden ? 2 : 0);
  RunOptions again;
  again.linear = true;
  again.schedule = ledger_schedule_;
  bool told = runs.decode();
  while (!told && (runs.runs() < runs_max || (runs.runs() < packed_runs_of_few_elements_max && runs.lacks_equations()))) {
    const std::uint32_t turn = hidden ? runs.runs() % 3 : 0;  // all windows, the even ones, the odd ones
    const GradientSource& source = turn == 0 ? runs.next_run() : runs.next_run(turn - 1);
    producer_.run(source, again, *runs.keeper(nullptr));
    ++verdict.decode_passes;
    told = runs.decode();
  }
  if ((!told || runs.hides()) && verdict.contributions <= options_.alone_max) look_at_each_alone(runs, verdict);
  keep_packed(runs, verdict);
  say_left_out(runs, verdict);
}

// Held to the books. every_second: of PackedRuns::next_run().
void Passes::packed_run(PackedRuns& runs, std::optional<std::uint32_t> every_second, Verdict& verdict) {
  const GradientSource& source = runs.next_run(every_second);
  const Model::Mode mode = runs.exact() ? Model::Mode::exact : Model::Mode::bounded;
  Model model(workload_, timeline_, source, mode);
  const MeantModels meant_models = meant(source, mode);
  PassJudge judge(workload_, timeline_, model, mode, 0.0, every_second ? nullptr : &evidence_.seen, &meant_models);
  RunOptions run;
  run.linear = true;
  run.schedule = ledger_schedule_;
  const std::unique_ptr<TraceSink> keeper = runs.keeper(&judge);
  AsFarAs shown(reached_, *keeper);
  producer_.run(source, run, shown);
  ++verdict.fingerprint_passes;
  evidence_.fingerprint.insert(evidence_.fingerprint.end(), judge.mismatches().begin(), judge.mismatches().end());
  sort_by_key(evidence_.fingerprint);
  if (every_second) return;  // a window without gradients may stop an optimizer
  verdict.ledger.add(judge.statistics());
  note_shown(judge.book(), verdict);
  forget_what_stopped(shown, verdict);
}

// What sums leave open, runs tell in which one contribution is there and nothing else, if their weights make these sums.
void Passes::look_at_each_alone(PackedRuns& runs, Verdict& verdict) {
  verdict.each_alone = true;
  for (const PackedRuns::Decoded& decoded : runs.decoded()) ledger_.want(decoded.entry.key, decoded.entry.after);
  decode(verdict);
  // A rank may have stopped where nothing but another's contribution was there: an optimizer that asks for a norm above zero, say.
  const Pairs unseen = not_shown(runs);
  ledger_.decode(producer_, ledger_schedule_, unseen, true);
  verdict.decode_passes += static_cast<std::uint32_t>(unseen.size());
  for (PackedRuns::Decoded& decoded : runs.decoded()) {
    LedgerEntry alone = ledger_.entries().at(decoded.entry.key);
    ledger_.forget(alone.key);
    if (!alone.columns.empty()) take_unseen_as_absent(alone, ledger_.empty_entry(alone.key, alone.role, alone.after));
    const BornOut born_out = alone.columns.empty() ? BornOut::no : runs.bear_out(alone);
    if (born_out == BornOut::no) continue;
    alone.out_of_place = born_out == BornOut::out_of_place;
    decoded.entry = std::move(alone);
    decoded.missing = false;
  }
}

// Contributions whose runs did not show a snapshot that is asked for.
Passes::Pairs Passes::not_shown(PackedRuns& runs) const {
  Pairs out;
  for (const PackedRuns::Decoded& decoded : runs.decoded()) {
    const LedgerEntry& shown = ledger_.entries().at(decoded.entry.key);
    for (const LedgerColumn& column : ledger_.empty_entry(decoded.entry.key, decoded.entry.role, decoded.entry.after).columns) {
      const auto same = [&](const LedgerColumn& seen) { return seen.backward == column.backward && seen.rank == column.rank; };
      if (std::none_of(shown.columns.begin(), shown.columns.end(), same)) out.emplace_back(column.backward, column.rank);
    }
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

// What was taken apart goes into the ledger; what was not stays wrong, and is named by its values. Values and sums may be wrong first after different
// events: of each rank and window the first that is told names it, and the applied gradient.
void Passes::keep_packed(PackedRuns& runs, Verdict& verdict) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> told;  // event, by rank and window
  std::vector<bool> named;
  for (const PackedRuns::Decoded& decoded : runs.decoded()) {
    const std::vector<LedgerRow> rows = decoded.missing ? std::vector<LedgerRow>{} : ledger_.rows(decoded.entry);
    named.push_back(std::any_of(rows.begin(), rows.end(), [](const LedgerRow& row) { return !row.balances(); }));
    if (!named.back() || decoded.entry.role == Role::applied_gradient) continue;
    const std::uint32_t event = decoded.entry.key.event;
    std::uint32_t& first = told.try_emplace({decoded.entry.key.rank, decoded.entry.step}, event).first->second;
    first = std::min(first, event);
  }
  for (std::size_t i = 0; i < named.size(); ++i) {
    PackedRuns::Decoded& decoded = runs.decoded()[i];
    const SnapshotKey key = decoded.entry.key;
    const auto first = told.find({key.rank, decoded.entry.step});
    if (decoded.entry.role != Role::applied_gradient && first != told.end() && first->second < key.event) continue;
    if (!decoded.missing) ledger_.put(std::move(decoded.entry));
    // Wrong values of weights that balance in every run are rounding.
    if (named[i] || (decoded.only_in_values && !decoded.open && !decoded.missing && runs.classes() == 1)) continue;
    verdict.unexplained.push_back(key);
    const auto of_key = [&](const Mismatch& m) { return m.key == key; };
    if (std::any_of(evidence_.values.begin(), evidence_.values.end(), of_key)) continue;
    const auto wrong = std::find_if(evidence_.fingerprint.begin(), evidence_.fingerprint.end(), of_key);
    if (wrong != evidence_.fingerprint.end()) evidence_.values.push_back(*wrong);
  }
}

void Passes::say_left_out(const PackedRuns& runs, Verdict& verdict) const {
  if (!verdict.each_alone) verdict.left_out.push_back("contributions share a run: weights are worked out from sums instead of each being looked at alone");
  if (!evidence_.facts.races.empty()) verdict.left_out.push_back("no schedules are tried for one that shows a race in the values");
  if (workload_.gradients.kind == GradientKind::probe)
    verdict.left_out.push_back("adversarial data lie on a third of the elements, beside normal ones, instead of in a run of their own");
  if (runs.classes() > 1)
    verdict.left_out.push_back("of the contributions of a window that do not fit the formats together each element has a part in the run that is held to the books");
}

}  // namespace gradledger::ref
