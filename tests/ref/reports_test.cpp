// Producers that leave snapshots out, or report what went wrong: what the oracle makes of it.
#include <gtest/gtest.h>

#include <functional>

#include "sim/frameworks/deepspeed/settings.h"
#include "tests/support/tampering.h"

namespace gradledger::testing {
namespace {

using Set = std::set<std::string>;

// A producer, of whose snapshots only some arrive, with records added at the start.
class Reporting final : public Producer {
 public:
  using Keeps = std::function<bool(const Observation&)>;
  using Adds = std::function<void(TraceSink&)>;
  Reporting(Producer& inner, Keeps keeps, Adds adds) : inner_(inner), keeps_(std::move(keeps)), adds_(std::move(adds)) {}

  std::string_view name() const override { return "reporting"; }
  // Only numbers pass through here.
  Capabilities capabilities() const override {
    Capabilities out = inner_.capabilities();
    out.weights = false;
    return out;
  }
  RunSummary run(const GradientSource& source, const RunOptions& options, TraceSink& sink) override {
    if (adds_) adds_(sink);
    Sink kept(keeps_, sink);
    return inner_.run(source, options, kept);
  }

 private:
  class Sink final : public TraceSink {
   public:
    Sink(const Keeps& keeps, TraceSink& to) : keeps_(keeps), to_(to) {}
    void observe(const Observation& o) override {
      if (keeps_(o)) to_.observe(o);
    }
    void collective(const CollectiveRecord& r) override { to_.collective(r); }
    void step_fact(const StepRecord& r) override { to_.step_fact(r); }
    void event_done(std::uint32_t rank, std::uint32_t event) override { to_.event_done(rank, event); }

   private:
    const Keeps& keeps_;
    TraceSink& to_;
  };

