// Two sides on the same scripts, and known defects from a random start.
#include <gtest/gtest.h>

#include "search/campaign/differ.h"
#include "search/campaign/rows.h"
#include "search/mutants/mutant.h"
#include "search/shrink/shape.h"
#include "sim/frameworks/deepspeed/settings.h"
#include "tests/support/scenarios.h"

namespace gradledger::testing {
namespace {

using namespace gradledger::search;

Side release(const char* name) {
  return {.name = name, .apply = [name](Scenario& s) { s.engine.as_of.base = name; }};
}

TEST(differ, explains_by_coefficients_what_a_release_changed) {
  Scenario s = base_scenario(2, {8}, Dtype::float32);
  deepspeed_config(s).zero.stage = 2;
  deepspeed_config(s).zero.offload_optimizer = OffloadDevice::cpu;
  s.script = with_boundary_calls(2);
  const std::vector<Side> sides{release("0.18.9"), release("0.19.6")};
  const Comparison comparison = compare_sides(s, sides, 0);
  EXPECT_TRUE(comparison.compared);
  ASSERT_TRUE(comparison.parting);
  EXPECT_FALSE(comparison.parting->stops);
  const Comparison alike = compare_sides(s, {release("0.18.9"), release("0.18.9")}, 0);
  EXPECT_TRUE(alike.compared);
  EXPECT_FALSE(alike.parting);
}

TEST(differ, finds_the_change_from_a_random_start_and_makes_it_small) {
  CampaignOptions options;
  options.profile.variants = {*variant_named("zero2-offload", "")};
  options.profile.as_documented = true;
  options.cases = 60;
  const DifferState state = run_differ(options, {release("0.18.9"), release("0.19.6")});
  EXPECT_GT(state.compared, 30u);
  ASSERT_FALSE(state.found.empty());
  bool lost = false;
  for (const DifferFound& f : state.found) lost |= f.explanation.find("0 in 0.18.9, 1") != std::string::npos;
  EXPECT_TRUE(lost) << state.found.front().explanation;
  options.jobs = 2;
  EXPECT_EQ(run_differ(options, {release("0.18.9"), release("0.19.6")}).found.size(), state.found.size());
}

TEST(differ, sees_no_difference_between_stages_used_as_documented) {
  CampaignOptions options;
  options.profile.as_documented = true;
  options.profile.variants = {*variant_named("zero1", "")};
  options.cases = 80;
  std::vector<Side> sides;
  for (const char* name : {"zero1", "zero2", "zero3"}) sides.push_back({.name = name, .apply = (*variant_named(name, ""))->apply});
  const DifferState state = run_differ(options, sides);
  EXPECT_GT(state.compared, 20u);
  EXPECT_TRUE(state.found.empty()) << state.found.front().explanation << " " << state.found.front().shape;
}

TEST(differ, sees_an_engine_that_raises_where_the_other_does_not) {
  Scenario s = base_scenario(1, {8}, Dtype::float32);
  deepspeed_config(s).zero.stage = 2;
  ScriptItem block = event(ScriptKind::coalesce);
  block.items = {backward()};
  s.script = {block, step()};
  const Comparison comparison = compare_sides(s, {release("head"), release("before #7992")}, 0);
  ASSERT_TRUE(comparison.parting);
  EXPECT_TRUE(comparison.parting->stops);
  EXPECT_NE(comparison.parting->text.find("AttributeError"), std::string::npos) << comparison.parting->text;
}

TEST(differ, sees_a_fault_in_one_of_two_equal_engines) {
  Scenario s = base_scenario(2, {8}, Dtype::float32);
  deepspeed_config(s).zero.stage = 1;
  s.script = with_boundary_calls(2);
  Side faulty = release("head");
  faulty.factory = with_fault(**mutant_named("micro-batch-lost", ""));
  EXPECT_TRUE(compare_sides(s, {release("head"), faulty}, 0).parting);
}

TEST(differ, compares_nothing_where_a_side_does_not_serve_the_case_or_sums_are_not_exact) {
  Scenario s = base_scenario(3, {8}, Dtype::float32);
  s.script = with_boundary_calls(2);
  EXPECT_FALSE(compare_sides(s, {release("head"), release("0.18.9")}, 0).compared) << "three ranks";
}

// A repair is what makes a finding the defect's: where the repaired code reports it too, it is another.
TEST(row, is_found_where_the_repair_takes_the_finding_away_and_nowhere_else) {
  const KnownDefect leak{{"before #7985", {}}, AsOf{"#7985", {}}, {ref::FindingClass::boundary_leak}, "bf16-optimizer"};
  const RowHunt hunt = hunt_row(leak, 0, 2000, [] { return false; });
  ASSERT_TRUE(hunt.found);
  EXPECT_EQ(engine_of(hunt.scenario), "bf16-optimizer");
  EXPECT_LE(hunt.events, 5u) << shape_of(hunt.smallest);
  KnownDefect nothing = leak;
  nothing.without = nothing.with;
  const RowHunt none = hunt_row(nothing, 0, 60, [] { return false; });
  EXPECT_FALSE(none.found);
  EXPECT_EQ(none.cases, 60u);
}

TEST(row, is_looked_for_in_the_framework_that_has_it) {
  const KnownDefect scaled{{"2.13.0", {}}, std::nullopt, {ref::FindingClass::missing_reduction}, "ddp", framework_named("ddp")};
  const RowHunt hunt = hunt_row(scaled, 0, 500, [] { return false; });
  ASSERT_TRUE(hunt.found);
  EXPECT_EQ(hunt.scenario.engine.framework, "ddp");
}

}  // namespace
}  // namespace gradledger::testing
