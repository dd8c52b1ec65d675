#include "sim/frameworks/deepspeed/engine/zero_stage_1_and_2.h"

#include <algorithm>
#include <utility>

#include "sim/frameworks/deepspeed/behaviour.h"
#include "sim/frameworks/deepspeed/settings.h"

namespace gradledger {

namespace {

Dealing dealing_of(const DeepSpeedConfig& config, const Behaviour& behaviour) {
  if (!config.zero.round_robin_gradients) return Dealing::in_order;
  return behaviour.empty_parameter == EmptyParameter::left_out ? Dealing::in_turn_without_empty : Dealing::in_turn;
}

}  // namespace

ZeroStage1And2::ZeroStage1And2(const DeepSpeedContext& context)
    : ScaledOptimizer(context, LossScaler::of_zero(deepspeed_config(*context.scenario), context.behaviour)),
      partition_gradients_(config().zero.stage == 2),
      offload_(config().offloads_optimizer()),
      contiguous_(config().zero.contiguous_gradients || offload_),
      overlap_(config().zero.overlap_comm.value_or(false) && !in_pipeline()),  // engine.py turns it off there, with a warning
      uses_grad_accum_(config().zero.stage == 1 && grad_accum_dtype_of(scenario()) != scenario().model_dtype),
      checks_overflow_(config().fp16.enabled ||
                       (config().bf16.enabled && behaviour().bf16_overflow_test == Bf16OverflowTest::configured &&
                        (config().bf16.check_grad_overflow ? *config().bf16.check_grad_overflow : behaviour().bf16_overflow_check_default == Bf16OverflowCheck::on))),
      model_dtype_(scenario().model_dtype),
      acc_dtype_(grad_accum_dtype_of(scenario())),
      comm_dtype_(communication_dtype_of(scenario())),
      weights_(scenario(), rank(), rank_groups(), "single_partition_of_fp32_groups", dealing_of(config(), behaviour())),
      kept_(scenario(), behaviour(), weights_),
      reduces_copy_(uses_grad_accum_ && !kept_->sums_in_fp32() && behaviour().stage1_attr_reduction != Stage1AttrReduction::in_place),
      bucket_dtype_(uses_grad_accum_ && !reduces_copy_ ? acc_dtype_ : model_dtype_),
      micro_step_id_(behaviour().offload_keep == OffloadKeep::counter_only ? 0 : -1),
      already_reduced_(parameter_count()),
      grad_accum_(parameter_count()) {}

KeepingContext ZeroStage1And2::keeping() {
  return {.scenario = scenario(),
          .config = config(),
          .behaviour = behaviour(),
          .weights = weights_,
          .learned = learned(),
          .tensors = tensors_,
          .grad = grad_,
          .grad_accum = grad_accum_,
          .uses_grad_accum = uses_grad_accum_,
          .reduces_copy = reduces_copy_,
          .boundary = boundary_mirror(),
          .pinned = pinned(),
          .first_of_tensor_ranks = first_of_tensor_ranks(),
          .micro_step_id = micro_step_id_,
          .loss_scale = scaler_.scale(),
          .overflow_flag = overflow_flag_};
}

void ZeroStage1And2::initialise(ProgramWriter& w) {
  weights_.initialise(w);
  const auto scalar = [&](const char* name, Dtype dtype, std::uint64_t numel = 1) {
    const BufferId b = w.declare(name, dtype, numel);
    w.allocate(b);
    return w.whole(b);
  };
  norm_squared_ = scalar("norm_squared", Dtype::float64);
  norm_ = scalar("norm", Dtype::float32);
  overflow_flag_ = scalar("overflow", Dtype::uint8);
  w.fill(overflow_flag_, 0);
  if (weights_.size() > 1) group_norms_ = scalar("norm_groups", Dtype::float32, static_cast<std::uint32_t>(weights_.size()));
  kept_->initialise(w, keeping());
}

// ---- forward --------------------------------------------------------------------------------------------------------------------

void ZeroStage1And2::clear_backward_seen_flag(ProgramWriter& w) {
  if (epilogue_ran_)
    for (Tensor& accum : grad_accum_) tensors_.clear(w, accum);
  epilogue_ran_ = false;
}

// Before DeepSpeed#7018 the counter moved here, whatever was reduced since; before DeepSpeed#6993 engine.backward() brings the buffers, be there a gradient or not.
void ZeroStage1And2::backward_prologue(ProgramWriter& w) {
  if (behaviour().stage12_micro_step_id == MicroStepCount::each_backward) ++micro_step_id_;
  if (behaviour().released_bucket == ReleasedBucket::none) setup_buckets(w);
}

// ---- backward: each parameter's hook ----------------------------------------------------------------------------------------------

void ZeroStage1And2::gradient_ready(ProgramWriter& w, std::uint32_t p) {
  if (coalescing()) return;
  if (!has_hooks()) return;
  if (hooks_bring_buckets()) setup_buckets(w);
  if (uses_grad_accum_) drain(w, p);
  if (partition_gradients_ || (overlap_ && boundary_mirror())) push(w, p);
}

// param.grad goes into param.grad_accum. What is added is cast first, which rounds where the sum is not in fp32.
void ZeroStage1And2::drain(ProgramWriter& w, std::uint32_t p) {
  Tensor& sum = grad_accum_[p];
  const bool add = sum.defined();
  if (!add) sum = tensors_.allocate(w, parameter_name(p) + ".grad_accum", acc_dtype_, numel(p));
  if (add && acc_dtype_ != Dtype::float32) {
    const Tensor cast = tensors_.allocate(w, parameter_name(p) + ".grad.to(accumulation)", acc_dtype_, numel(p));
    w.copy(cast.slice, grad_[p].slice);
    w.accumulate(sum.slice, cast.slice);
    tensors_.drop(w, cast);
  } else if (add) {
    w.accumulate(sum.slice, grad_[p].slice);
  } else {
    w.copy(sum.slice, grad_[p].slice);
  }
  tensors_.clear(w, grad_[p]);
}

// At the first hook after a release: in stage 2 that is once for each backward, in stage 1 once for each window.
void ZeroStage1And2::setup_buckets(ProgramWriter& w) {
  if (ready_for_gradients_) return;
  ready_for_gradients_ = had_buckets_ = true;
  if (behaviour().stage12_micro_step_id == MicroStepCount::each_reduction) ++micro_step_id_;
  if (!contiguous_) return;
  bucket_.index = 0;
  for (std::uint32_t i = 0; i < (overlap_ ? 2u : 1u); ++i) tensors_.give(w, bucket_.buffers[i], new_bucket_buffer(w, i));
  share_allocation(w);
}

Tensor ZeroStage1And2::new_bucket_buffer(ProgramWriter& w, std::uint32_t number) {
  const std::uint64_t bucket_size = config().zero.reduce_bucket_size;
  // Inside no_sync with overlap_comm, and where direct backwards go without an epilogue, the hooks of several backwards fill one bucket.
  const bool several = (overlap_ && !partition_gradients_) || may_skip_epilogues();
  const std::uint64_t fills = several ? std::max<std::size_t>(backwards_in_script(), 1) : 1;
  const std::uint64_t useful = reduces_whole_buckets(config(), behaviour()) ? bucket_size : std::min<std::uint64_t>(bucket_size, fills * scenario().numel());
  return tensors_.allocate(w, "ipg_buffer[" + std::to_string(number) + "]", bucket_dtype_, useful, MemorySpace::device, bucket_size);
}

// A pipeline brings a buffer of its own: beside those that the hooks of the stage's backwards brought, or alone, where no gradient did.
Tensor ZeroStage1And2::begin_pipeline_reduction(ProgramWriter& w) {
  bucket_.index = 0;
  if (ready_for_gradients_) return new_bucket_buffer(w, 1);
  tensors_.give(w, bucket_.buffers[0], new_bucket_buffer(w, 0));
  return {};
}

Tensor& ZeroStage1And2::gradient_attribute(std::uint32_t p) { return uses_grad_accum_ ? grad_accum_[p] : grad_[p]; }

void ZeroStage1And2::push(ProgramWriter& w, std::uint32_t p) {
  if (numel(p) == 0 && behaviour().empty_parameter != EmptyParameter::looked_up) return;
  const std::uint64_t bucket_size = config().zero.reduce_bucket_size;
  if (numel(p) <= bucket_size) require_bucket();
  if (bucket_.elements + numel(p) > bucket_size) {
    // DeepSpeed#6993 asked for the parameter's own dtype among buckets that are named by the dtype they are communicated in.
    if (comm_dtype_ != model_dtype_ && behaviour().stage12_full_bucket_key == BucketKey::model_dtype)
      throw FrameworkError{"KeyError", model_dtype_ == Dtype::float32 ? "torch.float32" : model_dtype_ == Dtype::bfloat16 ? "torch.bfloat16" : "torch.float16"};
    if (bucket_.entries.empty() && behaviour().empty_bucket == EmptyBucket::reduced) reduce_nothing(w);
    reduce_bucket(w);
    if (contiguous_ && overlap_) {
      if (behaviour().overlap_bucket_index == OverlapBucketIndex::reset_and_waits) wait_for_earlier_reductions(w);
      bucket_.index = 1 - bucket_.index;
    }
  }
  if (numel(p) == 0) return bucket_.empty.push_back({p, bucket_.entries.size()});
  require_not_reduced(p);
  // DeepSpeed#4084: until then the bucket was filled from param.grad, which is None once it went into param.grad_accum.
  if (contiguous_ && uses_grad_accum_ && behaviour().stage1_attr_bucket == Stage1AttrBucket::param_grad)
    throw FrameworkError{"AttributeError", "'NoneType' object has no attribute 'view'"};
  BucketEntry entry{p, keeping().gradient_for_reduction(w, p)};
  if (contiguous_ && numel(p) > bucket_size) {
    bucket_.extra_large = true;
  } else if (contiguous_) {
    const Tensor in_bucket = bucket_.buffers[bucket_.index].part(bucket_.elements, numel(p));
    w.copy(in_bucket.slice, entry.gradient.slice);
    bucket_.producers[static_cast<std::size_t>(w.stream())] = true;
    tensors_.share(w, entry.gradient, in_bucket);
    if (!reduces_copy_) tensors_.share(w, gradient_attribute(p), in_bucket);
  }
  bucket_.elements += numel(p);
  bucket_.entries.push_back(entry);
}

// DeepSpeed#8280: before it the owner of an empty parameter behind all others was looked up past the last partition.
void ZeroStage1And2::require_owner(std::uint32_t p) const {
  if (config().zero.reduce_scatter && contiguous_ && weights_.of(p).layout().offset(p) >= weights_.of(p).layout().padded()) throw FrameworkError{"KeyError", std::to_string(p)};
}

void ZeroStage1And2::require_not_reduced(std::uint32_t p) const {
  if (already_reduced_[p]) throw FrameworkError{"AssertionError", "The parameter " + parameter_name(p) + " has already been reduced; its gradient was computed twice"};
}

// ---- the end of a backward that reduces -----------------------------------------------------------------------------------------------

void ZeroStage1And2::reduce_gradients(ProgramWriter& w) {
  Tensor of_pipeline = in_pipeline() && contiguous_ ? begin_pipeline_reduction(w) : Tensor{};
  if (!partition_gradients_ && !overlap_)
    for (std::uint32_t p : weights_.order()) {
      if (gradient_attribute(p).defined()) {
        if (boundary_mirror()) push(w, p);
      } else if (behaviour().stage1_missing_gradient == Stage1Missing::pushed) throw FrameworkError{"AttributeError", "'NoneType' object has no attribute 'numel'"};
    }
  require_bucket();
  partition_epilogue(w);
  tensors_.clear(w, of_pipeline);
}

// The end of a coalesced block, in the order of the groups whatever overlap_comm says.
void ZeroStage1And2::flush_coalesced(ProgramWriter& w) {
  if (overlap_) w.synchronize();
  setup_buckets(w);
  for (std::uint32_t p : weights_.order())
    if (gradient_attribute(p).defined()) push(w, p);
  partition_epilogue(w);
}

// The end of the reduction before has let go of the buffers, and a backward brings them back, or a pipeline: no call by hand does, nor, since DeepSpeed#6993,
// a backward without a gradient, nor, before DeepSpeed#7018, a direct one. Before the first it is not said which comes next.
void ZeroStage1And2::require_bucket() const {
  if (!contiguous_ || ready_for_gradients_ || in_pipeline()) return;
  if (behaviour().released_bucket == ReleasedBucket::none) {
    if (had_buckets_) throw FrameworkError{"TypeError", "'NoneType' object is not subscriptable"};
    throw FrameworkError{"AttributeError", "'DeepSpeedZeroOptimizer' object has no attribute 'ipg_index'"};
  }
  throw FrameworkError{"IndexError", "list index out of range"};
}

void ZeroStage1And2::partition_epilogue(ProgramWriter& w) {
  reduce_bucket(w);
  std::fill(already_reduced_.begin(), already_reduced_.end(), false);
  if (overlap_) {
    w.synchronize();
    for (Tensor& gradient : deferred_) tensors_.clear(w, gradient);
    deferred_.clear();
  }
  kept_->end_of_reductions(w, keeping());
  for (Tensor& buffer : bucket_.buffers) tensors_.clear(w, buffer);
  kept_->buckets_released(w, keeping());
  ready_for_gradients_ = false;
  for (Tensor& grad : grad_) tensors_.clear(w, grad);
  for (Tensor& accum : grad_accum_)
    if (accum.defined() && behaviour().stage12_epilogue_clears == EpilogueClears::grad_and_accum) tensors_.clear(w, accum);
  epilogue_ran_ = true;
}

void ZeroStage1And2::backward_epilogue(ProgramWriter& w) {
  if (!uses_grad_accum_) return;
  for (std::uint32_t p : learned())
    if (grad_[p].defined()) drain(w, p);
}

}  // namespace gradledger
