// The other two ways to search: for what two sides do differently, and for the defects that are known.
#include <set>

#include "tests/tools/command.h"
#include "tools/gradledger/exit_codes.h"

namespace gradledger::testing {
namespace {

namespace fs = std::filesystem;

std::size_t count_files(const fs::path& folder) {
  return fs::exists(folder) ? static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator())) : 0;
}

Outcome differ(const fs::path& findings, const std::string& sides, std::vector<std::string> options = {}) {
  options.insert(options.begin(), {"fuzz", "--findings", findings, "--differ", sides});
  return run(std::move(options));
}

TEST(a_difference_of_two_releases, is_explained_by_coefficients_and_kept_as_a_file_a_side) {
  const TemporaryFolder folder;
  const Outcome outcome = differ(folder.path(), "0.18.9,0.19.6", {"--engine", "zero2-offload", "--cases", "24", "--json"});
  EXPECT_EQ(outcome.code, tool::findings) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  std::set<std::string> files;
  bool by_coefficients = false;
  const auto records = testing::records_of(outcome);
  ASSERT_GE(records.size(), 3u);
  for (std::size_t i = 0; i + 2 < records.size(); ++i) {
    const json& difference = records[i];
    EXPECT_EQ(difference["record"], "difference");
    EXPECT_EQ(difference["one"], "0.18.9");
    EXPECT_EQ(difference["other"], "0.19.6");
    ASSERT_EQ(difference["files"].size(), 2u) << difference;
    EXPECT_EQ(json_of(text_of(difference["files"][0].get<std::string>()))["engine"]["as_of"], "0.18.9");
    EXPECT_EQ(json_of(text_of(difference["files"][1].get<std::string>()))["engine"]["as_of"], "0.19.6");
    for (const auto& file : difference["files"]) files.insert(file.get<std::string>());
    by_coefficients = by_coefficients || difference["text"].get<std::string>().find(": 0 in 0.18.9, 1") != std::string::npos;
  }
  EXPECT_TRUE(by_coefficients) << outcome.out;
  EXPECT_GE(records[records.size() - 2]["canary_cases"], 1);
  EXPECT_EQ(records.back()["counts"]["cases"], 24);
  EXPECT_GT(records.back()["counts"]["compared"], 0);
  EXPECT_EQ(files.size(), count_files(folder.path() / "differ"));
  const Outcome gate = run({"gate", folder.path()});
  EXPECT_EQ(gate.code, tool::clean) << "each file says what its side reports\n" << gate.out;
}

TEST(a_difference, has_the_command_that_draws_it_again) {
  const TemporaryFolder folder;
  const Outcome outcome = differ(folder.path() / "first", "before #7981,#7981", {"--engine", "zero2-offload", "--cases", "8"});
  EXPECT_EQ(outcome.code, tool::findings) << outcome.err;
  ASSERT_GE(lines_of(outcome.out).size(), 4u);
  EXPECT_EQ(lines_of(outcome.out)[0], "# gradledger fuzz --seed 0 --engine zero2-offload --cases 8 --differ 'before #7981,#7981' --findings " + (folder.path() / "first").string());
  const std::string note = json_of(text_of(fs::directory_iterator(folder.path() / "first/differ")->path()))["note"], before = "Draw it again: ";
  ASSERT_NE(note.find(before), std::string::npos) << note;
  const Outcome again = shell(note.substr(note.find(before) + before.size()) + " --findings again", folder.path());
  EXPECT_EQ(again.code, tool::findings) << note << again.err;
  EXPECT_EQ(count_files(folder.path() / "again/differ"), 2u);
}

// Configurations are drawn of the framework that the sides name, without --engine too.
TEST(engines, of_one_framework_that_is_not_deepspeed_do_not_differ) {
  const TemporaryFolder folder;
  for (const char* sides : {"fsdp2,fsdp2-offload", "ddp,host", "megatron,megatron-distributed"}) {
    const Outcome outcome = differ(folder.path() / "findings", sides, {"--cases", "24"});
    EXPECT_EQ(outcome.code, tool::clean) << sides << outcome.out << outcome.err;
    EXPECT_NE(outcome.out.find(" compared, 0 differ, "), std::string::npos) << sides << outcome.out;
  }
}

TEST(engines, of_documented_scripts_at_head_do_not_differ) {
  const TemporaryFolder folder;
  const Outcome outcome = differ(folder.path() / "findings", "zero1,zero2,zero3", {"--cases", "48"});
  EXPECT_EQ(outcome.code, tool::clean) << outcome.out << outcome.err;
  EXPECT_NE(outcome.out.find(" compared, 0 differ, "), std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.out.find(" 0 compared"), std::string::npos) << outcome.out;
  EXPECT_EQ(count_files(folder.path()), 0u);
}

TEST(engines, of_several_frameworks_apply_the_same_gradient_of_the_same_loop) {
  const TemporaryFolder folder;
  const Outcome outcome = differ(folder.path() / "findings", "zero3,ddp,fsdp2,megatron", {"--cases", "24"});
  EXPECT_EQ(outcome.code, tool::clean) << outcome.out << outcome.err;
  EXPECT_NE(outcome.out.find(" compared, 0 differ, "), std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.out.find(" 0 compared"), std::string::npos) << outcome.out;
}

