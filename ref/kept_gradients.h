// Gradients that are drawn once: the producer deposits them, and the model adds them up.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/scenario/timeline.h"
#include "sim/scenario/workload.h"
#include "sim/trace/producer.h"

namespace gradledger::ref {

// Another source, of which everything is kept that was asked for, where that is wanted and not too much; else nothing. Where it keeps, for one thread. Precondition:
// what the other gives does not change; both outlive this one.
class KeptGradients final : public GradientSource {
 public:
  static constexpr std::uint64_t elements_max = 1u << 16;  // 512 KB

  KeptGradients(const GradientSource& inner, const Workload& workload, const Timeline& timeline, bool keeps = true)
      : inner_(inner), workload_(workload), ranks_(workload.world_size) {
    for (const Parameter& p : workload.parameters) {
      offset_.push_back(numel_);
      numel_ += p.numel;
    }
    const std::uint64_t contributions = std::uint64_t{ranks_} * timeline.backwards.size();
    if (!keeps || numel_ == 0 || contributions > elements_max / numel_) return;
    values_.resize(contributions * numel_);
    there_.resize(contributions * workload.parameters.size());
  }

  void gradient(std::uint32_t backward, std::uint32_t rank, std::uint32_t parameter, std::uint64_t offset, std::span<double> out) const override {
    if (values_.empty()) return inner_.gradient(backward, rank, parameter, offset, out);
    const std::uint64_t contribution = std::uint64_t{backward} * ranks_ + rank;
    double* const whole = values_.data() + contribution * numel_ + offset_[parameter];
    std::uint8_t& there = there_[contribution * offset_.size() + parameter];
    if (there == 0) inner_.gradient(backward, rank, parameter, 0, {whole, workload_.parameters[parameter].numel});
    there = 1;
    std::copy_n(whole + offset, out.size(), out.data());
  }

  void initial_parameter(std::uint32_t parameter, std::uint64_t offset, std::span<double> out) const override { inner_.initial_parameter(parameter, offset, out); }
  const NetworkData* network_data() const override { return inner_.network_data(); }
  void gradient_error(std::uint32_t backward, std::uint32_t rank, std::uint32_t parameter, std::uint64_t offset, std::span<double> out) const override {
    inner_.gradient_error(backward, rank, parameter, offset, out);
  }
  void plant(std::uint32_t backward, std::uint32_t rank, std::uint32_t parameter, std::uint64_t offset, std::span<double> out) const override {
    inner_.plant(backward, rank, parameter, offset, out);
  }

 private:
  const GradientSource& inner_;
  const Workload& workload_;
  const std::uint32_t ranks_;
  std::uint64_t numel_ = 0;
  std::vector<std::uint64_t> offset_;        // by parameter
  mutable std::vector<double> values_;       // by backward and rank, then by element
  mutable std::vector<std::uint8_t> there_;  // by backward, rank and parameter
};

}  // namespace gradledger::ref
