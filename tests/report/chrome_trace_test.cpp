// The rules of the Trace Event Format, as Perfetto's importer keeps them.
#include "report/chrome_trace.h"

#include <map>
#include <set>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace gradledger::testing {
namespace {

using nlohmann::json;
using report::Lanes;

// Two ranks that meet in one collective, rank 1 two units later, and a race on rank 0.
Lanes lanes_by_hand() {
  Lanes out;
  out.events = {{"backward of micro-batch 0", 0}, {"step", 0}};
  out.ranks.resize(2);
  for (std::uint32_t r = 0; r < 2; ++r) {
    const std::uint64_t late = 2 * r;
    out.ranks[r] = {{OpKind::deposit, Stream::compute, 0, 3, false, 0, 1, {}},
                    {OpKind::copy, Stream::compute, 0, 4, false, 1, 2, {}},
                    {OpKind::collective, Stream::communication, 0, 5, false, 1 + late, 4, 0},
                    {OpKind::sgd, Stream::compute, 1, 9, false, 4, 5, {}}};
  }
  out.meetings = {{"all_reduce sum of 4 bf16", Purpose::gradient, {{0, 2}, {1, 2}}, true}};
  RaceRecord race;
  race.rank = 0;
  race.buffer = "bucket";
  race.first = {"copy", "compute", 0, 4};
  race.second = {"all_reduce", "communication", 0, 5};
  out.races = {race};
  out.end = 5;
  return out;
}

json trace_of(const Lanes& lanes) { return json::parse(report::chrome_trace(lanes, "gradledger replay a.json")); }

std::vector<json> events_of(const json& trace, const std::string& phase) {
  std::vector<json> out;
  for (const json& event : trace["traceEvents"])
    if (event["ph"] == phase) out.push_back(event);
  return out;
}

TEST(chrome_trace, names_every_process_and_thread_that_has_a_slice) {
  const json trace = trace_of(lanes_by_hand());
  std::set<json> processes, threads;
  for (const json& event : events_of(trace, "M")) {
    if (event["name"] == "process_name") processes.insert(event["pid"]);
    else threads.insert(json{event["pid"], event["tid"]});
  }
  EXPECT_EQ(processes.size(), 2u);
  ASSERT_FALSE(events_of(trace, "X").empty());
  for (const json& event : events_of(trace, "X")) {
    EXPECT_TRUE(processes.contains(event["pid"]));
    EXPECT_TRUE(threads.contains(json{event["pid"], event["tid"]})) << event;
  }
}

TEST(chrome_trace, has_slices_of_a_thread_inside_or_behind_each_other) {
  std::map<json, std::vector<std::uint64_t>> open;  // by thread: ends of the slices that are open
  std::uint64_t before = 0;
  for (const json& event : events_of(trace_of(lanes_by_hand()), "X")) {
    const std::uint64_t begin = event["ts"], end = begin + event["dur"].get<std::uint64_t>();
    EXPECT_GE(begin, before) << "sorted";
    before = begin;
    EXPECT_GT(end, begin);
    std::vector<std::uint64_t>& stack = open[json{event["pid"], event["tid"]}];
    while (!stack.empty() && stack.back() <= begin) stack.pop_back();
    if (!stack.empty()) EXPECT_LE(end, stack.back()) << event;
    stack.push_back(end);
  }
  EXPECT_EQ(open.size(), 4u);
}

TEST(chrome_trace, joins_the_ranks_of_a_collective_by_a_flow_that_starts_once_and_ends_once) {
  const json trace = trace_of(lanes_by_hand());
  const auto starts = events_of(trace, "s"), ends = events_of(trace, "f");
  ASSERT_EQ(starts.size(), 1u);
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(starts[0]["id"], ends[0]["id"]);
  EXPECT_EQ(starts[0]["pid"], 0);
  EXPECT_EQ(ends[0]["pid"], 1);
  EXPECT_EQ(ends[0]["bp"], "e");
  EXPECT_LE(starts[0]["ts"].get<std::uint64_t>(), ends[0]["ts"].get<std::uint64_t>());
  for (const json& flow : {starts[0], ends[0]}) {
    const auto slices = events_of(trace, "X");
    EXPECT_TRUE(std::any_of(slices.begin(), slices.end(), [&](const json& slice) {
      return slice["pid"] == flow["pid"] && slice["tid"] == flow["tid"] && slice["ts"] == flow["ts"] && slice["cat"] == "collective";
    })) << flow;
  }
}

TEST(chrome_trace, joins_nothing_where_a_rank_is_alone) {
  Lanes lanes = lanes_by_hand();
  lanes.meetings[0].members.pop_back();
  EXPECT_TRUE(events_of(trace_of(lanes), "s").empty());
  EXPECT_TRUE(events_of(trace_of(lanes), "f").empty());
}

TEST(chrome_trace, marks_both_operations_of_a_race) {
  const auto marks = events_of(trace_of(lanes_by_hand()), "i");
  ASSERT_EQ(marks.size(), 2u);
  EXPECT_NE(marks[0]["tid"], marks[1]["tid"]);
  EXPECT_EQ(marks[0]["s"], "t");
}

TEST(chrome_trace, says_that_there_is_no_clock) { EXPECT_NE(trace_of(lanes_by_hand())["otherData"]["time"].get<std::string>().find("no clock"), std::string::npos); }

}  // namespace
}  // namespace gradledger::testing
