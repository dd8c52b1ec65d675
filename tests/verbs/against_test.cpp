// Weights of a real framework and of its model: where they may differ rightly, and where they may not.
#include "verbs/against.h"

#include <array>
#include <cmath>

#include <gtest/gtest.h>

#include "sim/frameworks/deepspeed/settings.h"
#include "tests/support/scenarios.h"

namespace gradledger::testing {
namespace {

// Two steps of two elements, clipped to 0.5.
struct Weights {
  Scenario scenario;
  Timeline timeline;
  std::vector<std::uint32_t> steps;  // events

  Weights() : scenario(base_scenario(1, {2}, Dtype::float32)) {
    deepspeed_config(scenario).gradient_clipping = 0.5;
    scenario.script = {repeat(2, managed(1))};
    timeline = make_timeline(scenario).value();
    for (std::uint32_t e = 0; e < timeline.events.size(); ++e)
      if (timeline.events[e].steps()) steps.push_back(e);
  }

  verbs::ShownWeights with(const std::array<float, 2>& second, double norm) const {
    verbs::ShownWeights out(timeline);
    for (const bool last : {false, true}) {
      const std::array<float, 2> values = last ? second : std::array<float, 2>{1, 2};
      const ObservedPiece piece{0, 0, 2, Dtype::float32, reinterpret_cast<const std::byte*>(values.data())};
      out.observe({.rank = 0, .event = steps[last], .buffer = "weights", .role = Role::parameter, .pieces = {&piece, 1}});
      out.step_fact({0, steps[last], StepFact::gradient_norm, last ? norm : 0.25});
    }
    return out;
  }
};

double next(double norm) { return std::nextafter(static_cast<float>(norm), 1.0F); }

TEST(weights_against_a_model, that_are_equal_are_all_compared) {
  const Weights run;
  const auto real = run.with({3, 4}, 0.25), model = run.with({3, 4}, 0.25);
  const verbs::AgainstModel out = compare_weights(run.scenario, run.timeline, real, model);
  EXPECT_EQ(out.elements, 4u);
  EXPECT_EQ(out.events, 2u);
  EXPECT_EQ(out.difference + out.up_to, "");
}

TEST(weights_against_a_model, that_differ_are_a_difference_with_both_values) {
  const Weights run;
  const auto real = run.with({3, 5}, 0.25), model = run.with({3, 4}, 0.25);
  const verbs::AgainstModel out = compare_weights(run.scenario, run.timeline, real, model);
  EXPECT_NE(out.difference.find("[1] is 5 there and 4 in the model"), std::string::npos) << out.difference;
}

// min(1, 0.5 / (norm + guard)) clips a little below 0.5 already.
TEST(weights_against_a_model, are_compared_up_to_where_a_norm_clips_that_differs_in_its_rounding) {
  const Weights run;
  const auto compare = [&](double there, double here) { return compare_weights(run.scenario, run.timeline, run.with({3, 5}, there), run.with({3, 4}, here)); };
  for (const double norm : {0.5, 0.4999996}) {
    EXPECT_EQ(compare(next(norm), norm).up_to, "the rounding of a norm") << norm;
    EXPECT_EQ(compare(next(norm), norm).difference, "") << norm;
    EXPECT_EQ(compare(norm, norm).up_to, "") << norm;
    EXPECT_NE(compare(norm, norm).difference, "") << norm;
    EXPECT_NE(compare(norm * 1.001, norm).difference, "") << norm;
  }
  EXPECT_NE(compare(next(0.49999), 0.49999).difference, "") << "nothing clips";
}

TEST(weights_against_a_model, are_compared_up_to_a_race_of_the_model) {
  const Weights run;
  const auto compare = [&](std::uint32_t event) {
    verbs::ShownWeights model = run.with({3, 4}, 0.25);
    RaceRecord race;
    race.event = event;
    model.race(race);
    return compare_weights(run.scenario, run.timeline, run.with({3, 5}, 0.25), model);
  };
  EXPECT_EQ(compare(run.steps[1]).up_to, "a race");
  EXPECT_EQ(compare(run.steps[1]).difference, "");
  EXPECT_EQ(compare(run.steps[1]).elements, 3u);
  EXPECT_NE(compare(run.steps[1] + 1).difference, "");
}

}  // namespace
}  // namespace gradledger::testing
