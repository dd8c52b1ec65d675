// What searches draw alike for PyTorch's two sharding wrappers: how a model is cut into modules, and a mesh of ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/frameworks/drawing.h"
#include "sim/frameworks/sharded_modules.h"

namespace gradledger {

// Units of parameters that follow each other; those in none are the root's, and some of them nested ones, where that makes a difference.
Units draw_units(Draws& draws, const Scenario& scenario, std::vector<std::string>* nested);

// Adds the two groups of a mesh. Precondition: the world has a shard of at least so many ranks.
Mesh draw_mesh(Draws& draws, std::uint32_t shard_min, Scenario& out);

// Mixed precision of weights in 16 bits, in one case of three where it is taken: gradients are computed and reduced in fp32, or reduced in it alone.
void draw_wider(Draws draws, bool taken, std::optional<Dtype>& param_dtype, std::optional<Dtype>& reduce_dtype);

}  // namespace gradledger
