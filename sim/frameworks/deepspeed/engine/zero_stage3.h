// DeepSpeedZeroOptimizer_Stage3: weights, gradients and optimizer state partitioned parameter by parameter, with and without offload.
#pragma once

#include <deque>
#include <algorithm>
#include <optional>
#include <vector>

#include "sim/engine/base_optimizer.h"
#include "sim/frameworks/deepspeed/engine/partition.h"
#include "sim/frameworks/deepspeed/engine/scaled_optimizer.h"
#include "sim/frameworks/deepspeed/engine/weight_fetches.h"

namespace gradledger {

class ZeroStage3 final : public ScaledOptimizer {
 public:
  explicit ZeroStage3(const DeepSpeedContext& context);

  std::unique_ptr<Engine> clone() const override { return std::make_unique<ZeroStage3>(*this); }
  void initialise(ProgramWriter& w) override;  // stage3.py: _setup_for_real_optimizer, at 0.19.7
  void load(const Engine& saved) override;
  void fold(StateFold& f) const override;

 protected:
  void clear_backward_seen_flag(ProgramWriter& w) override;  // stage3.py: clear_backward_seen_flag, at 0.19.7
  void backward_prologue(ProgramWriter& w) override;         // stage3.py: backward_prologue, at 0.19.7
  // parameter_offload.py: pre_sub_module_forward_function, post_sub_module_forward_function, at 0.19.8
  void run_modules(ProgramWriter& w, std::optional<std::uint32_t> backward, std::span<const std::uint32_t> ready, bool again) override;
  void begin_backward(ProgramWriter& w, std::uint32_t backward) override;  // parameter_offload.py: pre_sub_module_backward_function, at 0.19.8
  void before_module(ProgramWriter& w, std::uint32_t use) override;        // parameter_offload.py: pre_sub_module_backward_function, at 0.19.8
  void after_module(std::uint32_t use) override;                           // parameter_offload.py: post_sub_module_backward_function, at 0.19.8
  bool follows_modules() const override { return fetches_.has_value() || without_elements_; }
  void gradient_ready(ProgramWriter& w, std::uint32_t parameter) override;  // stage3.py: reduce_ready_partitions_and_remove_grads, at 0.19.7
  void reduce_gradients(ProgramWriter& w) override;                         // stage3.py: overlapping_partition_gradients_reduce_epilogue, at 0.19.7
  void flush_coalesced(ProgramWriter& w) override;                          // engine.py: _flush_coalesced_reduction_zero3, at 0.19.7
  void finalise_unmanaged(ProgramWriter& w) override;                       // stage3.py: finalize_gradient_accumulation_boundary, at 0.19.7
  void model_step(ProgramWriter& w) override;                               // stage3.py: step, at 0.19.7
  void require_gradients() const override;                                  // stage3.py: averaged_gradients, at 0.18.9 and 0.19.8
  void emit_norm(ProgramWriter& w) override;                                // stage3.py: _get_norm_groups, at 0.19.7
  Slice awaited_norm() const override;                                      // stage3.py: get_grad_norm_direct, at 0.19.7
  double norm_of(double awaited) const override;
  void skip_step(ProgramWriter& w) override;                                             // stage3.py: _overflow_clean_up, at 0.19.7
  void finish_step(ProgramWriter& w, std::optional<double> norm) override;               // stage3.py: step, unscale_and_clip_grads, at 0.19.7
  void optimizer_zero_grad(ProgramWriter& w) override;                                   // stage3.py: zero_grad, at 0.19.7
  void set_whole_gradient(const events::SetGradient& event, ProgramWriter& w) override;  // stage3.py: set_fp32_grad_for_param, at 0.19.7
  void set_own_partition(const events::SetGradient& event, ProgramWriter& w) override;   // stage3.py: set_local_grad_for_param, at 0.19.7
  void observe_wrapper(ProgramWriter& w) override;                                       // ours: snapshots

