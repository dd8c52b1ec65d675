// What a loop states of itself: weights as fractions, windows, tokens, groups, and what is refused of them.
#include <gtest/gtest.h>

#include "sim/base/rational.h"
#include "tests/scenario/documents.h"

namespace gradledger {
namespace {

using testing::expect_refused;
using testing::json;
using testing::small_document;

// Two ranks, two micro-batches each, with tokens 3 and 5, 6 and 0; the loop weighs its losses by a formula.
json weighed(const json& weight, const json& divide_by = "tokens") {
  json document = small_document();
  document["tokens"] = {{"table", {{{3, 5}, {6, 0}}}}};
  document["contract"]["divide_by"] = divide_by;
  for (const int at : {0, 2}) document["script"][at]["backward"]["weight"] = weight;
  return document;
}

Timeline timeline_of(const json& document) {
  const auto scenario = testing::read(document);
  EXPECT_TRUE(scenario) << (scenario ? "" : scenario.error().text());
  auto timeline = make_timeline(*scenario);
  EXPECT_TRUE(timeline) << (timeline ? "" : timeline.error().text());
  return std::move(timeline).value();
}

std::vector<std::string> dues(const json& document) {
  std::vector<std::string> out;
  for (const Backward& b : timeline_of(document).backwards)
    for (const Rational& due : b.due) out.push_back(text_of(due));
  return out;
}

std::vector<std::string> documented(const json& document) {
  std::vector<std::string> out;
  for (const Backward& b : timeline_of(document).backwards)
    for (const Rational& weight : b.weight) out.push_back(text_of(weight));
  return out;
}

using Texts = std::vector<std::string>;

TEST(a_loop, has_weights_that_the_contract_asks_for_whatever_it_multiplies_by) {
  EXPECT_EQ(dues(weighed("1/3")), (Texts{"3/14", "3/7", "5/14", "0"}));
  EXPECT_EQ(dues(weighed("1/3", "tokens_of_rank")), (Texts{"3/16", "1/2", "5/16", "0"}));
  EXPECT_EQ(dues(weighed("1/3", "window")), (Texts{"1/4", "1/4", "1/4", "1/4"}));
  EXPECT_EQ(dues(weighed("1/3", 5)), (Texts{"1/10", "1/10", "1/10", "1/10"}));
}

TEST(a_loop, has_weights_that_the_framework_gives_what_it_is_told) {
  EXPECT_EQ(documented(weighed("1/3")), (Texts{"1/6", "1/6", "1/6", "1/6"}));
  EXPECT_EQ(documented(weighed(0.1)), (Texts{"1/20", "1/20", "1/20", "1/20"}));
  EXPECT_EQ(documented(weighed("world*tokens/tokens_of_window")), (Texts{"3/14", "3/7", "5/14", "0"}));
  EXPECT_EQ(documented(weighed("tokens/tokens_of_rank")), (Texts{"3/16", "1/2", "5/16", "0"}));
  EXPECT_EQ(documented(weighed({"1/3", 2})), (Texts{"1/6", "1", "1/6", "1"}));
  json unscaled = weighed("1/3");
  unscaled["script"][0]["backward"]["scale_wrt_gas"] = false;
  EXPECT_EQ(documented(unscaled), (Texts{"1/3", "1/3", "1/6", "1/6"}));
}

TEST(a_loop, has_windows_where_it_marks_them_beside_those_of_the_engine) {
  json document = small_document();
  document["contract"] = {{"window", "marked"}};
  document["script"] = json::parse(R"([{"backward": {}}, {"step": {}}, {"backward": {}}, {"step": {}}, {"backward": {}}, {"step": {"update": true}}])");
  const Timeline timeline = timeline_of(document);
  std::vector<std::uint32_t> meant, engine;
  for (const Backward& b : timeline.backwards) {
    meant.push_back(b.step);
    engine.push_back(b.documented);
  }
  EXPECT_EQ(meant, (std::vector<std::uint32_t>{0, 0, 0}));
  EXPECT_EQ(engine, (std::vector<std::uint32_t>{0, 0, 1}));
}

TEST(a_loop, that_weighs_without_a_contract_is_refused) {
  json document = weighed("1/3");
  document["contract"].erase("divide_by");
  expect_refused(document, "/contract", "does not say what a contribution is due to weigh");
  document = small_document();
  document["script"].push_back({{"scale_gradients", {{"by", 2}}}});
  expect_refused(document, "/contract", "expected \"divide_by\"");
}

TEST(a_formula, that_cannot_be_read_is_refused_where_it_stands) {
  const auto refused = [](const json& weight, const std::string& message) { expect_refused(weighed(weight), "/script/0/backward/weight", message); };
  refused("tokens/", "ends where a factor is expected");
  refused("token", "which is no count; did you mean \"tokens\"?");
  refused("2 tokens", "where * or / is expected");
  refused("tokens_of", "without its group in brackets");
  refused("tokens_of(nobody)", "names \"nobody\", which is no group; expected one of world, rank, dp");
  refused("4294967296", "has a number above 2147483647");
  refused("1*1*1*1*1*1*1*1*1*1*1*1*1*1*1*1*1", "has more than 16 factors");
  refused("1/0", "divides by 0");
  refused("2147483647*2147483647*2147483647", "makes a weight of more than 62 bits");
  refused(0.000000000001, "is no quotient of numbers up to 2147483647");
  refused({1, 2, 3}, "has 3 entries; expected one for each of 2 ranks");
  expect_refused(weighed({1, {1, 2}}), "/script/0/backward/weight/1", "has 2 entries; expected one for each of 1 micro-batches");
}

TEST(tokens, that_do_not_fit_are_refused) {
  json document = weighed(1);
  document["tokens"] = {{"table", {{{3, 5}}}}};
  expect_refused(document, "/tokens/table/0", "has rows for 1 ranks; expected one for each of 2");
  document["tokens"] = {{"table", {{{3}, {6}}}}};
  expect_refused(document, "/tokens", "end before micro-batch 1 of rank 0 in window 0");
  document["tokens"] = 0;
  expect_refused(document, "/tokens", "are all 0 in window 0");
  document["tokens"] = {{"file", "nowhere.tokens.json"}};
  expect_refused(document, "/tokens/file", "nowhere.tokens.json");
  document.erase("tokens");
  expect_refused(document, "/contract/divide_by", "counts tokens, and the scenario states none");
  document = weighed("tokens", 3);
  document.erase("tokens");
  expect_refused(document, "/script/0/backward/weight", "counts tokens, and the scenario states none");
  document = weighed(1);
  document["script"].push_back({{"scale_gradients", {{"by", "1/tokens"}}}});
  expect_refused(document, "/script/4/scale_gradients/by", "counts the tokens of one micro-batch");
}

TEST(groups, that_overlap_or_leave_ranks_out_are_refused) {
  const auto refused = [](const char* name, const json& sets, const std::string& where, const std::string& message) {
    json document = small_document();
    document["groups"][name] = sets;
    expect_refused(document, where, message);
  };
  refused("half", {{0}}, "/groups/half", "has 1 of 2 ranks");
  refused("half", {{0, 1}, {1}}, "/groups/half/1", "has rank 1 again");
  refused("half", {{0, 2}}, "/groups/half/0", "has rank 2 of a world of 2");
  refused("world", {{0, 1}}, "/groups/world", "is no name for a group");
  refused("Half", {{0, 1}}, "/groups/Half", "is no name for a group");
}

TEST(groups, that_nobody_named_are_refused_wherever_they_are_asked_for) {
  json document = small_document();
  document["contract"]["average_over"] = "tensor";
  expect_refused(document, "/contract/average_over", "is \"tensor\", which is no group; expected one of world, rank, dp");
  document["contract"] = {{"clip", {{"norm_over", "tensor"}}}};
  expect_refused(document, "/contract/clip/norm_over", "which is no group");
  document = small_document();
  document["script"].push_back({{"clip", {{"max_norm", 1}, {"norm_over", "tensor"}}}});
  expect_refused(document, "/script/4/clip/norm_over", "which is no group");
  for (const char* framework : {"ddp", "fsdp1", "fsdp2", "megatron-fsdp", "megatron-fsdp-v2"}) {
    json wrapped{{"name", "a"}, {"world_size", 2}, {"parameters", {{{"name", "w"}, {"numel", 4}}}}, {"script", {{{"backward", json::object()}}, {{"step", json::object()}}}}};
    wrapped["engine"] = {{"framework", framework}, {"config", json::object()}, {"optimizer", {{"type", "SGD"}, {"lr", 1.0}}}};
    wrapped["contract"]["average_over"] = "tensor";
    expect_refused(wrapped, "/contract/average_over", "is \"tensor\", which is no group; expected one of world, rank");
    wrapped["contract"] = {{"clip", {{"norm_over", "tensor"}}}};
    expect_refused(wrapped, "/contract/clip/norm_over", "which is no group");
  }
  document = weighed(1);
  document["contract"]["average_over"] = "none";
  expect_refused(document, "/contract/average_over", "counts the window of all ranks");
}

TEST(a_mark, needs_windows_that_are_marked) {
  json document = small_document();
  document["script"][1]["step"]["update"] = true;
  expect_refused(document, "/script/1/step/update", "expected it with /contract/window \"marked\" alone");
  document["contract"] = {{"window", "marked"}};
  document["model_dtype"] = "fp16";
  document["script"].push_back({{"overflow", {{"micro_batch", 0}}}});
  document["script"].push_back({{"backward", json::object()}});
  expect_refused(document, "/contract/window", "whose window the framework decides");
}

// Two micro-batches in a window; a checkpoint behind the first, and what is not in it runs again.
json resumed(const json& script) {
  json document = small_document();
  document["script"] = script;
  return document;
}
const json a_backward = {{"backward", json::object()}}, a_step = {{"step", json::object()}}, a_save = {{"save", json::object()}}, a_restore = {{"restore", json::object()}};

TEST(a_restored_checkpoint, needs_one_that_was_saved_in_the_open_window) {
  const char* what = "has no checkpoint to load; expected a save before it, and no step that updates between the two";
  expect_refused(resumed({a_backward, a_step, a_restore, a_backward, a_step}), "/script/2", what);
  expect_refused(resumed({a_save, a_backward, a_step, a_backward, a_step, a_restore}), "/script/5", what);
  EXPECT_TRUE(testing::read(resumed({a_backward, a_step, a_backward, a_step, a_save, a_restore, a_restore, a_backward, a_step, a_backward, a_step})));
}

TEST(a_restored_checkpoint, is_refused_inside_a_block) {
  expect_refused(resumed({a_save, {{"no_sync", {a_backward, a_restore}}}, a_backward, a_step}), "/script/1/no_sync/1",
                 "stands inside a block, which a new process is not in; expected it behind the block");
}

TEST(a_restored_checkpoint, lets_the_window_go_on_and_forgets_what_ran_since_it_was_saved) {
  const Timeline timeline = timeline_of(resumed({a_backward, a_step, a_save, a_backward, a_restore, a_backward, a_step, a_backward, a_step}));
  ASSERT_EQ(timeline.backwards.size(), 4u);
  const std::uint32_t step_that_updates = 8;
  EXPECT_FALSE(timeline.events[6].updates());  // the new engine counts from the start
  EXPECT_TRUE(timeline.events[step_that_updates].updates());
  EXPECT_EQ(timeline.backwards[0].step, timeline.backwards[3].step);
  for (std::uint32_t r : {0u, 1u}) {
    EXPECT_EQ(timeline.dropped_at[1][r], 4u);
    for (std::size_t kept : {0u, 2u, 3u}) EXPECT_GT(timeline.dropped_at[kept][r], step_that_updates) << kept;
    EXPECT_EQ(timeline.backwards[1].micro_batch[r], 1u);
  }
}

TEST(a_simplest_quotient, is_the_fraction_that_a_value_was) {
  for (std::int64_t q = 1; q < 200; ++q)
    for (std::int64_t p = 1; p < 60; ++p) {
      const double x = static_cast<double>(p) / static_cast<double>(q);
      EXPECT_EQ(simplest_within(x, x * 0x1p-50, 1 << 18), Rational(p, q));
    }
  EXPECT_EQ(simplest_within(0.0, 0.0, 10), Rational(0));
  EXPECT_EQ(simplest_within(-0.75, 0.0, 10), Rational(-3, 4));
  EXPECT_EQ(simplest_within(3.14159265358979, 1e-3, 1000), Rational(201, 64));  // no tolerance: the interval that is asked about
  EXPECT_EQ(simplest_within(1e300, 1e280, 1 << 30), std::nullopt);
  EXPECT_EQ(checked_product(Rational(std::int64_t{1} << 40, 3), Rational(std::int64_t{1} << 40, 5)), std::nullopt);
  EXPECT_EQ(checked_product(Rational(std::int64_t{1} << 40, 3), Rational(3, std::int64_t{1} << 40)), Rational(1));
}

}  // namespace
}  // namespace gradledger
