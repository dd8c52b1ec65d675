#include "sim/frameworks/torch/ddp/power_sgd.h"

#include <algorithm>

namespace gradledger::torch {

std::optional<LowRank> low_rank_of(const DdpConfig& config, const Parameter& parameter) {
  const auto given = config.rows.find(parameter.name);
  const std::uint64_t rows = given == config.rows.end() ? parameter.numel : given->second;
  const std::uint64_t columns = parameter.numel / rows;
  const std::uint64_t rank = std::min({rows, columns, config.power_sgd->matrix_approximation_rank});
  const bool saves = static_cast<double>((rows + columns) * rank) * config.power_sgd->min_compression_rate < static_cast<double>(parameter.numel);
  if (!saves) return std::nullopt;
  return LowRank{rows * rank, columns * rank};
}

}  // namespace gradledger::torch
