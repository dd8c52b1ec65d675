// Frameworks whose loops own their windows: what is drawn for them, and the same loop on all of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <map>
#include <utility>

#include "search/campaign/campaign.h"
#include "search/campaign/differ.h"
#include "search/campaign/screen.h"
#include "search/draw/loops.h"
#include "search/sequences/alphabet.h"
#include "sim/frameworks/search_space.h"
#include "sim/frameworks/torch/ddp/config.h"
#include "sim/frameworks/torch/fsdp2/config.h"
#include "sim/load.h"
#include "sim/scenario/parse.h"
#include "tests/support/scenarios.h"
#include "tests/support/test_names.h"

namespace gradledger::testing {
namespace {

using namespace gradledger::search;

constexpr const char* loop_frameworks[] = {"ddp", "fsdp1", "fsdp2", "megatron", "megatron-fsdp", "megatron-fsdp-v2"};

Profile profile_of(const char* framework, bool as_documented) {
  Profile out;
  for (const Variant& variant : framework_named(framework)->search_space()->variants()) out.variants.push_back(&variant);
  out.as_documented = as_documented;
  return out;
}

class of_a_loop : public ::testing::TestWithParam<const char*> {};

TEST_P(of_a_loop, documented_cases_are_clean) {
  CampaignOptions options;
  options.profile = profile_of(GetParam(), true);
  options.cases = 400;
  options.judge_every = 8;
  const CampaignState state = run_campaign(options);
  EXPECT_GT(state.compared, 1000u);
  EXPECT_TRUE(state.broken.empty()) << state.broken.front().what;
  EXPECT_FALSE(state.nondeterminism) << *state.nondeterminism;
  EXPECT_TRUE(state.found.empty()) << state.found.front().sentence << "\n" << serialise(state.found.front().scenario);
}

TEST(tensor_parallel_ranks, of_fully_shard_are_drawn_beside_rows_and_divide_factors) {
  std::set<std::string> seen;
  for (std::uint64_t number = 0; number < 2000; ++number) {
    const Scenario s = draw_case(profile_of("fsdp2", true), 0, number).scenario;
    if (!s.layout) continue;
    seen.insert("tensor-parallel ranks");
    if (!s.engine.config.as<torch::fully_shard::Fsdp2Config>().rows.empty()) seen.insert("rows");
    if (s.engine.config.as<torch::fully_shard::Fsdp2Config>().gradient_divide_factor) seen.insert("divide factor");
  }
  EXPECT_EQ(seen, (std::set<std::string>{"tensor-parallel ranks", "rows", "divide factor"}));
}

TEST_P(of_a_loop, any_scripts_leave_the_documentation_and_show_it) {
  CampaignOptions options;
  options.profile = profile_of(GetParam(), false);
  options.cases = 120;
  options.shrunk_of_class = 1;
  const CampaignState state = run_campaign(options);
  EXPECT_TRUE(state.broken.empty()) << state.broken.front().what;
  ASSERT_FALSE(state.found.empty());
  for (const Found& found : state.found) EXPECT_TRUE(found_in(found.scenario, *ref::finding_class_named(found.finding), options)) << found.sentence;
}

// What a seed means is read back as it was drawn.
TEST_P(of_a_loop, cases_are_files) {
  const Profile profile = profile_of(GetParam(), false);
  for (std::uint64_t number = 0; number < 60; ++number) {
    const Scenario drawn = draw(profile, 7, number);
    const auto read = read_scenario(serialise(drawn), ".");
    ASSERT_TRUE(read.ok()) << read.error().text() << "\n" << serialise(drawn);
    EXPECT_EQ(serialise(*read), serialise(drawn)) << number;
  }
}

// Each feature is drawn: its options and events are in some case.
TEST_P(of_a_loop, options_and_events_of_its_own_are_drawn) {
  std::set<std::string> options, events, letters;
  const Profile profile = profile_of(GetParam(), false);
  const auto look = [&](const auto& self, const std::vector<ScriptItem>& items) -> void {
    for (const ScriptItem& item : items) {
      if (item.kind == ScriptKind::of_framework) events.insert(item.event.name);
      self(self, item.items);
    }
  };
  for (std::uint64_t number = 0; number < 400; ++number) {
    const Scenario drawn = draw(profile, 3, number);
    options.insert(drawn.engine.config.json_text());
    look(look, drawn.script);
    for (const OwnLetter& letter : search_space_of(drawn).letters(drawn))
      letters.insert(letter.item.items.empty() ? letter.item.event.name : letter.item.items.front().event.name);  // with the backwards that it runs
  }
  EXPECT_GT(options.size(), 60u);
  for (const std::string& letter : letters) EXPECT_TRUE(events.contains(letter)) << letter;
}

TEST_P(of_a_loop, simpler_options_are_admitted_or_refused_and_come_to_an_end) {
  const Profile profile = profile_of(GetParam(), false);
  std::uint32_t simpler = 0;
  for (std::uint64_t number = 0; number < 60; ++number) {
    Scenario s = draw(profile, 5, number);
    const SearchSpace& space = search_space_of(s);
    const std::string variant = space.variant_of(s);
    for (const Simplification& simplification : space.simplifications()) {
      simpler += simplification(s);
      EXPECT_FALSE(simplification(s)) << "a second time there is nothing to change: " << serialise(s);
    }
    EXPECT_EQ(space.variant_of(s), variant);
  }
  EXPECT_GT(simpler, 60u);
}

TEST_P(of_a_loop, alphabet_has_letters_that_a_script_may_have) {
  for (const Variant& variant : framework_named(GetParam())->search_space()->variants()) {
    Scenario world = base_scenario(2, {4, 4}, Dtype::float32);
    world.engine = {};
    variant.apply(world);
    const SearchSpace& space = search_space_of(world);
    for (const std::string& word : space.alphabet(world)) EXPECT_TRUE(letter_from(word, 2, "", space.letters(world)).ok()) << word;
    EXPECT_FALSE(letter_from("boundaries", 2, "", space.letters(world)).ok());
  }
}

INSTANTIATE_TEST_SUITE_P(loops, of_a_loop, ::testing::ValuesIn(loop_frameworks), [](const auto& info) { return name_of_test(info.param); });

TEST(ddp_is_drawn, with_every_communication_hook_and_with_both_ways_of_powersgd) {
  using enum torch::CommHook;
  std::set documented{none, allreduce, fp16_compress, bf16_compress, fp16_wrapper, bf16_wrapper, power_sgd};
  std::set any = documented;
  any.insert({noop, sum});
  for (const bool as_documented : {true, false}) {
    std::set<torch::CommHook> hooks;
    std::set<bool> feeds_back;
    const Profile profile = profile_of("ddp", as_documented);
    for (std::uint64_t number = 0; number < 1500; ++number) {
      const Scenario drawn = draw(profile, 3, number);
      const auto& config = drawn.engine.config.as<torch::DdpConfig>();
      hooks.insert(config.comm_hook);
      ASSERT_EQ(config.power_sgd.has_value(), config.comm_hook == power_sgd) << serialise(drawn);
      if (config.power_sgd) feeds_back.insert(config.power_sgd->use_error_feedback);
    }
    EXPECT_EQ(hooks, as_documented ? documented : any);
    EXPECT_EQ(feeds_back.size(), 2u);
  }
}

TEST(options_of_pytorch_2_15, are_drawn_as_of_it_and_not_before) {
  for (const auto& [framework, option] : {std::pair{"ddp", "lazy_bucket_allocation"}, std::pair{"fsdp2", "param_dtype_override_fn"}})
    for (const bool as_documented : {true, false}) {
      std::map<std::string, std::uint32_t> drawn;
      for (const char* release : {"2.14.1", "2.15.0"}) {
        Profile profile = profile_of(framework, as_documented);
        profile.as_of.base = release;
        for (std::uint64_t number = 0; number < 400; ++number) drawn[release] += draw(profile, 3, number).engine.config.json_text().find(option) != std::string::npos;
      }
      EXPECT_EQ(drawn["2.14.1"], 0u) << option;
      EXPECT_GT(drawn["2.15.0"], 4u) << option;
    }
}

TEST(variants_of_loops, have_the_traits_that_their_contracts_say) {
  for (const char* name : loop_frameworks)
    for (const Variant& variant : framework_named(name)->search_space()->variants()) {
      Scenario world = base_scenario(2, {8, 8}, Dtype::float32);
      world.engine = {};
      variant.apply(world);
      const Contract contract = framework_of(world).contract(world).value();
      EXPECT_EQ(variant.traits.reduces_every_backward, contract.reduces_every_backward) << variant.name;
      EXPECT_EQ(!variant.traits.reduces_to_owners, contract.replicates_reduced) << variant.name;
    }
}

// ---- the same loop on engines of several frameworks ---------------------------------------------------------------------------------

Side loop_on(const char* name) {
  const Variant* variant = *variant_named(name, "");
  return {.name = name, .apply = [variant](Scenario& s) { run_loop_on(*variant, s); }};
}

std::vector<ScriptItem> window(std::uint32_t micro_batches) {
  ScriptItem backwards = backward();
  backwards.micro_batches = micro_batches;
  return {backwards, step()};
}

TEST(plain_loop, is_windows_of_as_many_backwards_each) {
  Scenario s = base_scenario(2, {8}, Dtype::float32);
  s.script = {repeat(3, window(4))};
  const auto loop = loop_of(s);
  ASSERT_TRUE(loop);
  EXPECT_EQ(loop->windows, 3u);
  EXPECT_EQ(loop->micro_batches, 4u);
  EXPECT_FALSE(loop->defers);
  for (const std::vector<ScriptItem>& other : {std::vector<ScriptItem>{backward()}, std::vector<ScriptItem>{step()},
                                               std::vector<ScriptItem>{backward(), step(), backward(), backward(), step()}, std::vector<ScriptItem>{}}) {
    s.script = other;
    EXPECT_FALSE(loop_of(s));
  }
}

TEST(plain_loop, applies_the_same_gradient_on_every_engine_of_every_framework) {
  CampaignOptions options;
  options.profile.plain_loops = options.profile.as_documented = true;
  options.cases = 60;
  std::vector<Side> sides;
  for (const Framework* framework : frameworks())
    if (framework->search_space())
      for (const Variant& variant : framework->search_space()->variants()) sides.push_back(loop_on(variant.name.data()));
  EXPECT_GE(sides.size(), 16u);
  const DifferState state = run_differ(options, sides);
  EXPECT_GT(state.compared, 30u);
  EXPECT_TRUE(state.found.empty()) << state.found.front().explanation << " " << state.found.front().shape;
}

// Gradients that stay with their ranks are no average: every engine that reduces parts from one that does not, and the case is made small.
TEST(plain_loop, parts_where_an_engine_does_not_reduce) {
  CampaignOptions options;
  options.profile.plain_loops = options.profile.as_documented = true;
  options.cases = 30;
  Side noop = loop_on("ddp");
  noop.name = "ddp without reduction";
  noop.apply = [reduced = noop.apply](Scenario& s) {
    reduced(s);
    torch::DdpConfig config = s.engine.config.as<torch::DdpConfig>();
    config.comm_hook = torch::CommHook::noop;
    s.engine.config = FrameworkConfig(std::move(config));
  };
  for (const char* reduces : {"zero1", "fsdp2", "megatron"}) {
    const DifferState state = run_differ(options, {loop_on(reduces), noop});
    ASSERT_FALSE(state.found.empty()) << reduces;
    EXPECT_NE(state.found.front().explanation.find("ddp without reduction applies other weights to p0["), std::string::npos) << state.found.front().explanation;
    // fully_shard's script is that of DDP, event by event.
    const char* where = std::string_view(reduces) == "fsdp2" ? " at event " : " at step ";
    EXPECT_NE(state.found.front().explanation.find(where), std::string::npos) << state.found.front().explanation;
  }
}

}  // namespace
}  // namespace gradledger::testing
