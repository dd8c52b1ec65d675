// A run that several processes share: which part each takes, files of their own, and the report that all of them come to.
#include <algorithm>
#include <map>
#include <set>

#include "tests/support/schema_check.h"
#include "tests/tools/command.h"
#include "tools/gradledger/exit_codes.h"

namespace gradledger::testing {
namespace {

namespace fs = std::filesystem;

std::string quoted(const std::vector<std::string>& words) {
  std::string out = "gradledger";
  for (const std::string& word : words) out += " '" + word + "'";
  return out;
}

// A process of a launcher, with what that sets.
Outcome launched(const std::string& variables, const std::vector<std::string>& words, const fs::path& folder) { return shell(variables + " " + quoted(words), folder); }

// All processes of OpenMPI, one after another, each with its report.
std::vector<Outcome> ranks(std::uint32_t size, std::vector<std::string> words, const fs::path& folder) {
  words.insert(words.end(), {"--shard", "auto", "--records", "r-{shard}.jsonl"});
  std::vector<Outcome> out;
  for (std::uint32_t rank = 0; rank < size; ++rank)
    out.push_back(launched("OMPI_COMM_WORLD_RANK=" + std::to_string(rank) + " OMPI_COMM_WORLD_SIZE=" + std::to_string(size), words, folder));
  return out;
}

std::vector<std::string> reports(std::uint32_t size) {
  std::vector<std::string> out;
  for (std::uint32_t rank = 0; rank < size; ++rank) out.push_back("r-" + std::to_string(rank) + "-of-" + std::to_string(size) + ".jsonl");
  return out;
}

Outcome merged(std::vector<std::string> of, const fs::path& folder, const std::vector<std::string>& more = {"--json"}) {
  of.insert(of.begin(), "merge");
  of.insert(of.end(), more.begin(), more.end());
  return shell(quoted(of), folder);
}

// All that a report says but for times and which shards it is made of.
std::string said(const std::string& text) {
  std::string out;
  for (const std::string& line : lines_of(text))
    if (line.find("\"record\":\"merge\"") == std::string::npos) out += line + "\n";
  return without_seconds(out);
}

json merge_record_of(const Outcome& outcome) {
  for (const json& record : records_of(outcome))
    if (record["record"] == "merge") return record;
  ADD_FAILURE() << "no record of what was merged: " << outcome.out << outcome.err;
  return {};
}

std::string small_loop(const std::string& name, const std::string& expected = "") {
  return R"({"name": ")" + name + R"(", "world_size": 2, "parameters": [{"name": "w", "numel": 4}], "engine": {"framework": "ddp", "config": {}},
  "script": [{"backward": {}}, {"step": {}}])" +
         (expected.empty() ? "" : R"(, "expect": {"findings": [{"class": ")" + expected + R"("}]})") + "}";
}

// A corpus of a few loops, of which one fails.
void write_corpus(const TemporaryFolder& folder) {
  fs::create_directories(folder.path() / "corpus/more");
  for (const char* name : {"corpus/a", "corpus/b", "corpus/more/c", "corpus/more/d", "corpus/e"}) folder.write(std::string(name) + ".json", small_loop(name));
  folder.write("corpus/f.json", small_loop("f", "wrong-scale"));
  folder.write("corpus/half.json", "{\"name\": \"half\",");
  folder.write("corpus/LEFT.JSON", small_loop("left"));
}

const std::vector<std::string> campaign{"fuzz", "--as-of", "0.18.9", "--any-script", "--cases", "48"};

std::vector<std::string> and_then(std::vector<std::string> words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::map<std::string, std::string> contents_of(const fs::path& folder) {
  std::map<std::string, std::string> out;
  for (const auto& entry : fs::directory_iterator(folder)) out[entry.path().filename()] = text_of(entry.path());
  return out;
}

TEST(a_gate_that_is_shared, comes_to_the_report_of_one_process) {
  for (const std::uint32_t size : {1u, 2u, 3u, 4u, 9u}) {
    const TemporaryFolder folder;
    write_corpus(folder);
    const std::vector<std::string> gate{"gate", "corpus", "-k", "not b"};
    const Outcome whole = shell(quoted(and_then(gate, {"--json"})), folder.path());
    std::set<int> codes;
    for (const Outcome& one : ranks(size, gate, folder.path())) codes.insert(one.code);
    const Outcome together = merged(reports(size), folder.path());
    EXPECT_EQ(said(together.out), said(whole.out)) << size << together.err;
    EXPECT_EQ(together.code, *codes.rbegin());
    EXPECT_EQ(together.code, whole.code);
    EXPECT_EQ(merge_record_of(together)["parts"].size(), size);
    for (const json& record : records_of(together)) EXPECT_EQ(record_errors(record), "") << record.dump();
    const Outcome text = merged(reports(size), folder.path(), {});
    const Outcome whole_text = shell(quoted(gate), folder.path());
    EXPECT_TRUE(text.out.starts_with(whole_text.out)) << text.out << "\n" << whole_text.out;
  }
}

TEST(a_gate_that_is_shared, counts_what_a_baseline_names_in_vain_once) {
  const TemporaryFolder folder;
  write_corpus(folder);
  folder.write("baseline", R"({"schema_version": 1, "accepted": [{"scenario": "gone", "class": "stale-gradient", "reason": "gone", "expires": "2030-01-01"},
    {"scenario": "f", "class": "stale-gradient", "reason": "not reported", "expires": "2030-01-01"}]})");
  const std::vector<std::string> gate{"gate", "corpus", "--baseline", "baseline", "--today", "2027-01-01"};
  const Outcome whole = shell(quoted(and_then(gate, {"--json"})), folder.path());
  ranks(3, gate, folder.path());
  EXPECT_EQ(said(merged(reports(3), folder.path()).out), said(whole.out));
  EXPECT_EQ(summary_of(whole)["counts"]["unused_in_baseline"], 1);
}

