// DeepSpeedZeroOptimizer: ZeRO stages 1 and 2, with and without CPU offload of the optimizer: hooks, buckets, reductions and the step.
// What was reduced is kept in one of the ways of engine/keeping.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "sim/frameworks/deepspeed/engine/flat_groups.h"
#include "sim/frameworks/deepspeed/engine/keeping/ways_of_keeping.h"
#include "sim/frameworks/deepspeed/engine/muon.h"
#include "sim/frameworks/deepspeed/engine/scaled_optimizer.h"

namespace gradledger {

class ZeroStage1And2 final : public ScaledOptimizer {
 public:
  explicit ZeroStage1And2(const DeepSpeedContext& context);

  std::unique_ptr<Engine> clone() const override { return std::make_unique<ZeroStage1And2>(*this); }
  void initialise(ProgramWriter& w) override;  // stage_1_and_2.py: __init__, at 0.19.7
  void load(const Engine& saved) override;
  void fold(StateFold& f) const override;

 protected:
  void clear_backward_seen_flag(ProgramWriter& w) override;                 // stage_1_and_2.py: clear_backward_seen_flag, at 0.19.7
  void backward_prologue(ProgramWriter& w) override;                        // base_optimizer.py: backward_prologue, at 0.19.7
  void gradient_ready(ProgramWriter& w, std::uint32_t parameter) override;  // stage_1_and_2.py: process_gradients, at 0.19.7
  void backward_epilogue(ProgramWriter& w) override;                        // stage_1_and_2.py: backward_epilogue, at 0.19.7
  void require_bucket() const override;
  void reduce_gradients(ProgramWriter& w) override;    // stage_1_and_2.py: reduce_gradients, at 0.19.7
  void flush_coalesced(ProgramWriter& w) override;     // engine.py: _flush_coalesced_reduction_zero12, at 0.19.7
  void finalise_unmanaged(ProgramWriter& w) override;  // stage_1_and_2.py: finalize_gradient_accumulation_boundary, at 0.19.7
  void model_step(ProgramWriter& w) override;          // stage_1_and_2.py: step, at 0.19.7
  bool skips_invalid_norms() const override;
  bool refuses_invalid_norms() const override;
  void emit_norm(ProgramWriter& w) override;  // stage_1_and_2.py: scaled_global_norm, at 0.19.7
  double reported_norm_factor() const override;
  void skip_step(ProgramWriter& w) override;                                             // stage_1_and_2.py: step, at 0.19.7
  void finish_step(ProgramWriter& w, std::optional<double> norm) override;               // stage_1_and_2.py: step, at 0.19.7
  void optimizer_zero_grad(ProgramWriter& w) override;                                   // stage_1_and_2.py: zero_grad, at 0.19.7
  void set_whole_gradient(const events::SetGradient& event, ProgramWriter& w) override;  // tensor_fragment.py: set_full_hp_grad, at 0.19.7
  void observe_wrapper(ProgramWriter& w) override;                                       // ours: snapshots

  double loss_scale() const override { return scaler_.scale(); }
  std::int64_t micro_step_id() const override { return micro_step_id_; }
  void set_micro_step_id(std::int64_t id) override { micro_step_id_ = id; }
  bool reduces_every_backward() const override { return partition_gradients_; }
  bool can_coalesce() const override { return true; }
  bool hooks_count() const override { return has_hooks(); }
  bool has_hook(std::uint32_t parameter) const override { return numel(parameter) > 0 || behaviour().empty_parameter != EmptyParameter::left_out; }
  Role gradient_role() const override { return Role::local_accumulator; }

 private:
  // A gradient waiting in the bucket: the tensor that the reduction reads and that its result lands in.
  struct BucketEntry {
    std::uint32_t parameter = 0;
    Tensor gradient;
  };
  // A parameter without elements, and how many of the others were in the bucket before it.
  struct EmptyEntry {
    std::uint32_t parameter = 0;
    std::size_t behind = 0;
  };
  struct Bucket {
    std::array<Tensor, 2> buffers;  // contiguous_gradients; the second with overlap_comm
    std::uint32_t index = 0;
    std::uint64_t elements = 0;
    std::vector<BucketEntry> entries;
    std::array<bool, stream_count> producers{};  // streams that copied into it
    std::vector<EmptyEntry> empty;
    bool extra_large = false;  // holds one parameter larger than the bucket, which is reduced where it lies
  };
  // A stretch of a bucket that one rank owns, by its number among the ranks that divide the group; or neighbours of several owners, none of which is this rank.
  struct Run {
    const ProcessGroup* peers = nullptr;
    bool of_experts = false;            // whose group is another one, even where its ranks are all
    std::uint32_t owner = 0, last = 0;  // of the first and of the last element
    std::uint32_t owners = 1;           // neighbours of one owner as one
    Slice slice;
    Slice sum{};         // where the rank's own is added, if its way of keeping adds
    bool split = false;  // of a matrix of Muon that several own: each of them keeps all of it
    bool kept = false;   // and this rank does
  };

  // Where the user's API takes a parameter to lie in the rank's partition, and as which of the parts. Nothing: on other ranks.
  struct Link {
    OwnedPart part;
    std::size_t place = 0;
  };
  Link link_of(std::uint32_t parameter) const;  // mixed_precision_linkage.py: _init_lp_to_hp_mapping, at 0.19.7

