#include "sim/frameworks/megatron/distributed_data_parallel.h"

#include <algorithm>
#include <string>

#include "sim/engine/base_optimizer.h"

namespace gradledger::megatron {

void DistributedDataParallel::initialise(ProgramWriter& w) {
  const Slice none;
  main_grads_.assign(setup_->parameter_count(), none);
  weights_.assign(setup_->parameter_count(), none);
  group_of_.assign(setup_->parameter_count(), no_index);
  added_.assign(setup_->parameter_count(), false);
  grad_is_main_grad_.assign(setup_->parameter_count(), false);
  for (const PlannedBuffer& planned : planned_buffers(*setup_)) add_buffer(planned, w);
  for (std::uint32_t p = 0; p < setup_->parameter_count(); ++p)
    if (setup_->holds(p)) add_weights(p, w);
}

double DistributedDataParallel::scaling_factor(bool of_experts) const {
  const MegatronConfig& config = *setup_->config;
  const ParallelGroups& groups = setup_->groups;
  if (config.model.calculate_per_token_loss) return 1.0;
  const std::uint32_t ranks = setup_->behaviour.divides_by_context ? groups.data_context.size() : groups.data.size();
  if (!config.ddp.average_in_collective) return 1.0 / ranks;
  if (!of_experts) return 1.0;
  return setup_->behaviour.expert_by_sizes ? static_cast<double>(groups.expert_data.size()) / ranks : 1.0 / groups.expert.size();
}

void DistributedDataParallel::add_buffer(const PlannedBuffer& planned, ProgramWriter& w) {
  const DdpOptions& ddp = setup_->config->ddp;
  const Dtype dtype = planned.dtype;
  ParamAndGradBuffer buffer;
  buffer.of_experts = planned.of_experts;
  buffer.param_dtype = dtype;
  buffer.grad_dtype = ddp.grad_reduce_in_fp32 ? Dtype::float32 : dtype;
  buffer.group = planned.group;
  buffer.gradient_scaling_factor = scaling_factor(planned.of_experts);
  buffer.layout = buffer_layout(planned.laid, planned.rules);
  const std::string number = "[" + std::to_string(buffers_.size()) + "]";
  const auto whole = [&](const std::string& name, Dtype of) {
    const BufferId b = w.declare(name + number, of, buffer.layout.numel);
    w.allocate(b);
    w.fill(w.whole(b), 0.0);
    return w.whole(b);
  };
  if (ddp.use_distributed_optimizer) buffer.param_data = whole("param_data", dtype);
  buffer.grad_data = whole("grad_data", buffer.grad_dtype);
  for (const ParameterPlace& p : buffer.layout.parameters) {
    main_grads_[p.parameter] = buffer.main_grad(p);
    if (ddp.use_distributed_optimizer) weights_[p.parameter] = buffer.param_data.part(p.begin, p.end - p.begin);
  }
  for (std::uint32_t b = 0; b < buffer.layout.buckets.size(); ++b) {
    groups_.emplace_back(setup_, buffer, b, "grad_data" + number + " bucket " + std::to_string(b));
    buffer_of_group_.push_back(static_cast<std::uint32_t>(buffers_.size()));
    chunk_of_group_.push_back(planned.chunk);
    for (const std::uint32_t p : groups_.back().parameters()) group_of_[p] = static_cast<std::uint32_t>(groups_.size() - 1);
  }
  buffers_.push_back(std::move(buffer));
}

void DistributedDataParallel::add_weights(std::uint32_t p, ProgramWriter& w) {
  if (weights_[p].buffer == no_index) {
    const BufferId b = w.declare(setup_->parameter(p).name, setup_->scenario().dtype_of(p), setup_->parameter(p).numel);
    w.allocate(b);
    weights_[p] = w.whole(b);
  }
  initialise_weights(w, weights_[p], p, 0);
}

// ---- gradients ----------------------------------------------------------------------------------------------------------------------

void DistributedDataParallel::zero_grad_buffer(ProgramWriter& w) {
  for (const ParamAndGradBuffer& buffer : buffers_) w.fill(buffer.grad_data, 0.0);
  for (BucketGroup& group : groups_) group.reset();
  added_.assign(added_.size(), false);
}

void DistributedDataParallel::enter_no_sync() {
  for (BucketGroup& group : groups_) group.set_last_microbatch(false);
}

void DistributedDataParallel::leave_no_sync() {
  for (BucketGroup& group : groups_) group.set_last_microbatch(true);
}

void DistributedDataParallel::accumulate(std::uint32_t p, AutogradTerm term, ProgramWriter& w) {
  if (!setup_->attributes(p).gradient_accumulation_fusion) return add_in_the_hook(p, term, w);
  add_by_kernel(p, term, w);
  grad_is_main_grad_[p] = false;  // the hook gives it up
  register_grad_ready(p, w);
}

void DistributedDataParallel::register_grad_ready(std::uint32_t p, ProgramWriter& w) {
  if (setup_->config->ddp.overlap_grad_reduce) groups_[group_of_[p]].register_grad_ready(p, w);
}

// A fused kernel adds its product itself. Of several uses in one forward the backward comes to the last one first, and each has an equal part.
void DistributedDataParallel::add_by_kernel(std::uint32_t p, AutogradTerm term, ProgramWriter& w) {
  const Behaviour& behaviour = setup_->behaviour;
  if (behaviour.added_flag_lasts && added_[p]) return;
  added_[p] = true;
  const std::uint32_t uses = setup_->attributes(p).used_twice ? 2 : 1;
  for (std::uint32_t use = uses; use-- > 0;) {
    if (behaviour.one_reduction_of_uses && use > 0) continue;
    // The flag was set in the forward, of the first use in it alone.
    const bool overwrites = behaviour.kernel_overwrites_first && term.first_of_call && use == 0;
    w.deposit(main_grads_[p], term.ordinal, p, 0, term.factor / uses, !overwrites);
  }
}

// A gradient is made in the parameter's dtype, added in the buffer's, and given up. Autograd orders a hook's stream behind the gradient, and its own behind the hook.
void DistributedDataParallel::add_in_the_hook(std::uint32_t p, AutogradTerm term, ProgramWriter& w) {
  const Slice main_grad = main_grads_[p];
  const Tensor grad = tensors_.allocate(w, setup_->parameter(p).name + ".grad", setup_->scenario().dtype_of(p), main_grad.numel);
  w.deposit(grad.slice, term.ordinal, p, 0, term.factor, false);
  const auto add = [&] {
    w.accumulate(main_grad, grad.slice);
    // Autograd has added to it already, and the hook adds it to itself.
    if (grad_is_main_grad_[p]) w.multiply(main_grad, 2.0);
    grad_is_main_grad_[p] = false;
    register_grad_ready(p, w);
  };
  if (setup_->behaviour.hook_inherits_a_stream) {
    const std::uint32_t made = w.record();
    std::uint32_t done = no_index;
    {
      const OnStream of_hook(w, Stream::side);
      w.wait(made);
      add();
      done = w.record();
    }
    w.wait(done);
  } else {
    add();
  }
  tensors_.drop(w, grad);
}

void DistributedDataParallel::start_grad_sync(ProgramWriter& w) {
  for (BucketGroup& group : groups_) group.start_grad_sync(w);
}

void DistributedDataParallel::start_grad_sync(std::uint32_t chunk, ProgramWriter& w) {
  for (std::size_t g = 0; g < groups_.size(); ++g)
    if (chunk_of_group_[g] == chunk) groups_[g].start_grad_sync(w);
}

void DistributedDataParallel::scale_gradients(double factor, ProgramWriter& w) {
  for (const ParamAndGradBuffer& buffer : buffers_) w.multiply(buffer.grad_data, factor);
}

// ---- weights ------------------------------------------------------------------------------------------------------------------------

// Modules run in the model's order; each waits for its own weights and dispatches the gather of those that come next.
void DistributedDataParallel::forward(const std::vector<std::uint32_t>& used, ProgramWriter& w) {
  if (!setup_->config->ddp.overlap_param_gather) return;
  for (const std::uint32_t p : used) {
    const std::uint32_t g = group_of_[p];
    if (g == no_index || !groups_[g].finish_param_sync(w)) continue;
    const bool has_next = g > 0 && buffers_[buffer_of_group_[g - 1]].of_experts == buffers_[buffer_of_group_[g]].of_experts;
    if (has_next && !groups_[g - 1].param_gather_dispatched()) groups_[g - 1].start_param_sync(false, w);
  }
}

void DistributedDataParallel::start_param_sync(bool force, ProgramWriter& w) {
  for (BucketGroup& group : groups_) group.start_param_sync(force, w);
}

// The model's first parameters first.
void DistributedDataParallel::gather_buffer(bool of_experts, ProgramWriter& w) {
  for (std::size_t b = 0; b < buffers_.size(); ++b) {
    if (buffers_[b].of_experts != of_experts) continue;
    for (std::size_t g = groups_.size(); g-- > 0;)
      if (buffer_of_group_[g] == b) groups_[g].start_param_sync(false, w);
  }
}

}  // namespace gradledger::megatron
