// A campaign finds what is there, keeps it in files that draw it again, and says of every file whether it is still so.
#include <algorithm>
#include <map>

#include "tests/tools/command.h"
#include "tools/gradledger/exit_codes.h"

namespace gradledger::testing {
namespace {

namespace fs = std::filesystem;

// Every test has a folder of its own: the default one would be that of whoever runs the tests.
Outcome fuzz(const fs::path& findings, std::vector<std::string> options) {
  options.insert(options.begin(), {"fuzz", "--findings", findings});
  return run(std::move(options));
}

// A release that loses gradients on the way through the host, and races.
std::vector<std::string> old_release(std::vector<std::string> more = {}) {
  std::vector<std::string> out{"--as-of", "0.18.9", "--engine", "zero2-offload", "--cases", "40"};
  out.insert(out.end(), more.begin(), more.end());
  return out;
}

std::map<std::string, std::string> contents_of(const fs::path& folder) {
  std::map<std::string, std::string> out;
  if (!fs::exists(folder)) return out;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) out[entry.path().filename()] = entry.is_regular_file() ? text_of(entry.path()) : "";
  return out;
}

bool says(const Outcome& outcome, const std::string& part) { return outcome.out.find(part) != std::string::npos; }

std::size_t count_of(const Outcome& outcome, const std::string& start) {
  const auto lines = lines_of(outcome.out);
  return static_cast<std::size_t>(std::count_if(lines.begin(), lines.end(), [&](const std::string& line) { return line.starts_with(start); }));
}

// The findings of a campaign, once: tests start from copies.
const std::map<std::string, std::string>& found_in_old_release() {
  static const auto files = [] {
    const TemporaryFolder folder;
    EXPECT_EQ(fuzz(folder.path(), old_release()).code, tool::findings);
    return contents_of(folder.path());
  }();
  return files;
}

void write_all(const TemporaryFolder& folder, const std::map<std::string, std::string>& files) {
  for (const auto& [name, text] : files) folder.write(name, text);
}

std::string class_of(const std::string& text) { return json_of(text)["expect"]["findings"].at(0)["class"]; }

TEST(fuzz, of_documented_scripts_at_head_finds_nothing_and_says_how_much_that_means) {
  const TemporaryFolder folder;
  const Outcome outcome = fuzz(folder.path() / "findings", {"--cases", "64"});
  EXPECT_EQ(outcome.code, tool::clean) << outcome.out << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const auto lines = lines_of(outcome.out);
  ASSERT_EQ(lines.size(), 4u) << outcome.out;
  EXPECT_EQ(lines[0], "# gradledger fuzz --seed 0 --cases 64 --findings " + (folder.path() / "findings").string());
  EXPECT_TRUE(lines[1].starts_with("64 cases, ")) << lines[1];
  EXPECT_NE(lines[1].find(" elements compared; 0 looked wrong, "), std::string::npos) << lines[1];
  EXPECT_EQ(lines[1].find(" 0 elements compared"), std::string::npos) << lines[1];
  EXPECT_TRUE(lines[2].starts_with("canary: the fault that must be found was, after ")) << lines[2];
  EXPECT_EQ(contents_of(folder.path()), (std::map<std::string, std::string>{})) << "nothing was found, so there is nothing to keep";
}

TEST(fuzz, of_an_old_release_writes_scenarios_that_a_gate_passes) {
  const TemporaryFolder folder;
  const Outcome outcome = fuzz(folder.path() / "made/for/it", old_release());
  EXPECT_EQ(outcome.code, tool::findings) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const auto files = contents_of(folder.path() / "made/for/it");
  EXPECT_EQ(count_of(outcome, "new  "), files.size());
  EXPECT_TRUE(std::any_of(files.begin(), files.end(), [](const auto& file) { return class_of(file.second) == "offload-loss"; })) << outcome.out;
  for (const auto& [name, text] : files) EXPECT_TRUE(says(outcome, name)) << name;
  const Outcome gate = run({"gate", folder.path()});
  EXPECT_EQ(gate.code, tool::clean) << gate.out;
  EXPECT_EQ(lines_of(gate.out).back(), std::to_string(files.size()) + " passed, 0 failed");
}

TEST(a_saved_finding, has_the_command_that_draws_its_case_again) {
  ASSERT_FALSE(found_in_old_release().empty());
  for (const auto& [name, text] : found_in_old_release()) {
    const std::string note = json_of(text)["note"], before = "Draw it again: ";
    const std::size_t at = note.find(before);
    ASSERT_NE(at, std::string::npos) << note;
    const std::string command = note.substr(at + before.size());
    EXPECT_NE(command.find(" --case "), std::string::npos) << command;
    const TemporaryFolder folder;
    const Outcome again = shell(command + " --findings again", folder.path());
    EXPECT_EQ(again.code, tool::findings) << command << again.err;
    EXPECT_TRUE(says(again, "new          " + class_of(text))) << command << "\n" << again.out;
    EXPECT_TRUE(says(again, "\n1 cases, ")) << again.out;
  }
}

TEST(a_second_campaign, replays_what_was_saved_and_writes_none_of_it_again) {
  const TemporaryFolder folder;
  write_all(folder, found_in_old_release());
  const Outcome second = fuzz(folder.path(), old_release());
  EXPECT_EQ(second.code, tool::findings);
  EXPECT_EQ(count_of(second, "still there  "), found_in_old_release().size()) << second.out;
  EXPECT_EQ(count_of(second, "new  "), 0u) << second.out;
  EXPECT_EQ(contents_of(folder.path()), found_in_old_release());
  // Of other cases they are replayed all the same, and decide the exit code.
  const Outcome elsewhere = fuzz(folder.path(), {"--cases", "8", "--as-of", "0.18.9", "--engine", "zero1"});
  EXPECT_EQ(elsewhere.code, tool::findings);
  EXPECT_EQ(count_of(elsewhere, "still there  "), found_in_old_release().size()) << elsewhere.out;
}

TEST(a_second_campaign, of_code_in_which_it_is_repaired_says_that_it_is_gone) {
  const TemporaryFolder folder;
  write_all(folder, found_in_old_release());
  const Outcome repaired = fuzz(folder.path(), {"--cases", "8", "--as-of", "0.19.6"});
  EXPECT_EQ(repaired.code, tool::clean) << repaired.out;
  EXPECT_EQ(count_of(repaired, "still there  "), 0u) << repaired.out;
  EXPECT_GE(count_of(repaired, "gone  "), found_in_old_release().size()) << repaired.out;
  EXPECT_EQ(contents_of(folder.path()), found_in_old_release());
}

TEST(a_second_campaign, of_another_release_says_what_is_there_too_and_writes_the_rest) {
  const TemporaryFolder folder;
  write_all(folder, found_in_old_release());
  const Outcome other = fuzz(folder.path(), {"--as-of", "0.18.2", "--engine", "zero2-offload", "--cases", "40"});
  EXPECT_EQ(other.code, tool::findings);
  EXPECT_GT(count_of(other, "still there  offload-loss"), 0u) << "it was not repaired between the two\n" << other.out;
  const auto files = contents_of(folder.path());
  EXPECT_EQ(files.size(), found_in_old_release().size() + count_of(other, "new  "));
  for (const auto& [name, text] : found_in_old_release()) EXPECT_EQ(files.at(name), text) << "overwritten";
  EXPECT_EQ(run({"gate", folder.path()}).code, tool::clean);
}

TEST(a_saved_finding, that_is_no_longer_shown_is_gone_and_is_kept) {
  const TemporaryFolder folder;
  json saved = json_of(text_of(testing::leaking_scenario));
  saved.erase("twin_of");
  const std::string path = folder.write("a.json", saved.dump());
  const std::string then = saved["engine"]["as_of"];
  EXPECT_EQ(count_of(fuzz(folder.path(), {"--cases", "8", "--as-of", then, "--engine", "zero0"}), "still there  boundary-leak"), 1u);
  const Outcome outcome = fuzz(folder.path(), {"--cases", "8"});
  EXPECT_EQ(outcome.code, tool::clean) << outcome.out << outcome.err;
  EXPECT_EQ(count_of(outcome, "gone         boundary-leak"), 1u) << outcome.out;
  EXPECT_TRUE(says(outcome, path)) << outcome.out;
  EXPECT_EQ(contents_of(folder.path()).size(), 1u);
  const json record = testing::record_of(fuzz(folder.path(), {"--cases", "8", "--json"}));
  EXPECT_EQ(record["status"], "gone");
  EXPECT_EQ(record["class"], "boundary-leak");
  EXPECT_EQ(record["file"], path);
  EXPECT_TRUE(record["finding"].is_null());
}

TEST(a_folder_of_findings, with_half_a_file_sets_it_aside_and_the_campaign_goes_on) {
  const TemporaryFolder folder;
  write_all(folder, found_in_old_release());
  const std::string half = folder.write("half.json", "{\"name\": \n oops}"), empty = folder.write("empty.json", "");
  folder.write("half.json.damaged", "an earlier one");
  const Outcome outcome = fuzz(folder.path(), old_release());
  EXPECT_EQ(outcome.code, tool::findings) << outcome.err;
  EXPECT_EQ(count_of(outcome, "still there  "), found_in_old_release().size()) << outcome.out;
  EXPECT_NE(outcome.err.find(half + ":2:2: is not JSON"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("set aside as " + half + ".damaged2"), std::string::npos) << outcome.err;
  auto files = contents_of(folder.path());
  EXPECT_EQ(files["half.json.damaged"], "an earlier one");
  EXPECT_EQ(files["half.json.damaged2"], "{\"name\": \n oops}");
  EXPECT_EQ(files.count("empty.json") + files.count("half.json"), 0u);
  EXPECT_EQ(files.count("empty.json.damaged"), 1u);
  EXPECT_EQ(fuzz(folder.path(), old_release()).err, "");
}

TEST(a_folder_of_findings, with_a_file_that_is_no_scenario_is_searched_and_bad_input_all_the_same) {
  const TemporaryFolder folder;
  const std::string file = folder.write("mine.json", "{\"name\": \"mine\"}");
  const Outcome outcome = fuzz(folder.path(), {"--cases", "8"});
  EXPECT_EQ(outcome.code, tool::bad_input);
  EXPECT_NE(outcome.err.find(file + ": "), std::string::npos) << outcome.err;
  EXPECT_TRUE(says(outcome, "\n8 cases, ")) << outcome.out;
  EXPECT_EQ(text_of(file), "{\"name\": \"mine\"}");
}

TEST(a_folder_of_findings, that_is_empty_is_fine) {
  const TemporaryFolder folder;
  EXPECT_EQ(fuzz(folder.path(), {"--cases", "8"}).code, tool::clean);
}

TEST(a_finding, is_never_written_through_a_link) {
  const TemporaryFolder folder, elsewhere;
  for (const auto& [name, text] : found_in_old_release()) fs::create_symlink(elsewhere.path() / name, folder.path() / name);
  const Outcome outcome = fuzz(folder.path(), old_release());
  EXPECT_EQ(outcome.code, tool::findings) << outcome.err;
  EXPECT_EQ(contents_of(elsewhere.path()).size(), 0u);
  for (const auto& [name, text] : found_in_old_release()) EXPECT_TRUE(says(outcome, name.substr(0, name.size() - 5) + "-2.json")) << outcome.out;
}

TEST(findings_of_two_sides, are_kept_apart_from_those_of_campaigns) {
  const TemporaryFolder folder;
  const std::vector<std::string> sides{"--differ", "0.18.9,0.19.6", "--engine", "zero2-offload", "--cases", "8"};
  ASSERT_EQ(fuzz(folder.path(), sides).code, tool::findings);
  const auto written = contents_of(folder.path());
  EXPECT_GT(written.size(), 2u);
  const Outcome campaign = fuzz(folder.path(), {"--cases", "8"});
  EXPECT_EQ(campaign.code, tool::clean) << campaign.out;
  EXPECT_EQ(count_of(campaign, "still there  "), 0u) << campaign.out;
  EXPECT_EQ(fuzz(folder.path(), sides).code, tool::findings);
  EXPECT_EQ(contents_of(folder.path()), written) << "the same again is not written again";
}

TEST(a_folder_of_findings, that_cannot_be_written_is_refused_before_anything_is_searched) {
  const TemporaryFolder folder;
  const std::string file = folder.write("file", "");
  for (const std::string& path : {file, file + "/below"}) expect_complaint(fuzz(path, {}), tool::bad_input, "--findings: " + path + " is or lies in a file");
  expect_complaint(fuzz("", {}), tool::bad_input, "--findings: is empty");
}

// The system says of /proc that root may write there.
TEST(a_finding, that_cannot_be_written_after_all_is_reported_all_the_same) {
  const Outcome outcome = fuzz("/proc/findings", old_release());
  EXPECT_EQ(outcome.code, tool::bad_input);
  // A checkpoint, which a slow campaign comes to, has no place there either, and says so by itself.
  std::size_t said = 0;
  for (const std::string& line : lines_of(outcome.err)) {
    said += line.starts_with("gradledger: --findings: /proc/findings");
    EXPECT_TRUE(line.starts_with("gradledger: --findings: ") || line.starts_with("gradledger: --resume ")) << line;
  }
  EXPECT_EQ(said, 1u) << outcome.err;
  if (geteuid() != 0) return;
  EXPECT_TRUE(says(outcome, "new          offload-loss")) << outcome.out;
  EXPECT_TRUE(says(outcome, "not written")) << outcome.out;
}

TEST(fuzz, leaves_nothing_beside_the_folder_of_findings) {
  const TemporaryFolder folder;
  EXPECT_EQ(shell("gradledger fuzz --as-of 0.18.9 --engine zero2-offload --cases 40", folder.path()).code, tool::findings);
  const auto top = fs::directory_iterator(folder.path());
  EXPECT_EQ(std::distance(fs::begin(top), fs::end(top)), 1);
  std::map<std::string, std::string> files = contents_of(folder.path() / "findings");
  EXPECT_EQ(files.size(), found_in_old_release().size());
}

json campaign_of(const Outcome& outcome) {
  const std::vector<json> records = testing::records_of(outcome);
  EXPECT_GE(records.size(), 2u);
  const json out = records.size() < 2 ? json() : records[records.size() - 2];
  EXPECT_EQ(out["record"], "campaign");
  return out;
}

TEST(shards, have_all_cases_between_them) {
  const TemporaryFolder folder;
  const auto part = [&](const char* shard) { return testing::summary_of(fuzz(folder.path(), {"--cases", "41", "--json", "--shard", shard}))["counts"]; };
  const json whole = part("0/1"), first = part("0/2"), second = part("1/2");
  EXPECT_EQ(whole["cases"], 41);
  EXPECT_EQ(first["cases"], 21);
  EXPECT_EQ(second["cases"], 20);
  EXPECT_EQ(campaign_of(fuzz(folder.path(), {"--cases", "4", "--json", "--shard", "1/2"}))["shard"], "1/2");
  for (const char* count : {"events", "rank_events", "operations", "compared"})
    EXPECT_EQ(whole[count].get<std::uint64_t>(), first[count].get<std::uint64_t>() + second[count].get<std::uint64_t>()) << count;
}

TEST(shards, that_are_none_or_take_no_case_are_refused) {
  const TemporaryFolder folder;
  for (const char* shard : {"", "1", "/", "0/", "/2", "0/0", "2/2", "-1/2", "0/2x", "0 /2", "0.5/2", "0/99999999999"})
    expect_complaint(fuzz(folder.path(), {"--cases", "4", "--shard", shard}), tool::bad_input, "--shard: ");
  const std::string why = "--shard: takes none of the cases; expected more --cases or fewer shards";
  expect_complaint(fuzz(folder.path(), {"--cases", "2", "--shard", "2/3"}), tool::bad_input, why);
  expect_complaint(fuzz(folder.path(), {"--cases", "2", "--shard", "2/3", "--differ", "zero1,zero2"}), tool::bad_input, why);
}

TEST(jobs, change_nothing_of_what_is_found) {
  const TemporaryFolder folder;
  const Outcome one = fuzz(folder.path() / "one", old_release({"--jobs", "1", "--json"})), two = fuzz(folder.path() / "two", old_release({"--jobs", "2", "--json"}));
  EXPECT_EQ(one.code, tool::findings);
  EXPECT_EQ(two.code, tool::findings);
  EXPECT_EQ(contents_of(folder.path() / "one"), contents_of(folder.path() / "two"));
  EXPECT_EQ(testing::summary_of(one)["counts"], testing::summary_of(two)["counts"]);
  EXPECT_EQ(testing::summary_of(one)["classes"], testing::summary_of(two)["classes"]);
}

TEST(fuzz, prints_json_of_one_object_a_line) {
  const TemporaryFolder folder;
  const Outcome outcome = fuzz(folder.path(), old_release({"--json"}));
  const auto records = testing::records_of(outcome);
  ASSERT_EQ(records.size(), found_in_old_release().size() + 2);
  for (std::size_t i = 0; i + 2 < records.size(); ++i) {
    const json& record = records[i];
    EXPECT_EQ(record["record"], "finding");
    EXPECT_EQ(record["status"], "new");
    EXPECT_EQ(record["engine"], "zero2-offload");
    EXPECT_TRUE(record["scenario"].is_null()) << "the file has it";
    const json& finding = record["finding"];
    EXPECT_TRUE(finding["sentence"].get<std::string>().starts_with(record["class"].get<std::string>() + ": ")) << record;
    EXPECT_EQ(finding["file"], record["file"]);
    const json scenario = json_of(text_of(record["file"].get<std::string>()));
    EXPECT_TRUE(scenario.contains(json::json_pointer(finding["pointer"].get<std::string>()))) << finding["pointer"];
    EXPECT_GT(finding["line"], 1) << "of the file that was written";
  }
  const json summary = records.back(), campaign = campaign_of(outcome);
  EXPECT_EQ(summary["counts"]["cases"], 40);
  EXPECT_EQ(summary["counts"]["findings"], found_in_old_release().size());
  EXPECT_GT(summary["counts"]["compared"], 0);
  EXPECT_GE(campaign["canary_cases"], 1);
  EXPECT_TRUE(campaign["nondeterminism"].is_null());
}

TEST(a_case, runs_alone_by_its_number) {
  const TemporaryFolder folder;
  const Outcome outcome = fuzz(folder.path(), {"--case", "17", "--json"});
  EXPECT_EQ(testing::summary_of(outcome)["counts"]["cases"], 1);
  EXPECT_EQ(campaign_of(outcome)["command"], "gradledger fuzz --seed 0 --case 17 --findings " + folder.path().string());
  expect_complaint(fuzz(folder.path(), {"--case", "17", "--cases", "2"}), tool::bad_input, "--case");
  expect_complaint(fuzz(folder.path(), {"--case", "17", "--time", "2"}), tool::bad_input, "--case");
}

TEST(time, ends_a_campaign_of_any_length) {
  const TemporaryFolder folder;
  const json summary = testing::summary_of(fuzz(folder.path(), {"--time", "1", "--engine", "zero0", "--json"}));
  EXPECT_EQ(summary["record"], "summary");
  EXPECT_GE(summary["seconds"], 1.0);
}

TEST(options_of_fuzz, that_are_not_right_are_named) {
  const TemporaryFolder folder;
  const auto refused = [&](std::vector<std::string> options, const std::string& part) { expect_complaint(fuzz(folder.path(), std::move(options)), tool::bad_input, part); };
  refused({"--engine", "zero2-ofload"}, "--engine: \"zero2-ofload\" is no engine; expected one of zero0, ");
  refused({"--engine", "zero2-ofload"}, "did you mean \"zero2-offload\"?");
  refused({"--as-of", "0.99"}, "--as-of: unknown release or change \"0.99\"");
  refused({"--switch", "x"}, "--switch: \"x\" sets nothing; expected name=value");
  refused({"--switch", "offload_keeep=all"}, "--switch: unknown switch \"offload_keeep\"");
  refused({"--switch", "offload_keep=everything"}, "--switch: ");
  for (const char* cases : {"0", "-1", "1e3", "1.5", "010", "many", ""}) refused({"--cases", cases}, "--cases: ");
  for (const char* time : {"0", "-1", "0.5"}) refused({"--time", time}, "--time: ");
  for (const char* jobs : {"0", "-2", "x"}) refused({"--jobs", jobs}, "--jobs: ");
  for (const char* number : {"-1", "x"}) refused({"--case", number}, "--case: ");
  EXPECT_EQ(contents_of(folder.path()).size(), 0u);
}

TEST(a_switch, is_set_on_top_of_the_release) {
  const TemporaryFolder folder;
  const Outcome outcome = fuzz(folder.path(), {"--switch", "offload_keep=counter_only", "--engine", "zero2-offload", "--cases", "24"});
  EXPECT_EQ(outcome.code, tool::findings) << outcome.out << outcome.err;
  EXPECT_TRUE(says(outcome, "new          offload-loss")) << outcome.out;
  EXPECT_EQ(run({"gate", folder.path()}).code, tool::clean);
}

}  // namespace
}  // namespace gradledger::testing
