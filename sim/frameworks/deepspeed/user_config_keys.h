// Keys of a DeepSpeed configuration beside those that a scenario has: which of them cannot touch gradients, which do and are not modelled.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace gradledger::deepspeed {

// Whether the value at a pointer, and all below it, has nothing to do with gradients.
bool touches_no_gradient(std::string_view pointer);

// Why a value is not modelled; nothing where it is off, or the key is another.
std::optional<std::string> not_modelled(std::string_view pointer, const nlohmann::json& value);

// Whether a key is one of those that are not modelled, on or off.
bool is_known_switch(std::string_view pointer);

// Keys below an object that are known beside a scenario's own: for suggestions.
std::vector<std::string> other_keys(std::string_view object);

}  // namespace gradledger::deepspeed