TEST(a_campaign_that_is_shared, comes_to_the_report_and_the_files_of_one_process) {
  const TemporaryFolder alone;
  const Outcome whole = shell(quoted(and_then(campaign, {"--json", "--findings", "found"})), alone.path());
  ASSERT_EQ(whole.code, tool::findings);
  ASSERT_GT(contents_of(alone.path() / "found").size(), 3u);
  for (const std::uint32_t size : {1u, 2u, 3u, 4u}) {
    const TemporaryFolder folder;
    for (const Outcome& one : ranks(size, campaign, folder.path()))
      for (const std::string& line : lines_of(text_of(folder.path() / reports(size).front()))) EXPECT_EQ(record_errors(json_of(line)), "") << line << one.err;
    const Outcome together = merged(reports(size), folder.path(), {"--json", "--findings", "found"});
    EXPECT_EQ(said(together.out), said(whole.out)) << size << together.err;
    EXPECT_EQ(together.code, whole.code);
    EXPECT_EQ(contents_of(folder.path() / "found"), contents_of(alone.path() / "found"));
    for (const json& record : records_of(together)) EXPECT_EQ(record_errors(record), "") << record.dump();
    if (size != 2) continue;
    const Outcome again = merged(reports(size), folder.path(), {"--json", "--findings", "found", "--jobs", "2"});
    for (const json& record : records_of(again))
      if (record["record"] == "finding") {
        EXPECT_EQ(record["status"], "still there") << "the folder's files are replayed first";
      }
    const Outcome without_folder = merged(reports(size), folder.path());
    EXPECT_EQ(summary_of(without_folder)["counts"]["findings"], summary_of(whole)["counts"]["findings"]);
    for (const json& record : records_of(without_folder))
      if (record["record"] == "finding") {
        EXPECT_TRUE(record["file"].is_null() && record["scenario"].is_object()) << record;
      }
  }
}

TEST(shards, that_are_said_by_hand_are_joined_too) {
  const TemporaryFolder folder;
  write_corpus(folder);
  for (const char* wrong : {"corpus/half.json", "corpus/LEFT.JSON"}) fs::remove(folder.path() / wrong);
  const Outcome whole = shell("gradledger gate corpus --json", folder.path());
  EXPECT_EQ(whole.code, tool::findings);
  shell("gradledger gate corpus --shard 0/2 --records one.jsonl; gradledger gate --shard=1/2 corpus --json > other.jsonl", folder.path());
  EXPECT_EQ(said(merged({"other.jsonl", "one.jsonl"}, folder.path()).out), said(whole.out));
}

