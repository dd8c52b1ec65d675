// DeepSpeedEngine: what forward, backward, step and the rest do around every optimizer wrapper. The wrappers derive from it, one file
// each, and fill in the hooks in the order in which the engine calls them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sim/frameworks/deepspeed/behaviour.h"
#include "sim/frameworks/deepspeed/engine/backward_hooks.h"
#include "sim/frameworks/deepspeed/engine/context.h"
#include "sim/frameworks/deepspeed/engine/partition.h"
#include "sim/frameworks/deepspeed/legality.h"
#include "sim/frameworks/deepspeed/settings.h"
#include "sim/engine/pipeline_neighbours.h"
#include "sim/engine/repeating.h"
#include "sim/engine/state_fold.h"
#include "sim/engine/tensors.h"
#include "sim/scenario/layout.h"

namespace gradledger {

class DeepSpeedEngine : public Engine, public Repeating {
 public:
  explicit DeepSpeedEngine(const DeepSpeedContext& context);

  void handle(const Event& event, ProgramWriter& w) final;  // ours: one event
  bool suspended() const final { return pending_stage_.has_value(); }
  void resume(double value, ProgramWriter& w) final;  // ours: goes on with a value
  void observe(ProgramWriter& w) final;               // ours: snapshots
  void fold(StateFold& f) const override;

  // micro_steps, and the wrapper's micro_step_id, of which it asks no more than whether it is 0 or above.
  Counts counts() const final { return {static_cast<std::int64_t>(micro_steps_), micro_step_id()}; }
  void add_counts(const Counts& more) final {
    micro_steps_ += static_cast<std::uint64_t>(more[0]);
    set_micro_step_id(micro_step_id() + more[1]);
  }
  void fold_without_counts(StateFold& f) final {
    const Counts counted = counts();
    micro_steps_ = 0;
    set_micro_step_id(std::min<std::int64_t>(counted[1], 1));
    fold(f);
    micro_steps_ = static_cast<std::uint64_t>(counted[0]);
    set_micro_step_id(counted[1]);
  }
  std::uint64_t rounds_alike(const Counts& a_round, bool ends_with_step) const final;

 protected:
  // ---- the wrapper's hooks, in the order of a window ------------------------------------------------------------------------------
  // engine.py: _forward_prologue, at 0.19.7
  virtual void clear_backward_seen_flag(ProgramWriter&) {}  // forward
  // engine.py: _backward_prologue, at 0.19.7
  virtual void backward_prologue(ProgramWriter&) {}  // once for each forward's outputs
  // parameter_offload.py: pre_sub_module_forward_function, post_sub_module_forward_function, at 0.19.8. Uses, the last first; again: recomputed.
  virtual void run_modules(ProgramWriter&, std::optional<std::uint32_t> /*backward*/, std::span<const std::uint32_t> /*ready*/, bool /*again*/) {}
  // parameter_offload.py: pre_sub_module_backward_function, of the whole model, at 0.19.8
  virtual void begin_backward(ProgramWriter&, std::uint32_t /*backward*/) {}
  virtual void before_module(ProgramWriter&, std::uint32_t /*use*/) {}  // parameter_offload.py: pre_sub_module_backward_function, at 0.19.8
  virtual void after_module(std::uint32_t /*use*/) {}                   // parameter_offload.py: post_sub_module_backward_function, at 0.19.8
  virtual bool follows_modules() const { return false; }                // whether these do anything
  // ours: of the wrapper
  virtual void gradient_ready(ProgramWriter&, std::uint32_t /*parameter*/) {}  // post-accumulate hook, gradient-ready order
  virtual void backward_epilogue(ProgramWriter&) {}                            // engine.py: _backward_epilogue, at 0.19.7
  virtual void require_bucket() const {}                                       // raises where there is nothing to reduce from
  // engine.py: allreduce_gradients, at 0.19.7
  virtual void reduce_gradients(ProgramWriter& w) = 0;  // allreduce_gradients, where it does anything
  // engine.py: step, at 0.19.7
  virtual void finalise_unmanaged(ProgramWriter& w) { reduce_gradients(w); }  // step() without managed accumulation, before model_step
  // engine.py: _take_model_step, at 0.19.7
  virtual void model_step(ProgramWriter& w) = 0;                                       // ends in step_done(), at once or after reads
  virtual void on_value(std::uint32_t /*stage*/, double /*value*/, ProgramWriter&) {}  // ours: goes on with a value
  virtual void optimizer_zero_grad(ProgramWriter& w);                                  // engine.py: zero_grad, at 0.19.7
  virtual bool zero_grad_after_step() const;
  // engine.py: coalesce_grad_reduction, at 0.19.7
  virtual void flush_coalesced(ProgramWriter&) {}  // the end of a coalesced block
  // tensor_fragment.py: safe_set_full_grad, at 0.19.7
  virtual void set_whole_gradient(const events::SetGradient& event, ProgramWriter& w);  // safe_set_full_grad where there is no param.grad
  // tensor_fragment.py: safe_set_local_grad, at 0.19.7
  virtual void set_own_partition(const events::SetGradient& event, ProgramWriter& w);  // safe_set_local_grad
  virtual void observe_wrapper(ProgramWriter& w) = 0;                                  // ours: snapshots

