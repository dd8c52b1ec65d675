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

  const std::vector<StepMismatch>& mismatches() const { return out_; }

 private:
  Bounded norm_over(const std::vector<std::uint32_t>& ranks, const Field& gradient) const;
  Bounded rounded_norm(Bounded norm) const;
  std::string right_for(std::uint32_t rank, double norm, const Field& gradient) const;

  const Workload& workload_;
  const Timeline& timeline_;
  Model& model_;
  Dtype gradients_ = Dtype::float32;  // the narrowest that a loop may find gradients in
  std::vector<StepMismatch> out_;
};

}  // namespace gradledger::ref
