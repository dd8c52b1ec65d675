// What a person who reads a class of findings for the first time wants to know of it. docs/classes.md is held to this table by a test.
#pragma once

#include <span>
#include <string_view>

#include "ref/finding.h"

namespace gradledger::verbs {

struct ClassHelp {
  ref::FindingClass finding;
  std::string_view effect;  // on a training run
  std::string_view causes;  // what it mostly comes from
  std::string_view cure;    // what to look at first
};

// One for each class, in the order of ref::finding_classes().
std::span<const ClassHelp> class_help();

}  // namespace gradledger::verbs
