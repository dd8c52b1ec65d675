// Names of parameterised tests, which take letters, digits and underscores alone.
#pragma once

#include <algorithm>
#include <string>

namespace gradledger::testing {

inline std::string name_of_test(std::string of) {
  std::replace(of.begin(), of.end(), '-', '_');
  return of;
}

}  // namespace gradledger::testing
