// Scenarios whose gradients are a network's own backward.
#pragma once

#include <string>
#include <vector>

#include "sim/base/hash.h"
#include "sim/frameworks/deepspeed/settings.h"
#include "tests/support/scenarios.h"

namespace gradledger::testing {

// Layers between the widths, named 0.weight, 0.bias, 1.weight, ...; two ranks, two backwards a step, no engine chosen.
inline Scenario network(std::vector<std::uint32_t> widths, Activation activation, bool bias, std::uint32_t batch) {
  Scenario s;
  s.name = "network";
  s.world_size = 2;
  s.gradients.kind = GradientKind::mlp;
  s.gradients.samples_per_micro_batch = batch;
  Mlp mlp;
  mlp.activation = activation;
  for (std::size_t l = 0; l + 1 < widths.size(); ++l) {
    LinearLayer layer{static_cast<std::uint32_t>(s.parameters.size()), {}, widths[l], widths[l + 1]};
    s.parameters.push_back({.name = std::to_string(l) + ".weight", .numel = layer.in * layer.out});
    if (bias) {
      layer.bias = layer.weight + 1;
      s.parameters.push_back({.name = std::to_string(l) + ".bias", .numel = layer.out});
    }
    mlp.layers.push_back(layer);
  }
  s.gradients.mlp = mlp;
  deepspeed_config(s).gradient_accumulation_steps = 2;
  deepspeed_config(s).gradient_clipping = 0;
  s.script = {repeat(2, managed(2))};
  return s;
}

inline Scenario random_network(std::uint64_t seed) {
  SplitMix64 random(seed);
  std::vector<std::uint32_t> widths;
  for (std::uint32_t layers = 1 + random.below(5); widths.size() <= layers;) widths.push_back(1 + random.below(24));
  const auto activation = static_cast<Activation>(random.below(3));
  const bool bias = random.below(2) == 0;
  return network(widths, activation, bias, 1 + random.below(6));
}

}  // namespace gradledger::testing
