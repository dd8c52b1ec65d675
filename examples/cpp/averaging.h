// An optimizer wrapper as a training runtime may have it: micro-batches are summed in fp32, the sums are averaged over the ranks, and SGD steps on the average.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <utility>
#include <vector>

namespace runtime {

using Tensor = std::vector<float>;
using Average = std::function<void(std::span<float>)>;  // over the ranks, in place

class AveragingOptimizer {
 public:
  AveragingOptimizer(std::vector<Tensor> weights, float lr, std::size_t micro_batches, Average average)
      : weights_(std::move(weights)), lr_(lr), micro_batches_(micro_batches), average_(std::move(average)) {
    zero_grad();
  }

  // The loop calls these around the gradients of each micro-batch.
  void begin_backward() {
    ++seen_;
    if (seen_ == micro_batches_) reduce();
  }
  void add(std::size_t parameter, std::span<const float> gradient) {
    for (std::size_t i = 0; i < gradient.size(); ++i) sums_[parameter][i] += gradient[i] / static_cast<float>(micro_batches_);
  }
  void end_backward() {}

  void step() {
    for (std::size_t p = 0; p < weights_.size(); ++p)
      for (std::size_t i = 0; i < weights_[p].size(); ++i) weights_[p][i] -= lr_ * sums_[p][i];
    applied_ = std::exchange(sums_, {});
    zero_grad();
  }

  void zero_grad() {
    sums_.clear();
    for (const Tensor& weight : weights_) sums_.emplace_back(weight.size());
    seen_ = 0;
  }

  const std::vector<Tensor>& weights() const { return weights_; }
  const std::vector<Tensor>& sums() const { return sums_; }
  const std::vector<Tensor>& applied() const { return applied_; }  // by the last step
  bool averaged() const { return seen_ == micro_batches_; }        // the sums are those of all ranks

 private:
  void reduce() {
    for (Tensor& sum : sums_) average_(sum);
  }

  std::vector<Tensor> weights_, sums_, applied_;
  float lr_;
  std::size_t micro_batches_, seen_ = 0;
  Average average_;
};

}  // namespace runtime
