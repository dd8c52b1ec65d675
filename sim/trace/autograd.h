// A backward that a producer runs itself, and a source that hands its gradients on.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/trace/producer.h"

namespace gradledger {

// Runs a network's forward and backward with some arithmetic of its own.
class Autograd {
 public:
  virtual ~Autograd() = default;
  // The gradient of every parameter from one backward event on one rank, by parameter; what is in `gradients` may be used again.
  virtual void run(std::uint32_t backward, std::uint32_t rank, std::vector<std::vector<float>>& gradients) = 0;
};

// The inner source, but for gradients, which are those of an autograd and of what the script plants. Keeps the latest backward of each rank.
class ComputedGradients final : public GradientSource {
 public:
  ComputedGradients(const GradientSource& inner, Autograd& autograd, std::uint32_t world_size) : inner_(inner), autograd_(autograd), latest_(world_size) {}

  void gradient(std::uint32_t backward, std::uint32_t rank, std::uint32_t parameter, std::uint64_t offset, std::span<double> out) const override;
  void initial_parameter(std::uint32_t parameter, std::uint64_t offset, std::span<double> out) const override { inner_.initial_parameter(parameter, offset, out); }

 private:
  struct Entry {
    std::optional<std::uint32_t> backward;
    std::vector<std::vector<float>> gradients;
  };

  const GradientSource& inner_;
  Autograd& autograd_;
  mutable std::vector<Entry> latest_;  // by rank
};

}  // namespace gradledger
