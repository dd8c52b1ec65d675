// docs/mutants.md lists the faults that a gate plants, as they are in the code.
#include <string>

#include "search/mutants/mutant.h"
#include "search/draw/variants.h"
#include "tests/docs/markdown.h"

namespace gradledger::testing {
namespace {

using search::Mutant;

std::string listed_variants(const Mutant& mutant) {
  if (mutant.variants.size() == search::variants().size()) return "all";
  std::string out;
  for (const std::string_view variant : mutant.variants) out += (out.empty() ? "" : ", ") + std::string(variant);
  return out;
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
