// A campaign, an exploration and a gate that are ended at any moment lose nothing of what they found.
#include <signal.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <set>
#include <thread>

#include "sim/base/hash.h"
#include "tests/support/sanitized.h"
#include "tests/tools/command.h"
#include "tools/gradledger/exit_codes.h"

namespace gradledger::testing {
namespace {

namespace fs = std::filesystem;

// Of a release that shows much, so that a moment taken at random is one in which something is found, made small or written.
std::vector<std::string> campaign(const fs::path& findings, std::vector<std::string> more = {}) {
  std::vector<std::string> out{GRADLEDGER_COMMAND, "fuzz", "--findings", findings, "--as-of", "0.18.2", "--cases", "4000"};
  out.insert(out.end(), more.begin(), more.end());
  return out;
}

std::vector<fs::path> visible_files(const fs::path& folder) {
  std::vector<fs::path> out;
  if (!fs::exists(folder)) return out;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (!entry.path().filename().string().starts_with('.')) out.push_back(entry.path());
  return out;
}

// The files that a campaign has announced by now, in its output as it stands.
std::set<fs::path> announced(const std::string& out) {
  std::set<fs::path> files;
  for (const std::string& line : lines_of(out)) {
    const json record = json::parse(line, nullptr, false);  // the last line may be half a one
    if (record.is_object() && record.value("record", "") == "finding" && record.value("status", "") == "new") files.insert(record["file"].get<std::string>());
  }
  return files;
}

void wait_for_a_finding(const Child& child) {
  for (int i = 0; i < 3000 && announced(child.out()).empty(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ASSERT_FALSE(announced(child.out()).empty());
}

std::uint32_t kills() {
  const char* many = std::getenv("GRADLEDGER_TEST_KILLS");
  constexpr std::uint32_t few = testing::sanitized ? 10 : 30;
  return many ? static_cast<std::uint32_t>(std::strtoul(many, nullptr, 10)) : few;
}

TEST(a_campaign_that_is_killed, leaves_no_half_file_and_nothing_that_it_announced_is_lost) {
  SplitMix64 random(7);
  std::size_t with_findings = 0;
  for (std::uint32_t i = 0; i < kills(); ++i) {
    const TemporaryFolder folder;
    const Child child(campaign(folder.path() / "findings", {"--json"}));
    if (i % 2 == 1) wait_for_a_finding(child);
    std::this_thread::sleep_for(std::chrono::milliseconds(random.below(700)));
    child.signal(SIGKILL);
    const Outcome outcome = child.wait();
    const auto files = visible_files(folder.path() / "findings");
    for (const fs::path& file : files) {
      const json scenario = json::parse(text_of(file), nullptr, false);
      EXPECT_TRUE(scenario.is_object() && scenario.contains("expect")) << file << ": " << text_of(file).substr(0, 80);
    }
    for (const fs::path& file : announced(outcome.out)) EXPECT_TRUE(fs::exists(file)) << file;
    with_findings += !announced(outcome.out).empty();
    if (i % 10 != 0 || files.empty()) continue;
    EXPECT_EQ(run({"gate", folder.path() / "findings"}).code, tool::clean);
    const Outcome next = run({"fuzz", "--findings", folder.path() / "findings", "--as-of", "0.18.2", "--cases", "8"});
    EXPECT_EQ(next.code, tool::findings) << next.err;
    EXPECT_EQ(next.err, "");
  }
  EXPECT_GE(with_findings, kills() / 2);
}

TEST(a_campaign_that_is_interrupted, ends_with_what_it_has_and_the_code_of_the_signal) {
  for (const auto& [signal, code, name] : {std::tuple{SIGINT, tool::interrupted, "SIGINT"}, std::tuple{SIGTERM, tool::terminated, "SIGTERM"}}) {
    const TemporaryFolder folder;
    const Child child(campaign(folder.path(), {"--json"}));
    wait_for_a_finding(child);
    child.signal(signal);
    const Outcome outcome = child.wait();
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    const json summary = testing::summary_of(outcome);
    EXPECT_EQ(summary["ended_by"], name);
    EXPECT_GT(summary["counts"]["cases"], 0);
    EXPECT_LT(summary["counts"]["cases"], 4000);
    EXPECT_EQ(announced(outcome.out).size(), visible_files(folder.path()).size());
    EXPECT_EQ(run({"gate", folder.path()}).code, tool::clean) << "what was not made small is written as it is";
  }
}

TEST(a_campaign_that_is_interrupted, twice_ends_at_once) {
  const TemporaryFolder folder;
  const Child child(campaign(folder.path(), {"--json"}));
  wait_for_a_finding(child);
  for (int i = 0; i < 8; ++i) child.signal(SIGTERM);
  const Outcome outcome = child.wait();
  EXPECT_TRUE(outcome.signal == SIGTERM || outcome.code == tool::terminated) << outcome.code << " " << outcome.signal;
}

std::map<std::string, std::string> texts_of(const fs::path& folder) {
  std::map<std::string, std::string> out;
  for (const fs::path& file : visible_files(folder)) out[file.filename()] = text_of(file);
  return out;
}

// Killed again and again, it comes to what it would have come to alone.
TEST(a_campaign_that_is_resumed, finds_what_it_would_have_found) {
  const TemporaryFolder folder;
  const std::vector<std::string> short_one{"--engine", "zero2-offload", "--cases", "1500", "--json"};
  const auto of = [&](const char* name, std::vector<std::string> more) {
    more.insert(more.begin(), short_one.begin(), short_one.end());
    auto words = campaign(folder.path() / name, more);
    words.erase(std::find(words.begin(), words.end(), "--cases"), std::find(words.begin(), words.end(), "--cases") + 2);
    return words;
  };
  const Outcome whole = testing::run_program(of("whole", {}));
  ASSERT_EQ(whole.code, tool::findings) << whole.err;
  Outcome last;
  std::size_t resumed = 0;
  for (int i = 0; i < 12; ++i) {
    const Child child(of("parts", {"--resume"}));
    if (i < 11) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1300));
      child.signal(SIGKILL);
    }
    last = child.wait();
    resumed += last.err.empty();
    if (last.signal == 0) break;
  }
  ASSERT_EQ(last.code, tool::findings) << last.err;
  EXPECT_EQ(texts_of(folder.path() / "parts"), texts_of(folder.path() / "whole"));
  const json a = testing::summary_of(whole)["counts"], b = testing::summary_of(last)["counts"];
  for (const char* count : {"cases", "events", "operations", "compared", "suspicious", "judged", "reruns"}) EXPECT_EQ(a[count], b[count]) << count;
  for (const auto& entry : fs::directory_iterator(folder.path() / "parts")) EXPECT_FALSE(entry.path().filename().string().starts_with(".gradledger-campaign")) << entry.path();
}

TEST(a_campaign_that_is_resumed, says_where_there_is_nothing_to_go_on_with) {
  const TemporaryFolder folder;
  const Outcome outcome = run({"fuzz", "--findings", folder.path(), "--cases", "8", "--resume"});
  EXPECT_EQ(outcome.code, tool::clean);
  EXPECT_NE(outcome.err.find("--resume: " + folder.path().string() + " holds no unfinished campaign of these options"), std::string::npos) << outcome.err;
}

TEST(a_campaign_that_is_resumed, goes_on_after_its_time_was_over) {
  const TemporaryFolder folder;
  const auto part = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"fuzz", "--findings", folder.path(), "--engine", "zero0", "--time", "1", "--json"});
    return testing::records_of(run(more));
  };
  const auto first = part({}), second = part({"--resume"});
  EXPECT_EQ(first.back()["ended_by"], "--time");
  EXPECT_GT(second.back()["counts"]["cases"], first.back()["counts"]["cases"]);
  EXPECT_GT(second.at(second.size() - 2)["next"], first.at(first.size() - 2)["next"]);
}

