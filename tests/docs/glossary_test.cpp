// docs/glossary.md explains the words that reports use, and no word that nobody uses.
#include <algorithm>
#include <set>

#include "tests/docs/markdown.h"

namespace gradledger::testing {
namespace {

const std::filesystem::path glossary_page = source_folder / "docs/glossary.md";

const std::vector<Cells>& entries() {
  static const std::vector<Cells> rows = read_document(glossary_page).section("Glossary")->rows;
  return rows;
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// The word with a boundary before it; what follows may be its plural.
bool occurs(const std::string& word, const std::string& text) {
  const auto letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; };
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1))
    if (at == 0 || !letter(text[at - 1])) return true;
  return false;
}

TEST(glossary, has_words_in_order_each_once_with_one_or_two_sentences) {
  ASSERT_GT(entries().size(), 40u);
  for (std::size_t i = 0; i < entries().size(); ++i) {
    const Cells& row = entries()[i];
    ASSERT_EQ(row.size(), 2u);
    if (i > 0) {
      EXPECT_LT(entries()[i - 1][0], row[0]);
    }
    EXPECT_TRUE(row[1].ends_with(".")) << row[0];
    EXPECT_LT(row[1].size(), 250u) << row[0];
  }
}

TEST(glossary, has_no_word_that_occurs_nowhere_else) {
  std::string pages;
  for (const std::filesystem::path& file : all_documents())
    if (file != glossary_page) pages += lower(text_of(file)) + "\n";
  for (const char* folder : {"tools/gradledger", "report", "verbs", "ref"})
    for (const auto& file : std::filesystem::recursive_directory_iterator(source_folder / folder))
      if (file.is_regular_file()) pages += lower(text_of(file.path())) + "\n";
  std::replace(pages.begin(), pages.end(), '\n', ' ');  // sentences are broken into lines
  for (const Cells& row : entries()) EXPECT_TRUE(occurs(lower(row[0]), pages)) << row[0];
  EXPECT_FALSE(occurs("quux", pages));
}

// Separated by commas.
const char* const taken_for_granted =
    "accumulator, applied gradient, as of, balance, base optimizer, blame, bound, boundary, buffer, canary, case, class, clean, collective, contract, "
    "contribution, due, engine, entry, event, evidence, expect, finding, fingerprint, ga, gate, head, hook, host, inconclusive, known defect, ledger, "
    "loss scale, master weights, micro-batch, mutant, not judged, nothing judged, open, overflow, pass, poison, private, probe, producer, race, rank, "
    "reduction, role, scenario, schedule, seed, shape, snapshot, stale, step fact, stream, trace, twin, usage, verdict, weight, window";

TEST(glossary, has_every_word_that_reports_take_for_granted) {
  std::set<std::string> words;
  for (const Cells& row : entries()) words.insert(row[0]);
  std::istringstream expected(taken_for_granted);
  std::size_t looked_at = 0;
  for (std::string word; std::getline(expected, word, ','); ++looked_at) EXPECT_TRUE(words.contains(trimmed(word))) << word;
  EXPECT_GT(looked_at, 50u);
}

}  // namespace
}  // namespace gradledger::testing
