// The configuration as scenarios write it.
#pragma once

#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "sim/base/result.h"
#include "sim/frameworks/megatron_fsdp/config.h"

namespace gradledger::megatron_fsdp {

// MixedPrecisionPolicy, into what it is by default; and what of it is as by default is not said. Errors: a dtype that is not modelled.
std::optional<InputError> take_dtypes(const nlohmann::json& given, const std::string& where, MixedPrecision& into);
void put_dtypes(const MixedPrecision& of, nlohmann::ordered_json& into);

// Errors: what the schema refuses, or values that do not fit each other, by their pointers.
Result<MegatronFsdpConfig> megatron_fsdp_config_from_json(const nlohmann::json& object, const std::string& where);

}  // namespace gradledger::megatron_fsdp
