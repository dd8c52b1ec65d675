// Something that is wrong with a scenario, or in it, and where: what a person reads as a sentence, and programs by its parts.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "sim/base/result.h"
#include "sim/scenario/positions.h"

namespace gradledger::report {

// Rules beside the classes of findings: what a scenario expects, and whether it is one at all.
inline constexpr const char* unmet_expectation = "unmet-expectation";
inline constexpr const char* bad_scenario = "bad-scenario";

struct Problem {
  std::string text;
  std::string rule = unmet_expectation;  // or a class of findings
  std::string pointer;                   // JSON pointer into the scenario; empty: of no one place
  std::string family;                    // of the buffer, as "fp32_groups_gradients_flat"
  Position at;                           // of the pointer, in the scenario's file

  Problem(std::string sentence, std::string of = unmet_expectation, std::string where = "", std::string buffers = "")
      : text(std::move(sentence)), rule(std::move(of)), pointer(std::move(where)), family(std::move(buffers)) {}
  Problem(const char* sentence) : text(sentence) {}

  bool operator==(const Problem&) const = default;
};

// Of an error in a file.
Problem problem_of(const InputError& error, const std::string& file);

}  // namespace gradledger::report
