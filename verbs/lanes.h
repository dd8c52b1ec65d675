// What a run looks like from outside: its operations on their lanes, and what it holds and sends.
#pragma once

#include <cstdint>
#include <span>

#include "report/report.h"
#include "sim/execution/rank.h"
#include "verbs/session.h"

namespace gradledger::verbs {

enum class Picture : std::uint8_t { page, file };  // what a page can draw; all operations

// Adds lanes and accounting to a report, by a dry run of the scenario's linear programs on the host. Where that does not fit the memory limit, or a
// real framework ran the script, the report says so instead; so it does where a page could not draw them.
void add_picture(const Loaded& loaded, const Options& options, report::Report& report, Picture picture = Picture::file);

// The operations of programs that have run, as far as they got. groups: members by id.
report::Lanes lanes_of(const Timeline& timeline, std::span<const Rank> ranks, const std::vector<std::vector<std::uint32_t>>& groups, std::vector<RaceRecord> races);

}  // namespace gradledger::verbs
