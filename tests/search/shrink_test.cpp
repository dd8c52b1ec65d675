// Shrinking: the same class on the same engine, and nothing left that could go.
#include <gtest/gtest.h>

#include <algorithm>

#include "search/campaign/campaign.h"
#include "search/shrink/shape.h"
#include "search/shrink/shrink.h"
#include "sim/frameworks/deepspeed/settings.h"
#include "sim/load.h"
#include "sim/scenario/parse.h"
#include "tests/support/sanitized.h"
#include "tests/support/scenarios.h"

namespace gradledger::testing {
namespace {

using namespace gradledger::search;

bool shows(const Scenario& s, const std::string& finding) {
  const auto timeline = make_timeline(s);
  const auto findings = judge_case(s, *timeline, {}).findings;
  return std::any_of(findings.begin(), findings.end(), [&](const ref::Finding& f) { return name_of(f.finding) == finding; });
}

// Scripts with one event less, at any depth.
std::vector<Scenario> with_one_event_less(const Scenario& s) {
  std::vector<Scenario> out;
  const auto walk = [&](auto&& self, Scenario& whole, std::vector<ScriptItem>& items) -> void {
    for (std::size_t i = 0; i < items.size(); ++i) {
      const ScriptItem gone = items[i];
      items.erase(items.begin() + static_cast<std::ptrdiff_t>(i));
      if (!whole.script.empty()) out.push_back(whole);
      items.insert(items.begin() + static_cast<std::ptrdiff_t>(i), gone);
      self(self, whole, items[i].items);
    }
  };
  Scenario copy = s;
  walk(walk, copy, copy.script);
  return out;
}

CampaignState small_campaign(const char* as_of) {
  CampaignOptions options;
  options.profile.as_of.base = as_of;
  options.cases = sanitized ? 50 : 150;
  options.shrunk_of_class = 1;
  return run_campaign(options);
}

TEST(shrink, ends_where_no_event_can_go_and_no_edit_keeps_the_finding) {
  const CampaignState state = small_campaign("0.18.9");
  ASSERT_GE(state.found.size(), sanitized ? 5u : 15u);
  std::size_t tried = 0;
  for (const Found& found : state.found) {
    EXPECT_TRUE(found.minimal) << found.shape;
    Scenario plain = found.scenario;
    plain.expect = {};
    EXPECT_TRUE(shows(plain, found.finding));
    EXPECT_EQ(engine_of(plain), found.engine);
    for (const Scenario& less : with_one_event_less(plain)) {
      const auto read = read_scenario(serialise(less), ".");
      if (!read.ok() || engine_of(less) != found.engine) continue;
      ++tried;
      EXPECT_FALSE(shows(less, found.finding)) << found.finding << ": " << found.shape << " could be " << shape_of(less);
    }
  }
  EXPECT_GT(tried, 20u);
}

TEST(shrink, takes_windows_ranks_parameters_and_options_away) {
  Scenario s = base_scenario(4, {12, 20, 7}, Dtype::bfloat16);
  s.engine.as_of.base = "0.18.9";
  deepspeed_config(s).zero.stage = 2;
  deepspeed_config(s).zero.offload_optimizer = OffloadDevice::cpu;
  deepspeed_config(s).zero.reduce_bucket_size = 16;
  deepspeed_config(s).gradient_clipping = 0.5;
  s.engine.optimizer.type = OptimizerType::adamw;
  s.script = {repeat(3, with_boundary_calls(3))};
  const Found found = shrink_finding(s, ref::FindingClass::offload_loss, 0, {});
  EXPECT_EQ(found.shape, "1 rank: backward backward");
  EXPECT_EQ(found.scenario.parameters.size(), 1u);
  EXPECT_EQ(found.scenario.parameters[0].numel, 1u);
  EXPECT_EQ(found.scenario.model_dtype, Dtype::float32);
  EXPECT_EQ(found.scenario.engine.optimizer, OptimizerConfig{});
  EXPECT_EQ(deepspeed_config(found.scenario).zero.reduce_bucket_size, ZeroConfig{}.reduce_bucket_size);
  EXPECT_EQ(deepspeed_config(found.scenario).gradient_clipping, 0.0);
}

TEST(shrink, takes_exceptions_away_that_a_finding_does_not_need) {
  const auto s =
      read_scenario(R"({"name": "x", "world_size": 2, "parameters": [{"name": "a", "numel": 12}, {"name": "b", "numel": 5}], "engine": {"framework": "ddp", "config": {}},
    "script": [{"backward": {"raises_after": 1}}, {"backward": {}}, {"step": {}}], "after_error": "go_on"})",
                    ".");
  ASSERT_TRUE(s) << s.error().text();
  const auto raises = [](const Scenario& x) { return std::any_of(x.script.begin(), x.script.end(), [](const ScriptItem& i) { return i.raises_after.has_value(); }); };
  const Shrunk without = shrink(*s, [](const Scenario& x) { return x.script.size() == 3; });
  EXPECT_FALSE(raises(without.scenario));
  EXPECT_EQ(without.scenario.after_error, AfterError::stop);
  const Shrunk with = shrink(*s, [&](const Scenario& x) { return raises(x) && x.after_error == AfterError::go_on; });
  EXPECT_EQ(with.scenario.script.at(0).raises_after, 0U) << "before any gradient";
  EXPECT_EQ(shape_of(with.scenario), "1 rank: backward(raises)");
}