  // ---- what the wrapper says of itself --------------------------------------------------------------------------------------------
  virtual double loss_scale() const { return 1.0; }  // multiplied into the loss
  virtual std::int64_t micro_step_id() const { return 0; }
  virtual void set_micro_step_id(std::int64_t) {}
  virtual bool reduces_every_backward() const { return false; }   // partitioned gradients: stages 2 and 3
  virtual bool accumulates_in_epilogue() const { return false; }  // BF16_Optimizer
  virtual std::uint32_t hooks_passed(std::uint32_t parameter) const { return scenario().parameters[parameter].hooked_outputs; }
  virtual bool is_zero_optimizer() const { return true; }                                               // the wrapper takes part in loss.backward()
  virtual bool hooks_count() const { return true; }                                                     // its gradient hooks tell the end of a backward
  virtual bool has_hook(std::uint32_t) const { return true; }                                           // on this parameter
  virtual bool multiplies_loss() const { return true; }                                                 // by its loss scale, if only 1: the result is no output any more
  virtual bool needs_scaler() const { return config().fp16.enabled && config().fp16.loss_scale == 0; }  // refuses an unscaled loss
  virtual bool can_coalesce() const { return false; }                                                   // coalesce_grad_reduction: stages 1 to 3 but BF16_Optimizer
  virtual bool sets_param_grad() const { return true; }                                                 // a user's new gradient goes there, where there is one
  virtual Role gradient_role() const { return Role::scratch; }                                          // of param.grad, where it has storage of its own
  virtual double gradient_scale() const { return loss_scale(); }                                        // of param.grad, relative to the true gradient

