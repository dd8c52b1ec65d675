// The wrapped model: what it is made of, events, snapshots. Forwards are in forward.cpp, backwards in backward.cpp, the loop's own part in step.cpp.
#include "sim/frameworks/torch/fsdp1/fully_sharded.h"

#include <utility>

#include "sim/base/overloaded.h"
#include "sim/frameworks/torch/fsdp1/errors.h"

namespace gradledger::torch::flat_sharded {

FullyShardedDataParallel::FullyShardedDataParallel(const EngineContext& context, const Fsdp1Config& config, const Behaviour& behaviour)
    : context_(context), config_(&config), scaler_(config.grad_scaler) {
  shared_.context = context;
  shared_.config = &config;
  shared_.behaviour = behaviour;
  shared_.strategy = strategy_of(scenario(), config);
  shared_.modules = modules_of(scenario(), config, context.rank);
  shared_.states.resize(shared_.modules.layouts.size(), TrainingState::idle);
  for (std::uint32_t m = 0; m < shared_.modules.layouts.size(); ++m) shared_.handles.emplace_back(m, shared_);
  for (std::uint32_t p = 0; p < scenario().parameters.size(); ++p) optimizers_.emplace_back(scenario().engine.optimizer_of(p), false);
}

void FullyShardedDataParallel::initialise(ProgramWriter& w) {
  const auto buffer = [&](const std::string& name, Dtype dtype) {
    const BufferId b = w.declare(name, dtype, 1);
    w.allocate(b);
    return w.whole(b);
  };
  const Pass pass{w, shared_};
  for (FlatParamHandle& h : shared_.handles) {
    if (h.empty()) continue;
    h.initialise(pass);
    for (const Part& part : h.layout().parts)
      optimizers_[part.parameter].initialise(w, h.layout().piece(part, shared_.shard_index()).numel, "[" + parameter(part.parameter).name + "]");
  }
  norm_squared_ = buffer("total_norm_squared", Dtype::float64);
  norm_ = buffer("total_norm", Dtype::float32);
  one_ = buffer("norm", Dtype::float32);
  if (scaler_.enabled()) found_inf_ = buffer("found_inf", Dtype::uint8);
  if (config_->over_the_bus()) w.host_waits();  // the host clips and steps, before a backward too
}

void FullyShardedDataParallel::handle(const Event& event, ProgramWriter& w) {
  stepped_ = false;
  if (window_ != event.documented) {
    window_ = event.documented;
    forwards_ = 0;
    graphs_.clear();
  }
  const Pass pass{w, shared_};
  using namespace events;
  std::visit(
      overloaded{[&](const Forward&) { explicit_forward(event, pass); }, [&](const events::Backward& body) { backward(body, pass); },
                 [&](const EnterNoSync&) { enter_no_sync(pass); }, [&](const ExitNoSync&) { exit_no_sync(); }, [&](const Step& body) { step(body, pass); },
                 [&](const EngineZeroGrad& body) { zero_grad(body.set_to_none, true, pass); }, [&](const OptimizerZeroGrad& body) { zero_grad(body.set_to_none, false, pass); },
                 [&](const Unscale&) { unscale(pass); }, [&](const ScaleGradients& body) { scale_gradients(body, pass); }, [&](const ClipGradients& body) { clip(body, pass); },
                 [&](const AllReduce& body) { all_reduce(body, pass); }, [&](const Raise& body) { raise(body); }, [](const Save&) {},  // of the weights and what belongs to them
                 [](const one_of<SetBoundary, EnterCoalesce, ExitCoalesce, SetGradient, Finalize, Restore, OfFramework> auto&) {
                   expects(false, "FullyShardedDataParallel is given an event that its admission refuses");
                 }},
      event.body);
}

// ---- no_sync ----------------------------------------------------------------------------------------------------------------------

void FullyShardedDataParallel::enter_no_sync(const Pass& pass) {
  lazy_init(pass);
  if (shared_.states[0] != TrainingState::idle) throw not_idle();
  in_no_sync_ = true;
  shared_.sync_gradients = false;
}

void FullyShardedDataParallel::exit_no_sync() {
  if (std::exchange(in_no_sync_, false)) shared_.sync_gradients = true;
}

// The block is left by the exception.
void FullyShardedDataParallel::raise(const events::Raise& event) {
  exit_no_sync();
  if (!event.caught) throw FrameworkError{"RuntimeError", "raised by the script"};
}

// ---- values that decide -------------------------------------------------------------------------------------------------------------

void FullyShardedDataParallel::resume(double value, ProgramWriter& w) {
  expects(suspended(), "an engine is resumed that waits for nothing");
  const Pass pass{w, shared_};
  switch (*std::exchange(pending_, std::nullopt)) {
    case Stage::found_inf: return scaler_update(value != 0, pass);
    case Stage::clip_norm: return clip_by(value, pass);
  }
}

void FullyShardedDataParallel::read(ProgramWriter& w, Stage stage, Slice scalar) {
  w.read(scalar, static_cast<std::uint32_t>(stage));
  pending_ = stage;
}

// ---- checkpoints ------------------------------------------------------------------------------------------------------------------

void FullyShardedDataParallel::load(const Engine& saved) {
  const auto& before = static_cast<const FullyShardedDataParallel&>(saved);
  scaler_.load(before.scaler_);
  for (std::size_t p = 0; p < optimizers_.size(); ++p) optimizers_[p].load(before.optimizers_[p]);
  state_numel_ = before.state_numel_;
}

// ---- snapshots --------------------------------------------------------------------------------------------------------------------

// A flat buffer with its padding.
std::vector<ViewPiece> FullyShardedDataParallel::pieces_of(std::uint32_t module, Slice slice, bool whole) const {
  const Layout& layout = shared_.modules.layouts[module];
  std::vector<ViewPiece> out;
  std::uint64_t at = 0;
  const auto padding_until = [&](std::uint64_t end) {
    if (end > at) out.push_back({slice.part(at, end - at), -1, 0});
    at = end;
  };
  for (const Part& part : layout.parts) {
    const Layout::Piece piece = whole ? Layout::Piece{part.offset, 0, part.numel} : layout.piece(part, shared_.shard_index());
    if (piece.numel == 0) continue;
    padding_until(piece.offset);
    out.push_back({slice.part(piece.offset, piece.numel), static_cast<std::int32_t>(part.parameter), piece.parameter_offset});
    at = piece.offset + piece.numel;
  }
  padding_until(slice.numel);
  return out;
}

// A flat gradient that original parameters do not show any more is nobody's: the next forward lets go of it.
void FullyShardedDataParallel::observe_flat(std::uint32_t module, ProgramWriter& w) {
  const FlatParamHandle& h = handle_of(module);
  const auto show = [&](const char* name, const Tensor& tensor, Role role, double scale, bool whole) {
    if (tensor.defined()) w.observe(w.view(h.label(shared_, "flat_param") + name, pieces_of(module, tensor.slice, whole)), role, scale, true);
  };
  const bool whole = h.grad.defined() && h.grad.numel() == h.layout().unpadded_numel && (h.grad_is_own || !h.uses_sharded_strategy());
  const Role role = !h.shows_gradients() ? Role::scratch : !h.uses_sharded_strategy() ? Role::replicated_accumulator : whole ? Role::local_accumulator : Role::reduced_accumulator;
  show(".grad", h.grad, role, role == Role::local_accumulator ? backward_scale_ : gradient_scale_, whole);
  show("._saved_grad_shard", h.saved_grad_shard, Role::reduced_accumulator, gradient_scale_, !h.uses_sharded_strategy());
  show("._cpu_grad", h.cpu_grad, Role::scratch, gradient_scale_, !h.uses_sharded_strategy());
  for (std::size_t i = 0; i < h.origs.size(); ++i) {
    if (!h.origs[i].grad.defined()) continue;
    const Part& part = h.layout().parts[i];
    const std::uint64_t offset = h.origs[i].grad.numel() == part.numel ? 0 : h.layout().piece(part, shared_.shard_index()).parameter_offset;
    w.observe(w.view(parameter(part.parameter).name + ".grad", {{h.origs[i].grad.slice, static_cast<std::int32_t>(part.parameter), offset}}), Role::scratch, gradient_scale_, true);
  }
}

void FullyShardedDataParallel::observe(ProgramWriter& w) {
  for (std::uint32_t m = 0; m < module_count(); ++m)
    if (!handle_of(m).empty()) observe_flat(m, w);
  if (!stepped_) return;
  for (const FlatParamHandle& h : shared_.handles) {
    const auto state = state_numel_.find(h.module());
    const bool moments_of_shard = state == state_numel_.end() || state->second == h.layout().shard_numel;
    for (const Part& part : h.layout().parts) {
      const Layout::Piece piece = h.layout().piece(part, shared_.shard_index());
      if (piece.numel == 0) continue;
      const auto p = static_cast<std::int32_t>(part.parameter);
      w.observe(w.view(parameter(part.parameter).name, {{h.local_shard.slice.part(piece.offset, piece.numel), p, piece.parameter_offset}}), Role::parameter, 1.0, true);
      if (moments_of_shard) optimizers_[part.parameter].observe(w, {{{no_index, 0, piece.numel}, p, piece.parameter_offset}});
    }
  }
}

}  // namespace gradledger::torch::flat_sharded
