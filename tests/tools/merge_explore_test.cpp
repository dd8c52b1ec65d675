// Reports of processes that shared an exploration: joined where they agree, refused where they do not, and none is missing unseen.
#include <algorithm>
#include <string>
#include <vector>

#include "tests/tools/command.h"
#include "tools/gradledger/exit_codes.h"

namespace gradledger::testing {
namespace {

constexpr const char* exploration = "explore --engine zero2-offload --engine zero1 --as-of 0.18.9 --any-script --length 3";

// What one process prints, and the file of each of three, which is that behind the head of a shard.
struct Explored {
  TemporaryFolder folder;
  std::vector<std::string> records, files;

  Explored() {
    shell(std::string("gradledger ") + exploration + " --json > alone.jsonl", folder.path());
    records = lines_of(text_of(folder.path() / "alone.jsonl"));
    for (std::uint32_t shard = 0; shard < 3; ++shard) files.push_back(write("r-" + std::to_string(shard), head(shard, 3), records));
  }

  std::string head(std::uint32_t shard, std::uint32_t shards) const {
    const json one = json::parse(records.at(0));
    json out{{"schema_version", 2}, {"record", "shard"}, {"tool", one["tool"]}, {"command", one["command"]}, {"verb", "explore"}, {"shard", shard}, {"shards", shards}};
    out.update(json{{"launcher", "MPI"}, {"variables", json::object()}, {"run", one["command"]}, {"seed", 0}, {"draws", nullptr}});
    return out.dump();
  }
  std::string write(const std::string& name, const std::string& first, const std::vector<std::string>& lines) const {
    std::string all = first + "\n";
    for (const std::string& line : lines) all += line + "\n";
    folder.write(name, all);
    return name;
  }
  Outcome merged(const std::vector<std::string>& of, const std::string& options = "--json") const {
    std::string words = "gradledger merge " + options;
    for (const std::string& file : of) words += " " + file;
    return shell(words, folder.path());
  }
  // The line of the first record of a kind.
  std::size_t first(const std::string& record) const {
    const auto at = std::find_if(records.begin(), records.end(), [&](const std::string& line) { return json::parse(line)["record"] == record; });
    return static_cast<std::size_t>(at - records.begin());
  }
};

std::string without_merge(const std::string& text) {
  std::string out;
  for (const std::string& line : lines_of(text))
    if (line.find("\"record\":\"merge\"") == std::string::npos) out += line + "\n";
  return without_seconds(out);
}

json merge_record(const Outcome& outcome) {
  for (const json& record : records_of(outcome))
    if (record["record"] == "merge") return record;
  ADD_FAILURE() << outcome.out << outcome.err;
  return {};
}

TEST(an_exploration_of_several_processes, is_joined_to_the_report_that_each_wrote) {
  const Explored e;
  const Outcome outcome = e.merged(e.files);
  EXPECT_EQ(outcome.code, tool::findings) << outcome.err;
  EXPECT_EQ(without_merge(outcome.out), without_seconds(text_of(e.folder.path() / "alone.jsonl")));
  const json merge = merge_record(outcome);
  EXPECT_EQ(merge["verb"], "explore");
  EXPECT_EQ(merge["parts"].size(), 3u);
  EXPECT_TRUE(merge["missing"].empty());
  const Outcome text = e.merged(e.files, "");
  EXPECT_EQ(text.code, tool::findings);
  EXPECT_NE(text.out.find("zero2-offload: complete up to 3 events"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("usage (one-backward-a-step)"), std::string::npos) << text.out;
}

TEST(an_exploration_of_several_processes, names_those_that_died_or_are_missing_and_keeps_the_report) {
  const Explored e;
  std::vector<std::string> begun(e.records.begin(), e.records.begin() + 2);
  e.write("died", e.head(1, 3), begun);
  const Outcome outcome = e.merged({e.files[0], "died"});
  EXPECT_EQ(outcome.code, tool::broken_run);
  const json missing = merge_record(outcome)["missing"];
  ASSERT_EQ(missing.size(), 2u) << missing;
  EXPECT_EQ(missing[0]["shard"], 1);
  EXPECT_EQ(missing[0]["file"], "died");
  EXPECT_EQ(missing[1]["shard"], 2);
  EXPECT_NE(outcome.err.find("shard 2 is missing: there is no report of it"), std::string::npos) << outcome.err;
  EXPECT_EQ(records_of(outcome).size(), e.records.size() + 1) << outcome.out;
}

TEST(an_exploration_of_several_processes, is_refused_where_two_do_not_agree) {
  const Explored e;
  const std::size_t engine = e.first("engine"), finding = e.first("finding");
  const auto refused = [&](const std::vector<std::string>& lines, const std::string& part) {
    e.write("changed", e.head(1, 3), lines);
    expect_complaint(e.merged({e.files[0], "changed", e.files[2]}, ""), tool::bad_input, part);
  };
  const auto with = [&](std::size_t at, const std::string& key, const json& value) {
    std::vector<std::string> lines = e.records;
    json record = json::parse(lines[at]);
    record[key] = value;
    lines[at] = record.dump();
    return lines;
  };
  refused(with(engine, "states", 7), "changed: says something else on line " + std::to_string(engine + 2) + ", a record \"engine\"; expected what r-0 says");
  refused(with(finding, "shape", "1 rank: step"), "a record \"finding\"; expected what r-0 says");
  refused(with(e.records.size() - 1, "exit_code", 0), "changed: has another summary; expected that of r-0");
  std::vector<std::string> fewer = e.records;
  fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(finding));
  refused(fewer, "changed: ");
  std::vector<std::string> died(e.records.begin(), e.records.begin() + 1);
  json record = json::parse(died[0]);
  record["events"] = 17;
  died[0] = record.dump();
  e.write("changed", e.head(1, 3), died);
  const Outcome gone = e.merged({e.files[0], "changed", e.files[2]}, "");
  EXPECT_EQ(gone.code, tool::bad_input);
  EXPECT_NE(gone.err.find("shard 1 is missing"), std::string::npos) << gone.err;
  EXPECT_NE(gone.err.find("changed: says something else on line 2"), std::string::npos) << gone.err;
  const Outcome other_seconds = [&] {
    e.write("changed", e.head(1, 3), with(engine, "seconds", 17.0));
    return e.merged({e.files[0], "changed", e.files[2]});
  }();
  EXPECT_EQ(other_seconds.code, tool::findings) << other_seconds.err;
  expect_complaint(e.merged(e.files, "--findings found"), tool::bad_input, "--findings: is of campaigns, and r-0 is of an exploration");
}

}  // namespace
}  // namespace gradledger::testing
