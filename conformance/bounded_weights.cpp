#include "conformance/bounded_weights.h"

#include <fmt/format.h>

#include "ref/parameters.h"
#include "ref/probes.h"
#include "sim/frameworks/deepspeed/behaviour.h"
#include "sim/frameworks/deepspeed/engines.h"

namespace gradledger::conform {
namespace {

std::string where(const Recording& recording, std::size_t rank, std::size_t operation) {
  return fmt::format("rank {}, operation {} ({})", rank, operation, recording.ranks[rank][operation].operation);
}

// The wrappers of stage 0 with masters have the base optimizer take a step with zeros when they are made.
bool begins_with_zeros(const Scenario& scenario) {
  const auto wrapper = deepspeed::select_wrapper(scenario);
  if (!wrapper || (*wrapper != deepspeed::Wrapper::fp16_fused && *wrapper != deepspeed::Wrapper::fp16_unfused)) return false;
  return resolve_behaviour(scenario.engine.as_of)->master_first_step == MasterFirstStep::taken;
}

class Weights {
 public:
  Weights(const Recording& recording, const Replay& replay, const Timeline& timeline)
      : recording_(recording),
        replay_(replay),
        source_(ref::value_source(recording.scenario, timeline, GradientKind::values, 0)),
        judge_(recording.scenario, timeline.contract, *source_),
        operations_(operations_by_event(recording, timeline.events.size())),
        latest_(recording.ranks.size()) {
    for (auto& of_rank : latest_)
      for (std::uint32_t p = 0; p < recording.scenario.parameters.size(); ++p) {
        of_rank.emplace_back(recording.scenario.parameters[p].numel);
        source_->initial_parameter(p, 0, of_rank.back());
      }
    if (begins_with_zeros(recording.scenario)) apply_zeros(static_cast<std::uint32_t>(timeline.events.size()));
  }

  WeightsOutcome run() {
    const std::size_t events = operations_.empty() ? 0 : operations_.front().size();
    for (std::size_t event = 0; event < events && out_.why.empty(); ++event) {
      const bool stepped = apply(event);
      for (std::size_t r = 0; r < recording_.ranks.size() && out_.why.empty(); ++r) {
        const std::uint32_t at = operations_[r][event];
        if (at < recording_.ranks[r].size() && !recording_.ranks[r][at].parameters.empty()) hold(r, event, at, stepped);
      }
    }
    return std::move(out_);
  }

 private:
  // As a step of a number that no event has.
  void apply_zeros(std::uint32_t event) {
    const std::vector<Parameter>& parameters = recording_.scenario.parameters;
    for (std::uint32_t r = 0; r < recording_.ranks.size(); ++r)
      for (std::uint32_t p = 0; p < parameters.size(); ++p) {
        const std::vector<float> zeros(parameters[p].numel);
        const ObservedPiece piece{static_cast<std::int32_t>(p), 0, parameters[p].numel, Dtype::float32, reinterpret_cast<const std::byte*>(zeros.data())};
        if (parameters[p].has_gradient()) judge_.observe({r, event, false, "applied", Role::applied_gradient, 1.0, {&piece, 1}});
      }
  }

  bool apply(std::size_t event) {
    bool stepped = false;
    for (std::size_t r = 0; r < recording_.ranks.size(); ++r)
      for (const AppliedGradient& applied : replay_.at(r, event).applied) {
        ObservedPiece piece = applied.piece;
        piece.data = applied.bytes.data();
        judge_.observe({static_cast<std::uint32_t>(r), static_cast<std::uint32_t>(event), false, "applied", Role::applied_gradient, 1.0, {&piece, 1}});
        stepped = true;
      }
    return stepped;
  }

  void hold(std::size_t r, std::size_t event, std::size_t at, bool stepped) {
    const auto& recorded = recording_.ranks[r][at].parameters;
    for (std::uint32_t p = 0; p < recorded.size() && out_.why.empty(); ++p) {
      if (stepped) within_bound(r, event, at, p, recorded[p]);
      else if (recorded[p] != latest_[r][p]) out_.why = fmt::format("{}: parameter {} is altered in the recording, by no step of the replay", where(recording_, r, at), p);
      else out_.elements += recorded[p].size();
      latest_[r][p] = recorded[p];
    }
  }

  void within_bound(std::size_t r, std::size_t event, std::size_t at, std::uint32_t p, const std::vector<double>& recorded) {
    const ref::JudgeStatistics before = judge_.statistics();
    const std::vector<float> stored(recorded.begin(), recorded.end());
    const ObservedPiece piece{static_cast<std::int32_t>(p), 0, static_cast<std::uint32_t>(stored.size()), Dtype::float32, reinterpret_cast<const std::byte*>(stored.data())};
    judge_.observe({static_cast<std::uint32_t>(r), static_cast<std::uint32_t>(event), true, "recorded", Role::parameter, 1.0, {&piece, 1}});
    const ref::JudgeStatistics& after = judge_.statistics();
    out_.elements += (after.elements - before.elements) - (after.inconclusive - before.inconclusive);
    if (judge_.mismatches().empty()) return;
    const auto& worst = judge_.mismatches().front().worst;
    out_.why = fmt::format("{}: weight {} of parameter {} is {} recorded; the gradient that the replay applied makes it {}, within {}", where(recording_, r, at), worst.element,
                           worst.parameter, worst.observed, worst.expected, worst.bound);
  }

  const Recording& recording_;
  const Replay& replay_;
  std::unique_ptr<GradientSource> source_;
  ref::ParameterJudge judge_;
  std::vector<std::vector<std::uint32_t>> operations_;    // [rank][event]
  std::vector<std::vector<std::vector<double>>> latest_;  // [rank][parameter]
  WeightsOutcome out_;
};

}  // namespace

WeightsOutcome hold_weights(const Recording& recording, const Replay& replay, const Timeline& timeline) { return Weights(recording, replay, timeline).run(); }

}  // namespace gradledger::conform
