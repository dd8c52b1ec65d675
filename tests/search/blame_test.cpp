// Whose a finding is: rules of documented use, scripts written as documented, and the well-known bugs.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>

#include "search/blame/blame.h"
#include "search/blame/documented_form.h"
#include "search/draw/generator.h"
#include "search/shrink/shape.h"
#include "sim/frameworks/deepspeed/documented_use.h"
#include "sim/frameworks/deepspeed/settings.h"
#include "sim/scenario/parse.h"
#include "tests/support/scenarios.h"

namespace gradledger::testing {
namespace {

using search::Form;

const std::filesystem::path corpus_folder = std::filesystem::path(GRADLEDGER_SOURCE_DIR) / "scenarios";

UseReport use(const Scenario& s) { return deepspeed::use_of(s, make_timeline(s).value()); }

// "one-backward-a-step at 1, ..."
std::string broken(const Scenario& s) {
  std::string out;
  for (const Misuse& m : use(s).misuses) out += (out.empty() ? "" : ", ") + std::string(m.rule->id) + " at " + std::to_string(m.event);
  return out;
}

std::vector<ref::Finding> blamed(const Scenario& s) {
  ref::Verdict verdict = judge(s);
  const auto timeline = make_timeline(s);
  search::assign_blame(s, *timeline, verdict.findings, [](const Scenario& other, const Timeline&) { return judge(other); });
  return verdict.findings;
}

Scenario at_stage(std::uint32_t stage, std::vector<ScriptItem> script, std::uint32_t ga = 1) {
  Scenario s = base_scenario(2, {8, 8}, Dtype::float32);
  deepspeed_config(s).zero.stage = stage;
  deepspeed_config(s).gradient_accumulation_steps = ga;
  s.script = std::move(script);
  return s;
}

ScriptItem block(ScriptKind kind, std::vector<ScriptItem> items) {
  ScriptItem item = event(kind);
  item.items = std::move(items);
  return item;
}

ScriptItem on_rank_0(ScriptItem item) {
  item.ranks = {0};
  return item;
}

// For each rule a script that breaks it, and it alone, and where.
std::map<std::string, std::pair<Scenario, std::string>> breaking() {
  ScriptItem unscaled = backward(), direct = backward();
  unscaled.scale_wrt_gas = false;
  direct.direct = true;
  Scenario old = at_stage(2, {direct, step()}), summed = at_stage(0, {backward(), step()}), every = at_stage(0, {backward(), step()}, 2);
  old.engine.as_of.base = "before #7665";
  summed.contract.average_over = "none";
  every.contract.window = Window::every_step_call;
  ScriptItem weighed_down = backward();
  weighed_down.weight = {{Formula(Rational(1, 3))}};
  Scenario weighed = at_stage(1, {weighed_down, step()}), scaled = at_stage(0, {backward(), event(ScriptKind::scale_gradients), step()});
  for (Scenario* s : {&weighed, &scaled}) s->contract.divide(2);
  return {
      {"one-backward-a-step", {at_stage(2, without_boundary_calls(2)), "at 1"}},
      {"step-behind-backward", {at_stage(0, {boundary(true), backward(), step(), step()}), "at 3"}},
      {"single-boundary", {at_stage(0, {boundary(true), backward(2), step()}), "at 2"}},
      {"boundary-before-step", {at_stage(0, {boundary(false), backward(), boundary(true), step()}), "at 3"}},
      {"same-script", {at_stage(0, {backward(), on_rank_0(event(ScriptKind::optimizer_zero_grad)), step()}), "at 1"}},
      {"zero-grad-behind-step", {at_stage(0, {boundary(false), backward(), event(ScriptKind::engine_zero_grad), boundary(true), backward(), step()}), "at 2"}},
      {"set-gradient-behind-boundary", {at_stage(3, {boundary(false), backward(), set_of("w0", 2), boundary(true), backward(), step()}), "at 2"}},
      {"direct-backward", {old, "at 0"}},
      {"refused-call", {at_stage(2, {block(ScriptKind::no_sync, {backward()}), backward(), step()}), "at 0"}},
      {"coalesced-backwards", {at_stage(2, {block(ScriptKind::coalesce, {backward(), boundary(true)}), step()}), "at 2"}},
      {"divisor", {at_stage(0, {unscaled, step(), backward(), step()}, 2), "at 0"}},
      {"average", {summed, "at 0"}},
      {"window", {every, "at 1"}},
      {"weights", {weighed, "at 1"}},
      {"own-gradients", {scaled, "at 1"}},
      {"checkpoint", {at_stage(0, {backward(), step(), event(ScriptKind::save), event(ScriptKind::restore), backward(), step(), backward(), step()}, 2), "at 3"}},
  };
}

TEST(documented_use, has_for_every_rule_a_script_that_breaks_it) {
  auto scripts = breaking();
  for (const UseRule& rule : deepspeed::use_rules()) {
    const auto at = scripts.find(std::string(rule.id));
    ASSERT_NE(at, scripts.end()) << rule.id;
    const auto& [scenario, where] = at->second;
    ASSERT_TRUE(broken(scenario).starts_with(at->first + " " + where)) << at->first << ": " << broken(scenario);
    if (std::set<std::string_view>{"zero-grad-behind-step", "same-script", "own-gradients"}.contains(rule.id)) continue;  // these break the other one too
    for (const Misuse& m : use(scenario).misuses) EXPECT_TRUE(m.rule == &rule || rule.id == "refused-call") << at->first << ": " << broken(scenario);
  }
  EXPECT_EQ(scripts.size(), deepspeed::use_rules().size());
}

TEST(documented_use, is_broken_by_no_documented_case) {
  for (const char* as_of : {"head", "0.18.9", "0.16.5"}) {
    search::Profile profile;
    profile.as_documented = true;
    profile.as_of.base = as_of;
    for (std::uint64_t number = 0; number < 300; ++number) {
      const Scenario s = search::draw(profile, 3, number);
      EXPECT_EQ(broken(s), "") << serialise(s);
    }
  }
}

TEST(documented_use, is_broken_by_many_of_the_other_cases_and_by_every_rule) {
  std::set<std::string> rules;
  std::size_t undocumented = 0;
  for (std::uint64_t number = 0; number < 2000; ++number) {
    const UseReport report = use(search::draw({}, 4, number));
    undocumented += !report.misuses.empty();
    for (const Misuse& m : report.misuses) rules.insert(std::string(m.rule->id));
  }
  EXPECT_GT(undocumented, 400u);
  EXPECT_LT(undocumented, 2000u);
  for (const char* rule : {"one-backward-a-step", "step-behind-backward", "single-boundary", "boundary-before-step", "same-script", "zero-grad-behind-step",
                           "set-gradient-behind-boundary", "coalesced-backwards", "divisor"})
    EXPECT_TRUE(rules.contains(rule)) << rule;
}

// ---- written as documented --------------------------------------------------------------------------------------------------------

std::string shape_in(const Scenario& s, Form form) {
  const auto timeline = make_timeline(s);
  const auto written = documented_form(s, *timeline, use(s).misuses, form);
  return written ? search::shape_of(written->scenario) : "none";
}

TEST(a_documented_form, has_the_same_micro_batches_and_breaks_no_rule) {
  const Scenario two = at_stage(2, {backward(2), step(), backward(), step()});
  EXPECT_EQ(shape_in(two, Form::calls), "2 ranks: boundary(F) backward boundary(T) backward step backward step");
  EXPECT_EQ(shape_in(two, Form::counted), "none") << "the windows are of different length";
  EXPECT_EQ(shape_in(two, Form::left_out), "2 ranks: backward step");
  EXPECT_EQ(shape_in(at_stage(2, {backward(2), step(), backward(2), step()}), Form::counted), "2 ranks: backward step backward step backward step backward step");
  std::size_t written = 0;
  for (std::uint64_t number = 0; number < 400; ++number) {
    const Scenario s = search::draw({}, 6, number);
    const auto timeline = make_timeline(s);
    const auto misuses = use(s).misuses;
    for (const Form form : {Form::calls, Form::counted, Form::left_out}) {
      const auto other = documented_form(s, *timeline, misuses, form);
      if (misuses.empty() || !other) continue;
      ++written;
      EXPECT_EQ(broken(other->scenario), "") << serialise(s) << serialise(other->scenario);
      EXPECT_EQ(other->window.size(), timeline->steps);
    }
  }
  EXPECT_GT(written, 100u);
}

// ---- whose ----------------------------------------------------------------------------------------------------------------------

TEST(blame, of_several_backwards_before_one_step_is_the_users_at_head) {
  const auto findings = blamed(at_stage(2, {repeat(2, without_boundary_calls(3))}));
  ASSERT_FALSE(findings.empty());
  for (const ref::Finding& f : findings) {
    EXPECT_EQ(f.blame->whose, ref::Whose::usage) << f.sentence << f.blame->why;
    EXPECT_EQ(f.blame->rule, "one-backward-a-step");
    EXPECT_NE(f.blame->why.find("written as documented it does not show this"), std::string::npos) << f.blame->why;
  }
}

// The release loses gradients in documented scripts too; what is wrong with this one is not why.
TEST(blame, is_the_frameworks_where_a_documented_script_shows_it_too) {
  Scenario s = at_stage(2, {repeat(2, without_boundary_calls(3))});
  s.engine.as_of.base = "0.18.2";
  deepspeed_config(s).zero.offload_optimizer = OffloadDevice::cpu;
  const auto findings = blamed(s);
  ASSERT_FALSE(findings.empty());
  EXPECT_EQ(findings.front().blame->whose, ref::Whose::framework) << findings.front().sentence << findings.front().blame->why;
  EXPECT_NE(findings.front().blame->why.find("shows this without it too"), std::string::npos) << findings.front().blame->why;
}

// A defect of the framework in one window, a mistake of the user in another: each is named in its own.
TEST(blame, tells_windows_apart) {
  Scenario s = base_scenario(2, {8, 8}, Dtype::bfloat16);
  s.engine.as_of.base = "0.18.9";
  deepspeed_config(s).zero.stage = 1;
  deepspeed_config(s).grad_accum_dtype = Dtype::float32;
  s.script = {boundary(true), backward(), step(), boundary(false), backward(), boundary(true), step()};
  const auto findings = blamed(s);
  std::map<std::uint32_t, std::set<ref::Whose>> whose;
  for (const ref::Finding& f : findings) whose[f.step].insert(f.blame->whose);
  EXPECT_EQ(whose[0], (std::set<ref::Whose>{ref::Whose::framework})) << findings.front().blame->why;
  EXPECT_EQ(whose[1], (std::set<ref::Whose>{ref::Whose::usage})) << findings.back().sentence << findings.back().blame->why;
}

std::map<std::string, std::set<std::string>> whose_in(const std::string& folder) {
  std::map<std::string, std::set<std::string>> out;
  for (const auto& entry : std::filesystem::directory_iterator(corpus_folder / folder)) {
    const auto scenario = load_scenario(entry.path());
    if (!scenario || scenario->expect.accounting_only || scenario->expect.findings.empty()) continue;
    for (const ref::Finding& f : blamed(*scenario)) out[std::string(name_of(f.blame->whose))].insert(entry.path().stem().string());
  }
  return out;
}

TEST(blame, of_the_well_known_defects_is_the_frameworks) {
  for (const char* folder : {"deepspeed-7981", "deepspeed-7985", "streams"}) {
    const auto whose = whose_in(folder);
    EXPECT_TRUE(whose.contains("framework")) << folder;
    EXPECT_FALSE(whose.contains("usage")) << folder << ": " << ::testing::PrintToString(whose);
  }
}

// 0.18.2 loses gradients of documented scripts as well.
TEST(blame, of_open_instruct_1498_is_the_users) {
  const auto whose = whose_in("open-instruct-1498");
  EXPECT_GT(whose.at("usage").size(), 12u);
  EXPECT_EQ(whose.at("framework"), (std::set<std::string>{"stage-2-offload-0.18.2"}));
}

}  // namespace
}  // namespace gradledger::testing
