// c10d::Reducer: the buckets of DistributedDataParallel, and when and how they are reduced. Its functions keep the names of reducer.cpp, as
// users meet them in error texts. It numbers parameters by their place among those that it was given.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "sim/engine/engine.h"
#include "sim/engine/tensors.h"
#include "sim/frameworks/torch/ddp/buckets.h"
#include "sim/scenario/layout.h"
#include "sim/scenario/scenario.h"

namespace gradledger::torch {

// What engine and reducer share of a rank.
struct Gradients {
  std::uint32_t group = 0;  // of the ranks that average with each other
  TensorTable tensors;
  std::vector<Tensor> grad;  // param.grad, by parameter of the model
};

// The ranks that a rank averages with: the world, or the data-parallel ones of a layout.
ProcessGroup averaging_ranks(const EngineContext& context);

// Whether the wrapper makes a module's DTensors of its parameters, which it does before the first forward. ddp.py: _reconstruct_dtensor, at torch 2.13
bool has_dtensors(const EngineContext& context);
// Autograd comes back to those after all that the forward did.
void put_dtensors_last(const EngineContext& context, const DdpConfig& config, std::vector<std::uint32_t>& ready);

// The optimizer's step on one parameter of the model, where it runs in the backward.
using StepInBackward = std::function<void(std::uint32_t parameter, Slice gradient)>;

// What a call of the reducer works on.
struct Pass {
  ProgramWriter& w;
  Gradients& g;
  const StepInBackward& step;
};

struct Bucket {
  Tensor gradients;                      // the flat tensor; none between backwards, where buckets are allocated lazily
  std::vector<std::uint32_t> variables;  // as the reducer numbers them
  std::vector<std::uint64_t> offsets;
  std::uint64_t numel = 0;
  std::uint32_t pending = 0;
  std::uint32_t work = no_index;  // stream event: it is reduced
  Tensor compressed;              // of a hook, on its way
  bool has_future = false;        // of a reduction, of this backward or of one before it
};

class Reducer {
 public:
  // `parameters` of the model are the reducer's. The scenario and the configuration outlive it.
  Reducer(const EngineContext& context, const DdpConfig& config, std::vector<std::uint32_t> parameters);

  void initialise(const Pass& pass);  // reducer.cpp: Reducer, at torch 2.13
  bool manages(std::uint32_t parameter) const { return number_of_[parameter] != no_index; }

  // ---- the forward
  void ensure_prior_reduction_finished() const;
  void rebuild_buckets(const Pass& pass);  // reducer.cpp: rebuild_buckets, at torch 2.13
  // reachable: parameters of the model that the graph of the outputs reaches.
  void prepare_for_backward(const std::vector<std::uint32_t>& reachable);

  // ---- the backward, `ordinal` of the timeline
  void autograd_hook(const Pass& pass, std::uint32_t parameter, std::uint32_t ordinal);  // reducer.cpp: autograd_hook, at torch 2.13
  // The callback that static_graph queues in its first iteration.
  void delay_all_reduce(const Pass& pass);  // reducer.cpp: delay_all_reduce, at torch 2.13
  // Whether the loop ends backwards. Raises between a forward and the end of its backward.
  void set_manual_finalization_required(bool required);             // reducer.cpp: set_manual_finalization_required, at torch 2.15
  std::optional<Slice> finalize_backward_manual(const Pass& pass);  // reducer.cpp: finalize_backward_manual, at torch 2.15
  // Callbacks that wait for the end of the backward: none, where an exception left it.
  bool finalize_queued() const { return finalize_queued_; }
  void drop_callbacks() { finalize_queued_ = optimizer_ran_ = false; }
  // Up to the first question that it has to the reduced map of used parameters, if any: the slice to read.
  std::optional<Slice> finalize_backward(const Pass& pass);            // reducer.cpp: finalize_backward, at torch 2.13
  std::optional<Slice> finalize_goes_on(const Pass& pass, bool used);  // reducer.cpp: finalize_backward, at torch 2.13

  // Whether a bucket was stepped in this backward: all gradients are None at its end.
  bool optimizer_ran() const { return optimizer_ran_; }

 private:
  bool dynamic_graph_find_unused() const { return config_->searches_unused(); }
  bool static_graph_first_iteration() const { return config_->static_graph && backward_calls_ == 1; }
  bool static_graph_after_first_iteration() const { return config_->static_graph && backward_calls_ > 1; }
  bool should_rebuild_buckets() const { return (config_->static_graph || !config_->find_unused_parameters) && !has_rebuilt_; }
  bool batched() const { return config_->batched_grad_copy; }
  bool hook_divides() const { return config_->comm_hook != CommHook::none || config_->optimizer_in_backward; }
  std::uint32_t world() const { return data_parallel_.size(); }
  Slice view(std::uint32_t variable) const;