TEST(two_campaigns, on_one_folder_do_no_harm_and_write_nothing_twice) {
  const TemporaryFolder folder;
  const std::vector<std::string> words{GRADLEDGER_COMMAND, "fuzz", "--findings", folder.path() / "both", "--as-of", "0.18.9", "--engine", "zero2-offload", "--cases", "40"};
  const Child one(words), other(words);
  EXPECT_EQ(one.wait().code, tool::findings);
  EXPECT_EQ(other.wait().code, tool::findings);
  auto alone = words;
  alone[3] = folder.path() / "alone";
  ASSERT_EQ(testing::run_program(alone).code, tool::findings);
  const auto names_of = [&](const char* name) {
    std::set<std::string> out;
    for (const auto& [file, text] : texts_of(folder.path() / name)) out.insert(file);
    return out;
  };
  EXPECT_EQ(names_of("both"), names_of("alone"));
}

TEST(time, includes_the_making_small) {
  const TemporaryFolder folder;
  const auto start = std::chrono::steady_clock::now();
  const Outcome outcome = run({"fuzz", "--findings", folder.path(), "--as-of", "0.18.2", "--time", "2", "--json"});
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_EQ(outcome.code, tool::findings) << outcome.err;
  EXPECT_EQ(testing::summary_of(outcome)["ended_by"], "--time");
  EXPECT_LT(seconds, 20.0);
  EXPECT_EQ(run({"gate", folder.path()}).code, tool::clean);
}

