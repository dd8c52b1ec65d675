// A scenario file that expects what was reported, and is otherwise as somebody wrote it.
#pragma once

#include <string>

#include "sim/base/result.h"
#include "verbs/expectations.h"

namespace gradledger::verbs {

// The text of the file with `expect.findings` changed: a finding that is reported no more is taken away, one that is reported otherwise loses
// what is said of it, a new one is added by its class. Errors: the file cannot be read, or changed so that it means just this.
Result<std::string> updated_text(const Loaded& loaded, const Held& held);

}  // namespace gradledger::verbs
