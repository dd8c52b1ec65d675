// What somebody says beside a scenario file and in place of what it says: the release, and keys of the configuration.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "sim/base/error_list.h"

namespace gradledger {

struct Override {
  std::string option;     // "--config"
  std::string argument;   // "zero_optimization.stage=2"
  std::string pointer;    // "/engine/config/zero_optimization/stage"
  std::string value;      // as JSON
  std::string made = {};  // the first place on the way there that a document lacked; filled in when it is put into one

  bool operator==(const Override&) const = default;
  // As errors name it: "--config zero_optimization.stage".
  std::string name() const;
};

// In place of all that the file says of the release, switches included.
Override as_of_override(const std::string& release);

// "KEY=VALUE". The key is that of the configuration, with a dot where it is nested, or a JSON pointer into it; a value that is no JSON is a text.
// Errors: there is no key or no value, or what begins as JSON is none.
Result<Override> config_override(const std::string& text);

// Puts them into the document of a scenario, one after another; where it has no object that they could go into, its schema tells that. Errors: a
// way that leads through something else.
void override_document(nlohmann::json& document, std::vector<Override>& overrides, ErrorList& errors);

// With the name of an option in place of a pointer to what was put there.
InputError named_by_options(InputError error, const std::vector<Override>& overrides);

}  // namespace gradledger
