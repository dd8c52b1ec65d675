// A file with several mistakes is told all of them, in the order of its text and within bounds.
#include <algorithm>

#include <gtest/gtest.h>

#include "sim/base/error_list.h"
#include "tests/scenario/documents.h"

namespace gradledger {
namespace {

using testing::TemporaryFolder;

std::vector<InputError> errors_in(const std::string& text) {
  std::vector<InputError> all;
  const auto read = read_scenario(text, ".", {}, &all);
  EXPECT_FALSE(read) << text;
  if (!read) {
    EXPECT_EQ(read.error(), all.front());
  }
  return all;
}

std::vector<std::string> places_in(const std::string& text) {
  std::vector<std::string> out;
  for (const InputError& error : errors_in(text)) out.push_back(error.where);
  return out;
}

using Places = std::vector<std::string>;

constexpr const char* five_mistakes = R"({
  "name": "five",
  "world_sise": 2,
  "parameters": [{"name": "w", "numel": -4}],
  "engine": {"framework": "deepspeed", "config": {"zero_optimization": {"stage": 7, "overlap_com": true}}},
  "script": [{"backward": {}}, {"stepp": {}}]
})";

TEST(a_file_with_five_mistakes, is_told_each_of_them_once_and_in_order) {
  EXPECT_EQ(places_in(five_mistakes),
            (Places{"/world_sise", "/parameters/0/numel", "/engine/config/zero_optimization/stage", "/engine/config/zero_optimization/overlap_com", "/script/1/stepp"}));
}

TEST(a_file_with_five_mistakes, is_told_line_and_column_of_each) {
  const TemporaryFolder folder;
  const std::string file = folder.write("a.json", five_mistakes);
  std::vector<InputError> all;
  ASSERT_FALSE(load_scenario(file, {}, &all));
  ASSERT_EQ(all.size(), 5u);
  EXPECT_TRUE(all[0].text().starts_with(file + ":3:17: /world_sise: is not a key that is known here")) << all[0].text();
  EXPECT_TRUE(all[2].text().starts_with(file + ":5:82: /engine/config/zero_optimization/stage: is 7; expected ")) << all[2].text();
  EXPECT_TRUE(all[4].text().ends_with("did you mean \"step\"?")) << all[4].text();
}

TEST(what_a_schema_cannot_say, is_told_beside_what_it_says) {
  const auto document = testing::json::parse(R"({
    "name": "s", "note": 5, "world_size": 2, "covers": ["catalogue-1", "catalogue-1"],
    "parameters": [{"name": "w", "numel": 4}, {"name": "w", "numel": 4}],
    "engine": {"framework": "deepspeed", "config": {"train_batch_size": 3}},
    "contract": {"window": "sometimes"}, "expect": {"memory": [{"rank": 9, "peak": 1}, {"rank": 1}]},
    "script": [{"step": {}}]})");
  // The engine needs the parameters, and the script both; nothing is said of them that does not stand for itself.
  std::vector<std::string> sorted = places_in(document.dump());
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(sorted, (Places{"/contract/window", "/expect/memory/0/rank", "/expect/memory/1", "/note", "/parameters/1/name"}));
}

TEST(events_of_a_script, are_each_looked_at) {
  EXPECT_EQ(places_in(testing::small_document_with("/script", testing::json::parse(R"([
              {"backward": {"uses": ["x"]}}, {"repeat": {"times": 2, "of": [{"clip": {"max_norm": 1, "norm_over": "nobody"}}, {"backward": {"ranks": [7]}}]}}, {"step": {}}])"))
                          .dump()),
            (Places{"/script/0/backward/uses/0", "/script/1/repeat/of/0/clip/norm_over", "/script/1/repeat/of/1/backward/ranks/0"}));
}

// What a schema cannot say of an event waits for no other event.
TEST(events_of_a_script, are_looked_at_beside_events_that_the_schema_refuses) {
  EXPECT_EQ(places_in(testing::small_document_with("/script", testing::json::parse(R"([
              {"stepp": {}},
              {"backward": {"uses": ["x"]}},
              {"backward": {"uses": ["x"], "micro_batches": 0}},
              {"repeat": {"times": 0, "of": [{"backward": {"ranks": [7]}}]}},
              {"repeat": {"times": 2, "of": [{"backward": {"ranks": [7]}}, {"set_boundary": 3}, {"no_sync": [{"backward": {"ranks": [8]}}, 5]}]}},
              {"overflow": {"micro_batch": 0, "rank": 9}},
              {"step": {}}])"))
                          .dump()),
            (Places{"/script/0/stepp", "/script/1/backward/uses/0", "/script/2/backward/micro_batches", "/script/3/repeat/times", "/script/4/repeat/of/0/backward/ranks/0",
                    "/script/4/repeat/of/1/set_boundary", "/script/4/repeat/of/2/no_sync/0/backward/ranks/0", "/script/4/repeat/of/2/no_sync/1", "/script/5/overflow/rank"}));
}

TEST(keys_that_appear_twice, do_not_hide_what_else_is_wrong) {
  EXPECT_EQ(places_in(R"({"name": "a", "name": "b", "world_size": 0, "parameters": [{"name": "w", "numel": 4, "numel": 5}],
    "engine": {"framework": "deepspeed", "config": {}}, "script": [{"step": {}}]})"),
            (Places{"/name", "/world_size", "/parameters/0/numel"}));
}

TEST(a_script_and_a_release_that_are_wrong, are_both_told) {
  auto document = testing::small_document_with("/engine/as_of", "0.18.99x");
  document["expect"]["not_allocated"] = {"no such buffer"};
  const Places places = places_in(document.dump());
  EXPECT_EQ(places, Places{"/engine/as_of"}) << "what engines allocate is known of a release alone";
}

TEST(errors, are_told_up_to_a_number_and_counted_up_to_another) {
  const auto all_told = [](std::size_t wrong) {
    auto document = testing::small_document();
    document["source"] = testing::json::array();
    for (std::size_t i = 0; i < wrong; ++i) document["script"].push_back({{"no_such_event", i}});
    const TemporaryFolder folder;
    std::vector<InputError> all;
    EXPECT_FALSE(load_scenario(folder.write("a.json", document.dump()), {}, &all));
    return all;
  };
  EXPECT_EQ(all_told(20).size(), 20u);
  const auto some = all_told(33);
  ASSERT_EQ(some.size(), 21u);
  EXPECT_EQ(some.back().message, "13 more errors are not told");
  EXPECT_EQ(all_told(21).back().message, "1 more error is not told");
  EXPECT_EQ(all_told(5000).back().message, "at least 980 more errors are not told");
}

TEST(python_s_words, get_the_word_of_json) {
  EXPECT_TRUE(errors_in(testing::small_document_with("/engine/config/prescale_gradients", "True").dump()).front().message.ends_with("; did you mean true?"));
}

TEST(a_configuration_of_an_external_framework, may_have_an_optimizer_of_any_form) {
  for (const char* optimizer : {"7", "\"adamw\"", R"({"type": 3})"}) {
    const auto read = read_scenario(std::string(R"({"name": "x", "world_size": 2, "parameters": [{"name": "w", "numel": 4}], "script": [{"backward": {}}, {"step": {}}],
        "engine": {"framework": "external", "config": {"optimizer": )") +
                                        optimizer + "}}}",
                                    ".");
    ASSERT_TRUE(read) << read.error().text();
    EXPECT_EQ(read->engine.optimizer, OptimizerConfig{});
  }
}

}  // namespace
}  // namespace gradledger
