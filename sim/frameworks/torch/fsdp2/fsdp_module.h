// A model under fully_shard and the loop around it: hooks of forwards and backwards, autograd, methods that the loop calls, the optimizer.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "sim/engine/base_optimizer.h"
#include "sim/engine/engine.h"
#include "sim/frameworks/torch/fsdp2/calls.h"
#include "sim/frameworks/torch/fsdp2/param_group.h"

namespace gradledger::torch::fully_shard {

class FsdpModule final : public Engine {
 public:
  // Precondition: fsdp2_refusal() has none. The configuration outlives the engine.
  FsdpModule(const EngineContext& context, const Fsdp2Config& config, const Behaviour& behaviour);

  std::unique_ptr<Engine> clone() const override { return std::make_unique<FsdpModule>(*this); }
  void initialise(ProgramWriter& w) override;                  // _fsdp_param.py: _init_sharded_param, at torch 2.13
  void handle(const Event& event, ProgramWriter& w) override;  // ours: one event
  bool suspended() const override { return pending_.has_value(); }
  void resume(double value, ProgramWriter& w) override;  // ours: goes on with a value
  void observe(ProgramWriter& w) override;               // ours: snapshots
  // A state_dict of the optimizer and one of the scaler: gradients, buckets, graphs and switches are the process's alone.
  void load(const Engine& saved) override;

 private:
  enum class Stage : std::uint8_t { found_inf, clip_norm };
  // What finalize_backward(async_op=True) returned last: nobody waited for it yet, or reset_iter_state was called before anybody did.
  enum class Reduction : std::uint8_t { waited_for, pending, invalidated };

  // What a forward leaves for its backward, which visits it from the end.
  struct Node {
    enum class Kind : std::uint8_t { post_backward, gradient, pre_backward } kind;
    std::uint32_t of;  // module, or parameter
  };
  using Graph = std::vector<Node>;

  // A running backward.
  struct Walk {
    const events::Backward& event;
    std::uint32_t graphs = 1;     // of a sum: this many
    std::uint32_t gradients = 0;  // that were made
  };

  const Scenario& scenario() const { return *context_.scenario; }
  const Parameter& parameter(std::uint32_t p) const { return context_.scenario->parameters[p]; }
  std::uint32_t parameter_count() const { return static_cast<std::uint32_t>(context_.scenario->parameters.size()); }
  bool linear() const { return context_.linear; }
  FsdpParam& param(std::uint32_t p) { return shared_.params[p]; }
  ParamGroup& group(std::uint32_t module) { return shared_.groups[module]; }
  Stream optimizer_stream() const { return config_->offload ? Stream::host : Stream::compute; }

  // ---- forward and backward
  void lazy_init();
  Graph forward(const Pass& pass, std::uint32_t ordinal);  // ours: what the model's forward calls
  bool calls(const Stretch& stretch, std::uint32_t ordinal) const;
  bool uses(std::uint32_t ordinal, std::uint32_t p) const;
  void pre_forward(std::uint32_t module, bool input_requires_grad, const Pass& pass, Graph& graph);    // _fsdp_state.py: _pre_forward, at torch 2.13
  void post_forward(std::uint32_t module, bool output_requires_grad, const Pass& pass, Graph& graph);  // _fsdp_state.py: _post_forward, at torch 2.13
  void explicit_forward(const Event& event, const Pass& pass);                                         // ours: what the model's forward calls
  std::uint32_t backward_of_forward(std::uint32_t forward) const;
  void backward(const events::Backward& event, const Pass& pass);                                   // ours: what autograd of PyTorch does
  void autograd(const Graph& graph, std::uint32_t number, Walk& walk, const Pass& pass);            // ours: what autograd of PyTorch does
  void accumulate_grad(std::uint32_t p, std::uint32_t number, const Walk& walk, const Pass& pass);  // ours: what autograd of PyTorch does
  void deposit(const Pass& pass, Slice target, std::uint32_t ordinal, std::uint32_t p, bool add);   // ours: what autograd of PyTorch does
  void pre_backward(std::uint32_t module, const Pass& pass);                                        // _fsdp_state.py: _pre_backward, at torch 2.13
  void root_post_backward_final_callback(const Pass& pass);                                         // _fsdp_state.py: _root_post_backward_final_callback, at torch 2.15
  void end_backward_iteration(const Pass& pass);                                                    // _fsdp_state.py: _end_backward_iteration, at torch 2.15

