// How a backward ends: by a callback behind its last node, or by a call of the loop's.
#include <algorithm>
#include <utility>

#include "sim/frameworks/torch/fsdp2/errors.h"
#include "sim/frameworks/torch/fsdp2/fsdp_module.h"

namespace gradledger::torch::fully_shard {

// An aborted backward leaves the callback marked as queued: no later one queues it.
void FsdpModule::pre_backward(std::uint32_t module, const Pass& pass) {
  states_[module] = TrainingState::pre_backward;
  if (!std::exchange(final_callback_queued_, true)) {
    final_callback_of_this_backward_ = true;
    if (!manual_finalization_active_) manual_finalization_active_ = manual_finalization_;
  }
  if (!group(module).empty()) group(module).pre_backward(pass);
}

void FsdpModule::root_post_backward_final_callback(const Pass& pass) {
  iter_forward_root_.reset();
  const bool by_hand = *manual_finalization_active_, ends = shared_.comm.is_last_backward && !by_hand;
  for (std::uint32_t m = 0; m < states_.size(); ++m) {
    ParamGroup& g = group(m);
    const bool of_unsharded = shared_.behaviour.final_reduction == FinalReduction::of_unsharded_modules;
    if (!g.empty() && (of_unsharded ? g.is_unsharded() : g.training_state != TrainingState::post_backward)) {
      if (by_hand && g.reduce_grads) g.post_backward_pending = true;
      else g.post_backward(pass);
    }
    g.training_state = states_[m] = TrainingState::idle;
    if (!g.empty() && ends) g.finalize_backward(pass);
  }
  if (ends) end_backward_iteration(pass);
  final_callback_queued_ = false;
}

// What all modules share. Each group has ended before.
void FsdpModule::end_backward_iteration(const Pass& pass) {
  shared_.comm.post_forward_order.clear();
  for (const Kept& kept : std::exchange(shared_.comm.reduce_scatter_states, {})) {
    pass.w.wait(kept.event);
    shared_.tensors.drop(pass.w, kept.tensor);
  }
  manual_finalization_active_.reset();
}

// ---- by the loop ------------------------------------------------------------------------------------------------------------------

void FsdpModule::set_manual_backward_finalization(const Call& call) {
  if (call.unit && is_lazily_initialised_) throw not_on_the_root("set_manual_backward_finalization");
  if (call.unit) {
    if (call.flag()) finalized_by_hand_below_the_root_.insert(*call.unit);
    else finalized_by_hand_below_the_root_.erase(*call.unit);
    return;
  }
  if (manual_finalization_active_.value_or(call.flag()) != call.flag()) throw mode_of_an_open_backward();
  manual_finalization_ = call.flag();
}

// Before the first forward there is nothing to end. A group whose reductions are still off keeps what it has.
void FsdpModule::finalize_backward(const Call& call, const Pass& pass) {
  if (!is_lazily_initialised_) return;
  validate_finalize_backward(call);
  for (std::uint32_t m = static_cast<std::uint32_t>(states_.size()); m-- > 0;) {
    ParamGroup& g = group(m);
    if (g.empty()) continue;
    if (g.post_backward_pending) g.post_backward(pass);
    else if (g.reshard_after_backward) g.reshard(pass);
    g.training_state = TrainingState::idle;
  }
  if (call.flag()) reduction_ = Reduction::pending;
  else end_all(pass);
}

void FsdpModule::validate_finalize_backward(const Call& call) const {
  if (reduction_ == Reduction::pending) throw not_waited_for("finalizing backward again");
  if (call.unit) throw not_on_the_root("finalize_backward");
  if (!manual_finalization_active_.value_or(manual_finalization_)) throw ends_by_itself();
  if (final_callback_queued_) throw ended_too_early();
  const auto which = [&](auto&& is) { return std::find_if(shared_.groups.begin(), shared_.groups.end(), [&](const ParamGroup& g) { return !g.empty() && is(g); }); };
  const auto number = [&](auto at) { return static_cast<std::uint32_t>(at - shared_.groups.begin()); };
  if (const auto at = which([](const ParamGroup& g) { return g.partial_reduce_output().defined(); }); at != shared_.groups.end()) throw ended_with_a_partial_sum(number(at));
  const auto stays_partial = [&](const ParamGroup& g) { return shared_.modules.hybrid && g.post_backward_pending && g.reduce_grads && !g.all_reduce_grads; };
  if (const auto at = which(stays_partial); at != shared_.groups.end()) throw ended_without_an_all_reduce(number(at));
}

void FsdpModule::wait_for_gradient_reduction(const Pass& pass) {
  if (reduction_ == Reduction::invalidated) throw invalidated_handle();
  if (std::exchange(reduction_, Reduction::waited_for) == Reduction::pending) end_all(pass);
}

void FsdpModule::end_all(const Pass& pass) {
  for (ParamGroup& g : shared_.groups)
    if (!g.empty()) g.finalize_backward(pass);
  end_backward_iteration(pass);
}

}  // namespace gradledger::torch::fully_shard
