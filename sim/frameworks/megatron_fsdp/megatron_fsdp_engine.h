// A model under MegatronFSDP and the loop around it: hooks of a backward, methods that the loop calls, the optimizer that fully_shard extends.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "sim/engine/base_optimizer.h"
#include "sim/engine/engine.h"
#include "sim/frameworks/megatron_fsdp/grad_buffer.h"
#include "sim/frameworks/megatron_fsdp/methods.h"
#include "sim/frameworks/megatron_fsdp/weight_gathers.h"

namespace gradledger::megatron_fsdp {

class MegatronFsdpEngine final : public Engine {
 public:
  // Precondition: megatron_fsdp_refusal() has none. The configuration outlives the engine.
  MegatronFsdpEngine(const EngineContext& context, const MegatronFsdpConfig& config, const Behaviour& behaviour);

  std::unique_ptr<Engine> clone() const override { return std::make_unique<MegatronFsdpEngine>(*this); }
  void initialise(ProgramWriter& w) override;                  // param_and_grad_buffer.py: _init_each_parameter_group_buffers, at 0.5.1
  void handle(const Event& event, ProgramWriter& w) override;  // ours: one event
  bool suspended() const override { return false; }
  void resume(double, ProgramWriter&) override {}  // ours: it never waits for a value
  void observe(ProgramWriter& w) override;         // ours: snapshots
  void load(const Engine& saved) override;         // fully_shard.py: state_dict hooks of fully_shard_model and fully_shard_optimizer, at 0.6.1

 private:
  // What a rank has of a parameter.
  struct Param {
    std::size_t group = 0, at = 0;  // its group, and its place in it
    Part own;                       // what the rank steps
    Slice weights, main_weights;    // of that part; without a dtype of their own the first alone
    Slice installed;                // param.grad
    Tensor cast;                    // where it is a copy in the dtype of the weights that are stepped
  };

  const Setup& setup() const { return *setup_; }
  bool reduces_now() const { return setup().config->shards_gradients() || is_last_microbatch_.value_or(false) || model_auto_sync_; }
  bool has_main_weights() const { return setup().config->mixed_precision.main_params_dtype.has_value(); }
  Slice stepped(const Param& p) const { return has_main_weights() ? p.main_weights : p.weights; }

  void first_step(ProgramWriter& w);                                            // fully_shard.py: fully_shard_optimizer, at 0.5.1
  void backward(const events::Backward& event, ProgramWriter& w);               // megatron_fsdp.py: _process_post_backward_gradients, at 0.5.1
  void root_post_backward(ProgramWriter& w);                                    // megatron_fsdp.py: _root_post_backward, at 0.5.1
  void reduce_gradients(std::uint32_t p, ProgramWriter& w);                     // param_and_grad_buffer.py: reduce_gradients, at 0.5.1
  void reduce_unit(const std::vector<std::size_t>& buffers, ProgramWriter& w);  // param_and_grad_buffer.py: _bucket_group_gradient_reduce, at 0.5.1
  void wait_for_reductions(ProgramWriter& w);                                   // param_and_grad_buffer.py: reset, at 0.5.1
  void finish_grad_sync(ProgramWriter& w);                                      // megatron_fsdp.py: finish_grad_sync, at 0.5.1
  void update_main_grads(ProgramWriter& w);                                     // param_and_grad_buffer.py: update_main_grads, at 0.5.1
  void zero_grad(ProgramWriter& w);                                             // param_and_grad_buffer.py: zero_grad, at 0.5.1
  void step(ProgramWriter& w);                                                  // fully_shard.py: megatron_fsdp_optimizer_step, at 0.5.1
  void update(std::uint32_t p, ProgramWriter& w);                               // ours: the loop's own optimizer
  void install_optimized_model_weights(ProgramWriter& w);                       // param_and_grad_buffer.py: copy_main_weights_to_model_weights, at 0.5.1
  void scale_gradients(double factor, ProgramWriter& w);                        // param_and_grad_buffer.py: scale_gradients, at 0.5.1
  void all_reduce(const events::AllReduce& event, ProgramWriter& w);            // ours: the loop's own code
  void raise(const events::Raise& event);
  std::vector<ViewPiece> piece_of(std::uint32_t p, Slice slice) const { return {{slice, static_cast<std::int32_t>(p), params_[p].own.begin}}; }

  std::shared_ptr<const Setup> setup_;
  TensorTable tensors_;
  std::vector<GradBuffer> buffers_;     // by parameter group; of those that do not learn none is made
  std::vector<std::size_t> buffer_of_;  // by parameter group
  WeightGathers weights_;
  std::vector<Param> params_;
  std::vector<BaseOptimizer> optimizers_;   // by parameter
  std::optional<bool> is_last_microbatch_;  // set by the first no_sync()
  bool model_auto_sync_ = true;
  bool in_no_sync_ = false;
  std::vector<bool> pending_;             // parameters that the running backward has not handled
  std::vector<std::uint32_t> in_flight_;  // events of reductions that nobody waited for
  std::vector<std::size_t> to_free_;
  bool stepped_ = false;  // the last event: weights may have changed
  bool applied_ = false;  // what the buffers hold was applied, and not cleared
};

}  // namespace gradledger::megatron_fsdp
