// What a rank tells of its streams, held against the order of its waits. Messages written by hand, as docs/driver-protocol.md has them.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "sim/base/limits.h"
#include "sim/producers/driver/rank_streams.h"

namespace gradledger::driver {
namespace {

using nlohmann::json;

// Stream 0 is "default stream", stream 1 "side_stream". Texts from 3 on: "copy_" at "a.py:1 f", "mul_" at "b.py:2 g", "c.py:3 h".
json message(const json& entries, const json& number = -1) {
  return {{"type", "streams"},
          {"number", number},
          {"texts", {"default stream", "side_stream", "copy_", "a.py:1 f", "mul_", "b.py:2 g", "c.py:3 h"}},
          {"streams", {1, 2}},
          {"entries", entries}};
}

const json allocated = {"allocate", 0, 64, 0, 7};
json written(int stream, int begin = 0, int end = 64, int buffer = 0) { return {"run", stream, 3, 4, json::array(), {{buffer, begin, end}}}; }
json read(int stream, int begin = 0, int end = 64, int buffer = 0) { return {"run", stream, 5, 6, {{buffer, begin, end}}, json::array()}; }

std::vector<RaceRecord> races(const json& entries) {
  RankStreams streams(1);
  const auto problem = streams.take(message(entries), no_event);
  EXPECT_FALSE(problem) << problem->text();
  return streams.races();
}

TEST(streams_of_a_rank, name_two_accesses_that_no_wait_orders_with_their_sites_streams_and_bytes) {
  RankStreams streams(1);
  ASSERT_FALSE(streams.take(message({allocated, written(0)}), no_event));
  ASSERT_FALSE(streams.take({{"type", "streams"}, {"number", 4}, {"entries", {read(1, 16, 32), {"name", 0, 2}}}}, 4));
  const auto found = streams.races();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].rank, 1u);
  EXPECT_EQ(found[0].event, 4u);
  EXPECT_EQ(found[0].buffer, "side_stream") << "the name that it was given later";
  EXPECT_EQ(found[0].begin, 16u);
  EXPECT_EQ(found[0].end, 32u);
  EXPECT_TRUE(found[0].in_bytes);
  EXPECT_EQ(found[0].first, (RacingOperation{"copy_", "default stream", no_event, 1, "a.py:1 f"}));
  EXPECT_EQ(found[0].second, (RacingOperation{"mul_", "side_stream", 4, 2, "b.py:2 g"}));
}

TEST(streams_of_a_rank, do_not_race_where_one_waits_in_whatever_way) {
  EXPECT_EQ(races({allocated, written(0), {"join", 0, 1}, read(1)}).size(), 1u) << "the wrong one waits";
  EXPECT_TRUE(races({allocated, written(0), {"join", 1, 0}, read(1)}).empty());
  EXPECT_TRUE(races({allocated, written(0), {"record", 0, 5}, {"wait", 1, 5}, read(1)}).empty());
  EXPECT_TRUE(races({allocated, written(0), {"synchronize"}, read(1)}).empty());
  EXPECT_TRUE(races({allocated, written(0), {"join", -1, 0}, read(1)}).empty()) << "the host waits before it goes on";
  EXPECT_TRUE(races({allocated, written(0), {"record", 0, 5}, {"wait", -1, 5}, read(1)}).empty());
  EXPECT_EQ(races({allocated, {"record", 0, 5}, written(0), {"wait", 1, 5}, read(1)}).size(), 1u) << "recorded before it was written";
  EXPECT_EQ(races({allocated, written(0), {"wait", 1, 5}, read(1)}).size(), 1u) << "an event that was never recorded";
}

TEST(streams_of_a_rank, race_in_the_bytes_alone_that_both_touch) {
  EXPECT_TRUE(races({allocated, written(0, 0, 32), written(1, 32, 64)}).empty());
  EXPECT_EQ(races({allocated, written(0, 0, 33), written(1, 32, 64)}).size(), 1u);
  EXPECT_TRUE(races({allocated, written(0), {"join", 1, 0}, read(0), read(1)}).empty()) << "two readers";
}

TEST(streams_of_a_rank, tell_memory_apart_that_was_freed_and_given_out_again) {
  const json again = {"allocate", 1, 64, 0, 7};
  EXPECT_TRUE(races({allocated, written(0), {"free", 0, 7}, again, written(0, 0, 64, 1)}).empty());
  // Read by another stream that the next owner's stream does not wait for.
  const json side_reads = {allocated, written(0), {"join", 1, 0}, read(1), {"free", 0, 7}, again};
  const auto found = races(side_reads);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].first.operation, "mul_");
  EXPECT_EQ(found[0].second.operation, "an allocation that may be given this memory, freed in c.py:3 h,");
  json waits = side_reads, recorded = side_reads, elsewhere = side_reads, early = side_reads;
  waits.insert(waits.begin() + 4, json{"join", 0, 1});
  EXPECT_TRUE(races(waits).empty());
  recorded.insert(recorded.begin() + 1, json{"keep", 0, 1});
  EXPECT_TRUE(races(recorded).empty()) << "record_stream";
  elsewhere[5][3] = 1;
  EXPECT_TRUE(races(elsewhere).empty()) << "the memory is another stream's";
  early.insert(early.begin() + 5, json{"join", 0, 1});
  EXPECT_TRUE(races(early).empty()) << "nothing was allocated before it waited";
}

