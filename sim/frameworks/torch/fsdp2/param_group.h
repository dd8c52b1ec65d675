// FSDPParamGroup: the parameters that a module gathers, gives up and reduces together. Functions keep the names of _fsdp_param_group.py.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/engine/engine.h"
#include "sim/engine/tensors.h"
#include "sim/frameworks/torch/fsdp2/behaviour.h"
#include "sim/frameworks/torch/fsdp2/modules.h"

namespace gradledger::torch::fully_shard {

enum class TrainingState : std::uint8_t { idle, forward, pre_backward, post_backward };

// FSDPParam, of _fsdp_param.py.
struct FsdpParam {
  Dtype orig_dtype = Dtype::float32;
  std::optional<Dtype> param_dtype, reduce_dtype;  // where there is something to cast
  Dtype sharded_grad_dtype = Dtype::float32;
  std::optional<Dtype> leaf_grad_dtype;  // that autograd casts gradients of the whole weight to, and adds them up in; none: as they are computed
  bool leaf_is_wider = false;            // a backward may leave that cast to the reduction, which does it anyway
  bool cast_is_left = false;             // and this one does
  Tensor sharded;                        // with its padding; what the rank owns comes first
  Tensor sharded_grad;
  bool was_gathered = false;  // it has an _unsharded_param
  Tensor unsharded;           // gathered, with the padding of every chunk
  Tensor unsharded_grad, unsharded_accumulated_grad;
  BufferId unsharded_before = no_index, grad_before = no_index;  // what these were given last: TensorTable::allocate_again()

  Dtype computed() const { return param_dtype.value_or(orig_dtype); }
  Dtype handed_to_the_leaf() const { return cast_is_left ? computed() : leaf_grad_dtype.value_or(computed()); }
};

// A tensor that is held until what uses it on another stream is over.
struct Kept {
  Tensor tensor;
  std::uint32_t event = no_index;
};

// FSDPCommContext, and what of FSDPStateContext all modules share.
struct Communication {
  std::optional<Kept> all_gather_state;
  std::vector<Tensor> let_go;  // of the stream that copies into gathers, which takes its memory back without waiting for anybody
  std::vector<Kept> reduce_scatter_states;
  std::map<Stream, std::uint32_t> last_post_reduce_events;
  std::vector<std::uint32_t> post_forward_order;  // modules
  bool is_last_backward = true;
};

class ParamGroup;

// Of a rank.
struct Shared {
  EngineContext context;
  const Fsdp2Config* config = nullptr;
  Behaviour behaviour;
  Modules modules;
  TensorTable tensors;
  std::vector<FsdpParam> params;   // by parameter
  std::vector<ParamGroup> groups;  // by module
  Communication comm;

  std::uint32_t chunk() const { return modules.shard.index_of(context.rank); }
};

// The optimizer's step on one parameter, where it runs in the backward.
using StepInBackward = std::function<void(std::uint32_t parameter)>;

// What a call works on.
struct Pass {
  ProgramWriter& w;
  Shared& s;
  const StepInBackward& step;
};

// ours: one stream waits for all that another was given so far, as torch.Stream.wait_stream
void wait_stream(ProgramWriter& w, Stream waits, Stream waited_for);

// ours: sum += gradient, in the wider of their dtypes, rounded to that of the sum. The buffer's name is that of a cast where one is needed.
void add_in_place(const Pass& pass, Slice sum, Slice gradient, const std::string& buffer);

class ParamGroup {
 public:
  ParamGroup(std::uint32_t module, std::vector<std::uint32_t> parameters, bool reshard_after_forward, const Fsdp2Config& config);

  bool empty() const { return parameters_.empty(); }
  const std::vector<std::uint32_t>& parameters() const { return parameters_; }

  // ---- what methods of the module set
  bool reduce_grads = true, all_reduce_grads = true;
  bool reshard_after_forward = true, reshard_after_backward = true;
  bool reduce_scatter_unused_params = false, force_sum_reduction_for_comms = false;
  std::optional<double> gradient_divide_factor;

  TrainingState training_state = TrainingState::idle;
  bool post_backward_pending = false;  // a backward left its reduction to a later one, or to the loop

  void unshard(const Pass& pass);           // _fsdp_param_group.py: unshard, at torch 2.13
  void wait_for_unshard(const Pass& pass);  // _fsdp_param_group.py: wait_for_unshard, at torch 2.13
  void reshard(const Pass& pass);           // _fsdp_param_group.py: reshard, at torch 2.13
  bool is_unsharded() const { return unsharded_; }

  void pre_forward(const Pass& pass);        // _fsdp_param_group.py: pre_forward, at torch 2.13
  void post_forward(const Pass& pass);       // _fsdp_param_group.py: post_forward, at torch 2.13
  void pre_backward(const Pass& pass);       // _fsdp_param_group.py: pre_backward, at torch 2.13
  void post_backward(const Pass& pass);      // _fsdp_param_group.py: post_backward, at torch 2.13
  void finalize_backward(const Pass& pass);  // _fsdp_param_group.py: finalize_backward, at torch 2.13
  void reset_iter_state(const Pass& pass);   // _fsdp_param_group.py: _reset_iter_state, at torch 2.13
  const Tensor& partial_reduce_output() const { return partial_reduce_output_; }
  std::string label(const Shared& s, const char* buffer) const;  // "reduce_scatter_input[w0]"

