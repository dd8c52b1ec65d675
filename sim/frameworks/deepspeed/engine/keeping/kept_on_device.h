// averaged_gradients, which the step takes wherever the optimizer is on the device.
#pragma once

#include "sim/frameworks/deepspeed/engine/keeping/kept_gradients.h"

namespace gradledger {

// Of each owned part of all groups the reduced gradient, and what pads each group. In three states: never set, None, set.
struct AveragedGradients {
  enum class State : std::uint8_t { never, none, set };

  explicit AveragedGradients(const FlatGroups& weights) : parts(weights.parts().size()), padding(weights.size()) {}

  void observe(ProgramWriter& w, const KeepingContext& c, std::size_t group, double scale) const;  // ours: snapshots
  void set_to_none(ProgramWriter& w, TensorTable& tensors);                                        // stage_1_and_2.py: step, at 0.19.7
  void fold(StateFold& f) const;

  State state = State::never;
  std::vector<Tensor> parts;
  std::vector<Tensor> padding;  // by group
};

class KeptOnDevice : public KeptGradients {
 public:
  void check_finite(ProgramWriter& w, const KeepingContext& c) const override;  // stage_1_and_2.py: has_overflow_partitioned_grads_serial, at 0.19.7
  void add_squares(ProgramWriter& w, const KeepingContext& c, std::size_t group, Slice squared) const override;  // stage_1_and_2.py: get_grad_norm_direct, at 0.19.7
  void begin_step(ProgramWriter& w, const KeepingContext& c) override;                                           // stage_1_and_2.py: step, at 0.19.7
  Stream step_stream() const override { return Stream::compute; }
  Slice user_gradient(const KeepingContext& c, std::size_t group, std::size_t place) const override;

 private:
  virtual const AveragedGradients& averaged() const = 0;
};

}  // namespace gradledger
