// The base optimizer: SGD, Adam, AdamW, with the moments that it keeps; and the step of Muon, which takes what it is given as an update, as
// SGD does.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "sim/program/program.h"
#include "sim/scenario/scenario.h"

namespace gradledger {

// Moments over one flat fp32 range, and the update calls on parts of it.
class BaseOptimizer {
 public:
  // host: the CPU formula on the host stream, as optimizer offload selects it.
  BaseOptimizer(const OptimizerConfig& config, bool host) : config_(config), host_(host) {}

  void initialise(ProgramWriter& w, std::uint64_t numel, const std::string& suffix);
  void begin_step() { ++step_; }
  std::uint32_t steps() const { return step_; }  // begun so far
  void load(const BaseOptimizer& saved) { step_ = saved.step_; }
  // weights and gradient: fp32; `offset` is where they lie in the flat range.
  void update(ProgramWriter& w, Slice weights, Slice gradient, std::uint64_t offset) const { update_as_step(step_, w, weights, gradient, offset); }
  // The same as step number `step`, where tensors of the range count their own.
  void update_as_step(std::uint32_t step, ProgramWriter& w, Slice weights, Slice gradient, std::uint64_t offset) const;

  bool host() const { return host_; }
  // Whether a step with a gradient of zeros changes anything, the number of steps included.
  bool heeds_zeros() const { return config_.type != OptimizerType::sgd || config_.weight_decay != 0; }
  bool has_moments() const { return config_.adam(); }
  // Views of the moments through `pieces` of the flat range.
  void observe(ProgramWriter& w, const std::vector<ViewPiece>& pieces) const;

 private:
  OptimizerConfig config_;
  bool host_;
  std::string suffix_;
  Slice first_moment_, second_moment_;
  std::uint32_t step_ = 0;
};

// Fills weights with the run's initial values; padding with zeros.
void initialise_weights(ProgramWriter& w, Slice weights, std::uint32_t parameter, std::uint64_t parameter_offset);

}  // namespace gradledger
