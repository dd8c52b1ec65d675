#include "ref/mlp_source.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "sim/base/hash.h"

namespace gradledger::ref {
namespace {

// Elements of the gradients that are kept; those of one backward are, however large it is.
constexpr std::size_t kept_elements_max = 1u << 18;

enum Stream : std::uint64_t { of_weights, of_inputs, of_targets };

// Uniform variance of 1/3 in [-1, 1): with `in` inputs the factor keeps the sum's variance between 2/3 and 4/3 of an input's.
int scale_of(std::uint32_t in) { return std::max(0, (static_cast<int>(std::bit_width(in - 1)) - 1) / 2); }

std::vector<std::vector<double>> weights_of(const Workload& workload, std::uint64_t seed) {
  std::vector<std::vector<double>> out(workload.parameters.size());
  const auto draw = [&](std::uint32_t parameter, std::uint32_t in) {
    for (std::uint32_t i = 0; i < workload.parameters[parameter].numel; ++i) {
      const auto integer = static_cast<int>(hash_keys({seed, of_weights, parameter, i}) % 255) - 127;
      out[parameter].push_back(std::ldexp(integer, -7 - scale_of(in)));
    }
  };
  for (const LinearLayer& layer : workload.gradients.mlp->layers) {
    draw(layer.weight, layer.in);
    if (layer.bias) draw(*layer.bias, layer.in);
  }
  return out;
}

// A bound as large as a parameter's largest gradient says nothing: such an element is inconclusive, and not right.
void give_up_where_nothing_is_told(MlpGradients& gradients) {
  for (std::size_t p = 0; p < gradients.value.size(); ++p) {
    double largest = 0;
    for (double x : gradients.value[p]) largest = std::max(largest, std::abs(x));
    for (double& e : gradients.error[p])
      if (largest > 0 && e >= largest) e = std::numeric_limits<double>::infinity();
  }
}

}  // namespace

MlpSource::MlpSource(const Workload& workload, const Timeline& timeline, std::uint64_t seed)
    : workload_(workload),
      timeline_(timeline),
      seed_(seed),
      weights_(weights_of(workload, seed)),
      reference_(*workload.gradients.mlp, workload.gradients.samples_per_micro_batch, weights_) {}

void MlpSource::gradient(std::uint32_t backward, std::uint32_t rank, std::uint32_t parameter, std::uint64_t offset, std::span<double> out) const {
  std::copy_n(gradients(backward, rank).value[parameter].begin() + offset, out.size(), out.begin());
}

void MlpSource::gradient_error(std::uint32_t backward, std::uint32_t rank, std::uint32_t parameter, std::uint64_t offset, std::span<double> out) const {
  std::copy_n(gradients(backward, rank).error[parameter].begin() + offset, out.size(), out.begin());
}

void MlpSource::initial_parameter(std::uint32_t parameter, std::uint64_t offset, std::span<double> out) const {
  std::copy_n(weights_[parameter].begin() + offset, out.size(), out.begin());
}

void MlpSource::sample(std::uint32_t backward, std::uint32_t rank, std::uint32_t sample, std::span<float> input, std::span<float> target) const {
  const Backward& b = timeline_.backwards[backward];
  const std::uint64_t number = std::uint64_t{b.micro_batch[rank]} * batch() + sample;
  const auto draw = [&](Stream stream, std::span<float> out) {
    const std::uint64_t key = hash_keys({seed_, stream, b.step, number, rank});
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(static_cast<int>(mix(key ^ mix(i)) >> 56) - 128) / 64;
  };
  draw(of_inputs, input);
  draw(of_targets, target);
}

const MlpGradients& MlpSource::gradients(std::uint32_t backward, std::uint32_t rank) const {
  for (const Entry& entry : known_)
    if (entry.backward == backward && entry.rank == rank) return entry.gradients;
  const std::size_t most = std::max<std::size_t>(1, kept_elements_max / static_cast<std::size_t>(workload_.numel()));
  if (known_.size() >= most) known_.pop_front();
  known_.push_back({backward, rank, reference_.run([&](std::uint32_t n, std::span<float> input, std::span<float> target) { sample(backward, rank, n, input, target); })});
  give_up_where_nothing_is_told(known_.back().gradients);
  return known_.back().gradients;
}

}  // namespace gradledger::ref
