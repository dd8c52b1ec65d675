#include "sim/frameworks/deepspeed/engine/keeping/device_lists.h"

#include <algorithm>
#include <utility>

namespace gradledger {

using State = AveragedGradients::State;

void DeviceLists::keep(ProgramWriter& w, const KeepingContext& c, std::uint32_t p) {
  c.require_gradient(p);
  if (!grads_in_partition_.defined()) {
    std::uint64_t total = 0;
    for (const OwnedPart& part : c.weights.parts()) total += c.numel(part.parameter);
    grads_in_partition_ = c.tensors.allocate(w, "grads_in_partition", c.model_dtype(), total);
    grads_in_partition_offset_ = 0;
  }
  // An epilogue that raised before left its gradients there.
  if (grads_in_partition_offset_ + c.numel(p) > grads_in_partition_.numel())
    throw FrameworkError{"RuntimeError", "start (" + std::to_string(grads_in_partition_offset_) + ") + length (" + std::to_string(c.numel(p)) + ") exceeds dimension size (" +
                                             std::to_string(grads_in_partition_.numel()) + ")"};
  Tensor reduced = c.gradient_for_reduction(w, p);
  const Tensor kept = grads_in_partition_.part(grads_in_partition_offset_, c.numel(p));
  w.copy(kept.slice, reduced.slice);
  grads_in_partition_offset_ += c.numel(p);
  c.tensors.drop(w, reduced);
  if (!c.reduces_copy) c.tensors.share(w, c.gradient_attribute(p), kept);  // in the model dtype by now
}

// The three historical accumulators. What differs is which list is tested for emptiness, and which is added to.
void DeviceLists::end_of_reductions(ProgramWriter& w, const KeepingContext& c) {
  all_grad_tensors_known_ = true;
  std::vector<Tensor> fresh = fresh_gradients(w, c);
  const Stage12Accumulator rule = c.behaviour.stage12_accumulator;
  if (rule == Stage12Accumulator::averaged_gradients) return add_to_averaged(w, c, std::move(fresh));
  // DeepSpeed#7509 split the accumulator off averaged_gradients and went on testing averaged_gradients for emptiness; DeepSpeed#7665 tests the new list.
  const bool starts = rule == Stage12Accumulator::split_tests_av ? averaged_.state != State::set : !all_grad_tensors_.has_value();
  if (starts) {
    if (all_grad_tensors_)
      for (Tensor& gradient : *all_grad_tensors_) c.tensors.drop(w, gradient);
    all_grad_tensors_ = std::move(fresh);
  } else {
    add_to_all(w, c, fresh);
  }
  if (c.boundary) take_averaged_gradients(w, c);
}

std::vector<Tensor> DeviceLists::fresh_gradients(ProgramWriter& w, const KeepingContext& c) {
  const bool casts = c.config.zero.stage == 2 && c.behaviour.stage2_acc_dtype == Stage2AccDtype::acc && c.acc_dtype() != c.model_dtype();
  std::vector<Tensor> fresh;
  for (const OwnedPart& part : c.weights.parts()) {
    Tensor gradient;
    if (c.gradient_attribute(part.parameter).defined()) {
      c.tensors.share(w, gradient, c.gradient_attribute(part.parameter));
      if (casts) {
        const Tensor cast = c.tensors.allocate(w, "all_grad_tensors[" + c.parameter_name(part.parameter) + "]", c.acc_dtype(), c.numel(part.parameter));
        w.copy(cast.slice, gradient.slice);
        c.tensors.give(w, gradient, cast);
      }
    } else if (c.behaviour.missing_gradient == MissingGradient::zeros) {  // DeepSpeed#545: before it the parameter was skipped, and what follows it moved up
      gradient = c.tensors.allocate(w, "zeros[" + c.parameter_name(part.parameter) + "]", c.acc_dtype(), c.numel(part.parameter));
      w.fill(gradient.slice, 0.0);
    }
    fresh.push_back(gradient);
  }
  return fresh;
}

namespace {

// Whether there is something to add. Raises where one of both is missing.
bool fit(const Tensor& sum, const Tensor& fresh) {
  if (sum.defined() != fresh.defined()) throw FrameworkError{"RuntimeError", "The sizes of the accumulated and of the new gradients do not fit each other"};
  return fresh.defined();
}

}  // namespace

void DeviceLists::add_to_averaged(ProgramWriter& w, const KeepingContext& c, std::vector<Tensor> fresh) {
  if (averaged_.state != State::set) {
    all_grad_tensors_ = std::move(fresh);
    return take_averaged_gradients(w, c);
  }
  for (std::size_t i = 0; i < averaged_.parts.size(); ++i) {
    const OwnedPart& part = c.weights.parts()[i];
    if (!fit(averaged_.parts[i], fresh[i])) continue;
    w.accumulate(averaged_.parts[i].slice, fresh[i].slice.part(part.parameter_offset, part.numel));
    c.tensors.drop(w, fresh[i]);
  }
}

void DeviceLists::add_to_all(ProgramWriter& w, const KeepingContext& c, const std::vector<Tensor>& fresh) {
  if (!all_grad_tensors_) throw FrameworkError{"TypeError", "'NoneType' object is not iterable"};
  std::vector<Tensor>& list = *all_grad_tensors_;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (!fit(list[i], fresh[i])) continue;
    w.accumulate(list[i].slice, fresh[i].slice);
    c.tensors.drop(w, fresh[i]);
  }
}

