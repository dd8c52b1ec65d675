#include "verbs/expected_values.h"

#include <algorithm>

#include <fmt/format.h>

#include "ref/dtype_facts.h"

namespace gradledger::verbs {

// Whole buffers are compared, padding included where the values go that far.
void ExpectedValuesSink::observe(const Observation& o) {
  for (std::size_t i = 0; i < expected_.size(); ++i) {
    const ExpectedValues& expected = expected_[i];
    if (!o.at_end || expected.event != o.event || expected.rank != o.rank) continue;
    Seen& seen = seen_[i];
    if (expected.buffer != o.buffer) {
      seen.others += (seen.others.empty() ? "" : ", ") + std::string(o.buffer);
      continue;
    }
    std::vector<double> values;
    for (const ObservedPiece& piece : o.pieces) {
      const std::size_t at = values.size();
      values.resize(at + piece.numel);
      ref::read_stored(piece.dtype, piece.data, piece.numel, values.data() + at);
    }
    seen.met = values.size() >= expected.values.size() && std::equal(expected.values.begin(), expected.values.end(), values.begin());
    values.resize(std::min(values.size(), expected.values.size()));
    seen.how_not = fmt::format("holds [{}]", fmt::join(values, ", "));
  }
}

std::vector<std::string> ExpectedValuesSink::unmet() const {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < expected_.size(); ++i) {
    const ExpectedValues& expected = expected_[i];
    const Seen& seen = seen_[i];
    if (seen.met) continue;
    const std::string otherwise = seen.others.empty() ? "no buffer is shown there" : "no such buffer is shown there, but " + seen.others;
    out.push_back(fmt::format("rank {}, event {}, {}: expected [{}], {}", expected.rank, expected.event, expected.buffer, fmt::join(expected.values, ", "),
                              seen.how_not.empty() ? otherwise : seen.how_not));
  }
  return out;
}

}  // namespace gradledger::verbs
