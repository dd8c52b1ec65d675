// A loop that saves behind a step, and whose new processes go on, is one that never stopped: same weights, moments, applied gradients, norms and scales.
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "search/draw/generator.h"
#include "search/draw/variants.h"
#include "search/shrink/edits.h"
#include "sim/frameworks/search_space.h"
#include "sim/scenario/parse.h"
#include "tests/properties/what_lasts.h"
#include "tests/support/scenarios.h"

namespace gradledger::testing {
namespace {

std::vector<std::string_view> engines() {
  std::vector<std::string_view> out;
  for (const Framework* framework : frameworks())
    if (framework->search_space() && framework != &default_framework() && !framework->id().starts_with("megatron-fsdp"))  // whose checkpoints are not drawn
      for (const Variant& variant : framework->search_space()->variants()) out.push_back(variant.name);
  return out;
}

// Two ranks: sums of two are the same whatever bucket they are in. What PowerSGD keeps is in no checkpoint.
Scenario plain_loop(std::string_view engine, std::uint64_t number, const PlainLoop& loop) {
  search::Profile profile;
  profile.variants = {*search::variant_named(engine, "")};
  profile.world_max = 2;
  profile.as_documented = true;
  Scenario out = search::draw(profile, 11, number);
  out.contract = {};
  search_space_of(out).write_loop(loop, out);
  return out;
}

// A static graph begins anew, for which the first backward must be reduced. Behind a first forward DistributedDataParallel on tensor-parallel ranks has no
// parameters to save.
bool keeps_what_no_checkpoint_has(const Scenario& s) {
  const std::string config = s.engine.config.json_text();
  return config.find("powerSGD") != std::string::npos || config.find("static_graph") != std::string::npos || (s.layout && s.engine.framework == "ddp");
}

class a_loop : public ::testing::TestWithParam<std::string_view> {};

TEST_P(a_loop, goes_on_from_a_checkpoint_as_if_it_had_not_stopped) {
  std::uint32_t compared = 0;
  for (std::uint64_t number = 0; number < 40; ++number) {
    Scenario through = plain_loop(GetParam(), number, {.windows = 2, .micro_batches = 2, .defers = number % 2 == 1});
    if (keeps_what_no_checkpoint_has(through) || admission_error(through)) continue;
    const std::vector<ScriptItem> windows = through.script;
    through.script.insert(through.script.end(), windows.begin(), windows.end());
    Scenario resumed = through;
    resumed.script = windows;
    for (const ScriptKind kind : {ScriptKind::save, ScriptKind::restore}) resumed.script.push_back(event(kind));
    resumed.script.insert(resumed.script.end(), windows.begin(), windows.end());
    ASSERT_FALSE(admission_error(resumed)) << admission_error(resumed)->text() << "\n" << serialise(resumed);
    const auto expected = what_lasts(through, number);
    ASSERT_FALSE(expected.empty());
    EXPECT_TRUE(what_lasts(resumed, number) == expected) << serialise(resumed);
    EXPECT_EQ(classes(judge(resumed)), classes(judge(through))) << serialise(resumed) << sentences(judge(resumed));
    ++compared;
  }
  EXPECT_GT(compared, 20u);
}

// In the middle of a window a new process loses what the old one had gathered, whatever it was kept in.
TEST_P(a_loop, loses_the_micro_batches_before_a_checkpoint_in_a_window) {
  std::uint32_t lost = 0;
  for (std::uint64_t number = 0; number < 40; ++number) {
    Scenario s = plain_loop(GetParam(), number, {.windows = 2, .micro_batches = 2});
    if (keeps_what_no_checkpoint_has(s) || admission_error(s)) continue;
    search::unroll(s);
    const auto first = std::find_if(s.script.begin(), s.script.end(), [](const ScriptItem& item) { return item.kind == ScriptKind::backward || item.kind == ScriptKind::no_sync; });
    ASSERT_NE(first, s.script.end());
    std::vector<ScriptItem> then{event(ScriptKind::save), event(ScriptKind::restore)};
    if (first->micro_batches > 1) {
      then.push_back(*first);
      --then.back().micro_batches;
      first->micro_batches = 1;
    }
    s.script.insert(first + 1, then.begin(), then.end());
    ASSERT_FALSE(admission_error(s)) << admission_error(s)->text() << "\n" << serialise(s);
    const ref::Verdict verdict = judge(s);
    EXPECT_FALSE(verdict.clean()) << serialise(s);
    for (const ref::Finding& finding : verdict.findings)
      EXPECT_TRUE(finding.finding == ref::FindingClass::discarded_gradient || finding.finding == ref::FindingClass::offload_loss) << serialise(s) << sentences(verdict);
    const UseReport use = framework_of(s).use_of(s, *make_timeline(s));
    EXPECT_TRUE(std::any_of(use.misuses.begin(), use.misuses.end(), [](const Misuse& m) { return m.rule->id.find("checkpoint") != std::string_view::npos; })) << serialise(s);
    ++lost;
  }
  EXPECT_GT(lost, 20u);
}

INSTANTIATE_TEST_SUITE_P(checkpoints, a_loop, ::testing::ValuesIn(engines()), [](const auto& info) { return std::regex_replace(std::string(info.param), std::regex("-"), "_"); });

}  // namespace
}  // namespace gradledger::testing
