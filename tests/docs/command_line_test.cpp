// docs/command-line.md and docs/findings.md say what the command says of itself.
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "tests/docs/command.h"
#include "tests/docs/markdown.h"

namespace gradledger::testing {
namespace {

const std::filesystem::path page = source_folder / "docs/command-line.md";

std::set<std::string> options_in(const std::string& text) {
  std::set<std::string> out;
  const std::regex option(R"((^|[\s,`])(--[a-z][a-z-]+))");
  for (std::sregex_iterator at(text.begin(), text.end(), option), end; at != end; ++at) out.insert((*at)[2]);
  return out;
}

std::set<std::string> options_of(const std::string& verb) {
  const std::string help = run_command({verb, "--help"}).output;
  std::set<std::string> out = options_in(help.substr(0, help.find("Exit codes:")));
  EXPECT_TRUE(out.erase("--help")) << verb;
  EXPECT_FALSE(out.empty()) << verb;
  return out;
}

// "`--seed N`" and "`--json`" alike.
bool names_option(const std::string& text, const std::string& option) {
  return text.find("`" + option + "`") != std::string::npos || text.find("`" + option + " ") != std::string::npos;
}

TEST(command_line_page, has_every_option_of_every_verb) {
  const Document document = read_document(page);
  const Section* common = document.section("How text looks");
  ASSERT_TRUE(common);
  for (const std::string verb : {"audit", "replay", "gate", "coverage", "fuzz", "explore", "explain", "record", "conform", "judge"}) {
    const Section* section = document.section(verb);
    ASSERT_TRUE(section) << verb;
    for (const std::string& option : options_of(verb)) EXPECT_TRUE(names_option(section->text, option) || names_option(common->text, option)) << verb << " " << option;
  }
  for (const std::string& option : options_of("list")) EXPECT_TRUE(names_option(document.text(), option)) << "list " << option;
}

TEST(command_line_page, has_no_option_that_there_is_not) {
  std::set<std::string> known{"--help", "--version"};
  for (const char* verb : {"audit", "replay", "gate", "coverage", "fuzz", "explore", "explain", "record", "conform", "judge", "list"}) known.merge(options_of(verb));
  const std::set<std::string> named = options_in(read_document(page).text());
  EXPECT_GT(named.size(), 5u);
  for (const std::string& option : named) EXPECT_TRUE(known.contains(option)) << option;
}

TEST(command_line_page, has_every_verb_and_everything_that_can_be_listed) {
  const std::string synopsis = read_document(page).fences.at(0).text;
  const std::string help = run_command({"--help"}).output;
  const std::string verbs = help.substr(help.find("Subcommands:"));
  const std::regex verb("\n  ([a-z]+) ");
  std::size_t found = 0;
  for (std::sregex_iterator at(verbs.begin(), verbs.end(), verb), end; at != end; ++at, ++found)
    EXPECT_NE(synopsis.find("gradledger " + (*at)[1].str()), std::string::npos) << (*at)[1];
  EXPECT_GE(found, 3u);

  const std::string list_help = run_command({"list", "--help"}).output;
  std::smatch braces;
  ASSERT_TRUE(std::regex_search(list_help, braces, std::regex(R"(\{([a-z,-]+)\})")));
  std::istringstream words(braces[1]);
  std::string word;
  std::size_t listed_words = 0;
  for (; std::getline(words, word, ','); ++listed_words) EXPECT_NE(synopsis.find(word), std::string::npos) << word;
  EXPECT_GE(listed_words, 5u);
}

TEST(command_line_page, has_every_exit_code) {
  const Document document = read_document(page);
  for (const Cells& row : listed("exit-codes")) EXPECT_TRUE(has_row(document, row)) << row[0] << " " << row[1];
}

TEST(command_line_page, names_every_field_of_the_reports) {
  const std::string file = (source_folder / "scenarios/deepspeed-7985/boundary-leak-0.18.6.json").string();
  const std::string text = read_document(page).text();
  const auto names = [&](const nlohmann::json& object, const std::set<std::string>& aside) {
    EXPECT_GT(object.size(), 3u);
    for (const auto& [key, unused] : object.items())
      if (!aside.contains(key)) {
        EXPECT_NE(text.find("`" + key + "`"), std::string::npos) << key;
      }
  };
  const nlohmann::json report = nlohmann::json::parse(run_command({"replay", "--json", file}).output);
  names(report, {});
  ASSERT_FALSE(report["findings"].empty());
  names(report["findings"][0], {});
  names(report["findings"][0]["contributions"].at(0), {});
  names(nlohmann::json::parse(run_command({"gate", "--json", file}).output), {});
}

// Each kind of record of the searches, by a run that prints it.
TEST(command_line_page, names_every_field_of_the_searches) {
  const std::string text = read_document(page).text();
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / ("gradledger-docs-" + std::to_string(getpid()));
  const std::string findings = folder.string(), racing = (source_folder / "scenarios/streams/stage-3-side-stream-before-7898.json").string();
  std::set<std::string> records;
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"gate", "--mutants", "--mutant", "micro-batch-lost", "--json"},
                                             {"fuzz", "--findings", findings, "--as-of", "0.18.9", "--engine", "zero2-offload", "--cases", "8", "--json"},
                                             {"fuzz", "--findings", findings, "--differ", "0.18.9,0.19.6", "--engine", "zero2-offload", "--cases", "8", "--json"},
                                             {"fuzz", "--catalogue", racing, "--cases", "1", "--json"},
                                             {"explore", "--engine", "zero1", "--length", "2", "--json"},
                                             {"explore", "--streams", racing, "--json"}}) {
    std::istringstream lines(run_command(words).output);
    for (std::string line; std::getline(lines, line);) {
      const nlohmann::json record = nlohmann::json::parse(line);
      records.insert(record["record"].get<std::string>());
      for (const auto& [key, unused] : record.items()) EXPECT_NE(text.find("`" + key + "`"), std::string::npos) << key;
    }
  }
  std::filesystem::remove_all(folder);
  EXPECT_EQ(records, (std::set<std::string>{"mutant", "summary", "finding", "difference", "row", "engine", "streams"}));
  for (const std::string& record : records) EXPECT_NE(text.find("`" + record + "`"), std::string::npos) << record;
}