  double loss_scale() const override { return scaler_.scale(); }
  std::int64_t micro_step_id() const override { return micro_step_id_; }
  void set_micro_step_id(std::int64_t id) override { micro_step_id_ = static_cast<std::uint32_t>(id); }
  bool reduces_every_backward() const override { return true; }
  bool can_coalesce() const override { return true; }
  // Every output leaves the module as a copy that fetches weights in the backward: none is on the way of another.
  std::uint32_t hooks_passed(std::uint32_t parameter) const override { return std::min(DeepSpeedEngine::hooks_passed(parameter), 1u); }
  Role gradient_role() const override { return Role::local_accumulator; }

 private:
  // Neighbouring parameters of one of the optimizer's groups, closed once their partitions reach sub_group_size.
  struct SubGroup {
    std::vector<std::uint32_t> parameters;
    std::uint64_t offset = 0;  // of its partitions in the flat buffers
    std::uint64_t size = 0;    // sum of partition sizes
    std::uint32_t of = 0;      // the optimizer's group
    Slice master;              // fp32, this rank's
    Slice master_gradient;     // offload
  };

  void push(ProgramWriter& w, std::uint32_t parameter);  // stage3.py: __add_grad_to_ipg_bucket, at 0.19.7
  // stage3.py: __add_grad_to_ipg_bucket, at 0.19.7
  void wait_for(ProgramWriter& w, Stream producer) const;  // the reduction stream does
  void require_reducible() const;
  void limit_reductions_in_flight(ProgramWriter& w);  // stage3.py: __reduce_and_partition_ipg_grads, at 0.19.7
  void reduce_bucket(ProgramWriter& w);               // stage3.py: __reduce_and_partition_ipg_grads, at 0.19.7
  void clear_bucket();
  std::vector<Tensor> all_reduce_partitions(ProgramWriter& w);      // stage3.py: __avg_scatter_contiguous_grads, at 0.19.7
  std::vector<Tensor> reduce_scatter_partitions(ProgramWriter& w);  // stage3.py: __avg_scatter_grads, at 0.19.7
  bool rounds_to_model() const;
  Tensor make_partition(ProgramWriter& w, std::uint32_t parameter);                           // stage3.py: __reduce_and_partition_ipg_grads, at 0.19.7
  void copy_reduced(ProgramWriter& w, std::uint32_t parameter, Slice target, Slice reduced);  // stage3.py: __reduce_and_partition_ipg_grads, at 0.19.7
  void interleave(ProgramWriter& w, Slice interleaved);                                       // coalesced_collectives.py: reduce_scatter_coalesced, at 0.19.7
  void partition_gradients(ProgramWriter& w, std::vector<Tensor> partitions);                 // stage3.py: partition_grads, at 0.19.7
  void store_partition(ProgramWriter& w, Slice target, Slice partition);                      // stage3.py: partition_grads, at 0.19.7
  void to_master_gradient(ProgramWriter& w, std::uint32_t parameter);                         // stage3.py: _offload_grad_partition_at_boundary, at 0.19.7
  void partition_epilogue(ProgramWriter& w);                                                  // stage3.py: independent_gradient_partition_epilogue, at 0.19.7
  void fetch_weights(ProgramWriter& w);                                                       // ours: what a gather costs where weights lie on the host
  void store_weights(ProgramWriter& w, Slice weights, Slice master);                          // stage3.py: _reassign_or_swap_out_partitioned_parameters, at 0.19.7
  Slice settable_partition(std::uint32_t parameter) const;
  void set_partition(const events::SetGradient& event, ProgramWriter& w, Slice value);  // stage3.py: set_fp32_grad_for_param, at 0.19.7

  void take_into_momentum_of(ProgramWriter& w, std::uint32_t parameter, Slice reduced, double scale);  // stage3.py: _apply_distributed_muon_update, at 0.18.9
  void apply_muon(ProgramWriter& w);                                                                   // stage3.py: _apply_muon_to_accumulated_grads, at 0.19.8
  void observe_momentum(ProgramWriter& w);                                                             // ours: snapshots

