// Files of every kind and name on the command line, and the command that repeats a run.
#include <sys/stat.h>

#include <cstdio>
#include <map>
#include <set>

#include "tests/support/sanitized.h"
#include "tests/support/schema_check.h"
#include "tests/tools/command.h"
#include "tools/gradledger/exit_codes.h"

namespace gradledger::testing {
namespace {

TEST(a_file, that_is_none_is_refused) {
  const TemporaryFolder folder;
  const std::string missing = folder.path() / "missing.json", pipe = folder.path() / "pipe", circle = folder.path() / "circle";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  std::filesystem::create_symlink("circle", circle);
  expect_complaint(run({"replay", missing}), tool::bad_input, missing + ": cannot be read: No such file or directory");
  expect_complaint(run({"replay", folder.path()}), tool::bad_input, "is a directory; expected a file");
  expect_complaint(run({"replay", pipe}), tool::bad_input, "is a device, a pipe or a socket; expected a regular file");
  expect_complaint(run({"replay", "/dev/zero"}), tool::bad_input, "is a device, a pipe or a socket; expected a regular file");
  expect_complaint(run({"replay", "/dev/stdin"}), tool::bad_input, "expected a regular file");
  expect_complaint(run({"replay", circle}), tool::bad_input, "Too many levels of symbolic links");
  expect_complaint(run({"replay", ""}), tool::bad_input, "cannot be read");
  expect_complaint(run({"replay", folder.write("empty.json", "")}), tool::bad_input, "empty.json:1:1: is not JSON from here on");
}

TEST(a_file, that_is_too_large_is_refused_unread) {
  const TemporaryFolder folder;
  const std::string path = folder.write("large.json", "");
  std::filesystem::resize_file(path, std::uintmax_t{1} << 40);
  expect_complaint(run({"replay", path}), tool::bad_input, "expected at most 67108864 bytes");
}

// The command that repeats a run is the first line of the report and the first field of the JSON one.
std::string repeat_command_of(const std::string& out) {
  const std::string before = "repeat with: ";
  for (const std::string& line : lines_of(out))
    if (line.starts_with(before)) return line.substr(before.size());
  ADD_FAILURE() << "no command in\n" << out;
  return "";
}

TEST(the_repeat_command, gives_the_same_report_for_a_file_of_any_name) {
  const TemporaryFolder folder;
  const std::string text = text_of(leaking_scenario);
  for (const std::string& name : std::vector<std::string>{"plain.json", "with space.json", "it's.json", "\"quoted\".json", "-leading.json", "--json", "$HOME `id` $(id).json",
                                                          "back\\slash.json", "new\nline.json", "tab\t.json", "*?[a].json", "caf\xc3\xa9.json", "no\xff\xfeutf8.json",
                                                          "no\xff"
                                                          "8 it's \\.json",
                                                          "~", "#comment", "a;b&c|d<e>f", "!x", "%s{}"}) {
    if (testing::sanitized && name.size() % 3 != 0) continue;
    SCOPED_TRACE(name);
    folder.write(name, text);
    const Outcome first = shell(
        "gradledger replay --seed 3 --summary -- " + std::string(name.starts_with('-') ? "./" : "") + "\"$(printf '" +
            [&] {
              std::string octal;
              for (unsigned char c : name) {
                char digits[8];
                std::snprintf(digits, sizeof digits, "\\%03o", c);
                octal += digits;
              }
              return octal;
            }() +
            "')\"",
        folder.path());
    EXPECT_EQ(first.code, tool::findings) << first.err;
    const std::string command = repeat_command_of(first.out);
    const Outcome again = shell(command, folder.path());
    EXPECT_EQ(again.code, tool::findings) << command << "\n" << again.err;
    EXPECT_EQ(again.out, first.out);
  }
}

TEST(the_repeat_command, carries_every_option_that_decides_the_run) {
  const TemporaryFolder folder;
  const std::string trace = folder.path() / "the trace.jsonl";
  ASSERT_EQ(run({"replay", leaking_scenario, "--seed", "5", "--trace", trace}).code, tool::findings);
  const Outcome first = run({"replay", leaking_scenario, "--seed", "5", "--schedule", trace, "--ledger", "--summary", "--memory-limit", "1gb"});
  EXPECT_EQ(first.code, tool::findings) << first.err;
  const std::string command = repeat_command_of(first.out);
  EXPECT_EQ(command, "gradledger replay " + leaking_scenario + " --seed 5 --schedule '" + trace + "' --ledger --summary --memory-limit 1073741824");
  EXPECT_EQ(shell(command).out, first.out);
  const auto report_of = [](const Outcome& outcome) { return json_of(without_seconds(lines_of(outcome.out).at(0))); };
  const json report = report_of(run({"replay", leaking_scenario, "--seed", "5", "--schedule", "round-robin", "--json"}));
  EXPECT_EQ(report_of(shell(report["command"].get<std::string>() + " --json")), report);
}

std::string trace_hash(const std::string& scenario, const std::string& seed) { return testing::record_of(run({"replay", scenario, "--json", "--seed", seed}))["trace_hash"]; }

TEST(a_seed, decides_the_trace) {
  EXPECT_EQ(trace_hash(leaking_scenario, "1"), trace_hash(leaking_scenario, "1"));
  EXPECT_NE(trace_hash(leaking_scenario, "1"), trace_hash(leaking_scenario, "2"));
  EXPECT_EQ(trace_hash(leaking_scenario, "18446744073709551615"), trace_hash(leaking_scenario, "18446744073709551615"));
}

TEST(the_json_report, has_one_line_a_scenario_and_the_place_of_each_finding) {
  const Outcome outcome = run({"replay", "--json", clean_scenario, leaking_scenario});
  EXPECT_EQ(outcome.code, tool::findings);
  const std::vector<json> records = testing::records_of(outcome);
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[0]["verdict"], "clean");
  EXPECT_TRUE(records[0]["findings"].empty());
  EXPECT_EQ(records[1]["verdict"], "findings");
  ASSERT_FALSE(records[1]["findings"].empty());
  const json& finding = records[1]["findings"][0];
  EXPECT_EQ(finding["class"], "boundary-leak");
  const json scenario = json_of(text_of(leaking_scenario));
  EXPECT_TRUE(scenario.contains(json::json_pointer(finding["pointer"].get<std::string>()))) << finding["pointer"];
  EXPECT_GE(finding["line"], 1);
  EXPECT_EQ(records[2]["counts"], (json{{"scenarios", 2}, {"clean", 1}, {"with_findings", 1}, {"nothing_judged", 0}}));
  EXPECT_EQ(records[2]["classes"], (json{{"boundary-leak", 1}}));
}

TEST(the_json_report, is_json_for_a_file_whose_name_is_no_text) {
  const TemporaryFolder folder;
  const Outcome outcome = run({"replay", "--json", folder.write("no\xff.json", text_of(clean_scenario))});
  EXPECT_EQ(outcome.code, tool::clean);
  const json report = testing::record_of(outcome);
  EXPECT_EQ(testing::record_of(shell(report["command"].get<std::string>() + " --json"))["trace_hash"], report["trace_hash"]);
  EXPECT_EQ(report["file"].get<std::string>().substr(report["file"].get<std::string>().size() - 10), "no\xef\xbf\xbd.json");
}

TEST(the_trace, is_json_lines_from_start_to_end_and_its_decisions_give_the_same_run) {
  const TemporaryFolder folder;
  const std::string trace = folder.path() / "trace.jsonl";
  const json report = testing::record_of(run({"replay", "--json", leaking_scenario, "--seed", "9", "--trace", trace}));
  std::vector<json> records;
  for (const std::string& line : lines_of(text_of(trace))) records.push_back(json_of(line));
  ASSERT_GT(records.size(), 20u);
  std::set<std::string> kinds;
  for (const json& record : records) kinds.insert(record["record"]);
  for (const char* kind : {"start", "allocate", "snapshot", "collective", "event_done", "end"}) EXPECT_TRUE(kinds.contains(kind)) << kind;
  EXPECT_EQ(records.front()["record"], "start");
  EXPECT_EQ(records.front()["command"], report["command"]);
  EXPECT_EQ(records.back()["record"], "end");
  EXPECT_EQ(records.back()["trace_hash"], report["trace_hash"]);
  const json replayed = testing::record_of(run({"replay", "--json", leaking_scenario, "--seed", "9", "--schedule", trace}));
  EXPECT_EQ(replayed["trace_hash"], report["trace_hash"]);
}

// Every kind of line is there in one of them, and the schema takes no line with a key more or less.
TEST(the_trace, has_lines_as_their_schema_says) {
  const TemporaryFolder folder;
  const std::string trace = folder.path() / "trace.jsonl";
  const SchemaCheck& schema = *schema_of("trace-file");
  std::map<std::string, std::size_t> seen;
  for (const char* scenario :
       {"live/10-three-direct-backwards-stage-3-overlap", "parameters/ready-in-another-order-with-small-buckets", "set-gradient/stage-3-padded-partition-raises",
        "ddp/unused-parameter-not-looked-for", "coalesce/exception-on-one-rank", "streams/stage-3-side-stream-before-7898"}) {
    run({"replay", (source_folder / "scenarios" / scenario).string() + ".json", "--trace", trace});
    for (const std::string& line : lines_of(text_of(trace))) {
      json record = json_of(line);
      if (++seen[record["record"]] > 20) continue;  // one is like the other
      EXPECT_EQ(schema.errors(record), "") << scenario << "\n" << line;
      record["surplus"] = 1;
      EXPECT_FALSE(schema.fits(record)) << line;
      record.erase("surplus");
      record.erase(record.begin());
      EXPECT_FALSE(schema.fits(record)) << line;
    }
  }
  const json whole = json::parse(*report::schema_text("trace-file"));
  for (const auto& [kind, unused] : whole["definitions"].items()) {
    if (kind.ends_with("_line")) EXPECT_TRUE(seen.contains(kind.substr(0, kind.size() - 5))) << kind;
  }
}

TEST(the_trace, that_cannot_be_written_is_bad_input_and_no_other_file_is_harmed) {
  const TemporaryFolder folder;
  const std::string scenario = folder.write("s.json", text_of(clean_scenario)), link = folder.path() / "link";
  std::filesystem::create_hard_link(scenario, link);
  expect_complaint(run({"replay", clean_scenario, "--trace", "/dev/full"}), tool::bad_input, "--trace: /dev/full cannot be written");
  expect_complaint(run({"replay", clean_scenario, "--trace", folder.path() / "no" / "such"}), tool::bad_input, "cannot be written");
  expect_complaint(run({"replay", clean_scenario, "--trace", folder.path()}), tool::bad_input, "cannot be written");
  expect_complaint(run({"replay", scenario, "--trace", scenario}), tool::bad_input, "is the scenario; expected a file of its own");
  expect_complaint(run({"replay", scenario, "--trace", link}), tool::bad_input, "is the scenario; expected a file of its own");
  expect_complaint(run({"replay", scenario, clean_scenario, "--trace", folder.path() / "t"}), tool::bad_input, "goes with one scenario; expected a single file");
  EXPECT_EQ(text_of(scenario), text_of(clean_scenario));
}

TEST(the_schedule, that_is_no_trace_is_bad_input) {
  const TemporaryFolder folder;
  const auto refuse = [&](const std::string& text, const std::string& message) {
    expect_complaint(run({"replay", clean_scenario, "--schedule", folder.write("t.jsonl", text)}), tool::bad_input, message);
  };
  expect_complaint(run({"replay", clean_scenario, "--schedule", "random"}), tool::bad_input,
                   "--schedule: random: cannot be read: No such file or directory; expected seeded, round-robin or a file written by --trace");
  refuse("", "holds no decisions");
  refuse("\n\n", "holds no decisions");
  refuse("[1, 2]", "holds no decisions");
  refuse("{\"decisions\": 7}", "holds no decisions");
  refuse("{\"decisions\": [1, -1]}", "holds decisions that are not numbers of ranks or streams");
  refuse("{\"decisions\": [65536]}", "holds decisions that are not numbers of ranks or streams");
  refuse("{\"decisions\": [\"0\"]}", "holds decisions that are not numbers of ranks or streams");
  refuse("{\"decisions\": [0]} tail", "holds no decisions");
  refuse(std::string(100'000, '['), "holds no decisions");
}

TEST(the_schedule, of_another_run_is_followed_as_far_as_it_goes_and_that_is_said) {
  const TemporaryFolder folder;
  const Outcome outcome = run({"replay", "--summary", leaking_scenario, "--schedule", folder.write("t.jsonl", "{\"decisions\": [65535, 65535]}")});
  EXPECT_EQ(outcome.code, tool::findings);
  EXPECT_NE(outcome.err.find("a recorded decision was not possible"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace gradledger::testing
