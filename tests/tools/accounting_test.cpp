// replay --accounting: what it prints, of scenarios of any size, and that it judges nothing.
#include "tests/tools/command.h"

namespace gradledger::testing {
namespace {

// 1 GiB of bf16 gradients on each of two ranks: a judgement would need 200 times as much.
const char* const large = R"({"name": "large", "world_size": 2, "parameters": [{"name": "w", "numel": 536870912}], "model_dtype": "bf16",
  "engine": {"framework": "deepspeed", "config": {"zero_optimization": {"stage": 1, "contiguous_gradients": false}}},
  "script": [{"no_sync": [{"backward": {"micro_batches": 2}}]}, {"backward": {}}, {"step": {}}]})";

TEST(replay_accounting, accounts_for_what_is_too_large_to_be_judged) {
  const TemporaryFolder folder;
  const std::string file = folder.write("large.json", large);
  expect_complaint(run({"replay", file, "--executor", "numeric"}), 4, "--accounting");
  const Outcome outcome = run({"replay", file, "--accounting"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const std::vector<std::string> lines = lines_of(outcome.out);
  EXPECT_EQ(lines.at(0), "# gradledger replay " + file + " --seed 0 --accounting");
  EXPECT_NE(outcome.out.find("nothing is judged"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("boundary    sends   1 all_reduce of 536870912 elements of bf16 in all, 1024 MiB (gradient)"), std::string::npos) << outcome.out;
}

TEST(replay_accounting, judges_nothing) {
  const Outcome outcome = run({"replay", leaking_scenario, "--accounting"});
  EXPECT_EQ(outcome.code, 0) << "replay without it finds a boundary-leak";
  EXPECT_EQ(outcome.out.find("boundary-leak:"), std::string::npos);
  expect_complaint(run({"replay", leaking_scenario, "--accounting", "--ledger"}), 2, "--ledger");
  expect_complaint(run({"replay", leaking_scenario, "--accounting", "--trace", "t"}), 2, "--trace");
}

TEST(replay_accounting, has_the_same_numbers_as_json) {
  const TemporaryFolder folder;
  const std::string file = folder.write("large.json", large);
  const json report = testing::record_of(run({"replay", file, "--accounting", "--json"}));
  constexpr std::uint64_t gib = 1ull << 30;
  const json& window = report["ranks"].at(1)["windows"].at(0);
  EXPECT_EQ(window["accumulate"]["device"]["resident"]["gradients"], gib);
  EXPECT_EQ(window["boundary"]["device"]["peak"]["gradient memory"], 2 * gib);
  EXPECT_EQ(window["boundary"]["collectives"].at(0)["bytes"], gib);
  EXPECT_EQ(report["ranks"].at(0)["start"]["device"]["weights"], gib);
  EXPECT_EQ(report["row"]["mode"], "no_sync");
  EXPECT_EQ(report["row"]["resident_window_bytes"], gib);
  EXPECT_TRUE(testing::record_of(run({"replay", file, "--accounting", "--json", "--summary"}))["ranks"].empty());
}

TEST(replay_accounting, goes_on_with_the_next_file_after_one_that_is_bad_input) {
  const TemporaryFolder folder;
  const std::string file = folder.write("large.json", large), missing = (folder.path() / "missing.json").string();
  const Outcome outcome = run({"replay", missing, file, "--accounting", "--summary"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("missing.json"), std::string::npos);
  const std::vector<std::string> lines = lines_of(outcome.out);
  ASSERT_GE(lines.size(), 3u);
  EXPECT_EQ(lines[0], "# gradledger replay " + missing + " " + file + " --seed 0 --accounting --summary");
  EXPECT_TRUE(lines[2].starts_with("Z1")) << lines[2];
}

TEST(replay_accounting, does_not_take_more_memory_than_it_may) {
  const TemporaryFolder folder;
  const std::string file = folder.write("long.json", R"({"name": "long", "world_size": 2, "parameters": [{"name": "w", "numel": 4}],
    "engine": {"framework": "deepspeed", "config": {}}, "script": [{"repeat": {"times": 2000, "of": [{"backward": {}}, {"step": {}}]}}]})");
  expect_complaint(run({"replay", file, "--accounting", "--memory-limit", "1mb"}), 4, "/script");
}

// ---- the table of DeepSpeed#7992 --------------------------------------------------------------------------------------------------------

// As published, MiB: 8 layers of 4096 x 4096 in bf16 on 2 ranks. A peak of 0 is not derivable from a scenario.
struct PublishedRow {
  const char* file;
  const char* mode;
  std::uint32_t stage;
  std::uint64_t peak, window, flush;
  bool collectives_grow;  // with the number of backwards; else 1
  const char* kind;
};

const PublishedRow published[] = {
    {"stage-1-baseline", "baseline", 1, 512, 128, 128, false, "all_reduce"},    {"stage-1-no-sync", "no_sync", 1, 0, 256, 128, false, "all_reduce"},
    {"stage-1-coalesce", "coalesce", 1, 0, 256, 128, false, "all_reduce"},      {"stage-2-coalesce", "coalesce", 2, 0, 256, 128, false, "all_reduce"},
    {"stage-3-coalesce", "coalesce", 3, 0, 384, 128, false, "reduce_scatter"},  {"stage-2-baseline", "baseline", 2, 640, 128, 128, true, "all_reduce"},
    {"stage-3-baseline", "baseline", 3, 640, 128, 128, true, "reduce_scatter"},
};

TEST(the_table_of_7992, is_what_the_program_counts) {
  constexpr std::uint64_t mebibyte = 1u << 20, gradient = 256 * mebibyte;
  for (const PublishedRow& row : published)
    for (std::uint64_t backwards : {2u, 4u, 8u}) {
      const std::string name = row.file + ("-" + std::to_string(backwards));
      const json report = testing::record_of(run({"replay", "--accounting", "--json", (testing::source_folder / "scenarios/deepspeed-7992" / (name + ".json")).string()}));
      const json& counted = report["row"];
      EXPECT_EQ(counted["stage"], row.stage) << name;
      EXPECT_EQ(counted["mode"], row.mode) << name;
      EXPECT_EQ(counted["backwards"], backwards) << name;
      EXPECT_EQ(counted["resident_window_bytes"], row.window * mebibyte) << name;
      EXPECT_EQ(counted["resident_flush_bytes"], row.flush * mebibyte) << name;
      const std::uint64_t collectives = row.collectives_grow ? backwards : 1;
      EXPECT_EQ(counted["gradient_collectives"], collectives) << name;
      EXPECT_EQ(counted["gradient_bytes"], collectives * gradient) << name;
      if (row.peak > 0) {
        EXPECT_EQ(counted["peak_window_bytes"], row.peak * mebibyte) << name;
      }
      if (name.starts_with("stage-3-coalesce")) {
        EXPECT_EQ(counted["peak_flush_bytes"], 640 * mebibyte) << "published as the peak of the window";
      }
      for (const json& sent : report["ranks"].at(0)["windows"].at(0)["boundary"]["collectives"])
        if (sent["purpose"] == "gradient") {
          EXPECT_EQ(sent["kind"], row.kind) << name;
        }
    }
}

TEST(the_table_of_7992, is_printed_with_what_no_scenario_says_left_open) {
  const std::string folder = (testing::source_folder / "scenarios/deepspeed-7992/").string();
  const Outcome outcome = run({"replay", "--accounting", "--summary", folder + "stage-1-baseline-4.json", folder + "stage-1-no-sync-4.json"});
  const std::vector<std::string> lines = lines_of(outcome.out);
  ASSERT_EQ(lines.size(), 5u) << outcome.out;
  EXPECT_TRUE(lines[2].starts_with("Z1     baseline ")) << lines[2];
  EXPECT_EQ(lines[2].find('T'), std::string::npos) << lines[2];
  EXPECT_NE(lines[3].find("256 MiB + T"), std::string::npos) << lines[3];
  EXPECT_TRUE(lines[4].starts_with("T: ")) << lines[4];
}

// ---- expectations -----------------------------------------------------------------------------------------------------------------------

// What the gate says of the large scenario above with these expectations.
std::string unmet(const char* expect, const char* script = nullptr) {
  const TemporaryFolder folder;
  json document = json::parse(large);
  document["expect"] = json::parse(expect);
  if (script) document["script"] = json::parse(script);
  const Outcome outcome = run({"gate", folder.write("large.json", document.dump())});
  const std::vector<std::string> lines = lines_of(outcome.out);
  EXPECT_EQ(outcome.code, lines.size() > 3 ? 1 : 0) << outcome.out << outcome.err;
  if (lines.size() <= 3) return "";
  // "        FILE:LINE:COLUMN: what": without its place.
  EXPECT_NE(lines[2].find("large.json:1:"), std::string::npos) << lines[2];
  return lines[2].substr(lines[2].find(": ") + 2);
}

TEST(gate, holds_a_scenario_of_any_size_against_the_bytes_that_it_expects) {
  EXPECT_EQ(unmet(R"({"accounting_only": true, "collectives": {"gradient": {"at_most_per_step": 1, "bytes_per_step": 1073741824}},
    "memory": [{"phase": "boundary", "peak": 2147483648, "at_most_resident": 1073741824}, {"of": "accumulators", "space": "host", "peak": 0}]})"),
            "");
  EXPECT_EQ(unmet(R"({"accounting_only": true, "collectives": {"gradient": {"at_most_bytes_per_step": 1073741823}}})"),
            "rank 0 sends 1073741824 bytes in gradient collectives in step 0, expected at most 1073741823");
  EXPECT_EQ(unmet(R"({"accounting_only": true, "collectives": {"gradient": {"bytes_per_step": 1073741823}}})"),
            "rank 0 sends 1073741824 bytes in gradient collectives in step 0, expected 1073741823");
  EXPECT_EQ(unmet(R"({"accounting_only": true, "collectives": {"gradient": {"per_step": 2}}})"), "rank 0 issues 1 gradient collectives in step 0, expected 2");
  EXPECT_EQ(unmet(R"({"accounting_only": true, "memory": [{"phase": "boundary", "resident": 1}]})"),
            "rank 0 holds 1073741824 bytes of gradient memory on the device in step 0, phase boundary, expected 1");
  EXPECT_EQ(unmet(R"({"accounting_only": true, "memory": [{"rank": 1, "of": "weights", "at_most_peak": 1}]})"),
            "rank 1 holds at its peak 1073741824 bytes of weights on the device in step 0, expected at most 1");
  EXPECT_EQ(unmet(R"({"accounting_only": true, "memory": [{"phase": "between", "peak": 0, "space": "host"}]})"), "");
  EXPECT_EQ(unmet(R"({"accounting_only": true, "memory": [{"phase": "accumulate", "peak": 0, "space": "host"}]})", R"([{"set_boundary": true}, {"backward": {}}, {"step": {}}])"),
            "no closed window has the phase accumulate");
  EXPECT_EQ(unmet(R"({"accounting_only": true, "collectives": {"gradient": {"bytes_per_step": 0}}})", R"([{"backward": {}}])"),
            "no window is closed by a step, so there is nothing to count");
  EXPECT_EQ(unmet(R"({"accounting_only": true, "not_allocated": ["flattened_bucket"]})"), "flattened_bucket is allocated, expected it not to be");
}

// Without the word, what is too large to be judged is not passed over in silence.
TEST(gate, judges_unless_the_scenario_says_otherwise) {
  const TemporaryFolder folder;
  json document = json::parse(large);
  document["expect"] = {{"memory", {{{"peak", 1}, {"of", "scalars"}}}}};
  const Outcome outcome = run({"gate", folder.write("large.json", document.dump()), "--executor", "numeric"});
  EXPECT_EQ(outcome.code, 4) << outcome.out;
  document["parameters"][0]["numel"] = 8;
  document["expect"]["memory"][0] = {{"phase", "boundary"}, {"resident", 15}};
  const Outcome judged = run({"gate", folder.write("small.json", document.dump())});
  EXPECT_EQ(judged.code, 1);
  EXPECT_NE(judged.out.find("rank 0 holds 16 bytes of gradient memory on the device in step 0, phase boundary, expected 15"), std::string::npos) << judged.out;
}

}  // namespace
}  // namespace gradledger::testing
