// DeepSpeedZeroOptimizer: ZeRO stages 1 and 2, with and without CPU offload of the optimizer.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "sim/frameworks/deepspeed/engine/flat_groups.h"
#include "sim/frameworks/deepspeed/engine/deepspeed_engine.h"
#include "sim/frameworks/deepspeed/engine/loss_scaler.h"

namespace gradledger {

class ZeroStage1And2 final : public DeepSpeedEngine {
 public:
  explicit ZeroStage1And2(const DeepSpeedContext& context);

  std::unique_ptr<Engine> clone() const override { return std::make_unique<ZeroStage1And2>(*this); }
  void initialise(ProgramWriter& w) override;
  void load(const Engine& saved) override;
  void fold(StateFold& f) const override;

 protected:
  void clear_backward_seen_flag(ProgramWriter& w) override;
  void gradient_ready(ProgramWriter& w, std::uint32_t parameter) override;
  void backward_epilogue(ProgramWriter& w) override;
  void require_bucket() const override;
  void reduce_gradients(ProgramWriter& w) override;
  void flush_coalesced(ProgramWriter& w) override;
  void finalise_unmanaged(ProgramWriter& w) override;
  void model_step(ProgramWriter& w) override;
  void on_value(std::uint32_t stage, double value, ProgramWriter& w) override;
  void optimizer_zero_grad(ProgramWriter& w) override;
  void set_whole_gradient(const events::SetGradient& event, ProgramWriter& w) override;
  void observe_wrapper(ProgramWriter& w) override;

  double loss_scale() const override { return scaler_.scale(); }
  bool reduces_every_backward() const override { return partition_gradients_; }
  bool can_coalesce() const override { return true; }
  bool hooks_count() const override { return has_hooks(); }
  bool has_hook(std::uint32_t parameter) const override { return numel(parameter) > 0 || behaviour().empty_parameter != EmptyParameter::left_out; }
  Role gradient_role() const override { return Role::local_accumulator; }

 private:
  enum Stage : std::uint32_t { overflow_known, norm_known };

  // A gradient waiting in the bucket: the tensor that the reduction reads and that its result lands in.
  struct BucketEntry {
    std::uint32_t parameter = 0;
    Tensor gradient;
  };
  struct Bucket {
    std::array<Tensor, 2> buffers;  // contiguous_gradients; the second with overlap_comm
    std::uint32_t index = 0;
    std::uint64_t elements = 0;
    std::vector<BucketEntry> entries;
    std::array<bool, stream_count> producers{};  // streams that copied into it
    std::vector<std::uint32_t> empty;  // parameters without elements
    bool extra_large = false;  // holds one parameter larger than the bucket, which is reduced where it lies
  };
  // A stretch of a bucket that one rank owns, by its number among the ranks that divide the group.
  struct Run {
    const ProcessGroup* peers = nullptr;
    std::uint32_t owner = 0;
    Slice slice;
    Slice partition{};  // with an fp32 partition: where the rank's own is added
  };

  // ---- backward: hooks and buckets
  bool has_hooks() const { return partition_gradients_ || overlap_ || contiguous_ || uses_grad_accum_; }
  void drain(ProgramWriter& w, std::uint32_t parameter);
  void setup_buckets(ProgramWriter& w);
  Tensor gradient_for_reduction(ProgramWriter& w, std::uint32_t parameter);
  Tensor& gradient_attribute(std::uint32_t parameter);
  void push(ProgramWriter& w, std::uint32_t parameter);
  void require_not_reduced(std::uint32_t parameter) const;
  void require_owner(std::uint32_t parameter) const;
  void reduce_nothing(ProgramWriter& w);
  void reduce_bucket(ProgramWriter& w);

  // ---- the three reductions
  Slice contiguous_bucket() const;
  Slice extra_large_gradient() const;
  void wait_for_producers(ProgramWriter& w);
  void wait_for_earlier_reductions(ProgramWriter& w) const;
  void let_go_of_reduced(ProgramWriter& w, BucketEntry& entry, Stream producer);
  Stream copy_stream(Stream producer) const;
  void average_runs(ProgramWriter& w, Slice bucket);
  void divide_runs(ProgramWriter& w, Slice bucket);
  bool divides_experts_apart() const;
  void average_whole(ProgramWriter& w, Slice bucket);
  void average_separate(ProgramWriter& w);
  std::vector<Run> owner_runs(ProgramWriter& w, Slice bucket);
  void add_to_partition(ProgramWriter& w, Slice reduced);
  static void flatten(ProgramWriter& w, Slice flat, const std::vector<Run>& runs, std::size_t first, std::size_t last);
  void reduce_flattened(ProgramWriter& w, const std::vector<Run>& runs, bool to_owner);
  Slice flattened(ProgramWriter& w, const std::vector<Run>& runs, std::size_t first, std::size_t last, Tensor& flat);

