// What a producer promises, as a file says it.
#pragma once

#include <nlohmann/json.hpp>

#include "conformance/fields.h"
#include "sim/trace/producer.h"

namespace gradledger::conform {

nlohmann::ordered_json json_of(const Capabilities& capabilities);

// Throws Unreadable: a promise that is not known, which may be one that the oracle would have to know.
Capabilities capabilities_of(const Field& field);

}  // namespace gradledger::conform
