// Runtimes as users write them: sums of micro-batches in fp32, averaged over the ranks at one of three times, and SGD. Right, or wrong in one way. Public headers alone.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "gradledger/wrapper.h"

namespace library_test {

enum class Reduces { in_step, at_the_last_backward, at_every_backward };
enum class Defect {
  none,
  last_stays_local,
  forgets_the_first,
  counts_twice,
  keeps_to_itself,
  divides_once_too_often,
  keeps_what_zero_grad_drops,
  raises,
  calls_less,
  shows_what_is_not_there,
  ends,
  is_silent,
  loses_what_is_not_synced,
  forgets_on_the_third_window,
};

struct Kind {
  Reduces reduces = Reduces::in_step;
  Defect defect = Defect::none;
  std::uint32_t micro_batches = 4;  // in a window; 0: however many come, and nothing is divided by their number
};

using Values = std::vector<float>;

class Runtime : public gradledger::Wrapper {
 public:
  static constexpr gradledger::Shows shows{.applied_gradients = true, .accumulators = true, .weights = true};

  Runtime(const gradledger::Configuration& configuration, gradledger::Communicator& ranks, Kind kind)
      : ranks_(ranks), kind_(kind), lr_(static_cast<float>(configuration.optimizer.lr)) {
    for (const gradledger::Parameter& parameter : configuration.parameters) weights_.push_back(parameter.weights);
    drop();
  }

  void backward(const gradledger::Backward& backward) override {
    const bool last = ++seen_ == kind_.micro_batches;
    if (is(Defect::forgets_the_first) && seen_ == 2) clear(sums_);
    if (is(Defect::forgets_on_the_third_window) && windows_ == 2 && seen_ == 2) clear(sums_);
    if (is(Defect::last_stays_local) && last) average();
    for (const auto& [parameter, values] : backward.gradients) add(parameter, values);
    if (is(Defect::counts_twice) && last) add(backward.gradients[0].parameter, backward.gradients[0].values);
    if (is(Defect::raises) && ranks_.rank() == 1 && seen_ == 2) throw std::out_of_range("no such bucket");
    if (is(Defect::is_silent) && seen_ == 2) std::this_thread::sleep_for(std::chrono::hours(1));
    if (is(Defect::ends) && ranks_.rank() == 1 && seen_ == 2) std::abort();
    if (kind_.reduces == Reduces::at_every_backward || (kind_.reduces == Reduces::at_the_last_backward && last)) average();
  }

  void step() override {
    if (kind_.reduces == Reduces::in_step) average();
    applied_ = reduced_;
    for (std::size_t p = 0; p < weights_.size(); ++p)
      for (std::size_t i = 0; i < weights_[p].size(); ++i) weights_[p][i] -= lr_ * applied_[p][i];
    drop();
    ++windows_;
  }

  void zero_grad() override {
    if (!is(Defect::keeps_what_zero_grad_drops) || seen_ == 0) drop();
  }

  void show(gradledger::Shown& out) override {
    for (std::uint32_t p = 0; p < weights_.size(); ++p) {
      const std::string number = "[" + std::to_string(p) + "]";
      if (!averaged_) out.add(gradledger::Role::local, "sums" + number, p, sums_[p]);
      else out.add(gradledger::Role::reduced, "reduced" + number, p, reduced_[p]);
      if (!applied_.empty()) out.add(gradledger::Role::applied, "applied" + number, p, applied_[p]);
      out.add(gradledger::Role::parameter, "weights" + number, p, weights_[p]);
    }
    if (is(Defect::shows_what_is_not_there)) out.add(gradledger::Role::local, "nowhere", 99, sums_[0]);
  }

 protected:
  bool is(Defect defect) const { return kind_.defect == defect; }

  void add(std::uint32_t parameter, const Values& values) {
    const float share = kind_.micro_batches > 0 ? 1.0f / static_cast<float>(kind_.micro_batches) : 1.0f;
    for (std::size_t i = 0; i < values.size(); ++i) sums_[parameter][i] += share * values[i];
  }

  // What is in the sums goes into the average, and out of them.
  void average() {
    if (is(Defect::last_stays_local) && averaged_) {
      for (std::size_t p = 0; p < sums_.size(); ++p)
        for (std::size_t i = 0; i < sums_[p].size(); ++i) reduced_[p][i] += sums_[p][i];
      return clear(sums_);
    }
    averaged_ = true;
    for (std::size_t p = 0; p < sums_.size(); ++p) {
      Values mean = sums_[p];
      if (is(Defect::calls_less) && ranks_.rank() == 1) mean.pop_back();
      if (!is(Defect::keeps_to_itself) || p > 0) ranks_.all_reduce(mean, gradledger::Reduction::avg);
      mean.resize(sums_[p].size());
      for (std::size_t i = 0; i < mean.size(); ++i) reduced_[p][i] += mean[i] / (is(Defect::divides_once_too_often) ? 2.0f : 1.0f);
    }
    clear(sums_);
  }

  void drop() {
    sums_.clear();
    for (const Values& weights : weights_) sums_.emplace_back(weights.size());
    reduced_ = sums_;
    seen_ = 0;
    averaged_ = false;
  }

  static void clear(std::vector<Values>& all) {
    for (Values& values : all) values.assign(values.size(), 0.0f);
  }

