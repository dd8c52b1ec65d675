// What a verdict rests on: counted, and said; and producers that say little are not taken to be right.
#include <gtest/gtest.h>

#include "sim/frameworks/deepspeed/settings.h"
#include "tests/support/tampering.h"

namespace gradledger::testing {
namespace {

// The host executor, of whose records only some arrive, and which promises nothing.
class Taciturn final : public Producer {
 public:
  struct Tells {
    bool applied = true, other_snapshots = true;
    std::set<StepFact> facts{};
  };
  Taciturn(const Scenario& scenario, const Timeline& timeline, Tells tells) : inner_(scenario, timeline), tells_(std::move(tells)) {}

  std::string_view name() const override { return "taciturn"; }
  RunSummary run(const GradientSource& source, const RunOptions& options, TraceSink& sink) override {
    Sink some(tells_, sink);
    return inner_.run(source, options, some);
  }

 private:
  class Sink final : public TraceSink {
   public:
    Sink(const Tells& tells, TraceSink& to) : tells_(tells), to_(to) {}
    void observe(const Observation& o) override {
      if (o.role == Role::applied_gradient ? tells_.applied : tells_.other_snapshots) to_.observe(o);
    }
    void step_fact(const StepRecord& r) override {
      if (tells_.facts.contains(r.fact)) to_.step_fact(r);
    }
    void event_done(std::uint32_t rank, std::uint32_t event) override { to_.event_done(rank, event); }

   private:
    const Tells& tells_;
    TraceSink& to_;
  };

  HostExecutor inner_;
  Tells tells_;
};

ref::Verdict judge_told(const Scenario& s, Taciturn::Tells tells) {
  const auto timeline = make_timeline(s);
  Taciturn producer(s, *timeline, std::move(tells));
  return ref::judge(s, *timeline, producer, {});
}

Scenario fp16_windows() {
  Scenario s = base_scenario(2, {30, 21, 13}, Dtype::float16);
  deepspeed_config(s).gradient_accumulation_steps = 2;
  deepspeed_config(s).zero.stage = 2;
  deepspeed_config(s).gradient_clipping = 0.25;
  s.script = {repeat(2, managed(2))};
  return s;
}

TEST(coverage, counts_every_snapshot_of_gradients_once_as_judged_or_with_the_reason_why_not) {
  const Scenario s = fp16_windows();
  const ref::Coverage coverage = judge(s).coverage;
  const auto timeline = make_timeline(s);
  HostExecutor executor(s, *timeline);
  class Counting final : public TraceSink {
   public:
    void observe(const Observation& o) override { gradients += holds_gradients(o.role) || o.role == Role::scratch; }
    std::uint64_t gradients = 0;
  } counted;
  executor.run(ref::FingerprintSource(*timeline, ref::probe_range(s, *timeline), 0), {.linear = true}, counted);
  EXPECT_EQ(coverage.snapshots(), counted.gradients);
  EXPECT_GT(coverage.judged, 0u);
  EXPECT_LT(coverage.judged, coverage.snapshots()) << "what a step that does not update leaves as it was is not judged again";
  EXPECT_EQ(coverage.windows_closed, 2u);
  EXPECT_EQ(coverage.windows_judged, 2u);
  EXPECT_EQ(coverage.nothing, "");
  EXPECT_TRUE(coverage.missing.empty());
}

TEST(coverage, of_a_producer_that_shows_nothing_is_nothing) {
  const ref::Verdict verdict = judge_told(fp16_windows(), {.applied = false, .other_snapshots = false});
  EXPECT_EQ(sentences(verdict), "") << "silence is no evidence against a producer that promised nothing";
  EXPECT_FALSE(verdict.judged());
  EXPECT_FALSE(verdict.clean());
  EXPECT_EQ(verdict.coverage.nothing, "no step showed the gradient that it applied");
  EXPECT_EQ(verdict.coverage.not_shown.size(), 2u);
}

TEST(coverage, of_accumulators_alone_is_nothing_since_no_window_was_judged) {
  const ref::Verdict verdict = judge_told(fp16_windows(), {.applied = false});
  EXPECT_GT(verdict.coverage.judged, 0u);
  EXPECT_FALSE(verdict.judged());
}

TEST(coverage, has_what_steps_did_not_say) {
  const ref::Verdict silent = judge_told(fp16_windows(), {});
  EXPECT_TRUE(silent.clean()) << sentences(silent);
  std::map<StepFact, std::uint32_t> missing;
  for (const ref::MissingFact& m : silent.coverage.missing) ++missing[m.fact];
  EXPECT_EQ(missing, (std::map<StepFact, std::uint32_t>{{StepFact::skipped, 4}, {StepFact::updated, 4}, {StepFact::loss_scale, 4}})) << "2 windows on 2 ranks";
  const ref::Verdict told = judge_told(fp16_windows(), {.facts = {StepFact::skipped, StepFact::updated, StepFact::loss_scale}});
  ASSERT_EQ(told.coverage.missing.size(), 4u);
  EXPECT_EQ(told.coverage.missing.front().fact, StepFact::clipping_norm) << "it updates and clips, so it has one";
}

TEST(a_step_that_says_that_it_did_not_update, is_a_finding_whoever_says_so) {
  Scenario s = base_scenario(2, {30, 21, 13}, Dtype::float32);
  deepspeed_config(s).gradient_accumulation_steps = 2;
  deepspeed_config(s).zero.stage = 2;
  s.contract.window = Window::every_step_call;
  s.script = managed(2);
  const ref::Verdict told = judge_told(s, {.facts = {StepFact::updated}});
  EXPECT_TRUE(classes(told).contains("discarded-gradient")) << sentences(told);
  EXPECT_TRUE(told.coverage.not_shown.empty());
  EXPECT_EQ(judge_told(s, {}).coverage.not_shown.size(), 1u);
}

}  // namespace
}  // namespace gradledger::testing