  // ---- keeping what was reduced
  void keep(ProgramWriter& w, std::uint32_t parameter);
  void keep_of_partition(ProgramWriter& w, std::uint32_t parameter);
  void require_gradient(std::uint32_t parameter);
  void keep_on_host(ProgramWriter& w, std::uint32_t parameter);
  void accumulate_on_host(ProgramWriter& w, std::uint32_t parameter);
  void to_master_gradient(ProgramWriter& w, std::uint32_t parameter, Slice gradient, Slice own);
  void partition_epilogue(ProgramWriter& w);
  void accumulate_owned(ProgramWriter& w);
  void take_averaged_gradients(ProgramWriter& w);
  Slice partition_of(ProgramWriter& w, std::uint32_t parameter);
  void make_partition(ProgramWriter& w, std::size_t group);
  void make_partitions(ProgramWriter& w);
  void drop_partitions(ProgramWriter& w, bool skipped);

  // ---- step
  void require_averaged_gradients() const;
  void require_finite_test() const;
  void drop_accumulators(ProgramWriter& w, bool skipped);
  double unscaled_by() const;
  void finish_step(ProgramWriter& w, std::optional<double> norm);
  void apply(ProgramWriter& w, FlatWeights& group, std::size_t number, std::optional<double> norm);
  Tensor flat_gradient(ProgramWriter& w, const FlatWeights& group, std::size_t number);
  void emit_norm(ProgramWriter& w);
  void emit_group_norm(ProgramWriter& w, std::size_t group);

  OwnedPart owned(std::uint32_t parameter) const { return weights_.of(parameter).owned(parameter); }
  bool owns(std::uint32_t parameter) const { return owned(parameter).numel > 0; }
  void observe_averaged(ProgramWriter& w, std::size_t group);
  std::vector<ViewPiece> owned_piece(std::uint32_t parameter, Slice whole) const;

  const bool partition_gradients_;   // stage 2
  const bool offload_;
  const bool contiguous_;
  const bool overlap_;
  const bool uses_grad_accum_;       // stage 1 with an accumulation dtype of its own: param.grad_accum
  const bool checks_overflow_;
  const Dtype model_dtype_, acc_dtype_, comm_dtype_;
  const bool to_partition_;          // reduced values are added to an fp32 partition of the rank
  const Dtype bucket_dtype_;

  LossScaler scaler_;
  double scale_before_update_ = 1.0;
  FlatGroups weights_;
  std::int64_t micro_step_id_ = -1;
  bool ready_for_gradients_ = false;
  bool had_buckets_ = false;
  bool epilogue_ran_ = false;
  std::vector<bool> already_reduced_;
  Bucket bucket_;

  std::vector<Tensor> grad_accum_;        // param.grad_accum
  Tensor grads_in_partition_;             // full gradients of owned parameters, this epilogue's
  std::uint32_t grads_in_partition_offset_ = 0;
  std::vector<Tensor> deferred_;          // cleared at the next reduction (overlap without contiguous gradients)

  // all_grad_tensors, by owned part of all groups; averaged_gradients in three states: never set, None, set.
  std::optional<std::vector<Tensor>> all_grad_tensors_;
  enum class Averaged : std::uint8_t { never, none, set } averaged_state_ = Averaged::never;
  std::vector<Tensor> averaged_;
  std::vector<Tensor> partition_sum_;     // by group: the fp32 partition, of which averaged_ are views
  std::vector<bool> partition_known_;     // by group: the list had it once
  bool all_grad_tensors_known_ = false;   // the list was filled once
  std::vector<Tensor> averaged_padding_;  // by group

  std::vector<Tensor> accumulated_on_host_;  // accumulated_grads_in_cpu, by parameter
  std::vector<bool> host_holds_window_;      // this window stored into it
  std::vector<bool> norm_recorded_;          // norm_for_param_grads, by parameter
  std::vector<Slice> master_gradient_;       // offload, by group: single_partition_of_fp32_groups[g].grad
  Slice recorded_norms_, overflow_flag_, norm_squared_, norm_;
  Slice group_norms_;                        // several groups: the norm of each
};

}  // namespace gradledger
