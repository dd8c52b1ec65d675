// Rounds of a script that are proven to do what the round before did and are not run: a sink must see what it sees where every round is run. Scripts
// are drawn for every framework and given long windows; ranks differ by events of their own before, and by faults on one of them.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ref/oracle.h"
#include "search/draw/generator.h"
#include "sim/engine/repeating.h"
#include "sim/frameworks/framework.h"
#include "sim/load.h"
#include "sim/producers/producers.h"
#include "sim/scenario/parse.h"
#include "tests/support/in_words.h"
#include "tests/support/long_windows.h"
#include "tests/support/no_gradients.h"
#include "tests/support/sanitized.h"

namespace gradledger::testing {
namespace {

using nlohmann::json;

class rounds_that_repeat : public ::testing::TestWithParam<std::string> {};

TEST_P(rounds_that_repeat, show_what_they_show_where_each_is_run) {
  const Framework* framework = framework_named(GetParam());
  ASSERT_NE(framework, nullptr);
  const bool counts = GetParam() == "deepspeed";  // its engines say what they count
  search::Profile profile;
  for (const Variant& variant : framework->search_space()->variants()) profile.variants.push_back(&variant);
  std::uint32_t compared = 0, passed = 0;
  for (std::uint64_t number = 0; number < (sanitized ? 40 : counts ? 150 : 40); ++number) {
    const std::optional<Scenario> scenario = with_long_windows(search::draw(profile, 23, number), number);
    if (!scenario) continue;
    Both both;
    run_both(*scenario, both);
    ++compared;
    passed += both.passed_rounds();
    if (::testing::Test::HasFailure()) FAIL() << GetParam() << ", case " << number << ": " << to_json(*scenario).dump();
  }
  EXPECT_GT(compared, sanitized ? 10u : 20u);
  EXPECT_GE(passed, counts ? compared / 8 : 0);
}

INSTANTIATE_TEST_SUITE_P(by_framework, rounds_that_repeat, ::testing::Values("deepspeed", "ddp", "fsdp1", "fsdp2", "megatron"), [](const auto& info) { return info.param; });

Scenario of_stage(int stage, std::uint32_t world, std::uint32_t micro_batches, bool offload = false) {
  return one_long_window({{{"name", "a"}, {"numel", 50}}, {{"name", "b"}, {"numel", 31}}}, stage, world, micro_batches, offload);
}

// However many micro-batches a window has, as many rounds are run.
TEST(a_window, of_more_micro_batches_runs_no_more_rounds) {
  for (const int stage : {0, 1, 2, 3})
    for (const bool offload : {false, true}) {
      if (stage == 0 && offload) continue;
      std::set<std::uint64_t> allocations;
      for (const std::uint32_t micro_batches : {32u, 64u, 256u}) {
        const Scenario scenario = of_stage(stage, 4, micro_batches, offload);
        const Timeline timeline = make_timeline(scenario).value();
        RunOptions options;
        options.linear = options.weights = options.once = true;
        InWordsOnce seen;
        make_producer(scenario, timeline)->run(NoGradients(), options, seen);
        allocations.insert(seen.allocations);
        EXPECT_EQ(seen.lines.size(), 4u * 2 * micro_batches);
      }
      EXPECT_EQ(allocations.size(), 1u) << "stage " << stage << (offload ? ", offload" : "");
    }
}

// DeepSpeed's engine with a fault on one rank: what the loop has in the first parameter's gradient is lost in the round of one micro-batch. Its state
// says when.
class Faulty final : public Engine, public Repeating {
 public:
  Faulty(std::unique_ptr<Engine> engine, std::uint32_t events_before) : engine_(std::move(engine)), left_(events_before) {}
  Faulty(const Faulty& other) : engine_(other.engine_->clone()), left_(other.left_) {}
  std::unique_ptr<Engine> clone() const override { return std::make_unique<Faulty>(*this); }

  void initialise(ProgramWriter& w) override { engine_->initialise(w); }
  void handle(const Event& event, ProgramWriter& w) override {
    engine_->handle(event, w);
    if (left_-- != 0) return;
    for (BufferId b = 0; b < 64; ++b)
      if (w.declaration(b).name.starts_with("averaged_gradients") || w.declaration(b).name.starts_with("grad_partitions")) return w.fill(w.whole(b), 0.0);
    FAIL() << "no buffer of averaged gradients";
  }
  bool suspended() const override { return engine_->suspended(); }
  void resume(double value, ProgramWriter& w) override { engine_->resume(value, w); }
  void observe(ProgramWriter& w) override { engine_->observe(w); }

  Counts counts() const override { return of().counts(); }
  void add_counts(const Counts& more) override { of().add_counts(more); }
  void fold_without_counts(StateFold& f) override {
    f.number(left_);
    of().fold_without_counts(f);
  }
  std::uint64_t rounds_alike(const Counts& a_round, bool ends_with_step) const override { return of().rounds_alike(a_round, ends_with_step); }

 private:
  Repeating& of() const { return dynamic_cast<Repeating&>(*engine_); }

  std::unique_ptr<Engine> engine_;
  std::uint64_t left_;
};

// Without it the ranks are alike and rounds are passed; with it each round of the script is one of its own until the fault is over.
TEST(a_fault, on_one_rank_in_one_round_is_found_in_that_round) {
  const Scenario scenario = of_stage(3, 4, 40);
  const Timeline timeline = make_timeline(scenario).value();
  const EngineFactory sound = engine_factory(scenario);
  const EngineFactory faulty = [&](const EngineContext& c) -> std::unique_ptr<Engine> { return c.rank == 2 ? std::make_unique<Faulty>(sound(c), 50) : sound(c); };
  Both both;
  run_both(scenario, both, faulty);
  ref::OracleOptions options;
  options.executor = ref::Executor::symbolic;
  const ref::Verdict clean = ref::judge(scenario, timeline, *make_producer(scenario, timeline), options);
  EXPECT_TRUE(clean.clean());
  const ref::Verdict verdict = ref::judge(scenario, timeline, *make_producer(scenario, timeline, {.engines = faulty}), options);
  ASSERT_FALSE(verdict.findings.empty());
  for (const ref::Finding& f : verdict.findings) EXPECT_EQ(f.rank, 2u);
  ASSERT_FALSE(verdict.unbalanced.empty());
  EXPECT_EQ(verdict.unbalanced.front().event, 50u);
  EXPECT_EQ(verdict.unbalanced.front().rank, 2u);
}

}  // namespace
}  // namespace gradledger::testing
