// Releases of what is installed in a Python environment.
#pragma once

#include <string>

#include "loops/releases.h"
#include "sim/base/result.h"

namespace gradledger::tool {

// Asks importlib.metadata of an interpreter, which is named as a shell would find it. Errors: it cannot be run, fails, or takes too long.
Result<loops::Releases> installed_releases(const std::string& python);

}  // namespace gradledger::tool
