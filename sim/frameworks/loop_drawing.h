// What searches draw alike for frameworks whose loops own their loss, their step and their zero_grad.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/frameworks/search_space.h"
#include "sim/scenario/framework_config.h"

namespace gradledger {

// Such a loop calls forward, backward, step, both zero_grads and the framework's own methods anywhere, and no_sync outside of another.
class LoopCalls final : public Calls {
 public:
  explicit LoopCalls(bool explicit_forwards) : explicit_forwards_(explicit_forwards) {}
  bool takes(EventKind event, bool in_block, bool direct) const override;
  bool manages_windows() const override { return false; }

 private:
  bool explicit_forwards_;
};

ScriptItem loop_item(ScriptKind kind);
// An event of the framework's own, as a script that names it has it.
ScriptItem event_item(const FrameworkEvent& event, FrameworkValue arguments = {}, std::optional<ReductionSwitch> switches = std::nullopt);

// A window in the making: what goes into the script next.
class LoopWindow {
 public:
  // Draws how many micro-batches there are, where windows may differ in that.
  LoopWindow(const WindowSlot& slot, Draws& draws, const Swarm& swarm, Scenario& out, bool all_alike);

  bool takes(Feature feature) const { return swarm_.takes(feature, draws_); }
  // What a script may do that leaves the documentation.
  bool strays(Feature feature) const { return !slot_.as_documented && takes(feature) && draws_.one_in(2); }
  std::uint32_t micro_batches() const { return micro_batches_; }
  bool last(std::uint32_t micro_batch) const { return micro_batch + 1 == micro_batches_; }

  void add(ScriptItem item) { into_->push_back(std::move(item)); }
  // Gradients last over a step: zero_grad stands before each window but the first, where it may.
  void clear(ScriptKind zero_grad);
  // With a forward of its own, or behind an explicit one. Parameters are left out where that is said.
  void micro_batch(bool explicit_forwards, bool leaves_out, bool orders);
  // Two forwards, then their backwards: two micro-batches.
  void two_micro_batches();
  // The same in no_sync.
  template <class Body>
  void in_no_sync(Body&& body) {
    ScriptItem block = loop_item(ScriptKind::no_sync);
    std::vector<ScriptItem>* outside = std::exchange(into_, &block.items);
    body();
    into_ = outside;
    add(std::move(block));
  }
  // What a loss is multiplied by where the contract divides by tokens.
  void weigh_by_tokens(std::string_view formula) { by_tokens_ = formula; }
  // A value that is not finite, in a gradient of the window.
  void overflow();
  // What is not meant here: zero_grad, step, an exception.
  void detour(ScriptKind zero_grad);
  // Whether the loop clips, which no documented script does: its values are not judged behind it. Gradients of 16 bits are clipped on a copy of the draws:
  // what a seed means for the rest stays.
  bool clips(Dtype gradients) const;
  // Between the last backward and the step: an overflow, unscale_ and a clip of the loop.
  void before_step(bool scales, bool clips, bool overflows = true);
  void step();

 private:
  ScriptItem backward();
  std::string trainable();

  const WindowSlot slot_;
  Draws& draws_;
  const Swarm& swarm_;
  Scenario& out_;
  std::vector<ScriptItem>* into_;
  std::uint32_t micro_batches_, forwards_ = 0;
  std::string_view by_tokens_ = "world*tokens/tokens_of_window";
};

// A copy that went ahead: what it decides is not what is drawn next, and what a seed means for the rest stays.
Draws set_apart(Draws draws);

// The model's dtype, and one of the engines.
void draw_loop_engine(std::span<const Variant* const> among, Draws& draws, const Swarm& swarm, Scenario& out);

// What the losses of a loop are multiplied by, and what that means: nothing, a share of the window, or a share of its tokens.
// Precondition: the framework averages over all ranks.
void draw_loss_weights(Draws& draws, Scenario& out);

// Ranks that share the model, where the world has them to spare: two or four beside each other. Of a weight each has a part, of a norm's gradient a term of a
// sum, of the rest a copy. On a copy of the draws: what a seed means for the rest stays. False: nothing was changed.
bool draw_tensor_parallel(Draws draws, Scenario& out);

// Onto so many of these ranks, in order: the first parameter is cut, the last one's gradient is summed, and a new one, w2, is a copy on each. True.
bool share_small_world(Scenario& scenario, std::uint32_t ranks);

// Every backward of every rank has a gradient: that of the first parameter that is trained. A loss without a graph has no backward.
void keep_one_used(Scenario& scenario);

// Whether a micro-batch may go without one of the parameters.
bool leaves_parameters_out(const Scenario& scenario);

// Windows of zero_grad, backwards and a step, with what the framework has before them and between backwards and step. The loop divides its losses
// itself, before their gradients are.
void write_plain_loop(const PlainLoop& loop, const std::vector<ScriptItem>& before, const std::vector<ScriptItem>& behind, Scenario& out);

// The model's dtype; where it is not fp32 with the optimizer that the engines of loops serve there.
bool set_loop_dtype(Scenario& scenario, Dtype dtype);

// SGD, or Adam with weight decay. Where the weights are not fp32: SGD alone, as the engines of loops serve it.
void draw_loop_optimizer(Draws& draws, const Swarm& swarm, Scenario& out);

// An option of a framework's configuration to its default.
template <class Config, class Value>
Simplification option_default(Value Config::*option) {
  return [option](Scenario& s) {
    Config& config = s.engine.config.as<Config>();
    const Value is = Config{}.*option;
    return std::exchange(config.*option, is) != is;
  };
}

// What is the same of every loop: its weights, its model dtype.
void add_loop_simplifications(std::vector<Simplification>& out);

}  // namespace gradledger
