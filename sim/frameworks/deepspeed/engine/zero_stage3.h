// DeepSpeedZeroOptimizer_Stage3: weights, gradients and optimizer state partitioned parameter by parameter, with and without offload.
#pragma once

#include <deque>
#include <algorithm>
#include <optional>
#include <vector>

#include "sim/engine/base_optimizer.h"
#include "sim/frameworks/deepspeed/engine/partition.h"
#include "sim/frameworks/deepspeed/engine/deepspeed_engine.h"
#include "sim/frameworks/deepspeed/engine/loss_scaler.h"

namespace gradledger {

class ZeroStage3 final : public DeepSpeedEngine {
 public:
  explicit ZeroStage3(const DeepSpeedContext& context);

  std::unique_ptr<Engine> clone() const override { return std::make_unique<ZeroStage3>(*this); }
  void initialise(ProgramWriter& w) override;
  void load(const Engine& saved) override;
  void fold(StateFold& f) const override;

 protected:
  void clear_backward_seen_flag(ProgramWriter& w) override;
  void backward_prologue(ProgramWriter& w) override;
  void gradient_ready(ProgramWriter& w, std::uint32_t parameter) override;
  void reduce_gradients(ProgramWriter& w) override;
  void flush_coalesced(ProgramWriter& w) override;
  void finalise_unmanaged(ProgramWriter& w) override;
  void model_step(ProgramWriter& w) override;
  void on_value(std::uint32_t stage, double value, ProgramWriter& w) override;
  void optimizer_zero_grad(ProgramWriter& w) override;
  void set_whole_gradient(const events::SetGradient& event, ProgramWriter& w) override;
  void set_own_partition(const events::SetGradient& event, ProgramWriter& w) override;
  void observe_wrapper(ProgramWriter& w) override;

  double loss_scale() const override { return scaler_.scale(); }
  bool reduces_every_backward() const override { return true; }
  bool can_coalesce() const override { return true; }
  // Every output leaves the module as a copy that fetches weights in the backward: none is on the way of another.
  std::uint32_t hooks_passed(std::uint32_t parameter) const override { return std::min(DeepSpeedEngine::hooks_passed(parameter), 1u); }
  Role gradient_role() const override { return Role::local_accumulator; }

 private:
  enum Stage : std::uint32_t { overflow_known, norm_known };

  // Neighbouring parameters of one of the optimizer's groups, closed once their partitions reach sub_group_size.
  struct SubGroup {
    std::vector<std::uint32_t> parameters;
    std::uint32_t offset = 0;           // of its partitions in the flat buffers
    std::uint32_t size = 0;             // sum of partition sizes
    std::uint32_t of = 0;               // the optimizer's group
    Slice master;                       // fp32, this rank's
    Slice master_gradient;              // offload
  };

  void push(ProgramWriter& w, std::uint32_t parameter);
  void wait_for(ProgramWriter& w, Stream producer) const;  // the reduction stream does
  void require_reducible() const;
  void limit_reductions_in_flight(ProgramWriter& w);
  void reduce_bucket(ProgramWriter& w);
  void clear_bucket();
  std::vector<Tensor> all_reduce_partitions(ProgramWriter& w);
  std::vector<Tensor> reduce_scatter_partitions(ProgramWriter& w);
  bool rounds_to_model() const;
  void copy_reduced(ProgramWriter& w, std::uint32_t parameter, Slice target, Slice reduced);
  void interleave(ProgramWriter& w, Slice interleaved);
  void partition_gradients(ProgramWriter& w, std::vector<Tensor> partitions);
  void store_partition(ProgramWriter& w, Slice target, Slice partition);
  void to_master_gradient(ProgramWriter& w, std::uint32_t parameter);
  void partition_epilogue(ProgramWriter& w);
  void fetch_weights(ProgramWriter& w);
  void store_weights(ProgramWriter& w, Slice weights, Slice master);
  Slice settable_partition(std::uint32_t parameter) const;
  void set_partition(const events::SetGradient& event, ProgramWriter& w, Slice value);

  void emit_norm(ProgramWriter& w);
  double unscaled_by() const;
  void finish_step(ProgramWriter& w, std::optional<double> norm);
  void clear_stale(ProgramWriter& w);

  ParameterShard shard(std::uint32_t parameter) const { return shard_of(numel(parameter), world(), rank()); }
  Slice partition_of(std::uint32_t parameter) const { return partitions_.part(offset_[parameter], shard(parameter).size); }
  Slice in_group(const SubGroup& group, Slice flat, std::uint32_t parameter) const;
  std::vector<ViewPiece> shard_pieces(std::uint32_t parameter, Slice partition) const;
  std::vector<ViewPiece> group_pieces(const SubGroup& group, Slice flat) const;
  Stream reduction_stream() const { return overlap_ ? Stream::communication : Stream::compute; }

  const bool offload_;             // of the optimizer
  const bool offload_parameters_;
  const bool contiguous_;
  const bool overlap_;
  const Dtype model_dtype_, acc_dtype_, comm_dtype_;

  LossScaler scaler_;
  double scale_before_update_ = 1.0;
  std::vector<RankGroup> optimizer_groups_;
  std::vector<BaseOptimizer> optimizers_;  // by group
  std::vector<std::uint32_t> group_offset_;  // of a group in the flat buffers
  std::vector<SubGroup> groups_;
  std::vector<std::uint32_t> offset_;  // of a parameter's partition in the flat buffers
  std::vector<Slice> weights_;         // this rank's shard, model dtype

  std::uint32_t micro_step_id_ = 0;
  bool epilogue_ran_ = false;
  std::uint64_t bucket_elements_ = 0;
  std::vector<std::uint32_t> bucket_;  // parameters waiting
  std::vector<Slice> gradient_slice_;  // where each one's gradient lies: in the bucket buffer, or param.grad
  Tensor bucket_buffer_;
  std::deque<std::uint32_t> in_flight_;  // stream events of reductions

  Slice partitions_;                 // grad_partitions_flat_buffer: zero at the start, never zeroed again
  enum class Averaged : std::uint8_t { never, none, set } averaged_state_ = Averaged::never;
  std::vector<bool> norm_recorded_;
  std::vector<bool> stored_in_window_;  // offload, by parameter: a backward since the last step
  Slice recorded_norms_, overflow_flag_, norm_squared_, norm_total_, norm_;
};

inline bool contains(const std::vector<std::uint32_t>& parameters, std::uint32_t p) { return std::find(parameters.begin(), parameters.end(), p) != parameters.end(); }

}  // namespace gradledger