  void initialize_buckets(const Pass& pass, const BucketAssignment& assignment);  // reducer.cpp: initialize_buckets, at torch 2.13
  void initialize_bucket_storage(const Pass& pass, std::uint32_t bucket);         // reducer.cpp: initialize_bucket_storage, at torch 2.15
  void release_bucket_storage(const Pass& pass);                                  // reducer.cpp: release_bucket_storage, at torch 2.15
  std::vector<SizedParameter> sized(const std::vector<std::uint32_t>& order) const;
  std::vector<std::uint32_t> order_of_rank_0() const;
  void sync_bucket_indices(const Pass& pass, const BucketAssignment& assignment);  // reducer.cpp: sync_bucket_indices, at torch 2.13
  void mark_variable_ready(const Pass& pass, std::uint32_t variable);              // reducer.cpp: mark_variable_ready, at torch 2.13
  void mark_variable_ready_dense(const Pass& pass, std::uint32_t variable);        // reducer.cpp: mark_variable_ready_dense, at torch 2.13
  void copy_into_bucket(const Pass& pass, std::uint32_t variable);                 // reducer.cpp: mark_variable_ready_dense, at torch 2.13
  void flush_deferred_copies(const Pass& pass, const Bucket& bucket);              // reducer.cpp: flush_deferred_copies, at torch 2.15
  void mark_bucket_ready(const Pass& pass);                                        // reducer.cpp: mark_bucket_ready, at torch 2.13
  void all_reduce_bucket(const Pass& pass, Bucket& bucket);                        // reducer.cpp: all_reduce_bucket, at torch 2.13
  Dtype dtype_of_future(std::uint32_t variable) const;                             // default_hooks.py: fp16_compress_wrapper, bf16_compress_wrapper, at torch 2.13
  bool averages_as_is(const Bucket& bucket);                                       // powerSGD_hook.py: maybe_increase_iter, at torch 2.13
  void compress_bucket(const Pass& pass, Bucket& bucket);                          // powerSGD_hook.py: powerSGD_hook, at torch 2.13
  bool should_skip(const Bucket& bucket) const;
  void all_reduce_local_used_map(const Pass& pass);                                        // reducer.cpp: all_reduce_local_used_map, at torch 2.13
  std::optional<Slice> finalize_dense(const Pass& pass);                                   // reducer.cpp: finalize_bucket_dense, at torch 2.13
  void check_grad_layout(const Pass& pass, const Tensor& grad, Slice view) const;          // reducer.cpp: check_grad_layout, at torch 2.13
  void finalize_variable(const Pass& pass, std::uint32_t variable, bool globally_unused);  // reducer.cpp: finalize_bucket_dense, at torch 2.13

  EngineContext context_;
  ProcessGroup data_parallel_;
  const DdpConfig* config_;
  std::vector<std::uint32_t> parameters_;  // of the model, by the reducer's number
  std::vector<std::uint32_t> number_of_;   // by parameter of the model; no_index: not the reducer's
  std::vector<Bucket> buckets_;
  std::vector<std::uint32_t> bucket_of_, place_in_;  // by variable

  bool manual_finalization_required_ = false;
  bool expect_autograd_hooks_ = false;
  bool require_finalize_ = false;
  bool has_marked_unused_ = false;
  bool has_rebuilt_ = false;
  bool first_hook_called_ = false;
  std::uint32_t backward_calls_ = 0;  // that were finished, and the one that runs
  std::size_t next_bucket_ = 0;
  std::vector<std::uint32_t> unused_;
  std::vector<bool> ready_;  // in this iteration
  std::vector<std::uint32_t> rebuilt_order_;
  std::uint32_t rebuilt_in_ = no_index;                      // ordinal of the backward that gave the order
  std::uint32_t first_iteration_in_ = no_index;              // static_graph: ordinal of the last backward of the first iteration
  std::vector<std::uint32_t> hooks_triggered_, hooks_left_;  // static_graph: in the first iteration, and what is left of as many

  std::uint32_t iterations_ = 0;            // of powerSGD_hook
  std::map<std::uint32_t, Tensor> errors_;  // of powerSGD_hook, by bucket: what it left out last time

  Slice used_map_;  // int32, of all ranks after its reduction
  std::uint32_t used_map_work_ = no_index;
  std::vector<bool> used_;  // the host's map
  bool used_map_reduced_ = false;
  std::size_t finalize_at_ = 0;  // of all variables, bucket by bucket
  bool finalize_queued_ = false;
  bool optimizer_ran_ = false;
};

}  // namespace gradledger::torch
