// Collectives of real frameworks as messages: docs/driver-protocol.md, "The process group".
#pragma once

#include <cstdint>

#include <nlohmann/json.hpp>

#include "sim/base/result.h"
#include "sim/producers/driver/group_request.h"

namespace gradledger::driver {

// A "collective" of a rank; its data is moved out of the message. events: how many the script has. Errors name the key: one that is missing, unknown or
// of another type, and whatever fault_of() finds.
Result<GroupRequest> group_request(nlohmann::json&& message, std::uint32_t rank, std::uint32_t world_size, std::uint64_t events);

// The id of a "wait".
Result<std::uint64_t> group_wait(const nlohmann::json& message);

// "result", "refused" or "go_on".
nlohmann::json group_message(GroupAnswer&& answer);

}  // namespace gradledger::driver
