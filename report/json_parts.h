// What JSON reports have in common.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "ref/finding.h"
#include "report/version/version.h"
#include "sim/scenario/overrides.h"
#include "sim/scenario/positions.h"

namespace gradledger::report {

using nlohmann::ordered_json;

// One object in a line of its own. A byte that is no UTF-8 becomes the sign for that.
std::string json_line(const ordered_json& object);

// {"record"}, where there is one, and the two that head every object of a report.
ordered_json json_head(const Version& tool, const char* record = nullptr);

// "line" and "column"; null where they are not known.
ordered_json position_json(const Position& at);

// Numbers that JSON has no form for are "inf", "-inf" and "nan".
ordered_json number_json(double x);

// An object for each: "option", "pointer", "value".
ordered_json overrides_json(const std::vector<Override>& overrides);

// {"whose", "rule", "why"}
ordered_json blame_json(const ref::Blame& blame);

}  // namespace gradledger::report
