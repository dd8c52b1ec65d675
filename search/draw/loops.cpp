#include "search/draw/loops.h"

#include <string>
#include <utility>
#include <vector>

#include "search/draw/swarm.h"
#include "sim/base/hash.h"
#include "sim/frameworks/loop_drawing.h"
#include "sim/scenario/layout.h"

namespace gradledger::search {
namespace {

ScriptItem backwards(std::uint32_t count) {
  ScriptItem item = loop_item(ScriptKind::backward);
  item.micro_batches = count;
  return item;
}

// Counts the backwards of each window.
class LoopWindows {
 public:
  bool take(const std::vector<ScriptItem>& items, bool in_block) {
    for (const ScriptItem& item : items) {
      if (item.kind == ScriptKind::repeat) {
        for (std::uint32_t t = 0; t < item.times; ++t)
          if (!take(item.items, in_block)) return false;
      } else if (item.kind == ScriptKind::no_sync) {
        deferred_ = true;
        if (!take(item.items, true)) return false;
      } else if (item.kind == ScriptKind::backward && item.weight.empty() && !item.of) {
        open_ += item.micro_batches;
        last_in_block_ = in_block;
      } else if (item.kind != ScriptKind::step || !close()) {
        return false;
      }
    }
    return true;
  }

  std::optional<PlainLoop> loop() const {
    if (open_ > 0 || windows_ == 0) return std::nullopt;
    return PlainLoop{.windows = windows_, .micro_batches = each_, .defers = deferred_};
  }

 private:
  bool close() {
    if (open_ == 0 || last_in_block_ || (windows_ > 0 && open_ != each_)) return false;
    each_ = std::exchange(open_, 0);
    ++windows_;
    return true;
  }

  std::uint32_t windows_ = 0, each_ = 0, open_ = 0;
  bool deferred_ = false, last_in_block_ = false;
};

}  // namespace

Scenario draw_loop(const Profile& profile, std::uint64_t seed, std::uint64_t number) {
  Draws draws{rc::Random(hash_keys({seed, number}))};
  Scenario out;
  out.name = "loop-" + std::to_string(seed) + "-" + std::to_string(number);
  // Powers of two: weights are compared where they are exact.
  while (out.world_size * 2 <= profile.world_max && !draws.one_in(4)) out.world_size *= 2;
  if (draws.one_in(3)) out.model_dtype = Dtype::bfloat16;
  const std::uint32_t parameters = draws.between(1, profile.parameters_max);
  for (std::uint32_t p = 0; p < parameters; ++p) {
    Parameter& parameter = out.parameters.emplace_back();
    parameter.name = "p" + std::to_string(p);
    parameter.numel = draws.between(1, profile.numel_max);
    parameter.trainable = p == 0 || !draws.one_in(8);
    if (p > 0 && !profile.as_documented && draws.one_in(3))
      parameter.used_by = *Predicate::parse(draws.of<std::string_view>({"micro_batch != 0", "micro_batch < 1", "step != 0", "rank != 0"}), "");
  }
  const std::uint32_t micro_batches = draws.of({1u, 2u, 4u});
  ScriptItem window = loop_item(ScriptKind::repeat);
  window.times = draws.between(1, 3);
  if (micro_batches > 1 && draws.one_in(2)) {
    ScriptItem block = loop_item(ScriptKind::no_sync);
    block.items = {backwards(micro_batches - 1)};
    window.items = {std::move(block), backwards(1), loop_item(ScriptKind::step)};
  } else {
    window.items = {backwards(micro_batches), loop_item(ScriptKind::step)};
  }
  out.script = {std::move(window)};
  return out;
}

std::optional<PlainLoop> loop_of(const Scenario& scenario) {
  LoopWindows windows;
  return windows.take(scenario.script, false) ? windows.loop() : std::nullopt;
}

void run_loop_on(const Variant& variant, Scenario& s) {
  const auto loop = loop_of(s);
  const OptimizerConfig optimizer = s.engine.optimizer;
  const Dtype dtype = s.model_dtype;
  s.engine = {};
  s.script.clear();
  variant.apply(s);
  s.engine.optimizer = optimizer;
  tuning_of(s).set_model_dtype(s, dtype);
  tuning_of(s).clip(s, 0.0);
  if (loop) search_space_of(s).write_loop(*loop, s);
}

}  // namespace gradledger::search
