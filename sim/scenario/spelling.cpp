#include "sim/scenario/spelling.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace gradledger {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// Optimal string alignment, three rows of its table at a time.
std::size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before_last, last, row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  last = row;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before_last = std::exchange(last, row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1])) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
  }
  return row[b.size()];
}

}  // namespace

std::string closest_of(std::string_view word, const std::vector<std::string>& known) {
  std::string best;
  std::size_t fewest = 0;
  for (const std::string& candidate : known) {
    const std::size_t most = std::max<std::size_t>(1, candidate.size() / 3);
    // Also keeps the table small, however long the word is.
    if (word.size() > candidate.size() + most || candidate.size() > word.size() + most) continue;
    const std::size_t distance = edits(word, candidate);
    if (distance > most || (!best.empty() && distance >= fewest)) continue;
    best = candidate;
    fewest = distance;
  }
  return best;
}

std::string suggestion(std::string_view word, const std::vector<std::string>& known) {
  const std::string closest = closest_of(word, known);
  return closest.empty() ? "" : "; did you mean \"" + closest + "\"?";
}

std::string in_words(const std::vector<std::string>& known) {
  std::string out = known.empty() ? "none" : known.front();
  for (std::size_t i = 1; i < known.size(); ++i) out += (i + 1 < known.size() ? ", " : " or ") + known[i];
  return out;
}

}  // namespace gradledger
