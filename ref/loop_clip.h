// The norm that a loop clips by itself, against that of the gradient which it means to clip.
#pragma once

#include <string>
#include <vector>

#include "ref/hidden_norms.h"
#include "ref/steps.h"

namespace gradledger::ref {

// A norm that is not as due, and those that it may be, in words.
struct OtherNorm {
  StepMismatch mismatch;
  std::vector<std::string> may_be;
};

// Watches one pass with every decision alive. Must see each record before the model forgets its event.
class LoopClipJudge final : public TraceSink {
 public:
  LoopClipJudge(const Workload& workload, const Timeline& timeline, Model& model);

  void step_fact(const StepRecord& record) override;

  const std::vector<OtherNorm>& found() const { return found_; }
  const HiddenNorms& norms() const { return norms_; }

 private:
  Bounded norm_over(const std::vector<std::uint32_t>& ranks, const Field& gradient) const;
  Bounded rounded_norm(Bounded norm) const;
  std::vector<std::string> right_for(std::uint32_t rank, double norm, const Field& gradient) const;

  const Workload& workload_;
  const Timeline& timeline_;
  Model& model_;
  Dtype gradients_ = Dtype::float32;  // the narrowest that a loop may find gradients in
  std::vector<OtherNorm> found_;      // by event
  HiddenNorms norms_;
};

// What all passes found. A norm is called another group's where that fits every rank of the event, in each pass in which its norm is not as due: one alone may
// have it by chance.
std::vector<StepMismatch> named(std::vector<OtherNorm> found);

}  // namespace gradledger::ref
