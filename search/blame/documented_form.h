// A script with the windows in which it leaves the documentation written as the documentation has them, or left out: what would have been.
#pragma once

#include <optional>
#include <vector>

#include "sim/frameworks/framework.h"

namespace gradledger::search {

enum class Form : std::uint8_t {
  calls,     // the boundary is set before each backward of those windows
  counted,   // gradient_accumulation_steps is what every window has, and a step() follows each backward
  left_out,  // those windows are not there
};

struct Documented {
  Scenario scenario;
  std::vector<std::optional<std::uint32_t>> window;  // of it, by window of the original
};

// Nothing where the script cannot be written in that form. The contract is what the configuration documents.
std::optional<Documented> documented_form(const Scenario& scenario, const Timeline& timeline, const std::vector<Misuse>& misuses, Form form);

}  // namespace gradledger::search
