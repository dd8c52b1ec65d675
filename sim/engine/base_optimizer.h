// The base optimizer (SGD, Adam, AdamW) and the weights it steps: model-dtype weights, replicated or sharded, and fp32 master weights.
#pragma once

#include <string>
#include <vector>

#include "sim/engine/partition.h"
#include "sim/program/program.h"
#include "sim/scenario/scenario.h"

namespace gradledger {

// Moments over one flat fp32 range, and the update calls on parts of it.
class BaseOptimizer {
 public:
  // host: the CPU formula on the host stream, as optimizer offload selects it.
  BaseOptimizer(const OptimizerConfig& config, bool host) : config_(config), host_(host) {}

  void initialise(ProgramWriter& w, std::uint32_t numel, const std::string& suffix);
  void begin_step() { ++step_; }
  // weights and gradient: fp32; `offset` is where they lie in the flat range.
  void update(ProgramWriter& w, Slice weights, Slice gradient, std::uint32_t offset) const;

  bool host() const { return host_; }
  bool has_moments() const { return config_.type != OptimizerType::sgd; }
  // Views of the moments through `pieces` of the flat range.
  void observe(ProgramWriter& w, const std::vector<ViewPiece>& pieces) const;

 private:
  OptimizerConfig config_;
  bool host_;
  std::string suffix_;
  Slice first_moment_, second_moment_;
  std::uint32_t step_ = 0;
};

// The weights of stages 1 and 2 and of BF16_Optimizer: flat, padded, replicated in the model dtype; this rank's fp32 partition.
class FlatWeights {
 public:
  FlatWeights(const Scenario& scenario, std::uint32_t rank, std::string master_name);

  const FlatPartition& layout() const { return layout_; }
  const std::vector<OwnedPart>& parts() const { return parts_; }

  void initialise(ProgramWriter& w);
  // Base step with `gradient` (fp32, the partition's length), weights of the partition = master, all-gather.
  void step(ProgramWriter& w, Slice gradient);
  void observe(ProgramWriter& w) const;

  // The partition's elements as view pieces over `slice` (of the partition's length).
  std::vector<ViewPiece> partition_pieces(Slice slice) const;

 private:
  ProcessGroup peers_;
  std::uint32_t rank_;  // its number among them
  Dtype model_dtype_;
  std::vector<Parameter> parameters_;
  FlatPartition layout_;
  std::vector<OwnedPart> parts_;
  std::string master_name_;
  BaseOptimizer optimizer_;
  Slice weights_, master_;
};

// Fills weights with the run's initial values; padding with zeros.
void initialise_weights(ProgramWriter& w, Slice weights, std::uint32_t parameter, std::uint32_t parameter_offset);

}  // namespace gradledger
