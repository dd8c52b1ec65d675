// A set-up, or one that differs from it in one thing, as a scenario.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "audit/setup.h"
#include "sim/base/result.h"
#include "sim/scenario/scenario.h"

namespace gradledger::audit {

struct Variant {
  nlohmann::json config;
  std::string as_of;
  const loops::Loop* loop = nullptr;
  loops::Releases packages;
  loops::GrpoSetting grpo;
  bool sync_each_batch = false;
};

// The set-up itself.
Variant variant_of(const Setup& setup);

// Errors: what the framework, or a scenario, refuses of it.
Result<Scenario> scenario_of(const Setup& setup, const Variant& variant);

}  // namespace gradledger::audit
