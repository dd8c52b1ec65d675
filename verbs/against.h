// A real framework and its model on the same scenario and data: the weights after every step, element by element.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "verbs/session.h"

namespace gradledger::verbs {

struct AgainstModel {
  std::uint64_t elements = 0, events = 0;  // compared
  std::string difference;                  // the first, with both values; empty: none
  std::string up_to;                       // what weights are compared up to, where they differ behind it, both rightly: a norm added up in another order, an approximation, a race
};

// Nothing where there is nothing to hold it against: the framework has no engine here, or none for this configuration; or its optimizer is a
// kernel that drivers do not compile, which PyTorch's arithmetic stands in for. Precondition: options.driver. Throws
// ProgramsTooLarge, driver::NotRun and RunFailure.
std::optional<AgainstModel> against_model(const Loaded& loaded, const Options& options);

}  // namespace gradledger::verbs