// averaged_gradients := slices of all_grad_tensors (same storage), padded with zeros; all_grad_tensors := None.
void DeviceLists::take_averaged_gradients(ProgramWriter& w, const KeepingContext& c) {
  for (std::size_t g = 0; g < c.weights.size() && c.behaviour.owner_of_nothing == OwnerOfNothing::raises; ++g) {
    const auto begins_here = [&](std::uint32_t p) { return c.weights.number_of(p) == g && (c.owned(p).numel > 0 || c.weights[g].owns_place(p)); };
    if (std::none_of(c.learned.begin(), c.learned.end(), begins_here)) throw FrameworkError{"IndexError", "list index out of range"};
  }
  if (muon_) muon_->take_in(w, c, *all_grad_tensors_);
  std::vector<std::uint64_t> filled(c.weights.size());
  for (std::size_t i = 0; i < averaged_.parts.size(); ++i) {
    const OwnedPart& part = c.weights.parts()[i];
    if (!(*all_grad_tensors_)[i].defined()) continue;
    c.tensors.share(w, averaged_.parts[i], (*all_grad_tensors_)[i].part(part.parameter_offset, part.numel));
    c.tensors.clear(w, (*all_grad_tensors_)[i]);
    filled[part.group] += part.numel;
  }
  for (std::size_t g = 0; g < c.weights.size(); ++g) {
    const std::uint64_t padding = c.weights[g].layout().partition() - filled[g];
    if (padding == 0) continue;
    c.tensors.give(w, averaged_.padding[g], c.tensors.allocate(w, "averaged_gradients.padding", c.acc_dtype(), padding));
    w.fill(averaged_.padding[g].slice, 0.0);
  }
  all_grad_tensors_.reset();
  averaged_.state = State::set;
}

void DeviceLists::finalise(ProgramWriter& w, const KeepingContext& c) {
  // A rank that owns no element of any parameter asks for none of its gradients.
  if (!all_grad_tensors_known_ && !c.weights.parts().empty()) throw FrameworkError{"KeyError", std::to_string(c.weights.parts().front().group)};
  if (!all_grad_tensors_ && !c.weights.parts().empty()) throw FrameworkError{"TypeError", "'NoneType' object is not subscriptable"};
  take_averaged_gradients(w, c);
}

void DeviceLists::require(const KeepingContext&) const {
  if (averaged_.state == State::set) return;
  if (averaged_.state == State::never) throw FrameworkError{"KeyError", "0"};
  throw FrameworkError{"TypeError", "'NoneType' object is not iterable"};
}

