#include "sim/frameworks/deepspeed/engine/deepspeed_engine.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/base/overloaded.h"
#include "sim/frameworks/deepspeed/engine/fallback_reduction.h"

namespace gradledger {
// live-12: each hooked output that a gradient passes divides, and where there is none nothing does.
double DeepSpeedEngine::LossFactors::of(std::uint32_t hooks) const {
  double factor = loss;
  for (std::uint32_t output = 0; output < hooks; ++output) factor *= each_hook;
  return factor;
}

DeepSpeedEngine::DeepSpeedEngine(const DeepSpeedContext& context)
    : grad_(context.scenario->parameters.size()),
      context_(context),
      own_storage_(context.scenario->parameters.size(), no_index),
      peers_(tensor_parallel_ranks(scenario()) > 1 ? group_named(scenario(), timeline().contract.groups, averaging_group(scenario()), rank())
                                                   : data_parallel_group(scenario(), rank())),
      tensor_ranks_(group_named(scenario(), timeline().contract.groups, tensor_parallel_ranks(scenario()) > 1 ? "tp" : "rank", rank())),
      neighbours_(model_parallel_group(scenario(), rank()).ranks, rank()),
      index_in_peers_(peers_.index_of(rank())),
      has_direct_backwards_(std::any_of(context.timeline->events.begin(), context.timeline->events.end(), [](const Event& e) { return e.direct(); })),
      uses_(context.scenario->parameters.size()),
      uses_side_stream_(std::any_of(context.scenario->parameters.begin(), context.scenario->parameters.end(), [](const Parameter& p) { return p.on_side_stream; })) {
  for (std::uint32_t p = 0; p < parameter_count(); ++p) {
    ++uses_[scenario().parameters[p].tied_to.value_or(p)];
    if (scenario().parameters[p].has_gradient() && holds(scenario(), rank(), p)) learned_.push_back(p);
  }
}

void DeepSpeedEngine::handle(const Event& event, ProgramWriter& w) {
  expects(!suspended(), "an event reached an engine that waits for a value");
  require_initialised();
  const bool opens = event.is<events::EnterNoSync>() || event.is<events::EnterCoalesce>();
  if (opens) blocks_.push_back(false);
  if (auto error = refusal_of(protocol(), event.kind())) throw std::move(*error);
  if (opens) blocks_.back() = true;
  stepped_ = false;
  using namespace events;
  std::visit(overloaded{[&](const SetBoundary& body) { set_boundary(body.boundary); },
                        [&](const Forward&) {
                          if (event.documented != window_) explicit_forward_used_.clear();
                          window_ = event.documented;
                          explicit_forward_used_.push_back(false);
                          forward(w, backward_of(event));
                        },
                        [&](const events::Backward& body) {
                          backward(body, w);
                          micro_steps_ += in_pipeline();
                        },
                        [&](const EnterNoSync&) { in_no_sync_ = true; },
                        [&](const ExitNoSync&) {
                          if (ends_block()) in_no_sync_ = false;
                        },
                        [&](const EnterCoalesce&) { enter_coalescing(); },
                        [&](const ExitCoalesce&) {
                          if (ends_block()) exit_coalescing(w);
                        },
                        [&](const Raise& body) { raise(body, w); },
                        [&](const Step&) { step(w); },
                        [&](const EngineZeroGrad&) {
                          for (Tensor& grad : grad_) tensors_.clear(w, grad);
                        },
                        [&](const OptimizerZeroGrad&) { optimizer_zero_grad(w); },
                        [&](const SetGradient& body) { set_gradient(body, w); },
                        [&](const ScaleGradients& body) { scale_gradients(body, w); },
                        [&](const ClipGradients& body) { clip_gradients(body, w); },
                        [&](const AllReduce& body) { all_reduce(body, w); },
                        [&](const Finalize&) { finalize(w); },
                        [](const Save&) {},  // of the weights and what belongs to them
                        [](const Restore&) { expects(false, "a new process is another engine"); },
                        [](const Unscale&) { expects(false, "admission refuses unscale: DeepSpeed scales losses itself"); },
                        [](const OfFramework&) { expects(false, "DeepSpeed has no event of its own"); }},
             event.body);
}

// DeepSpeed#2512: bf16 was assumed to accumulate in fp32, which ZeRO refused; until DeepSpeed#2566 no configuration that leaves the dtype open starts.
void DeepSpeedEngine::require_initialised() const {
  if (behaviour().bf16_zero_acc_default == Bf16ZeroAccDefault::fp32 && config().zero.stage > 0 && scenario().model_dtype == Dtype::bfloat16 && !config().grad_accum_dtype)
    throw FrameworkError{"NotImplementedError", "at initialisation: model and gradient accumulation dtype must be equal to use ZeRO"};
}

bool DeepSpeedEngine::boundary() const {
  if (override_boundary_) return *override_boundary_;
  if (unmanaged()) return in_step_;
  // A pipeline runs gradient_accumulation_steps micro-batches, whatever calls of step() stand between them.
  if (in_pipeline() && in_step_) return micro_steps_ > 0 && micro_steps_ % config().gradient_accumulation_steps == 0;
  return (micro_steps_ + 1) % config().gradient_accumulation_steps == 0;
}

// DeepSpeed#1264: before it the pipeline engine told no more than each backward() of the last stage, which comes before it forces the boundary.
// The other stages' optimizers were left with the start value.
bool DeepSpeedEngine::boundary_for_optimizer() const {
  const std::uint32_t stages = scenario().engine.pipeline_stages;
  if (stages == 1 || behaviour().pipeline_boundary == PipelineBoundary::handed_over) return boundary();
  return stage_of(scenario(), rank()) + 1 < stages;
}

// DeepSpeed#8154: from DeepSpeed#7665 to it the output hook of every stage divided, and a gradient passes those of all later stages.
double DeepSpeedEngine::pipeline_factor() const {
  if (!in_pipeline() || behaviour().pipeline_scale != PipelineScale::each_stage) return 1.0;
  const std::uint32_t later = scenario().engine.pipeline_stages - 1 - stage_of(scenario(), rank());
  return std::pow(config().gradient_accumulation_steps, -static_cast<double>(later));
}

// DeepSpeed#7787: before it the engine did not know that the backward of a stage before the last is the pipeline's. The last one's is engine.backward.
bool DeepSpeedEngine::taken_for_direct() const {
  return stage_of(scenario(), rank()) + 1 < scenario().engine.pipeline_stages && behaviour().pipeline_backward == PipelineBackward::taken_for_direct;
}

void DeepSpeedEngine::refuse_direct() const {
  if (auto error = refusal_of(protocol(), EventKind::backward, true)) throw std::move(*error);
}

void DeepSpeedEngine::set_boundary(bool boundary) {
  override_boundary_ = boundary;
  mirror_ = boundary;
}

void DeepSpeedEngine::forward(ProgramWriter& w, std::optional<std::uint32_t> backward) {
  hooks_.forward();
  clear_backward_seen_flag(w);
  if (!follows_modules()) return;
  const std::vector<std::uint32_t> all(learned_.rbegin(), learned_.rend());
  run_modules(w, backward, backward ? timeline().ready_order(scenario(), *backward, rank()) : all, false);
}

std::optional<std::uint32_t> DeepSpeedEngine::backward_of(const Event& forward) const {
  if (!follows_modules()) return std::nullopt;
  const auto number = explicit_forward_used_.size() - 1;
  for (const Backward& each : timeline().backwards) {
    const Event& event = timeline().events[each.event];
    const auto* body = event.as<events::Backward>();
    if (body && !body->own_forward && body->of == number && event.documented == forward.documented && event.runs_on(rank())) return body->ordinal;
  }
  return std::nullopt;
}

void DeepSpeedEngine::backward(const events::Backward& event, ProgramWriter& w) {
  if (event.own_forward) {
    neighbours_.receive_activations(0, w);
    forward(w, event.ordinal);
    neighbours_.send_activations(0, 1, w);
    neighbours_.receive_gradients(0, 1, w);
  }
  const std::vector<std::uint32_t> ready = context_.timeline->ready_order(scenario(), event.ordinal, rank());
  const auto passes = [&](bool outputs) {
    return std::any_of(ready.begin(), ready.end(), [&](std::uint32_t p) { return (scenario().parameters[p].hooked_outputs > 0) == outputs; });
  };
  hooks_.begin();
  const bool prepares = prologue_runs(event, passes(true) || ready.empty());
  if (prepares && ready.empty()) prologue(event, w);
  if (!event.direct) scale_wrt_gas_ = event.scale_wrt_gas;
  // A term that goes around the outputs is added to them, and a loop's own weight makes another tensor: the loss is then none of them.
  const bool weighed = !context_.timeline->backwards[event.ordinal].loss_factor.empty();
  const LossFactors factors = loss_factors(event, !passes(false) && !weighed);

  // The hook that prepares the wrapper is that of an output: gradients that go around them come before it.
  const bool by_hook = behaviour().scale_site != ScaleSite::loss;
  const auto first = std::find_if(ready.begin(), ready.end(), [&](std::uint32_t p) { return !by_hook || scenario().parameters[p].hooked_outputs > 0; });
  begin_backward(w, event.ordinal);
  const std::size_t in_phase = std::max<std::size_t>((ready.size() + event.phases - 1) / event.phases, 1);
  for (Pass pass{event.ordinal, ready, 0, 0, factors}; pass.begin < ready.size(); pass.begin = pass.end) {
    if (pass.begin > 0) end_of_phase(event, w);
    pass.end = std::min(pass.begin + in_phase, ready.size());
    if (event.phases > 1) run_modules(w, event.ordinal, std::span(ready).subspan(pass.begin, pass.end - pass.begin), true);
    for (std::size_t i = pass.begin; i < pass.end; ++i) {
      if (prepares && ready.begin() + static_cast<std::ptrdiff_t>(i) == first) prologue(event, w);
      before_module(w, ready[i]);
      deposit(w, pass, i);
      after_module(ready[i]);
    }
  }
  if (uses_side_stream_) join_streams(w);
  if (taken_for_direct() && needs_scaler() && !ready.empty()) refuse_direct();  // by the hook of the last gradient
  if (ends_with_epilogue(event)) epilogue(w);
  else neighbours_.send_gradients(0, w);
}

// Before DeepSpeed#7665 engine.backward() prepared the wrapper itself, and nobody did for loss.backward(). Since then the first output hook of a
// forward's graph does, once for each forward.
bool DeepSpeedEngine::prologue_runs(const events::Backward& event, bool passes_an_output) {
  if (behaviour().scale_site == ScaleSite::loss) return !event.direct;
  if (!passes_an_output || event.own_forward) return passes_an_output;
  const bool first_of_its_graph = !explicit_forward_used_.at(event.of);
  explicit_forward_used_.at(event.of) = true;
  return first_of_its_graph;
}

void DeepSpeedEngine::prologue(const events::Backward& event, ProgramWriter& w) {
  if ((event.direct || taken_for_direct()) && !is_zero_optimizer()) refuse_direct();
  backward_prologue(w);
  hooks_.enter();
  if (config().zero.stage >= 1) mirror_ = boundary_for_optimizer();
}

// Where the division by gradient_accumulation_steps is done, and whether the loss scale is in the loss.
DeepSpeedEngine::LossFactors DeepSpeedEngine::loss_factors(const events::Backward& event, bool loss_is_an_output) const {
  const double share = 1.0 / config().gradient_accumulation_steps;
  const std::vector<double>& of_loop = context_.timeline->backwards[event.ordinal].loss_factor;
  const double scale = pipeline_factor() * (event.direct ? 1.0 : loss_scale()) * (of_loop.empty() ? 1.0 : of_loop[rank()]);
  const bool pipeline_sums = in_pipeline() && behaviour().pipeline_scale == PipelineScale::nowhere;
  switch (behaviour().scale_site) {
    // engine.backward() divides where it reduces: not inside no_sync, nor in a pipeline, which reduces by an instruction of its own.
    case ScaleSite::loss: return {event.direct || in_no_sync_ || pipeline_sums || !scale_wrt_gas_ ? scale : scale * share, 1.0};
    case ScaleSite::output_hook:
      // Up to DeepSpeed#7724 whatever scale_wrt_gas said.
      return {scale, scale_wrt_gas_ || behaviour().scale_wrt_gas_in_hook == ScaleWrtGas::ignored ? share : 1.0};
    case ScaleSite::engine_loss:
      if (event.direct) return {scale, share};
      if (event.scale_wrt_gas) return {scale * share, 1.0};
      // live-30: the hook of an output that is itself the loss runs before engine.backward() has marked the graph as its own.
      return {loss_is_an_output && !multiplies_loss() ? scale * share : scale, 1.0};
  }
  return {};
}

// What makes loss.backward() end as engine.backward() does.
bool DeepSpeedEngine::ends_with_epilogue(const events::Backward& event) {
  if (!event.direct) return true;
  const DirectEpilogue rule = behaviour().direct_epilogue;
  if (rule == DirectEpilogue::none) return false;
  if (!hooks_.end_of_graph(rule, hooks_count())) return false;
  if (needs_scaler()) refuse_direct();
  return true;
}

void DeepSpeedEngine::epilogue(ProgramWriter& w) {
  // DeepSpeed#7985: with reduce_then_accumulate the boundary micro-batch enters BF16_Optimizer's buffer after the all-reduce and stays private.
  // A pipeline reduces by an instruction of its own, when the backwards of all micro-batches are over.
  const bool epilogue_first = accumulates_in_epilogue() && (in_pipeline() || behaviour().order_bf16_epilogue == Bf16EpilogueOrder::accumulate_then_reduce);
  if (epilogue_first) backward_epilogue(w);
  neighbours_.send_gradients(0, w);
  if (!in_no_sync_) {
    mirror_ = boundary_for_optimizer();
    if (reduces_every_backward() || boundary()) reduce_gradients(w);
  }
  if (!epilogue_first) backward_epilogue(w);
  hooks_.exit();
}

// Where hooks are counted, a phase of autograd ends when those that it will run have run. After the first end the wrapper is in no backward
// any more, so that later phases have none.
void DeepSpeedEngine::end_of_phase(const events::Backward& event, ProgramWriter& w) {
  if (event.direct && behaviour().direct_epilogue == DirectEpilogue::hook_count && ends_with_epilogue(event)) epilogue(w);
}

void DeepSpeedEngine::step(ProgramWriter& w) {
  in_step_ = true;
  if (unmanaged() && boundary()) {
    mirror_ = true;
    finalise_unmanaged(w);
  }
  if (boundary()) {
    model_step(w);
    return;  // step_done() goes on
  }
  w.report(StepFact::updated, 0.0);
  in_step_ = false;
  micro_steps_ += !in_pipeline();
}

void DeepSpeedEngine::report_decision(ProgramWriter& w, bool overflow, double loss_scale) {
  w.report(StepFact::skipped, overflow ? 1.0 : 0.0);
  if (config().fp16.enabled) w.report(StepFact::loss_scale, loss_scale);
}

void DeepSpeedEngine::step_done(ProgramWriter& w, bool updated) {
  w.report(StepFact::updated, updated ? 1.0 : 0.0);
  if (zero_grad_after_step()) optimizer_zero_grad(w);
  stepped_ = true;
  in_step_ = false;
  micro_steps_ = in_pipeline() ? 0 : micro_steps_ + 1;
}

// Before DeepSpeed#7839 bf16 at stage 0 was left out, whatever wrapper serves it.
bool DeepSpeedEngine::zero_grad_after_step() const { return !(config().bf16.enabled && config().zero.stage == 0 && behaviour().bf16_st0_zero_grad == Bf16Stage0ZeroGrad::skipped); }

void DeepSpeedEngine::read(ProgramWriter& w, std::uint32_t stage, Slice scalar) {
  expects(decides_on_overflow(), "a linear run makes no decision on a value");
  w.read(scalar, stage);
  pending_stage_ = stage;
}

void DeepSpeedEngine::resume(double value, ProgramWriter& w) {
  expects(suspended(), "an engine is resumed that waits for nothing");
  const std::uint32_t stage = *std::exchange(pending_stage_, std::nullopt);
  if (stage == loop_norm_known) clip_by(value, w);
  else on_value(stage, value, w);
}

void DeepSpeedEngine::optimizer_zero_grad(ProgramWriter& w) {
  for (Tensor& grad : grad_) tensors_.clear(w, grad);
}

std::vector<ViewPiece> DeepSpeedEngine::whole_parameter(std::uint32_t parameter, Slice slice) const { return {ViewPiece{slice, static_cast<std::int32_t>(parameter), 0}}; }

void DeepSpeedEngine::observe(ProgramWriter& w) {
  std::string name;
  for (std::uint32_t p = 0; p < parameter_count(); ++p) {
    if (!grad_[p].defined()) continue;
    const Role role = grad_[p].slice.buffer == own_storage_[p] ? gradient_role() : Role::scratch;
    name.assign(parameter_name(p)).append(".grad");
    w.observe(w.view(name, whole_parameter(p, grad_[p].slice)), role, gradient_scale(), true);
  }
  observe_wrapper(w);
}

void DeepSpeedEngine::buffered_all_reduce(ProgramWriter& w, const std::vector<Slice>& shared, const std::vector<Slice>& of_experts) {
  const Dtype wire = communication_dtype_of(scenario());
  fallback_all_reduce(w, tensors_, config(), averages(), fallback_divisor(), wire, shared, peers());
  if (of_experts.empty()) return;
  const ProcessGroup replicas = expert_data_parallel_group(scenario(), rank());
  // DeepSpeed#5259: before it the sum over an expert's ranks was averaged over them, though each has the tokens of all.
  const bool of_replicas = behaviour().expert_divisor == ExpertDivisor::expert_data_parallel;
  fallback_all_reduce(w, tensors_, config(), averages(), of_replicas ? replicas.size() : fallback_divisor(), wire, of_experts, replicas);
}

void DeepSpeedEngine::join_norms(ProgramWriter& w, Slice squared, Slice norm, Slice other) {
  w.fill(squared, 0.0);
  w.squared_norm(squared, norm);
  w.squared_norm(squared, other);
  w.copy(norm, squared);
  w.square_root(norm);
}

void DeepSpeedEngine::over_parts_of_model(ProgramWriter& w, CollectiveCall call) const {
  if (in_pipeline()) {
    call.group = model_parallel_group(scenario(), rank()).id;
    w.collective(call);
  }
  if (tensor_ranks_.size() == 1) return;
  call.group = tensor_ranks_.id;
  w.collective(call);
}

void DeepSpeedEngine::sum_over_stages(ProgramWriter& w, Slice squared) const { over_parts_of_model(w, {.purpose = Purpose::norm, .input = squared, .output = squared}); }

void DeepSpeedEngine::share_overflow(ProgramWriter& w, Slice flag) const {
  over_parts_of_model(w, {.op = ReduceOp::max, .purpose = Purpose::overflow, .input = flag, .output = flag});
}

std::vector<RankGroup> DeepSpeedEngine::rank_groups() const {
  std::vector<RankGroup> out = sorted_groups(scenario(), rank());
  for (RankGroup& group : out)
    if (tensor_ranks_.size() > 1) group.peers = peers_;
  return out;
}

void DeepSpeedEngine::fold(StateFold& f) const {
  f.tensors(grad_);
  f.number(micro_steps_ % config().gradient_accumulation_steps);
  f.flag(override_boundary_);
  f.flag(override_before_coalescing_);
  f.flags(blocks_);
  f.flags({in_no_sync_, coalescing_, scale_wrt_gas_, in_step_, mirror_, stepped_, in_pipeline() && micro_steps_ > 0});
  hooks_.fold(f);
  f.number(explicit_forward_used_.size());
  f.flags(explicit_forward_used_);
}

// Whoever asks for the boundary that the counter sets stays below it in these rounds. A call of step() asks before it counts itself, a backward behind it does after.
std::uint64_t DeepSpeedEngine::rounds_alike(const Counts& a_round, bool ends_with_step) const {
  if (in_pipeline()) return 0;
  const std::uint64_t every = config().gradient_accumulation_steps, counted = micro_steps_ % every;
  const auto calls = static_cast<std::uint64_t>(a_round[0]);
  if (calls == 0 || override_boundary_ || unmanaged()) return UINT64_MAX;
  const std::uint64_t most = every - (ends_with_step ? 1 : 2);
  return counted < calls || counted > most ? 0 : (most - counted) / calls;
}

}  // namespace gradledger
