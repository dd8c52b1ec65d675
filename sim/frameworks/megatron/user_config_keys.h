// Arguments of Megatron-LM that the audit has no value for.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace gradledger::megatron {

// Cannot touch what an update is made of.
bool touches_no_gradient(std::string_view name);

// What has no model here, in words; nothing where it has, or where the value asks for nothing.
std::optional<std::string> not_modelled(const std::string& name, const nlohmann::json& value);

}  // namespace gradledger::megatron