  // ---- methods
  void call(const Call& call, const Pass& pass);  // _fully_shard.py: FSDPModule, at torch 2.13
  void set(const Call& call);
  void reset_iter_state(const Call& call, const Pass& pass);   // _fsdp_state.py: _reset_iter_state, at torch 2.13
  void set_manual_backward_finalization(const Call& call);     // _fully_shard.py: set_manual_backward_finalization, at torch 2.15
  void finalize_backward(const Call& call, const Pass& pass);  // _fsdp_state.py: finalize_backward, at torch 2.15
  void validate_finalize_backward(const Call& call) const;     // _fsdp_state.py: _validate_finalize_backward, at torch 2.15
  void wait_for_gradient_reduction(const Pass& pass);          // _fsdp_state.py: wait_for_gradient_reduction, at torch 2.15
  void end_all(const Pass& pass);                              // _fsdp_state.py: _end_backward_iteration, at torch 2.15
  void set_requires_gradient_sync(bool value);

  // ---- the loop
  void step(const events::Step& event, const Pass& pass);                       // ours: the loop's own code
  void optimizer_step(const Pass& pass);                                        // ours: the loop's own optimizer
  void update(ProgramWriter& w, std::uint32_t p);                               // ours: the loop's own optimizer
  void unscale(const Pass& pass);                                               // grad_scaler.py: unscale_, at torch 2.13
  void scaler_update(bool found_inf, const Pass& pass);                         // grad_scaler.py: update, at torch 2.13
  void zero_grad(bool set_to_none, bool of_module, const Pass& pass);           // ours: the loop's own code
  void raise(const events::Raise& event);                                       // ours: the loop's own code
  void clip(const events::ClipGradients& event, const Pass& pass);              // clip_grad.py: clip_grad_norm_, at torch 2.13
  void require_one_mesh();                                                      // _tensor_ops.py: stack_strategy, at torch 2.13
  void norm_of_shards(const Pass& pass);                                        // clip_grad.py: _get_total_norm, at torch 2.13
  void reduce_norms(const Pass& pass, Slice norms, const ProcessGroup& over);   // _math_ops.py: _NormPartial._reduce_value, at torch 2.13
  void clip_by(double norm, const Pass& pass);                                  // clip_grad.py: clip_grad_norm_, at torch 2.13
  void all_reduce(const events::AllReduce& event, const Pass& pass);            // ours: the loop's own code
  void scale_gradients(const events::ScaleGradients& event, const Pass& pass);  // ours: the loop's own code
  void read(ProgramWriter& w, Stage stage, Slice scalar);                       // ours: asks for a value
  std::vector<ViewPiece> piece_of(std::uint32_t p, Slice slice) const;

  EngineContext context_;
  const Fsdp2Config* config_;
  Shared shared_;
  GradScaler scaler_;
  bool root_keeps_parameters_;                          // behind a forward: nobody said otherwise
  double backward_scale_ = 1.0, gradient_scale_ = 1.0;  // of what was not reduced, and of what was

  // FSDPState, by module; FSDPStateContext.
  std::vector<TrainingState> states_;
  bool is_lazily_initialised_ = false;
  std::optional<std::uint32_t> iter_forward_root_;
  bool final_callback_queued_ = false;
  bool final_callback_of_this_backward_ = false;
  // Whether the loop ends backwards, and whether it does so with those that are not ended yet; nothing where there are none.
  bool manual_finalization_ = false;
  std::set<std::uint32_t> finalized_by_hand_below_the_root_;  // units whose method was called, before it is known which module is the root
  std::optional<bool> manual_finalization_active_;
  Reduction reduction_ = Reduction::waited_for;

  std::map<std::uint32_t, Graph> graphs_;  // of explicit forwards, by number in their window
  std::uint32_t forwards_ = 0;             // explicit ones in the window
  std::uint32_t window_ = 0;

  std::vector<BaseOptimizer> optimizers_;  // by parameter
  Slice norm_squared_, norm_, one_, norms_, found_inf_;
  double max_norm_ = 0;
  Dtype norm_dtype_ = Dtype::float32;
  bool in_no_sync_ = false;
  bool stepped_ = false;  // the last event: weights may have changed
  std::optional<Stage> pending_;
};

}  // namespace gradledger::torch::fully_shard
