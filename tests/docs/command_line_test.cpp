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
  for (const std::string verb : {"audit", "replay", "gate", "coverage", "fuzz", "explore", "explain", "record", "conform", "judge", "merge"}) {
    const Section* section = document.section(verb);
    ASSERT_TRUE(section) << verb;
    for (const std::string& option : options_of(verb)) EXPECT_TRUE(names_option(section->text, option) || names_option(common->text, option)) << verb << " " << option;
  }
  for (const std::string& option : options_of("list")) EXPECT_TRUE(names_option(document.text(), option)) << "list " << option;
}

TEST(command_line_page, has_no_option_that_there_is_not) {
  std::set<std::string> known{"--help", "--version"};
  for (const char* verb : {"audit", "replay", "gate", "coverage", "fuzz", "explore", "explain", "record", "conform", "judge", "merge", "list"}) known.merge(options_of(verb));
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

// What is in a record, its schema says.
TEST(command_line_page, links_the_schema_of_every_record) {
  const std::string text = text_of(page);
  for (const Cells& row : listed("schemas")) {
    const std::string& name = row[0];
    const std::filesystem::path file = source_folder / "docs/schemas" / (name + ".schema.json");
    if (name == "scenario") continue;
    EXPECT_TRUE(std::filesystem::exists(file)) << file;
    EXPECT_NE(text.find("(schemas/" + name + ".schema.json)"), std::string::npos) << name;
  }
  const Document document = read_document(page);
  const Section* section = document.section("The JSON report");
  ASSERT_TRUE(section);
  for (const auto& entry : std::filesystem::directory_iterator(source_folder / "docs/schemas")) {
    const std::string name = entry.path().filename().string().substr(0, entry.path().filename().string().find('.'));
    if (name != "common" && name != "baseline" && name != "trace-file") EXPECT_NE(section->text.find("| [`" + name + "`]("), std::string::npos) << name;
  }
}

TEST(command_line_page, shows_records_that_the_command_prints) {
  const Document document = read_document(page);
  const auto example = std::find_if(document.fences.begin(), document.fences.end(), [](const Fence& f) { return f.name == "records"; });
  ASSERT_NE(example, document.fences.end());
  std::vector<nlohmann::json> shown, printed;
  std::string text = example->text;
  for (std::size_t end = text.find("}\n"); end != std::string::npos; text = text.substr(end + 2), end = text.find("}\n"))
    shown.push_back(nlohmann::json::parse(text.substr(0, end + 1)));
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(source_folder);
  std::istringstream lines(run_command({"gate", "scenarios/deepspeed-7985/no-leak-7985.json", "none.json", "--json"}).output);
  std::filesystem::current_path(before);
  for (std::string line; std::getline(lines, line);) {
    printed.push_back(nlohmann::json::parse(line));
    for (const char* key : {"tool", "seconds"}) printed.back().erase(key);
  }
  EXPECT_EQ(shown, printed);
}

// The example of accepted findings is one that the command takes, and has what the schema asks for.
TEST(command_line_page, shows_a_baseline_that_is_taken) {
  const Document document = read_document(page);
  const auto example = std::find_if(document.fences.begin(), document.fences.end(), [](const Fence& f) { return f.text.find("\"accepted\"") != std::string::npos; });
  ASSERT_NE(example, document.fences.end());
  const auto baseline = nlohmann::json::parse(example->text), schema = nlohmann::json::parse(text_of(source_folder / "docs/schemas/baseline.schema.json"));
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