  Producer& inner_;
  Keeps keeps_;
  Adds adds_;
};

Scenario two_leaking_windows() {
  Scenario s = base_scenario(2, {30, 21, 13}, Dtype::float32);
  deepspeed_config(s).gradient_accumulation_steps = 2;
  deepspeed_config(s).zero.stage = 2;
  s.script = {repeat(2, managed(2))};
  return s;
}

ref::Verdict judge_reported(const Scenario& s, Reporting::Keeps keeps, Reporting::Adds adds = {}) {
  const auto timeline = make_timeline(s);
  HostExecutor executor(s, *timeline);
  Reporting producer(executor, std::move(keeps), std::move(adds));
  return ref::judge(s, *timeline, producer, {});
}

TEST(missing_reduction, is_a_boundary_after_which_no_rank_shows_a_reduced_gradient) {
  const Scenario s = two_leaking_windows();
  const auto timeline = make_timeline(s);
  EXPECT_EQ(classes(judge_reported(s, [](const Observation&) { return true; })), Set{});
  const ref::Verdict verdict = judge_reported(s, [&](const Observation& o) { return o.role != Role::reduced_accumulator || timeline->events[o.event].step != 1; });
  EXPECT_EQ(classes(verdict), Set{"missing-reduction"}) << sentences(verdict);
  ASSERT_EQ(verdict.findings.size(), 1u) << sentences(verdict);
  EXPECT_EQ(verdict.findings[0].step, 1u);
  EXPECT_EQ(verdict.findings[0].elements, (std::vector<ref::ElementRange>{{0, 0, 30}, {1, 0, 21}, {2, 0, 13}}));
}

TEST(missing_reduction, is_one_rank_that_does_not_show_its_part) {
  const ref::Verdict verdict = judge_reported(two_leaking_windows(), [](const Observation& o) { return o.role != Role::reduced_accumulator || o.rank != 1; });
  EXPECT_EQ(classes(verdict), Set{"missing-reduction"}) << sentences(verdict);
  ASSERT_FALSE(verdict.findings.empty());
  EXPECT_EQ(verdict.findings[0].elements, (std::vector<ref::ElementRange>{{1, 2, 21}, {2, 0, 13}})) << "64 elements, the second half of them";
}

TEST(unwritten_memory, is_what_a_producer_reports_as_read_before_it_was_written_or_after_its_release) {
  for (const bool released : {false, true}) {
    const ref::Verdict verdict = judge_reported(
        two_leaking_windows(), [](const Observation&) { return true; },
        [&](TraceSink& sink) {
          sink.unwritten({1, 3, "a buffer", 4, 9, "the norm", released});
        });
    EXPECT_EQ(classes(verdict), Set{"unwritten-memory"}) << sentences(verdict);
    ASSERT_EQ(verdict.findings.size(), 1u);
    EXPECT_EQ(verdict.findings[0].rank, 1u);
    EXPECT_EQ(verdict.findings[0].event, 3u);
    EXPECT_NE(verdict.findings[0].sentence.find(released ? "released" : "never written"), std::string::npos) << sentences(verdict);
  }
}

TEST(collective_mismatch, is_the_first_by_event_of_those_that_are_reported_in_any_order) {
  const auto at = [](std::uint32_t event) { return MismatchRecord{"size", {{.rank = 0, .event = event}, {.rank = 1, .event = event, .numel = event}}}; };
  for (const std::vector<std::uint32_t>& order : {std::vector{2u, 1u, 3u}, {3u, 2u, 1u}, {1u, 3u, 2u}}) {
    const ref::Verdict verdict = judge_reported(
        two_leaking_windows(), [](const Observation&) { return true; },
        [&](TraceSink& sink) {
          for (const std::uint32_t event : order) sink.mismatch(at(event));
        });
    ASSERT_EQ(classes(verdict), Set{"collective-mismatch"}) << sentences(verdict);
    ASSERT_EQ(verdict.findings.size(), 1u);
    EXPECT_EQ(verdict.findings[0].event, 1u);
  }
}

// In a world of three there is no equality to go by: what was wrong before the boundary is decoded in a second round.
TEST(findings, name_the_first_event_after_which_the_books_did_not_balance) {
  for (std::uint32_t world : {2u, 3u}) {
    Scenario s = two_leaking_windows();
    s.world_size = world;
    const ref::Verdict verdict = judge_tampered(s, [](const Snapshot& x) {
      if (x.linear && x.step == 0 && (x.role == Role::reduced_accumulator || x.role == Role::applied_gradient))
        for (double& value : *x.values) value *= 2;
    });
    ASSERT_EQ(classes(verdict), Set{"wrong-scale"}) << sentences(verdict);
    for (const ref::Finding& f : verdict.findings) {
      EXPECT_EQ(f.first_event, 0u) << "the first backward";
      EXPECT_EQ(f.event, 3u) << "the step that applied it";
    }
  }
}

TEST(value_passes, are_two_for_probes_and_one_for_other_data) {
  Scenario s = two_leaking_windows();
  EXPECT_EQ(judge(s).value_passes, 2u);
  s.gradients.kind = GradientKind::normal;
  EXPECT_EQ(judge(s).value_passes, 1u);
}

TEST(rounding_excess, of_an_update_is_reported_beside_a_gradient_that_is_wrong) {
  Scenario s = two_leaking_windows();
  const ref::Verdict verdict = judge_tampered(s, [](const Snapshot& x) {
    if (x.step != 0) return;
    if (x.role == Role::reduced_accumulator || x.role == Role::applied_gradient)
      for (double& value : *x.values) value *= 2;
    if (x.role == Role::master_parameter && !x.linear)
      for (double& value : *x.values) value += 1;
  });
  EXPECT_EQ(classes(verdict), (Set{"wrong-scale", "rounding-excess"})) << sentences(verdict);
}

TEST(rounding_excess, of_an_update_is_not_reported_where_streams_race) {
  const Scenario s = two_leaking_windows();
  const auto timeline = make_timeline(s);
  const RaceRecord race{0, 0, "a buffer", 0, 4, {"copy", "compute", 0, 0}, {"fill", "communication", 0, 1}};
  for (const bool races : {false, true}) {
    TamperingProducer tampering(s, *timeline, [](const Snapshot& x) {
      if (x.role == Role::master_parameter && !x.linear)
        for (double& value : *x.values) value += 1;
    });
    Reporting producer(
        tampering, [](const Observation&) { return true; },
        [&](TraceSink& sink) {
          if (races) sink.race(race);
        });
    const ref::Verdict verdict = ref::judge(s, *timeline, producer, {});
    EXPECT_EQ(classes(verdict), races ? Set{"stream-race"} : Set{"rounding-excess"}) << sentences(verdict);
  }
}

}  // namespace
}  // namespace gradledger::testing
