// The passes of a judgement and what they leave behind, before anything is named.
#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "ref/as_far_as.h"
#include "ref/loop_clip.h"
#include "ref/oracle.h"
#include "ref/steps.h"

namespace gradledger::ref {

struct Evidence {
  RunFacts facts;
  std::optional<std::uint64_t> race_seed;  // a schedule whose values differ from those of the enqueued order
  std::uint32_t race_schedules = 0;        // that were tried
  std::vector<Mismatch> fingerprint, values, parameters;
  std::vector<Divergence> divergences;
  std::vector<StepMismatch> steps;
  std::vector<OtherNorm> loop_norms;                                            // that are not as due
  std::map<std::uint32_t, std::vector<ElementRange>> not_applied, not_reduced;  // by event
  std::vector<JudgedSnapshot> seen;
  std::set<std::uint32_t> applied, decided;  // step events: of which some applied element was compared; whose due skip was judged
  std::set<std::uint32_t> without_update;    // in which a rank says that it did not update
  std::set<std::uint32_t> skipped;           // likewise, all of them because of an overflow
  std::vector<MissingFact> missing;
  HiddenNorms norms;
  std::set<SnapshotKey> not_taken_apart;  // past the limit of one ledger
};

class PackedRuns;
class WeightsJudge;

class Passes {
 public:
  Passes(const Workload& workload, const Timeline& timeline, Producer& producer, const OracleOptions& options);

  // Runs everything; statistics go into the verdict.
  void run(Verdict& verdict);

  Evidence& evidence() { return evidence_; }
  Ledger& ledger() { return ledger_; }

 private:
  using Pairs = std::vector<std::pair<std::uint32_t, std::uint32_t>>;  // backward, rank

  void value_pass(GradientKind kind, bool primary, Verdict& verdict);
  void value_pass(const GradientSource& given, bool primary, Verdict& verdict);
  std::uint64_t value_seed(GradientKind kind) const;
  void say_what_plants_hide(Verdict& verdict) const;
  void one_pass(Verdict& verdict);
  void few_runs(Verdict& verdict);
  void packed_run(PackedRuns& runs, std::optional<std::uint32_t> every_second, Verdict& verdict);
  void look_at_each_alone(PackedRuns& runs, Verdict& verdict);
  Pairs not_shown(PackedRuns& runs) const;
  void keep_packed(PackedRuns& runs, Verdict& verdict);
  void say_left_out(const PackedRuns& runs, Verdict& verdict) const;
  void keep_decoded(std::vector<LedgerEntry>& decoded, Verdict& verdict);
  void note_shown(const SnapshotBook& book, Verdict& verdict);
  void forget_what_stopped(const AsFarAs& run, Verdict& verdict);
  void forget_empty_updates(const GradientSource& source);
  void find_race_in_values();
  void weights_pass(Verdict& verdict);
  void take_apart(const WeightsJudge& judge, Verdict& verdict);
  void symbolic_run_alone(Verdict& verdict);
  RunSummary run_on_weights(RunOptions run, TraceSink* also, Verdict& verdict);
  void fingerprint_passes(Verdict& verdict);
  MeantModels meant(const GradientSource& source, Model::Mode mode) const;
  void want_snapshots();
  void decode(Verdict& verdict);
  void decode_without_fingerprint(Verdict& verdict);
  Pairs all_contributions() const;
  Pairs limited(Pairs pairs, Verdict& verdict) const;

  const Workload& workload_;
  const Timeline& timeline_;
  Producer& producer_;
  OracleOptions options_;
  bool weights_;  // the producer shows them
  // Of all passes but the first, which looks for races: where it finds some, the one order in which nothing can.
  Schedule ledger_schedule_{.policy = Schedule::Policy::first_ready};
  ProbeRange range_;
  Ledger ledger_;
  Evidence evidence_;
  Reached reached_;  // by the primary run of values: linear ones are judged no further
};

}  // namespace gradledger::ref
