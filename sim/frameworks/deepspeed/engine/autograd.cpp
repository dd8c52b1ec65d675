// What autograd of PyTorch does in a backward: which gradients it deposits, when, and on which stream.
#include <algorithm>
#include <bit>

#include "sim/frameworks/deepspeed/engine/deepspeed_engine.h"

namespace gradledger {

// Autograd adds up the uses of a tied parameter and deposits their sum once, where the last of them is ready: in each of a backward's phases, which are
// runs of autograd by themselves. DeepSpeed#7534: with a dtype that changes between uses each is deposited, and calls the hook, by itself.
void DeepSpeedEngine::deposit(ProgramWriter& w, const Pass& pass, std::size_t at) {
  const std::uint32_t use = pass.ready[at], p = owner_of(use);
  const bool per_use = behaviour().tied_hook == TiedHook::per_use;
  if (!per_use && !is_last_use(pass, at)) return;
  if (uses_side_stream_) go_to_stream_of(p, w);
  const bool add = grad_[p].defined();
  if (!add) make_gradient(w, p);
  const double weight = per_use ? pass.factors.of(hooks_passed(use)) / uses_[p] : weight_of_uses(p, pass);
  w.deposit(grad_[p].slice, pass.backward, p, 0, weight, add);
  if (!has_hook(p)) return;
  hook_follows_ = per_use && use != p;
  if (hooks_count()) hooks_.gradient(behaviour().direct_epilogue);
  gradient_ready(w, p);
}

bool DeepSpeedEngine::is_last_use(const Pass& pass, std::size_t at) const {
  const std::uint32_t p = owner_of(pass.ready[at]);
  if (uses_[p] == 1) return true;
  const auto rest = pass.ready.subspan(at + 1, pass.end - at - 1);
  return std::none_of(rest.begin(), rest.end(), [&](std::uint32_t use) { return owner_of(use) == p; });
}

void DeepSpeedEngine::make_gradient(ProgramWriter& w, std::uint32_t p) {
  grad_[p] = tensors_.allocate_again(w, own_storage_[p], scenario().model_dtype, numel(p), [&] { return parameter_name(p) + ".grad"; });
}

// Every use gives an equal part of the gradient. One through the model inside the engine passes no hook (DeepSpeed#8224).
double DeepSpeedEngine::weight_of_uses(std::uint32_t p, const LossFactors& factors) const {
  double sum = 0;
  bool alike = true;
  for (std::uint32_t use = 0; uses_[p] > 1 && use < parameter_count(); ++use) {
    if (use != p && scenario().parameters[use].tied_to != p) continue;
    sum += factors.of(hooks_passed(use));
    alike = alike && hooks_passed(use) == hooks_passed(p);
  }
  return alike ? factors.of(hooks_passed(p)) : sum / uses_[p];
}

// Of those in one phase alone: parts that are powers of two, as equal as these can be, so that their sum is the gradient itself.
double DeepSpeedEngine::weight_of_uses(std::uint32_t p, const Pass& pass) const {
  if (uses_[p] == 1 || pass.end - pass.begin == pass.ready.size()) return weight_of_uses(p, pass.factors);
  const std::uint32_t size = std::bit_ceil(uses_[p]);
  double sum = 0;
  for (std::size_t i = 0, number = 0; i < pass.end; ++i) {
    if (owner_of(pass.ready[i]) != p) continue;
    const double part = (number++ < 2 * std::size_t{uses_[p]} - size ? 1.0 : 2.0) / size;
    if (i >= pass.begin) sum += pass.factors.of(hooks_passed(pass.ready[i])) * part;
  }
  return sum;
}

// Each layer's backward runs on the stream of its forward. A stream that takes over waits for the activations' gradient, not for what the
// hooks of the layer before did on the other stream.
void DeepSpeedEngine::go_to_stream_of(std::uint32_t p, ProgramWriter& w) {
  const Stream its_own = scenario().parameters[p].on_side_stream ? Stream::side : Stream::compute;
  if (activations_ == no_index) activations_ = w.record();
  if (its_own != w.stream()) {
    w.set_stream(its_own);
    w.wait(activations_);
  }
  activations_ = w.record();
}

// At the end autograd lets the stream that called backward wait for the others.
void DeepSpeedEngine::join_streams(ProgramWriter& w) {
  w.set_stream(Stream::side);
  const std::uint32_t ended = w.record();
  w.set_stream(Stream::compute);
  w.wait(ended);
  activations_ = no_index;
}

}  // namespace gradledger
