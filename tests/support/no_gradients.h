// The source of runs on weights, and of dry ones, which must not be asked.
#pragma once

#include <cstdint>
#include <span>

#include <gtest/gtest.h>

#include "sim/trace/producer.h"

namespace gradledger::testing {

class NoGradients final : public GradientSource {
 public:
  void gradient(std::uint32_t, std::uint32_t, std::uint32_t, std::uint64_t, std::span<double>) const override { ADD_FAILURE() << "this run asks for no gradient"; }
};

}  // namespace gradledger::testing
