// A model whose modules experimental.fully_shard has sharded, and the loop around it: hooks of forwards and backwards, the optimizer with the hooks of
// fully_shard_optimizer. experimental/module.py: FsdpModule; experimental/optimizer.py.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sim/engine/base_optimizer.h"
#include "sim/engine/engine.h"
#include "sim/frameworks/megatron_fsdp/forward_calls.h"
#include "sim/frameworks/megatron_fsdp/v2/parameter_group.h"

namespace gradledger::megatron_fsdp::v2 {

class FsdpModules final : public Engine {
 public:
  // Precondition: v2_refusal() has none. The configuration outlives the engine.
  FsdpModules(const EngineContext& context, const V2Config& config, const Behaviour& behaviour);

  std::unique_ptr<Engine> clone() const override { return std::make_unique<FsdpModules>(*this); }
  void initialise(ProgramWriter& w) override;                  // parameter_group.py: FsdpParameterGroup.__init__, at 0.6.1
  void handle(const Event& event, ProgramWriter& w) override;  // ours: one event
  bool suspended() const override { return false; }
  void resume(double, ProgramWriter&) override {}  // ours: it never waits for a value
  void observe(ProgramWriter& w) override;         // ours: snapshots
  void load(const Engine& saved) override;         // ours: admission refuses checkpoints

 private:
  // What a rank has of a parameter.
  struct Param {
    std::size_t module = 0, group = 0, at = 0;  // among the groups that learn
    Part own;                                   // what the rank steps
    Slice weights, main_weights;                // of that part; of fp32 the first alone
  };
  // Of a group of the layout: what the rank gives to a gather, and the memory of the last one.
  struct Gathered {
    std::uint32_t group = 0;
    Tensor shard;
    BufferId before = no_index;
  };
  struct Module {
    std::vector<Gathered> laid;       // all of its groups
    std::vector<std::size_t> groups;  // that learn
    std::size_t parameters = 0;       // of those groups
    std::vector<std::uint32_t> ready;
    std::vector<Tensor> unsharded;  // its weights, whole, while they are gathered
    std::uint32_t unshard_event = no_index;
    bool unfinished = false;  // a backward has begun and not ended

    bool gathered() const { return !unsharded.empty(); }
  };

  const Setup& setup() const { return *setup_; }
  bool has_main_weights(std::uint32_t p) const { return setup().scenario().dtype_of(p) != Dtype::float32; }
  Slice stepped(std::uint32_t p) const { return has_main_weights(p) ? params_[p].main_weights : params_[p].weights; }

  void unshard(std::size_t module, ProgramWriter& w);                                 // module.py: _unshard_parameter_groups, at 0.6.1
  void reshard(Module& module, ProgramWriter& w);                                     // module.py: _reshard_parameter_groups, at 0.6.1
  void pre_forward(std::size_t module, ProgramWriter& w);                             // module.py: pre_forward, at 0.6.1
  void forward(const std::vector<ModuleCall>& calls, ProgramWriter& w);               // ours: the model's forward
  void pre_backward(std::size_t module, ProgramWriter& w);                            // module.py: pre_backward, at 0.6.1
  void backward(const events::Backward& event, ProgramWriter& w);                     // module.py: _make_grad_hook, at 0.6.1
  void post_backward(Module& module, ProgramWriter& w);                               // module.py: post_backward, at 0.6.1
  void zero_grad(bool set_to_none, bool of_module, ProgramWriter& w);                 // ours: the loop's own code
  void scale_gradients(double factor, ProgramWriter& w);                              // ours: the loop's own code
  void step(ProgramWriter& w);                                                        // optimizer.py: step_pre_hook, step_post_hook, at 0.6.1
  Slice for_optimizer(std::uint32_t p, std::vector<Tensor>& made, ProgramWriter& w);  // optimizer.py: step_pre_hook, at 0.6.1
  void raise(const events::Raise& event);
  void all_reduce(const events::AllReduce& event, ProgramWriter& w);  // ours: the loop's own code
  std::vector<ViewPiece> piece_of(std::uint32_t p, Slice slice) const { return {{slice, static_cast<std::int32_t>(p), params_[p].own.begin}}; }

  std::shared_ptr<const Setup> setup_;
  TensorTable tensors_;
  std::vector<Module> modules_;  // the root first
  std::vector<FsdpParameterGroup> groups_;
  std::vector<Param> params_;
  std::vector<BaseOptimizer> optimizers_;  // by parameter
  bool is_last_microbatch_ = true;
  bool stepped_ = false;  // the last event: weights may have changed
  bool applied_ = false;  // what the buffers hold was applied, and not cleared
};

}  // namespace gradledger::megatron_fsdp::v2