  gradledger::Communicator& ranks_;
  Kind kind_;
  float lr_;
  std::vector<Values> weights_, sums_, reduced_, applied_;
  std::uint32_t seen_ = 0, windows_ = 0;
  bool averaged_ = false;
};

// step() behind every micro-batch, and a counter that says which of them updates.
class Counting : public Runtime {
 public:
  using Runtime::Runtime;

  void step() override {
    applied_.clear();
    if (seen_ == kind_.micro_batches) Runtime::step();
  }
};

// Reduces every backward but those in no_sync.
class Syncing : public Runtime {
 public:
  using Runtime::Runtime;

  void backward(const gradledger::Backward& backward) override {
    ++seen_;
    for (const auto& [parameter, values] : backward.gradients) add(parameter, values);
    if (!synced_) return;
    average();
  }
  void enter_no_sync() override { synced_ = false; }
  void exit_no_sync() override {
    synced_ = true;
    if (is(Defect::loses_what_is_not_synced)) clear(sums_);
  }

 private:
  bool synced_ = true;
};

// Is told which micro-batch is the last.
class Bounded : public Runtime {
 public:
  using Runtime::Runtime;

  void backward(const gradledger::Backward& backward) override {
    ++seen_;
    for (const auto& [parameter, values] : backward.gradients) add(parameter, values);
    if (boundary_) average();
  }
  void set_boundary(bool boundary) override { boundary_ = boundary; }

 private:
  bool boundary_ = false;
};

// Its weights alone can be seen.
class Closed : public Runtime {
 public:
  static constexpr gradledger::Shows shows{.weights = true};
  using Runtime::Runtime;

  void show(gradledger::Shown& out) override {
    for (std::uint32_t p = 0; p < weights_.size(); ++p) out.add(gradledger::Role::parameter, "weights[" + std::to_string(p) + "]", p, weights_[p]);
  }
};

// Sums as they come; what they are multiplied by is said with them.
class PlainSums : public Runtime {
 public:
  using Runtime::Runtime;

  void step() override {
    for (Values& sum : sums_)
      for (float& value : sum) value /= 4;
    Runtime::step();
  }
  void show(gradledger::Shown& out) override {
    for (std::uint32_t p = 0; p < weights_.size(); ++p) {
      out.add(gradledger::Role::local, "sums[" + std::to_string(p) + "]", p, sums_[p], 4);
      if (!applied_.empty()) out.add(gradledger::Role::applied, "applied[" + std::to_string(p) + "]", p, applied_[p]);
    }
  }
};

// All ranks in one object.
class Together : public gradledger::World {
 public:
  static constexpr gradledger::Shows shows{.applied_gradients = true, .accumulators = true, .weights = true};

  Together(const gradledger::Configuration& configuration, Defect defect) : defect_(defect) {
    for (std::uint32_t r = 0; r < configuration.world_size; ++r) {
      auto& sums = sums_.emplace_back();
      for (const gradledger::Parameter& parameter : configuration.parameters) {
        sums.emplace_back(parameter.numel);
        if (r == 0) weights_.push_back(parameter.weights);
      }
    }
  }

  void backward(std::span<const gradledger::Backward> by_rank) override {
    if (defect_ == Defect::raises && by_rank[0].micro_batch == 2) throw 7;
    for (const gradledger::Backward& one : by_rank)
      for (const auto& [parameter, values] : one.gradients)
        for (std::size_t i = 0; i < values.size(); ++i) sums_[one.rank][parameter][i] += values[i] / 4;
  }

  void step(std::span<const std::uint32_t>) override {
    applied_.clear();
    for (std::size_t p = 0; p < weights_.size(); ++p) {
      Values& mean = applied_.emplace_back(weights_[p].size());
      const std::size_t counted = defect_ == Defect::keeps_to_itself ? 1 : sums_.size();
      for (std::size_t r = 0; r < counted; ++r)
        for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += sums_[r][p][i] / static_cast<float>(sums_.size());
      for (std::size_t i = 0; i < mean.size(); ++i) weights_[p][i] -= mean[i];
      for (auto& sums : sums_) sums[p].assign(sums[p].size(), 0.0f);
    }
  }

  void show(std::uint32_t rank, gradledger::Shown& out) override {
    for (std::uint32_t p = 0; p < weights_.size(); ++p) {
      out.add(gradledger::Role::local, "sums[" + std::to_string(p) + "]", p, sums_[rank][p]);
      if (!applied_.empty()) out.add(gradledger::Role::applied, "applied[" + std::to_string(p) + "]", p, applied_[p]);
      out.add(gradledger::Role::parameter, "weights[" + std::to_string(p) + "]", p, weights_[p]);
    }
  }

 private:
  Defect defect_;
  std::vector<std::vector<Values>> sums_;  // by rank
  std::vector<Values> weights_, applied_;
};

inline gradledger::Ranks runtime(Kind kind = {}) { return gradledger::ranks<Runtime>("runtime", kind); }

// A scenario's keys behind the parameters, and what is done twice.
inline std::string averaging(const std::string& more = R"("contract": {"divide_by": 4})", const std::string& window = R"({"backward": {"micro_batches": 4}}, {"step": {}})") {
  return R"({"name": "averaging", "world_size": 2, "parameters": [{"name": "w0", "numel": 6}, {"name": "w1", "numel": 4}], )" + more +
         R"(, "script": [{"repeat": {"times": 2, "of": [)" + window + "]}}]}";
}

}  // namespace library_test
