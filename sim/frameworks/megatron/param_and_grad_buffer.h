// _ParamAndGradBuffer and its bucket groups: contiguous gradients, and when and how a bucket of them is reduced. Functions keep Megatron's names, as
// users meet them in error texts.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "sim/frameworks/megatron/buffer_layout.h"
#include "sim/frameworks/megatron/setup.h"

namespace gradledger::megatron {

// Gradients of the parameters of one dtype, dense or of experts.
struct ParamAndGradBuffer {
  bool of_experts = false;
  Dtype param_dtype = Dtype::float32, grad_dtype = Dtype::float32;
  BufferLayout layout;
  ProcessGroup group;  // that buckets are dealt to, or reduced over
  double gradient_scaling_factor = 1;
  Slice grad_data, param_data;  // param_data: with the distributed optimizer

  Slice main_grad(const ParameterPlace& p) const { return grad_data.part(p.begin, p.end - p.begin); }
};

// The reduction of a bucket that is on its way.
struct GradReduce {
  std::uint32_t done = no_index;  // stream event
  Slice staged;                   // its data, where results are delivered at the wait
};

// _ParamAndGradBucketGroup of one bucket, which is what it has without fp8.
class BucketGroup {
 public:
  BucketGroup(SharedSetup setup, const ParamAndGradBuffer& buffer, std::uint32_t bucket, std::string name);

  void reset();  // of the host's state: param_and_grad_buffer.py, at 0.16.1
  void set_last_microbatch(bool last) { is_last_microbatch_ = last; }

  // ---- gradients
  void register_grad_ready(std::uint32_t parameter, ProgramWriter& w);  // param_and_grad_buffer.py: register_grad_ready, at 0.16.1
  void start_grad_sync(ProgramWriter& w);                               // param_and_grad_buffer.py: start_grad_sync, at 0.16.1
  void finish_grad_sync(ProgramWriter& w);                              // param_and_grad_buffer.py: finish_grad_sync, at 0.16.1
  // The gradients that check_grads would look at if they were reduced now.
  Slice grads() const { return grads_; }
  // Whether finish_grad_sync would begin a reduction.
  bool begins_at_finish() const { return !overlaps() || (setup_->behaviour.counts_ready && is_first_batch_); }

  // ---- weights
  void start_param_sync(bool force, ProgramWriter& w);  // param_and_grad_buffer.py: start_param_sync, at 0.16.1
  // Whether the next group's gather is to be dispatched behind it.
  bool finish_param_sync(ProgramWriter& w);  // param_and_grad_buffer.py: finish_param_sync, at 0.16.1

  // ---- what it knows, for comparison
  const std::vector<std::uint32_t>& parameters() const { return parameters_; }
  const std::map<std::uint32_t, std::uint32_t>& ready() const { return ready_; }
  const std::map<std::uint32_t, std::uint32_t>& golden() const { return golden_; }
  bool is_last_microbatch() const { return is_last_microbatch_; }
  bool is_first_batch() const { return is_first_batch_; }
  bool has_grad_reduce_handle() const { return handle_.has_value(); }
  // Whether a reduction was begun and not waited for.
  bool is_reducing() const { return (handle_ && !waited_) || communicated_ != no_index; }
  bool has_param_gather_handle() const { return gather_done_.has_value(); }
  bool param_gather_dispatched() const { return param_gather_dispatched_; }
  bool grad_reduce_finished() const { return grad_reduce_finished_; }

 private:
  bool overlaps() const { return setup_->config->ddp.overlap_grad_reduce; }
  bool distributed() const { return setup_->config->ddp.use_distributed_optimizer; }
  bool counts() const { return setup_->behaviour.counts_ready; }
  Slice shard_of_rank(Slice whole) const;
  void reduce(Slice data, ProgramWriter& w);              // param_and_grad_buffer.py: start_grad_sync, at 0.16.1
  void wait(const GradReduce& handle, ProgramWriter& w);  // ours: a handle's wait()

  SharedSetup setup_;
  std::string name_;
  std::vector<std::uint32_t> parameters_;
  ProcessGroup group_;
  double gradient_scaling_factor_;
  Slice grads_, params_;

  std::map<std::uint32_t, std::uint32_t> ready_, golden_;  // by parameter: how often
  bool is_last_microbatch_ = true;
  bool is_first_batch_ = true;
  bool grad_reduce_finished_ = false;
  std::optional<GradReduce> handle_;
  bool waited_ = false;                       // for the handle, where it is kept
  std::uint32_t communicated_ = no_index;     // stream event: with several instances
  std::optional<std::uint32_t> gather_done_;  // stream event: the handle of a gather
  bool param_gather_dispatched_ = false;
};

}  // namespace gradledger::megatron
