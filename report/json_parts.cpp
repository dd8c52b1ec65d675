#include "report/json_parts.h"

#include <cmath>

#include <fmt/format.h>

namespace gradledger::report {

std::string json_line(const ordered_json& object) { return object.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n"; }

ordered_json or_null(const std::string& text) { return text.empty() ? ordered_json(nullptr) : ordered_json(text); }

ordered_json position_json(const Position& at) {
  const auto known = [](std::size_t number) { return number > 0 ? ordered_json(number) : ordered_json(nullptr); };
  return {{"line", known(at.line)}, {"column", known(at.column)}};
}

ordered_json operation_json(const RacingOperation& o) {
  ordered_json out{{"operation", o.operation}, {"stream", o.stream}, {"event", o.event}, {"number", o.number}};
  if (o.event == no_event) out["event"] = nullptr;
  out["site"] = or_null(o.site);
  return out;
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

ordered_json hash_json(std::uint64_t hash) { return fmt::format("{:016x}", hash); }

ordered_json blame_json(const ref::Blame& blame) { return {{"whose", name_of(blame.whose)}, {"rule", or_null(blame.rule)}, {"why", blame.why}}; }

ordered_json elements_json(const std::vector<std::string>& parameters, const std::vector<ref::ElementRange>& elements) {
  ordered_json out = ordered_json::array();
  for (const ref::ElementRange& e : elements) out.push_back({{"parameter", parameters.at(e.parameter)}, {"begin", e.begin}, {"end", e.end}});
  return out;
}

}  // namespace gradledger::report
