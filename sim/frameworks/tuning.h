// What searches ask of a configuration without knowing its options: each framework answers with its own. Where it has nothing of the kind
// it leaves the scenario as it is, and the answer is false.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "sim/numeric/dtype.h"
#include "sim/scenario/contract.h"
#include "sim/scenario/scenario.h"

namespace gradledger {

class Tuning {
 public:
  virtual ~Tuning() = default;

  // ---- windows
  // As many micro-batches in each window, by the framework's own counter.
  virtual bool count_windows(Scenario&, std::uint32_t /*micro_batches*/) const { return false; }
  // The framework says where a window ends, and not every call of step().
  virtual bool manage_windows(Scenario&) const { return false; }
  // "world", or "none" where the configuration sums: what a contract of it states.
  virtual std::string_view average_over(const Scenario&) const { return "world"; }

  // ---- formats. Nothing: the default.
  virtual bool set_model_dtype(Scenario&, Dtype) const { return false; }
  virtual bool set_accumulation_dtype(Scenario&, std::optional<Dtype>) const { return false; }
  virtual bool set_wire_dtype(Scenario&, std::optional<Dtype>) const { return false; }

  // ---- the step
  virtual bool clip(Scenario&, double /*max_norm*/) const { return false; }  // 0: not
  // Precondition: the model dtype is fp16, or that of a loop with a scaler fp32, and the initial scale is a power of two.
  virtual bool set_loss_scale(Scenario&, const LossScalePolicy&) const { return false; }

  // ---- the way of a reduction
  virtual bool overlap(Scenario&, bool) const { return false; }      // of communication with the backward
  virtual bool fill_flat_buckets(Scenario&) const { return false; }  // gradients are copied into one
  virtual bool limit_buckets(Scenario&, std::uint64_t /*numel*/) const { return false; }
  virtual bool scatter(Scenario&) const { return false; }           // each rank receives its own part
  virtual bool reduce_to_owners(Scenario&) const { return false; }  // likewise, with a root for each part
  virtual bool pin_host_memory(Scenario&) const { return false; }
  // Averages of matrices are approximations by the third reduction of a run, what they leave out is added to the next, and the first parameter that is
  // trained is such a matrix. Precondition: it has 36 elements.
  virtual bool approximate(Scenario&) const { return false; }

  // ---- ranks of one model, in place of those that the scenario has, with parameters of its own
  // Two stages, of which both have the first parameter, and add up what each has of its gradient.
  virtual bool tie_stages(Scenario&) const { return false; }
  // Two tensor-parallel ranks, each of which has a share of the first parameter's gradient.
  virtual bool share_sequence(Scenario&) const { return false; }
  // Two shares of experts, in a world that has other ranks too which a dense parameter is averaged over.
  virtual bool divide_experts(Scenario&) const { return false; }

  // A fault of the mutants' catalogue that is one of the framework's own defects: the run as an engine with it takes it, or as one without.
  virtual bool set_defect(Scenario&, std::string_view /*fault*/, bool /*present*/) const { return false; }
};

}  // namespace gradledger
