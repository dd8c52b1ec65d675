// ZeRO stages 1 and 2: the ways of keeping reduced gradients. Each is chosen by a configuration and a release, and is a value: a copy of an
// engine goes on by itself.
#include <memory>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "sim/engine/state_fold.h"
#include "sim/frameworks/deepspeed/settings.h"
#include "sim/frameworks/framework.h"
#include "tests/support/scenarios.h"

namespace gradledger::testing {
namespace {

struct Way {
  const char* description;
  bool offload;
  Dtype accumulation;
  const char* as_of;
  std::set<std::string> buffers;  // that hold what was reduced
};

const std::vector<Way>& ways() {
  static const std::vector<Way> all{
      {"lists", false, Dtype::bfloat16, "head", {"all_grad_tensors", "averaged_gradients"}},
      {"lists, in fp32", false, Dtype::float32, "0.19.7", {"all_grad_tensors", "averaged_gradients"}},
      {"one list", false, Dtype::bfloat16, "before #7509", {"averaged_gradients"}},
      {"partition", false, Dtype::float32, "head", {"averaged_gradients"}},
      {"host", true, Dtype::bfloat16, "head", {"accumulated_grads_in_cpu", "single_partition_of_fp32_groups"}},
      {"host, in fp32", true, Dtype::float32, "0.19.7", {"accumulated_grads_in_cpu", "single_partition_of_fp32_groups"}},
      {"partition, then host", true, Dtype::float32, "head", {"averaged_gradients", "single_partition_of_fp32_groups"}},
  };
  return all;
}

Scenario two_windows(const Way& way) {
  Scenario s = base_scenario(2, {30, 21, 13}, Dtype::bfloat16);
  DeepSpeedConfig& config = deepspeed_config(s);
  config.zero.stage = 2;
  if (way.offload) config.zero.offload_optimizer = OffloadDevice::cpu;
  config.grad_accum_dtype = way.accumulation;
  config.gradient_accumulation_steps = 3;
  s.engine.as_of.base = way.as_of;
  s.script = {repeat(2, managed(3))};
  return s;
}

// Rank 0, and what it wrote.
struct Rank {
  explicit Rank(std::unique_ptr<Engine> of) : engine(std::move(of)) {}
  Rank(const Rank& other) : engine(other.engine->clone()), program(other.program) {}

  void run(const Timeline& timeline, std::size_t first, std::size_t last) {
    ProgramWriter w(program);
    if (first == 0) engine->initialise(w);
    for (std::size_t e = first; e < last; ++e) {
      w.begin_event(static_cast<std::uint32_t>(e));
      engine->handle(timeline.events[e], w);
      engine->observe(w);
      w.end_event();
    }
  }
  std::uint64_t state() const {
    StateFold f([](Slice) { return std::uint64_t{0}; });
    engine->fold(f);
    return f.value();
  }

  std::unique_ptr<Engine> engine;
  Program program;
};

bool equal(const Op& a, const Op& b) {
  return a.kind == b.kind && a.stream == b.stream && a.index == b.index && a.target == b.target && a.source == b.source && a.scalar == b.scalar;
}

TEST(ways_of_keeping, are_chosen_by_offload_dtype_and_release) {
  for (const Way& way : ways()) {
    const Scenario s = two_windows(way);
    ASSERT_FALSE(admission_error(s)) << way.description;
    const auto timeline = make_timeline(s);
    Rank rank(make_engine({&s, &*timeline, 0, true}));
    rank.run(*timeline, 0, timeline->events.size());
    std::set<std::string> buffers;
    for (const Op& op : rank.program.ops) {
      if (op.kind != OpKind::observe || (op.role != Role::reduced_accumulator && op.role != Role::master_gradient)) continue;
      const std::string& name = rank.program.views[op.index].name;
      buffers.insert(name.substr(0, name.find('[')));
    }
    EXPECT_EQ(buffers, way.buffers) << way.description;
  }
}

// Wherever it was copied, and whatever the original does in between.
TEST(ways_of_keeping, are_copied_with_their_engine) {
  for (const Way& way : ways()) {
    const Scenario s = two_windows(way);
    const auto timeline = make_timeline(s);
    const std::size_t end = timeline->events.size();
    for (std::size_t at = 1; at < end; ++at) {
      Rank original(make_engine({&s, &*timeline, 0, true}));
      original.run(*timeline, 0, at);
      Rank copy(original);
      const std::uint64_t state = original.state();
      original.run(*timeline, at, end);
      ASSERT_EQ(copy.state(), state) << way.description << ", copied before event " << at;
      copy.run(*timeline, at, end);
      EXPECT_EQ(copy.state(), original.state());
      ASSERT_EQ(copy.program.ops.size(), original.program.ops.size());
      for (std::size_t i = 0; i < copy.program.ops.size(); ++i)
        ASSERT_TRUE(equal(copy.program.ops[i], original.program.ops[i])) << way.description << ", copied before event " << at << ", operation " << i;
    }
  }
}

}  // namespace
}  // namespace gradledger::testing
