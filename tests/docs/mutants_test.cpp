// docs/mutants.md lists the faults that a gate plants, as they are in the code.
#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "search/mutants/mutant.h"
#include "sim/frameworks/search_space.h"
#include "tests/docs/markdown.h"

namespace gradledger::testing {
namespace {

using search::Mutant;

using Engines = std::vector<std::string_view>;

Engines engines_of(bool deepspeed, std::span<const Variant> (SearchSpace::*which)() const = &SearchSpace::variants) {
  Engines out;
  for (const Framework* framework : frameworks())
    if (framework->search_space() && (framework == &default_framework()) == deepspeed)
      for (const Variant& variant : (framework->search_space()->*which)()) out.push_back(variant.name);
  return out;
}

// In the mutant's order, or what they are all of. Engines that are drawn by name alone are none of all.
std::string listed(const Mutant& mutant, bool of_deepspeed, const std::string& all) {
  const Engines engines = engines_of(of_deepspeed), further = engines_of(of_deepspeed, &SearchSpace::further_variants);
  std::string out;
  std::size_t count = 0;
  for (const std::string_view variant : mutant.variants) {
    const bool by_name = std::find(further.begin(), further.end(), variant) != further.end();
    if (!by_name && std::find(engines.begin(), engines.end(), variant) == engines.end()) continue;
    out += (out.empty() ? "" : ", ") + std::string(variant);
    count += !by_name;
  }
  return count == engines.size() ? all : out;
}

std::string listed_variants(const Mutant& mutant) {
  const std::string deepspeed = listed(mutant, true, "all of DeepSpeed"), loops = listed(mutant, false, "all of loops");
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
