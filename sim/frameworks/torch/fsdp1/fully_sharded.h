// A model under FullyShardedDataParallel and the loop around it: hooks of forwards and backwards, autograd, the optimizer.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "sim/engine/base_optimizer.h"
#include "sim/engine/engine.h"
#include "sim/frameworks/torch/fsdp1/flat_param.h"

namespace gradledger::torch::flat_sharded {

class FullyShardedDataParallel final : public Engine {
 public:
  // Precondition: fsdp1_refusal() has none. The configuration outlives the engine.
  FullyShardedDataParallel(const EngineContext& context, const Fsdp1Config& config, const Behaviour& behaviour);

  std::unique_ptr<Engine> clone() const override { return std::make_unique<FullyShardedDataParallel>(*this); }
  void initialise(ProgramWriter& w) override;                  // ours: weights and scalars
  void handle(const Event& event, ProgramWriter& w) override;  // ours: one event
  bool suspended() const override { return pending_.has_value(); }
  void resume(double value, ProgramWriter& w) override;  // ours: goes on with a value
  void observe(ProgramWriter& w) override;               // ours: snapshots
  // A state_dict of the optimizer and one of the scaler: gradients, buckets, graphs and switches are the process's alone.
  void load(const Engine& saved) override;

 private:
  enum class Stage : std::uint8_t { found_inf, clip_norm };

  // What a forward leaves for its backward, which visits it from the end.
  struct Node {
    // first_of_model: made where the model's own forward begins. Views of the root's weights are made before it, and their gradients behind it.
    enum class Kind : std::uint8_t { accumulate_grad, gradient, pre_backward, first_of_model } kind;
    std::uint32_t of = no_index;       // module, or parameter
    std::uint32_t accumulator = 0;     // that the module's views lead to
    std::uint32_t forward = 0;         // that made these views
    std::uint32_t ordinal = no_index;  // the contribution whose uses the forward had
  };
  using Graph = std::vector<Node>;

  // A running backward.
  struct Walk {
    const events::Backward& event;
    const std::vector<Graph>& graphs;
    std::uint32_t gradients = 0;  // that were made
  };

  const Scenario& scenario() const { return *context_.scenario; }
  const Parameter& parameter(std::uint32_t p) const { return context_.scenario->parameters[p]; }
  bool linear() const { return context_.linear; }
  FlatParamHandle& handle_of(std::uint32_t module) { return shared_.handles[module]; }
  std::uint32_t module_count() const { return static_cast<std::uint32_t>(shared_.handles.size()); }
  Stream optimizer_stream() const { return config_->over_the_bus() ? Stream::host : Stream::compute; }

  // ---- forward
  void lazy_init(const Pass& pass);                        // _runtime_utils.py: _lazy_init, at torch 2.13
  Graph forward(const Pass& pass, std::uint32_t ordinal);  // ours: what the model's forward calls
  bool calls(const Stretch& stretch, std::uint32_t ordinal) const;
  bool uses(std::uint32_t ordinal, std::uint32_t p) const;
  bool uses_module(std::uint32_t ordinal, std::uint32_t module) const;
  void check_weights(std::uint32_t p, std::uint32_t ordinal);                                          // ours: what autograd of PyTorch does
  void root_pre_forward(const Pass& pass);                                                             // _runtime_utils.py: _root_pre_forward, at torch 2.13
  void pre_forward(std::uint32_t module, std::uint32_t ordinal, const Pass& pass, Graph& graph);       // _runtime_utils.py: _pre_forward, at torch 2.13
  void post_forward(std::uint32_t module, bool output_requires_grad, const Pass& pass, Graph& graph);  // _runtime_utils.py: _post_forward, at torch 2.13
  void register_pre_backward_hooks(std::uint32_t module, bool output_requires_grad, Graph& graph);     // _runtime_utils.py: _register_pre_backward_hooks, at torch 2.13
  void explicit_forward(const Event& event, const Pass& pass);                                         // ours: what the model's forward calls
  std::uint32_t backward_of_forward(std::uint32_t forward) const;

  // ---- backward
  void backward(const events::Backward& event, const Pass& pass);                                           // ours: what autograd of PyTorch does
  void autograd(std::uint32_t number, Walk& walk, const Pass& pass);                                        // ours: what autograd of PyTorch does
  void accumulate_grad(const Node& node, std::uint32_t number, const Walk& walk, const Pass& pass);         // ours: what autograd of PyTorch does
  Tensor gradient_of_forward(const Node& node, std::uint32_t ordinal, const char* name, const Pass& pass);  // ours: what autograd of PyTorch does
  void pre_backward_hook(std::uint32_t module, const Pass& pass);                                           // _runtime_utils.py: _pre_backward_hook, at torch 2.13
  void post_backward_hook(std::uint32_t module, const Pass& pass);                                          // _runtime_utils.py: _post_backward_hook, at torch 2.13
  void post_backward_reshard(std::uint32_t module, const Pass& pass);                                       // _runtime_utils.py: _post_backward_reshard, at torch 2.13
  void post_backward_final_callback(const Pass& pass);                                                      // _runtime_utils.py: _post_backward_final_callback, at torch 2.13
  void catch_all_reshard(std::uint32_t module, const Pass& pass);                                           // _runtime_utils.py: _catch_all_reshard, at torch 2.13
  void finalize_params(std::uint32_t module, const Pass& pass);                                             // _runtime_utils.py: _finalize_params, at torch 2.13

