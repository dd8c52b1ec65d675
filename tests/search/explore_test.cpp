// Every sequence up to a length: the same found whether states are merged or not, and "complete" said only where it is.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "search/draw/variants.h"
#include "search/sequences/explore.h"
#include "search/sequences/state_key.h"
#include "sim/frameworks/deepspeed/settings.h"
#include "sim/frameworks/search_space.h"
#include "tests/support/sanitized.h"
#include "tests/support/scenarios.h"

namespace gradledger::testing {
namespace {

using namespace gradledger::search;

ExploreOptions world_of(const Variant& variant, std::uint32_t length, const char* as_of = "head") {
  ExploreOptions options;
  options.world = base_scenario(2, {4, 4}, Dtype::float32);
  options.world.engine.as_of.base = as_of;
  variant.apply(options.world);
  for (const std::string& text : search_space_of(options.world).alphabet(options.world)) options.alphabet.push_back(*letter_from(text, 2, ""));
  options.length = length;
  return options;
}

std::multiset<std::string> shapes_of(const ExploreResult& result) {
  std::multiset<std::string> out;
  for (const Found& f : result.found) out.insert(f.finding + " " + f.shape);
  return out;
}

TEST(explore, finds_the_same_whether_it_merges_states_or_runs_every_sequence) {
  std::uint64_t merged = 0;
  for (const Variant& variant : variants()) {
    ExploreOptions options = world_of(variant, sanitized ? 3 : 4);
    const ExploreResult once = explore(options);
    options.merge_states = false;
    const ExploreResult every = explore(options);
    options.as_documented = true;
    const ExploreResult every_documented = explore(options);
    options.merge_states = true;
    EXPECT_EQ(shapes_of(explore(options)), shapes_of(every_documented)) << variant.name;
    EXPECT_LT(every_documented.transitions, every.transitions);
    EXPECT_EQ(shapes_of(once), shapes_of(every)) << variant.name;
    EXPECT_TRUE(once.complete && every.complete);
    EXPECT_LT(once.states, every.states) << variant.name;
    EXPECT_EQ(every.merged, 0u);
    merged += once.merged;
  }
  EXPECT_GT(merged, sanitized ? 50u : 500u);
}

// What is tried is all there is: letters to the power of the length, less what is refused or goes wrong.
TEST(explore, tries_every_sequence_where_none_is_refused_or_wrong) {
  ExploreOptions options = world_of(**variant_named("zero0", ""), 5);
  options.alphabet = {*letter_from("backward", 2, ""), *letter_from("boundary(T)", 2, ""), *letter_from("step", 2, "")};
  options.merge_states = false;
  const ExploreResult result = explore(options);
  EXPECT_TRUE(result.complete);
  EXPECT_EQ(result.wrong + result.refused, 0u) << result.found.size();
  EXPECT_EQ(result.transitions, 3u + 9 + 27 + 81 + 243);
  EXPECT_EQ(result.depth, 5u);
}

TEST(explore, finds_the_shortest_script_of_a_known_defect) {
  const ExploreResult before = explore(world_of(**variant_named("zero2-offload", ""), 5, "0.18.9"));
  const ExploreResult after = explore(world_of(**variant_named("zero2-offload", ""), 5, "0.19.6"));
  const std::string lost = "offload-loss 2 ranks: boundary(F) backward boundary(T) backward step";
  const auto has = [&](const ExploreResult& r) {
    return std::any_of(r.found.begin(), r.found.end(), [](const Found& f) { return f.finding == "offload-loss" && f.scenario.script.back().kind == ScriptKind::backward; });
  };
  EXPECT_TRUE(has(before)) << ::testing::PrintToString(shapes_of(before));
  std::uint32_t shortest = 100;
  for (const Found& f : before.found)
    if (f.finding == "offload-loss") shortest = std::min(shortest, f.events);
  EXPECT_EQ(shortest, 2u) << "backward backward: " << lost;
  EXPECT_NE(shapes_of(before), shapes_of(after));
}

// A sequence that ends inside a block is not one that leaves it: the flush of an empty block would discard what came before.
TEST(explore, leaves_a_block_open_that_a_sequence_does_not_end) {
  ExploreOptions options = world_of(**variant_named("zero2", ""), 2);
  options.alphabet = {*letter_from("backward", 2, ""), *letter_from("coalesce", 2, "")};
  const ExploreResult open = explore(options);
  EXPECT_EQ(open.wrong, 1u) << "backward backward";
  options.alphabet.push_back(*letter_from("end", 2, ""));
  options.length = 3;
  EXPECT_GT(explore(options).wrong, open.wrong) << "backward coalesce end";
}

TEST(explore, says_complete_only_where_no_sequence_is_left) {
  ExploreOptions options = world_of(**variant_named("zero2", ""), 6);
  EXPECT_TRUE(explore(options).complete);
  options.states_max = 5;
  const ExploreResult limited = explore(options);
  EXPECT_FALSE(limited.complete);
  EXPECT_LT(limited.depth, 6u);
  options.states_max = 1u << 20;
  int asked = 0;
  options.stop = [&] { return ++asked > 2; };
  EXPECT_FALSE(explore(options).complete);
}

TEST(explore, finds_the_same_with_two_threads) {
  ExploreOptions options = world_of(**variant_named("zero3-offload", ""), 5);
  const ExploreResult one = explore(options);
  options.jobs = 2;
  const ExploreResult two = explore(options);
  EXPECT_EQ(shapes_of(one), shapes_of(two));
  EXPECT_EQ(one.states, two.states);
  EXPECT_EQ(one.transitions, two.transitions);
}

// Renaming ranks renames what is found: half of the sequences that name a rank are enough.
TEST(explore, leaves_out_sequences_that_mirror_others_and_loses_no_class) {
  ExploreOptions options = world_of(**variant_named("zero1", ""), 4);
  options.alphabet.clear();
  for (const char* text : {"backward", "step", "backward@0", "backward@1", "step@0", "step@1"}) options.alphabet.push_back(*letter_from(text, 2, ""));
  const ExploreResult mirrored = explore(options);
  EXPECT_TRUE(mirrored.symmetric);
  EXPECT_GT(mirrored.mirrored, 0u);
  options.world.parameters[0].numel = 5;  // partitions of unlike size: nothing is left out
  const ExploreResult all = explore(options);
  EXPECT_FALSE(all.symmetric);
  EXPECT_EQ(all.mirrored, 0u);
  std::set<std::string> some, every;
  for (const Found& f : mirrored.found) some.insert(f.finding);
  for (const Found& f : all.found) every.insert(f.finding);
  EXPECT_EQ(some, every);
  EXPECT_LT(mirrored.transitions, all.transitions);
}

// Stage 3 never zeroes its partitions: what a step leaves in them is a state of its own, and the same again after a period of windows.
TEST(state_key, tells_apart_what_lies_in_accumulators_that_nobody_shows) {
  const ExploreOptions options = world_of(**variant_named("zero3", ""), 4);
  const auto key_of = [&](const std::vector<ScriptItem>& script) {
    Scenario s = options.world;
    s.script = script;
    const auto timeline = make_timeline(s);
    LookOptions look;
    look.window_period = window_period;
    look.range = ref::ProbeRange{false, true, 24, 1.0, 64, 64};
    StateKey key;
    look.after = [&](const Simulation& executor) { key = state_key(s, *timeline, executor.ranks(), 0); };
    EXPECT_FALSE(look_at(s, *timeline, look).suspicious);
    return key;
  };
  const StateKey once = key_of({boundary(true), backward(), step()});
  EXPECT_NE(once, key_of({boundary(true), backward(2), step()}));
  EXPECT_EQ(once, key_of({boundary(true), repeat(1 + window_period, {backward(), step()})}));
}

// Equal keys mean equal futures: whatever follows, both go wrong or neither, and end in equal states again.
TEST(state_key, of_two_sequences_is_equal_only_where_their_futures_are) {
  std::size_t compared = 0;
  for (const char* name : {"zero0", "zero2", "zero1-offload", "zero3", "bf16-optimizer"}) {
    const ExploreOptions options = world_of(**variant_named(name, ""), 4);
    std::map<StateKey, Word> first;
    const auto calls = search_space_of(options.world).calls(options.world);
    const auto end_of = [&](const Word& word, StateKey& key) {
      auto script = script_of(options.alphabet, word, *calls);
      if (!script || open_blocks(options.alphabet, word) > 0) return false;
      Scenario s = options.world;
      s.script = std::move(*script);
      const auto timeline = make_timeline(s);
      LookOptions look;
      look.window_period = window_period;
      look.range = ref::ProbeRange{false, true, 24, 1.0, 64, 64};
      bool ended = false;
      look.after = [&](const Simulation& executor) {
        ended = std::all_of(executor.ranks().begin(), executor.ranks().end(), [](const Rank& r) { return r.finished; });
        if (ended) key = state_key(s, *timeline, executor.ranks(), 0);
      };
      const Look seen = look_at(s, *timeline, look);
      return ended && !seen.suspicious;
    };
    const auto for_words = [&](auto&& self, Word& word, std::uint32_t length) -> void {
      if (!word.empty()) {
        StateKey key;
        if (!end_of(word, key)) return;
        const auto [at, fresh] = first.try_emplace(key, word);
        for (std::uint8_t letter = 0; !fresh && letter < 6; ++letter) {
          Word one = at->second, other = word;
          one.push_back(letter);
          other.push_back(letter);
          StateKey key_of_one, key_of_other;
          const bool sound = end_of(one, key_of_one);
          EXPECT_EQ(sound, end_of(other, key_of_other)) << name;
          if (sound) {
            EXPECT_EQ(key_of_one, key_of_other) << name;
          }
          ++compared;
        }
      }
      if (length == 0) return;
      for (std::uint8_t letter = 0; letter < 6; ++letter) {
        word.push_back(letter);
        self(self, word, length - 1);
        word.pop_back();
      }
    };
    Word word;
    for_words(for_words, word, 3);
  }
  EXPECT_GT(compared, 1000u);
}

TEST(alphabet, refuses_what_is_no_event_and_no_rank) {
  for (const char* text : {"backwards", "step@2", "step@", "no_sync@0", "", "@1"}) EXPECT_FALSE(letter_from(text, 2, "--alphabet").ok()) << text;
  EXPECT_NE(letter_from("backwards", 2, "--alphabet").error().message.find("did you mean \"backward\""), std::string::npos);
}

TEST(alphabet, has_eight_events_by_default_and_words_that_frameworks_refuse_have_no_script) {
  ExploreOptions options = world_of(**variant_named("zero0", ""), 4);
  ASSERT_EQ(options.alphabet.size(), 8u);
  const auto calls = search_space_of(options.world).calls(options.world);
  EXPECT_TRUE(script_of(options.alphabet, {6, 0, 7, 1}, *calls));  // no_sync backward end step
  EXPECT_FALSE(script_of(options.alphabet, {6, 1}, *calls));       // a step inside
  EXPECT_FALSE(script_of(options.alphabet, {7}, *calls));          // an end of nothing
  EXPECT_FALSE(script_of(options.alphabet, {6, 6}, *calls));       // a block in a block
}

}  // namespace
}  // namespace gradledger::testing