  // ---- backward: hooks and buckets
  bool has_hooks() const { return partition_gradients_ || overlap_ || contiguous_ || uses_grad_accum_; }
  void drain(ProgramWriter& w, std::uint32_t parameter);  // stage_1_and_2.py: _fill_param_grad_accum_attribute, at 0.19.7
  // DeepSpeed#7018: before it engine.backward() did, for the hooks of its own gradients.
  bool hooks_bring_buckets() const { return behaviour().stage12_micro_step_id == MicroStepCount::each_reduction; }
  void setup_buckets(ProgramWriter& w);                              // stage_1_and_2.py: setup_buckets, at 0.19.7
  Tensor new_bucket_buffer(ProgramWriter& w, std::uint32_t number);  // stage_1_and_2.py: setup_buckets, at 0.19.7
  Tensor begin_pipeline_reduction(ProgramWriter& w);                 // stage_1_and_2.py: reduce_gradients, with pipeline_parallel, at 0.19.7
  Tensor& gradient_attribute(std::uint32_t parameter);
  void push(ProgramWriter& w, std::uint32_t parameter);  // stage_1_and_2.py: reduce_independent_p_g_buckets_and_remove_grads, at 0.19.7
  void require_not_reduced(std::uint32_t parameter) const;
  void require_owner(std::uint32_t parameter) const;
  void reduce_nothing(ProgramWriter& w);  // stage_1_and_2.py: reduce_ipg_grads, at 0.19.7
  void reduce_bucket(ProgramWriter& w);   // stage_1_and_2.py: reduce_ipg_grads, at 0.19.7

  // ---- the three reductions
  Slice contiguous_bucket() const;
  Slice extra_large_gradient() const;
  void wait_for_producers(ProgramWriter& w);                 // stage_1_and_2.py: average_tensor, at 0.19.7
  void wait_for_earlier_reductions(ProgramWriter& w) const;  // stage_1_and_2.py: average_tensor, at 0.19.7
  Stream allocator_of_reduced(Stream producer) const;
  void let_go_of_reduced(ProgramWriter& w, std::uint32_t parameter, Stream producer);  // stage_1_and_2.py: reduce_ipg_grads, at 0.19.7
  void empty_bucket(ProgramWriter& w, Stream producer);                                // stage_1_and_2.py: reduce_ipg_grads, at 0.19.7
  Stream copy_stream(Stream producer) const;
  void average_runs(ProgramWriter& w, Slice bucket);  // stage_1_and_2.py: average_tensor, at 0.19.7
  void divide_runs(ProgramWriter& w, Slice bucket);   // stage_1_and_2.py: average_tensor, at 0.19.7
  bool divides_experts_apart() const;
  bool goes_to_every_owner(const FlatWeights& group, std::uint32_t parameter) const;     // stage_1_and_2.py: average_tensor, at 0.19.3
  void average_whole(ProgramWriter& w, Slice bucket);                                    // stage_1_and_2.py: gradient_reduction_w_predivide, at 0.19.7
  void average_separate(ProgramWriter& w);                                               // stage_1_and_2.py: buffered_reduce_fallback, at 0.19.7
  std::vector<Run> owner_runs(ProgramWriter& w, Slice bucket);                           // stage_1_and_2.py: average_tensor, at 0.19.7
  static void append_run(std::vector<Run>& runs, const Run& next, std::uint32_t apart);  // ours: of owner_runs()
  void add_to_sums(ProgramWriter& w, Slice reduced);                                     // stage_1_and_2.py: _add_full_reduction_to_compact_grad_partition, at 0.19.8
  static void flatten(ProgramWriter& w, Slice flat, const std::vector<Run>& runs, std::size_t first, std::size_t last);  // ours: of flattened()
  void reduce_flattened(ProgramWriter& w, const std::vector<Run>& runs, bool to_owner);  // stage_1_and_2.py: allreduce_and_copy_with_multiple_ranks, allreduce_no_retain, at 0.19.7
  Slice flattened(ProgramWriter& w, const std::vector<Run>& runs, std::size_t first, std::size_t last, Tensor& flat);  // stage_1_and_2.py: allreduce_bucket, at 0.19.7

  // ---- keeping what was reduced
  KeepingContext keeping();
  void partition_epilogue(ProgramWriter& w);  // stage_1_and_2.py: independent_gradient_partition_epilogue, at 0.19.7

  // ---- step
  void apply(ProgramWriter& w, FlatWeights& group, std::size_t number, std::optional<double> norm);  // stage_1_and_2.py: unscale_and_clip_grads, _optimizer_step, at 0.19.7
  void emit_group_norm(ProgramWriter& w, std::size_t group);  // stage_1_and_2.py: get_grad_norm_direct, complete_grad_norm_calculation_for_cpu_offload, at 0.19.7

  OwnedPart owned(std::uint32_t parameter) const { return weights_.of(parameter).owned(parameter); }
  bool owns(std::uint32_t parameter) const { return owned(parameter).numel > 0; }

  const bool partition_gradients_;  // stage 2
  const bool offload_;
  const bool contiguous_;
  const bool overlap_;
  const bool uses_grad_accum_;  // stage 1 with an accumulation dtype of its own: param.grad_accum
  const bool checks_overflow_;
  const Dtype model_dtype_, acc_dtype_, comm_dtype_;

  FlatGroups weights_;
  WayOfKeeping kept_;
  const bool reduces_copy_;  // of param.grad_accum, in the model dtype
  const Dtype bucket_dtype_;

  std::int64_t micro_step_id_ = -1;
  bool ready_for_gradients_ = false;
  bool had_buckets_ = false;
  bool out_of_reach_ = false;  // of safe_set_full_grad, which has the gradients of a skipped window
  bool epilogue_ran_ = false;
  std::vector<bool> already_reduced_;
  Bucket bucket_;

  std::vector<Tensor> grad_accum_;  // param.grad_accum
  std::vector<Tensor> deferred_;    // cleared at the next reduction (overlap without contiguous gradients)

  Slice overflow_flag_, norm_squared_;
  Slice group_norms_;  // several groups: the norm of each
};

}  // namespace gradledger
