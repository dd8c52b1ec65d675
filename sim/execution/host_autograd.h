// The forward and backward of a network in fp32 on the host: sim/numeric/layers.h, sample by sample.
#pragma once

#include <vector>

#include "sim/trace/autograd.h"

namespace gradledger {

class HostAutograd final : public Autograd {
 public:
  // Preconditions: the source has network data of the scenario's network; both outlive the autograd.
  HostAutograd(const Scenario& scenario, const GradientSource& source);

  void run(std::uint32_t backward, std::uint32_t rank, std::vector<std::vector<float>>& gradients) override;

 private:
  void forward();
  void backward(std::vector<std::vector<float>>& gradients);

  const NetworkData& data_;
  const Mlp& mlp_;
  std::vector<std::vector<float>> weights_;        // by parameter
  std::vector<std::vector<float>> inputs_, sums_;  // by layer, of one sample: what goes in, what comes out
  std::vector<float> target_, delta_, passed_on_;
};

}  // namespace gradledger
