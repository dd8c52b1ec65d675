#include "sim/producers/driver/weights.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "sim/numeric/kernels.h"

namespace gradledger::driver {
namespace {

// What one rounding to a format may be off by, relative and near zero: half a unit in the last of its digits.
double rounding_of(Dtype dtype, double magnitude) {
  const auto [digits, least] = dtype == Dtype::bfloat16 ? std::pair(8, -133) : dtype == Dtype::float16 ? std::pair(11, -24) : std::pair(24, -149);
  return std::ldexp(magnitude, -digits) + std::ldexp(1.0, least - 1);
}

std::vector<double> read(const ObservedPiece& piece) {
  std::vector<double> out(piece.numel);
  if (piece.dtype == Dtype::float64) std::memcpy(out.data(), piece.data, piece.numel * sizeof(double));
  else numeric::convert(Dtype::float64, out.data(), piece.dtype, piece.data, piece.numel);
  return out;
}

bool tells_the_gradient(const OptimizerConfig& optimizer) { return optimizer.type == OptimizerType::sgd && optimizer.weight_decay == 0 && optimizer.learning_rate > 0; }

}  // namespace

WeightsOfRank::WeightsOfRank(const Scenario& scenario, const Contract& contract, const GradientSource& source) : scenario_(scenario), contract_(contract) {
  for (std::uint32_t p = 0; p < scenario.parameters.size(); ++p) {
    weights_.emplace_back(scenario.parameters[p].numel);
    if (scenario.parameters[p].tied_to) continue;
    source.initial_parameter(p, 0, weights_.back());
    for (double& weight : weights_.back()) {
      // As the rank holds it at first.
      const auto given = static_cast<float>(weight);
      std::byte stored[sizeof(double)];
      numeric::convert(scenario.dtype_of(p), stored, Dtype::float32, reinterpret_cast<const std::byte*>(&given), 1);
      numeric::convert(Dtype::float64, &weight, scenario.dtype_of(p), stored, 1);
    }
  }
}

std::optional<ShownBuffer> WeightsOfRank::applied_by(const Done& done, std::vector<std::vector<double>>& errors) {
  ShownBuffer out;
  out.name = "weights before - weights after";
  out.role = Role::applied_gradient;
  out.at_end = false;
  std::vector<double> values;
  for (const ShownBuffer& buffer : done.buffers) {
    if (buffer.role != Role::parameter) continue;
    for (const ObservedPiece& piece : buffer.pieces) {
      if (piece.parameter < 0) continue;
      const auto p = static_cast<std::uint32_t>(piece.parameter);
      const OptimizerConfig& optimizer = contract_.optimizer_of(p);
      const std::vector<double> after = read(piece);
      std::vector<double> error(piece.numel);
      for (std::uint32_t i = 0; i < piece.numel; ++i) {
        double& before = weights_[p][piece.parameter_offset + i];
        const double largest = std::abs(before) + std::abs(after[i]), model = rounding_of(piece.dtype, std::abs(before)) + rounding_of(piece.dtype, std::abs(after[i]));
        values.push_back((before - after[i]) / optimizer.learning_rate);
        // One unit of fp64 more for the division and the sums here.
        error[i] = (model + 2 * rounding_of(Dtype::float32, largest)) / optimizer.learning_rate * (1 + 8 * std::numeric_limits<double>::epsilon());
        before = after[i];
      }
      if (!scenario_.parameters[p].has_gradient() || !tells_the_gradient(optimizer)) {
        values.resize(values.size() - piece.numel);
        continue;
      }
      errors.push_back(std::move(error));
      out.pieces.push_back({piece.parameter, piece.parameter_offset, piece.numel, Dtype::float64, nullptr, errors.back().data()});
    }
  }
  if (out.pieces.empty()) return std::nullopt;
  out.data.resize(values.size() * sizeof(double));
  std::memcpy(out.data.data(), values.data(), out.data.size());
  const auto* at = reinterpret_cast<const std::byte*>(out.data.data());
  for (ObservedPiece& piece : out.pieces) {
    piece.data = at;
    at += piece.numel * sizeof(double);
  }
  return out;
}

}  // namespace gradledger::driver
