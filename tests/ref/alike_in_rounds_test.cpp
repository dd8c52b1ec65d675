// Rounds that repeat are judged for many buffers at once. The verdict must be that of a run in which every round is run and every snapshot looked at.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ref/oracle.h"
#include "search/draw/generator.h"
#include "sim/engine/repeating.h"
#include "sim/frameworks/framework.h"
#include "sim/load.h"
#include "sim/producers/producers.h"
#include "tests/support/long_windows.h"
#include "tests/support/sanitized.h"

namespace gradledger::testing {
namespace {

using nlohmann::json;

std::string ranges(const std::vector<ref::ElementRange>& all) {
  std::string out;
  for (const ref::ElementRange& r : all) out += fmt::format(" {}[{},{})", r.parameter, r.begin, r.end);
  return out;
}

// What a verdict says of the ledger, and how much it looked at for that.
std::vector<std::string> ledger_of(const ref::Verdict& verdict) {
  std::vector<std::string> out;
  for (const ref::Finding& f : verdict.findings) out.push_back(fmt::format("{} in step {} on rank {} at event {}", name_of(f.finding), f.step, f.rank, f.event));
  for (const ref::SnapshotKey& key : verdict.unbalanced) out.push_back(fmt::format("unbalanced: event {} rank {} {}", key.event, key.rank, key.buffer));
  for (const ref::AppliedRow& a : verdict.applied)
    out.push_back(fmt::format("step {} rank {} {}{}: {} for {}", a.step, a.rank, a.buffer, ranges(a.row.elements), fmt::join(a.row.observed, " "), fmt::join(a.row.expected, " ")));
  const ref::JudgeStatistics& s = verdict.ledger;
  out.push_back(fmt::format("{} snapshots, {} elements, {} inconclusive, not due {}", s.snapshots, s.elements, s.inconclusive, fmt::join(s.not_due, " ")));
  return out;
}

// one_by_one: somebody watches who wants to see each allocation, so that every round is run.
ref::Verdict judged(const Scenario& scenario, bool one_by_one, const EngineFactory& engines = {}, bool full_ledger = true) {
  const Timeline timeline = make_timeline(scenario).value();
  TraceSink watch;
  ref::OracleOptions options;
  options.executor = ref::Executor::symbolic;
  options.full_ledger = full_ledger;
  if (one_by_one) options.watch = &watch;
  return ref::judge(scenario, timeline, *make_producer(scenario, timeline, {.engines = engines}), options);
}

TEST(rounds_judged_at_once, say_what_rounds_judged_one_by_one_say_of_drawn_scripts) {
  const Framework* framework = framework_named("deepspeed");
  search::Profile profile;
  for (const Variant& variant : framework->search_space()->variants()) profile.variants.push_back(&variant);
  std::uint32_t compared = 0, wrong = 0;
  for (std::uint64_t number = 0; number < (sanitized ? 40 : 250); ++number) {
    const std::optional<Scenario> scenario = with_long_windows(search::draw(profile, 41, number), number);
    if (!scenario) continue;
    const ref::Verdict at_once = judged(*scenario, false);
    ASSERT_EQ(ledger_of(at_once), ledger_of(judged(*scenario, true))) << "case " << number << ": " << to_json(*scenario).dump();
    ++compared;
    wrong += !at_once.findings.empty();
  }
  EXPECT_GT(compared, sanitized ? 10u : 60u);
  EXPECT_GT(wrong, sanitized ? 0u : 5u);
}

constexpr std::uint32_t parameters = 9;

Scenario of_stage(int stage, std::uint32_t world, std::uint32_t micro_batches, bool offload) {
  json shapes = json::array();
  for (std::uint32_t p = 0; p < parameters; ++p) shapes.push_back({{"name", fmt::format("p{}", p)}, {"numel", std::uint64_t{world} * (p < 6 ? 40 : 40 + p)}});
  return one_long_window(std::move(shapes), stage, world, micro_batches, offload);
}

// DeepSpeed's engine, which after every backward forgets what a buffer holds, the last one that is named so: each round does what the one before did, and all are wrong.
class Forgetful final : public Engine, public Repeating {
 public:
  Forgetful(std::unique_ptr<Engine> engine, std::string buffer) : engine_(std::move(engine)), buffer_(std::move(buffer)) {}
  Forgetful(const Forgetful& other) : engine_(other.engine_->clone()), buffer_(other.buffer_), forgets_(other.forgets_) {}
  std::unique_ptr<Engine> clone() const override { return std::make_unique<Forgetful>(*this); }