TEST(shrink, stops_at_its_limit_and_says_that_it_did) {
  const Scenario s = draw({}, 0, 7);
  const Shrunk shrunk = shrink(s, [](const Scenario&) { return true; }, {.tried_max = 5});
  EXPECT_EQ(shrunk.tried, 5u);
  EXPECT_FALSE(shrunk.minimal);
}

// No edit undoes another: a predicate that always holds comes to an end.
TEST(shrink, ends_whatever_holds) {
  for (std::uint64_t number = 0; number < 60; ++number) {
    const Shrunk shrunk = shrink(draw({}, 2, number), [](const Scenario&) { return true; });
    EXPECT_TRUE(shrunk.minimal) << number;
    EXPECT_LE(events_of(shrunk.scenario.script), 2u) << shape_of(shrunk.scenario);  // a block begins and ends
    EXPECT_EQ(shrunk.scenario.world_size, 1u);
  }
}

TEST(shrink, offers_only_scenarios_that_a_file_can_hold) {
  for (std::uint64_t number = 0; number < 15; ++number) {
    rc::Seq<rc::Shrinkable<Scenario>> steps = shrinkable(draw({}, 4, number)).shrinks();
    std::size_t count = 0;
    for (auto next = steps.next(); next; next = steps.next(), ++count) {
      const auto read = read_scenario(serialise(next->value()), ".");
      ASSERT_TRUE(read.ok());
      EXPECT_EQ(*read, next->value());
    }
    EXPECT_GT(count, 0u);
  }
}

TEST(unroll, makes_one_item_of_every_event) {
  Scenario s = base_scenario(1, {2}, Dtype::float32);
  s.script = {repeat(2, {backward(3), step()})};
  const auto before = make_timeline(s);
  unroll(s);
  EXPECT_EQ(s.script.size(), 8u);
  EXPECT_EQ(make_timeline(s)->events.size(), before->events.size());
  EXPECT_EQ(events_of(s.script), 8u);
}

TEST(shape, of_a_longer_script_has_the_shorter_as_a_part) {
  const std::vector<ScriptItem> shorter{backward(), step()}, longer{boundary(false), backward(), backward(), step(), step()};
  EXPECT_TRUE(is_part_of(shorter, longer));
  EXPECT_FALSE(is_part_of(longer, shorter));
  EXPECT_FALSE(is_part_of({step(), backward()}, {backward(), step()}));
}

}  // namespace
}  // namespace gradledger::testing
