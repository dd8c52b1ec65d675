// One run that several processes share: which part this one is, and files of its own.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/base/result.h"
#include "tools/gradledger/explore.h"
#include "tools/gradledger/fuzz.h"
#include "tools/gradledger/gate_options.h"
#include "tools/gradledger/options.h"

namespace gradledger::tool {

// In names of files: "2-of-4" takes its place.
inline constexpr const char* shard_placeholder = "{shard}";

// Replaces "auto" by what the launcher says, in the words of the command too, and the placeholder in names of files; what the report says of it is in options.shard. Errors: what launched() refuses;
// options whose reports nobody joins; a file that processes started by a launcher would share.
std::optional<InputError> take_sharding(const std::string& verb, std::vector<std::string>& words, Options& options, FuzzOptions& fuzz, GateVerb& gate, const ExploreVerb& explore);

}  // namespace gradledger::tool
