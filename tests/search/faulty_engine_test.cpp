// The wrapper that plants faults: seen in nothing where it has none, and the same fault in every kind of run.
#include <string>

#include <gtest/gtest.h>

#include "search/draw/generator.h"
#include "search/mutants/hunt.h"
#include "search/draw/variants.h"
#include "sim/frameworks/deepspeed/behaviour.h"
#include "tests/support/scripted_engine.h"

namespace gradledger::search {
namespace {

const Fault no_fault{};

RunSummary run(const Scenario& scenario, const EngineFactory& factory, const RunOptions& options, testing::Keeper& seen) {
  const auto timeline = make_timeline(scenario);
  HostExecutor executor(scenario, *timeline, CollectiveArithmetic::nccl_ring, factory);
  return executor.run(testing::CountingSource{}, options, seen);
}

Scenario case_of(const Variant& variant, std::uint64_t number) {
  Profile profile;
  profile.variants = {&variant};
  profile.as_documented = true;
  return draw(profile, 1, number);
}

TEST(faulty_engine, without_a_fault_changes_no_value_no_collective_and_no_finding) {
  for (const Variant& variant : variants()) {
    for (std::uint64_t number = 0; number < 6; ++number) {
      const Scenario scenario = case_of(variant, number);
      RunOptions options;
      options.check_streams = true;
      testing::Keeper plain, wrapped;
      const RunSummary expected = run(scenario, EngineFactory(), options, plain), observed = run(scenario, with_fault(no_fault), options, wrapped);
      EXPECT_EQ(observed.value_hash, expected.value_hash) << scenario.name;
      EXPECT_EQ(observed.bytes_peak, expected.bytes_peak) << scenario.name;
      EXPECT_EQ(wrapped.snapshots, plain.snapshots) << scenario.name;
      EXPECT_EQ(wrapped.facts, plain.facts) << scenario.name;
      EXPECT_EQ(wrapped.allocations.size(), plain.allocations.size()) << scenario.name;
      EXPECT_EQ(wrapped.collectives.size(), plain.collectives.size()) << scenario.name;
      EXPECT_TRUE(reported_classes(scenario, with_fault(no_fault), 1).empty()) << scenario.name;
    }
  }
}

// Whatever a mutant asks for beyond what was drawn: the finding is the fault's.
TEST(faulty_engine, without_a_fault_is_clean_where_mutants_are_found) {
  for (const Mutant& mutant : mutants()) {
    const Hunt found = hunt(mutant, 1, 12);
    ASSERT_TRUE(found.scenario) << mutant.name;
    EXPECT_TRUE(reported_classes(*found.scenario, EngineFactory(), 1).empty()) << mutant.name;
    EXPECT_TRUE(reported_classes(*found.scenario, with_fault(no_fault), 1).empty()) << mutant.name;
  }
}

TEST(faulty_engine, plants_the_same_fault_when_its_program_runs_again) {
  for (const char* name : {"micro-batch-lost", "sum-skipped", "boundary-late", "accumulates-in-model-dtype", "overflow-unseen"}) {
    const Hunt found = hunt(**mutant_named(name, ""), 1, 12);
    ASSERT_TRUE(found.scenario) << name;
    const auto timeline = make_timeline(*found.scenario);
    HostExecutor executor(*found.scenario, *timeline, CollectiveArithmetic::nccl_ring, with_fault(**mutant_named(name, "")));
    RunOptions linear;
    linear.linear = true;
    testing::Keeper first, again;
    const RunSummary written = executor.run(testing::CountingSource{}, linear, first), replayed = executor.run(testing::CountingSource{}, linear, again);
    EXPECT_EQ(replayed.value_hash, written.value_hash) << name;
    EXPECT_EQ(again.snapshots, first.snapshots) << name;
  }
}

TEST(faulty_engine, goes_on_as_a_copy_of_itself) {
  const Scenario scenario = case_of(variants()[4], 0);
  const auto timeline = make_timeline(scenario);
  const EngineContext context{&scenario, &*timeline, 0, false};
  Program written, copied;
  const std::unique_ptr<Engine> engine = with_fault(**mutant_named("gradient-deposited-twice", ""))(context);
  ProgramWriter w(written);
  engine->initialise(w);
  copied = written;
  const std::unique_ptr<Engine> copy = engine->clone();
  ProgramWriter other(copied);
  const auto first = std::find_if(timeline->events.begin(), timeline->events.end(), [](const Event& e) { return e.is<events::Backward>(); });
  ASSERT_NE(first, timeline->events.end());
  engine->handle(*first, w);
  copy->handle(*first, other);
  ASSERT_EQ(copied.ops.size(), written.ops.size());
  for (std::size_t i = 0; i < written.ops.size(); ++i) EXPECT_EQ(copied.ops[i].kind, written.ops[i].kind) << i;
}

}  // namespace
}  // namespace gradledger::search
