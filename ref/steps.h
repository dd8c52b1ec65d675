// What a step decides beyond its gradient, against the documentation: whether it is skipped, its loss scale, norm and clipping.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ref/bounded.h"
#include "ref/finding.h"
#include "ref/hidden_norms.h"
#include "ref/model.h"
#include "sim/trace/producer.h"

namespace gradledger::ref {

// What the configuration's documentation makes of a window's gradients.
enum class Skip : std::uint8_t { must, must_not, open };

// Something that a rank's step decided or reported, and must not have.
struct StepMismatch {
  FindingClass finding = FindingClass::wrong_skip;
  std::uint32_t event = 0, rank = 0;
  std::optional<Quantity> quantity;
  std::vector<ElementRange> elements;  // that are not finite
  std::string what;                    // the sentence behind rank and event
};

// What a step did not say, so that nothing which hangs on it is judged.
struct MissingFact {
  std::uint32_t event = 0, rank = 0;
  StepFact fact = StepFact::skipped;
};

// Watches one pass with every decision of the engine alive. Must see each record before the model forgets its event.
class StepJudge final : public TraceSink {
 public:
  // meant: whose gradients have right norms too; not owned, null: none.
  StepJudge(const Workload& workload, const Timeline& timeline, const GradientSource& source, Model& model, const MeantModels* meant = nullptr);

  void observe(const Observation& observation) override;
  void step_fact(const StepRecord& record) override;
  void event_done(std::uint32_t rank, std::uint32_t event) override;
  void engine_error(const EngineErrorRecord& record) override;
  void collective(const CollectiveRecord& record) override;
  void deadlock(const DeadlockRecord&) override { hangs_ = true; }
  void mismatch(const MismatchRecord&) override { hangs_ = true; }

  // Precondition: the run is over.
  std::vector<StepMismatch> mismatches();
  // Likewise, and after mismatches().
  const std::vector<MissingFact>& missing() const { return missing_; }
  const HiddenNorms& norms() const { return norms_; }
  const std::set<std::uint32_t>& decided() const { return decided_; }  // step events whose due skip was judged
  std::set<std::uint32_t> without_update() const;                      // step events in which a rank says that it did not update
  std::set<std::uint32_t> skipped() const;                             // step events that all ranks say they skip

 private:
  struct RankStep {
    std::array<std::optional<double>, step_facts> facts;
    bool applied = false, done = false, raised = false;
    std::vector<ElementRange> not_finite;  // of the applied gradient
    std::vector<ElementRange> spread;      // of these, where the window's gradient is finite
    std::optional<Bounded> meant_norm;     // where it says another one than the documentation has

    bool skips() const;
    std::optional<double> reported(StepFact fact) const { return facts[static_cast<std::size_t>(fact)]; }
  };
  struct Said {
    std::array<bool, step_facts> facts{};
    bool updated = false, ended = false;  // ended: the rank came through the step
  };
  struct Step {
    bool finite = true;  // every element of the window's gradient
    Bounded norm;
    std::map<std::uint32_t, RankStep> ranks;
  };

  Step& step(std::uint32_t event);
  Skip due(std::uint32_t event, const Step& step, double scale) const;
  bool in_range(std::uint32_t window, double scale) const;
  bool says_updated(std::uint32_t event, std::uint32_t rank) const;
  void judge_skips(std::uint32_t event, const Step& step, Skip due);
  void judge_finiteness(std::uint32_t event, const Step& step);
  void judge_norms(std::uint32_t event, const Step& step);
  double norm_bound(const Bounded& norm) const;
  void list_missing();
  void add_those_in_norms(std::uint32_t event, Step& step) const;
  void add(FindingClass finding, std::uint32_t event, std::uint32_t rank, std::string what, std::optional<Quantity> quantity = {});

  const Workload& workload_;
  const Timeline& timeline_;
  const GradientSource& source_;
  Model& model_;
  const MeantModels* const meant_;
  std::map<std::uint32_t, Step> steps_;  // by event
  std::vector<StepMismatch> out_;
  std::vector<MissingFact> missing_;
  HiddenNorms norms_;
  std::set<std::uint32_t> decided_;
  std::set<std::pair<std::uint32_t, std::uint32_t>> in_norm_;     // step event, and the rank that asks for a norm there
  bool hangs_ = false;                                            // some rank
  std::map<std::pair<std::uint32_t, std::uint32_t>, Said> said_;  // by step event and rank
};

}  // namespace gradledger::ref
