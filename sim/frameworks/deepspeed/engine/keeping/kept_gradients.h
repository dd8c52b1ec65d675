// ZeRO stages 1 and 2: where reduced gradients are kept until the step. One interface, and a file for each way: lists on the device, an
// fp32 partition of the rank, accumulators on the host. Ways are values: what they need of the wrapper is lent for the length of a call.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/engine/engine.h"
#include "sim/engine/state_fold.h"
#include "sim/engine/tensors.h"
#include "sim/frameworks/deepspeed/behaviour.h"
#include "sim/frameworks/deepspeed/engine/flat_groups.h"
#include "sim/frameworks/deepspeed/settings.h"

namespace gradledger {

// What of the wrapper is lent.
struct KeepingContext {
  const Scenario& scenario;
  const DeepSpeedConfig& config;
  const Behaviour& behaviour;
  const FlatGroups& weights;
  const std::vector<std::uint32_t>& learned;  // parameters that have a gradient on this rank
  TensorTable& tensors;
  std::vector<Tensor>& grad;        // param.grad, by parameter
  std::vector<Tensor>& grad_accum;  // param.grad_accum, by parameter
  bool uses_grad_accum;             // it is the second that is reduced
  bool reduces_copy;                // by way of a temporary in the model dtype
  bool boundary;                    // the optimizer's copy of the engine's is_gradient_accumulation_boundary()
  bool pinned;                      // host memory
  bool first_of_tensor_ranks;       // whose copies count in the norm
  std::int64_t micro_step_id;
  double loss_scale;  // of the gradients at hand
  Slice overflow_flag;

  std::uint64_t numel(std::uint32_t parameter) const { return scenario.parameters[parameter].numel; }
  const std::string& parameter_name(std::uint32_t parameter) const { return scenario.parameters[parameter].name; }
  Dtype model_dtype() const { return scenario.model_dtype; }
  Dtype acc_dtype() const { return grad_accum_dtype_of(scenario); }
  bool counts_in_norm(std::uint32_t parameter) const { return first_of_tensor_ranks || scenario.parameters[parameter].part; }
  OwnedPart owned(std::uint32_t parameter) const { return weights.of(parameter).owned(parameter); }

  Tensor& gradient_attribute(std::uint32_t parameter) const { return uses_grad_accum ? grad_accum[parameter] : grad[parameter]; }
  // A zero_grad since the hook that filled the bucket: param.grad is None, which raises.
  void require_gradient(std::uint32_t parameter) const;
  // One count belongs to the caller. With reduces_copy it is the temporary.
  Tensor gradient_for_reduction(ProgramWriter& w, std::uint32_t parameter) const;  // stage_1_and_2.py: get_gradient_for_reduction, at 0.19.7
  // A whole parameter, of which the rank answers for its own part alone.
  std::vector<ViewPiece> owned_piece(std::uint32_t parameter, Slice whole) const;
  // A parameter without elements is one of the rank's partition.
  bool looks_up_empty(std::uint32_t parameter) const {
    return numel(parameter) == 0 && behaviour.empty_parameter == EmptyParameter::looked_up && weights.of(parameter).owns_place(parameter);
  }
  // DeepSpeed#8280: before it an overflow was looked for as the largest element, which nothing has.
  void require_elements(std::uint32_t parameter) const;
};

class KeptGradients {
 public:
  virtual ~KeptGradients() = default;

  // Makes the buffers that live as long as the run.
  virtual void initialise(ProgramWriter&, const KeepingContext&) {}  // stage_1_and_2.py: __init__, at 0.19.7

  // ---- a reduction ------------------------------------------------------------------------------------------------------------------
  // Whether a reduction adds what it reduced to sum_of(), so that gradients need not go through the model dtype.
  virtual bool sums_in_fp32() const { return false; }
  // Where the rank's part of a parameter is added; without a buffer: nowhere, and keep() takes the gradient. Precondition: it has a part.
  // stage_1_and_2.py: _get_compact_grad_partition_slice, at 0.19.8
  virtual Slice sum_of(ProgramWriter&, const KeepingContext&, std::uint32_t /*parameter*/) { return {}; }
  // An owned parameter's full gradient leaves the bucket, which will be overwritten.
  virtual void keep(ProgramWriter& w, const KeepingContext& c, std::uint32_t parameter) = 0;
  // The same of a parameter without elements that is looked up. May raise.
  virtual void keep_empty(const KeepingContext&, std::uint32_t /*parameter*/) const {}
  // At the end of an epilogue: every bucket is reduced and still there; then their memory is gone.
  // stage_1_and_2.py: independent_gradient_partition_epilogue, at 0.19.7
  virtual void end_of_reductions(ProgramWriter&, const KeepingContext&) {}
  virtual void buckets_released(ProgramWriter&, const KeepingContext&) {}  // stage_1_and_2.py: independent_gradient_partition_epilogue, at 0.19.7

  // ---- the step ---------------------------------------------------------------------------------------------------------------------
  // Stage 2 without managed accumulation: makes what the step takes of what was kept. May raise.
  virtual void finalise(ProgramWriter& w, const KeepingContext& c) = 0;
  // Raises where there is nothing to step with.
  virtual void require(const KeepingContext&) const {}
  // Looks for an overflow in what the step takes, where that was not done as it was kept. May raise.
  virtual void check_finite(ProgramWriter&, const KeepingContext&) const {}  // stage_1_and_2.py: has_overflow_partitioned_grads_serial, at 0.19.7
  // squared += the squares of the rank's part of a group. May raise.
  virtual void add_squares(ProgramWriter& w, const KeepingContext& c, std::size_t group, Slice squared) const = 0;
  // Before the groups step.
  virtual void begin_step(ProgramWriter&, const KeepingContext&) {}  // stage_1_and_2.py: step, at 0.19.7
  // The gradient that a group steps with: fp32, as long as the partition. What it holds in `flat` is the caller's.
  virtual Slice step_gradient(ProgramWriter& w, const KeepingContext& c, std::size_t group, Tensor& flat) = 0;
  // The stream that unscales, clips and steps.
  virtual Stream step_stream() const = 0;
  // What a step, taken or skipped, leaves behind.
  virtual void drop(ProgramWriter& w, const KeepingContext& c, bool skipped) = 0;

  // ---- as others see it -------------------------------------------------------------------------------------------------------------
  // What safe_set_full_grad reads and writes: by its place among the rank's parts of a group. Raises where there is none.
  virtual Slice user_gradient(const KeepingContext& c, std::size_t group, std::size_t place) const = 0;
  // A user has set the part, `own`, of the gradient `full`. refreshes_norm: what is known of its norm is to follow.
  // tensor_fragment.py: set_full_hp_grad, at 0.19.7
  virtual void user_has_set(ProgramWriter&, const KeepingContext&, std::uint32_t /*parameter*/, Slice /*full*/, Slice /*own*/, bool /*refreshes_norm*/) const {}
  virtual void observe(ProgramWriter& w, const KeepingContext& c, double scale) const = 0;
  // What the step of a group applies, where that is not the rank's part of it alone. False: it is.
  virtual bool observe_applied(ProgramWriter&, const KeepingContext&, std::size_t /*group*/) const { return false; }  // ours: snapshots
  // What the host knows of that state. saved: of the same way of keeping, in the process before.
  virtual void load(const KeptGradients& /*saved*/) {}  // stage_1_and_2.py: load_state_dict, at 0.19.8
  // State of the optimizer that is kept here.
  virtual void observe_state(ProgramWriter&, const KeepingContext&) const {}  // ours: snapshots
  virtual void fold(StateFold& f) const = 0;
};

}  // namespace gradledger