  // ---- what the wrapper may use ---------------------------------------------------------------------------------------------------
  const Scenario& scenario() const { return *context_.scenario; }
  const Timeline& timeline() const { return *context_.timeline; }
  const DeepSpeedConfig& config() const { return *config_; }
  const Behaviour& behaviour() const { return context_.behaviour; }
  std::uint32_t rank() const { return context_.rank; }
  std::uint32_t world() const { return context_.scenario->world_size; }
  std::uint32_t parameter_count() const { return static_cast<std::uint32_t>(context_.scenario->parameters.size()); }
  std::uint64_t numel(std::uint32_t parameter) const { return context_.scenario->parameters[parameter].numel; }
  const std::string& parameter_name(std::uint32_t parameter) const { return context_.scenario->parameters[parameter].name; }
  // The ranks that this one averages gradients with, and what their sum is divided by.
  const ProcessGroup& peers() const { return peers_; }
  std::uint32_t index_in_peers() const { return index_in_peers_; }
  double sequence_ranks() const { return context_.scenario->engine.sequence_parallel_size; }  // that share a sequence
  double average_over() const { return tensor_ranks_.size() > 1 ? peers_.size() : averaging_divisor(scenario()); }
  // What the mpu of Megatron calls model-parallel ranks: those that have cut the model. One, where none have.
  const ProcessGroup& tensor_ranks() const { return tensor_ranks_; }
  // utils.py: is_model_parallel_parameter, at 0.19.8. Of what tensor-parallel ranks have alike the first one's counts.
  bool counts_in_norm(std::uint32_t parameter) const { return scenario().parameters[parameter].part || first_of_tensor_ranks(); }
  bool first_of_tensor_ranks() const { return tensor_ranks_.size() == 1 || tensor_ranks_.index_of(rank()) == 0; }
  std::vector<RankGroup> rank_groups() const;
  // stage_1_and_2.py, stage3.py, utils.py: has_overflow, at 0.19.8: after the data-parallel ranks the model-parallel ones.
  void share_overflow(ProgramWriter& w, Slice flag) const;
  // DeepSpeed#5555: before it the buffered all-reduce counted every rank of a sequence.
  double fallback_divisor() const { return behaviour().sequence_divisor == SequenceDivisor::all_ranks ? peers_.size() : average_over(); }
  // The parameters that have a gradient on this rank, in the order of the model.
  const std::vector<std::uint32_t>& learned() const { return learned_; }
  // Whether another hook of the same parameter follows in this backward.
  bool hook_follows() const { return hook_follows_; }
  bool linear() const { return context_.linear; }
  // Whether overflow flags are read. A linear run holds nothing that is not finite but what the script plants.
  bool decides_on_overflow() const { return !linear() || !context_.timeline->planted.empty(); }
  std::size_t backwards_in_script() const { return context_.timeline->backwards.size(); }
  // Some backward may end without its epilogue: a direct one, or one after an error.
  bool may_skip_epilogues() const { return has_direct_backwards_ || scenario().after_error == AfterError::go_on; }
  bool pinned() const { return pins_host_memory(config(), behaviour()); }
  bool averages() const { return config().gradient_allreduce_op == AllreduceOp::mean || behaviour().allreduce_op_sum == SumOp::ignored; }

  // The engine's is_gradient_accumulation_boundary(), and the optimizer's copy of it.
  bool boundary() const;
  bool boundary_mirror() const { return mirror_; }
  bool coalescing() const { return coalescing_; }
  bool unmanaged() const { return protocol().unmanaged(); }
  // Of torch's world, whose ranks DeepSpeed averages over in a communicator of its own (groups.py: _clone_world_group): the loop's collectives meet none of its.
  virtual std::uint32_t worlds_communicator() const { return 1; }
  bool in_pipeline() const { return scenario().engine.pipeline_stages > 1; }

  // What was allocated just now is there for the other stream of autograd too.
  // ours: what autograd of PyTorch does between streams
  void share_allocation(ProgramWriter& w) {
    if (uses_side_stream_) activations_ = w.record();
  }

  // buffered_allreduce_fallback of gradients that every rank has, and of experts among the ranks that have the same.
  // engine.py: buffered_allreduce_fallback, _reduce_expert_gradients, at 0.19.7
  void buffered_all_reduce(ProgramWriter& w, const std::vector<Slice>& shared, const std::vector<Slice>& of_experts);

  // norm := the norm of both, in fp32, of squares added up in `squared`.
  static void join_norms(ProgramWriter& w, Slice squared, Slice norm, Slice other);  // utils.py: get_norm_with_moe_layers, at 0.19.7
  // The sum of squares of each stage becomes that of the whole pipeline.
  void sum_over_stages(ProgramWriter& w, Slice squared) const;  // utils.py: get_global_norm_of_tensors, at 0.19.7

