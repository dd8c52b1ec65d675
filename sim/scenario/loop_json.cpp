#include "sim/scenario/loop_json.h"

#include <algorithm>
#include <set>
#include <utility>

#include "sim/base/limits.h"
#include "sim/base/files.h"
#include "sim/scenario/json_reader.h"
#include "sim/scenario/schema.h"

namespace gradledger {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using Problem = std::optional<InputError>;

constexpr const char* tokens_table_rule = "/properties/tokens/oneOf/1/properties/table";

constexpr std::pair<Normaliser, const char*> normalisers[] = {
    {Normaliser::framework, "gradient_accumulation_steps"}, {Normaliser::window, "window"}, {Normaliser::tokens, "tokens"}, {Normaliser::tokens_of_rank, "tokens_of_rank"}};
constexpr std::pair<Window, const char*> windows[] = {{Window::since_last_step, "since_last_step"}, {Window::every_step_call, "every_step_call"}, {Window::marked, "marked"}};

template <class Value, std::size_t N>
Value value_named(const std::pair<Value, const char*> (&names)[N], const std::string& name, Value other) {
  for (const auto& [value, known] : names)
    if (name == known) return value;
  return other;
}

template <class Value, std::size_t N>
const char* name_in(const std::pair<Value, const char*> (&names)[N], Value value) {
  for (const auto& [known, name] : names)
    if (known == value) return name;
  return "";
}

Problem check_table(const json& table, std::uint32_t world_size, const std::string& where) {
  for (std::size_t w = 0; w < table.size(); ++w)
    if (table[w].size() != world_size)
      return InputError{where + "/" + std::to_string(w), "has rows for " + std::to_string(table[w].size()) + " ranks; expected one for each of " + std::to_string(world_size)};
  return std::nullopt;
}

}  // namespace

Result<StatedContract> contract_from_json(const json& contract) {
  StatedContract out;
  out.window = value_named(windows, contract.value("window", ""), Window::since_last_step);
  out.average_over = contract.value("average_over", "world");
  if (contract.contains("divide_by")) {
    const json& by = contract["divide_by"];
    if (by.is_number()) out.divide(Rational(by.get<std::int64_t>()));
    else out.normaliser = value_named(normalisers, by, Normaliser::framework);
  }
  out.zero_grad_discards = contract.value("zero_grad", "discards") == "discards";
  out.reports_surplus = contract.value("surplus_communication", "allowed") == "reported";
  if (contract.contains("clip")) out.clip = StatedClip{contract["clip"]["norm_over"]};
  return out;
}

ordered_json contract_to_json(const StatedContract& contract) {
  ordered_json out;
  out["window"] = name_in(windows, contract.window);
  out["average_over"] = contract.average_over;
  if (contract.normaliser == Normaliser::number) out["divide_by"] = contract.divide_by.numerator();
  else out["divide_by"] = name_in(normalisers, contract.normaliser);
  if (!contract.zero_grad_discards) out["zero_grad"] = "keeps";
  if (contract.reports_surplus) out["surplus_communication"] = "reported";
  if (contract.clip) out["clip"] = {{"norm_over", contract.clip->norm_over}};
  return out;
}

Result<Tokens> tokens_from_json(const json& tokens, std::uint32_t world_size, const std::filesystem::path& directory) {
  Tokens out;
  if (tokens.is_number()) {
    out.constant = tokens.get<std::uint32_t>();
    return out;
  }
  if (tokens.contains("table")) {
    if (Problem problem = check_table(tokens["table"], world_size, "/tokens/table")) return *problem;
    out.table = tokens["table"].get<decltype(out.table)>();
    return out;
  }
  out.file = tokens["file"];
  const auto text = read_file(directory / out.file);
  if (!text) return InputError{"/tokens/file", text.error().text()};
  const auto table = read_json(*text);
  if (!table) return InputError{"/tokens/file", out.file + ": " + table.error().text()};
  const std::string where = "/tokens/file, " + out.file + ":";
  if (Problem problem = check_against_part(tokens_table_rule, *table, where)) return *problem;
  if (Problem problem = check_table(*table, world_size, where)) return *problem;
  out.table = table->get<decltype(out.table)>();
  return out;
}

ordered_json tokens_to_json(const Tokens& tokens) {
  if (tokens.constant) return *tokens.constant;
  if (!tokens.file.empty()) return {{"file", tokens.file}};
  return {{"table", tokens.table}};
}

