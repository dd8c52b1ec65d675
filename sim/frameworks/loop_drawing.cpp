#include "sim/frameworks/loop_drawing.h"

#include <algorithm>
#include <utility>

#include "sim/scenario/formula.h"

namespace gradledger {
namespace {

Formula formula(std::string_view text) { return Formula::parse(text, "").value(); }

template <class Change>
void for_each_backward(std::vector<ScriptItem>& items, const Change& change) {
  for (ScriptItem& item : items) {
    if (item.kind == ScriptKind::backward) change(item);
    for_each_backward(item.items, change);
  }
}

}  // namespace

bool LoopCalls::takes(EventKind event, bool in_block, bool direct) const {
  switch (event) {
    case EventKind::forward: return explicit_forwards_;
    case EventKind::backward: return !direct;
    case EventKind::no_sync_enter: return !in_block;
    case EventKind::step:
    case EventKind::engine_zero_grad:
    case EventKind::optimizer_zero_grad:
    case EventKind::raise:
    case EventKind::of_framework: return true;
    case EventKind::set_boundary:
    case EventKind::no_sync_exit:
    case EventKind::coalesce_enter:
    case EventKind::coalesce_exit:
    case EventKind::set_gradient:
    case EventKind::scale_gradients:
    case EventKind::clip_gradients:
    case EventKind::all_reduce:
    case EventKind::finalize:
    case EventKind::save:
    case EventKind::restore:
    case EventKind::unscale: return false;
  }
  return false;
}

Draws set_apart(Draws draws) {
  for (int i = 0; i < 16; ++i) draws.below(2);
  return draws;
}

ScriptItem loop_item(ScriptKind kind) {
  ScriptItem item;
  item.kind = kind;
  return item;
}

ScriptItem event_item(const FrameworkEvent& event, FrameworkValue arguments, std::optional<ReductionSwitch> switches) {
  ScriptItem item = loop_item(ScriptKind::of_framework);
  item.event = {std::string(event.name), std::move(arguments), event.reduces, event.heeds_switches, switches};
  return item;
}

LoopWindow::LoopWindow(const WindowSlot& slot, Draws& draws, const Swarm& swarm, Scenario& out, bool all_alike)
    : slot_(slot), draws_(draws), swarm_(swarm), out_(out), into_(&out.script), micro_batches_(slot.micro_batches) {
  if (!all_alike && draws.one_in(4)) micro_batches_ = draws.between(1, 4);
}

void LoopWindow::clear(ScriptKind zero_grad) {
  if (slot_.first ? !takes(Feature::zero_grads) : strays(Feature::zero_grads)) return;
  ScriptItem item = loop_item(zero_grad);
  item.set_to_none = !draws_.one_in(4);
  add(std::move(item));
}

std::string LoopWindow::trainable() {
  std::vector<std::uint32_t> with_gradient;
  for (std::uint32_t p = 0; p < out_.parameters.size(); ++p)
    if (out_.parameters[p].has_gradient()) with_gradient.push_back(p);
  return out_.parameters[with_gradient[draws_.below(static_cast<std::uint32_t>(with_gradient.size()))]].name;
}

// Where the contract states what a contribution is due, the loop weighs its loss by it.
ScriptItem LoopWindow::backward() {
  ScriptItem item = loop_item(ScriptKind::backward);
  if (out_.contract.normaliser == Normaliser::window) item.weight = {{formula("1/micro_batches_of_rank")}};
  if (out_.contract.normaliser == Normaliser::tokens) item.weight = {{formula(by_tokens_)}};
  return item;
}

void LoopWindow::micro_batch(bool explicit_forwards, bool leaves_out, bool orders) {
  ScriptItem item = backward();
  if (leaves_out && takes(Feature::uses)) item.uses = {trainable()};
  if (orders && takes(Feature::order)) item.order[draws_.below(out_.world_size)] = {trainable()};
  if (explicit_forwards && takes(Feature::own_forwards)) {
    add(loop_item(ScriptKind::forward));
    item.of = forwards_++;
  } else if (strays(Feature::own_forwards) && forwards_ > 0) {
    item.of = draws_.below(forwards_);
  }
  add(std::move(item));
}

void LoopWindow::two_micro_batches() {
  for (std::uint32_t i = 0; i < 2; ++i) add(loop_item(ScriptKind::forward));
  const bool backwards = draws_.one_in(2);
  for (std::uint32_t i = 0; i < 2; ++i) {
    ScriptItem item = backward();
    item.of = forwards_ + (backwards ? 1 - i : i);
    add(std::move(item));
  }
  forwards_ += 2;
}

void LoopWindow::detour(ScriptKind zero_grad) {
  if (strays(Feature::zero_grads)) add(loop_item(zero_grad));
  if (strays(Feature::double_steps)) add(loop_item(ScriptKind::step));
  if (strays(Feature::raises) && draws_.one_in(3)) {
    ScriptItem item = loop_item(ScriptKind::raise);
    item.caught = true;
    add(std::move(item));
  }
}

bool LoopWindow::clips(Dtype gradients) const {
  if (gradients == Dtype::float32) return strays(Feature::clipping);
  Draws apart = set_apart(draws_);
  return !slot_.as_documented && swarm_.takes(Feature::clipping, apart) && apart.one_in(2);
}

void LoopWindow::before_step(bool scales, bool clips, bool overflows) {
  const bool unscales = scales && (draws_.one_in(2) || clips);
  if (unscales) add(loop_item(ScriptKind::unscale));
  if (clips) {
    ScriptItem item = loop_item(ScriptKind::clip);
    item.max_norm = draws_.of({0.5, 0.01, 4.0});
    add(std::move(item));
  }
  if (scales && overflows) overflow();
}

void LoopWindow::overflow() {
  if (!takes(Feature::overflow)) return;
  ScriptItem item = loop_item(ScriptKind::overflow);
  item.micro_batch = draws_.below(micro_batches_);
  item.planted = draws_.of({PlantedValue::infinity, PlantedValue::minus_infinity, PlantedValue::not_a_number});
  item.ranks = {draws_.below(out_.world_size)};
  add(std::move(item));
}

void LoopWindow::step() { add(loop_item(ScriptKind::step)); }

void keep_one_used(Scenario& s) {
  for (Parameter& p : s.parameters)
    if (p.has_gradient()) {
      p.used_by.reset();
      return;
    }
}

void draw_loop_engine(std::span<const Variant* const> among, Draws& draws, const Swarm& swarm, Scenario& out) {
  if (swarm.often(Feature::sixteen_bits, draws)) out.model_dtype = draws.of({Dtype::bfloat16, Dtype::bfloat16, Dtype::float16});
  among[draws.below(static_cast<std::uint32_t>(among.size()))]->apply(out);
}

void draw_loss_weights(Draws& draws, Scenario& out) {
  if (draws.one_in(2)) {
    out.contract.normaliser = Normaliser::window;
    return;
  }
  out.contract.normaliser = Normaliser::tokens;
  out.tokens.constant = draws.of({1u, 2u, 4u});
}

bool draw_tensor_parallel(Draws draws, Scenario& out) {
  if (out.world_size % 2 != 0 || out.contract.average_over != StatedContract{}.average_over || !draws.one_in(3)) return false;
  const std::uint32_t ranks = out.world_size % 4 == 0 && draws.one_in(4) ? 4 : 2;
  out.layout = RankLayout::of("", {{"tp", ranks}}, out.world_size).value();
  out.engine.param_groups.clear();  // which name parameters by their numbers
  std::vector<Parameter> shared;
  for (Parameter& p : out.parameters) {
    p.used_by.reset();
    const std::uint32_t how = p.trainable && p.numel > 0 ? draws.below(4) : 3;
    if (how == 2) p.summed_over = "tp";
    const std::uint32_t parts = how < 2 ? ranks : 1;
    for (std::uint32_t number = 0; number < parts; ++number) {
      if (parts > 1) p.part = ParameterPart{"tp", number, parts};
      shared.push_back(p);
    }
  }
  out.parameters = std::move(shared);
  return true;
}

bool share_small_world(Scenario& s, std::uint32_t ranks) {
  s.layout = RankLayout::of("", {{"tp", ranks}}, s.world_size).value();
  const Parameter cut = s.parameters.front();
  Parameter summed = s.parameters.back(), copy = s.parameters.back();
  s.parameters.clear();
  for (std::uint32_t number = 0; number < ranks; ++number) {
    s.parameters.push_back(cut);
    s.parameters.back().part = ParameterPart{"tp", number, ranks};
  }
  summed.summed_over = "tp";
  copy.name = "w2";
  s.parameters.push_back(std::move(summed));
  s.parameters.push_back(std::move(copy));
  return true;
}

bool leaves_parameters_out(const Scenario& s) {
  return std::any_of(s.parameters.begin(), s.parameters.end(), [](const Parameter& p) { return p.used_by.has_value(); });
}

void write_plain_loop(const PlainLoop& loop, const std::vector<ScriptItem>& before, const std::vector<ScriptItem>& behind, Scenario& out) {
  out.contract = {};
  out.tokens = {};
  const ScriptItem backward = loop_item(ScriptKind::backward);
  ScriptItem earlier = backward;
  earlier.micro_batches = loop.micro_batches - 1;
  ScriptItem window = loop_item(ScriptKind::repeat);
  window.times = loop.windows;
  window.items = before;
  window.items.push_back(loop_item(ScriptKind::optimizer_zero_grad));
  if (loop.micro_batches > 1 && loop.defers) {
    ScriptItem block = loop_item(ScriptKind::no_sync);
    block.items = {earlier};
    window.items.push_back(std::move(block));
  } else if (loop.micro_batches > 1) {
    window.items.push_back(std::move(earlier));
  }
  window.items.push_back(backward);
  window.items.insert(window.items.end(), behind.begin(), behind.end());
  window.items.push_back(loop_item(ScriptKind::step));
  out.script = {std::move(window)};
  out.after_error = AfterError::stop;
}

bool set_loop_dtype(Scenario& s, Dtype dtype) {
  s.model_dtype = dtype;
  if (dtype == Dtype::float32) return true;
  s.engine.optimizer = {};
  s.engine.param_groups.clear();
  return true;
}

void draw_loop_optimizer(Draws& draws, const Swarm& swarm, Scenario& out) {
  const bool in_fp32 =
      out.model_dtype == Dtype::float32 && std::all_of(out.parameters.begin(), out.parameters.end(), [](const Parameter& p) { return !p.dtype || *p.dtype == Dtype::float32; });
  if (!swarm.takes(Feature::adam, draws) || !in_fp32) return;
  out.engine.optimizer.type = draws.of({OptimizerType::adam, OptimizerType::adamw});
  out.engine.optimizer.learning_rate = 0.125;
  if (draws.one_in(3)) out.engine.optimizer.weight_decay = 0.25;
}

void add_loop_simplifications(std::vector<Simplification>& out) {
  out.push_back([](Scenario& s) {
    const bool was = s.contract.normaliser != Normaliser::framework;
    s.contract.normaliser = Normaliser::framework;
    for_each_backward(s.script, [](ScriptItem& item) { item.weight.clear(); });
    return was;
  });
  out.push_back([](Scenario& s) { return std::exchange(s.tokens, {}) != Tokens{}; });
  out.push_back([](Scenario& s) { return std::exchange(s.model_dtype, Dtype::float32) != Dtype::float32; });
}

}  // namespace gradledger