TEST(engines, of_several_frameworks_go_without_what_is_of_one) {
  const TemporaryFolder folder;
  expect_complaint(differ(folder.path(), "zero2,zero3", {"--engine", "ddp"}), tool::bad_input, "--engine: names ddp, and --differ names zero2, which are of two frameworks");
  expect_complaint(differ(folder.path(), "ddp,0.18.9"), tool::bad_input, "--differ: \"0.18.9\" is no release, change, engine or producer");
  expect_complaint(differ(folder.path(), "ddp,host", {"--as-of", "0.18.9"}), tool::bad_input, "--as-of: is \"0.18.9\"; of PyTorch 2.4.0 to 2.15.0 are modelled");
  expect_complaint(differ(folder.path(), "ddp,zero3", {"--engine", "zero3"}), tool::bad_input, "--engine: goes with sides of one framework");
  expect_complaint(differ(folder.path(), "ddp,zero3", {"--as-of", "0.18.9"}), tool::bad_input, "--as-of: is of one framework");
  expect_complaint(differ(folder.path(), "ddp,0.18.9,zero3"), tool::bad_input, "--differ: names engines of several frameworks, and \"0.18.9\" beside them");
}

TEST(sides, that_make_no_comparison_are_refused) {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& sides, const std::string& part) { expect_complaint(differ(folder.path(), sides, {"--cases", "4"}), tool::bad_input, part); };
  refused("0.18.9", "--differ: names one side; expected two or more, comma-separated");
  refused("0.18.9,", "--differ: \"\" is no release, change, engine or producer");
  refused("0.18.9,zero9", "--differ: \"zero9\" is no release, change, engine or producer; expected as 0.18.9, ");
  refused("zero1,zero2,zero1", "--differ: names \"zero1\" twice");
  refused("", "--differ: is empty");
  expect_complaint(differ(folder.path(), "zero1,zero2", {"--producer", "host"}), tool::bad_input, "--differ excludes --producer");
  expect_complaint(differ(folder.path(), "zero1,zero2", {"--memory-limit", "1gb"}), tool::bad_input, "--differ excludes --memory-limit");
  expect_complaint(differ(folder.path(), "zero1,zero2", {"--as-of", "9"}), tool::bad_input, "--as-of: ");
  if (!fs::exists("/dev/nvidiactl")) expect_complaint(differ(folder.path(), "host,gpu"), tool::unavailable, "--producer: \"gpu\" ");
}

TEST(differences, that_have_no_folder_are_not_looked_for) {
  const TemporaryFolder folder;
  const std::string file = folder.write("file", "");
  expect_complaint(differ(file, "zero1,zero2"), tool::bad_input, "--findings: " + file);
}

void copy_defect(const TemporaryFolder& folder, const std::string& defect, const std::string& clean) {
  for (const std::string& name : {defect, clean}) fs::copy(source_folder / "scenarios" / name, folder.path() / fs::path(name).filename());
}

TEST(known_defects, are_found_from_nothing) {
  const TemporaryFolder folder;
  copy_defect(folder, "deepspeed-7985/boundary-leak-before-7985.json", "deepspeed-7985/no-leak-7985.json");
  copy_defect(folder, "zoo/8-cleared-by-every-backward.json", "zoo/8-cleared-by-every-backward-clean.json");
  const Outcome outcome = run({"fuzz", "--catalogue", folder.path()});
  EXPECT_EQ(outcome.code, tool::clean) << outcome.out << outcome.err;
  for (const char* entry : {"\ncatalogue-4 ", "\nzoo-8 ", "\n2 of 2 entries found; "}) EXPECT_NE(outcome.out.find(entry), std::string::npos) << outcome.out;
  EXPECT_EQ(count_files(folder.path()), 4u) << "nothing is written";
  const auto records = testing::records_of(run({"fuzz", "--catalogue", folder.path(), "--json"}));
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[0]["entry"], "catalogue-4");
  EXPECT_EQ(records[0]["class"], "boundary-leak");
  EXPECT_LT(records[0]["events"], records[0]["events_known"]) << "a search that makes small does better than who found it";
  EXPECT_EQ(records[2]["counts"]["entries"], 2);
  EXPECT_EQ(records[2]["counts"]["found"], 2);
}

TEST(known_defects, that_are_not_found_in_so_many_cases_are_said_so) {
  const TemporaryFolder folder;
  copy_defect(folder, "streams/two-producers-before-8080.json", "streams/two-producers-8080.json");
  const Outcome outcome = run({"fuzz", "--catalogue", folder.path(), "--cases", "1"});
  EXPECT_EQ(outcome.code, tool::findings) << outcome.out;
  EXPECT_NE(outcome.out.find("NOT FOUND"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("\n0 of "), std::string::npos) << outcome.out;
}

TEST(a_folder_of_known_defects, that_holds_none_is_bad_input) {
  const TemporaryFolder folder;
  const auto refused = [&](std::vector<std::string> options, const std::string& part) {
    options.insert(options.begin(), {"fuzz", "--catalogue", folder.path()});
    expect_complaint(run(options), tool::bad_input, part);
  };
  refused({}, "--catalogue: ");
  fs::copy(testing::clean_scenario, folder.path() / "clean.json");
  refused({}, "--catalogue: holds no scenario that shows a known defect; expected some with \"covers\"");
  refused({"--differ", "zero1,zero2"}, "excludes --catalogue");
  // It draws from all engines as of the release of each defect, and writes nothing.
  for (const char* option : {"--engine", "--as-of", "--switch", "--shard", "--jobs", "--findings", "--case", "--producer"})
    refused({option, option == std::string("--producer") ? "host" : "1"}, std::string(option) == "--producer" ? "--producer" : option);
  refused({"--any-script"}, "--any-script excludes --catalogue");
  folder.write("broken.json", "{");
  refused({}, "broken.json:1:2: ");
}

}  // namespace
}  // namespace gradledger::testing
