// The engines as a campaign names them: a configuration that makes DeepSpeed take one gradient lifecycle.
#pragma once

#include <span>
#include <string_view>

#include "sim/base/result.h"
#include "sim/scenario/scenario.h"

namespace gradledger::search {

struct Variant {
  std::string_view name;     // "zero2-offload"
  std::string_view meaning;
  void (*apply)(Scenario&);  // stage, offload and the dtypes without which the lifecycle is another
};

std::span<const Variant> variants();

// Errors name the nearest variant, if one is near.
Result<const Variant*> variant_named(std::string_view name, std::string_view where);

// The model dtype, with the switch of the configuration that goes with it.
void set_model_dtype(Scenario& scenario, Dtype dtype);

}  // namespace gradledger::search
