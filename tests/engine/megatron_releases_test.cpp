// Megatron-Core's releases: what moved in each, and that the audited data and the page say the same.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "ref/oracle.h"
#include "sim/frameworks/framework.h"
#include "sim/frameworks/megatron/behaviour.h"
#include "sim/frameworks/megatron/history.h"
#include "sim/frameworks/megatron/schedules.h"
#include "sim/load.h"
#include "sim/producers/producers.h"

namespace gradledger::megatron {
namespace {

using nlohmann::json;

json audited() {
  std::ifstream file(std::string(GRADLEDGER_SOURCE_DIR) + "/sim/frameworks/megatron/history/audited.json");
  return json::parse(file);
}

TEST(megatron_releases, move_the_switches_where_the_code_changed) {
  struct Move {
    const char *name, *last_before, *before, *first, *value;
  };
  for (const Move& m : {Move{"divides_by_context", "0.8.0", "no", "0.9.0", "yes"},
                        {"groups_of_any_size", "0.9.0", "no", "0.10.0", "yes"},
                        {"skips_nan_check", "0.9.0", "no", "0.10.0", "yes"},
                        {"skips_nan_check", "0.11.0", "yes", "0.12.0", "no"},
                        {"refuses_average_of_instances", "0.10.0", "yes", "0.11.0", "no"},
                        {"checks_by_rerun", "0.11.0", "no", "0.12.0", "yes"},
                        {"counts_zeros", "0.12.3", "yes", "0.13.0", "no"},
                        {"norm_of_instance", "0.12.3", "no", "0.13.0", "yes"},
                        {"keeps_bucket_start", "0.12.3", "yes", "0.13.0", "no"},
                        {"optimizers_of_all", "0.13.1", "no", "0.14.0", "yes"},
                        {"counts_ready", "0.15.3", "no", "0.16.0", "yes"},
                        {"remembers_finish", "0.17.1", "no", "0.18.0", "yes"}}) {
    EXPECT_EQ(history().switch_value({m.last_before, {}}, m.name), m.before) << m.name;
    EXPECT_EQ(history().switch_value({m.first, {}}, m.name), m.value) << m.name;
  }
  EXPECT_EQ(history().switch_value({"head", {}}, "nothing"), std::nullopt);
}

TEST(megatron_releases, are_told_apart_where_something_moved_and_nowhere_else) {
  const auto points = history().points();
  EXPECT_EQ(points, (std::vector<std::string>{"0.8.0", "0.9.0", "0.10.0", "0.11.0", "0.12.0", "0.13.0", "0.14.0", "0.15.0", "0.16.0", "0.17.0", "0.18.0", "0.19.0"}));
  const auto rows = history().release_rows();
  ASSERT_EQ(rows.size(), points.size());
  EXPECT_EQ(rows[5].releases, "0.13.0 to 0.13.1");
  EXPECT_EQ(rows[0].moves, "nothing");
  for (std::size_t i = 1; i < rows.size(); ++i) {
    EXPECT_NE(rows[i].moves, "nothing") << rows[i].releases;
    EXPECT_NE(history().behaviour_of({points[i], {}}), history().behaviour_of({points[i - 1], {}})) << points[i];
  }
  EXPECT_EQ(history().behaviour_of({"0.13.1", {}}), history().behaviour_of({"0.13.0", {}}));
  EXPECT_EQ(history().behaviour_of({"head", {}}), history().behaviour_of({"0.19.0", {}}));
  EXPECT_EQ(history().contains_all_of("0.16.1", "0.9.0"), true);
  EXPECT_EQ(history().contains_all_of("0.9.0", "head"), false);
  EXPECT_EQ(history().contains_all_of("0.7.0", "0.9.0"), std::nullopt);
}

TEST(megatron_history_data, has_every_release_with_its_patches_and_then_the_head) {
  std::vector<std::string> said;
  const json data = audited()["releases"];
  for (const json& release : data) {
    said.push_back(release["release"]);
    for (const json& patch : release.value("patches", json::array())) said.push_back(patch);
    EXPECT_EQ(release["commit"].get<std::string>().size(), 40u);
  }
  ASSERT_FALSE(said.empty());
  EXPECT_EQ(said.back(), "head");
  said.pop_back();
  EXPECT_EQ(said, std::vector<std::string>(compared_releases().begin(), compared_releases().end()));
}

// In both directions: what is modelled is what the tables have, at its release and by its change.
TEST(megatron_history_data, names_every_switch_at_its_release_and_its_change) {
  std::set<std::string> said, known;
  const json data = audited();
  for (const json& d : data["differences"]) {
    EXPECT_FALSE(d["functions"].empty()) << d;
    EXPECT_FALSE(d["title"].get<std::string>().empty()) << d;
    if (d["verdict"] == "modelled") {
      said.insert(d["release"].get<std::string>() + " " + d["switch"].get<std::string>());
      EXPECT_EQ(d["commit"].get<std::string>().size(), 40u) << d;
    } else {
      EXPECT_TRUE(d["verdict"] == "not modelled" || d["verdict"] == "relevant, missing") << d;
      EXPECT_FALSE(d["reason"].get<std::string>().empty()) << d;
    }
  }
  for (const SwitchInfo& info : switches()) {
    if (info.since.empty()) continue;
    known.insert(std::string(info.since) + " " + std::string(info.name));
    if (!info.until.empty()) known.insert(std::string(info.until) + " " + std::string(info.name));
  }
  EXPECT_EQ(said, known);
  for (const json& d : data["differences"])
    for (const SwitchInfo& info : switches()) {
      if (d["verdict"] != "modelled" || d["switch"] != info.name) continue;
      const std::string change(d["release"] == info.until ? info.ended_by : info.change), commit = d["commit"];
      const std::string named = change.substr(change.find_last_of(" #") + 1);
      EXPECT_TRUE(change.find('#') != change.npos || commit.starts_with(named)) << change << " " << commit;
    }
}

TEST(megatron_history_data, is_counted_by_the_page_about_it) {
  std::ifstream file(std::string(GRADLEDGER_SOURCE_DIR) + "/docs/history.md");
  const std::string all{std::istreambuf_iterator<char>(file), {}}, page = all.substr(all.find("\n## Megatron-Core\n"));
  std::map<std::string, std::size_t> counts{{"relevant, missing", 0}};
  const json data = audited();
  for (const json& d : data["differences"]) ++counts[d["verdict"].get<std::string>()];
  counts["all"] = data["differences"].size();
  for (const auto& [verdict, count] : counts) EXPECT_NE(page.find("\n| " + verdict + " | " + std::to_string(count) + " |\n"), std::string::npos) << verdict << " " << count;
}

// In 0.10 and 0.11 the state machine is asked and does nothing: the step applies NaN, which nothing documents a bf16 loop to keep out.
TEST(megatron_releases, raise_at_nan_where_the_check_is_made) {
  const auto raises = [](const char* release) {
    json document = json::parse(R"({"name": "a", "world_size": 2, "parameters": [{"name": "w", "numel": 4}], "model_dtype": "bf16",
        "engine": {"framework": "megatron", "config": {"ddp": {"check_for_nan_in_grad": true}}},
        "script": [{"zero_grad": "engine"}, {"overflow": {"micro_batch": 0, "value": "nan"}}, {"backward": {}}, {"event": {"name": "finalize_model_grads"}}, {"step": {}}]})");
    document["engine"]["as_of"] = release;
    const auto scenario = read_scenario(document.dump(), ".");
    EXPECT_TRUE(scenario) << scenario.error().text();
    const auto timeline = make_timeline(*scenario);
    const auto producer = make_producer(*scenario, *timeline);
    const ref::Verdict verdict = ref::judge(*scenario, *timeline, *producer, {});
    return std::any_of(verdict.findings.begin(), verdict.findings.end(), [](const ref::Finding& f) { return f.finding == ref::FindingClass::engine_error; });
  };
  EXPECT_TRUE(raises("0.9.0"));
  EXPECT_FALSE(raises("0.10.0"));
  EXPECT_FALSE(raises("0.11.0"));
  EXPECT_TRUE(raises("0.12.0"));
}

// ---- schedules --------------------------------------------------------------------------------------------------------------------------

using PassOf = ScheduledPass(const ScheduleOptions&, std::uint32_t stages, std::uint32_t number);

std::string order_of(ScheduleOptions schedule, std::uint32_t stages, PassOf* pass = scheduled_backward) {
  std::string out;
  for (std::uint32_t i = 0; i < schedule.backwards(); ++i) {
    const ScheduledPass at = pass(schedule, stages, i);
    out += (out.empty() ? "" : " ") + std::to_string(at.chunk) + ":" + std::to_string(at.micro_batch);
  }
  return out;
}

TEST(megatron_schedules, go_through_the_chunks_by_groups_of_micro_batches_and_the_last_chunk_first) {
  EXPECT_EQ(order_of({.num_microbatches = 3}, 4), "0:0 0:1 0:2");
  EXPECT_EQ(order_of({.num_microbatches = 4, .model_chunks = {{"a"}, {"b"}}}, 2), "1:0 1:1 0:0 0:1 1:2 1:3 0:2 0:3");
  EXPECT_EQ(order_of({.num_microbatches = 5, .model_chunks = {{"a"}, {"b"}}, .microbatch_group_size_per_vp_stage = 3}, 2), "1:0 1:1 1:2 0:0 0:1 0:2 1:3 1:4 0:3 0:4");
}

TEST(megatron_schedules, run_the_forwards_of_the_first_chunk_first) {
  EXPECT_EQ(order_of({.num_microbatches = 4, .model_chunks = {{"a"}, {"b"}}}, 2, scheduled_forward), "0:0 0:1 1:0 1:1 0:2 0:3 1:2 1:3");
}

}  // namespace
}  // namespace gradledger::megatron
