// FlatParamHandle and its FlatParameter: the parameters that an instance joins, gathers, gives up and reduces together. Functions keep the names of
// _flat_param.py.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/engine/engine.h"
#include "sim/engine/tensors.h"
#include "sim/frameworks/torch/fsdp1/behaviour.h"
#include "sim/frameworks/torch/fsdp1/layout.h"

namespace gradledger::torch::flat_sharded {

enum class TrainingState : std::uint8_t { idle, forward_backward };                            // of an instance
enum class HandleTrainingState : std::uint8_t { idle, forward, backward_pre, backward_post };  // of its handle

// What flat_param.data is.
enum class Data : std::uint8_t { local_shard, shard_on_device, mp_shard, unsharded };

// An original parameter, where use_orig_params keeps it.
struct OrigParam {
  Tensor grad;
  bool is_grad_none = false;  // _is_grad_none_mask
  // Another tensor stands in its place, and the optimizer still has the parameter itself, with the gradient that it had.
  bool replaced = false;
  Tensor grad_of_replaced;

  Tensor& trained_grad() { return replaced ? grad_of_replaced : grad; }
  const Tensor& trained_grad() const { return replaced ? grad_of_replaced : grad; }
};

class FlatParamHandle;

// Of a rank.
struct Shared {
  EngineContext context;
  const Fsdp1Config* config = nullptr;
  Behaviour behaviour;
  Strategy strategy = Strategy::full_shard;
  Modules modules;
  TensorTable tensors;
  std::vector<FlatParamHandle> handles;  // by module
  std::vector<TrainingState> states;     // by module
  bool sync_gradients = true;
  // ---- the order of execution
  std::vector<std::uint32_t> pre_forward_order, post_forward_order;  // modules
  std::uint32_t iteration = 0;
  std::uint32_t forward = 0;  // the one that runs, by number

  std::uint32_t shard_index() const { return strategy == Strategy::no_shard ? 0 : modules.shard.index_of(context.rank); }
};

// What a call works on.
struct Pass {
  ProgramWriter& w;
  Shared& s;
};

// ours: one stream waits for all that another was given so far, as torch.Stream.wait_stream
void wait_stream(ProgramWriter& w, Stream waits, Stream waited_for);

class FlatParamHandle {
 public:
  FlatParamHandle(std::uint32_t module, const Shared& s);

  std::uint32_t module() const { return module_; }
  bool empty() const { return layout_.parts.empty(); }
  const Layout& layout() const { return layout_; }
  bool uses_sharded_strategy() const { return strategy_ != Strategy::no_shard; }
  bool reshards_after_forward() const { return strategy_ == Strategy::full_shard || strategy_ == Strategy::hybrid_shard; }
  std::string label(const Shared& s, const char* buffer) const;  // "_cpu_grad[w0]"

  void initialise(const Pass& pass);                  // ours: weights of a rank
  void init_flat_param_attributes(const Pass& pass);  // _flat_param.py: init_flat_param_attributes, at torch 2.13

  // ---- parameters
  bool pre_unshard(const Pass& pass);   // _flat_param.py: pre_unshard, at torch 2.13
  void unshard(const Pass& pass);       // _flat_param.py: unshard, at torch 2.13
  void post_unshard(const Pass& pass);  // _flat_param.py: post_unshard, at torch 2.13
  bool needs_unshard() const { return uses_sharded_strategy() && !full_param.defined(); }
  void reshard(const Pass& pass, bool free_unsharded);  // _flat_param.py: reshard, at torch 2.13
  void post_reshard(const Pass& pass);                  // _flat_param.py: post_reshard, at torch 2.13
  std::uint64_t data_numel() const { return data == Data::unsharded ? layout_.unpadded_numel : layout_.shard_numel; }
  Dtype data_dtype() const { return data == Data::mp_shard || (data == Data::unsharded && uses_sharded_strategy()) ? param_dtype_ : orig_dtype_; }
  Tensor data_tensor() const;
  bool data_on_cpu(const Shared& s) const { return s.config->over_the_bus() && data == Data::local_shard; }

