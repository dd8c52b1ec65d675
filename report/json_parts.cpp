#include "report/json_parts.h"

#include <cmath>

#include <fmt/format.h>

namespace gradledger::report {

std::string json_line(const ordered_json& object) { return object.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n"; }

ordered_json json_head(const Version& tool, const char* record) {
  ordered_json out;
  if (record) out["record"] = record;
  out["schema_version"] = 1;
  out["tool"] = tool_json(tool);
  return out;
}

ordered_json position_json(const Position& at) {
  if (!at.known()) return {{"line", nullptr}, {"column", nullptr}};
  return {{"line", at.line}, {"column", at.column}};
}

ordered_json number_json(double x) {
  if (std::isfinite(x)) return x;
  return fmt::format("{}", x);
}

ordered_json overrides_json(const std::vector<Override>& overrides) {
  ordered_json out = ordered_json::array();
  for (const Override& one : overrides) out.push_back({{"option", one.name()}, {"pointer", one.pointer}, {"value", ordered_json::parse(one.value)}});
  return out;
}

ordered_json blame_json(const ref::Blame& blame) {
  return {{"whose", name_of(blame.whose)}, {"rule", blame.rule.empty() ? ordered_json(nullptr) : ordered_json(blame.rule)}, {"why", blame.why}};
}

}  // namespace gradledger::report