  // ---- the loop
  void enter_no_sync(const Pass& pass);                                         // fully_sharded_data_parallel.py: no_sync, at torch 2.13
  void exit_no_sync();                                                          // fully_sharded_data_parallel.py: no_sync, at torch 2.13
  void step(const events::Step& event, const Pass& pass);                       // ours: the loop's own code
  void optimizer_step(const Pass& pass);                                        // ours: the loop's own optimizer
  void unscale(const Pass& pass);                                               // sharded_grad_scaler.py: unscale_, at torch 2.13
  void scaler_update(bool found_inf, const Pass& pass);                         // grad_scaler.py: update, at torch 2.13
  void zero_grad(bool set_to_none, bool of_module, const Pass& pass);           // ours: the loop's own code
  void raise(const events::Raise& event);                                       // ours: the loop's own code
  void clip(const events::ClipGradients& event, const Pass& pass);              // fully_sharded_data_parallel.py: clip_grad_norm_, at torch 2.13
  void clip_by(double norm, const Pass& pass);                                  // fully_sharded_data_parallel.py: clip_grad_norm_, at torch 2.13
  void all_reduce(const events::AllReduce& event, const Pass& pass);            // ours: the loop's own code
  void scale_gradients(const events::ScaleGradients& event, const Pass& pass);  // ours: the loop's own code
  void read(ProgramWriter& w, Stage stage, Slice scalar);                       // ours: asks for a value

  // What the optimizer steps on: original parameters, or parts of flat ones.
  struct Trained {
    std::uint32_t parameter;
    Slice weights, gradient;
    std::uint64_t offset;  // of the first element, in the parameter
    bool of_gathered;      // the moments of a whole parameter, and not of what the rank's shard has of it
  };
  // A parameter that the optimizer has: a flat one with all of its parts, or an original one.
  struct Listed {
    std::uint32_t module;
    std::size_t begin, end;  // parts
  };
  std::vector<Listed> optimizer_order() const;
  // ours: what the optimizer of PyTorch does
  std::vector<Trained> trained_parts(const Listed& listed, std::optional<FrameworkError>& error, ProgramWriter& w);
  void take_state(const Listed& listed);                                                          // torch/optim/adam.py: _init_group, at torch 2.13
  std::optional<FrameworkError> misfit(const FlatParamHandle& h, std::uint32_t parameter) const;  // ours: what the optimizer of PyTorch does
  bool decay(const FlatParamHandle& h, std::uint32_t parameter, ProgramWriter& w) const;          // torch/optim/adam.py: _single_tensor_adam, at torch 2.13
  void update(const Trained& part, const Pass& pass);                                             // ours: the loop's own optimizer
  const BaseOptimizer& moments_of(const Trained& part, ProgramWriter& w);                         // ours: zeros where there are none yet
  std::uint64_t group_of(const Listed& listed) const;                                             // ours: of the optimizer's groups
  std::vector<Tensor> gradients(bool of_optimizer) const;                                         // of the parameters that it has, or of those that modules list
  void norm_of_shards(const std::vector<Tensor>& gradients, ProgramWriter& w);                    // fully_sharded_data_parallel.py: _get_grad_norm, at torch 2.13
  std::vector<ViewPiece> pieces_of(std::uint32_t module, Slice whole_or_shard, bool whole) const;
  void observe_flat(std::uint32_t module, ProgramWriter& w);  // ours: snapshots

  EngineContext context_;
  const Fsdp1Config* config_;
  Shared shared_;
  GradScaler scaler_;
  double backward_scale_ = 1.0, gradient_scale_ = 1.0;  // of what was not reduced, and of what was

  bool is_lazily_initialised_ = false;
  bool post_backward_callback_queued_ = false;  // of the root
  bool final_callback_of_this_backward_ = false;
  bool in_no_sync_ = false;

  std::map<std::uint32_t, Graph> graphs_;  // of explicit forwards, by number in their window
  std::uint32_t forwards_ = 0;             // explicit ones in the window
  std::uint32_t window_ = 0;

  std::vector<BaseOptimizer> optimizers_;  // by parameter
  // Moments are as large as the flat parameter was at its first step: gathered, where a backward had raised. Then these are used in place of those above.
  std::map<std::uint32_t, std::uint64_t> state_numel_;  // by module, of flat parameters with a state
  std::map<std::uint32_t, BaseOptimizer> gathered_;     // by parameter, where a step has needed them
  Slice norm_squared_, norm_, one_, found_inf_;
  // The clip that waits for its norm. factor: the dtype of the factor, which a clip of shards rounds to that of each gradient.
  struct Clip {
    double max_norm = 0;
    bool of_optimizer = false, of_shards = false;
    Dtype factor = Dtype::float32;
  } clip_;
  bool stepped_ = false;  // the last event: weights may have changed
  std::optional<Stage> pending_;
};

// ours: hooks that need a handle alone
void unshard(std::uint32_t module, const Pass& pass);                              // _runtime_utils.py: _unshard, at torch 2.13
void reshard(std::uint32_t module, bool free_unsharded, const Pass& pass);         // _runtime_utils.py: _reshard, at torch 2.13
bool should_free_in_backward(std::uint32_t module, const Shared& s);               // _runtime_utils.py: _should_free_in_backward, at torch 2.13
void prefetch_forward(std::uint32_t module, std::size_t nodes, const Pass& pass);  // _runtime_utils.py: _prefetch_handle, at torch 2.13
void prefetch_backward(std::uint32_t module, const Pass& pass);                    // _runtime_utils.py: _prefetch_handle, at torch 2.13
void reduce_grad(std::uint32_t module, const Pass& pass);                          // _runtime_utils.py: _reduce_grad, at torch 2.13
void reduce_grad_no_shard(std::uint32_t module, const Pass& pass);                 // _runtime_utils.py: _reduce_grad_no_shard, at torch 2.13

}  // namespace gradledger::torch::flat_sharded
