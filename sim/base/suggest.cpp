#include "sim/base/suggest.h"

#include <algorithm>
#include <vector>

namespace gradledger {
namespace {

constexpr std::size_t letters_max = 64;  // of a word that is compared

// Optimal string alignment distance.
std::size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> of(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) of[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) of[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i)
    for (std::size_t j = 1; j <= b.size(); ++j) {
      of[i][j] = std::min({of[i - 1][j] + 1, of[i][j - 1] + 1, of[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) of[i][j] = std::min(of[i][j], of[i - 2][j - 2] + 1);
    }
  return of[a.size()][b.size()];
}

}  // namespace

std::string did_you_mean(std::string_view given, std::span<const std::string> known) {
  if (given.empty() || given.size() > letters_max) return "";
  const std::string* nearest = nullptr;
  std::size_t fewest = letters_max;
  for (const std::string& word : known) {
    if (word.size() > letters_max) continue;
    const std::size_t n = edits(given, word);
    if (3 * n > std::max(given.size(), word.size()) || n >= fewest) continue;
    fewest = n;
    nearest = &word;
  }
  return nullptr == nearest ? "" : "; did you mean \"" + *nearest + "\"?";
}

}  // namespace gradledger