  // Emits a read of a scalar and suspends; on_value(stage, ...) goes on.
  void read(ProgramWriter& w, std::uint32_t stage, Slice scalar);  // ours: asks for a value
  // What the wrapper decided about a step, and the loss scale from here on.
  void report_decision(ProgramWriter& w, bool overflow, double loss_scale);  // ours: for the oracle
  // The norm that clipping goes by, in true units.
  void report_clipping_norm(ProgramWriter& w, double norm) { w.report(StepFact::clipping_norm, norm); }  // ours: for the oracle
  // The end of a model step. updated: the base optimizer ran.
  void step_done(ProgramWriter& w, bool updated);  // engine.py: _take_model_step, at 0.19.7

  // A full gradient of the user's: what the owners among `peers` hold of it, summed in fp32 on every rank, times the factor. `held` is this
  // rank's part from element `offset` on, if it has one. The caller holds the result.
  Tensor times_factor(const events::SetGradient& event, ProgramWriter& w, Slice held, std::uint64_t offset);  // tensor_fragment.py: get_full_hp_grad, at 0.19.7
  // The same where `found`, which stands for the rank's part, may be of another parameter. Without a part nothing is found.
  // tensor_fragment.py: get_full_hp_grad, at 0.19.7
  Tensor times_factor_of_found(const events::SetGradient& event, ProgramWriter& w, const OwnedPart& part, Slice found);
  static Slice set_from(const OwnedPart& part, Slice found, Slice full);             // of `full`; raises where it does not fit; tensor_fragment.py: set_full_hp_grad, at 0.19.7
  Slice repeated(ProgramWriter& w, Slice one, std::uint64_t times, Tensor& buffer);  // ours: of get_full_hp_grad
  bool has_recorded_norm_refreshed(const events::SetGradient& event) const;

  std::vector<ViewPiece> whole_parameter(std::uint32_t parameter, Slice slice) const;

  // param.grad, with storage of its own and nothing in it yet.
  void make_gradient(ProgramWriter& w, std::uint32_t parameter);  // ours: what autograd of PyTorch does
  // What lies in param.grad is no sum any more: a reduction has written there.
  void holds_no_sum(std::uint32_t parameter) { own_storage_[parameter] = no_index; }

  TensorTable tensors_;
  std::vector<Tensor> grad_;  // param.grad
  bool stepped_ = false;      // the last event took a model step: weights may have changed

 private:
  static constexpr std::uint32_t loop_norm_known = 0xFFFFFFFFu;  // a stage that no wrapper has