TEST(streams_of_a_rank, name_a_pair_of_call_sites_once_and_not_too_many) {
  json entries = {allocated};
  for (int i = 0; i < 4; ++i) entries.insert(entries.end(), {written(0), written(1)});
  EXPECT_EQ(races(entries).size(), 2u) << "one for each order of the two";
  json texts = json::array(), many = {allocated};
  for (std::uint32_t i = 0; i < limits::races_reported_max + 5; ++i) {
    texts.push_back("d.py:" + std::to_string(i));
    many.insert(many.end(), {{"run", 0, 3, i + 8, json::array(), {{0, 0, 4}}}, {"run", 1, 3, i + 8, json::array(), {{0, 0, 4}}}, {"synchronize"}});
  }
  json told = message(many);
  told["texts"].insert(told["texts"].end(), texts.begin(), texts.end());
  RankStreams streams(0);
  ASSERT_FALSE(streams.take(told, no_event));
  EXPECT_EQ(streams.races().size(), limits::races_reported_max);
}

TEST(streams_of_a_rank, are_refused_with_the_place_of_what_cannot_be_read) {
  const std::vector<std::pair<json, std::string>> cases{
      {"run", "/entries/1"},
      {json::array(), "/entries/1"},
      {{"jump", 0}, "/entries/1/0"},
      {{"run", 0, 3, 4, json::array()}, "/entries/1"},
      {{"run", 7, 3, 4, json::array(), json::array()}, "/entries/1/1"},
      {{"run", -1, 3, 4, json::array(), json::array()}, "/entries/1/1"},
      {{"run", 0, 99, 4, json::array(), json::array()}, "/entries/1/2"},
      {{"run", 0, 3, "x", json::array(), json::array()}, "/entries/1/3"},
      {{"run", 0, 3, 4, 5, json::array()}, "/entries/1/4"},
      {{"run", 0, 3, 4, {{0, 0}}, json::array()}, "/entries/1/4/0"},
      {{"run", 0, 3, 4, {{9, 0, 1}}, json::array()}, "/entries/1/4/0/0"},
      {{"run", 0, 3, 4, json::array(), {{0, 8, 65}}}, "/entries/1/5/0"},
      {{"run", 0, 3, 4, json::array(), {{0, 8, 8}}}, "/entries/1/5/0"},
      {{"allocate", 5, 64, 0, 7}, "/entries/1/1"},
      {{"allocate", 1, 0, 0, 7}, "/entries/1/2"},
      {{"allocate", 1, 1ull << 32, 0, 7}, "/entries/1/2"},
      {{"allocate", 1, 64, 3, 7}, "/entries/1/3"},
      {{"free", 1, 7}, "/entries/1/1"},
      {{"keep", 0, 2}, "/entries/1/2"},
      {{"record", -1, 0}, "/entries/1/1"},
      {{"record", 0, stream_events_max}, "/entries/1/2"},
      {{"wait", 0, -1}, "/entries/1/2"},
      {{"join", 0, -1}, "/entries/1/2"},
      {{"synchronize", 0}, "/entries/1"},
      {{"name", 0, -1}, "/entries/1/2"},
  };
  for (const auto& [entry, where] : cases) {
    RankStreams streams(0);
    const auto problem = streams.take(message({allocated, entry}), no_event);
    ASSERT_TRUE(problem) << entry;
    EXPECT_EQ(problem->where, where) << entry << ": " << problem->message;
  }
  RankStreams freed(0);
  const auto problem = freed.take(message({allocated, {"free", 0, 7}, written(0)}), no_event);
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->text(), "/entries/2/5/0/0: allocation 0 was freed");
}

TEST(streams_of_a_rank, are_refused_where_the_message_is_of_another_time_or_has_too_much) {
  const auto where = [](const json& told, std::uint32_t event = no_event) {
    RankStreams streams(0);
    const auto problem = streams.take(told, event);
    return problem ? problem->where : "read";
  };
  const json good = message(json::array({allocated}));
  EXPECT_EQ(where(good), "read");
  EXPECT_EQ(where(good, 3), "/number");
  json other = good;
  other["colour"] = 1;
  EXPECT_EQ(where(other), "/colour");
  other = good;
  other["entries"] = 3;
  EXPECT_EQ(where(other), "/entries");
  other = good;
  other["texts"][2] = std::string(stream_text_length_max + 1, 'x');
  EXPECT_EQ(where(other), "/texts/2");
  other = good;
  other["texts"] = json(std::vector<std::string>(stream_texts_max, "x"));
  EXPECT_EQ(where(other), "/texts");
  other = good;
  other["streams"] = json(std::vector<int>(rank_streams_max + 1, 1));
  EXPECT_EQ(where(other), "/streams");
  other["streams"] = {1, 99};
  EXPECT_EQ(where(other), "/streams/1");
}

TEST(streams_of_a_rank, are_refused_where_memory_is_accessed_in_too_many_pieces) {
  json ranges = json::array();
  for (std::uint32_t i = 0; i < operation_ranges_max; ++i) ranges.push_back({0, 2 * i, 2 * i + 1});
  json entries = {{"allocate", 0, 1u << 26, 0, 7}};
  for (std::uint32_t k = 0; k <= stream_stretches_max / operation_ranges_max; ++k) {
    json moved = ranges;
    for (json& range : moved) range = {0, range[1].get<std::uint32_t>() + 2 * k * operation_ranges_max, range[2].get<std::uint32_t>() + 2 * k * operation_ranges_max};
    entries.push_back({"run", 0, 3, 4, json::array(), moved});
  }
  RankStreams streams(0);
  const auto problem = streams.take(message(entries), no_event);
  ASSERT_TRUE(problem);
  EXPECT_NE(problem->message.find("pieces"), std::string::npos) << problem->text();
}

}  // namespace
}  // namespace gradledger::driver