// ---- places that take no file ------------------------------------------------------------------------------------------------------

TEST(a_disk_that_is_full, leaves_no_half_file_and_is_told_with_its_cause) {
  const TemporaryFolder folder;
  // A file may have a kilobyte, which is less than a finding takes.
  const Outcome outcome = shell("ulimit -f 1; gradledger fuzz --as-of 0.18.9 --engine zero2-offload --cases 40 >/dev/null", folder.path());
  EXPECT_EQ(outcome.code, tool::bad_input);
  EXPECT_NE(outcome.err.find("gradledger: --findings: findings/"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("cannot be written: File too large"), std::string::npos) << outcome.err;
  EXPECT_TRUE(visible_files(folder.path() / "findings").empty());
  EXPECT_EQ(run({"fuzz", "--findings", folder.path() / "findings", "--as-of", "0.18.9", "--engine", "zero2-offload", "--cases", "40"}).code, tool::findings);
}

TEST(a_pipe_that_nobody_reads, ends_a_campaign_as_a_report_that_cannot_be_written) {
  const TemporaryFolder folder;
  const Outcome outcome = shell("set -o pipefail; gradledger fuzz --as-of 0.18.2 --cases 100000 | true", folder.path());
  EXPECT_EQ(outcome.code, tool::bad_input) << outcome.err;
  EXPECT_NE(outcome.err.find("gradledger: the report cannot be written to standard output"), std::string::npos) << outcome.err;
  EXPECT_EQ(run({"gate", folder.path() / "findings"}).code, tool::clean);
}

TEST(reports, that_cannot_be_written_are_bad_input_with_the_option_named) {
  const auto refused = [](const std::vector<std::string>& words, const std::string& option) {
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.code, tool::bad_input) << option;
    EXPECT_NE(outcome.err.find("gradledger: " + option + ": "), std::string::npos) << outcome.err;
  };
  for (const char* file : {"/dev/full", "/nowhere/out"}) {
    refused({"replay", testing::clean_scenario, "--trace", file}, "--trace");
    refused({"coverage", source_folder / "scenarios/streams", "--write", file}, "--write");
  }
}

// ---- the other verbs ---------------------------------------------------------------------------------------------------------------

TEST(an_exploration_that_is_interrupted, is_reported_as_not_complete) {
  const Child child({GRADLEDGER_COMMAND, "explore", "--engine", "zero2", "--length", "40", "--json"});
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  child.signal(SIGINT);
  const Outcome outcome = child.wait();
  EXPECT_EQ(outcome.code, tool::interrupted) << outcome.err;
  ASSERT_FALSE(outcome.out.empty());
  const auto records = testing::records_of(outcome);
  ASSERT_GE(records.size(), 2u);
  const json& engine = records[records.size() - 2];
  EXPECT_EQ(records.back()["ended_by"], "SIGINT");
  EXPECT_EQ(engine["complete"], false);
  EXPECT_GT(engine["transitions"], 0);
}

TEST(a_gate_that_is_interrupted, reports_what_it_was_held_over) {
  const Child child({GRADLEDGER_COMMAND, "gate", source_folder / "scenarios", "--json"});
  for (int i = 0; i < 3000 && child.out().empty(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  child.signal(SIGTERM);
  const Outcome outcome = child.wait();
  EXPECT_EQ(outcome.code, tool::terminated) << outcome.err;
  auto rows = testing::records_of(outcome);
  EXPECT_GE(rows.size(), 2u);
  EXPECT_LT(rows.size(), 800u);
  EXPECT_EQ(rows.back()["ended_by"], "SIGTERM");
  EXPECT_EQ(rows.back()["counts"]["passed"], rows.size() - 1);
  rows.pop_back();
  for (const json& row : rows) EXPECT_EQ(row["passed"], true) << row;
}

}  // namespace
}  // namespace gradledger::testing
