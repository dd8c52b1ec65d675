// A training loop around Megatron-Core: its DistributedDataParallel, finalize_model_grads and the chained optimizers, event by event.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/engine/engine.h"
#include "sim/frameworks/megatron/distributed_data_parallel.h"
#include "sim/frameworks/megatron/events.h"
#include "sim/frameworks/megatron/finalize_model_grads.h"
#include "sim/frameworks/megatron/optimizer.h"
#include "sim/frameworks/megatron/schedules.h"

namespace gradledger::megatron {

class MegatronEngine final : public Engine {
 public:
  // Precondition: megatron_refusal() has none.
  explicit MegatronEngine(SharedSetup setup);

  std::unique_ptr<Engine> clone() const override { return std::make_unique<MegatronEngine>(*this); }
  void initialise(ProgramWriter& w) override;                  // training.py: setup_model_and_optimizer, at 0.16.1
  void handle(const Event& event, ProgramWriter& w) override;  // ours: one event
  bool suspended() const override { return pending_.has_value(); }
  void resume(double value, ProgramWriter& w) override;  // ours: goes on with a value
  void observe(ProgramWriter& w) override;               // ours: snapshots
  void load(const Engine& saved) override;               // checkpointing.py: load_checkpoint, at 0.16.1

  const DistributedDataParallel& ddp() const { return ddp_; }
  const std::vector<ChildOptimizer>& optimizers() const { return optimizers_; }
  // Whether a step counts the zeros of its gradients.
  bool counts_zeros() const { return setup_->config->optimizer.log_num_zeros_in_grad || (setup_->behaviour.counts_zeros && shares_stats()); }

 private:
  enum class Stage : std::uint8_t { local_norm, found_inf, total_norm };

  const Setup& setup() const { return *setup_; }
  bool linear() const { return setup_->context.linear; }

  void enter_no_sync();
  void leave_no_sync();
  void raise(const events::Raise& event);
  void zero_grad_buffer(ProgramWriter& w);                             // training.py: train_step, at 0.16.1
  void zero_grad(bool set_to_none, ProgramWriter& w);                  // optimizer.py: ChainedOptimizer.zero_grad, at 0.16.1
  void own_event(const events::OfFramework& event, ProgramWriter& w);  // ours: an event of Megatron-Core's own
  void save(ProgramWriter& w);                                         // training.py: save_checkpoint_and_time, at 0.16.1

  void backward(const events::Backward& event, ProgramWriter& w);  // schedules.py: forward_backward_no_pipelining, at 0.16.1
  double loss_factor(const events::Backward& event) const;         // schedules.py: forward_step_calc_loss, at 0.16.1
  std::optional<std::vector<std::uint64_t>> tokens_of_window() const;

  void finalize(ProgramWriter& w);                          // finalize_model_grads.py: finalize_model_grads, at 0.16.1
  void begin_groups(bool finish, ProgramWriter& w);         // distributed_data_parallel.py: finish_grad_sync, start_grad_sync, at 0.16.1
  void reduce_groups(ProgramWriter& w);                     // distributed_data_parallel.py: finish_grad_sync, start_grad_sync, at 0.16.1
  void reduce(BucketGroup& group, ProgramWriter& w) const;  // param_and_grad_buffer.py: finish_grad_sync, start_grad_sync, at 0.16.1
  void local_norm_is(double norm, ProgramWriter& w);        // param_and_grad_buffer.py: check_grads, at 0.16.1

  void step(ProgramWriter& w);                           // optimizer.py: ChainedOptimizer.step, at 0.16.1
  void prepare_grads(ProgramWriter& w);                  // optimizer.py: prepare_grads, at 0.16.1
  void found_inf_is(bool found, ProgramWriter& w);       // optimizer.py: prepare_grads, at 0.16.1
  void grad_norm(ProgramWriter& w);                      // optimizer.py: ChainedOptimizer.get_grad_norm, at 0.16.1
  void total_norm_is(double squared, ProgramWriter& w);  // clip_grads.py: get_grad_norm_fp32, at 0.16.1
  void clip(ProgramWriter& w);                           // optimizer.py: ChainedOptimizer.step, at 0.16.1
  void count_zeros(ProgramWriter& w);                    // optimizer.py: ChainedOptimizer.count_zeros, at 0.16.1
  bool shares_stats() const;
  void update(ProgramWriter& w);                           // optimizer.py: step_with_ready_grads, at 0.16.1
  void observe_gradients(ProgramWriter& w);                // ours: snapshots
  void read(ProgramWriter& w, Stage stage, Slice scalar);  // ours: asks for a value

  SharedSetup setup_;
  DistributedDataParallel ddp_;
  ModelGradients model_gradients_;
  std::vector<ChildOptimizer> optimizers_;   // chained
  std::uint32_t backwards_ = 0;              // since the buffer was cleared
  std::uint32_t event_ = 0, finalized_ = 0;  // events: the one that runs; from which tokens are counted
  std::uint32_t no_sync_depth_ = 0;
  ScheduleCall call_;
  double gradient_scale_ = 1;  // of what the last backward made of the loss

  std::size_t group_at_ = 0;  // of an event that waits for a norm
  bool finishes_ = true;      // whether that is a finalize
  std::size_t child_at_ = 0;  // of a step that waits
  bool found_inf_ = false;
  std::vector<double> squares_;  // of norms, by optimizer or of all
  std::optional<double> norm_;
  bool agreed_ = false;  // on norms of their own
  NormScratch scratch_;
  Slice local_norm_;
  bool stepped_ = false;                    // the last event: weights may have changed
  bool reduced_ = false, applied_ = false;  // since zero_grad_buffer: by finalize_model_grads, by a step
  std::optional<Stage> pending_;
};

}  // namespace gradledger::megatron
