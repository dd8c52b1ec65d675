// PartitionedParameterCoordinator of stage 3: which weights a rank gathers around its modules, where every parameter is a module of its own.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "sim/engine/state_fold.h"

namespace gradledger {

class WeightFetches {
 public:
  // By use of a parameter: whose weights it takes, and how many these are.
  WeightFetches(std::vector<std::uint32_t> owners, std::vector<std::uint64_t> sizes);

  // Whether ranks compare what they recorded when the next forward begins, and how many modules that is.
  bool compares() const { return mode_ != Mode::complete; }
  std::size_t recorded() const { return order_.size(); }
  // Of a forward or backward that the first rank runs otherwise.
  void differs() { alike_ = alike_ && mode_ != Mode::record; }
  bool disagrees() const { return !alike_ && mode_ == Mode::record; }

  // What each has to gather. A backward gathers for a module as often as forwards have run it, and lets go of it once for the last of them: a graph that
  // is run twice does neither the second time.
  void begin_forward();                                              // partitioned_param_coordinator.py: reset_step, at 0.19.8
  std::vector<std::uint32_t> forward_of_root();                      // parameter_offload.py: pre_sub_module_forward_function, at 0.19.8
  std::vector<std::uint32_t> forward(std::uint32_t module);          // likewise, and post_sub_module_forward_function
  std::vector<std::uint32_t> backward_of_root();                     // parameter_offload.py: _run_before_backward_function, at 0.19.8
  std::vector<std::uint32_t> before_backward(std::uint32_t module);  // likewise
  void after_backward(std::uint32_t module);                         // parameter_offload.py: PostBackwardFunctionModule, at 0.19.8
  void begin_step();                                                 // stage3.py: _partition_all_parameters, at 0.19.8
  std::vector<std::uint32_t> end_step();                             // stage3.py: _post_step, at 0.19.8

  void fold(StateFold& f) const;

 private:
  enum class Mode : std::uint8_t { invalid, record, complete };
  using Traced = std::pair<std::uint32_t, std::int64_t>;  // a parameter, and the step of its module

  std::uint32_t root() const { return static_cast<std::uint32_t>(owners_.size()); }
  std::vector<std::uint32_t> before(std::uint32_t module);  // partitioned_param_coordinator.py: trace_prologue, fetch_sub_module, at 0.19.8
  void after(std::uint32_t module);                         // partitioned_param_coordinator.py: release_sub_module, at 0.19.8
  bool persists(std::uint32_t parameter) const;
  bool keeps(std::uint32_t parameter) const;
  void fetch(std::uint32_t parameter, std::vector<std::uint32_t>& out);
  void release(std::uint32_t parameter);
  void invalidate();
  void prefetch(std::uint32_t module, std::vector<std::uint32_t>& out);

  std::vector<std::uint32_t> owners_;
  std::vector<std::uint64_t> sizes_;
  Mode mode_ = Mode::invalid;
  bool alike_ = true;                 // the recording, on this rank and the first
  std::vector<std::uint32_t> order_;  // modules of a forward and its backward; root(): the model itself
  std::deque<Traced> queue_;
  std::vector<std::int64_t> fetched_for_;  // by parameter: the last step that it was fetched for
  std::int64_t step_ = 0;
  std::vector<std::uint32_t> forwards_;  // by module: those that no backward has followed
  std::vector<bool> kept_for_backward_;  // by module: a backward has yet to let go of it
  std::vector<bool> available_;
  std::uint64_t available_numel_ = 0;
};

}  // namespace gradledger