  void require_initialised() const;
  void forward(ProgramWriter& w, std::optional<std::uint32_t> backward);  // engine.py: forward, at 0.19.7
  std::optional<std::uint32_t> backward_of(const Event& forward) const;   // ours: what it computes, its backward says
  void backward(const events::Backward& event, ProgramWriter& w);         // engine.py: backward, at 0.19.7
  void go_to_stream_of(std::uint32_t parameter, ProgramWriter& w);        // ours: what autograd of PyTorch does between streams
  void join_streams(ProgramWriter& w);                                    // ours: what autograd of PyTorch does between streams
  void step(ProgramWriter& w);                                            // engine.py: step, at 0.19.7
  void set_boundary(bool boundary);
  void set_gradient(const events::SetGradient& event, ProgramWriter& w);        // tensor_fragment.py: safe_get_full_grad, safe_set_full_grad, at 0.19.7
  void scale_gradients(const events::ScaleGradients& event, ProgramWriter& w);  // ours: the loop's own code
  void clip_gradients(const events::ClipGradients& event, ProgramWriter& w);    // ours: the loop's own code
  void clip_by(double norm, ProgramWriter& w);                                  // ours: the loop's own code
  void all_reduce(const events::AllReduce& event, ProgramWriter& w);            // ours: the loop's own code
  void finalize(ProgramWriter& w);                                              // engine.py: allreduce_gradients, at 0.19.7
  bool prologue_runs(const events::Backward& event, bool passes_an_output);
  void prologue(const events::Backward& event, ProgramWriter& w);  // engine.py: _backward_prologue_per_tensor, at 0.19.7
  bool ends_with_epilogue(const events::Backward& event);
  void epilogue(ProgramWriter& w);                                     // engine.py: _backward_epilogue, at 0.19.7
  void end_of_phase(const events::Backward& event, ProgramWriter& w);  // engine.py: _backward_post_hook, at 0.19.7
  void enter_coalescing();
  bool ends_block();
  void exit_coalescing(ProgramWriter& w);                    // engine.py: coalesce_grad_reduction, at 0.19.7
  void raise(const events::Raise& event, ProgramWriter& w);  // ours: the loop's own code
  bool boundary_for_optimizer() const;
  Protocol protocol() const { return {&scenario(), &behaviour(), in_no_sync_, can_coalesce(), is_zero_optimizer()}; }
  double pipeline_factor() const;
  bool taken_for_direct() const;
  void refuse_direct() const;
  // What a gradient is multiplied by on its way from the loss, and once more by each hooked output that it passes.
  struct LossFactors {
    double loss = 1.0, each_hook = 1.0;
    double of(std::uint32_t hooks) const;
  };
  LossFactors loss_factors(const events::Backward& event, bool loss_is_an_output) const;
  // Uses of parameters in the order in which their gradients are ready, and which of them one run of autograd has.
  struct Pass {
    std::uint32_t backward = 0;
    std::span<const std::uint32_t> ready;
    std::size_t begin = 0, end = 0;
    LossFactors factors;
  };
  void over_parts_of_model(ProgramWriter& w, CollectiveCall call) const;  // stage_1_and_2.py: _model_parallel_all_reduce, at 0.19.8
  std::uint32_t owner_of(std::uint32_t use) const { return scenario().parameters[use].tied_to.value_or(use); }
  void deposit(ProgramWriter& w, const Pass& pass, std::size_t at);  // ours: what autograd of PyTorch does
  bool is_last_use(const Pass& pass, std::size_t at) const;          // ours: what autograd of PyTorch does
  double weight_of_uses(std::uint32_t parameter, const LossFactors& factors) const;
  double weight_of_uses(std::uint32_t parameter, const Pass& pass) const;  // ours: of one phase

  DeepSpeedContext context_;
  const DeepSpeedConfig* config_ = &deepspeed_config(*context_.scenario);  // looked up once: engines ask at every gradient
  std::vector<BufferId> own_storage_;                                      // that autograd made for param.grad; elsewhere it shares a bucket's
  ProcessGroup peers_, tensor_ranks_;
  PipelineNeighbours neighbours_;
  std::uint32_t index_in_peers_;
  const bool has_direct_backwards_;
  std::vector<std::uint32_t> learned_;
  std::vector<std::uint32_t> uses_;  // by parameter: how often the model uses it, ties counted
  bool hook_follows_ = false;
  const bool uses_side_stream_;
  std::uint32_t activations_ = no_index;  // stream event: what the next layer's backward needs is there
  std::uint64_t micro_steps_ = 0;         // calls of step(); in a pipeline backwards since the last update
  std::optional<bool> override_boundary_;
  bool in_no_sync_ = false;  // or in a coalesced block
  bool coalescing_ = false;
  std::vector<bool> blocks_;   // that the script is in: whether each was entered
  bool scale_wrt_gas_ = true;  // of the last engine.backward(); direct ones go by it
  std::optional<bool> override_before_coalescing_;
  BackwardHooks hooks_;
  bool in_step_ = false;
  bool mirror_ = true;
  std::optional<std::uint32_t> pending_stage_;
  double loop_max_norm_ = 0;                 // of the clip that waits for its norm
  Dtype loop_norm_dtype_ = Dtype::float32;   // of that norm
  std::uint32_t window_ = 0;                 // of the forwards below
  std::vector<bool> explicit_forward_used_;  // by explicit forward of the window: its prologue ran
};

}  // namespace gradledger