// The example of accepted findings is one that the command takes, and has what the schema asks for.
TEST(command_line_page, shows_a_baseline_that_is_taken) {
  const Document document = read_document(page);
  const auto example = std::find_if(document.fences.begin(), document.fences.end(), [](const Fence& f) { return f.text.find("\"accepted\"") != std::string::npos; });
  ASSERT_NE(example, document.fences.end());
  const auto baseline = nlohmann::json::parse(example->text), schema = nlohmann::json::parse(text_of(source_folder / "docs/baseline.schema.json"));
  std::set<std::string> keys, required;
  for (const auto& [key, unused] : baseline["accepted"].at(0).items()) keys.insert(key);
  for (const auto& key : schema["properties"]["accepted"]["items"]["required"]) required.insert(key.get<std::string>());
  EXPECT_EQ(keys, required);
  EXPECT_EQ(baseline["schema_version"], schema["properties"]["schema_version"]["const"]);
  const std::filesystem::path file = std::filesystem::path(::testing::TempDir()) / ("gradledger-baseline-" + std::to_string(getpid()));
  std::ofstream(file) << example->text;
  const std::string clean = (source_folder / "scenarios/deepspeed-7985/no-leak-7985.json").string();
  const std::string output = run_command({"gate", clean, "--baseline", file.string(), "--today", "2027-01-01"}).output;
  EXPECT_NE(output.find("1 passed, 0 failed"), std::string::npos) << output;
  EXPECT_NE(output.find("the baseline names my-loop, which is not among the scenarios"), std::string::npos) << output;
  std::filesystem::remove(file);
}

TEST(findings_page, has_every_rule_of_documented_use_as_it_is_listed) {
  const Document document = read_document(source_folder / "docs/findings.md");
  const Section* section = document.section("Whose it is");
  ASSERT_TRUE(section);
  for (const Cells& row : listed("rules")) EXPECT_TRUE(has_row(document, row)) << row[0];
  EXPECT_EQ(section->rows.size(), listed("rules").size());
}

TEST(findings_page, has_every_class_as_it_is_listed) {
  const Document document = read_document(source_folder / "docs/findings.md");
  std::size_t rows = 0;
  for (const Cells& row : listed("findings")) EXPECT_TRUE(has_row(document, row)) << row[0];
  for (const Cells& row : document.sections.at(1).rows) rows += !row.empty();
  EXPECT_EQ(rows, listed("findings").size());
}

}  // namespace
}  // namespace gradledger::testing
