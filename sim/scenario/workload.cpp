#include "sim/scenario/workload.h"

#include <algorithm>
#include <cmath>

namespace gradledger {
namespace {

// As values of a file: "nan" is "nan".
bool same_elements(const std::vector<double>& a, const std::vector<double>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); });
}

bool same_given(const GivenValues& a, const GivenValues& b) {
  const auto same_ranks = [](const auto& x, const auto& y) { return std::equal(x.begin(), x.end(), y.begin(), y.end(), same_elements); };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same_ranks);
}

}  // namespace

bool Gradients::operator==(const Gradients& other) const {
  const bool same_values = values == other.values || (values && other.values && same_given(*values, *other.values));
  return kind == other.kind && seed == other.seed && samples_per_micro_batch == other.samples_per_micro_batch && file == other.file && same_values && mlp == other.mlp;
}

std::optional<std::uint32_t> Tokens::of(std::uint32_t window, std::uint32_t rank, std::uint32_t micro_batch) const {
  if (constant) return constant;
  const std::size_t at = table.size() == 1 ? 0 : window;
  if (at >= table.size() || rank >= table[at].size() || micro_batch >= table[at][rank].size()) return std::nullopt;
  return table[at][rank][micro_batch];
}

std::uint64_t Workload::numel() const {
  std::uint64_t sum = 0;
  for (const Parameter& p : parameters) sum += p.numel;
  return sum;
}

}  // namespace gradledger
