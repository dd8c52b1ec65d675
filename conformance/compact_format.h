// The compact form of recordings: one JSON object a line, each vector of a run written once and named by its number, and of each operation
// only what it changed. tests/conformance/data/README.md describes it to its readers.
#pragma once

#include <nlohmann/json.hpp>

#include "conformance/run.h"

namespace gradledger::conform {

inline constexpr const char* compact_format = "gradledger recording 1";

// Reading it with read_run gives the same value.
nlohmann::ordered_json to_compact(const RecordedRun& run);

}  // namespace gradledger::conform
