// DeepSpeed's wrappers of an optimizer: which one a configuration selects, and the engines that stand for them.
#pragma once

#include <cstdint>
#include <span>

#include "sim/base/result.h"
#include "sim/engine/engine.h"
#include "sim/scenario/scenario.h"

namespace gradledger::deepspeed {

// By the numbers of engines().
enum class Wrapper : std::uint8_t { plain, fp16_fused, fp16_unfused, bf16, zero_stages_1_and_2, zero_stage_3 };

std::span<const EngineInfo> engines();
inline const EngineInfo& info_of(Wrapper wrapper) { return engines()[static_cast<std::size_t>(wrapper)]; }

// Errors: combinations that DeepSpeed refuses, with its reason, and options that are not modelled.
Result<Wrapper> select_wrapper(const Scenario& scenario);

// Precondition: select_wrapper succeeds.
EngineFactory engine_factory(const Scenario& scenario);

}  // namespace gradledger::deepspeed