  void compare_recordings(ProgramWriter& w);                                    // zero/utils.py: assert_ints_same_as_other_ranks, at 0.19.8
  void begin_gathers(std::span<const std::uint32_t> parameters) const;          // partitioned_param_coordinator.py: _fetch_sub_module_impl, at 0.19.8
  void gather(ProgramWriter& w, const std::vector<std::uint32_t>& parameters);  // partitioned_param_coordinator.py: __all_gather_params, at 0.19.8
  // Of the backward that is as many backwards of the first rank behind its beginning as this one is of this rank; true where it has not so many.
  bool runs_as_first_rank(std::uint32_t backward) const;  // ours: what utils.py: get_lst_from_rank0 compares
  bool may_end_apart() const;                             // ours: where the gathers of weights cannot be left out
  std::vector<std::uint32_t> modules_of(std::uint32_t backward, std::uint32_t on_rank) const;

  void clear_stale(ProgramWriter& w);  // ours: a repair that no release has

  ParameterShard shard(std::uint32_t parameter) const { return shard_of(numel(parameter), peers().size(), index_in_peers()); }
  Slice partition_of(std::uint32_t parameter) const { return partitions_.part(offset_[parameter], shard(parameter).size); }
  Slice in_group(const SubGroup& group, Slice flat, std::uint32_t parameter) const;
  void add_shard_pieces(std::uint32_t p, Slice partition, std::vector<ViewPiece>& to) const;
  std::vector<ViewPiece> shard_pieces(std::uint32_t parameter, Slice partition) const;
  std::vector<ViewPiece> group_pieces(const SubGroup& group, Slice flat) const;
  Stream reduction_stream() const { return overlap_ ? Stream::communication : Stream::compute; }

  const bool offload_;  // of the optimizer
  const bool offload_parameters_;
  const bool contiguous_;
  const bool overlap_;
  const Dtype model_dtype_, acc_dtype_, comm_dtype_;

  std::vector<RankGroup> optimizer_groups_;
  std::vector<BaseOptimizer> optimizers_;    // by group
  std::vector<std::uint64_t> group_offset_;  // of a group in the flat buffers
  std::vector<SubGroup> groups_;
  std::vector<std::uint64_t> offset_;  // of a parameter's partition in the flat buffers
  std::vector<Slice> weights_;         // this rank's shard, model dtype

  // Where ranks run modules in different orders. What all gather alike changes nothing that is judged, and is left out.
  // Communicators of the data-parallel ranks: 0 is DeepSpeed's own, 1 torch's world, in which weights are gathered. Where no rank gathers apart from others
  // they cannot be told apart. Beside tensor-parallel ranks an mpu gives both the same group.
  std::uint32_t gathers_in() const { return fetches_ && tensor_ranks().size() == 1 ? 1 : 0; }
  std::uint32_t worlds_communicator() const override { return gathers_in(); }
  std::uint32_t reduces_in() const { return fetches_ && behaviour().stage3_reduction_group == Stage3ReductionGroup::of_weights ? gathers_in() : 0; }

  std::optional<WeightFetches> fetches_;
  bool without_elements_ = false;  // some parameter that has a gradient
  Slice recorded_length_;

  std::uint32_t micro_step_id_ = 0;
  bool epilogue_ran_ = false;
  std::uint64_t bucket_elements_ = 0;
  std::vector<std::uint32_t> bucket_;                     // parameters waiting
  std::vector<Slice> gradient_slice_;                     // where each one's gradient lies: in the bucket buffer, or param.grad
  std::vector<BufferId> reduced_storage_;                 // by parameter: that its own part of a reduction had
  std::vector<ViewId> accumulator_views_, weight_views_;  // by parameter: of what it accumulates and of its shard, once it was shown
  Tensor bucket_buffer_;
  std::deque<std::uint32_t> in_flight_;  // stream events of reductions

  Slice partitions_;           // grad_partitions_flat_buffer: zero at the start, never zeroed again
  Slice momentum_;             // momentum_buffer of all sub-groups; with Muon
  double momentum_scale_ = 1;  // the loss scale of what it took in last
  enum class Averaged : std::uint8_t { never, none, set } averaged_state_ = Averaged::never;
  std::vector<bool> norm_recorded_;
  std::vector<bool> stored_in_window_;  // offload, by parameter: a backward since the last step
  Slice recorded_norms_, overflow_flag_, norm_squared_, norm_total_;
};

inline bool contains(const std::vector<std::uint32_t>& parameters, std::uint32_t p) { return std::find(parameters.begin(), parameters.end(), p) != parameters.end(); }

}  // namespace gradledger
