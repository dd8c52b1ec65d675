// DistributedDataParallel and the loop around it: forwards that decide about the reduction of their backward, autograd, the optimizer.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "sim/engine/base_optimizer.h"
#include "sim/engine/engine.h"
#include "sim/frameworks/torch/grad_scaler.h"
#include "sim/frameworks/torch/ddp/calls.h"
#include "sim/frameworks/torch/ddp/reducer.h"

namespace gradledger::torch {

class DistributedDataParallel final : public Engine {
 public:
  // Precondition: ddp_refusal() has none. The configuration outlives the engine.
  DistributedDataParallel(const EngineContext& context, const DdpConfig& config);

  std::unique_ptr<Engine> clone() const override { return std::make_unique<DistributedDataParallel>(*this); }
  void initialise(ProgramWriter& w) override;                  // distributed.py: __init__, at torch 2.13
  void handle(const Event& event, ProgramWriter& w) override;  // ours: one event
  bool suspended() const override { return pending_.has_value(); }
  void resume(double value, ProgramWriter& w) override;  // ours: goes on with a value
  void observe(ProgramWriter& w) override;               // ours: snapshots
  // A state_dict of the optimizer and one of the scaler: gradients, buckets, graphs and switches are the process's alone.
  void load(const Engine& saved) override;

 private:
  enum class Stage : std::uint8_t { parameter_used, found_inf, clip_norm };

  // What a forward leaves for the backward of its graph.
  struct Graph {
    bool through_sink = false;         // its outputs passed the node with which static_graph queues its first reduction
    std::uint32_t ordinal = no_index;  // of its first backward, whose parameters it reached
  };

  const Scenario& scenario() const { return *context_.scenario; }
  std::uint32_t world() const { return averaging_ranks(context_).size(); }
  bool held(std::uint32_t p) const { return holds(scenario(), context_.rank, p); }
  const Parameter& parameter(std::uint32_t p) const { return context_.scenario->parameters[p]; }
  std::uint32_t parameter_count() const { return static_cast<std::uint32_t>(context_.scenario->parameters.size()); }
  bool linear() const { return context_.linear; }

  void forward(const Pass& pass, std::uint32_t ordinal);        // distributed.py: _pre_forward, _post_forward, at torch 2.13
  void explicit_forward(const Event& event, const Pass& pass);  // distributed.py: forward, at torch 2.13
  bool passes_sink() const { return config_->static_graph && !delay_enqueued_ && !config_->backward_in_forward; }
  bool starts_from_outputs(const events::Backward& event) const;  // ours: what autograd of PyTorch does
  std::uint32_t backward_of_forward(std::uint32_t forward) const;
  void backward(const events::Backward& event, const Pass& pass);                                                         // ours: what autograd of PyTorch does
  void autograd(const events::Backward& event, const Pass& pass);                                                         // ours: what autograd of PyTorch does
  void call(const data_parallel::Call& call, const Pass& pass);                                                           // distributed.py: finalize_backward, at torch 2.15
  void end_of_backward(const Pass& pass, std::optional<Slice> question);                                                  // reducer.cpp: finalize_backward, at torch 2.13
  void accumulate_grad(const events::Backward& event, const Pass& pass, std::uint32_t p);                                 // ours: what autograd of PyTorch does
  void deposit(const Pass& pass, Slice target, const std::vector<std::uint32_t>& terms, std::uint32_t p, bool add);       // ours: what autograd of PyTorch does
  void deposit_part(const Pass& pass, Slice target, const std::vector<std::uint32_t>& terms, std::uint32_t p, bool add);  // _api.py: _FromTorchTensor.backward, at torch 2.13
  void deposit_own(const Pass& pass, Slice target, std::uint32_t ordinal, std::uint32_t p, bool add);                     // ours: what autograd of PyTorch does
  bool sums_parts(std::uint32_t p) const { return !parameter(p).summed_over.empty() && !config_->is_plain(parameter(p).name); }
  void make_gradient(const Pass& pass, std::uint32_t p);  // ours: what autograd of PyTorch does

  void initialise_delayed(const Pass& pass);  // distributed.py: _register_delay_all_reduce_hook, at torch 2.13
  void clear_grad_buffer(const Pass& pass);   // distributed.py: _clear_grad_buffer, at torch 2.13
  void reduce_delayed(const Pass& pass);      // distributed.py: _register_delay_all_reduce_hook, at torch 2.13

  void step(const events::Step& event, const Pass& pass);                       // ours: the loop's own code
  void optimizer_step(const Pass& pass);                                        // ours: the loop's own optimizer
  void update(ProgramWriter& w, std::uint32_t p, Slice gradient);               // ours: the loop's own optimizer
  void update_by_16_bits(ProgramWriter& w, std::uint32_t p, Slice gradient);    // adam.py: _single_tensor_adam, at torch 2.13
  void unscale(const Pass& pass);                                               // grad_scaler.py: unscale_, at torch 2.13
  void scaler_update(bool found_inf, const Pass& pass);                         // grad_scaler.py: update, at torch 2.13
  void zero_grad(bool set_to_none, bool plain_alone, const Pass& pass);         // ours: the loop's own code
  void raise(const events::Raise& event);                                       // ours: the loop's own code
  void clip(const events::ClipGradients& event, const Pass& pass);              // clip_grad.py: clip_grad_norm_, at torch 2.13
  void clip_by(double norm, const Pass& pass);                                  // clip_grad.py: clip_grad_norm_, at torch 2.13
  void all_reduce(const events::AllReduce& event, const Pass& pass);            // ours: the loop's own code
  void scale_gradients(const events::ScaleGradients& event, const Pass& pass);  // ours: the loop's own code
  void read(ProgramWriter& w, Stage stage, Slice scalar);                       // ours: asks for a value

  EngineContext context_;
  const DdpConfig* config_;
  Gradients gradients_;
  Reducer reducer_;
  GradScaler scaler_;
  double gradient_scale_ = 1.0;  // of what the last backward made of the loss
  bool require_backward_grad_sync_ = true;
  std::vector<bool> outer_blocks_;         // what no_sync blocks will put back
  bool delay_enqueued_ = false;            // static_graph's first reduction; never again
  bool delay_queued_ = false;              // as a callback of the running backward
  std::map<std::uint32_t, Graph> graphs_;  // of explicit forwards, by number in their window
  std::uint32_t forwards_ = 0;             // explicit ones in the window
  std::uint32_t window_ = 0;

  std::vector<std::uint32_t> delayed_;         // parameters outside of the reducer
  std::optional<std::uint32_t> delayed_hook_;  // whose gradient sets off their reduction
  Slice delay_buffer_;                         // fp32, whatever the parameters are
  std::vector<Slice> delay_views_;             // by parameter

  std::vector<Slice> weights_;             // by parameter
  std::vector<BaseOptimizer> optimizers_;  // PyTorch's state is of each parameter
  Slice norm_squared_, norm_, parameter_norm_, found_inf_;
  double max_norm_ = 0;
  Dtype norm_dtype_ = Dtype::float32;
  bool localized_ = false;  // a forward put DTensors in the place of the module's parameters, which has none behind it. ddp.py: _reconstruct_dtensor, at torch 2.13
  bool stepped_ = false;    // the last event: weights may have changed
  std::optional<Stage> pending_;
};

}  // namespace gradledger::torch
