#include "tests/frameworks/toy/engine.h"

#include "sim/base/overloaded.h"

namespace gradledger::toy {

ToyEngine::ToyEngine(const EngineContext& context) : context_(context), own_(parameter_count()), averaged_(parameter_count()) {
  for (std::uint32_t p = 0; p < parameter_count(); ++p) optimizers_.emplace_back(scenario().engine.optimizer_of(p), false);
}

void ToyEngine::initialise(ProgramWriter& w) {
  for (std::uint32_t p = 0; p < parameter_count(); ++p) {
    const Parameter& parameter = scenario().parameters[p];
    const BufferId weights = w.declare(parameter.name, Dtype::float32, parameter.numel);
    w.allocate(weights);
    weights_.push_back(w.whole(weights));
    initialise_weights(w, weights_[p], p, 0);
    if (parameter.has_gradient()) optimizers_[p].initialise(w, parameter.numel, "[" + parameter.name + "]");
  }
}

void ToyEngine::handle(const Event& event, ProgramWriter& w) {
  using namespace events;
  stepped_ = false;
  std::visit(
      overloaded{[&](const events::Backward& body) { backward(body, w); }, [&](const OfFramework& body) { flush(body.arguments.as<Flush>(), w); }, [&](const Step&) { step(w); },
                 [](const one_of<Forward, SetBoundary, EnterNoSync, ExitNoSync, EnterCoalesce, ExitCoalesce, EngineZeroGrad, OptimizerZeroGrad, SetGradient, Raise, ScaleGradients,
                                 ClipGradients, AllReduce, Finalize, Save, Restore, Unscale> auto&) { expects(false, "the toy is given an event that its admission refuses"); }},
      event.body);
}

void ToyEngine::backward(const events::Backward& event, ProgramWriter& w) {
  for (const std::uint32_t p : context_.timeline->ready_order(scenario(), event.ordinal, context_.rank)) {
    const bool add = own_[p].defined();
    if (!add) own_[p] = tensors_.allocate(w, scenario().parameters[p].name + ".grad", Dtype::float32, scenario().parameters[p].numel);
    w.deposit(own_[p].slice, event.ordinal, p, 0, 1.0, add);
  }
}

void ToyEngine::flush(const Flush& how, ProgramWriter& w) {
  for (std::uint32_t p = 0; p < parameter_count(); ++p) {
    if (!own_[p].defined()) continue;
    const Slice gradient = own_[p].slice;
    if (how.divides_first) w.divide(gradient, scenario().world_size);
    if (scenario().world_size > 1) w.collective({.purpose = Purpose::gradient, .group = 0, .input = gradient, .output = gradient});
    if (!how.divides_first) w.divide(gradient, scenario().world_size);
    if (!averaged_[p].defined()) {
      averaged_[p] = tensors_.allocate(w, scenario().parameters[p].name + ".averaged", Dtype::float32, scenario().parameters[p].numel);
      w.copy(averaged_[p].slice, gradient);
    } else {
      w.accumulate(averaged_[p].slice, gradient);
    }
    tensors_.clear(w, own_[p]);
  }
}

// What was not flushed is lost.
void ToyEngine::step(ProgramWriter& w) {
  std::vector<ViewPiece> applied;
  for (std::uint32_t p = 0; p < parameter_count(); ++p)
    if (averaged_[p].defined()) applied.push_back({averaged_[p].slice, static_cast<std::int32_t>(p), 0});
  w.observe(w.view("averaged", std::move(applied)), Role::applied_gradient, 1.0, false);
  for (std::uint32_t p = 0; p < parameter_count(); ++p) {
    if (averaged_[p].defined()) {
      optimizers_[p].begin_step();
      optimizers_[p].update(w, weights_[p], averaged_[p].slice, 0);
    }
    tensors_.clear(w, averaged_[p]);
    tensors_.clear(w, own_[p]);
  }
  w.report(StepFact::updated, 1.0);
  stepped_ = true;
}

void ToyEngine::observe(ProgramWriter& w) {
  for (std::uint32_t p = 0; p < parameter_count(); ++p) {
    const auto whole = [&](Slice slice) { return std::vector<ViewPiece>{{slice, static_cast<std::int32_t>(p), 0}}; };
    const std::string& name = scenario().parameters[p].name;
    if (own_[p].defined()) w.observe(w.view(name + ".grad", whole(own_[p].slice)), Role::local_accumulator, 1.0, true);
    if (averaged_[p].defined()) w.observe(w.view(name + ".averaged", whole(averaged_[p].slice)), Role::reduced_accumulator, 1.0, true);
    if (stepped_ && scenario().parameters[p].has_gradient()) w.observe(w.view(name, whole(weights_[p])), Role::parameter, 1.0, true);
  }
}

}  // namespace gradledger::toy
