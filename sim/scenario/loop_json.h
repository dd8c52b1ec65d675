// What a loop states of itself, from JSON and back: its contract, tokens, process groups, and what it multiplies by.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "sim/base/result.h"
#include "sim/scenario/scenario.h"

namespace gradledger {

// Of documents that passed the schema. Errors: tokens that fit no table of the world, groups that overlap or leave ranks out, formulas.
Result<StatedContract> contract_from_json(const nlohmann::json& contract);
Result<Tokens> tokens_from_json(const nlohmann::json& tokens, std::uint32_t world_size, const std::filesystem::path& directory);
Result<RankLayout> layout_from_json(const nlohmann::json& layout, std::uint32_t world_size);
std::optional<InputError> groups_from_json(const nlohmann::json& groups, Scenario& into);
Result<Formula> formula_from_json(const nlohmann::json& formula, const std::string& where);
// One formula for all, one for each rank, or for each rank one for each of `micro_batches`.
Result<std::vector<std::vector<Formula>>> weight_from_json(const nlohmann::json& weight, std::uint32_t world_size, std::uint32_t micro_batches, const std::string& where);

nlohmann::ordered_json contract_to_json(const StatedContract& contract);
nlohmann::ordered_json tokens_to_json(const Tokens& tokens);
nlohmann::ordered_json layout_to_json(const RankLayout& layout);
nlohmann::ordered_json weight_to_json(const std::vector<std::vector<Formula>>& weight);

}  // namespace gradledger