TEST(a_process_that_died, is_named_and_the_rest_is_kept) {
  const TemporaryFolder folder;
  write_corpus(folder);
  ranks(3, {"gate", "corpus"}, folder.path());
  const std::string whole = text_of(folder.path() / "r-1-of-3.jsonl");
  const std::vector<std::string> lines = lines_of(whole);
  ASSERT_GT(lines.size(), 3u);
  const Outcome all = merged(reports(3), folder.path());
  // In the middle of its third line.
  folder.write("r-1-of-3.jsonl", whole.substr(0, lines[0].size() + lines[1].size() + 2 + lines[2].size() / 2));
  const Outcome half = merged(reports(3), folder.path());
  EXPECT_EQ(half.code, tool::broken_run);
  EXPECT_EQ(half.err.substr(0, half.err.find('\n')), "gradledger: shard 1 is missing: its report has no summary, so that it died or is not done: r-1-of-3.jsonl");
  EXPECT_EQ(merge_record_of(half)["missing"], json::parse(R"([{"shard": 1, "file": "r-1-of-3.jsonl", "why": "its report has no summary, so that it died or is not done"}])"));
  EXPECT_EQ(summary_of(half)["exit_code"], tool::broken_run);
  EXPECT_NE(half.out.find(lines[1]), std::string::npos) << "what it had said is kept";
  EXPECT_LT(records_of(half).size(), records_of(all).size());
  EXPECT_NE(merged(reports(3), folder.path(), {}).out.find("shard 1 is missing"), std::string::npos);
  // Nothing of it, an empty file, no file.
  folder.write("r-1-of-3.jsonl", "");
  EXPECT_EQ(merge_record_of(merged(reports(3), folder.path()))["missing"][0]["why"], "the report is empty: r-1-of-3.jsonl");
  fs::remove(folder.path() / "r-1-of-3.jsonl");
  EXPECT_EQ(merge_record_of(merged(reports(3), folder.path()))["missing"][0]["why"], "there is no file r-1-of-3.jsonl");
  const Outcome two = merged({"r-0-of-3.jsonl", "r-2-of-3.jsonl"}, folder.path(), {"--json", "--expect", "3"});
  EXPECT_EQ(two.code, tool::broken_run);
  EXPECT_EQ(merge_record_of(two)["missing"][0]["why"], "there is no report of it");
}

TEST(a_process_that_was_ended, is_kept_with_what_ended_it) {
  const TemporaryFolder folder;
  write_corpus(folder);
  ranks(2, {"gate", "corpus"}, folder.path());
  const std::regex summary(R"("exit_code":\d+,"errors":(\d+),"ended_by":null)");
  const std::string text = std::regex_replace(text_of(folder.path() / "r-1-of-2.jsonl"), summary, R"("exit_code":143,"errors":$1,"ended_by":"SIGTERM")");
  folder.write("r-1-of-2.jsonl", text);
  const Outcome outcome = merged(reports(2), folder.path());
  EXPECT_EQ(outcome.code, tool::terminated) << "the highest of all";
  EXPECT_EQ(summary_of(outcome)["ended_by"], "SIGTERM");
}

