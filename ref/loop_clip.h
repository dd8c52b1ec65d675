// The norm that a loop clips by itself, against that of the gradient which it means to clip.
#pragma once

#include <string>
#include <vector>

#include "ref/steps.h"

namespace gradledger::ref {

// Watches one pass with every decision alive. Must see each record before the model forgets its event.
class LoopClipJudge final : public TraceSink {
 public:
  LoopClipJudge(const Workload& workload, const Timeline& timeline, Model& model);

  void step_fact(const StepRecord& record) override;

  // A norm is called another group's where that fits every rank of the event whose norm is not as due: one alone may have it by chance.
  std::vector<StepMismatch> mismatches() const;

 private:
  Bounded norm_over(const std::vector<std::uint32_t>& ranks, const Field& gradient) const;
  Bounded rounded_norm(Bounded norm) const;
  std::vector<std::string> right_for(std::uint32_t rank, double norm, const Field& gradient) const;

  const Workload& workload_;
  const Timeline& timeline_;
  Model& model_;
  Dtype gradients_ = Dtype::float32;  // the narrowest that a loop may find gradients in
  struct Found {
    StepMismatch mismatch;
    std::vector<std::string> other;  // norms that it may be, in words
  };
  std::vector<Found> found_;  // by event
};

}  // namespace gradledger::ref
