// The data of a network whose backward the producer runs itself: weights, inputs and targets, and what the gradients must be.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "ref/mlp.h"
#include "sim/scenario/timeline.h"
#include "sim/trace/producer.h"

namespace gradledger::ref {

// Weights are multiples of a power of two, uniform and of a size that keeps the layers' outputs near 1; inputs and targets are uniform in
// [-2, 2). All are integers of 8 bits times a power of two. Samples are numbered through the window of a rank.
class MlpSource final : public GradientSource, public NetworkData {
 public:
  // Precondition: the scenario's gradients are those of a network.
  MlpSource(const Workload& workload, const Timeline& timeline, std::uint64_t seed);

  void gradient(std::uint32_t backward, std::uint32_t rank, std::uint32_t parameter, std::uint64_t offset, std::span<double> out) const override;
  void gradient_error(std::uint32_t backward, std::uint32_t rank, std::uint32_t parameter, std::uint64_t offset, std::span<double> out) const override;
  void initial_parameter(std::uint32_t parameter, std::uint64_t offset, std::span<double> out) const override;
  const NetworkData* network_data() const override { return this; }

  const Mlp& network() const override { return *workload_.gradients.mlp; }
  std::uint32_t batch() const override { return workload_.gradients.samples_per_micro_batch; }
  void sample(std::uint32_t backward, std::uint32_t rank, std::uint32_t sample, std::span<float> input, std::span<float> target) const override;

 private:
  struct Entry {
    std::uint32_t backward = 0, rank = 0;
    MlpGradients gradients;
  };
  const MlpGradients& gradients(std::uint32_t backward, std::uint32_t rank) const;

  const Workload& workload_;
  const Timeline& timeline_;
  std::uint64_t seed_;
  std::vector<std::vector<double>> weights_;
  mutable MlpReference reference_;
  mutable std::deque<Entry> known_;  // the latest; one judge asks for all parameters of a backward, and others for the same again
};

}  // namespace gradledger::ref