  // ---- gradients
  void prepare_gradient_for_backward(const Pass& pass);         // _flat_param.py: prepare_gradient_for_backward, at torch 2.13
  void prepare_gradient_for_optim(const Pass& pass);            // _flat_param.py: prepare_gradient_for_optim, at torch 2.13
  void reset_flat_param_grad_info_if_needed(const Pass& pass);  // _flat_param.py: _reset_flat_param_grad_info_if_needed, at torch 2.13
  void use_unsharded_grad_views(const Pass& pass);              // _flat_param.py: _use_unsharded_grad_views, at torch 2.13
  void use_sharded_grad_views(const Pass& pass);                // _flat_param.py: _use_sharded_grad_views, at torch 2.13
  void reset_is_grad_none();                                    // _flat_param.py: _reset_is_grad_none, at torch 2.13
  void set_grad(const Pass& pass, Tensor to, bool own);         // ours: flat_param.grad = to
  void replace_grad(const Pass& pass, Tensor by);               // ours: flat_param.grad.data = by
  void accumulate_grad(const Pass& pass, Tensor computed);      // ours: what autograd of PyTorch does
  // ours: where the gradient is
  bool grad_on_cpu(const Pass& pass) const { return grad.defined() && pass.w.declaration(grad.slice.buffer).space == MemorySpace::host; }
  bool shows_gradients() const;  // whether param.grad shows what flat_param.grad holds

  Dtype orig_dtype() const { return orig_dtype_; }
  Dtype param_dtype() const { return param_dtype_; }
  Dtype reduce_dtype() const { return reduce_dtype_; }
  bool keeps_low_precision_grads() const { return keep_low_precision_grads_; }
  bool use_orig_params() const { return use_orig_params_; }

  HandleTrainingState training_state = HandleTrainingState::idle;
  Tensor local_shard, shard_on_device, mp_shard, full_param;
  Data data = Data::local_shard;
  Tensor grad, saved_grad_shard, cpu_grad;
  bool grad_is_own = false;  // of this rank alone
  bool post_backward_called = false;
  std::vector<OrigParam> origs;        // by part
  bool exposes_params = true;          // modules have the original parameters, not views of the gathered one
  bool skipped_sharded_views = false;  // _unsharded_flat_param_for_skipped_views
  // AccumulateGrad: by number, as a change of dtype makes another; the one that the views of the last forward lead to, and the one that is hooked.
  std::uint32_t accumulator = 0, views_accumulator = 0;
  std::uint32_t views_forward = 0;  // the forward that made the views, by number
  std::optional<std::uint32_t> hooked_accumulator;
  bool views_changed_in_place = false;
  // ---- prefetching
  std::size_t views_made_at = 0;  // of one that is prefetched: among the nodes of the forward's graph
  bool prefetched = false, ran_pre_backward_hook = false, needs_pre_forward_unshard = false, needs_pre_backward_unshard = false;
  std::optional<std::uint32_t> pre_forward_order_index, post_forward_index;

 private:
  void set_data(Data to);
  void use_low_precision_shard(const Pass& pass);                                    // _flat_param.py: _use_low_precision_shard, at torch 2.13
  void all_gather_flat_param(const Pass& pass);                                      // _flat_param.py: _all_gather_flat_param, at torch 2.13
  void use_unsharded_flat_param(const Shared& s);                                    // _flat_param.py: _use_unsharded_flat_param, at torch 2.13
  void use_sharded_flat_param(const Pass& pass);                                     // _flat_param.py: _use_sharded_flat_param, at torch 2.13
  void use_unsharded_views(const Shared& s, bool as_params);                         // _flat_param.py: _use_unsharded_views, at torch 2.13
  void use_sharded_views(const Shared& s);                                           // _flat_param.py: _use_sharded_views, at torch 2.13
  void writeback_orig_params(const Pass& pass);                                      // _flat_param.py: _writeback_orig_params, at torch 2.13
  void writeback_grad(const Pass& pass, std::size_t part, Tensor& flat_param_grad);  // _flat_param.py: _writeback_tensor, at torch 2.13
  Tensor sharded_grad() const { return cpu_grad.defined() ? cpu_grad : saved_grad_shard.defined() ? saved_grad_shard : grad; }
  void cast_grad_to_param_dtype_if_needed(const Pass& pass);                                                // _flat_param.py: prepare_gradient_for_optim, at torch 2.13
  void view_grad(const Pass& pass, OrigParam& orig, Tensor of, std::uint64_t offset, std::uint64_t numel);  // ours: one gradient as a view
  void drop_orig_grads(const Pass& pass);                                                                   // _flat_param.py: _use_sharded_grad_views, at torch 2.13
  void check_sharded(std::uint64_t numel) const;

  std::uint32_t module_;
  Layout layout_;
  Strategy strategy_;
  bool use_orig_params_, offload_params_, keep_low_precision_grads_;
  std::uint32_t shard_index_;
  Dtype orig_dtype_ = Dtype::float32, param_dtype_ = Dtype::float32, reduce_dtype_ = Dtype::float32;
};

}  // namespace gradledger::torch::flat_sharded
