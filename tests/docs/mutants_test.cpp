// docs/mutants.md lists the faults that a gate plants, as they are in the code.
#include <algorithm>
#include <string>
#include <vector>

#include "search/mutants/mutant.h"
#include "sim/frameworks/search_space.h"
#include "tests/docs/markdown.h"

namespace gradledger::testing {
namespace {

using search::Mutant;

std::vector<std::string_view> engines_of(bool deepspeed) {
  std::vector<std::string_view> out;
  for (const Framework* framework : frameworks())
    if (framework->search_space() && (framework == &default_framework()) == deepspeed)
      for (const Variant& variant : framework->search_space()->variants()) out.push_back(variant.name);
  return out;
}

// In the mutant's order, or what they are all of.
std::string listed(const Mutant& mutant, const std::vector<std::string_view>& engines, const std::string& all) {
  std::string out;
  std::size_t count = 0;
  for (const std::string_view variant : mutant.variants) {
    if (std::find(engines.begin(), engines.end(), variant) == engines.end()) continue;
    out += (count++ > 0 ? ", " : "") + std::string(variant);
  }
  return count == engines.size() ? all : out;
}

std::string listed_variants(const Mutant& mutant) {
  const std::string deepspeed = listed(mutant, engines_of(true), "all of DeepSpeed"), loops = listed(mutant, engines_of(false), "all of loops");
  return deepspeed + (deepspeed.empty() || loops.empty() ? "" : ", ") + loops;
}

Cells row_of(const Mutant& mutant) {
  std::string classes;
  for (const ref::FindingClass c : mutant.classes) classes += (classes.empty() ? "" : ", ") + std::string(ref::name_of(c));
  return {std::string(mutant.name), std::string(mutant.what), classes, listed_variants(mutant)};
}

std::string line_of(const Cells& cells) {
  std::string out = "|";
  for (const std::string& cell : cells) out += " " + cell + " |";
  return out;
}

TEST(mutants_page, lists_every_mutant_as_it_is_and_no_other) {
  const Document page = read_document(source_folder / "docs/mutants.md");
  const Section* table = page.section("The mutants");
  ASSERT_NE(table, nullptr);
  ASSERT_EQ(table->rows.size(), search::mutants().size());
  for (std::size_t m = 0; m < table->rows.size(); ++m) EXPECT_EQ(line_of(table->rows[m]), line_of(row_of(search::mutants()[m])));
}

}  // namespace
}  // namespace gradledger::testing
