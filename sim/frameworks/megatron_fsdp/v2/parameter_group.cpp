#include "sim/frameworks/megatron_fsdp/v2/parameter_group.h"

#include <algorithm>
#include <utility>

namespace gradledger::megatron_fsdp::v2 {
namespace {

// The current stream waits for what another was given so far.
void wait_stream(Stream other, ProgramWriter& w) {
  std::uint32_t reached = no_index;
  {
    const OnStream on(w, other);
    reached = w.record();
  }
  w.wait(reached);
}

}  // namespace

void FsdpParameterGroup::initialise(TensorTable& tensors, ProgramWriter& w) {
  main_ = tensors.allocate(w, label("main_grad"), setup_->grads_dtype(group()), Layout::share(group(), setup_->layout.shard.size()));
}

Slice FsdpParameterGroup::owned(std::size_t at) const {
  const Part own = setup_->layout.owned(group(), at);
  if (own.numel() == 0) return main_.slice.part(0, 0);
  return main_.slice.part(group().begins[at] + own.begin - Layout::share(group(), setup_->layout.owners) * setup_->layout.owner, own.numel());
}

// ---- backward -----------------------------------------------------------------------------------------------------------------------

// A gradient that waits for others of its module is still there, and is added to.
void FsdpParameterGroup::take(std::size_t at, std::uint32_t backward, double factor, TensorTable& tensors, ProgramWriter& w) {
  const std::uint32_t p = group().parameters[at];
  const bool waits = grads_[at].defined();
  if (!waits) grads_[at] = tensors.allocate(w, setup_->parameter(p).name + ".unsharded.grad", group().dtype, setup_->parameter(p).numel);
  w.deposit(grads_[at].slice, backward, p, 0, factor, waits);
}

bool FsdpParameterGroup::waits() const {
  return std::any_of(grads_.begin(), grads_.end(), [](const Tensor& grad) { return grad.defined(); });
}

// Packed on the stream of the backward, reduced on one of its own. A gradient that nothing was left of counts as zeros, where the behaviour has it so.
void FsdpParameterGroup::reduce(bool is_last_microbatch, TensorTable& tensors, ProgramWriter& w) {
  Tensor partial;
  {
    const OnStream on(w, Stream::communication);
    partial = tensors.allocate(w, label("partial_grad"), setup_->wire_dtype(group()), group().numel);
    // Whatever the memory held: nobody reads what lies behind the parameters.
    if (group().used < group().numel) w.fill(partial.slice.part(group().used, group().numel - group().used), 0.0);
  }
  wait_stream(Stream::communication, w);
  for (std::size_t at = 0; at < grads_.size(); ++at) {
    const Slice target = partial.slice.part(group().begins[at], setup_->parameter(group().parameters[at]).numel);
    if (grads_[at].defined()) w.copy(target, grads_[at].slice);
    else w.fill(target, 0.0);
    tensors.clear(w, grads_[at]);
  }
  const Stream current = w.stream();
  const OnStream on(w, Stream::communication);
  wait_stream(current, w);
  reduce_partial_gradients(partial.slice, is_last_microbatch, tensors, w);
  tensors.drop(w, partial);
}

// Over main_grad where zero_grad() has taken the gradients away and the dtypes are the same; else beside it.
void FsdpParameterGroup::reduce_partial_gradients(Slice partial, bool is_last_microbatch, TensorTable& tensors, ProgramWriter& w) {
  finalized_ = false;
  said_last_ = is_last_microbatch;
  const bool into_main = !installed_ && w.declaration(partial.buffer).dtype == w.declaration(main_.slice.buffer).dtype;
  const Tensor reduced = into_main ? main_ : tensors.allocate(w, label("reduced_grad"), w.declaration(partial.buffer).dtype, main_.numel());
  w.collective(
      {.kind = CollectiveKind::reduce_scatter, .op = ReduceOp::avg, .purpose = Purpose::gradient, .group = setup_->layout.shard.id, .input = partial, .output = reduced.slice});
  if (!into_main) {
    if (installed_) w.accumulate(main_.slice, reduced.slice);
    else w.copy(main_.slice, reduced.slice);
    tensors.drop(w, reduced);
  }
  installed_ = written_ = true;
  if (!is_last_microbatch || !setup_->layout.hybrid) return;
  const Tensor average = tensors.allocate(w, label("main_grad"), w.declaration(main_.slice.buffer).dtype, main_.numel());
  w.copy(average.slice, main_.slice);
  w.collective(
      {.kind = CollectiveKind::all_reduce, .op = ReduceOp::avg, .purpose = Purpose::gradient, .group = setup_->layout.outer.id, .input = average.slice, .output = average.slice});
  tensors.give(w, main_, average);
  finalized_ = true;
}

// ---- zero_grad ----------------------------------------------------------------------------------------------------------------------

void FsdpParameterGroup::zero_unsharded(bool set_to_none, TensorTable& tensors, ProgramWriter& w) {
  for (Tensor& grad : grads_) {
    if (!grad.defined()) continue;
    if (set_to_none) tensors.clear(w, grad);
    else w.fill(grad.slice, 0.0);
  }
}

void FsdpParameterGroup::zero_sharded(bool set_to_none, ProgramWriter& w) {
  if (!installed_) return;
  if (set_to_none) installed_ = false;
  else w.fill(main_.slice, 0.0);
}

// ---- snapshots ----------------------------------------------------------------------------------------------------------------------

// While a gradient waits in a gathered parameter, main_grad is not the whole of the window. Nor is anything documented of it behind a backward that
// is not the last.
void FsdpParameterGroup::observe(bool judged, ProgramWriter& w) const {
  const bool whole = judged && installed_ && said_last_ && !waits();
  std::vector<ViewPiece> own;
  for (std::size_t at = 0; at < grads_.size(); ++at) {
    const std::uint32_t p = group().parameters[at];
    const auto number = static_cast<std::int32_t>(p);
    const Part part = setup_->layout.owned(group(), at);
    if (part.numel() > 0) own.push_back({owned(at), number, part.begin});
    if (part.numel() > 0 && installed_) w.observe(w.view(setup_->parameter(p).name + ".grad", {own.back()}), Role::scratch, 1.0, true);
    if (grads_[at].defined()) w.observe(w.view(setup_->parameter(p).name + ".unsharded.grad", {{grads_[at].slice, number, 0}}), Role::scratch, 1.0, true);
  }
  if (!own.empty() && written_) w.observe(w.view(label("main_grad"), std::move(own)), whole ? Role::reduced_accumulator : Role::scratch, 1.0, true);
}

}  // namespace gradledger::megatron_fsdp::v2
