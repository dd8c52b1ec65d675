// What comments name: the project beside a number, and where an engine's function was read.
#include <gtest/gtest.h>

#include <regex>

#include "tests/tidy/source_tree.h"

namespace gradledger::testing {
namespace {

// The comment of a line, and nothing of what stands in quotes or code marks.
std::string comment_of(const std::string& line) {
  bool quoted = false;
  for (std::size_t i = 0; i + 1 < line.size(); ++i) {
    if (quoted && line[i] == '\\') ++i;
    else if (line[i] == '"') quoted = !quoted;
    else if (!quoted && line[i] == '/' && line[i + 1] == '/') return std::regex_replace(line.substr(i), std::regex("`[^`]*`|\"[^\"]*\""), "");
  }
  return "";
}

bool has_bare_number(const std::string& line) {
  static const std::regex bare(R"((^|[^\w&/\]])#\d{3,}\b)");
  return line.find('#') != std::string::npos && std::regex_search(comment_of(line), bare);
}

TEST(comments, name_the_project_beside_a_number) {
  std::size_t numbers = 0;
  for (const SourceFile& file : source_tree()) {
    if (!file.is_cpp() && !file.path.ends_with(".def")) continue;
    for (std::size_t l = 0; l < file.lines.size(); ++l) {
      EXPECT_FALSE(has_bare_number(file.lines[l])) << file.path << ":" << l + 1 << ": " << file.lines[l];
      numbers += file.lines[l].find("DeepSpeed#") != std::string::npos;
    }
  }
  EXPECT_GT(numbers, 50u);
}

TEST(comments, without_the_project_are_found) {
  for (const char* bare : {"// #7981: before it", "  f();  // since #7981", "g(\"a\");  // before #7981, it is said"}) EXPECT_TRUE(has_bare_number(bare)) << bare;
  for (const char* right : {"// DeepSpeed#7981: before it", "// `#7981` is a value", "f(\"before #7981\");", "#include <x>", "// \"#7981\" (right after it)"})
    EXPECT_FALSE(has_bare_number(right)) << right;
}

// ---- sources of the engines -----------------------------------------------------------------------------------------------------------

// A function that emits operations models one of the framework, "stage3.py: partition_grads, at 0.19.7", or is "ours: " with what it is for.
bool names_a_source(const std::string& comment) {
  static const std::regex source(R"(\w+\.(py|cpp): \w+.*(at (torch )?\d|before DeepSpeed#)|// ours: \w)");
  return std::regex_search(comment, source);
}

bool declares_an_emitter(const std::string& line) {
  static const std::regex emitter(R"(^ *[\w:<>,&\[\] ]+ \w+\([^;{]*(ProgramWriter&|const Pass& pass))"), abstract(R"(= 0;)");
  return std::regex_search(line, emitter) && !std::regex_search(line, abstract);
}

// On its line, or in the comment right above it.
bool source_is_named(const SourceFile& file, std::size_t line) {
  if (names_a_source(file.lines[line])) return true;
  while (line-- > 0 && file.lines[line].find_first_not_of(' ') == file.lines[line].find("//") && !file.lines[line].empty())
    if (names_a_source(file.lines[line])) return true;
  return false;
}

TEST(engines, name_the_source_of_every_function_that_emits_operations) {
  std::size_t emitters = 0;
  for (const SourceFile& file : source_tree()) {
    if (!file.in("sim/frameworks") || !file.path.ends_with(".h")) continue;
    for (std::size_t l = 0; l < file.lines.size(); ++l) {
      if (!declares_an_emitter(file.lines[l])) continue;
      ++emitters;
      EXPECT_TRUE(source_is_named(file, l)) << file.path << ":" << l + 1 << ": " << file.lines[l];
    }
  }
  EXPECT_GT(emitters, 120u);
}

TEST(engines, without_a_source_are_found) {
  const SourceFile file{
      "x.h",
      {"  void named(ProgramWriter& w);  // stage3.py: step, at 0.19.7", "  // stage3.py: step, at 0.19.7", "  void above(ProgramWriter& w);", "  void bare(ProgramWriter& w);",
       "  virtual void abstract(ProgramWriter& w) = 0;", "  // ours: snapshots", "  void own(ProgramWriter& w);", "  Tensor no_release(ProgramWriter& w);  // stage3.py: step"}};
  const auto found = [&](std::size_t line) { return declares_an_emitter(file.lines[line]) && !source_is_named(file, line); };
  for (const std::size_t right : {0u, 2u, 4u, 6u}) EXPECT_FALSE(found(right)) << file.lines[right];
  for (const std::size_t wrong : {3u, 7u}) EXPECT_TRUE(found(wrong)) << file.lines[wrong];
}

}  // namespace
}  // namespace gradledger::testing
