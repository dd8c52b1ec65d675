// What JSON records have in common.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "report/finding.h"
#include "report/version/version.h"
#include "report/weighed_blocks.h"
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

// Contributions that a finding, or a row of the ledger, lists one by one. Its blocks have all.
inline constexpr std::size_t listed_contributions_max = 1024;

// {"step", "ranks", "micro_batches", "expected", "observed"} of each, the second and third as first and last; `more` adds to an object what else it has.
template <class More>
ordered_json blocks_json(const std::vector<Weighed>& all, More&& more) {
  ordered_json out = ordered_json::array();
  for (const WeighedBlock& block : blocks_of(all)) {
    const Contribution& c = block.weighed.contribution;
    ordered_json one{{"step", c.step},
                     {"ranks", {c.rank, block.last_rank}},
                     {"micro_batches", {c.micro_batch, block.last_micro_batch}},
                     {"expected", number_json(block.weighed.expected)},
                     {"observed", number_json(block.weighed.observed)}};
    more(one, block.weighed);
    out.push_back(std::move(one));
  }
  return out;
}

// Two operations that nothing orders.
ordered_json pair_json(const RaceRecord& race);

// The one shape that findings have.
ordered_json finding_json(const Finding& finding, const FoundIn& in);
ordered_json findings_json(const std::vector<Finding>& findings, const FoundIn& in);

}  // namespace gradledger::report