 private:
  struct Collected {
    std::uint32_t parameter;
    Tensor grad;
  };
  // Where a parameter is in a buffer of several.
  struct Slot {
    std::uint32_t parameter;
    std::uint64_t offset, padded_numel;

    bool operator==(const Slot&) const = default;
  };
  // What reductions divide by, and where.
  struct Factors {
    std::optional<double> before, after;
    ReduceOp reduce_scatter = ReduceOp::sum, all_reduce = ReduceOp::sum;
    double premultiplied = 1;
  };

  void foreach_all_gather(const Pass& pass);  // _fsdp_collectives.py: foreach_all_gather, at torch 2.13
  struct Gathered {
    Dtype dtype;
    std::uint64_t numel, sent;  // of a rank: elements, and as many bytes as PyTorch sends for them
  };
  Gathered gathered(const Shared& s) const;                                                        // _fsdp_collectives.py: _get_all_gather_input_metadatas, at torch 2.15
  void all_gather_input(const Pass& pass, std::uint32_t parameter, Slice target);                  // _fsdp_param.py: all_gather_inputs, at torch 2.13
  void let_go_of_gather(const Pass& pass);                                                         // _fsdp_param_group.py: finalize_backward, at torch 2.13
  void copy_out(const Pass& pass);                                                                 // _fsdp_collectives.py: foreach_all_gather_copy_out, at torch 2.13
  void wait_all_gather_streams(const Pass& pass, std::uint32_t event);                             // _fsdp_param_group.py: _wait_all_gather_streams_on_event, at torch 2.13
  void to_sharded(const Pass& pass);                                                               // _fsdp_param_group.py: _to_sharded, at torch 2.13
  void backward_prefetch(const Pass& pass);                                                        // _fsdp_param_group.py: _backward_prefetch, at torch 2.13
  void accumulate_unsharded_grads(const Pass& pass);                                               // _fsdp_param.py: accumulate_unsharded_grad_if_needed, at torch 2.13
  void to_accumulated_grads(const Pass& pass);                                                     // _fsdp_param.py: to_accumulated_grad_if_needed, at torch 2.13
  void leave_casts_to_the_reduction(const Pass& pass);                                             // _fsdp_param_group.py: _set_unsharded_grad_dtypes, at torch 2.15
  void take_up_casts(const Pass& pass);                                                            // _fsdp_param_group.py: _set_unsharded_grad_dtypes, at torch 2.15
  std::vector<Collected> collect_grads(const Pass& pass);                                          // _fsdp_param_group.py: post_backward, at torch 2.13
  Tensor redistributed(const Pass& pass, std::uint32_t parameter, Tensor grad);                    // _fsdp_param.py: _get_grad_inner_tensor, at torch 2.13
  void wait_for_post_backward(const Pass& pass);                                                   // _fsdp_param_group.py: _wait_for_post_backward, at torch 2.13
  void foreach_reduce(const Pass& pass, std::vector<Collected> grads);                             // _fsdp_collectives.py: foreach_reduce, at torch 2.13
  void prepare_partial(const Pass& pass, const std::vector<Collected>& grads, Dtype wire);         // _fsdp_param_group.py: _prepare_partial_reduce_output, at torch 2.15
  bool has_partial(std::uint32_t parameter) const;                                                 // _fsdp_param_group.py: _get_partial_reduce_grad, at torch 2.15
  void drop_gradients(const Pass& pass);                                                           // _fsdp_param_group.py: _reset_iter_state, at torch 2.15
  Tensor reduce_scatter_input(const Pass& pass, const std::vector<Collected>& grads, Dtype wire);  // _fsdp_collectives.py: foreach_reduce_scatter_copy_in, at torch 2.13
  void accumulate_partial(const Pass& pass, Tensor output);                                        // _fsdp_collectives.py: foreach_reduce, at torch 2.13
  Stream all_reduce(const Pass& pass, Tensor output, const Factors& factors);                      // _fsdp_collectives.py: foreach_reduce, at torch 2.13
  void view_out(const Pass& pass, const std::vector<std::uint32_t>& parameters, Tensor output);    // _fsdp_collectives.py: foreach_reduce, at torch 2.13
  void offload(const Pass& pass, std::uint32_t parameter, Slice grad);                             // _fsdp_collectives.py: foreach_reduce, at torch 2.13
  Factors gradient_divide_factors(const Shared& s, Dtype wire) const;
  Factors factors_of_the_reduce_scatter(std::uint32_t ranks, bool overflow_risk) const;
  void let_go_of_output(const Pass& pass, Tensor output);  // _fsdp_collectives.py: foreach_reduce, at torch 2.5

  std::uint32_t module_;
  std::vector<std::uint32_t> parameters_;
  bool unsharded_ = false;
  bool all_gather_pending_ = false;
  Kept all_gather_result_;
  Stream all_gather_home_ = Stream::copy;  // that its memory belongs to
  std::vector<std::uint32_t> post_forward_indices_;
  std::optional<std::uint32_t> post_reduce_event_;
  Tensor partial_reduce_output_;
  BufferId gathered_before_ = no_index, scatters_before_ = no_index, scattered_before_ = no_index;  // TensorTable::allocate_again()
  std::vector<Slot> partial_layout_;                                                                // of partial_reduce_output_, also of one that is gone
  std::optional<Kept> all_reduce_state_;
  std::vector<std::uint32_t> grad_offload_events_;
};

}  // namespace gradledger::torch::fully_shard