Result<RankLayout> layout_from_json(const json& layout, std::uint32_t world_size) {
  std::map<std::string, std::uint32_t> sizes;
  for (const auto& [key, value] : layout.items())
    if (key != "order") sizes[key] = value;
  return RankLayout::of(layout.value("order", ""), sizes, world_size);
}

ordered_json layout_to_json(const RankLayout& layout) {
  ordered_json out = ordered_json::object();
  if (!layout.order().empty()) out["order"] = layout.order();
  for (const auto& [name, size] : layout.stated()) out[name] = size;
  return out;
}

Problem groups_from_json(const json& groups, Scenario& into) {
  for (const auto& [name, sets] : groups.items()) {
    const std::string where = "/groups/" + pointer_token(name);
    const bool plain = !name.empty() && name.size() <= 64 && name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string::npos;
    if (!plain || name == "world" || name == "rank" || name == "none")
      return InputError{where, "is no name for a group; expected small letters, digits and _, and not world, rank or none"};
    std::set<std::uint32_t> seen;
    for (std::size_t i = 0; i < sets.size(); ++i) {
      for (const json& rank : sets[i]) {
        if (rank >= into.world_size)
          return InputError{where + "/" + std::to_string(i),
                            "has rank " + rank.dump() + " of a world of " + std::to_string(into.world_size) + "; expected ranks from 0 to " + std::to_string(into.world_size - 1)};
        if (!seen.insert(rank.get<std::uint32_t>()).second) return InputError{where + "/" + std::to_string(i), "has rank " + rank.dump() + " again; expected each rank once"};
      }
    }
    if (seen.size() != into.world_size)
      return InputError{where, "has " + std::to_string(seen.size()) + " of " + std::to_string(into.world_size) + " ranks; expected each rank in one of its sets"};
    auto members = sets.get<std::vector<std::vector<std::uint32_t>>>();
    for (auto& set : members) std::sort(set.begin(), set.end());
    into.groups[name] = std::move(members);
  }
  return std::nullopt;
}

Result<Formula> formula_from_json(const json& formula, const std::string& where) {
  if (formula.is_string()) return Formula::parse(formula.get_ref<const std::string&>(), where);
  // The decimal that a person writes, not the fp64 value next to it.
  const double number = formula.get<double>();
  const auto exact = simplest_within(number, number * 0x1p-53, limits::formula_number_max);
  if (!exact || exact->numerator() == 0) return InputError{where, "is no quotient of numbers up to " + std::to_string(limits::formula_number_max) + "; expected one"};
  return Formula(*exact);
}

Result<std::vector<std::vector<Formula>>> weight_from_json(const json& weight, std::uint32_t world_size, std::uint32_t micro_batches, const std::string& where) {
  std::vector<std::vector<Formula>> out;
  if (!weight.is_array()) {
    auto formula = formula_from_json(weight, where);
    if (!formula) return formula.error();
    if (!formula->is_one()) out.push_back({std::move(formula).value()});
    return out;
  }
  if (weight.size() != world_size) return InputError{where, "has " + std::to_string(weight.size()) + " entries; expected one for each of " + std::to_string(world_size) + " ranks"};
  for (std::size_t r = 0; r < weight.size(); ++r) {
    const std::string at = where + "/" + std::to_string(r);
    const json row = weight[r].is_array() ? weight[r] : json::array({weight[r]});
    if (weight[r].is_array() && row.size() != micro_batches)
      return InputError{at, "has " + std::to_string(row.size()) + " entries; expected one for each of " + std::to_string(micro_batches) + " micro-batches"};
    out.emplace_back();
    for (std::size_t m = 0; m < row.size(); ++m) {
      auto formula = formula_from_json(row[m], weight[r].is_array() ? at + "/" + std::to_string(m) : at);
      if (!formula) return formula.error();
      out.back().push_back(std::move(formula).value());
    }
  }
  return out;
}

ordered_json weight_to_json(const std::vector<std::vector<Formula>>& weight) {
  if (weight.size() == 1 && weight[0].size() == 1) return weight[0][0].text();
  ordered_json out = ordered_json::array();
  for (const std::vector<Formula>& row : weight) {
    if (row.size() == 1) {
      out.push_back(row[0].text());
      continue;
    }
    out.push_back(ordered_json::array());
    for (const Formula& formula : row) out.back().push_back(formula.text());
  }
  return out;
}

}  // namespace gradledger
