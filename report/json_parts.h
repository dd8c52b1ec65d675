// What JSON records have in common.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "report/finding.h"
#include "report/version/version.h"
#include "sim/scenario/overrides.h"

namespace gradledger::report {

using nlohmann::ordered_json;

// Of the records that a command prints: it rises when a field goes or changes its meaning.
inline constexpr int json_schema_version = 2;

// One object in a line of its own. A byte that is no UTF-8 becomes the sign for that.
std::string json_line(const ordered_json& object);

// Null where it is empty.
ordered_json or_null(const std::string& text);

template <class Number>
ordered_json number_or_null(const std::optional<Number>& number) {
  return number ? ordered_json(*number) : ordered_json(nullptr);
}

// "line" and "column"; null where they are not known.
ordered_json position_json(const Position& at);

// "event" is null where it came before the first; "site" likewise where nothing is known of a framework's source.
ordered_json operation_json(const RacingOperation& operation);

// Numbers that JSON has no form for are "inf", "-inf" and "nan".
ordered_json number_json(double x);

// An object for each: "option", "pointer", "value".
ordered_json overrides_json(const std::vector<Override>& overrides);

// Sixteen digits.
ordered_json hash_json(std::uint64_t hash);

// {"whose", "rule", "why"}
ordered_json blame_json(const ref::Blame& blame);

// {"parameter", "begin", "end"} of each.
ordered_json elements_json(const std::vector<std::string>& parameters, const std::vector<ref::ElementRange>& elements);

// Two operations that nothing orders.
ordered_json pair_json(const RaceRecord& race);

// The one shape that findings have.
ordered_json finding_json(const Finding& finding, const FoundIn& in);
ordered_json findings_json(const std::vector<Finding>& findings, const FoundIn& in);

}  // namespace gradledger::report
