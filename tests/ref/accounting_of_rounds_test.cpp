// Bytes and collectives of scripts that repeat rounds: a run that passes rounds by, and runs ranks once that do the same, must count what a dry run of every
// event on every rank counts.
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>

#include "search/draw/generator.h"
#include "sim/accounting.h"
#include "sim/frameworks/framework.h"
#include "sim/load.h"
#include "sim/producers/producers.h"
#include "tests/support/long_windows.h"
#include "tests/support/no_gradients.h"

namespace gradledger::testing {
namespace {

// Passes everything on, and counts what it is shown of memory.
struct Counted final : public TraceSink, public NeedsMemoryOfRounds, public TakesRounds {
  explicit Counted(AccountingSink& sink) : to(sink) {}
  void collective(const CollectiveRecord& r) override { to.collective(r); }
  void memory(const MemoryRecord& r) override {
    ++changes;
    to.memory(r);
  }
  void event_done(std::uint32_t rank, std::uint32_t event) override { to.event_done(rank, event); }
  void engine_error(const EngineErrorRecord& r) override { to.engine_error(r); }
  void deadlock(const DeadlockRecord& r) override { to.deadlock(r); }
  void mismatch(const MismatchRecord& r) override { to.mismatch(r); }
  void round_again(KeptRound& round) override { to.round_again(round); }

  AccountingSink& to;
  std::uint64_t changes = 0;
};

struct Counts {
  Accounting accounting;
  std::uint64_t changes = 0;
  std::uint32_t ranks_run = 0;
};

Counts counts_of(const Scenario& scenario, const Timeline& timeline, const RunOptions& run) {
  AccountingSink sink(scenario, timeline);
  Counted counted(sink);
  const RunSummary summary = make_producer(scenario, timeline)->run(NoGradients(), run, counted);
  return {sink.take(), counted.changes, summary.ranks_run};
}

Counts by_dry_run(const Scenario& scenario, const Timeline& timeline) {
  return counts_of(scenario, timeline, {.observe_events = false, .linear = true, .dry = true, .once = true});
}

class accounting_of_rounds : public ::testing::TestWithParam<std::string> {};

TEST_P(accounting_of_rounds, of_drawn_scripts_that_repeat_rounds_is_that_of_a_dry_run) {
  const Framework* framework = framework_named(GetParam());
  ASSERT_NE(framework, nullptr);
  search::Profile profile;
  for (const Variant& variant : framework->search_space()->variants()) profile.variants.push_back(&variant);
  std::uint32_t compared = 0, passed = 0, together = 0;
  for (std::uint64_t number = 0; number < 160; ++number) {
    const std::optional<Scenario> scenario = with_long_windows(search::draw(profile, 31, number), number);
    if (!scenario) continue;
    const Timeline timeline = make_timeline(*scenario).value();
    const RunOptions run = accounting_run(*scenario, timeline);
    if (run.dry) continue;
    const Counts dry = by_dry_run(*scenario, timeline), brief = counts_of(*scenario, timeline, run);
    const std::string what = GetParam() + ", case " + std::to_string(number) + ": " + to_json(*scenario).dump();
    ASSERT_EQ(brief.accounting.stopped.has_value(), dry.accounting.stopped.has_value()) << what;
    if (dry.accounting.stopped) continue;  // how far the other ranks came is up to the schedule
    ASSERT_EQ(brief.accounting, dry.accounting) << what;
    ++compared;
    passed += brief.changes < dry.changes;
    together += brief.ranks_run < scenario->world_size;
  }
  EXPECT_GT(compared, 20u);
  EXPECT_GT(together, compared / 20);
  EXPECT_GE(passed, GetParam() == "deepspeed" ? compared / 8 : 0);  // its engines say what they count
}

INSTANTIATE_TEST_SUITE_P(by_framework, accounting_of_rounds, ::testing::Values("deepspeed", "ddp", "fsdp1", "fsdp2", "megatron"), [](const auto& info) { return info.param; });

TEST(an_accounting, of_a_longer_window_looks_at_no_more_rounds_and_counts_them) {
  for (const int stage : {1, 2, 3}) {
    const auto of = [&](std::uint32_t micro_batches) {
      const Scenario scenario = one_long_window({{{"name", "a"}, {"numel", 50}}, {{"name", "b"}, {"numel", 31}}}, stage, 4, micro_batches, stage == 2);
      const Timeline timeline = make_timeline(scenario).value();
      const Counts counts = counts_of(scenario, timeline, accounting_run(scenario, timeline));
      EXPECT_EQ(counts.accounting, by_dry_run(scenario, timeline).accounting) << "stage " << stage;
      return counts;
    };
    const Counts few = of(32), many = of(256);
    EXPECT_EQ(few.changes, many.changes) << "stage " << stage;
    const auto sent = [](const Counts& counts) { return counts.accounting.ranks[1].windows[0].total(Purpose::gradient).count; };
    if (stage > 1) EXPECT_GT(sent(many), 7 * sent(few)) << "stage " << stage;
  }
}

}  // namespace
}  // namespace gradledger::testing