TEST(reports_that_do_not_belong_together, are_refused) {
  const TemporaryFolder folder;
  write_corpus(folder);
  ranks(2, {"gate", "corpus"}, folder.path());
  const auto refused = [&](std::vector<std::string> files, const std::string& why, const std::vector<std::string>& more = {}) {
    expect_complaint(merged(std::move(files), folder.path(), more), tool::bad_input, why);
  };
  const std::string one = text_of(folder.path() / "r-0-of-2.jsonl"), other = text_of(folder.path() / "r-1-of-2.jsonl");
  folder.write("copy.jsonl", one);
  refused({"r-0-of-2.jsonl", "r-1-of-2.jsonl", "copy.jsonl"}, "copy.jsonl: is of shard 0, and so is r-0-of-2.jsonl; expected each shard once");
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = other;
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    folder.write("changed.jsonl", text.replace(at, from.size(), to));
    return std::vector<std::string>{"r-0-of-2.jsonl", "changed.jsonl"};
  };
  refused(changed("\"run\":\"gradledger gate corpus\"", "\"run\":\"gradledger gate corpus --seed 1\""),
          "is of the run `gradledger gate corpus --seed 1`; expected `gradledger gate corpus`");
  refused(changed("\"shards\":2", "\"shards\":3"), "number of shards: 3; expected 2");
  refused(changed("\"shard\":1,\"shards\":2", "\"shard\":2,\"shards\":2"), "changed.jsonl:1: names no shard");
  refused(changed("\"verb\":\"gate\"", "\"verb\":\"fuzz\""), "is of the verb fuzz; expected gate");
  refused(changed("\"commit\":\"", "\"commit\":\"other"), "is of another build");
  refused(changed("\"schema_version\":2,\"record\":\"gate\"", "\"version\":2,\"record\":\"gate\""), "is a record of another version than 2");
  refused(changed("\"command\":\"gradledger replay", "\"words\":\"gradledger replay"), "a record lacks what it has in a report of this version");
  refused(changed("\"run\":", "\"ran\":"), "the head or the summary lacks a field");
  refused(changed("\"exit_code\":2,\"errors\"", "\"exit_code\":17,\"errors\""), "has no exit code of gradledger");
  refused(changed(lines_of(other)[1] + "\n", ""), "records of scenarios, and its summary says");
  refused(changed("\"deselected\":", "\"deselected\":1"), "the files changed meanwhile");
  refused({"r-0-of-2.jsonl", "r-1-of-2.jsonl"}, "--expect: is 3, and the reports are of a run with 2 shards", {"--expect", "3"});
  refused({"r-0-of-2.jsonl", "r-1-of-2.jsonl"}, "--findings: is of campaigns", {"--findings", "found"});
  refused({"corpus/a.json"}, "corpus/a.json:1: is no");
  shell("gradledger gate corpus --json > whole.jsonl", folder.path());
  refused({"whole.jsonl"}, "whole.jsonl:1: is a record \"gate\", and not that of a shard; expected a report of gradledger gate or fuzz with --shard");
  refused({"none.jsonl"}, "none.jsonl: cannot be read: No such file or directory");
  refused({"r-0-of-2.jsonl", "r-1-of-2.jsonl", "none.jsonl"}, "there is no file none.jsonl");
  folder.write("changed.jsonl", other.substr(0, other.find('\n') + 1) + std::string(100, '[') + "\n");
  refused({"r-0-of-2.jsonl", "changed.jsonl"}, "changed.jsonl:2: is no JSON object");
  expect_complaint(merged(reports(2), folder.path(), {"--memory-limit", "16kb"}), tool::unavailable, "REPORT: the reports are ");
}

TEST(a_campaign_that_cannot_be_joined, is_refused_with_why) {
  const TemporaryFolder folder;
  const auto refused = [&](const std::vector<std::string>& more, const std::string& why) {
    expect_complaint(launched("RANK=0 WORLD_SIZE=2", and_then({"fuzz", "--cases", "4", "--shard", "auto"}, more), folder.path()), tool::bad_input, why);
  };
  refused({"--differ", "zero1,zero2"}, "--differ: does not go with --shard auto");
  refused({"--resume"}, "--resume: does not go with --shard auto");
  refused({"--producer", "deepspeed"}, "--producer: does not go with --shard auto");
  for (const char* shard : {"0", "1"})
    shell(std::string("gradledger fuzz --resume --cases 4 --findings f") + shard + " --shard " + shard + "/2 --records " + shard + ".jsonl", folder.path());
  expect_complaint(merged({"0.jsonl", "1.jsonl"}, folder.path(), {}), tool::bad_input, "is of a campaign that is not joined");
}

TEST(processes_of_a_launcher, do_not_write_the_same_file) {
  const TemporaryFolder folder;
  write_corpus(folder);
  const auto one_of_two = [&](const std::vector<std::string>& words) { return launched("PMI_RANK=1 PMI_SIZE=2", and_then(words, {"--shard", "auto"}), folder.path()); };
  for (const char* option : {"--records", "--junit", "--sarif", "--tap", "--html"})
    expect_complaint(one_of_two({"gate", "corpus", option, "file"}), tool::bad_input, std::string(option) + ": file is one file for 2 processes; expected {shard} in its name");
  expect_complaint(one_of_two({"gate", "corpus", "--last-failed"}), tool::bad_input, "--state: .gradledger/last-failed is one file");
  expect_complaint(one_of_two({"fuzz", "--cases", "4", "--findings", "found"}), tool::bad_input, "--findings: found is one file");
  EXPECT_EQ(one_of_two({"gate", "corpus", "--junit", "{shard}/{shard}.xml"}).code, tool::bad_input) << "the folder is not there";
  one_of_two({"gate", "corpus", "--junit", "junit-{shard}.xml", "--html", "{shard}.html", "--last-failed", "--state", "state-{shard}"});
  for (const char* file : {"junit-1-of-2.xml", "1-of-2.html", "state-1-of-2"}) EXPECT_TRUE(fs::exists(folder.path() / file)) << file;
  EXPECT_EQ(launched("PMI_RANK=0 PMI_SIZE=1", {"gate", "corpus/a.json", "--shard", "auto", "--junit", "alone.xml"}, folder.path()).code, tool::clean)
      << "one process shares nothing";
}