namespace {

// The last rank pads its gradients to a multiple of the partition, and of no length there is none. Before DeepSpeed#7509 the others had no list to flatten.
void require_partition(const FlatWeights& group, const Behaviour& behaviour) {
  if (group.layout().partition() > 0) return;
  if (group.index_in_peers() + 1 == group.peers().size()) throw FrameworkError{"ZeroDivisionError", "integer modulo by zero"};
  if (behaviour.stage12_accumulator == Stage12Accumulator::averaged_gradients) throw FrameworkError{"RuntimeError", "torch.cat(): expected a non-empty list of Tensors"};
}

}  // namespace

// averaged_gradients of the group, end to end, in fp32; they are let go.
Slice DeviceLists::step_gradient(ProgramWriter& w, const KeepingContext& c, std::size_t number, Tensor& flat) {
  const FlatWeights& group = c.weights[number];
  require_partition(group, c.behaviour);
  flat = c.tensors.allocate(w, group.master_name() + ".grad", Dtype::float32, group.layout().partition());
  std::uint64_t at = 0;
  for (std::size_t i = group.first_part(); i < group.end_of_parts(); ++i) {
    if (all_grad_tensors_) c.tensors.clear(w, (*all_grad_tensors_)[i]);
    Tensor& averaged = averaged_.parts[i];
    if (!averaged.defined()) continue;
    w.copy(flat.slice.part(at, averaged.numel()), averaged.slice);
    at += averaged.numel();
    c.tensors.clear(w, averaged);
  }
  if (Tensor& padding = averaged_.padding[number]; padding.defined()) {
    w.copy(flat.slice.part(flat.numel() - padding.numel(), padding.numel()), padding.slice);
    c.tensors.clear(w, padding);
  }
  return flat.slice;
}

void DeviceLists::begin_step(ProgramWriter& w, const KeepingContext& c) {
  KeptOnDevice::begin_step(w, c);
  if (muon_) muon_->commit(w);
}

bool DeviceLists::observe_applied(ProgramWriter& w, const KeepingContext& c, std::size_t group) const {
  if (muon_) muon_->observe_taken(w, c, group);
  return muon_.has_value();
}

void DeviceLists::observe_state(ProgramWriter& w, const KeepingContext& c) const {
  if (muon_) muon_->observe(w, c);
}

void DeviceLists::drop(ProgramWriter& w, const KeepingContext& c, bool) {
  if (muon_) muon_->let_go(w, c.tensors);
  averaged_.set_to_none(w, c.tensors);
  if (all_grad_tensors_)
    for (Tensor& gradient : *all_grad_tensors_) c.tensors.clear(w, gradient);
  all_grad_tensors_.reset();
}

void DeviceLists::observe(ProgramWriter& w, const KeepingContext& c, double scale) const {
  for (std::size_t i = 0; all_grad_tensors_ && i < all_grad_tensors_->size(); ++i) {
    if (!(*all_grad_tensors_)[i].defined()) continue;
    const OwnedPart& part = c.weights.parts()[i];
    w.observe(
        w.view("all_grad_tensors[" + std::to_string(part.group) + "][" + c.parameter_name(part.parameter) + "]", c.owned_piece(part.parameter, (*all_grad_tensors_)[i].slice)),
        Role::reduced_accumulator, scale, true);
  }
  for (std::size_t g = 0; g < c.weights.size() && averaged_.state == State::set; ++g) averaged_.observe(w, c, g, scale);
}

void DeviceLists::initialise(ProgramWriter& w, const KeepingContext& c) {
  if (muon_) muon_->initialise(w, c);
}

void DeviceLists::load(const KeptGradients& saved) {
  if (muon_) muon_->load(*static_cast<const DeviceLists&>(saved).muon_);
}

void DeviceLists::fold(StateFold& f) const {
  f.tensor(grads_in_partition_);
  f.number(grads_in_partition_offset_);
  f.flags({all_grad_tensors_.has_value(), all_grad_tensors_known_});
  if (all_grad_tensors_) f.tensors(*all_grad_tensors_);
  averaged_.fold(f);
  if (muon_) muon_->fold(f);
}

}  // namespace gradledger
