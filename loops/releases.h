// Releases of packages: compared, and read from what lists them.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "sim/base/result.h"

namespace gradledger::loops {

using Releases = std::map<std::string, std::string>;  // by package, in small letters with "-"

// "4.46.0" against "4.47": number by number; what is missing is 0, and what follows a number that is none ("rc1", "+cpu", ".dev0") is left out.
bool at_least(std::string_view release, std::string_view other);

// As packages are compared: "Open_Instruct" is "open-instruct".
std::string package_name(std::string_view written);

// `pip freeze`, `uv pip freeze` or a requirements file with ==. Lines without a release ("-e", "@ git+https") are left out. Errors: no release in it.
Result<Releases> releases_of_freeze(std::string_view text, const std::string& file);

// {"deepspeed": "0.18.6"}, as an interpreter says of its environment.
Result<Releases> releases_of_json(std::string_view text, const std::string& where);

}  // namespace gradledger::loops