TEST(a_shard, says_which_it_is_and_who_says_so) {
  const TemporaryFolder folder;
  write_corpus(folder);
  const std::string array = "SLURM_ARRAY_TASK_ID=5 SLURM_ARRAY_TASK_MIN=1 SLURM_ARRAY_TASK_MAX=5 SLURM_ARRAY_TASK_STEP=2 SLURM_ARRAY_TASK_COUNT=3";
  const std::vector<std::string> gate{"gate", "corpus", "--shard", "auto"};
  EXPECT_TRUE(
      launched(array, gate, folder.path())
          .out.starts_with(
              "# shard 2 of 3, as Slurm array numbers it: SLURM_ARRAY_TASK_ID=5 SLURM_ARRAY_TASK_MIN=1 SLURM_ARRAY_TASK_COUNT=3 SLURM_ARRAY_TASK_STEP=2 SLURM_ARRAY_TASK_MAX=5\n"));
  const json head = record_of(launched("JOB_COMPLETION_INDEX=0 GRADLEDGER_SHARDS=2", and_then(gate, {"--json"}), folder.path()));
  EXPECT_EQ(head["record"], "shard");
  EXPECT_EQ(head["launcher"], "Kubernetes");
  EXPECT_EQ(head["variables"], json::parse(R"({"JOB_COMPLETION_INDEX": "0", "GRADLEDGER_SHARDS": "2"})"));
  EXPECT_EQ(head["run"], "gradledger gate corpus");
  EXPECT_EQ(head["command"], "gradledger gate corpus --shard 0/2") << "which shows it again without a launcher";
  EXPECT_EQ(record_of(shell("gradledger gate corpus --shard 1/2 --json", folder.path()))["launcher"], nullptr);
  expect_complaint(launched("RANK=3", gate, folder.path()), tool::bad_input, "--shard: auto: RANK is set and WORLD_SIZE is not");
}

TEST(a_process_without_work, is_clean_and_a_run_without_any_is_not) {
  const TemporaryFolder folder;
  folder.write("a.json", small_loop("a"));
  for (const Outcome& one : ranks(3, {"gate", "a.json"}, folder.path())) EXPECT_EQ(one.code, tool::clean) << one.out << one.err;
  EXPECT_EQ(merged(reports(3), folder.path()).code, tool::clean);
  for (const Outcome& one : ranks(2, {"gate", "a.json", "-k", "nothing"}, folder.path())) EXPECT_EQ(one.code, tool::clean) << one.out << one.err;
  const Outcome nothing = merged(reports(2), folder.path());
  EXPECT_EQ(nothing.code, tool::bad_input);
  EXPECT_NE(nothing.err.find("a gate over nothing does not pass"), std::string::npos) << nothing.err;
  for (const Outcome& one : ranks(3, {"fuzz", "--cases", "2", "--engine", "zero1"}, folder.path())) EXPECT_EQ(one.code, tool::clean) << one.out << one.err;
  EXPECT_EQ(merged(reports(3), folder.path()).code, tool::clean);
}

TEST(records, are_written_as_they_come_beside_the_text) {
  const TemporaryFolder folder;
  write_corpus(folder);
  const Outcome text = shell("gradledger gate corpus --records out.jsonl", folder.path()), printed = shell("gradledger gate corpus --json", folder.path());
  EXPECT_EQ(text.out, shell("gradledger gate corpus", folder.path()).out);
  EXPECT_EQ(without_seconds(text_of(folder.path() / "out.jsonl")), without_seconds(printed.out));
  shell("gradledger gate corpus -k a --records out.jsonl", folder.path());
  EXPECT_LT(text_of(folder.path() / "out.jsonl").size(), printed.out.size()) << "a report of before is replaced";
  expect_complaint(shell("gradledger gate corpus -k a --records corpus/a.json", folder.path()), tool::bad_input,
                   "--records: corpus/a.json is there and is no report; expected another file");
  EXPECT_EQ(text_of(folder.path() / "corpus/a.json"), small_loop("corpus/a"));
  expect_complaint(shell("gradledger gate corpus -k a --records none/out.jsonl", folder.path()), tool::bad_input, "--records: none/out.jsonl cannot be written");
}

}  // namespace
}  // namespace gradledger::testing