  void initialise(ProgramWriter& w) override { engine_->initialise(w); }
  void handle(const Event& event, ProgramWriter& w) override {
    engine_->handle(event, w);
    if (!event.is<events::Backward>()) return;
    if (forgets_ == no_index) {
      const BufferId end = w.declare("end", Dtype::float32, 1);
      for (BufferId b = 0; b < end; ++b)
        if (w.declaration(b).name.starts_with(buffer_)) forgets_ = b;
      ASSERT_NE(forgets_, no_index) << buffer_;
    }
    w.fill(w.whole(forgets_), 0.0);
  }
  bool suspended() const override { return engine_->suspended(); }
  void resume(double value, ProgramWriter& w) override { engine_->resume(value, w); }
  void observe(ProgramWriter& w) override { engine_->observe(w); }

  Counts counts() const override { return of().counts(); }
  void add_counts(const Counts& more) override { of().add_counts(more); }
  void fold_without_counts(StateFold& f) override { of().fold_without_counts(f); }
  std::uint64_t rounds_alike(const Counts& a_round, bool ends_with_step) const override { return of().rounds_alike(a_round, ends_with_step); }

 private:
  Repeating& of() const { return dynamic_cast<Repeating&>(*engine_); }

  std::unique_ptr<Engine> engine_;
  std::string buffer_;
  BufferId forgets_ = no_index;
};

TEST(a_rank_that_deviates, is_found_among_a_thousand_that_do_not) {
  const std::uint32_t world = sanitized ? 16 : 1024;
  const Scenario scenario = of_stage(1, world, 8, false);
  EXPECT_TRUE(judged(scenario, false, {}, false).clean());
  const EngineFactory sound = engine_factory(scenario);
  const std::vector<std::pair<std::uint32_t, std::string>> places{{0, "p4.grad"}, {world / 2, "p0.grad"}, {world - 1, "p8.grad"}};
  for (const auto& [deviates, buffer] : places) {
    const EngineFactory one_forgets = [&, d = deviates, name = buffer](const EngineContext& c) -> std::unique_ptr<Engine> {
      return c.rank == d ? std::make_unique<Forgetful>(sound(c), name) : sound(c);
    };
    const ref::Verdict verdict = judged(scenario, false, one_forgets, false);
    ASSERT_FALSE(verdict.unbalanced.empty());
    EXPECT_EQ(verdict.unbalanced.front().event, 0u);
    EXPECT_EQ(verdict.unbalanced.front().rank, deviates);
    EXPECT_EQ(verdict.unbalanced.front().buffer, buffer);
    EXPECT_FALSE(verdict.findings.empty());
  }
}

TEST(a_rank_that_deviates, is_judged_as_where_every_round_is_run) {
  const std::map<std::pair<int, bool>, std::string> kept_in{
      {{1, false}, "p3.grad"},         {{1, true}, "p3.grad"},        {{2, false}, "grads_in_partition"}, {{2, true}, "accumulated_grads_in_cpu"},
      {{3, false}, "grad_partitions"}, {{3, true}, "grad_partitions"}};
  for (const int stage : {1, 2, 3})
    for (const bool offload : {false, true}) {
      const Scenario scenario = of_stage(stage, 4, 12, offload);
      const EngineFactory sound = engine_factory(scenario);
      for (std::uint32_t deviates = 0; deviates < 4; ++deviates) {
        const EngineFactory one_forgets = [&](const EngineContext& c) -> std::unique_ptr<Engine> {
          return c.rank == deviates ? std::make_unique<Forgetful>(sound(c), kept_in.at({stage, offload})) : sound(c);
        };
        const ref::Verdict at_once = judged(scenario, false, one_forgets);
        EXPECT_FALSE(at_once.unbalanced.empty());
        EXPECT_EQ(ledger_of(at_once), ledger_of(judged(scenario, true, one_forgets))) << stage << (offload ? " offload" : "") << ", rank " << deviates;
      }
    }
}

}  // namespace
}  // namespace gradledger::testing
